// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The C policy as safe Rust: the one room of this crate that may write `unsafe`.
//!
//! A function here has the name of the C function that it calls, and no rule of its own. The rest of the crate sees of the
//! policy what this module shows:
//!
//! - functions over plain values, below: whatever they are given, they touch nothing else;
//! - [`Memory`], which owns what C keeps of groups; what is given a group's or a CPU's number is its method, and checks that;
//! - [`Task`], which points into one [`Memory`] and is made by it alone;
//! - [`Turns`], which owns what policy/steps.h keeps of tasks and groups.
//!
//! What makes it safe: C keeps pointers from one array of these to another and never to a caller's value, nothing outside
//! can copy or make such a pointer, and all four belong to one engine, which has one thread and drops them together.
mod array;
mod memory;
mod task;
mod turns;

pub(super) use memory::Memory;
pub(crate) use memory::Root;
pub(crate) use task::Task;
pub(super) use task::{
    pl_cfs_moved, pl_cfs_place, pl_cfs_preempts, pl_cfs_ran, pl_cfs_yield, pl_task_blocked, pl_task_charge,
    pl_task_class, pl_task_count, pl_task_reweigh, pl_task_uncount, pl_task_yields_cpu,
};
pub(super) use turns::Turns;

use plimsoll_policy_sys as sys;
pub(crate) use sys::{
    zeroed, BwConfig, BwLimits, BwPart, Config, Entity, FairConfig, FairCpu, Headroom, Line, Newidle, Pelt,
    Pool, Steal, StealConfig, Touch, Waker, BALANCE_ONE, BW_ARM_PERIOD, BW_ARM_SLACK, BW_SLACK_DELAY_NS,
    BW_THROTTLED, GROUP_DEPTH_MAX, PLACES, PLACE_BEHIND, PLACE_IDLE_WORK, PLACE_SYNC_WAIT_NS, PLACE_WAKER,
    STEAL_OVERLOADED, UNLIMITED,
};

/// Functions of integers and of structs without pointers.
macro_rules! plain {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*) => {$(
        #[inline]
        pub(crate) fn $name($($argument: $type),*) $(-> $result)? {
            // SAFETY: a reference is a valid pointer that nothing else uses meanwhile, and what it points to holds none.
            unsafe { sys::$name($($argument),*) }
        }
    )*};
}

plain! {
    // pelt.h
    fn pl_pelt_update(pelt: &mut Pelt, weight: u64, now_ns: u64) -> bool;

    // fair.h
    fn pl_fair_turn(cpu: &FairCpu, slice_ns: u64, budget_ns: u64) -> u64;

    // place.h
    fn pl_place_passes_on(waker: &FairCpu, sync: bool) -> bool;
    fn pl_place_lighter(cpu: &FairCpu, other: &FairCpu) -> bool;
    fn pl_place_idle(previous: u32, cpu: u32, same_cache: bool) -> u32;

    // entity.h: of an entity and a line only their own numbers are read.
    fn pl_line_mean(line: &Line) -> u64;
    fn pl_entity_lag(line: &Line, entity: &Entity) -> i64;

    // steal.h
    fn pl_steal_idle_ended(steal: &mut Steal, idle_ns: u64);
    fn pl_steal_may_take(running: bool, allowed_here: bool, throttled: bool) -> bool;
    fn pl_steal_turned(before: u32, after: u32) -> i32;
    fn pl_steal_worthwhile(steal: &Steal, nr_nodes: u32, config: &StealConfig) -> bool;

    // baseline/cfs.h
    fn pl_cfs_picked(cpu: &mut FairCpu, vruntime: u64);
    fn pl_cfs_slice(cpu: &FairCpu, weight: u64, config: &FairConfig) -> u64;

    // baseline/balance.h
    fn pl_balance_imbalance(busiest: &Pelt, mine: &Pelt) -> u64;
    fn pl_balance_overloaded(nr_queued: u32, runnable: &Pelt) -> bool;
    fn pl_balance_to_move(busiest: u32, mine: u32) -> u32;
    fn pl_newidle_decay(newidle: &mut Newidle, now_ns: u64);
    fn pl_newidle_drawn(newidle: &mut Newidle, dice: u32) -> bool;
    fn pl_newidle_found(newidle: &mut Newidle, found: bool);
    fn pl_newidle_hot(since_ran_ns: u64, hot_ns: u64) -> bool;
    fn pl_newidle_init(newidle: &mut Newidle);
    fn pl_newidle_measured(newidle: &mut Newidle, cost_ns: u64);
    fn pl_newidle_worthwhile(newidle: &Newidle, avg_idle_ns: u64, spent_ns: u64) -> bool;

    // baseline/wake.h
    fn pl_wake_affine(here: u64, there: u64, task: u64, waker: u64, sync: bool) -> bool;
    fn pl_wake_count(waker: &mut Waker, woken: u32, now_ns: u64);
    fn pl_wake_scan_cost(average_ns: u64, cost_ns: u64, given_up: bool) -> u64;
    fn pl_wake_scan_proportional(cpus: u32, avg_idle_ns: u64, scan_cost_ns: u64) -> u32;
    fn pl_wake_scan_utilisation(cpus: u32, utilisation: u64) -> u32;
    fn pl_wake_wide(waker: &Waker, woken: &Waker, cpus: u32) -> bool;
}
