// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `perf sched record`, through the text that `perf script` makes of it.
//!
//! A line is `COMM TID [CPU] SECONDS.FRACTION: sched:EVENT: ...`; what follows is either `key=value` pairs
//! or, with older builds of perf, the short form of its plugin: `COMM:TID [PRIO] STATE ==> COMM:TID [PRIO]`.
use super::{bad, line_place, Birth, Importer, Trace};
use crate::error::{Place, TraceError};
use crate::model::{Context, Event, Loss, State, Tid, What, CPU_MAX, TID_MAX};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

const EXPECTED: &str =
    "events of `perf sched record`: sched:sched_switch, sched:sched_waking or sched_wakeup";
const ARGS: [&str; 6] = [
    "script",
    "--ns",
    "--show-lost-events",
    "-F",
    "comm,tid,cpu,time,event,trace",
    "-i",
];

pub fn read_script(path: &Path) -> Result<Trace, TraceError> {
    let file = File::open(path).map_err(|e| TraceError::io(path, "open", e))?;
    let mut script = Script::default();
    script.read(path, BufReader::new(file))?;
    script.finish(path)
}

/// Runs `perf script` on a perf.data file. The errors name lines of its output.
pub fn read_data(path: &Path) -> Result<Trace, TraceError> {
    let tool = |detail: String| TraceError::Tool {
        place: Place::whole(path),
        command: format!("perf {}", ARGS.join(" ")),
        detail,
    };
    let mut child = Command::new("perf")
        .args(ARGS)
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| {
            tool(format!(
                "{e}; install perf, or run it where it is and give its output"
            ))
        })?;
    let stderr = child.stderr.take().expect("it is piped");
    // Both pipes must be read, or perf stops when one is full.
    let messages = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = BufReader::new(stderr).read_to_string(&mut text);
        text
    });
    let mut script = Script::default();
    let result = script.read(path, BufReader::new(child.stdout.take().expect("it is piped")));
    if result.is_err() {
        let _ = child.kill(); // it may still be writing; its exit code says nothing new
    }
    let status = child.wait().map_err(|e| tool(e.to_string()))?;
    let messages = messages.join().unwrap_or_default();
    result?;
    if !status.success() {
        return Err(tool(format!(
            "{status}: {}",
            messages.lines().last().unwrap_or("no message")
        )));
    }
    if let Some(count) = lost_chunks(&messages) {
        script.lost += count;
    }
    script.finish(path)
}

/// perf's own summary: `Processed 1000 events and lost 3 chunks!`
fn lost_chunks(messages: &str) -> Option<u64> {
    let (_, after) = messages.split_once("and lost ")?;
    after.split_whitespace().next()?.parse().ok()
}

/// Whether a line is one of perf's scheduling events.
pub fn is_line(line: &str) -> bool {
    matches!(head(line), Some(Ok(head)) if head.event.starts_with("sched:") || head.event.starts_with("sched_"))
}

/// How much of a line that is refused is shown, in characters.
const SHOWN: usize = 60;

/// What perf prints between events, other than comments: records that are none, the frames of a call chain (an address,
/// a symbol, a file in parentheses), and what it tells its user. Any other line is an event that was damaged, and would
/// be missed without a word.
fn is_no_event(line: &str) -> bool {
    let text = line.trim();
    let frame = line.starts_with(char::is_whitespace)
        && text.ends_with(')')
        && text.split_once(' ').is_some_and(|(address, _)| {
            !address.is_empty() && address.bytes().all(|b| b.is_ascii_hexdigit())
        });
    let told = [
        "Warning:",
        "Processed ",
        "Check IO/CPU overload!",
        "[ perf record: ",
    ];
    text.contains("PERF_RECORD_")
        || (frame || told.iter().any(|told| text.starts_with(told))) && !text.contains("sched:")
}

#[derive(Default)]
struct Script {
    importer: Importer,
    lost: u64,
    /// What runs on each CPU by the last switch there.
    running: HashMap<u32, Tid>,
}

/// What perf prints for a thread that has been reaped while it still ran: most exits look like this.
const REAPED: &str = "-1";

struct Head<'a> {
    tid: &'a str,
    comm: &'a str,
    cpu: &'a str,
    time: &'a str,
    event: &'a str,
    rest: &'a str,
}

