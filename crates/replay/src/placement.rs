//! Where the recorded kernel put threads that were woken.
//!
//! Whether a wake-up looks for an idle CPU depends on which CPUs the kernel believes to share a cache (in virtual
//! machines often none, whatever /sys says), and whether a thread follows its waker on how many others wake it. Neither
//! can be read anywhere; both show in what the kernel did whenever it had the choice.
use crate::machine::{runs_by_cpu, CpuRun};
use plimsoll_trace::{Cause, Timeline};

/// Fewer choices than this show no habit.
const CHOICES_MIN: u32 = 8;

#[derive(Clone, Debug, Default)]
pub(crate) struct Placement {
    /// A thread whose CPU is busy goes to an idle one.
    pub seeks_idle: bool,
    /// By thread.
    pub threads: Vec<ThreadPlace>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ThreadPlace {
    /// Where it ran first.
    pub first_cpu: Option<u32>,
    /// It goes to where its waker runs, if that has nothing else to do.
    pub follows: bool,
}

/// How often a choice was there, and how often it was taken.
#[derive(Clone, Copy, Default)]
struct Choice {
    seen: u32,
    taken: u32,
}

impl Choice {
    fn note(&mut self, taken: bool) {
        self.seen += 1;
        self.taken += u32::from(taken);
    }

    /// `unclear`: where it was seen too rarely.
    fn habit(self, unclear: bool) -> bool {
        match self.seen < CHOICES_MIN {
            true => unclear,
            false => self.taken * 2 > self.seen,
        }
    }
}

pub(crate) fn placement(timeline: &Timeline) -> Placement {
    let by_cpu = runs_by_cpu(timeline);
    let busy = |cpu: u32, ns: i64| at(&by_cpu[cpu as usize], ns).is_some();
    let (mut seeks, mut follows) = (Choice::default(), Choice::default());
    let mut own = vec![Choice::default(); timeline.threads.len()];
    for (ix, thread) in timeline.threads.iter().enumerate() {
        for pair in thread.bursts.windows(2) {
            let before = thread.runs[..pair[1].runs.start as usize].last();
            let first = thread.runs[pair[1].runs.start as usize..pair[1].runs.end as usize].first();
            let (Some(before), Some(first)) = (before, first) else {
                continue;
            };
            let (previous, woken_ns) = (before.cpu, pair[1].woken_ns);
            if previous == u32::MAX || first.cpu == u32::MAX {
                continue;
            }
            let waker_cpu = match pair[1].cause {
                Cause::Thread { thread: waker, .. } => {
                    let runs = &timeline.threads[waker as usize].runs;
                    let run = runs.partition_point(|r| r.end_ns < woken_ns);
                    runs.get(run).filter(|r| r.start_ns <= woken_ns).map(|r| r.cpu)
                }
                Cause::Timer => None,
                _ => continue,
            };
            match waker_cpu.filter(|&cpu| cpu != previous && cpu != u32::MAX) {
                Some(waker_cpu) => {
                    let followed = first.cpu == waker_cpu;
                    follows.note(followed);
                    own[ix].note(followed);
                }
                None => {
                    let others = (0..by_cpu.len() as u32).filter(|&cpu| cpu != previous);
                    let mut idle = others.filter(|&cpu| !busy(cpu, woken_ns));
                    if busy(previous, woken_ns) && idle.next().is_some() {
                        seeks.note(first.cpu != previous);
                    }
                }
            }
        }
    }
    let usual = follows.habit(true);
    Placement {
        seeks_idle: seeks.habit(true),
        threads: timeline
            .threads
            .iter()
            .zip(own)
            .map(|(thread, own)| ThreadPlace {
                first_cpu: thread.runs.first().map(|r| r.cpu).filter(|&cpu| cpu != u32::MAX),
                follows: own.habit(usual),
            })
            .collect(),
    }
}

/// The run that covers an instant.
fn at(runs: &[CpuRun], ns: i64) -> Option<&CpuRun> {
    let next = runs.partition_point(|r| r.start_ns <= ns);
    next.checked_sub(1).map(|i| &runs[i]).filter(|r| r.end_ns > ns)
}
