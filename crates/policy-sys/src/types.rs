// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The structs of policy/*.h, field by field. tests/all/layout.rs compares sizes and offsets with the C compiler's;
//! what the fields mean is said in the headers.

// bandwidth.h

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BwConfig {
    pub slice_ns: u64,
    pub expire: u32,
    pub burst_off: u32,
    pub mainline: u32,
    pub reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BwLimits {
    pub quota_ns: u64,
    pub period_ns: u64,
    pub burst_ns: u64,
    pub onset_percent: u32,
    pub reserved: u32,
}

#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct Balance {
    pub remaining_ns: i64,
    pub throttled_at_ns: u64,
    pub generation: u32,
    pub throttled: u32,
    pub waits: u32,
    pub cpu: u32,
    pub run_delay_ns: u64,
    pub nr_runs: u64,
    pub nr_grants: u64,
    pub nr_steals: u64,
}

#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct Pool {
    pub quota_ns: u64,
    pub period_ns: u64,
    pub burst_ns: u64,
    pub buffer_ns: u64,
    pub balances: *mut Balance,
    pub ring: *mut u32,
    pub ring_mask: u32,
    pub nr_cpus: u32,
    pub to_line: u64,
    pub runtime_ns: i64,
    pub next_ns: u64,
    pub snapshot_ns: i64,
    pub generation: u64,
    pub head: u32,
    pub tail: u32,
    pub timer_active: u32,
    pub arm_period: u32,
    pub arm_slack: u32,
    pub slack_active: u32,
    pub idle: u32,
    pub distributing: u32,
    pub nr_periods: u64,
    pub nr_throttled: u64,
    pub throttled_ns: i64,
    pub nr_bursts: u64,
    pub burst_ns_used: u64,
    pub owed: u32,
    pub reserved: u32,
}

// pelt.h

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Pelt {
    pub last_ns: u64,
    pub sum: u64,
    pub avg: u64,
    pub segment: u32,
    pub reserved: u32,
}

// load.h

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LoadConfig {
    pub publish_ns: u64,
}

#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct GroupLoad {
    pub load_avg: i64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub pelt: Pelt,
    pub weight: u64,
    pub contribution: i64,
    pub published_at_ns: u64,
}

