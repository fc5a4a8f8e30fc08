// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `make bench`: how fast the simulator is. Prints a table; arguments: a file that gets one JSON line per row, and the
//! one case to run. `--list` prints the cases, `--header` the table's head.
//!
//! "sockets" cases have the buffers of hackbench's sockets (277 messages), so that tasks seldom sleep and most events
//! are messages; "buffer4" ones have buffers of 4 messages, so that nearly every message wakes a task.
//!
//! A scheduling event is a context switch, a wake-up, a tick or a timer that was handled; the steps of tasks' programs
//! (a message sent or received) are counted apart.
// It measures: it is not a part of the simulator.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]
use plimsoll_sim::{
    Behaviour, ChannelId, ChannelSpec, Config, Context, CounterId, GroupId, GroupSpec, Machine, Numbering,
    Simulation, Step, TaskSpec, Topology, WorkloadId,
};
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Instant;

/// Senders, and receivers, of a hackbench group.
const FDS: u32 = 20;

struct Sender {
    /// The first of the group's 20 channels.
    first: u32,
    turn: u32,
    steps: CounterId,
}

impl Behaviour for Sender {
    fn next(&mut self, ctx: &mut Context) -> Step {
        ctx.count(self.steps, 1);
        let channel = ChannelId(self.first + self.turn);
        self.turn = (self.turn + 1) % FDS;
        Step::Send { channel, value: 0 }
    }
}

struct Receiver {
    channel: ChannelId,
    steps: CounterId,
}

impl Behaviour for Receiver {
    fn next(&mut self, ctx: &mut Context) -> Step {
        ctx.count(self.steps, 1);
        Step::Receive {
            channel: self.channel,
        }
    }
}

/// One group of hackbench: 20 senders, 20 receivers, all to all.
fn hackbench(config: &mut Config, groups: &[GroupId], workload: WorkloadId, steps: CounterId, capacity: u32) {
    let first = config.channels.len() as u32;
    let wake_level = capacity / 4;
    config.channels.extend((0..FDS).map(|_| ChannelSpec {
        wake_level,
        ..ChannelSpec::new(capacity)
    }));
    for turn in 0..FDS {
        let next = config.tasks.len();
        let group = |number: usize| groups[(next + number) % groups.len()];
        let channel = ChannelId(first + turn);
        let receiver = Receiver { channel, steps };
        config.add_task(TaskSpec::new(
            group(0),
            workload,
            format!("receiver{turn}"),
            receiver,
        ));
        let sender = Sender { first, turn, steps };
        let task = TaskSpec::new(group(1), workload, format!("sender{turn}"), sender);
        config.add_task(task);
    }
}

/// hackbench, its tasks dealt out to `cgroups` groups in turn; 0: all in the root.
fn machine(topology: Topology, cgroups: u32, hackbenches: u32, capacity: u32, ms: u64) -> Config {
    let mut config = Config::new(Machine::new(topology), ms * 1_000_000);
    let workload = config.add_workload("hackbench");
    let steps = config.add_counter(workload, "steps");
    let mut groups: Vec<GroupId> = (0..cgroups)
        .map(|i| config.add_group(GroupSpec::new(format!("/g{i}"), GroupId::ROOT)))
        .collect();
    if groups.is_empty() {
        groups.push(GroupId::ROOT);
    }
    for _ in 0..hackbenches {
        hackbench(&mut config, &groups, workload, steps, capacity);
    }
    config
}

/// Two periodic tasks on one CPU, as in the comparison with SimSo: 3 ms every 10 ms, 4 ms every 14 ms.
fn two_tasks(ms: u64) -> Config {
    let mut config = Config::new(Machine::new(Topology::flat(1)), ms * 1_000_000);
    let workload = config.add_workload("periodic");
    let steps = config.add_counter(workload, "steps");
    for (work_ns, period_ns) in [(3_000_000, 10_000_000), (4_000_000, 14_000_000)] {
        let (mut release_ns, mut works) = (0, false);
        let periodic = move |ctx: &mut Context| {
            ctx.count(steps, 1);
            works = !works;
            if works {
                release_ns += period_ns;
                Step::Compute { ns: work_ns }
            } else {
                Step::SleepUntil { at_ns: release_ns }
            }
        };
        config.add_task(TaskSpec::new(
            GroupId::ROOT,
            workload,
            format!("p{period_ns}"),
            periodic,
        ));
    }
    config
}

/// Pairs of tasks: one waits for the other with a timeout that never comes, as servers do.
fn timed_waits(ms: u64) -> Config {
    let mut config = Config::new(Machine::new(Topology::flat(8)), ms * 1_000_000);
    let workload = config.add_workload("waits");
    let steps = config.add_counter(workload, "steps");
    for pair in 0..8 {
        let channel = config.add_channel(1);
        let waiter = move |ctx: &mut Context| {
            ctx.count(steps, 1);
            let at_ns = ctx.now_ns() + 30_000_000_000;
            Step::ReceiveUntil { channel, at_ns }
        };
        config.add_task(TaskSpec::new(
            GroupId::ROOT,
            workload,
            format!("waiter{pair}"),
            waiter,
        ));
        let mut works = false;
        let sender = move |ctx: &mut Context| {
            ctx.count(steps, 1);
            works = !works;
            match works {
                true => Step::Compute { ns: 10_000 },
                false => Step::Send { channel, value: 0 },
            }
        };
        config.add_task(TaskSpec::new(
            GroupId::ROOT,
            workload,
            format!("sender{pair}"),
            sender,
        ));
    }
    config
}

