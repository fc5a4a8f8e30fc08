// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the recorded kernel put threads that were woken.
//!
//! Whether a wake-up looks for an idle CPU depends on which CPUs the kernel believes to share a cache (in virtual
//! machines often none, whatever /sys says), and whether a thread follows its waker on how many others wake it. Neither
//! can be read anywhere; both show in what the kernel did whenever it had the choice.
//!
//! Beyond such habits each wake-up has its own recorded CPU, its seat, which is taken again while the choice is like the
//! recorded one ([`plimsoll_sim::Seat`]). Clients that stay beside their server's CPU for seconds, or on it, do so
//! because of loads and moves of which no trace tells; which of the two it is decides how much of a CPU the server has.
use crate::recording::{runs_by_cpu, CpuRun};
use plimsoll_sim::Choice as SeatChoice;
use plimsoll_trace::{Burst, Cause, ThreadTimeline, Timeline};

/// Fewer choices than this show no habit.
const CHOICES_MIN: u32 = 8;

/// A [`plimsoll_sim::Seat`], if one is known, in four bytes: one is kept for each burst.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat(u32);

impl Seat {
    pub const NONE: Seat = Seat(u32::MAX);
    const NO_CPU: u32 = 0x7fff;
    const CHOICES: [SeatChoice; 3] = [SeatChoice::Idle, SeatChoice::NotIdle, SeatChoice::NoneIdle];

    fn new(cpu: u32, waker_cpu: Option<u32>, choice: SeatChoice) -> Seat {
        match cpu < Seat::NO_CPU {
            true => {
                Seat(cpu << 17 | waker_cpu.unwrap_or(Seat::NO_CPU).min(Seat::NO_CPU) << 2 | choice as u32)
            }
            false => Seat::NONE,
        }
    }