// fair.h

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FairConfig {
    pub slice_ns: u64,
    pub latency_ns: u64,
    pub sleeper_credit_ns: u64,
    pub wakeup_gran_ns: u64,
    pub wait_max_ns: u64,
    pub pull_ns: u64,
    pub lag_max_ns: u64,
    pub as_kernel: u64,
    pub doubled_ns: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FairCpu {
    pub weight_sum: u64,
    pub clock: u64,
    pub nr_queued: u32,
    pub reserved: u32,
}

// sparsemask.h

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SparsemaskChunk {
    pub set: [u8; 8],
    pub unused: [u8; 56],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Sparsemask {
    pub chunks: *mut SparsemaskChunk,
    pub elements: u32,
    pub reserved: u32,
}

// steal.h

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StealConfig {
    pub enabled: u32,
    pub node_limit: u32,
    pub cost_ns: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Steal {
    pub avg_idle_ns: u64,
    pub nr_steals: u64,
    pub nr_searches: u64,
    pub find_ns: u64,
}

// group.h

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub bandwidth: BwConfig,
    pub side: BwConfig,
    pub load: LoadConfig,
    pub fair: FairConfig,
    pub refresh_ns: u64,
}

#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    pub load: Load,
    pub share: u64,
    pub effective: u64,
    pub divisor: u64,
    pub refreshed_ns: u64,
    pub vruntime: u64,
    pub nr_runnable: u32,
    pub look_at: u32,
    pub rota: Rota,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Group {
    pub pool: Pool,
    pub load: GroupLoad,
    pub crowd: GroupLoad,
    pub weight: u64,
    pub parent: *mut Group,
    pub charged: *mut Group,
    pub side: *mut Group,
    pub queues: *mut Queue,
    pub crowds: *mut Load,
    pub nodes: *mut Node,
    pub id: u64,
    pub headroom_tolerance_ns: u64,
    pub idle: u32,
    pub depth: u32,
    pub is_side: u32,
    pub headroom_percent: u32,
    pub holds_main: u32,
    pub under_main: u32,
    pub under_idle: u32,
    pub cpus: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Touch {
    pub load_reads: u32,
    pub load_writes: u32,
    pub pool_locks: u32,
    pub reserved: u32,
}

// task.h

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Task {
    pub group: *mut Group,
    pub weight: u64,
    pub effective: u64,
    pub vruntime: u64,
    pub cpu: u32,
    pub counted: u32,
    pub idle: u32,
    pub came: u32,
    pub load: Pelt,
}

// entity.h

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Entity {
    pub v: u64,
    pub deadline: u64,
    pub least_v: u64,
    pub least_ns: u64,
    pub below: [*mut Entity; 2],
    pub above: *mut Entity,
    pub rank: u32,
    pub on: u32,
    pub slice_ns: u64,
    pub weight: u64,
    pub number: u64,
    pub picked_v: u64,
    pub id: u64,
    pub line: *mut Line,
    pub lag: i64,
    pub paid_v: u64,
    pub protected_v: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Line {
    pub v0: u64,
    pub sum_wv: i64,
    pub sum_w: u64,
    pub joined: u64,
    pub top: *mut Entity,
    pub picked: *mut Entity,
    pub n: u32,
    pub reserved: u32,
}

// domain.h

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Sum {
    pub u0: u64,
    pub sum_wu: i64,
    pub sum_w: u64,
    pub n: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Domain {
    pub mean: u64,
    pub offset: u64,
    pub sum: Sum,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub sum: Sum,
    pub domain: *mut Domain,
    pub shift: u64,
    pub bound_ns: u64,
}

// steps.h

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Pull {
    pub from_part: *const Part,
    pub to_part: *const Part,
    pub from: *const FairCpu,
    pub to: *const FairCpu,
}

// turn.h; the rota's ends: group.h

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Rota {
    pub first: *mut Turn,
    pub last: *mut Turn,
    pub late: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Node {
    pub entity: Entity,
    pub line: Line,
    pub weighed_ns: u64,
}

#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    pub entity: Entity,
    pub u: u64,
    pub domain: *mut Domain,
    pub shift: u64,
    pub domain_w: u64,
    pub from: *mut Node,
    pub behind: i64,
    pub pinned: u32,
    pub bound: u32,
    pub used_ns: u64,
    pub usual_ns: u64,
    pub told_ns: u64,
    pub above_ns: u64,
    pub since_ns: u64,
    pub rota: *mut Rota,
    pub before: *mut Turn,
    pub after: *mut Turn,
}

// baseline/balance.h

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Newidle {
    pub max_cost_ns: u64,
    pub decayed_ns: u64,
    pub calls: u32,
    pub finds: u32,
    pub ratio: u32,
    pub reserved: u32,
}

// baseline/wake.h

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Waker {
    pub flips_from_ns: u64,
    pub flips: u32,
    pub last_woken: u32,
}

// headroom.h

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct HeadroomConfig {
    pub window_ns: u64,
    pub tolerance_ns: u64,
    pub steps: u32,
    pub reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Headroom {
    pub budget_ns: u64,
    pub used_ns: u64,
    pub idle_ns: u64,
    pub nr_windows: u64,
    pub tolerance_ns: u64,
    pub percent: u32,
    pub reserved: u32,
}

/// Calls `$m!(c_name, RustType, field, ...)` for every struct: the layout test walks it.
#[macro_export]
macro_rules! for_each_struct {
    ($m:ident) => {
        $m!(
            pl_bw_config,
            BwConfig,
            slice_ns,
            expire,
            burst_off,
            mainline,
            reserved
        );
        $m!(
            pl_bw_limits,
            BwLimits,
            quota_ns,
            period_ns,
            burst_ns,
            onset_percent,
            reserved
        );
        $m!(
            pl_balance,
            Balance,
            remaining_ns,
            throttled_at_ns,
            generation,
            throttled,
            waits,
            cpu,
            run_delay_ns,
            nr_runs,
            nr_grants,
            nr_steals
        );
        $m!(
            pl_pool,
            Pool,
            quota_ns,
            period_ns,
            burst_ns,
            buffer_ns,
            balances,
            ring,
            ring_mask,
            nr_cpus,
            to_line,
            runtime_ns,
            next_ns,
            snapshot_ns,
            generation,
            head,
            tail,
            timer_active,
            arm_period,
            arm_slack,
            slack_active,
            idle,
            distributing,
            nr_periods,
            nr_throttled,
            throttled_ns,
            nr_bursts,
            burst_ns_used,
            owed,
            reserved
        );
        $m!(pl_pelt, Pelt, last_ns, sum, avg, segment, reserved);
        $m!(pl_load_config, LoadConfig, publish_ns);
        $m!(pl_group_load, GroupLoad, load_avg);
        $m!(pl_load, Load, pelt, weight, contribution, published_at_ns);
        $m!(
            pl_fair_config,
            FairConfig,
            slice_ns,
            latency_ns,
            sleeper_credit_ns,
            wakeup_gran_ns,
            wait_max_ns,
            pull_ns,
            lag_max_ns,
            as_kernel,
            doubled_ns
        );
        $m!(pl_fair_cpu, FairCpu, weight_sum, clock, nr_queued, reserved);
        $m!(pl_sparsemask_chunk, SparsemaskChunk, set, unused);
        $m!(pl_sparsemask, Sparsemask, chunks, elements, reserved);
        $m!(pl_steal_config, StealConfig, enabled, node_limit, cost_ns);
        $m!(
            pl_steal,
            Steal,
            avg_idle_ns,
            nr_steals,
            nr_searches,
            find_ns
        );
        $m!(pl_config, Config, bandwidth, side, load, fair, refresh_ns);
        $m!(
            pl_queue,
            Queue,
            load,
            share,
            effective,
            divisor,
            refreshed_ns,
            vruntime,
            nr_runnable,
            look_at,
            rota
        );
        $m!(
            pl_group,
            Group,
            pool,
            load,
            crowd,
            weight,
            parent,
            charged,
            side,
            queues,
            crowds,
            nodes,
            id,
            headroom_tolerance_ns,
            idle,
            depth,
            is_side,
            headroom_percent,
            holds_main,
            under_main,
            under_idle,
            cpus
        );
        $m!(pl_task, Task, group, weight, effective, vruntime, cpu, counted, idle, came, load);
        $m!(
            pl_touch,
            Touch,
            load_reads,
            load_writes,
            pool_locks,
            reserved
        );
        $m!(
            pl_entity,
            Entity,
            v,
            deadline,
            least_v,
            least_ns,
            below,
            above,
            rank,
            on,
            slice_ns,
            weight,
            number,
            picked_v,
            id,
            line,
            lag,
            paid_v,
            protected_v
        );
        $m!(pl_line, Line, v0, sum_wv, sum_w, joined, top, picked, n, reserved);
        $m!(pl_sum, Sum, u0, sum_wu, sum_w, n);
        $m!(pl_domain, Domain, mean, offset, sum);
        $m!(pl_part, Part, sum, domain, shift, bound_ns);
        $m!(pl_pull, Pull, from_part, to_part, from, to);
        $m!(pl_rota, Rota, first, last, late);
        $m!(pl_node, Node, entity, line, weighed_ns);
        $m!(
            pl_turn, Turn, entity, u, domain, shift, domain_w, from, behind, pinned, bound, used_ns,
            usual_ns, told_ns, above_ns, since_ns, rota, before, after
        );
        $m!(
            pl_newidle,
            Newidle,
            max_cost_ns,
            decayed_ns,
            calls,
            finds,
            ratio,
            reserved
        );
        $m!(pl_waker, Waker, flips_from_ns, flips, last_woken);
        $m!(
            pl_headroom_config,
            HeadroomConfig,
            window_ns,
            tolerance_ns,
            steps,
            reserved
        );
        $m!(
            pl_headroom,
            Headroom,
            budget_ns,
            used_ns,
            idle_ns,
            nr_windows,
            tolerance_ns,
            percent,
            reserved
        );
    };
}
