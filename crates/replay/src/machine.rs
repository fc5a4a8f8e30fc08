// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine that a trace was recorded on, as the simulator wants it.
//!
//! Recorded work already holds what the kernel did on a thread's behalf: system calls, wake-ups, switches. So those
//! cost nothing again. What is not in it is the time from a wake-up of an idle CPU until the thread runs there: that is in the trace, too,
//! for each wake-up that is repeated (see `placement.rs`), and for all others as a median, by how long the CPU had been idle.
use crate::groups::{Group, TICK_NS};
use crate::placement::placement;
use crate::recording::{runs_by_cpu, seen_cpus, CpuRun};
use plimsoll_sim::{Costs, CpuPlace, IdleState, Machine, Topology};
use plimsoll_trace::{Cause, Header, Timeline};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Lower edges of the classes of idle time.
const IDLE_NS: [u64; 4] = [0, 20_000, 200_000, 2_000_000];
/// Fewer wake-ups than this do not make a class.
const SAMPLES_MIN: usize = 20;
/// With fewer of its runs from idle something else is charged beyond the work.
const FROM_IDLE_MIN: f64 = 0.1;

/// Topology, clock and wake-up delays of the recording.
pub fn machine(header: &Header, timeline: &Timeline) -> Machine {
    let dense = Dense::of(header, timeline);
    let (header, timeline) = (&*dense.header, &*dense.timeline);
    let mut machine = Machine::new(topology(header, timeline));
    machine.hz = header.machine.hz.unwrap_or(250).clamp(24, 10_000);
    machine.clock_start_ns = header.clock.start_ns.max(0) as u64;
    machine.costs = Costs {
        smt_percent: Costs::default().smt_percent,
        // The kernel leaves threads that ran less than this ago where their caches are (sched_migration_cost_ns).
        migration_hot_ns: 500_000,
        ..Costs::free()
    };
    let by_cpu = runs_by_cpu(timeline);
    if placement(timeline, &by_cpu, &[]).seeks_idle_from.is_none() {
        // No two CPUs share a cache, as far as the recorded kernel's wake-ups are concerned.
        for place in &mut machine.topology.cpus {
            place.llc = place.core;
        }
        renumber(&mut machine.topology.cpus);
    }
    machine.costs.idle_states = idle_states(timeline, &by_cpu);
    machine
}

/// A recording whose CPUs are numbered without gaps, as the simulator wants them.
///
/// The recorder lists the CPUs that were on line; with SMT off they may be 0, 2, 4, 6. Other tools do not say which CPUs
/// there are: the numbers in between may be those of CPUs that were idle all the time, and are kept.
pub(crate) struct Dense<'a> {
    pub header: Cow<'a, Header>,
    pub timeline: Cow<'a, Timeline>,
    /// The recorded number of each CPU, ascending; empty: its own.
    numbers: Vec<u32>,
}

impl<'a> Dense<'a> {
    pub fn of(header: &'a Header, timeline: &'a Timeline) -> Dense<'a> {
        let mut dense = Dense {
            header: Cow::Borrowed(header),
            timeline: Cow::Borrowed(timeline),
            numbers: Vec::new(),
        };
        if header.source != "bpf" || header.machine.cpus.is_empty() {
            return dense;
        }
        let listed = header.machine.cpus.iter().map(|c| c.cpu);
        let mut numbers: Vec<u32> = listed.chain(seen_cpus(timeline)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        if (0..).zip(&numbers).all(|(ix, &number)| ix == number) {
            return dense;
        }
        dense.numbers = numbers;
        // Copies of both, but only for such machines.
        let (mut header, mut timeline) = (header.clone(), timeline.clone());
        let listed = header.machine.cpus.iter_mut().map(|c| &mut c.cpu);
        let runs = timeline.threads.iter_mut().flat_map(|t| &mut t.runs);
        let others = timeline.others.iter_mut().map(|r| &mut r.cpu);
        for cpu in listed.chain(runs.map(|r| &mut r.cpu)).chain(others) {
            *cpu = dense.place(*cpu).unwrap_or(u32::MAX); // which is that of a run whose CPU is not known
        }
        dense.header = Cow::Owned(header);
        dense.timeline = Cow::Owned(timeline);
        dense
    }

