// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A service beside others on simulated machines, of which the truth is known: recorded as `plimsoll record --cgroup` does it,
//! and replayed, as it was and under a limit.
use crate::common::recorder::Recorder;
use crate::common::{compile, compile_with, in_100_ms, p, run, since_6_6};
use plimsoll_replay::{machine, Program};
use plimsoll_sim::{
    Config, Context, GroupId, GroupSpec, Machine, Policy, Simulation, Step, TaskSpec, Topology,
};
use plimsoll_stats::percentile_ns;
use plimsoll_trace::example::{header, switch, waking, MS};
use plimsoll_trace::{Context as When, Event, Group, Header, Owed, State, Timeline, What};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use std::sync::{Arc, Mutex};

const MSU: u64 = MS as u64;
const DURATION_NS: u64 = 40_000 * MSU;
const THREADS: u64 = 3;

/// What runs beside the service.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Beside {
    Nothing,
    /// Two containers of this weight, with a thread each that never sleeps.
    Spinners(u32),
    /// A container that works for some milliseconds at random times.
    Bursts,
}

fn spin(_: &mut Context) -> Step {
    Step::Compute { ns: u64::MAX }
}

/// Kernels before and since 6.6, in which turns go by lag and deadline.
const KERNELS: [&str; 2] = ["6.1.0", "6.18.0"];
const SINCE_6_6: &str = KERNELS[1];

/// The service's latencies, ascending, and what a recording of it holds.
fn truth(kernel: &str, beside: Beside, quota_ms: Option<u64>) -> (Vec<u64>, Header, Vec<Event>) {
    recorded(kernel, beside, quota_ms, Some(1))
}

/// `group`: the one that is recorded; `None`: all.
fn recorded(
    kernel: &str,
    beside: Beside,
    quota_ms: Option<u64>,
    group: Option<u32>,
) -> (Vec<u64>, Header, Vec<Event>) {
    let mut machine = Machine::new(Topology::flat(2));
    machine.costs = plimsoll_sim::Costs::free();
    let mut config = Config::new(machine, DURATION_NS);
    config.policy = Policy::mainline();
    config.policy.core.fair.wakeup_gran_ns = 0;
    if kernel == SINCE_6_6 {
        since_6_6(&mut config);
    }
    let mut web = GroupSpec::new("/web", GroupId::ROOT);
    web.limits = in_100_ms(quota_ms);
    let web = config.add_group(web);
    let others = ["/a", "/b"].map(|path| {
        let mut spec = GroupSpec::new(path, GroupId::ROOT);
        if let Beside::Spinners(weight) = beside {
            spec.cpu_weight = weight;
        }
        config.add_group(spec)
    });
    let workload = config.add_workload("all");
    let latencies = Arc::new(Mutex::new(Vec::new()));
    for number in 0..THREADS {
        let latencies = latencies.clone();
        let task = service(number, [30 * MSU, 90 * MSU], [MSU, 9 * MSU], move |ns| {
            latencies.lock().unwrap().push(ns)
        });
        config.add_task(TaskSpec::new(web, workload, format!("web{number}"), task));
    }
    for (number, group) in (0..).zip(others) {
        let name = format!("other{number}");
        match beside {
            Beside::Nothing => {}
            Beside::Spinners(_) => drop(config.add_task(TaskSpec::new(group, workload, name, spin))),
            Beside::Bursts => {
                let task = service(77 + number, [10 * MSU, 40 * MSU], [2 * MSU, 20 * MSU], |_| {});
                config.add_task(TaskSpec::new(group, workload, name, task));
            }
        }
    }
    let mut about = header(0, &[]);
    about.machine.kernel = Some(kernel.into());
    about.only_below = group.map(|_| "/web".into());
    for path in ["/a", "/b"] {
        about.groups.push(Group {
            path: path.into(),
            weight: match beside {
                Beside::Spinners(weight) => Some(weight),
                _ => Some(100),
            },
            ..Default::default()
        });
    }
    let mut recorder = Recorder::new(about, group);
    Simulation::new(config).unwrap().run(Some(&mut recorder)).unwrap();
    let (header, events) = recorder.finish(DURATION_NS);
    let mut latencies = latencies.lock().unwrap().clone();
    latencies.sort_unstable();
    (latencies, header, events)
}

