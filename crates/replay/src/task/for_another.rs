// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a thread does for another one of its pool: see [`crate::workers`].
use super::{Doing, ThreadTask};
use crate::program::{BurstIx, NONE};
use plimsoll_sim::Step;

impl ThreadTask {
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.doing, Doing::Waiting { .. })
    }

    pub(super) fn is_for_another(&self, burst: BurstIx) -> bool {
        self.program.bursts[burst as usize].thread != self.thread
    }

    /// Takes what comes first in its pool; only of its own while it waits for something.
    pub(super) fn of_pool(&self, before: BurstIx, now_ns: u64) -> Option<BurstIx> {
        let may = |burst| before == NONE || !self.is_for_another(burst) && self.may(burst, before);
        self.state.take_of_pool(&self.program, self.thread, now_ns, may)
    }

    /// Of its own, and of what it was asked to do for others.
    pub(super) fn has_done_all(&self) -> bool {
        self.state.left(self.thread) == 0 && self.taken.is_empty() && !self.state.has_mail(self.thread)
    }

    /// It has done all of its own: what waits in its pool, if no other thread is there to do it.
    pub(super) fn leaves_behind(&self, now_ns: u64) -> Option<BurstIx> {
        match self.state.works_alone(&self.program, self.thread) {
            true => self.of_pool(NONE, now_ns),
            false => None,
        }
    }

    /// It is about to wait for something: does anyone do what waits in its pool?
    pub(super) fn pass_on(&self, now_ns: u64) -> Option<Step> {
        match self.doing {
            Doing::Waiting { before: NONE } => None,
            _ => self.state.pass_on(&self.program, self.thread, now_ns),
        }
    }

    /// What a pool's thread does next for a request is there as soon as what it has just done is.
    pub(super) fn go_on(&mut self, burst: BurstIx, now_ns: u64) {
        let next = self.program.part_of(burst).next;
        let pool = self.program.pool_of(burst);
        if next == NONE || pool.is_none() || self.program.pool_of(next) != pool {
            return;
        }
        if self.state.is_taken(next) || self.state.is_ready(&self.program, next, now_ns).is_err() {
            return;
        }
        self.state.come_back_to(&self.program, next);
        if !self.is_for_another(next) {
            self.receive(next);
        }
    }
}
