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
//! Likewise when its turn came ([`plimsoll_sim::Turn`]): what threads and groups were owed is in no trace.
use crate::recording::CpuRun;
use plimsoll_sim::{Choice as SeatChoice, GroupId, Turn, When};
use plimsoll_trace::{Burst, Cause, Owed, ThreadTimeline, Timeline};

/// Fewer choices than this show no habit.
const CHOICES_MIN: u32 = 8;

/// A [`plimsoll_sim::Seat`], if one is known, in 24 bytes: one is kept for each burst.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    place: u32,
    /// Of whom its turn was after: see [`Seat::turn`].
    group: u32,
    /// Of [`When::After`], or [`Turn::others_ns`], or [`plimsoll_sim::Seat::took_ns`].
    waited_ns: u32,
    owed_ns: i32,
    /// The group that ran then; [`Seat::NOBODY`]: not known.
    beside: u32,
    beside_ns: i32,
}

impl Seat {
    pub const NONE: Seat = Seat {
        place: u32::MAX,
        group: 0,
        waited_ns: 0,
        owed_ns: 0,
        beside: Seat::NOBODY,
        beside_ns: 0,
    };
    const NOBODY: u32 = u32::MAX;
    const NO_CPU: u32 = 0x3fff;
    const CHOICES: [SeatChoice; 3] = [SeatChoice::Idle, SeatChoice::NotIdle, SeatChoice::NoneIdle];
    const WHEN: [When; 3] = [When::Now, When::Next, When::AfterSlice];
    /// Beside a group's number.
    const AFTER: u32 = 1 << 31;
    /// Likewise: `waited_ns` is how long the CPU took. Then others gave way at once, if any ran, and none of its own group did.
    const TOOK: u32 = 1 << 30;

    fn new(seat: plimsoll_sim::Seat) -> Seat {
        let (when, group, waited_ns) = seat.turn.map_or((0, 0, 0), |turn| match turn.when {
            When::Now => (1, turn.of.0, turn.others_ns),
            When::Next => (2, turn.of.0, turn.others_ns),
            When::AfterSlice => (3, turn.of.0, turn.others_ns),
            When::After { ns } => (3, turn.of.0 | Seat::AFTER, ns),
        });
        let (group, waited_ns) = match seat.took_ns {
            Some(took_ns) => (group | Seat::TOOK, took_ns),
            None => (group, waited_ns),
        };
        let [cpu, waker_cpu] =
            [seat.cpu, seat.waker_cpu].map(|cpu| cpu.map_or(Seat::NO_CPU, |cpu| cpu.min(Seat::NO_CPU)));
        let owed = seat.owed.unwrap_or(plimsoll_sim::Owed {
            own_ns: 0,
            beside: GroupId(Seat::NOBODY),
            beside_ns: 0,
        });
        let place = cpu << 18 | waker_cpu << 4 | when << 2 | seat.choice as u32;
        Seat {
            place,
            group,
            waited_ns,
            owed_ns: owed.own_ns,
            beside: owed.beside.0,
            beside_ns: owed.beside_ns,
        }
    }

    pub fn get(self) -> Option<plimsoll_sim::Seat> {
        let choice = *Seat::CHOICES.get((self.place & 3) as usize)?;
        let cpu = |at: u32| Some(self.place >> at & Seat::NO_CPU).filter(|&cpu| cpu != Seat::NO_CPU);
        Some(plimsoll_sim::Seat {
            cpu: cpu(18),
            waker_cpu: cpu(4),
            choice,
            turn: self.turn(),
            owed: (self.beside != Seat::NOBODY).then_some(plimsoll_sim::Owed {
                own_ns: self.owed_ns,
                beside: GroupId(self.beside),
                beside_ns: self.beside_ns,
            }),
            took_ns: (self.group & Seat::TOOK != 0).then_some(self.waited_ns),
        })
    }