    /// Where the CPU with this recorded number is; `None`: it was off line.
    pub fn place(&self, number: u32) -> Option<u32> {
        if self.numbers.is_empty() {
            return Some(number);
        }
        self.numbers.binary_search(&number).ok().map(|ix| ix as u32)
    }
}

/// In words, for output.
pub fn describe(machine: &Machine) -> String {
    let delays: Vec<String> = machine
        .costs
        .idle_states
        .iter()
        .map(|s| format!("{:.1} us after {} us", s.exit_ns as f64 / 1e3, s.after_ns / 1000))
        .collect();
    let delays = if delays.is_empty() {
        "not seen".into()
    } else {
        delays.join(", ")
    };
    format!(
        "{} CPUs, {} Hz, wake-up of an idle CPU {delays}",
        machine.topology.nr_cpus(),
        machine.hz
    )
}

fn topology(header: &Header, timeline: &Timeline) -> Topology {
    let seen = seen_cpus(timeline).max();
    let listed = header.machine.cpus.iter().map(|c| c.cpu).max();
    let count = listed.into_iter().chain(seen).max().map_or(1, |last| last + 1);
    let mut cpus: Vec<CpuPlace> = (0..count)
        .map(|cpu| {
            let known = header.machine.cpus.iter().find(|c| c.cpu == cpu);
            let node = known.and_then(|c| c.node).unwrap_or(0);
            CpuPlace {
                core: known.and_then(|c| c.core).unwrap_or(cpu),
                llc: known.and_then(|c| c.llc).unwrap_or(0),
                node,
                socket: node,
            }
        })
        .collect();
    contain(&mut cpus);
    renumber(&mut cpus);
    Topology { cpus }
}

/// Puts each core into one cache and each cache into one socket. Virtual machines tell their guests of threads of one core
/// that share no cache, and where a socket is divided into nodes its cache belongs to all of them.
fn contain(cpus: &mut [CpuPlace]) {
    let mut llc_of_core = BTreeMap::new();
    let mut socket_of_llc = BTreeMap::new();
    for place in cpus {
        place.llc = *llc_of_core.entry(place.core).or_insert(place.llc);
        place.socket = *socket_of_llc.entry(place.llc).or_insert(place.socket);
    }
}

/// Numbers cores, caches and nodes without gaps, in the same order. The recorder names a set by its lowest CPU, and which
/// numbers other tools write is theirs to say; the simulator has a table of each.
fn renumber(cpus: &mut [CpuPlace]) {
    let numbers: [fn(&mut CpuPlace) -> &mut u32; 4] = [
        |c| &mut c.core,
        |c| &mut c.llc,
        |c| &mut c.node,
        |c| &mut c.socket,
    ];
    for number in numbers {
        let mut known: Vec<u32> = cpus.iter_mut().map(|c| *number(c)).collect();
        known.sort_unstable();
        known.dedup();
        for own in cpus.iter_mut().map(number) {
            *own = known.partition_point(|other| other < own) as u32;
        }
    }
}

/// Another number of CPUs of the same kind: the first ones, or more of them in the last cache.
pub(crate) fn resize(topology: &mut Topology, cpus: u32) {
    topology.cpus.truncate(cpus as usize);
    renumber(&mut topology.cpus); // those that went may have been all of a cache with a lower number
    while topology.nr_cpus() < cpus {
        let last = topology.cpus[topology.cpus.len() - 1];
        let core = topology.cpus.iter().map(|c| c.core).max().unwrap_or(0) + 1;
        topology.cpus.push(CpuPlace { core, ..last });
    }
}

