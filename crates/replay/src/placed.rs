// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a thread did only since it was free: another one of its pool, which ran all the while, woke it for work that was there, and any
//! of them would have done. That the request had come this far is what sets it off, not where the waker happened to be.
//!
//! So it is for clients that wait, whose requests come in another order in each replay: one that waited for a waker which then
//! worked for others stood still. Where requests keep their times the order is kept, too, and so are wakers, as of a lock.
use crate::hand_over::{one_after_the_other, Cut, Handed};
use crate::pools::Pools;
use crate::program::{actions_of, Action, Burst, BurstIx, Deed, Start, NONE};
use crate::request::Arrival;

impl Cut<'_> {
    /// Bursts that were done by whichever thread was free, which wait for no waker any more, and what sets each off.
    pub fn placed(
        &self,
        bursts: &mut [Burst],
        actions: &[Action],
        asked: &[Handed],
        pools: &Pools,
    ) -> Vec<Handed> {
        let mut placed = Vec::new();
        if pools.is_empty() {
            return placed;
        }
        let wakers = wakers(bursts, actions);
        for (one, since_ns) in self.set_off(bursts, asked) {
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
    fn set_off(&self, bursts: &[Burst], asked: &[Handed]) -> Vec<(Handed, i64)> {
        let request = |to: BurstIx| &self.requests[self.all_of[to as usize] as usize];
        let asked = asked.iter().map(|one| {
            let begin_ns = request(one.to).begin_ns;
            (*one, self.timeline.start_ns + begin_ns as i64)
        });
        let follows = one_after_the_other(self.all_of, self.spans);
        let waits = |to: BurstIx| matches!(request(to).arrival, Arrival::After { .. });
        let goes_on = follows.iter().filter(|own| waits(own.to)).map(|own| {
            let span = &self.spans[own.by as usize];
            let since_ns = if own.is_over { span.end_ns } else { span.start_ns };
            (own.sets_off(bursts, 0), since_ns)
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
