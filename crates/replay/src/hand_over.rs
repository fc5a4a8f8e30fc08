// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a request goes on that was worked for before, with nothing that wakes its thread for it.
//!
//! A runtime moves its own tasks between threads that run: the one hands the request over to the other, which goes on with it at
//! once and waits for nothing else that it did before itself.
//!
//! Or the request slept, and a timer went off. Timers of a runtime are its own: whichever of its threads waits next wakes up for the
//! first of them, so the time since that thread's own last work says nothing. It is the time since the request was worked for last
//! that is kept. A thread that runs as the timer goes off leaves no wake-up: how long the request slept then is not known, and is
//! taken to be as long as half of those slept that did leave one, of those that could have been over by then.
//!
//! Or it is the next one of a client that waits: it comes after the answer to the one before, though the thread that read it had never
//! blocked meanwhile, as one does not that is throttled all the time.
use crate::pools::Pools;
use crate::program::{actions_of, Action, Burst, BurstIx, Deed, Delayed, Start, NONE};
use crate::recording::first_cause;
use crate::request::{Arrival, RequestInfo};
use plimsoll_trace::{Cause, Timeline};
use std::collections::BTreeSet;

/// Runtimes look after their threads every now and then, more often than this; ns.
const SLEEP_NS_MIN: i64 = 1_000_000;
/// What ends so shortly after another part began was over: where a burst is cut is not known to the nanosecond.
const AT_ONCE_NS: i64 = 1_000;
/// Fewer sleeps say nothing of others.
const SLEEPS_MIN: usize = 8;

/// When a burst, or a part of one, was done in the recording.
pub(crate) struct Span {
    /// The burst, before it was cut.
    pub of: BurstIx,
    pub start_ns: i64,
    pub end_ns: i64,
}

/// One burst sets off another.
#[derive(Clone, Copy)]
pub(crate) struct Handed {
    pub by: BurstIx,
    pub to: BurstIx,
    /// When it has done so much of its work, ns.
    pub at_ns: u64,
    /// After that.
    pub after_ns: u64,
}

/// Threads of one process between which requests were moved.
pub(crate) struct Moved {
    pub threads: BTreeSet<u32>,
    /// Of those that read or answered them.
    pub pools: Pools,
}

/// Bursts that were cut, and what is known of them.
pub(crate) struct Cut<'a> {
    pub timeline: &'a Timeline,
    /// Of each thread's bursts, before they were cut.
    pub firsts: &'a [u32],
    /// Of what each of those was cut into.
    pub first_of: &'a [BurstIx],
    /// The request that each part reads or answers.
    pub of: &'a [u32],
    /// Likewise, and of what neither reads nor answers where that is known.
    pub all_of: &'a [u32],
    pub spans: &'a [Span],
    pub requests: &'a [RequestInfo],
}

