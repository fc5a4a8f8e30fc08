// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The order in which each engine calls the policy at each step of a task's life, held to one table.
//!
//! The live scheduler does not run here, so both orders are read off the sources: from the function that is the step, in
//! the order of its text, through the engine's own functions that it calls. What is not about turns, such as limits' timers,
//! is left out (`PARTS`).
use std::collections::BTreeMap;
use std::path::Path;

/// One step: the functions that are it in each engine, and what of the policy they call. A row of both is the rule; where the
/// engines differ each has its own, and `why`.
struct Step {
    name: &'static str,
    live: (&'static [&'static str], &'static [&'static str]),
    sim: (&'static str, &'static [&'static str]),
    why: &'static str,
}

const LEAVE: [&str; 5] = [
    "pl_task_charge",
    "pl_steps_ran",
    "pl_steps_leave",
    "pl_task_uncount",
    "pl_task_blocked",
];

/// Every call that makes up a step.
const PARTS: [&str; 18] = [
    "pl_task_moved",
    "pl_task_runnable",
    "pl_task_count",
    "pl_steps_tell",
    "pl_steps_enter",
    "pl_steps_comes",
    "pl_steps_pick",
    "pl_task_gives_way",
    "pl_task_reweigh",
    "pl_steps_picked",
    "pl_fair_turn",
    "pl_task_charge",
    "pl_steps_ran",
    "pl_steps_tick",
    "pl_steps_yield",
    "pl_steps_leave",
    "pl_task_uncount",
    "pl_task_blocked",
];

const STEPS: [Step; 7] = [
    Step {
        name: "enter",
        live: (
            &["account_in"],
            &[
                "pl_task_moved",
                "pl_task_runnable",
                "pl_task_count",
                "pl_steps_tell",
                "pl_steps_enter",
                "pl_steps_comes",
            ],
        ),
        sim: (
            "enqueue",
            &[
                "pl_task_charge",
                "pl_steps_ran",
                "pl_task_moved",
                "pl_task_runnable",
                "pl_task_count",
                "pl_steps_enter",
            ],
        ),
        why: "the simulator charges the running task first; live, its lines are told what it ran, and limits at the next tick. \
              Whether the one that came goes before it is asked, simulated, once that is queued",
    },
    Step {
        name: "pick",
        live: (&["pick"], &["pl_task_gives_way", "pl_task_reweigh", "pl_steps_picked"]),
        sim: ("start", &["pl_task_reweigh", "pl_steps_picked"]),
        why: "simulated, what gives way is found as a task's group or policy changes",
    },
    Step {
        name: "a turn's end",
        live: (&["turn"], &["pl_fair_turn"]),
        sim: ("turn", &["pl_fair_turn"]),
        why: "",
    },
    Step {
        name: "ran",
        live: (&["charge"], &["pl_task_charge"]),
        sim: ("charge", &["pl_task_charge", "pl_steps_ran"]),
        why: "live, its lines are told at the next step that has the lock",
    },
    Step {
        name: "tick",
        live: (&["plimsoll_tick"], &[]),
        sim: (
            "tick",
            &["pl_task_charge", "pl_steps_ran", "pl_task_reweigh", "pl_steps_tick"],
        ),
        why: "live, a tick ends the slice only, and dispatch charges and picks",
    },
    Step {
        name: "leave",
        live: (
            &["plimsoll_stopping", "plimsoll_quiescent"],
            &["pl_task_charge", "pl_steps_leave", "pl_task_uncount", "pl_task_blocked"],
        ),
        sim: ("block", &LEAVE),
        why: "simulated, charging tells the lines of all but what leaves: these it tells as it goes, as live",
    },
    Step {
        name: "leave, while it waits",
        live: (
            &["plimsoll_quiescent"],
            &["pl_steps_leave", "pl_task_uncount", "pl_task_blocked"],
        ),
        sim: ("dequeue", &LEAVE),
        why: "simulated, the running task is charged: what is due to waiting tasks is known as of now",
    },
];

/// An engine's functions by name, each body with its calls in order.
struct Engine {
    bodies: BTreeMap<String, String>,
    /// Where calls of another one's methods go: the policy's own class of the simulator.
    class: BTreeMap<String, String>,
    /// Part of a step that begins in the middle of a callback: the function, and the call at which it begins.
    middle: BTreeMap<&'static str, (&'static str, &'static str)>,
}

fn source(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    without_comments(&text)
}

fn without_comments(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("/*") {
        out.push_str(&rest[..at]);
        let end = rest[at..].find("*/").map_or(rest.len(), |end| at + end + 2);
        rest = &rest[end..];
    }
    out.push_str(rest);
    let mut code = String::new();
    for line in out.lines() {
        let line = line.split("//").next().unwrap_or("");
        // A call that rustfmt broke before its dot is read as one.
        match line.trim_start() {
            call if call.starts_with('.') => code.push_str(call),
            _ => {
                code.push('\n');
                code.push_str(line);
            }
        }
    }
    code
}

/// From the brace that opens at or after `from` to the one that closes it.
fn body(text: &str, from: usize) -> Option<&str> {
    let open = from + text[from..].find('{')?;
    let mut depth = 0;
    for (at, byte) in text.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(&text[open..=at]);
        }
    }
    None
}

