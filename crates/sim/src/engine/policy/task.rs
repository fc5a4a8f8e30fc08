// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a task is to the policy, and what of policy/task.h concerns a task alone; [`super::Memory`] has the rest.
use super::sys;
use super::{Config, FairConfig, FairCpu, Touch};

/// It points to its group, so only [`super::Memory`] makes and moves one; its numbers anyone may read.
pub(crate) struct Task(pub(super) sys::Task);

impl std::ops::Deref for Task {
    type Target = sys::Task;

    #[inline]
    fn deref(&self) -> &sys::Task {
        &self.0
    }
}

// SAFETY of all calls below: a task's group and its CPU are those that the engine's memory gave it, which lives as long as its
// tasks do and is reached through raw pointers only; what else is pointed to is the caller's alone.

#[inline]
pub(crate) fn pl_task_class(task: &mut Task, nice: i32, sched_idle: bool) {
    // SAFETY: as above.
    unsafe { sys::pl_task_class(&mut task.0, nice, sched_idle) }
}

#[inline]
pub(crate) fn pl_task_blocked(task: &mut Task, now_ns: u64, touch: &mut Touch, config: &Config) -> u32 {
    // SAFETY: as above.
    unsafe { sys::pl_task_blocked(&mut task.0, now_ns, touch, config) }
}

#[inline]
pub(crate) fn pl_task_charge(
    task: &mut Task,
    delta_ns: u64,
    now_ns: u64,
    touch: &mut Touch,
    config: &Config,
) -> u32 {
    // SAFETY: as above.
    unsafe { sys::pl_task_charge(&mut task.0, delta_ns, now_ns, touch, config) }
}

#[inline]
pub(crate) fn pl_task_count(task: &mut Task, cpu: &mut FairCpu) -> u32 {
    // SAFETY: as above.
    unsafe { sys::pl_task_count(&mut task.0, cpu) }
}

#[inline]
pub(crate) fn pl_task_uncount(task: &mut Task, cpu: &mut FairCpu) -> u32 {
    // SAFETY: as above.
    unsafe { sys::pl_task_uncount(&mut task.0, cpu) }
}

#[inline]
pub(crate) fn pl_task_reweigh(
    task: &mut Task,
    cpu: &mut FairCpu,
    now_ns: u64,
    touch: &mut Touch,
    config: &Config,
) -> bool {
    // SAFETY: as above.
    unsafe { sys::pl_task_reweigh(&mut task.0, cpu, now_ns, touch, config) }
}

#[inline]
pub(crate) fn pl_task_yields_cpu(running: &Task, woken: &Task) -> bool {
    // SAFETY: as above.
    unsafe { sys::pl_task_yields_cpu(&running.0, &woken.0) }
}

#[inline]
pub(crate) fn pl_cfs_moved(task: &mut Task, from: &FairCpu, to: &FairCpu) {
    // SAFETY: as above.
    unsafe { sys::pl_cfs_moved(&mut task.0, from, to) }
}

#[inline]
pub(crate) fn pl_cfs_place(task: &mut Task, cpu: &FairCpu, woken: bool, config: &FairConfig) {
    // SAFETY: as above.
    unsafe { sys::pl_cfs_place(&mut task.0, cpu, woken, config) }
}

#[inline]
pub(crate) fn pl_cfs_ran(task: &mut Task, delta_ns: u64, config: &FairConfig) {
    // SAFETY: as above.
    unsafe { sys::pl_cfs_ran(&mut task.0, delta_ns, config) }
}

#[inline]
pub(crate) fn pl_cfs_yield(task: &mut Task, others: bool, head_vruntime: u64, config: &FairConfig) {
    // SAFETY: as above.
    unsafe { sys::pl_cfs_yield(&mut task.0, others, head_vruntime, config) }
}

#[inline]
pub(crate) fn pl_cfs_preempts(woken: &Task, running: &Task, config: &FairConfig) -> bool {
    // SAFETY: as above.
    unsafe { sys::pl_cfs_preempts(&woken.0, &running.0, config) }
}