    fn turn(self) -> Option<Turn> {
        let when = *Seat::WHEN.get((self.place >> 2 & 3).checked_sub(1)? as usize)?;
        let of = GroupId(self.group & !(Seat::AFTER | Seat::TOOK));
        let (when, others_ns) = match (self.group & Seat::AFTER, self.group & Seat::TOOK) {
            (0, 0) => (when, self.waited_ns),
            (0, _) => (when, 0),
            _ => (When::After { ns: self.waited_ns }, 0),
        };
        Some(Turn { of, when, others_ns })
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

/// `by_cpu`: see [`crate::recording::runs_by_cpu`]. `group_of`: by the trace's group.
pub(crate) fn placement(timeline: &Timeline, by_cpu: &[Vec<CpuRun>], group_of: &[u32]) -> Placement {
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
        seats: seats(timeline, by_cpu, group_of),
        spares_own_group: !preempts_own_group(timeline, by_cpu).habit(true),
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

/// A CPU that was idle and took longer was kept from it by something else: its host, or the thread's own limit.
const FROM_IDLE_NS_MAX: i64 = 1_000_000;

/// A slice ends at a tick: most waits for one are longer than this.
const SLICE_NS_MIN: i64 = 300_000;

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

/// Of each burst.
fn seats(timeline: &Timeline, by_cpu: &[Vec<CpuRun>], group_of: &[u32]) -> Vec<Seat> {
    let nr_cpus = by_cpu.len() as u32;
    let busy = |cpu: u32, ns: i64| at(&by_cpu[cpu as usize], ns).is_some();
    // A thread that slept longer than the kernel's balancing interval finds a machine that was balanced since.
    let balanced_ns = i64::from(nr_cpus.min(64)) * 16_000_000;
    let seat = |thread: &ThreadTimeline, ix: usize| {
        let burst = &thread.bursts[ix];
        let Some(before) = ix.checked_sub(1).map(|before| &thread.bursts[before]) else {
            return Seat::NONE;
        };
        let first = thread.runs_of(burst).first();
        let Some(first) = first.filter(|r| r.cpu != u32::MAX) else {
            return Seat::NONE;
        };
        // Without what says where it waited it is taken to have waited where it ran.
        let cpu = burst.queued.filter(|&cpu| cpu < nr_cpus).unwrap_or(first.cpu);
        let choice = if !busy(cpu, burst.woken_ns) {
            SeatChoice::Idle
        } else if (0..nr_cpus).any(|other| !busy(other, burst.woken_ns)) {
            SeatChoice::NotIdle
        } else {
            SeatChoice::NoneIdle
        };
        let stays = burst.woken_ns - before.end_ns <= balanced_ns;
        Seat::new(plimsoll_sim::Seat {
            cpu: Some(cpu).filter(|_| stays || burst.queued.is_some()),
            waker_cpu: waker_cpu(timeline, burst),
            choice,
            turn: match cpu == first.cpu {
                true => turn_of(&by_cpu[cpu as usize], group_of, burst.woken_ns, first.start_ns),
                false => turn_never_came(&by_cpu[cpu as usize], group_of, burst.woken_ns, first.start_ns),
            },
            owed: burst
                .owed
                .and_then(|known| owed(known, &by_cpu[cpu as usize], group_of, burst.woken_ns)),
            took_ns: match cpu == first.cpu {
                true => took_ns(&by_cpu[cpu as usize], burst.woken_ns, first.start_ns),
                false => None,
            },
        })
    };
    let mut seats = Vec::new();
    for thread in &timeline.threads {
        seats.extend((0..thread.bursts.len()).map(|ix| seat(thread, ix)));
    }
    seats
}

/// As the simulator has it; `None`: of what ran the group is not known. `runs`: of the CPU on which that was.
pub(crate) fn owed(recorded: Owed, runs: &[CpuRun], group_of: &[u32], ns: i64) -> Option<plimsoll_sim::Owed> {
    let group = *group_of.get(at(runs, ns)?.group? as usize)?;
    Some(plimsoll_sim::Owed {
        own_ns: recorded.own_ns,
        beside: GroupId(group),
        beside_ns: recorded.beside_ns,
    })
}

/// How long a CPU took to run a thread that was woken there: to come back from idle, or until what is not recorded gave way.
fn took_ns(runs: &[CpuRun], woken_ns: i64, start_ns: i64) -> Option<u32> {
    let took_ns = start_ns - woken_ns;
    let at_once = match at(runs, woken_ns) {
        None => {
            let next = runs.partition_point(|run| run.start_ns <= woken_ns);
            let is_first = runs.get(next).is_some_and(|run| run.start_ns == start_ns);
            is_first && took_ns < FROM_IDLE_NS_MAX
        }
        Some(running) => running.is_others() && running.end_ns <= start_ns && took_ns < GIVES_WAY_NS,
    };
    at_once.then_some(took_ns as u32)
}

/// When the turn came of a thread that was woken where something ran, and ran first from `start_ns` on.
fn turn_of(runs: &[CpuRun], group_of: &[u32], woken_ns: i64, start_ns: i64) -> Option<Turn> {
    let running = at(runs, woken_ns)?;
    let of = GroupId(*group_of.get(running.group? as usize)?);
    let next = runs.partition_point(|run| run.start_ns <= woken_ns);
    let goes_next = runs.get(next).is_none_or(|run| run.start_ns >= start_ns);
    let waited_ns = start_ns - woken_ns;
    let since = runs[..next].last().into_iter().chain(&runs[next..]);
    let since = since.take_while(|run| run.start_ns < start_ns);
    let (mut others_ns, mut own) = (0, false);
    for run in since {
        match run.is_others() {
            true => others_ns += run.end_ns.min(start_ns) - run.start_ns.max(woken_ns),
            false => own = true,
        }
    }
    let only_others = !own && waited_ns - others_ns < GIVES_WAY_NS;
    let ns = |ns: i64| u32::try_from(ns).unwrap_or(u32::MAX);
    let when = match running.wants_more {
        _ if waited_ns >= GIVES_WAY_NS && only_others && (running.wants_more || !goes_next) => {
            When::After { ns: ns(waited_ns) }
        }
        _ if waited_ns >= SLICE_NS_MIN => When::AfterSlice,
        true if goes_next && waited_ns < GIVES_WAY_NS => When::Now,
        false if goes_next => When::Next,
        _ => return None,
    };
    let others_ns = match running.is_others() || others_ns < GIVES_WAY_NS {
        true => 0,
        false => ns(others_ns),
    };
    Some(Turn { of, when, others_ns })
}

/// The same of one that was moved to another CPU before its turn had come, and ran there from `start_ns` on.
fn turn_never_came(runs: &[CpuRun], group_of: &[u32], woken_ns: i64, start_ns: i64) -> Option<Turn> {
    let of = GroupId(*group_of.get(at(runs, woken_ns)?.group? as usize)?);
    let when = When::AfterSlice;
    (start_ns - woken_ns >= SLICE_NS_MIN).then_some(Turn {
        of,
        when,
        others_ns: 0,
    })
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
    fn seats_keep_their_cpus_what_there_was_to_choose_from_and_when_their_turn_came() {
        for (cpu, waker_cpu, choice) in [
            (Some(0), None, SeatChoice::Idle),
            (Some(3), Some(0), SeatChoice::NotIdle),
            (Some(4095), Some(4095), SeatChoice::NoneIdle),
            (None, Some(1), SeatChoice::NotIdle),
        ] {
            let whens = Seat::WHEN
                .into_iter()
                .chain([When::After { ns: 1 }, When::After { ns: u32::MAX }]);
            let turns = whens.map(|when| {
                Some(Turn {
                    of: GroupId(7),
                    when,
                    others_ns: u32::from(when == When::Next),
                })
            });
            let owed = [None, Some(0), Some(-1), Some(i32::MAX)].into_iter().cycle();
            let gave_way = |turn: &Turn| turn.when == When::Now && turn.others_ns == 0;
            for (turn, own_ns) in turns.chain([None]).zip(owed) {
                let owed = own_ns.map(|own_ns| plimsoll_sim::Owed {
                    own_ns,
                    beside: GroupId(3),
                    beside_ns: -own_ns,
                });
                let seat = plimsoll_sim::Seat {
                    cpu,
                    waker_cpu,
                    choice,
                    turn,
                    owed,
                    took_ns: turn.as_ref().is_none_or(gave_way).then_some(7),
                };
                assert_eq!(Seat::new(seat).get(), Some(seat));
            }
        }
        assert!(Seat::NONE.get().is_none());
    }
}
