// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests that keep their times, and that a thread of a pool happened to read in the middle of something: any of them would have
//! read it as it came.
use crate::hand_over::Cut;
use crate::pools::Pools;
use crate::program::{actions_of, lead_ns, Action, Burst, BurstIx, Delayed, Part, Start, NONE};
use crate::request::Arrival;
use std::ops::Range;

impl Cut<'_> {
    /// They come to whichever thread of the pool is idle: into `delayed`, so long after the beginning.
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
}