/// Median time from wake-up to run where the CPU was idle, by how long it had been.
fn idle_states(timeline: &Timeline, by_cpu: &[Vec<CpuRun>]) -> Vec<IdleState> {
    let mut delays: [Vec<u64>; IDLE_NS.len()] = Default::default();
    for runs in by_cpu {
        for pair in runs.windows(2) {
            if pair[1].is_others() {
                continue;
            }
            let (idle_since, start) = (pair[0].end_ns, pair[1].start_ns);
            let thread = &timeline.threads[pair[1].thread as usize];
            let burst = &thread.bursts[pair[1].burst as usize];
            let first = &thread.runs[burst.runs.start as usize];
            let woken = burst.woken_ns;
            if matches!(burst.cause, Cause::Start | Cause::Unseen)
                || first.start_ns != start
                || woken <= idle_since
            {
                continue;
            }
            let idle = (woken - idle_since) as u64;
            let class = IDLE_NS.iter().rposition(|&from| idle >= from).unwrap_or(0);
            delays[class].push((start - woken) as u64);
        }
    }
    let mut states = Vec::new();
    let mut longest = 0;
    for (after_ns, mut found) in IDLE_NS.into_iter().zip(delays) {
        if found.len() < SAMPLES_MIN {
            continue;
        }
        let middle = found.len() / 2;
        // Deeper sleep does not make waking faster; where the medians say so it is noise.
        longest = (*found.select_nth_unstable(middle).1).max(longest);
        states.push(IdleState {
            after_ns,
            exit_ns: longest,
        });
    }
    states
}

/// What the kernel charged a group beyond its work, for each time that a CPU came back from idle for one of its threads: see
/// [`plimsoll_sim::Costs::idle_charged_ns`]. 0: nothing that is sure, or hardly one of its runs was so.
pub(crate) fn idle_charged_ns(by_cpu: &[Vec<CpuRun>], group: &Group, inside: impl Fn(u32) -> bool) -> u64 {
    let beyond_ns = (group.charged() - 1.0) * group.work_ns as f64;
    if beyond_ns <= TICK_NS {
        return 0;
    }
    let (mut runs, mut from_idle) = (0usize, 0usize);
    for pair in by_cpu.iter().flat_map(|runs| runs.windows(2)) {
        if !pair[1].is_others() && inside(pair[1].thread) {
            runs += 1;
            from_idle += usize::from(pair[0].end_ns < pair[1].start_ns);
        }
    }
    if from_idle < SAMPLES_MIN || (from_idle as f64) < FROM_IDLE_MIN * runs as f64 {
        return 0;
    }
    (beyond_ns / from_idle as f64).round() as u64
}

/// For each burst the share of full speed that its CPU time was worth: below 1 where its core's other thread was busy.
/// Work times this is the same work on a core of its own; the simulator slows it down again.
pub(crate) fn sibling_speeds(
    header: &Header,
    timeline: &Timeline,
    by_cpu: &[Vec<CpuRun>],
    smt_percent: u32,
) -> Vec<Vec<f32>> {
    let mut speeds: Vec<Vec<f32>> = timeline
        .threads
        .iter()
        .map(|t| vec![1.0; t.bursts.len()])
        .collect();
    let cpus = &header.machine.cpus;
    let sibling_of = |cpu: u32| {
        let core = cpus.iter().find(|c| c.cpu == cpu)?.core?;
        cpus.iter()
            .find(|c| c.core == Some(core) && c.cpu != cpu)
            .map(|c| c.cpu)
    };
    if !cpus.iter().any(|c| sibling_of(c.cpu).is_some()) {
        return speeds;
    }
    let lost = 1.0 - f64::from(smt_percent) / 100.0;
    for (cpu, runs) in by_cpu.iter().enumerate() {
        let Some(other) = sibling_of(cpu as u32).and_then(|s| by_cpu.get(s as usize)) else {
            continue;
        };
        let mut next = 0;
        for run in runs.iter().filter(|run| !run.is_others()) {
            while next < other.len() && other[next].end_ns <= run.start_ns {
                next += 1;
            }
            let shared: i64 = other[next..]
                .iter()
                .take_while(|o| o.start_ns < run.end_ns)
                .map(|o| o.end_ns.min(run.end_ns) - o.start_ns.max(run.start_ns))
                .sum();
            let (t, b) = (run.thread as usize, run.burst as usize);
            let work = timeline.threads[t].bursts[b].work_ns.max(1);
            speeds[t][b] -= (lost * shared as f64 / work as f64) as f32;
        }
    }
    speeds
}
