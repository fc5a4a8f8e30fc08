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
    /// A thread goes to an idle CPU if at least so many are runnable on its own; `None`: never.
    pub seeks_idle_from: Option<u32>,
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
    let crowds = Crowds::of(timeline, by_cpu.len());
    let (mut alone, mut crowded, mut follows) = (Choice::default(), Choice::default(), Choice::default());
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
                        let moved = first.cpu != previous;
                        match crowds.at(previous, woken_ns) {
                            0 | 1 => alone.note(moved),
                            _ => crowded.note(moved),
                        }
                    }
                }
            }
        }
    }
    let usual = follows.habit(true);
    Placement {
        seeks_idle_from: match (alone.habit(true), crowded.habit(true)) {
            (true, _) => Some(0),
            (false, true) if crowded.seen >= CHOICES_MIN => Some(2),
            (false, _) => None,
        },
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

/// How many threads were runnable on each CPU, running or waiting.
struct Crowds(Vec<(Vec<i64>, Vec<i64>)>);

impl Crowds {
    /// A burst is counted on the CPU of its first run.
    fn of(timeline: &Timeline, nr_cpus: usize) -> Crowds {
        let mut by_cpu = vec![(Vec::new(), Vec::new()); nr_cpus];
        for thread in &timeline.threads {
            for burst in &thread.bursts {
                let first = thread.runs[burst.runs.start as usize..burst.runs.end as usize].first();
                if let Some((begins, ends)) = first.and_then(|r| by_cpu.get_mut(r.cpu as usize)) {
                    begins.push(burst.woken_ns);
                    ends.push(burst.end_ns);
                }
            }
        }
        for (begins, ends) in &mut by_cpu {
            begins.sort_unstable();
            ends.sort_unstable();
        }
        Crowds(by_cpu)
    }

    /// Before whatever happens at `ns`.
    fn at(&self, cpu: u32, ns: i64) -> usize {
        let (begins, ends) = &self.0[cpu as usize];
        begins.partition_point(|&t| t < ns) - ends.partition_point(|&t| t < ns)
    }
}

/// The run that covers an instant.
fn at(runs: &[CpuRun], ns: i64) -> Option<&CpuRun> {
    let next = runs.partition_point(|r| r.start_ns <= ns);
    next.checked_sub(1).map(|i| &runs[i]).filter(|r| r.end_ns > ns)
}