/// Works at random times of its own; `done` is told how long each piece took from when it was due.
fn service(
    seed: u64,
    gap_ns: [u64; 2],
    work_ns: [u64; 2],
    done: impl Fn(u64) + Send + 'static,
) -> impl FnMut(&mut Context) -> Step + Send {
    let mut rng = Pcg64::seed_from_u64(seed);
    let (mut due_ns, mut works) = (0, true);
    move |context| {
        works = !works;
        match works {
            true => Step::Compute {
                ns: rng.random_range(work_ns[0]..work_ns[1]),
            },
            false => {
                if due_ns > 0 {
                    done(context.now_ns() - due_ns);
                }
                due_ns = context.now_ns().max(due_ns) + rng.random_range(gap_ns[0]..gap_ns[1]);
                Step::SleepUntil { at_ns: due_ns }
            }
        }
    }
}

fn ms(latencies: &[u64], percent: f64) -> f64 {
    percentile_ns(latencies, percent) as f64 / MS as f64
}

/// p50 and p99 in ms.
fn both(latencies: &[u64]) -> [f64; 2] {
    [50.0, 99.0].map(|percent| ms(latencies, percent))
}

fn assert_near(replayed: [f64; 2], truth: [f64; 2], what: &str) {
    for (found, due, allowed) in [(replayed[0], truth[0], 0.1), (replayed[1], truth[1], 0.15)] {
        assert!(
            (found - due).abs() < allowed * due,
            "{what}: replayed {replayed:?}, true {truth:?} ms"
        );
    }
}

#[test]
fn a_service_waits_for_others_as_it_did_and_under_a_limit_as_it_would() {
    let besides = [
        Beside::Nothing,
        Beside::Spinners(100),
        Beside::Spinners(400),
        Beside::Spinners(25),
        Beside::Bursts,
    ];
    for (kernel, beside) in KERNELS
        .into_iter()
        .flat_map(|kernel| besides.map(|b| (kernel, b)))
    {
        let (latencies, header, events) = truth(kernel, beside, None);
        let (program, machine) = compile(&header, &events);
        let replayed = |sets: &[&str]| both(&run(&program, &machine, sets).latencies(None));
        assert_near(replayed(&[]), both(&latencies), &format!("{kernel}, {beside:?}"));
        let (limited, ..) = truth(kernel, beside, Some(40));
        assert_near(
            replayed(&["group.web.quota_us=40000"]),
            both(&limited),
            &format!("{kernel}, {beside:?}, limited"),
        );
    }
}

#[test]
fn beside_others_whose_threads_are_recorded_too_a_service_waits_as_it_did() {
    for beside in [Beside::Spinners(100), Beside::Spinners(400), Beside::Spinners(25)] {
        let (latencies, header, events) = recorded(SINCE_6_6, beside, None, None);
        let timeline = Timeline::build(&header, &events);
        let program = Program::build(&header, &timeline, Some("/web"), None, 60).unwrap();
        let replayed = run(&Arc::new(program), &machine(&header, &timeline), &[]);
        assert_near(
            both(&replayed.latencies(None)),
            both(&latencies),
            &format!("{beside:?}"),
        );
    }
}

/// All others are then on the CPU that is left, whose number a recorded wake-up may not have.
#[test]
fn others_of_cpus_that_are_not_there_run_on_those_that_are() {
    let (_, header, events) = truth(SINCE_6_6, Beside::Bursts, None);
    let (program, machine) = compile(&header, &events);
    let [both, one] = ["machine.cpus=2", "machine.cpus=1"].map(|set| run(&program, &machine, &[set]));
    assert!(one.requests.iter().all(|r| r.done));
    assert!(p(&one, 50.0) > p(&both, 50.0), "{} ms", p(&one, 50.0));
}

#[test]
fn without_the_others_nothing_waits_for_them() {
    let (alone, ..) = truth(SINCE_6_6, Beside::Nothing, None);
    for beside in [Beside::Spinners(100), Beside::Bursts] {
        let (latencies, header, events) = truth(SINCE_6_6, beside, None);
        let (program, machine) = compile(&header, &events);
        let without = run(&program, &machine, &["machine.others=none"]);
        assert_near(
            both(&without.latencies(None)),
            both(&alone),
            &format!("{beside:?}"),
        );
        assert!(ms(&latencies, 99.0) > 1.5 * p(&without, 99.0), "{beside:?}");
    }
}