/// Functions of Rust by `fn NAME`, of C by a line that begins one.
fn functions(text: &str, c: bool) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let name = if c {
            let begins = line.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && !line.trim_end().ends_with(';');
            let head = line.replace("BPF_OPS(", "").replace("__attribute__((", "");
            // `plimsoll_tick, struct ...` of a callback, `name(...` of a function.
            let end = if line.contains("BPF_OPS(") {
                head.find(',')
            } else {
                head.find('(')
            };
            end.filter(|_| begins).and_then(|end| {
                head[..end]
                    .split([' ', '*', '\t'])
                    .next_back()
                    .map(str::to_string)
            })
        } else {
            line.trim_start()
                .split_once("fn ")
                .filter(|(before, _)| before.is_empty() || before.starts_with("pub"))
                .map(|(_, rest)| rest.split(['(', '<']).next().unwrap_or("").to_string())
        };
        if let (Some(name), Some(body)) = (name, body(text, at)) {
            found.entry(name).or_insert_with(|| body.to_string());
        }
        at += line.len();
    }
    found
}

impl Engine {
    /// The parts that a function calls, in order.
    fn calls(&self, name: &str) -> Vec<String> {
        let (name, from) = self.middle.get(name).copied().unwrap_or((name, ""));
        let text = self
            .bodies
            .get(name)
            .unwrap_or_else(|| panic!("no function {name}"));
        let start = text
            .find(from)
            .unwrap_or_else(|| panic!("{name} does not call {from}"));
        let mut found = Vec::new();
        self.walk(&text[start..], &mut vec![name.to_string()], &mut found);
        found
    }

    fn walk(&self, text: &str, path: &mut Vec<String>, found: &mut Vec<String>) {
        for (at, _) in text.match_indices('(') {
            let before = &text[..at];
            let start = before
                .rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .map_or(0, |place| place + 1);
            let name = &before[start..];
            if PARTS.contains(&name) {
                found.push(name.to_string());
                continue;
            }
            let of_class = before[..start].ends_with("self.class.");
            let own = of_class || !before[..start].ends_with('.') || before[..start].ends_with("self.");
            let map = if of_class { &self.class } else { &self.bodies };
            let key = format!("{}{name}", if of_class { "class." } else { "" });
            if let Some(inner) = map.get(name).filter(|_| own && !path.contains(&key)) {
                path.push(key);
                self.walk(inner, path, found);
                path.pop();
            }
        }
    }
}

/// The function that says when a turn ends is a step of its own, in every step that calls it.
fn apart(bodies: &mut BTreeMap<String, String>, name: &str) {
    let body = bodies
        .remove(name)
        .unwrap_or_else(|| panic!("no function {name}"));
    bodies.insert("turn".to_string(), body);
}

fn live() -> Engine {
    let mut bodies = BTreeMap::new();
    for file in ["state.h", "account.h", "turns.h", "stop.h", "plimsoll.bpf.c"] {
        bodies.extend(functions(&source(&format!("bpf/{file}")), true));
    }
    // A step of the table, not of this one.
    for other in ["park_end", "after_policy"] {
        bodies.remove(other);
    }
    apart(&mut bodies, "arm_stop");
    Engine {
        bodies,
        class: BTreeMap::new(),
        // What it does before is to bring in a task that was not counted here: the step "enter".
        middle: [("pick", ("plimsoll_running", "idle_ended"))].into(),
    }
}

fn sim() -> Engine {
    let mut bodies = BTreeMap::new();
    for file in ["wake.rs", "dispatch.rs"] {
        bodies.extend(functions(
            &source(&format!("crates/sim/src/engine/{file}")),
            false,
        ));
    }
    // What follows from a step, and is one of its own: another task is picked, a limit is handed out, a group pays.
    for other in [
        "kick",
        "preempt_for",
        "schedule",
        "resched",
        "stall",
        "overhead",
        "after_charge",
    ] {
        bodies.remove(other);
    }
    apart(&mut bodies, "set_limit");
    for end in ["end_of_slice", "newidle", "pick", "go_idle", "reschedule"] {
        bodies.remove(end);
    }
    let class = functions(&source("crates/sim/src/engine/turns/eevdf.rs"), false);
    Engine {
        bodies,
        class,
        middle: BTreeMap::new(),
    }
}

#[test]
fn each_engine_calls_the_policy_in_the_order_of_the_table() {
    let (live, sim) = (live(), sim());
    for step in &STEPS {
        let calls: Vec<String> = step.live.0.iter().flat_map(|name| live.calls(name)).collect();
        assert_eq!(calls, step.live.1, "live, {}: {:?}", step.name, step.live.0);
        assert_eq!(
            sim.calls(step.sim.0),
            step.sim.1,
            "simulated, {}: {}",
            step.name,
            step.sim.0
        );
        assert_eq!(
            step.live.1 == step.sim.1,
            step.why.is_empty(),
            "{}: a difference has a reason, and only that",
            step.name
        );
    }
}

/// Where the simulator does more at a step, it does what the live scheduler does in the same order.
#[test]
fn what_both_do_at_a_step_they_do_in_one_order() {
    for step in &STEPS {
        let both = |one: &[&str], other: &[&str]| -> Vec<String> {
            let shared = one.iter().filter(|call| other.contains(call));
            shared.map(|call| call.to_string()).collect()
        };
        let (live, sim) = (step.live.1, step.sim.1);
        assert_eq!(both(live, sim), both(sim, live), "{}", step.name);
    }
}

#[test]
fn an_order_that_changes_is_seen() {
    let mut live = live();
    let enter = live.calls("account_in");
    let body = live.bodies.get_mut("account_in").unwrap();
    *body = body
        .replace("count_in", "pl_swapped")
        .replace("pl_task_runnable", "count_in")
        .replace("pl_swapped", "pl_task_runnable");
    assert_ne!(live.calls("account_in"), enter);
    let mut sim = sim();
    let body = sim.bodies.get_mut("no_longer_runnable").unwrap();
    *body = body.replace("pl_task_blocked", "pl_task_count");
    assert_ne!(sim.calls("block"), LEAVE);
}
