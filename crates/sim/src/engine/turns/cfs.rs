// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns in order of vruntime, as policy/baseline/cfs.h says: the kernel's fair class before 6.6.
use crate::class::{CpuSeen, Entry, Seen};
use crate::engine::policy as pl;

#[inline]
pub(super) fn moved(entry: &mut Entry, from: &CpuSeen) {
    pl::pl_cfs_moved(entry.policy, from.fair, entry.fair);
}

#[inline]
pub(super) fn place(entry: &mut Entry, woken: bool, alone: Option<u64>) {
    if let Some(running) = alone {
        // The queue's clock is the running task's.
        pl::pl_cfs_picked(entry.fair, running);
    }
    pl::pl_cfs_place(entry.policy, entry.fair, woken, entry.config);
}

#[inline]
pub(super) fn picked(entry: &mut Entry) -> u64 {
    pl::pl_cfs_picked(entry.fair, entry.policy.vruntime);
    pl::pl_cfs_slice(entry.fair, entry.policy.effective, entry.config)
}

#[inline]
pub(super) fn ran(entry: &mut Entry, ran_ns: u64) {
    pl::pl_cfs_ran(entry.policy, ran_ns, entry.config);
}

#[inline]
pub(super) fn yields(entry: &mut Entry, first: Option<u64>) {
    pl::pl_cfs_yield(entry.policy, first.is_some(), first.unwrap_or(0), entry.config);
}

#[inline]
pub(super) fn preempts(woken: &Seen, running: &Seen) -> bool {
    pl::pl_cfs_preempts(woken.policy, running.policy, woken.config)
}
