// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions of policy/*.h. Every pointer must be valid and not aliased by a live Rust reference during the
//! call; ranges and errors are documented in the headers.
use crate::types::*;

extern "C" {
    // bandwidth.h
    pub fn pl_bw_limited(pool: *const Pool) -> bool;
    pub fn pl_bw_any_throttled(pool: *const Pool) -> bool;
    pub fn pl_bw_check(limits: *const BwLimits, is_root: bool, mainline: bool) -> u32;
    pub fn pl_bw_buffer(pool: *const Pool, config: *const BwConfig) -> u64;
    pub fn pl_bw_refill(pool: *mut Pool, elapsed: u64, config: *const BwConfig) -> u64;
    pub fn pl_bw_take(pool: *mut Pool, want_ns: i64) -> i64;
    pub fn pl_bw_start_period(pool: *mut Pool, now_ns: u64, config: *const BwConfig) -> u32;
    pub fn pl_bw_take_arm_period(pool: *mut Pool) -> bool;
    pub fn pl_bw_take_arm_slack(pool: *mut Pool) -> bool;
    pub fn pl_bw_throttle(pool: *mut Pool, balance: *mut Balance, now_ns: u64);
    pub fn pl_bw_ask(
        pool: *mut Pool,
        balance: *mut Balance,
        runnable: bool,
        now_ns: u64,
        config: *const BwConfig,
    ) -> u32;
    pub fn pl_bw_charge(
        pool: *mut Pool,
        balance: *mut Balance,
        delta_ns: u64,
        runnable: bool,
        now_ns: u64,
        config: *const BwConfig,
    ) -> u32;
    pub fn pl_bw_leave(pool: *mut Pool, balance: *mut Balance, now_ns: u64, config: *const BwConfig) -> u32;
    pub fn pl_bw_owe(pool: *mut Pool) -> u32;
    pub fn pl_bw_distribute_begin(pool: *mut Pool) -> bool;
    pub fn pl_bw_distribute_next(pool: *mut Pool, now_ns: u64, config: *const BwConfig) -> *mut Balance;
    pub fn pl_bw_distribute_end(pool: *mut Pool);
    pub fn pl_bw_timer_overdue(pool: *const Pool, now_ns: u64) -> bool;
    pub fn pl_bw_period(pool: *mut Pool, now_ns: u64, nth: u32, config: *const BwConfig) -> bool;
    pub fn pl_bw_slack(pool: *mut Pool, now_ns: u64, config: *const BwConfig) -> bool;
    pub fn pl_bw_budget(balance: *const Balance) -> u64;
    pub fn pl_bw_init(pool: *mut Pool, balances: *mut Balance, nr_cpus: u32, ring: *mut u32, slots: u32);
    pub fn pl_bw_set(
        pool: *mut Pool,
        limits: *const BwLimits,
        phase_ns: u64,
        now_ns: u64,
        config: *const BwConfig,
    ) -> u32;
    pub fn pl_bw_forgive(pool: *mut Pool);
    pub fn pl_bw_release_next(pool: *mut Pool, now_ns: u64) -> *mut Balance;

    // pelt.h
    pub fn pl_pelt_update(pelt: *mut Pelt, weight: u64, now_ns: u64) -> bool;

    // load.h
    pub fn pl_load_update(load: *mut Load, now_ns: u64);
    pub fn pl_load_publish(
        group: *mut GroupLoad,
        load: *mut Load,
        now_ns: u64,
        config: *const LoadConfig,
    ) -> bool;
    pub fn pl_load_forget(group: *mut GroupLoad, load: *mut Load, now_ns: u64) -> bool;
    pub fn pl_load_moved(
        from: *mut Load,
        to: *mut Load,
        most: u64,
        now_ns: u64,
        config: *const LoadConfig,
    ) -> u64;
    pub fn pl_load_share(group: *const GroupLoad, load: *const Load, weight: u64) -> u64;

    // weight.h
    pub fn pl_weight_of_nice(nice: i32) -> u64;
    pub fn pl_weight_of_cpu_weight(cpu_weight: u32) -> u64;

    // fair.h
    pub fn pl_fair_turn(cpu: *const FairCpu, slice_ns: u64, budget_ns: u64) -> u64;

    // sparsemask.h
    pub fn pl_sparsemask_set(mask: *mut Sparsemask, element: u32);
    pub fn pl_sparsemask_clear(mask: *mut Sparsemask, element: u32);
    pub fn pl_sparsemask_test(mask: *const Sparsemask, element: u32) -> bool;
    pub fn pl_sparsemask_next(mask: *const Sparsemask, from: u32, left: *mut u32) -> u32;

    // steal.h
    pub fn pl_steal_idle_ended(steal: *mut Steal, idle_ns: u64);
    pub fn pl_steal_worthwhile(steal: *const Steal, nr_nodes: u32, config: *const StealConfig) -> bool;
    pub fn pl_steal_turned(before: u32, after: u32) -> i32;
    pub fn pl_steal_count_changed(mask: *mut Sparsemask, element: u32, before: u32, after: u32) -> bool;
    pub fn pl_steal_may_take(running: bool, allowed_here: bool, throttled: bool) -> bool;

    // group.h
    pub fn pl_group_link(group: *mut Group);
    pub fn pl_group_init(
        group: *mut Group,
        parent: *mut Group,
        id: u64,
        queues: *mut Queue,
        balances: *mut Balance,
        nr_cpus: u32,
        ring: *mut u32,
        slots: u32,
    );
    pub fn pl_level_refresh(
        level: *mut Group,
        cpu: u32,
        now_ns: u64,
        touch: *mut Touch,
        config: *const Config,
    ) -> u64;
    pub fn pl_group_set_weight(group: *mut Group, cpu_weight: u32);
    pub fn pl_group_set_idle(group: *mut Group, idle: bool);
    pub fn pl_group_weight(group: *const Group) -> u64;
    pub fn pl_queue_written(group: *mut Group, cpu: u32);
    pub fn pl_queue_part(queue: *const Queue, effective: u64) -> u64;
    pub fn pl_group_refresh(
        group: *mut Group,
        cpu: u32,
        now_ns: u64,
        touch: *mut Touch,
        config: *const Config,
    );
    pub fn pl_group_parked(
        group: *mut Group,
        level: *const Group,
        cpu: u32,
        now_ns: u64,
        touch: *mut Touch,
        config: *const Config,
    );
    pub fn pl_group_throttled(group: *const Group, cpu: u32) -> *mut Group;
    pub fn pl_level_enter(
        level: *mut Group,
        cpu: u32,
        now_ns: u64,
        touch: *mut Touch,
        config: *const Config,
    ) -> u32;
    pub fn pl_level_leave(
        level: *mut Group,
        cpu: u32,
        now_ns: u64,
        touch: *mut Touch,
        config: *const Config,
    ) -> u32;
    pub fn pl_level_charge(
        level: *mut Group,
        cpu: u32,
        delta_ns: u64,
        now_ns: u64,
        config: *const Config,
    ) -> u32;
    pub fn pl_group_budget(group: *const Group, cpu: u32, max_ns: u64) -> u64;
    pub fn pl_level_forget(level: *mut Group, queue: *mut Queue, now_ns: u64) -> bool;

    // task.h
    pub fn pl_task_class(task: *mut Task, nice: i32, sched_idle: bool);
    pub fn pl_task_effective(task: *const Task, cpu: u32) -> u64;
    pub fn pl_task_runnable(
        task: *mut Task,
        cpu: u32,
        now_ns: u64,
        touch: *mut Touch,
        config: *const Config,
    ) -> u32;
    pub fn pl_task_moved(task: *mut Task, to: u32, now_ns: u64, config: *const Config);
    pub fn pl_task_regroup(task: *mut Task, group: *mut Group);
    pub fn pl_task_blocked(task: *mut Task, now_ns: u64, touch: *mut Touch, config: *const Config) -> u32;
    pub fn pl_task_charge(
        task: *mut Task,
        delta_ns: u64,
        now_ns: u64,
        touch: *mut Touch,
        config: *const Config,
    ) -> u32;
    pub fn pl_task_count(task: *mut Task, cpu: *mut FairCpu) -> u32;
    pub fn pl_task_uncount(task: *mut Task, cpu: *mut FairCpu) -> u32;
    pub fn pl_task_reweigh(
        task: *mut Task,
        cpu: *mut FairCpu,
        now_ns: u64,
        touch: *mut Touch,
        config: *const Config,
    ) -> bool;
    pub fn pl_task_yields_cpu(running: *const Task, woken: *const Task) -> bool;

    // entity.h
    pub fn pl_line_mean(line: *const Line) -> u64;
    pub fn pl_entity_lag(line: *const Line, entity: *const Entity) -> i64;
    pub fn pl_entity_kept(line: *const Line, entity: *const Entity) -> i64;
    pub fn pl_line_join(line: *mut Line, entity: *mut Entity, lag: i64);
    pub fn pl_line_leave(line: *mut Line, entity: *mut Entity);
    pub fn pl_entity_doubled(line: *const Line, entity: *const Entity, weight: u64, bound_ns: u64) -> i64;
    pub fn pl_line_weigh(line: *mut Line, entity: *mut Entity, weight: u64, more: i64) -> u64;
    pub fn pl_line_ran(line: *mut Line, entity: *mut Entity, delta_ns: u64);
    pub fn pl_line_pick(line: *const Line, early_ns: u64, least_ns: *mut u64) -> *mut Entity;
    pub fn pl_line_picked(line: *mut Line, entity: *mut Entity);
    pub fn pl_entity_is_protected(line: *const Line, entity: *const Entity) -> bool;
    // domain.h
    pub fn pl_domain_of_set(first: u32) -> u32;
    pub fn pl_part_follows(part: *mut Part, domains: *mut Domain, bound: u32, now_ns: u64);
    pub fn pl_domain_gather_ns(nr_cpus: u32) -> u64;
    pub fn pl_domains_begin(domains: *mut Domain, n: u32) -> u64;
    pub fn pl_domains_gather(part: *const Part);
    pub fn pl_domains_end(domains: *mut Domain, n: u32, all: *mut Sum, config: *const FairConfig) -> u64;
    // steps.h
    pub fn pl_steps_tick(task: *const Task, config: *const FairConfig);
    pub fn pl_steps_enter(
        part: *mut Part,
        task: *mut Task,
        turn: *mut Turn,
        id: u64,
        now_ns: u64,
        config: *const FairConfig,
    );
    pub fn pl_steps_leave(
        part: *mut Part,
        task: *mut Task,
        turn: *mut Turn,
        ran_ns: u64,
        sleeps: bool,
        delays: bool,
    );
    pub fn pl_steps_ran(
        part: *mut Part,
        task: *mut Task,
        turn: *mut Turn,
        delta_ns: u64,
        now_ns: u64,
        config: *const FairConfig,
    );
    pub fn pl_steps_picked(task: *const Task, turn: *mut Turn, now_ns: u64, config: *const FairConfig)
        -> u64;
    pub fn pl_steps_pick(root: *const Group, cpu: u32, now_ns: u64, config: *const FairConfig) -> u64;
    pub fn pl_steps_written(
        group: *mut Group,
        cpu: u32,
        now_ns: u64,
        touch: *mut Touch,
        config: *const Config,
    );
    pub fn pl_steps_pulls(
        pull: Pull,
        task: *const Task,
        turn: *mut Turn,
        has_own: bool,
        own: u64,
        config: *const FairConfig,
    ) -> bool;
    pub fn pl_steps_comes(
        woken: *const Task,
        turn: *const Turn,
        running: *const Task,
        current: *const Turn,
        config: *const FairConfig,
    ) -> u64;
    pub fn pl_steps_owes_nothing(
        woken: *const Task,
        turn: *const Turn,
        running: *const Task,
        current: *const Turn,
    ) -> bool;
    pub fn pl_steps_yield(task: *const Task, turn: *mut Turn);

    // place.h
    pub fn pl_place_passes_on(waker: *const FairCpu, sync: bool) -> bool;
    pub fn pl_place_lighter(cpu: *const FairCpu, other: *const FairCpu) -> bool;
    pub fn pl_place_idle(previous: u32, cpu: u32, same_cache: bool) -> u32;

    // baseline/cfs.h
    pub fn pl_cfs_born(task: *mut Task, cpu: u32, fair: *const FairCpu);
    pub fn pl_cfs_moved(task: *mut Task, from: *const FairCpu, to: *const FairCpu);
    pub fn pl_cfs_place(task: *mut Task, cpu: *const FairCpu, woken: bool, config: *const FairConfig);
    pub fn pl_cfs_picked(cpu: *mut FairCpu, vruntime: u64);
    pub fn pl_cfs_slice(cpu: *const FairCpu, weight: u64, config: *const FairConfig) -> u64;
    pub fn pl_cfs_ran(task: *mut Task, delta_ns: u64, config: *const FairConfig);
    pub fn pl_cfs_yield(task: *mut Task, others: bool, head_vruntime: u64, config: *const FairConfig);
    pub fn pl_cfs_preempts(woken: *const Task, running: *const Task, config: *const FairConfig) -> bool;

    // baseline/balance.h
    pub fn pl_newidle_init(newidle: *mut Newidle);
    pub fn pl_newidle_drawn(newidle: *mut Newidle, dice: u32) -> bool;
    pub fn pl_newidle_found(newidle: *mut Newidle, found: bool);
    pub fn pl_newidle_worthwhile(newidle: *const Newidle, avg_idle_ns: u64, spent_ns: u64) -> bool;
    pub fn pl_newidle_measured(newidle: *mut Newidle, cost_ns: u64);
    pub fn pl_newidle_decay(newidle: *mut Newidle, now_ns: u64);
    pub fn pl_newidle_hot(since_ran_ns: u64, hot_ns: u64) -> bool;
    pub fn pl_balance_imbalance(busiest: *const Pelt, mine: *const Pelt) -> u64;
    pub fn pl_balance_to_move(busiest: u32, mine: u32) -> u32;
    pub fn pl_balance_overloaded(nr_queued: u32, runnable: *const Pelt) -> bool;

    // baseline/recorded.h
    pub fn pl_recorded_lags(
        line: *mut Line,
        came: *mut Entity,
        beside: *mut Entity,
        owed_ns: i64,
        beside_ns: i64,
    );
    pub fn pl_recorded_owed(
        woken: *const Task,
        turn: *mut Turn,
        beside: *const Group,
        owed_ns: i64,
        beside_ns: i64,
    );

    // baseline/wake.h
    pub fn pl_wake_count(waker: *mut Waker, woken: u32, now_ns: u64);
    pub fn pl_wake_wide(waker: *const Waker, woken: *const Waker, cpus: u32) -> bool;
    pub fn pl_wake_affine(here: u64, there: u64, task: u64, waker: u64, sync: bool) -> bool;
    pub fn pl_wake_scan_proportional(cpus: u32, avg_idle_ns: u64, scan_cost_ns: u64) -> u32;
    pub fn pl_wake_scan_utilisation(cpus: u32, utilisation: u64) -> u32;
    pub fn pl_wake_scan_cost(average_ns: u64, cost_ns: u64, given_up: bool) -> u64;

    // headroom.h
    pub fn pl_headroom_clear(group: *mut Group);
    pub fn pl_headroom_mark(headroom: *mut Headroom, group: *mut Group);
    pub fn pl_headroom_is_side(headroom: *const Headroom, group: *const Group) -> bool;
    pub fn pl_headroom_side_changes(headroom: *const Headroom, group: *const Group) -> bool;
    pub fn pl_headroom_link(headroom: *const Headroom, group: *mut Group, side: *mut Group);
    pub fn pl_headroom_budget(
        used_ns: u64,
        idle_ns: u64,
        capacity_ns: u64,
        percent: u32,
        tolerance_ns: u64,
    ) -> u64;
    pub fn pl_headroom_window(
        headroom: *mut Headroom,
        side: *mut Group,
        used_ns: u64,
        idle_ns: u64,
        window_ns: u64,
        nr_cpus_online: u32,
        now_ns: u64,
        config: *const HeadroomConfig,
        bandwidth: *const BwConfig,
    ) -> u32;

    // lend.h
    pub fn pl_lend_quota(pool: *const Pool, balance: *const Balance) -> u64;
    pub fn pl_lend_share(budget_ns: u64, used_ns: u64, used_sum_ns: u64, nr_groups: u32) -> u64;
    pub fn pl_lend_least(budget_ns: *mut u64, used_sum_ns: *mut u64, used_ns: u64, least_ns: u64) -> bool;
}
