// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a thread did only since it was free: another one of its pool, which ran all the while, woke it for work that was there, and any
//! of them would have done. That the request had come this far is what sets it off, not where the waker happened to be.
//!
//! So it is for clients that wait, whose requests come in another order in each replay: one that waited for a waker which then
//! worked for others stood still. Where requests keep their times the order is kept, too, and so are wakers, as of a lock; but what a
//! thread of a pool happened to read in the middle of something, any of them would have read as it came.
use crate::hand_over::{one_after_the_other, Cut, Handed};
use crate::pools::Pools;
use crate::program::{actions_of, lead_ns, Action, Burst, BurstIx, Deed, Delayed, Part, Start, NONE};
use crate::request::Arrival;
use std::ops::Range;

impl Cut<'_> {
    /// Requests that keep their times, and that a thread of a pool read in the middle of something, come to whichever thread of it is
    /// idle: into `delayed`, so long after the beginning.
    pub fn arrive(
        &self,
        bursts: &mut [Burst],
        actions: &[Action],
        delayed: &mut Vec<Delayed>,
        parts: &[Part],
        pools: &Pools,
    ) -> Range<u32> {
        let first = delayed.len() as u32;
        for (ix, part) in parts.iter().enumerate() {
            let thread = bursts[ix].thread;
            let is_free = bursts[ix].start == Start::Data && part.before == NONE && part.request != NONE;
            if !is_free || pools.of(thread).is_none() {
                continue;
            }
            let request = &self.requests[part.request as usize];
            // What woke the thread for it wakes it in the replay.
            if request.arrival == Arrival::Kept && self.woken_ns(thread, part.first) < request.begin_ns {
                bursts[ix].start = Start::Sent;
                let lead_ns = lead_ns(&actions[actions_of(bursts, actions.len(), ix)], part.request);
                delayed.push(Delayed {
                    burst: ix as BurstIx,
                    after_ns: request.begin_ns.saturating_sub(lead_ns),
                });
            }
        }
        first..delayed.len() as u32
    }

    /// When a thread was woken for a burst, since the recording began.
    fn woken_ns(&self, thread: u32, burst: BurstIx) -> u64 {
        let of = self.spans[burst as usize].of - self.firsts[thread as usize];
        let known = &self.timeline.threads[thread as usize].bursts[of as usize];
        (known.woken_ns - self.timeline.start_ns).max(0) as u64
    }

    /// Bursts that were done by whichever thread was free, which wait for no waker any more, and what sets each off.
    pub fn placed(&self, bursts: &mut [Burst], actions: &[Action], pools: &Pools) -> Vec<Handed> {
        let mut placed = Vec::new();
        if pools.is_empty() {
            return placed;
        }
        let wakers = wakers(bursts, actions);
        for (one, since_ns) in self.set_off(bursts, actions) {
            let (ix, waker) = (one.to as usize, wakers[one.to as usize]);
            if bursts[ix].start != Start::Message || waker == NONE {
                continue;
            }
            let pool = pools.of(bursts[ix].thread);
            let in_one_pool = pool.is_some() && pool == pools.of(bursts[waker as usize].thread);
            let for_another = self.all_of[waker as usize] != self.all_of[ix];
            if in_one_pool && for_another && self.cause_since(self.spans[ix].of, since_ns).is_none() {
                (bursts[ix].start, bursts[ix].strict) = (Start::Sent, false);
                placed.push(one);
            }
        }
        placed
    }

    /// What is done for clients that wait, with what must have come before, and when that had come.
    fn set_off(&self, bursts: &[Burst], actions: &[Action]) -> Vec<(Handed, i64)> {
        let request = |to: BurstIx| &self.requests[self.all_of[to as usize] as usize];
        let asked = self.asked_again(bursts, actions).into_iter().map(|one| {
            let begin_ns = request(one.to).begin_ns;
            (one, self.timeline.start_ns + begin_ns as i64)
        });
        let follows = one_after_the_other(self.all_of, self.spans);
        let waits = |to: BurstIx| matches!(request(to).arrival, Arrival::After { .. });
        let goes_on = follows.iter().filter(|own| waits(own.to)).map(|own| {
            let span = &self.spans[own.by as usize];
            let (at_ns, since_ns) = match own.is_over {
                true => (bursts[own.by as usize].work_ns, span.end_ns),
                false => (0, span.start_ns),
            };
            let one = Handed {
                by: own.by,
                to: own.to,
                at_ns,
                after_ns: 0,
            };
            (one, since_ns)
        });
        asked.chain(goes_on).collect()
    }
}

/// The burst that wakes each; [`NONE`]: none does at once.
fn wakers(bursts: &[Burst], actions: &[Action]) -> Vec<BurstIx> {
    let mut wakers = vec![NONE; bursts.len()];
    for ix in 0..bursts.len() {
        for action in &actions[actions_of(bursts, actions.len(), ix)] {
            if let Deed::Wake(woken) = action.deed {
                wakers[woken as usize] = ix as BurstIx;
            }
        }
    }
    wakers
}