#[test]
fn a_limit_on_a_neighbour_gives_the_service_what_it_takes_from_that() {
    let (_, header, events) = truth(SINCE_6_6, Beside::Spinners(100), None);
    let (program, machine) = compile(&header, &events);
    let limits = ["group.a.quota_us=10000", "group.b.quota_us=10000"];
    let [as_it_was, limited] = [&[][..], &limits].map(|sets| run(&program, &machine, sets));
    assert!(
        p(&limited, 99.0) < 0.8 * p(&as_it_was, 99.0),
        "{} and {} ms",
        p(&limited, 99.0),
        p(&as_it_was, 99.0)
    );
    for path in ["/a", "/b"] {
        let group = limited.groups.iter().find(|g| g.path == path).unwrap();
        let used = group.usage_ns as f64 / limited.end_ns as f64;
        assert!((0.08..0.12).contains(&used), "{path} used {used} CPUs of 0.1");
    }
}

/// A recording of one thread of a service of this weight, with what a group of weight 100 takes.
fn beside_a(weight: u32) -> Header {
    let mut about = header(4_000 * MS, &[(7, "web", 1)]);
    about.machine.kernel = Some(SINCE_6_6.into());
    about.only_below = Some("/web".into());
    about.migrations = true;
    about.groups[1].weight = Some(weight);
    about.groups.push(Group {
        path: "/a".into(),
        weight: Some(100),
        ..Default::default()
    });
    about
}

/// A service of a tenth of its neighbour's weight that works for 1 ms of each 5: more than it is due, so that by rule it waits.
/// `owed_ns`: what the kernel says as it is woken.
fn more_than_due(owed_ns: Option<i32>) -> [f64; 2] {
    let about = beside_a(10);
    let at = |ts_ns, cpu, what| Event { ts_ns, cpu, what };
    let others = |run_ns: i64| What::Others {
        group: Some(2),
        run_ns: run_ns as u64,
        state: State::Runnable,
    };
    let mut events = Vec::new();
    for woken_ns in (1..799).map(|round| round * 5 * MS) {
        // The other one has the CPU until the switch.
        let before_ns = woken_ns - 5_000;
        events.push(waking(before_ns, 1, 7, 0, When::Timer));
        events.extend(owed_ns.map(|owed_ns| {
            at(
                before_ns,
                0,
                What::Owed {
                    tid: 7,
                    owed: Owed {
                        own_ns: owed_ns,
                        beside_ns: -owed_ns,
                    },
                },
            )
        }));
        events.push(at(woken_ns, 1, others(5 * MS)));
        events.push(at(woken_ns, 0, others(4 * MS)));
        events.push(switch(woken_ns, 0, 0, State::Runnable, 7));
        events.push(switch(woken_ns + MS, 0, 7, State::Sleeping, 0));
    }
    let (program, machine) = compile_with(&about, &events, Some("comm:web"));
    both(&run(&program, &machine, &[]).latencies(None))
}

#[test]
fn a_service_that_the_kernel_owed_time_goes_first_and_one_that_owed_it_waits() {
    assert_near(more_than_due(Some(3_000_000)), [1.0, 1.0], "owed");
    let [by_rule, owes] = [None, Some(-1_000_000)].map(|owed_ns| more_than_due(owed_ns)[0]);
    assert!(by_rule > 5.0 && owes > 2.0, "{by_rule} and {owes} ms");
}

/// A neighbour that is in the kernel gives way when it is done there, whatever it is owed. No rule foretells that; the
/// recording tells it.
#[test]
fn a_neighbour_that_did_not_give_way_keeps_the_cpu_for_as_long_as_it_did() {
    let about = beside_a(10_000);
    let others = |ts_ns, cpu, run_ns: i64| Event {
        ts_ns,
        cpu,
        what: What::Others {
            group: Some(2),
            run_ns: run_ns as u64,
            state: State::Runnable,
        },
    };
    let mut events = Vec::new();
    let mut since_ns = 0;
    for woken_ns in (1..99).map(|round| round * 40 * MS) {
        let begin_ns = woken_ns + 23 * MS;
        events.extend([
            others(woken_ns, 1, 40 * MS),
            waking(woken_ns, 0, 7, 0, When::Timer),
            others(begin_ns, 0, begin_ns - since_ns),
            switch(begin_ns, 0, 0, State::Runnable, 7),
            switch(begin_ns + MS, 0, 7, State::Sleeping, 0),
        ]);
        since_ns = begin_ns + MS;
    }
    let (program, machine) = compile_with(&about, &events, Some("comm:web"));
    let replayed = run(&program, &machine, &[]);
    assert_near(both(&replayed.latencies(None)), [24.0, 24.0], "as recorded");
    let alone = run(&program, &machine, &["machine.others=none"]);
    assert_near(both(&alone.latencies(None)), [1.0, 1.0], "alone");
}