    pub fn get(self) -> Option<plimsoll_sim::Seat> {
        let choice = *Seat::CHOICES.get((self.0 & 3) as usize)?;
        let waker_cpu = Some(self.0 >> 2 & Seat::NO_CPU).filter(|&cpu| cpu != Seat::NO_CPU);
        Some(plimsoll_sim::Seat {
            cpu: self.0 >> 17,
            waker_cpu,
            choice,
        })
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Placement {
    /// A thread goes to an idle CPU if at least so many are runnable on its own; `None`: never.
    pub seeks_idle_from: Option<u32>,
    /// A thread that is woken on a CPU where one of its own group runs mostly waits for that one.
    pub spares_own_group: bool,
    /// By thread.
    pub threads: Vec<ThreadPlace>,
    /// By burst, thread after thread: where it ran first.
    pub seats: Vec<Seat>,
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
            let first = thread.runs_of(&pair[1]).first();
            let (Some(before), Some(first)) = (before, first) else {
                continue;
            };
            let (previous, woken_ns) = (before.cpu, pair[1].woken_ns);
            if previous == u32::MAX || first.cpu == u32::MAX {
                continue;
            }
            let waker_cpu = match pair[1].cause {
                Cause::Thread { .. } => waker_cpu(timeline, &pair[1]),
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
        seats: seats(timeline, by_cpu.len() as u32, busy),
        spares_own_group: !preempts_own_group(timeline, &by_cpu).habit(true),
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

/// Within this after a wake-up the running thread either gave way or was spared; in it, too, the woken one gets the CPU.
const GIVES_WAY_NS: i64 = 50_000;

/// Of threads that were woken where another of their group ran, and went on running: how many took its CPU at once.
/// Since 6.6 a running thread keeps its CPU for a slice unless it has had more than its due, of which no trace tells.
fn preempts_own_group(timeline: &Timeline, by_cpu: &[Vec<CpuRun>]) -> Choice {
    let mut own = Choice::default();
    for (ix, thread) in (0..).zip(&timeline.threads) {
        for burst in &thread.bursts {
            let first = thread.runs_of(burst).first();
            let Some(first) = first.filter(|r| r.cpu != u32::MAX) else {
                continue;
            };
            let Some(run) = at(&by_cpu[first.cpu as usize], burst.woken_ns) else {
                continue;
            };
            if run.is_others() {
                continue;
            }
            let running = &timeline.threads[run.thread as usize].bursts[run.burst as usize];
            let by_itself = matches!(burst.cause, Cause::Thread { .. } | Cause::Timer);
            let soon = burst.woken_ns + GIVES_WAY_NS;
            if !by_itself || run.thread == ix || running.group != burst.group || running.end_ns < soon {
                continue;
            }
            own.note(run.end_ns < soon && first.start_ns < soon);
        }
    }
    own
}

/// Where the thread ran that woke it.
fn waker_cpu(timeline: &Timeline, burst: &Burst) -> Option<u32> {
    let Cause::Thread { thread, .. } = burst.cause else {
        return None;
    };
    let runs = &timeline.threads[thread as usize].runs;
    let run = runs.partition_point(|r| r.end_ns < burst.woken_ns);
    let run = runs.get(run).filter(|r| r.start_ns <= burst.woken_ns)?;
    Some(run.cpu).filter(|&cpu| cpu != u32::MAX)
}

/// Of each burst. `busy`: whether a CPU ran something at a time.
fn seats(timeline: &Timeline, nr_cpus: u32, busy: impl Fn(u32, i64) -> bool) -> Vec<Seat> {
    // A thread that slept longer than the kernel's balancing interval finds a machine that was balanced since.
    let balanced_ns = i64::from(nr_cpus.min(64)) * 16_000_000;
    let seat = |thread: &ThreadTimeline, ix: usize| {
        let burst = &thread.bursts[ix];
        let slept_ns = ix
            .checked_sub(1)
            .map_or(i64::MAX, |before| burst.woken_ns - thread.bursts[before].end_ns);
        if slept_ns > balanced_ns {
            return Seat::NONE;
        }
        let first = thread.runs_of(burst).first();
        let Some(cpu) = first.map(|r| r.cpu).filter(|&cpu| cpu != u32::MAX) else {
            return Seat::NONE;
        };
        let choice = if !busy(cpu, burst.woken_ns) {
            SeatChoice::Idle
        } else if (0..nr_cpus).any(|other| !busy(other, burst.woken_ns)) {
            SeatChoice::NotIdle
        } else {
            SeatChoice::NoneIdle
        };
        Seat::new(cpu, waker_cpu(timeline, burst), choice)
    };
    let mut seats = Vec::new();
    for thread in &timeline.threads {
        seats.extend((0..thread.bursts.len()).map(|ix| seat(thread, ix)));
    }
    seats
}

/// How many threads were runnable on each CPU, running or waiting.
struct Crowds(Vec<(Vec<i64>, Vec<i64>)>);

impl Crowds {
    /// A burst is counted on the CPU of its first run.
    fn of(timeline: &Timeline, nr_cpus: usize) -> Crowds {
        let mut by_cpu = vec![(Vec::new(), Vec::new()); nr_cpus];
        for thread in &timeline.threads {
            for burst in &thread.bursts {
                let first = thread.runs_of(burst).first();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_keep_their_cpus_and_what_there_was_to_choose_from() {
        for (cpu, waker_cpu, choice) in [
            (0, None, SeatChoice::Idle),
            (3, Some(0), SeatChoice::NotIdle),
            (4095, Some(4095), SeatChoice::NoneIdle),
        ] {
            let seat = Seat::new(cpu, waker_cpu, choice).get().unwrap();
            assert_eq!((seat.cpu, seat.waker_cpu, seat.choice), (cpu, waker_cpu, choice));
        }
        assert!(Seat::NONE.get().is_none());
        assert!(Seat::new(40_000, None, SeatChoice::Idle).get().is_none());
    }
}