/// Many workloads of one task each, as a recording of a node has.
fn workloads(count: u32, ms: u64) -> Config {
    let mut config = Config::new(Machine::new(Topology::flat(64)), ms * 1_000_000);
    for number in 0..count {
        let workload = config.add_workload(format!("w{number}"));
        let steps = config.add_counter(workload, "steps");
        let mut works = false;
        let task = move |ctx: &mut Context| {
            ctx.count(steps, 1);
            works = !works;
            match works {
                true => Step::Compute { ns: 100_000 },
                false => Step::SleepUntil {
                    at_ns: ctx.now_ns() + 50_000_000,
                },
            }
        };
        config.add_task(TaskSpec::new(GroupId::ROOT, workload, format!("t{number}"), task));
    }
    config
}

/// Largest resident set of this process so far, KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
        .unwrap_or(0)
}

/// CPU time of this process so far, seconds: wall time on a busy machine says nothing.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    stat.split_whitespace()
        .next()
        .and_then(|ns| ns.parse::<f64>().ok())
        .map_or(0.0, |ns| ns / 1e9)
}

fn main() {
    let x6 = || Topology::regular(1, 1, 1, 10, 2, Numbering::SiblingsLast);
    let spr = || Topology::regular(2, 1, 1, 56, 2, Numbering::SiblingsLast);
    let big = || Topology::regular(8, 1, 1, 64, 2, Numbering::SiblingsLast);
    type Row = (&'static str, Box<dyn Fn() -> Config>);
    let rows: Vec<Row> = vec![
        ("two_tasks", Box::new(|| two_tasks(1_000_000))),
        (
            "hackbench10_20cpus_sockets",
            Box::new(move || machine(x6(), 0, 10, 277, 2000)),
        ),
        (
            "hackbench10_20cpus_buffer4",
            Box::new(move || machine(x6(), 0, 10, 4, 500)),
        ),
        (
            "hackbench10_224cpus_buffer4",
            Box::new(move || machine(spr(), 0, 10, 4, 300)),
        ),
        (
            "hackbench10_1024cpus_2000groups",
            Box::new(move || machine(big(), 2000, 10, 4, 300)),
        ),
        ("timed_waits_8cpus", Box::new(|| timed_waits(5000))),
        ("workloads_8000_64cpus", Box::new(|| workloads(8000, 2000))),
        // The same load per CPU as 10 groups on 20 CPUs.
        (
            "hackbench112_224cpus_buffer4",
            Box::new(move || machine(spr(), 1, 112, 4, 100)),
        ),
        (
            "hackbench512_1024cpus_2000groups",
            Box::new(move || machine(big(), 2000, 512, 4, 40)),
        ),
    ];
    let mut arguments = std::env::args().skip(1);
    let output = arguments.next();
    let only = arguments.next();
    if output.as_deref() == Some("--list") {
        rows.iter().for_each(|(name, _)| println!("{name}"));
        return;
    }
    if output.is_none() || output.as_deref() == Some("--header") {
        println!(
            "{:<34} {:>8} {:>12} {:>11} {:>8} {:>13} {:>12} {:>9}",
            "case", "CPU s", "sched events", "steps", "sim ms", "sched ev/s", "all ev/s", "peak MiB"
        );
    }
    if output.as_deref() == Some("--header") {
        return;
    }
    for (name, build) in &rows {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let simulation = Simulation::new(build()).expect("benchmarks are valid");
        let (wall, cpu) = (Instant::now(), cpu_seconds());
        let results = simulation.run(None).unwrap();
        let (cpu_s, wall_s) = (cpu_seconds() - cpu, wall.elapsed().as_secs_f64());
        let steps = results.workloads[0].counters[0].value;
        let events = results.events.total();
        println!(
            "{name:<34} {cpu_s:>8.3} {events:>12} {steps:>11} {:>8.0} {:>13.0} {:>12.0} {:>9}",
            results.end_ns as f64 / 1e6,
            events as f64 / cpu_s,
            (events + steps) as f64 / cpu_s,
            peak_kib() / 1024
        );
        let Some(path) = &output else { continue };
        let mut line = String::new();
        write!(
            line,
            "{{\"case\":\"{name}\",\"cpu_s\":{cpu_s:.4},\"wall_s\":{wall_s:.4},\"simulated_ns\":{},\
             \"switches\":{},\"wakeups\":{},\"ticks\":{},\"timers\":{},\"steps\":{steps},\"peak_kib\":{}}}",
            results.end_ns,
            results.events.switches,
            results.events.wakeups,
            results.events.ticks,
            results.events.timers,
            peak_kib()
        )
        .expect("writing to a string");
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        writeln!(file.expect("the results file opens"), "{line}").expect("the results file takes a line");
    }
}