impl Cut<'_> {
    /// Adds what sets parts off to the actions of others, and what does so later to `delayed`.
    pub fn hand_over(
        &self,
        bursts: &mut [Burst],
        actions: &mut Vec<Action>,
        delayed: &mut Vec<Delayed>,
    ) -> Moved {
        let spans = self.spans;
        let pairs = one_after_the_other(self.of, spans);
        let mut handed: Vec<Handed> = Vec::new();
        let mut slept_ns: Vec<i64> = Vec::new();
        for &Follows { by, to, .. } in pairs.iter().filter(|pair| pair.is_over) {
            let end_ns = spans[by as usize].end_ns;
            let timer = match bursts[to as usize].start {
                Start::Data | Start::Sent => None,
                _ => self.timer_of(spans[to as usize].of, end_ns),
            };
            let Some((timer, woken_ns)) = timer else {
                continue;
            };
            slept_ns.push(woken_ns - end_ns);
            let to = self.first_of[timer as usize];
            // Its own thread slept for nothing else, or two requests woke up at once.
            let follows = spans[by as usize].of + 1 == timer
                && bursts[by as usize].thread == bursts[to as usize].thread;
            if !follows && bursts[to as usize].start != Start::Message {
                (bursts[to as usize].start, bursts[to as usize].strict) = (Start::Message, false);
                handed.push(Handed {
                    by,
                    to,
                    at_ns: bursts[by as usize].work_ns,
                    after_ns: (woken_ns - end_ns) as u64,
                });
            }
        }
        slept_ns.sort_unstable();
        for pair in &pairs {
            let (by, to) = (pair.by, pair.to);
            if bursts[to as usize].start != Start::Data {
                continue;
            }
            let gap_ns = spans[to as usize].start_ns - spans[by as usize].end_ns;
            let over = slept_ns.partition_point(|ns| *ns <= gap_ns);
            let after_ns = match slept_ns.len() >= SLEEPS_MIN && over > 0 {
                true => slept_ns[over / 2] as u64,
                false => 0,
            };
            if after_ns > 0 || bursts[by as usize].thread != bursts[to as usize].thread {
                bursts[to as usize].start = Start::Sent;
                handed.push(pair.sets_off(bursts, after_ns));
            }
        }
        // A client that waits asks again after its own answer, though what it then asked was read in the middle of something.
        let asked = self.asked_again(bursts, actions);
        for one in &asked {
            if bursts[one.to as usize].start == Start::Data {
                bursts[one.to as usize].start = Start::Sent;
                handed.push(*one);
            }
        }
        let thread = |burst: BurstIx| bursts[burst as usize].thread;
        let process = |thread: u32| self.timeline.threads[thread as usize].tgid;
        let within = |one: &&Handed| {
            let (by, to) = (thread(one.by), thread(one.to));
            by != to && process(by) == process(to)
        };
        let serves = |one: &&Handed| self.of[one.by as usize] != NONE && self.of[one.to as usize] != NONE;
        let between = |one: &Handed| [thread(one.by), thread(one.to)];
        let within = handed.iter().filter(within);
        let serving = within.clone().filter(serves).flat_map(between).collect();
        let moved = Moved {
            threads: within.flat_map(between).collect(),
            pools: Pools::find(self.timeline, &serving),
        };
        let placed = self.placed(bursts, actions, &asked, &moved.pools);
        let unwoken = placed.iter().map(|one| one.to).collect();
        handed.extend(placed);
        add(bursts, actions, delayed, handed, &unwoken);
        moved
    }

    /// Each request of a client that waits, with the answer before.
    fn asked_again(&self, bursts: &[Burst], actions: &[Action]) -> Vec<Handed> {
        let mut read_by = vec![NONE; self.requests.len()];
        // And after how much of its work.
        let mut ended_by = vec![(NONE, 0); self.requests.len()];
        for ix in 0..bursts.len() {
            for action in &actions[actions_of(bursts, actions.len(), ix)] {
                match action.deed {
                    Deed::Await(request) => read_by[request as usize] = ix as BurstIx,
                    Deed::End(request) => ended_by[request as usize] = (ix as BurstIx, action.at_ns),
                    _ => {}
                }
            }
        }
        let mut handed = Vec::new();
        for (own, &to) in self.requests.iter().zip(&read_by) {
            let Arrival::After { request, pause_ns } = own.arrival else {
                continue;
            };
            let (by, at_ns) = ended_by[request as usize];
            if by != NONE && to != NONE {
                handed.push(Handed {
                    by,
                    to,
                    at_ns,
                    after_ns: pause_ns,
                });
            }
        }
        handed
    }

    /// The burst that a timer woke, after `since_ns`, and that woke this one, itself or through others. Bursts are those before they
    /// were cut.
    fn timer_of(&self, burst: BurstIx, since_ns: i64) -> Option<(BurstIx, i64)> {
        let ((thread, own), known) = self.cause_since(burst, since_ns)?;
        (known.cause == Cause::Timer && known.woken_ns - since_ns >= SLEEP_NS_MIN)
            .then(|| (self.firsts[thread as usize] + own, known.woken_ns))
    }

    /// What set a burst off, of what has happened since then and was not done by a thread.
    pub fn cause_since(&self, burst: BurstIx, since_ns: i64) -> Option<((u32, u32), &plimsoll_trace::Burst)> {
        let thread = self.firsts.partition_point(|first| *first <= burst) - 1;
        let own = (thread as u32, burst - self.firsts[thread]);
        first_cause(self.timeline, own, since_ns)
    }
}

