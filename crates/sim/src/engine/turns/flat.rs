// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns in order of vruntime, as policy/fair.h and task.h say: what the live scheduler does.
use crate::class::{CpuSeen, Entry, Seen};
use crate::engine::policy as pl;

#[inline]
pub(super) fn moved(entry: &mut Entry, from: &CpuSeen) {
    let vruntime = pl::pl_fair_move(entry.policy.vruntime, from.fair, entry.fair, entry.config);
    entry.policy.set_vruntime(vruntime);
}

#[inline]
pub(super) fn place(entry: &mut Entry, woken: bool, alone: Option<u64>) {
    if let Some(running) = alone {
        // The queue's clock is the running task's.
        pl::pl_fair_picked(entry.machine, entry.fair, running, entry.config);
    }
    pl::pl_task_place(entry.policy, entry.fair, woken, entry.config);
}

#[inline]
pub(super) fn picked(entry: &mut Entry) -> u64 {
    pl::pl_fair_picked(entry.machine, entry.fair, entry.policy.vruntime, entry.config);
    pl::pl_fair_slice(entry.fair, entry.policy.effective, entry.config)
}

#[inline]
pub(super) fn yields(entry: &mut Entry, first: Option<u64>) {
    pl::pl_task_yield(entry.policy, first.is_some(), first.unwrap_or(0), entry.config);
}

#[inline]
pub(super) fn preempts(woken: &Seen, running: &Seen) -> bool {
    pl::pl_task_preempts(
        woken.policy,
        running.policy,
        running.policy.vruntime,
        woken.config,
    )
}

#[inline]
pub(super) fn looks(to: &CpuSeen, own: Option<u64>, from: &CpuSeen, first: &Seen) -> bool {
    pl::pl_fair_should_pull(
        to.fair,
        own.is_some(),
        own.unwrap_or(0),
        from.fair,
        first.policy.vruntime,
        first.policy.effective,
        to.config,
    )
}