/// Splits a line in front of its event's own text. `None`: not an event. `Err`: it looks like one, but
/// something is missing.
fn head(line: &str) -> Option<Result<Head<'_>, &'static str>> {
    // The name may hold anything, so look for ` TID [CPU] ` from the left.
    let mut from = 0;
    while let Some(open) = line[from..].find(" [").map(|i| from + i) {
        from = open + 2;
        let close = line[from..].find(']').map(|i| from + i)?;
        let cpu = &line[from..close];
        let before = line[..open].trim_end();
        let (comm, tid) = before.rsplit_once(char::is_whitespace).unwrap_or(("", before));
        let tid = tid.rsplit('/').next().unwrap_or(tid);
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(cpu) || !(digits(tid) || tid == REAPED) {
            continue;
        }
        let Some((time, rest)) = line[close + 1..].split_once(": ") else {
            return Some(Err("no time and event after the CPU"));
        };
        let Some((event, rest)) = rest.trim_start().split_once(": ") else {
            return Some(Err("no event's text after its name"));
        };
        return Some(Ok(Head {
            tid,
            comm: comm.trim(),
            cpu,
            time: time.trim(),
            event: event.trim(),
            rest,
        }));
    }
    None
}

impl Script {
    fn read(&mut self, path: &Path, mut reader: impl BufRead) -> Result<(), TraceError> {
        let mut bytes = Vec::new();
        let mut line = 0;
        loop {
            bytes.clear();
            let n = reader
                .read_until(b'\n', &mut bytes)
                .map_err(|e| TraceError::io(path, "read", e))?;
            if n == 0 {
                return Ok(());
            }
            line += 1;
            // Names of threads need not be UTF-8.
            let text = String::from_utf8_lossy(&bytes);
            let text = text.trim_end();
            if text.trim().is_empty() || text.starts_with('#') {
                continue;
            }
            // What perf says of a recording goes to another stream, and into the file with `2>&1`.
            if let Some(count) = lost_chunks(text) {
                self.lost += count;
                continue;
            }
            if let Some((_, after)) = text.split_once("PERF_RECORD_LOST") {
                self.lost += after
                    .split_whitespace()
                    .find_map(|w| w.parse::<u64>().ok())
                    .unwrap_or(1);
                continue;
            }
            match head(text) {
                None if is_no_event(text) => {}
                None => {
                    let shown: String = text.trim_start().chars().take(SHOWN).collect();
                    return Err(bad(
                        line_place(path, line),
                        "line",
                        format!("{shown:?}"),
                        "COMM TID [CPU] TIME: EVENT: ..., a frame of a call chain, a comment, or nothing",
                    ));
                }
                Some(Ok(head)) => self.event(&head, &|| line_place(path, line))?,
                Some(Err(reason)) => {
                    return Err(bad(
                        line_place(path, line),
                        "line",
                        reason,
                        "COMM TID [CPU] TIME: EVENT: ...",
                    ))
                }
            }
        }
    }

    fn event(&mut self, head: &Head, place: &dyn Fn() -> Place) -> Result<(), TraceError> {
        let name = head.event.strip_prefix("sched:").unwrap_or(head.event);
        let name = name.strip_prefix("sched_").unwrap_or("");
        if !matches!(
            name,
            "switch" | "waking" | "wakeup" | "wakeup_new" | "process_fork" | "process_exit"
        ) {
            return Ok(());
        }
        let ts_ns = time_ns(head.time).ok_or_else(|| {
            bad(
                place(),
                "time",
                format!("{:?}", head.time),
                "seconds with up to nine digits after the point",
            )
        })?;
        let cpu: u32 = head.cpu.parse().ok().filter(|&c| c < CPU_MAX).ok_or_else(|| {
            bad(
                place(),
                "cpu",
                format!("{:?}", head.cpu),
                format!("0 to {}", CPU_MAX - 1),
            )
        })?;
        let current = match head.tid {
            // The event itself names the thread that leaves. Who woke another is known if its switch to this CPU was
            // seen; if not, nobody is named, as with a wake-up that comes from an interrupt.
            REAPED => self.running.get(&cpu).copied().unwrap_or(0),
            tid => {
                let tid = tid_of(tid, "tid", place)?;
                self.importer.name(tid, head.comm, ts_ns);
                tid
            }
        };
        let rest = head.rest.trim();
        let what = match name {
            "switch" => self.switch(rest, ts_ns, cpu, place)?,
            "waking" => {
                let context = if current == 0 {
                    Context::Interrupt
                } else {
                    Context::Unknown
                };
                let tid = self.woken(rest, ts_ns, place)?;
                What::Waking {
                    tid,
                    waker: current,
                    context,
                }
            }
            "wakeup" => {
                let tid = self.woken(rest, ts_ns, place)?;
                What::Wakeup {
                    tid,
                    waker: current,
                    target_cpu: cpu,
                }
            }
            "wakeup_new" => {
                let child = self.woken(rest, ts_ns, place)?;
                match self.importer.birth(Birth::Woken, current, child) {
                    Some(fork) => fork,
                    None => return Ok(()),
                }
            }
            "process_fork" => {
                let child = tid_of(needed(rest, "child_pid=", place)?, "child_pid", place)?;
                if let Some(comm) = between(rest, "child_comm=", " child_pid=") {
                    self.importer.name(child, comm, ts_ns);
                }
                let parent = tid_of(needed(rest, " pid=", place)?, "pid", place)?;
                match self.importer.birth(Birth::Made, parent, child) {
                    Some(fork) => fork,
                    None => return Ok(()),
                }
            }
            _ => What::Exit {
                tid: tid_of(needed(rest, " pid=", place)?, "pid", place)?,
            },
        };
        self.importer.push(Event { ts_ns, cpu, what }, place)
    }