/// A part of a request, and one without which it would not have been done.
pub(crate) struct Follows {
    pub by: BurstIx,
    pub to: BurstIx,
    /// It was over as the other began; else that is the request's first, in which it was read.
    pub is_over: bool,
}

impl Follows {
    /// So long after the one is over, or where the request's first part goes on, after that has begun.
    pub fn sets_off(&self, bursts: &[Burst], after_ns: u64) -> Handed {
        let at_ns = match self.is_over {
            true => bursts[self.by as usize].work_ns,
            false => 0,
        };
        Handed {
            by: self.by,
            to: self.to,
            at_ns,
            after_ns,
        }
    }
}

/// Of each request's parts in order of time, each but the first with the last that was over as it began.
pub(crate) fn one_after_the_other(of: &[u32], spans: &[Span]) -> Vec<Follows> {
    let mut by_request: Vec<BurstIx> = (0..of.len() as u32)
        .filter(|&ix| of[ix as usize] != NONE)
        .collect();
    by_request.sort_by_key(|&ix| (of[ix as usize], spans[ix as usize].end_ns));
    let mut found = Vec::new();
    for parts in by_request.chunk_by(|&a, &b| of[a as usize] == of[b as usize]) {
        let began = |ix: BurstIx| (spans[ix as usize].start_ns, ix);
        let first = parts.iter().min_by_key(|&&ix| began(ix));
        for &to in parts {
            let until_ns = spans[to as usize].start_ns + AT_ONCE_NS;
            let earlier = parts.partition_point(|&ix| spans[ix as usize].end_ns <= until_ns);
            let last = parts[..earlier].iter().rfind(|&&ix| began(ix) < began(to));
            let is_over = last.is_some();
            let by = last.or(first.filter(|&&first| first != to));
            found.extend(by.map(|&by| Follows { by, to, is_over }));
        }
    }
    found
}

/// Each sets off the other when it has done so much. `unwoken`: nothing that did before wakes these any more.
fn add(
    bursts: &mut [Burst],
    actions: &mut Vec<Action>,
    delayed: &mut Vec<Delayed>,
    mut handed: Vec<Handed>,
    unwoken: &BTreeSet<BurstIx>,
) {
    if handed.is_empty() {
        return;
    }
    handed.sort_unstable_by_key(|one| (one.by, one.at_ns, one.to));
    let old = std::mem::take(actions);
    actions.reserve(old.len() + handed.len());
    let mut next = handed.iter().peekable();
    for ix in 0..bursts.len() {
        let is_kept = |action: &Action| !matches!(action.deed, Deed::Wake(woken) if unwoken.contains(&woken));
        let own = old[actions_of(bursts, old.len(), ix)].iter().copied();
        let mut own = own.filter(is_kept).peekable();
        bursts[ix].actions = actions.len() as u32;
        while let Some(one) = next.next_if(|one| one.by as usize == ix) {
            while let Some(before) = own.next_if(|own| own.at_ns <= one.at_ns) {
                actions.push(before);
            }
            let deed = match one.after_ns {
                0 => Deed::Wake(one.to),
                after_ns => {
                    delayed.push(Delayed {
                        burst: one.to,
                        after_ns,
                    });
                    Deed::WakeLater(delayed.len() as u32 - 1)
                }
            };
            actions.push(Action {
                at_ns: one.at_ns,
                deed,
            });
        }
        actions.extend(own);
    }
}
