// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What several modules ask of a recording: which CPU ran which thread, which threads are of one program, what a wait
//! was for, what set a burst off.
use plimsoll_trace::{Burst, Cause, End, ThreadTimeline, Timeline};

/// Index of each thread's first burst in the order of all; one more at the end.
pub(crate) fn firsts(timeline: &Timeline) -> Vec<u32> {
    let mut next = 0;
    let mut firsts = vec![0];
    for thread in &timeline.threads {
        next += thread.bursts.len() as u32;
        firsts.push(next);
    }
    firsts
}

/// Waits for something other than a message, such as storage.
pub(crate) fn is_stuck(end: End) -> bool {
    matches!(
        end,
        End::Blocked {
            uninterruptible: true
        }
    )
}

pub(crate) fn is_from_outside(cause: Cause) -> bool {
    matches!(cause, Cause::Outside { .. } | Cause::Interrupt)
}

/// As many as a transaction of several queries to another process takes there and back; of a closed loop it is a few
/// requests behind each arrival from outside.
pub(crate) const HOPS_MAX: usize = 16;

/// A burst, the one that woke it, and so on up, each with its thread's number and its own there.
pub(crate) fn wakers(timeline: &Timeline, burst: (u32, u32)) -> impl Iterator<Item = ((u32, u32), &Burst)> {
    let known = |at: (u32, u32)| &timeline.threads[at.0 as usize].bursts[at.1 as usize];
    let all = std::iter::successors(Some(burst), move |&at| woken_by(known(at).cause));
    all.take(HOPS_MAX).map(move |at| (at, known(at)))
}

/// The burst that no thread woke, and that woke this one, itself or through others, all since then.
pub(crate) fn first_cause(
    timeline: &Timeline,
    burst: (u32, u32),
    since_ns: i64,
) -> Option<((u32, u32), &Burst)> {
    let (at, first) = wakers(timeline, burst).last()?;
    // It was woken before all others.
    (first.woken_ns >= since_ns && woken_by(first.cause).is_none()).then_some((at, first))
}

fn woken_by(cause: Cause) -> Option<(u32, u32)> {
    match cause {
        Cause::Thread { thread, burst, .. } | Cause::Fork { thread, burst, .. } => Some((thread, burst)),
        _ => None,
    }
}

/// Which burst the data that arrived at `begin_ns` set off, where the one that reads them was woken by others: a pool's
/// dispatcher, a runtime's poller.
pub(crate) fn woken_for(timeline: &Timeline, reads: (u32, u32), begin_ns: i64) -> Option<(u32, u32)> {
    let (first, burst) = first_cause(timeline, reads, begin_ns)?;
    is_from_outside(burst.cause).then_some(first)
}

/// Threads of one process, or processes of one program.
pub(crate) fn same_program(a: &ThreadTimeline, b: &ThreadTimeline) -> bool {
    (a.tgid.is_some() && a.tgid == b.tgid) || a.comm == b.comm
}

/// The CPU of each run, where it is known.
pub(crate) fn seen_cpus(timeline: &Timeline) -> impl Iterator<Item = u32> + '_ {
    let runs = timeline.threads.iter().flat_map(|t| &t.runs);
    let others = timeline.others.iter().map(|r| r.cpu);
    runs.map(|r| r.cpu).filter(|&cpu| cpu != u32::MAX).chain(others)
}

/// In a [`CpuRun`], of threads that are not recorded.
const NOT_RECORDED: u32 = u32::MAX;

/// A stretch on a CPU, and whose. Of threads that are not recorded: [`NOT_RECORDED`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CpuRun {
    pub start_ns: i64,
    pub end_ns: i64,
    pub thread: u32,
    pub burst: u32,
    /// It was preempted.
    pub wants_more: bool,
    /// By the trace's number.
    pub group: Option<u32>,
}

impl CpuRun {
    pub fn is_others(&self) -> bool {
        self.thread == NOT_RECORDED
    }
}

/// Stretches on each CPU, in order of time. They are as many as there are runs: build them once and hand them on.
pub(crate) fn runs_by_cpu(timeline: &Timeline) -> Vec<Vec<CpuRun>> {
    let mut by_cpu: Vec<Vec<CpuRun>> = Vec::new();
    for run in &timeline.others {
        add(
            &mut by_cpu,
            run.cpu,
            CpuRun {
                start_ns: run.end_ns - run.run_ns as i64,
                end_ns: run.end_ns,
                thread: NOT_RECORDED,
                burst: NOT_RECORDED,
                wants_more: run.wants_more,
                group: run.group,
            },
        );
    }
    for (t, thread) in timeline.threads.iter().enumerate() {
        for (b, burst) in thread.bursts.iter().enumerate() {
            let runs = thread.runs_of(burst);
            for (ix, run) in runs.iter().enumerate() {
                add(
                    &mut by_cpu,
                    run.cpu,
                    CpuRun {
                        start_ns: run.start_ns,
                        end_ns: run.end_ns,
                        thread: t as u32,
                        burst: b as u32,
                        wants_more: ix + 1 < runs.len(),
                        group: burst.group,
                    },
                );
            }
        }
    }
    by_cpu.iter_mut().for_each(|runs| runs.sort_unstable());
    by_cpu
}

fn add(by_cpu: &mut Vec<Vec<CpuRun>>, cpu: u32, run: CpuRun) {
    if cpu == u32::MAX {
        return;
    }
    if by_cpu.len() <= cpu as usize {
        by_cpu.resize(cpu as usize + 1, Vec::new());
    }
    by_cpu[cpu as usize].push(run);
}