    fn switch(
        &mut self,
        rest: &str,
        ts_ns: i64,
        cpu: u32,
        place: &dyn Fn() -> Place,
    ) -> Result<What, TraceError> {
        let Some((left, right)) = rest.split_once(" ==> ") else {
            return Err(bad(
                place(),
                "sched_switch",
                format!("{rest:?}"),
                "PREVIOUS ==> NEXT",
            ));
        };
        let (prev, state, next);
        if left.contains("prev_pid=") {
            prev = tid_of(needed(left, "prev_pid=", place)?, "prev_pid", place)?;
            next = tid_of(needed(right, "next_pid=", place)?, "next_pid", place)?;
            state = needed(left, "prev_state=", place)?;
            for (tid, comm) in [
                (prev, between(left, "prev_comm=", " prev_pid=")),
                (next, between(right, "next_comm=", " next_pid=")),
            ] {
                if let Some(comm) = comm {
                    self.importer.name(tid, comm, ts_ns);
                }
            }
        } else {
            prev = self.short(left, ts_ns, place)?;
            next = self.short(right, ts_ns, place)?;
            state = left.rsplit(' ').next().unwrap_or("");
        }
        let prev_state = State::from_letter(state).ok_or_else(|| {
            bad(
                place(),
                "prev_state",
                format!("{state:?}"),
                "one of R, S, D, T, t, X, Z, I, P, W, K, N, first letter",
            )
        })?;
        self.running.insert(cpu, next);
        Ok(What::Switch {
            prev,
            prev_state,
            next,
        })
    }

    fn woken(&mut self, rest: &str, ts_ns: i64, place: &dyn Fn() -> Place) -> Result<Tid, TraceError> {
        if !rest.contains("pid=") {
            return self.short(rest, ts_ns, place);
        }
        let tid = tid_of(needed(rest, " pid=", place)?, "pid", place)?;
        if let Some(comm) = between(rest, "comm=", " pid=") {
            self.importer.name(tid, comm, ts_ns);
        }
        Ok(tid)
    }

    /// `COMM:TID [PRIO] ...`
    fn short(&mut self, text: &str, ts_ns: i64, place: &dyn Fn() -> Place) -> Result<Tid, TraceError> {
        let thread = text.split(" [").next().unwrap_or(text);
        let (comm, tid) = thread
            .rsplit_once(':')
            .ok_or_else(|| bad(place(), "thread", format!("{text:?}"), "COMM:TID [PRIO]"))?;
        let tid = tid_of(tid, "tid", place)?;
        self.importer.name(tid, comm, ts_ns);
        Ok(tid)
    }

    fn finish(self, path: &Path) -> Result<Trace, TraceError> {
        let mut trace = self.importer.finish(path, "perf-script", "unknown", EXPECTED)?;
        if self.lost > 0 {
            let clock = &trace.header.clock;
            let loss = Loss {
                cpu: None,
                from_ns: clock.start_ns,
                to_ns: clock.end_ns,
                count: Some(self.lost),
            };
            trace.header.losses.push(loss);
        }
        Ok(trace)
    }
}

/// `3416.748160285` in ns.
fn time_ns(text: &str) -> Option<i64> {
    let (seconds, fraction) = text.split_once('.')?;
    if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let nanos: i64 = format!("{fraction:0<9}").parse().ok()?;
    let seconds: i64 = seconds.parse().ok().filter(|&s| s >= 0)?;
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
}

fn tid_of(text: &str, field: &str, place: &dyn Fn() -> Place) -> Result<Tid, TraceError> {
    text.parse()
        .ok()
        .filter(|&tid| tid <= TID_MAX)
        .ok_or_else(|| bad(place(), field, format!("{text:?}"), format!("0 to {TID_MAX}")))
}

/// The word behind `key`.
fn needed<'a>(text: &'a str, key: &str, place: &dyn Fn() -> Place) -> Result<&'a str, TraceError> {
    text.split_once(key)
        .and_then(|(_, after)| after.split_whitespace().next())
        .ok_or_else(|| bad(place(), key.trim(), "none", "a value: this event needs one"))
}

fn between<'a>(text: &'a str, from: &str, to: &str) -> Option<&'a str> {
    let (_, after) = text.split_once(from)?;
    after.split_once(to).map(|(value, _)| value)
}
