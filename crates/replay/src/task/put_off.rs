// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bursts whose request has not come yet.
//!
//! In a recording in which requests piled up, a thread that was woken for one of them may have read a later one first, and
//! a thread that waited for a lock may have waited for one that a later request held. In a replay in which they do not pile
//! up the later one is not there at that time, and no answer may wait for it. So
//! - a burst is put off until its request is there, and its thread goes on with what else there is for it;
//! - what a burst that is put off would wake for earlier requests is woken at once, or after what it would wait for an
//!   answer: a lock passes by those who do not ask for it;
//! - a thread does not wait to be woken by a burst that will be put off;
//! - a timer that an earlier request waits for runs though its thread had done what is put off before it.
use super::{Doing, ThreadTask};
use crate::program::{BurstIx, Deed, Start, NONE};
use plimsoll_sim::Step;
use std::ops::Range;

/// How far a thread looks beyond a request whose data is not there. Of what it does in one go, few requests overtake so
/// many others.
const LOOK_AHEAD: BurstIx = 64;

/// How many bursts are looked at to find what one that is put off would set off for earlier requests.
const HAND_ON: usize = 64;

impl ThreadTask {
    fn is_ready(&self, burst: BurstIx, now_ns: u64) -> Result<(), Option<u64>> {
        self.state.is_ready(&self.program, burst, now_ns)
    }

    fn is_put_off(&self, burst: BurstIx) -> bool {
        !self.state.is_taken(burst) && !self.state.waits(burst)
    }

    /// Of what was put off or cut, the first that is ready; else when the next may be.
    pub(super) fn put_off(&self, before: BurstIx, now_ns: u64) -> Result<BurstIx, Option<u64>> {
        let mut next_ns = None;
        for left in &self.left_over {
            let near = left.start..left.end.min(left.start + LOOK_AHEAD);
            for burst in near.filter(|&burst| self.may(burst, before) && self.is_put_off(burst)) {
                match self.is_ready(burst, now_ns) {
                    Ok(()) => return Ok(burst),
                    Err(at_ns) => next_ns = next_ns.into_iter().chain(at_ns).min(),
                }
            }
        }
        Err(next_ns)
    }

    pub(super) fn is_left_over(&self, burst: BurstIx) -> bool {
        self.left_over.iter().any(|left| left.contains(&burst))
    }

    /// Is the burst, which would come now, to be put off? Then its thread waits for anything.
    pub(super) fn puts_off(&mut self, burst: BurstIx, now_ns: u64) -> bool {
        if self.is_ready(burst, now_ns).is_ok() {
            return false;
        }
        let is_left_over = self.is_left_over(burst);
        if !is_left_over && self.program.bursts[burst as usize].start.is_part() {
            // Sent before its thread has begun with the first.
            self.left_over.push(burst..burst + 1);
        } else if !is_left_over {
            let end = self.end_of_cut(burst);
            self.leave_over(burst..end, now_ns);
            self.time_anyway(burst, end, now_ns);
        }
        self.doing = Doing::Waiting { before: NONE };
        true
    }

    pub(super) fn leave_over(&mut self, bursts: Range<BurstIx>, now_ns: u64) {
        let near = bursts.start..bursts.end.min(bursts.start + LOOK_AHEAD);
        for burst in near {
            if self.is_ready(burst, now_ns).is_err() {
                self.hand_on(burst);
            }
        }
        self.left_over.push(bursts);
    }

    /// A part was done before its thread has begun with the first: what that does next for the same request need not wait, either.
    pub(super) fn go_on_ahead(&mut self, part: BurstIx) {
        let request = self.program.part_of(part).request;
        let mut later = part + 1..self.end_of_cut(part);
        let next = later.find(|&at| self.program.part_of(at).request == request && !self.is_done(at));
        if let Some(next) = next.filter(|_| request != NONE) {
            self.left_over.push(next..next + 1);
        }
    }

    /// A timer that an earlier request waits for does not wait for what is put off, though the thread did that before.
    fn time_anyway(&mut self, burst: BurstIx, next: BurstIx, now_ns: u64) {
        let end = self.program.threads[self.thread as usize].bursts.end;
        if next >= end || self.is_done(next) {
            return;
        }
        let following = &self.program.bursts[next as usize];
        let is_earlier = self.first_request(next) < self.first_request(burst);
        if is_earlier && following.start == Start::After && !following.strict {
            self.timers.push((now_ns + following.at_ns, next));
        }
    }

    /// The first request that a burst works for, or what was cut from it: they are numbered as they came. [`NONE`], which is
    /// after all of them: not known.
    fn first_request(&self, burst: BurstIx) -> u32 {
        let requests = (burst..self.end_of_cut(burst)).map(|part| self.program.part_of(part).request);
        requests.min().unwrap_or(NONE)
    }

    /// Finds what a burst that is put off would wake for requests that came before its own, through those that it would
    /// wake for others.
    fn hand_on(&mut self, burst: BurstIx) {
        let own = self.program.part_of(burst).request;
        if own == NONE {
            return;
        }
        let mut seen = vec![burst];
        let mut at = 0;
        while at < seen.len().min(HAND_ON) {
            for action in &self.program.actions[self.program.actions_of(seen[at])] {
                let Some(woken) = action.deed.wakes(&self.program.delayed) else {
                    continue;
                };
                if self.is_done(woken) || seen.contains(&woken) {
                    continue;
                }
                match self.first_request(woken) < own {
                    false => seen.push(woken),
                    true => self.to_wake.push_back(action.deed),
                }
            }
            at += 1;
        }
    }

    /// What it reads was not sent by that, so its thread puts it off, and what that would wake is handed on.
    pub(super) fn wake_instead(&self, deed: Deed, now_ns: u64) -> Option<Step> {
        let woken = deed.wakes(&self.program.delayed)?;
        match self.program.bursts[woken as usize].start {
            Start::Sent => Some(self.state.tell(&self.program, woken)),
            _ => self.wake(deed, now_ns),
        }
    }

    /// Whether a burst waits for nothing that is on its way: what would wake it works for a request whose client has not asked
    /// yet, or for a later one that is not there, and so do those that would wake that, back to one that has been woken or comes
    /// by itself.
    pub(super) fn is_free(&self, burst: BurstIx, now_ns: u64) -> bool {
        let own = self.program.part_of(burst);
        if own.request == NONE || self.is_ready(burst, now_ns).is_err() {
            return false;
        }
        let mut waker = own.waker;
        for _ in 0..HAND_ON {
            if waker == NONE {
                return true;
            }
            let part = self.program.part_of(waker);
            if self.is_done(waker) || part.request == NONE || part.request == own.request {
                return false;
            }
            // As where a lock is held for a request that is not there yet, whichever came first in the recording.
            if self.state.is_unasked(&self.program, part.request) {
                return true;
            }
            let later = part.request > own.request;
            if !later || self.is_ready(waker, now_ns).is_ok() {
                return false;
            }
            waker = part.waker;
            // It has been woken, and has been put off or will be.
            if waker != NONE && self.is_done(waker) {
                return true;
            }
        }
        false
    }
}
