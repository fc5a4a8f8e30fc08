// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The threads of pools at work: what is ready while the thread that did it in the recording is busy is done by one that is idle, as
//! long as no more of them work at once than did in the recording.
//!
//! Only parts of bursts move: what was done in one go with other work. What a thread was woken for is its own.
use crate::pools::Pools;
use crate::program::BurstIx;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// So many of those that wait are looked at; nearly all are ready.
const LOOK_AHEAD: usize = 64;

/// All pools, in a replay. Used on one thread: the locks are there so that behaviours may be sent to it.
pub(crate) struct Workers(Vec<Mutex<Pool>>);

#[derive(Default)]
struct Pool {
    at_once: usize,
    working: BTreeSet<u32>,
    /// In the order in which they became so.
    idle: Vec<u32>,
    /// What came while none was, in the order of the recording.
    waiting: BTreeSet<(u64, BurstIx)>,
}

impl Workers {
    pub fn new(pools: &Pools) -> Workers {
        let pool = |&at_once: &usize| {
            Mutex::new(Pool {
                at_once,
                ..Pool::default()
            })
        };
        Workers(pools.at_once().iter().map(pool).collect())
    }

    fn pool(&self, pool: Option<u32>) -> Option<MutexGuard<'_, Pool>> {
        let pool = self.0.get(pool? as usize)?;
        Some(pool.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A thread runs, or has been woken.
    pub fn works(&self, pool: Option<u32>, thread: u32) {
        if let Some(mut pool) = self.pool(pool) {
            pool.idle.retain(|idle| *idle != thread);
            pool.working.insert(thread);
        }
    }

    /// A thread blocks; `is_idle`: until anything comes.
    pub fn blocks(&self, pool: Option<u32>, thread: u32, is_idle: bool) {
        if let Some(mut pool) = self.pool(pool) {
            pool.working.remove(&thread);
            if is_idle {
                pool.idle.push(thread);
            }
        }
    }

    /// The thread that does what is ready: its own, if that is idle, else the one that became idle last. `None`: it waits for the next
    /// to be. `at_ns`: when it was done in the recording.
    pub fn takes(&self, pool: Option<u32>, own: u32, at_ns: u64, burst: BurstIx) -> Option<u32> {
        let mut pool = self.pool(pool)?;
        if pool.idle.contains(&own) {
            return Some(own);
        }
        let others = pool.working.len() < pool.at_once;
        let by = pool.idle.last().copied().filter(|_| others);
        if by.is_none() {
            pool.waits(at_ns, burst);
        }
        by
    }

    /// Whether one thread works at most.
    pub fn works_alone(&self, pool: Option<u32>) -> bool {
        self.pool(pool).is_some_and(|pool| pool.works_alone())
    }

    /// A thread comes back to what is ready.
    pub fn waits(&self, pool: Option<u32>, at_ns: u64, burst: BurstIx) {
        if let Some(mut pool) = self.pool(pool) {
            pool.waits(at_ns, burst);
        }
    }

    /// Of what waits and `is_ready` that which came first in the recording; what is taken waits no longer.
    pub fn first(
        &self,
        pool: Option<u32>,
        is_taken: impl Fn(BurstIx) -> bool,
        is_ready: impl Fn(BurstIx) -> bool,
    ) -> Option<BurstIx> {
        self.pool(pool)?.first(is_taken, is_ready)
    }

    /// The same, where one thread works at most, for the one that became idle last.
    pub fn passes_on(
        &self,
        pool: Option<u32>,
        is_taken: impl Fn(BurstIx) -> bool,
        is_ready: impl Fn(BurstIx) -> bool,
    ) -> Option<(u32, BurstIx)> {
        let mut pool = self.pool(pool)?;
        let idle = pool.idle.last().copied().filter(|_| pool.works_alone())?;
        Some((idle, pool.first(is_taken, is_ready)?))
    }
}

impl Pool {
    fn works_alone(&self) -> bool {
        self.working.len() < 2
    }

    fn waits(&mut self, at_ns: u64, burst: BurstIx) {
        self.waiting.insert((at_ns, burst));
    }

    fn first(
        &mut self,
        is_taken: impl Fn(BurstIx) -> bool,
        is_ready: impl Fn(BurstIx) -> bool,
    ) -> Option<BurstIx> {
        while self.waiting.first().is_some_and(|&(_, burst)| is_taken(burst)) {
            self.waiting.pop_first();
        }
        let mut near = self.waiting.iter().take(LOOK_AHEAD).copied();
        let found = near.find(|&(_, burst)| !is_taken(burst) && is_ready(burst))?;
        self.waiting.remove(&found);
        Some(found.1)
    }
}
