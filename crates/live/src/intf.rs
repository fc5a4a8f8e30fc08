// SPDX-License-Identifier: Apache-2.0 OR MIT
//! bpf/intf.h in Rust. The sizes are compared with the BPF program's own as it is loaded.
use plimsoll_policy_sys as pl;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

#[repr(C, align(64))]
pub struct Task {
    pub t: pl::Task,
    pub charged_at_ns: u64,
    pub charged_exec_ns: u64,
    pub waiting_since_ns: u64,
    pub starved_since_ns: u64,
    pub picked_exec_ns: u64,
    pub group: *const Group,
    pub grant_ns: u64,
    pub border_at_ns: u64,
    pub waits_exec_ns: u64,
    pub border_asked: u32,
    pub runnable: u32,
    pub parked: u32,
    pub pid: i32,
    pub next_free: u32,
    pub yielded: u32,
    pub turn: pl::Turn,
    pub ran_ns: i64,
}

#[repr(C)]
pub struct Group {
    pub g: pl::Group,
    pub slot: u32,
    pub refs: u32,
    pub alive: u32,
    pub nr_parked: u32,
    pub next_free: u32,
    pub nr_children: u32,
    pub owes_timer: [u32; 2],
    pub limits_written: u32,
    pub nr_below: u32,
    pub cpu_burst_us: u64,
    pub burst_us: u64,
    pub burst_set: u32,
    pub onset_percent: u32,
    pub quota_us: u64,
    pub period_us: u64,
    pub name: [u8; 64],
}

impl Group {
    /// Whether it has these knobs.
    pub fn has(&self, knobs: &Knobs) -> bool {
        self.burst_set == knobs.burst_set
            && self.burst_us == knobs.burst_us
            && self.onset_percent == knobs.onset_percent
            && self.g.headroom_percent == knobs.headroom_percent
            && self.g.headroom_tolerance_ns == knobs.tolerance_us * 1000
    }

    /// The name of the cgroup's directory, which is any bytes, cut off at what fits.
    pub fn name(&self) -> OsString {
        OsString::from_vec(self.name.iter().copied().take_while(|&byte| byte != 0).collect())
    }
}

#[repr(C, align(64))]
pub struct Cpu {
    pub fair: pl::FairCpu,
    pub running: *const Task,
    pub lock: u32,
    pub other_class: u32,
    pub online: u32,
    pub next_online: u32,
    pub is_idle: u32,
    pub gives_way: u32,
    pub comes: u64,
    pub steal: pl::Steal,
    pub touch: pl::Touch,
    pub idle_since_ns: u64,
    pub idle_ns: u64,
    pub timer_at_ns: u64,
    pub stop_at_ns: u64,
    pub interrupted: *const Task,
    pub turn_ends_ns: u64,
    pub check_at_ns: u64,
    pub side_used_ns: u64,
    pub nr_switches: u64,
    pub nr_wakeups: u64,
    pub nr_preempts: u64,
    pub nr_pulls: u64,
    pub nr_parks: u64,
    pub placed: [u64; pl::PLACES],
    pub scan: u32,
    pub pull_from: u32,
    pub offer: u32,
    pub passes_to: i32,
    pub watch_at_ns: u64,
    pub head_u: u64,
    pub took: u32,
    pub has_own: u32,
    pub own_u: u64,
    pub part: pl::Part,
}

#[repr(C, align(64))]
pub struct Gather {
    pub at_ns: u64,
    pub busy: u32,
    pub nr_domains: u32,
    pub all: pl::Sum,
}

#[repr(C)]
pub struct State {
    pub config: pl::Config,
    pub steal: pl::StealConfig,
    pub headroom_config: pl::HeadroomConfig,
    pub cpus: *const Cpu,
    pub groups: *const *const Group,
    pub side: *const Group,
    pub chunks: *const u8,
    pub overloaded: *const u8,
    pub merged: *const Merged,
    pub nr_cpus: u32,
    pub max_groups: u32,
    pub domains: *const pl::Domain,
    pub gather: Gather,
    pub free_tasks: i64,
    pub free_groups: i64,
    pub apart: [u64; 6],
    pub headroom: pl::Headroom,
    pub marked: pl::Headroom,
    pub window_at_ns: u64,
    pub window_idle_ns: u64,
    pub window_used_ns: u64,
    pub sum_idle_ns: u64,
    pub sum_used_ns: u64,
    pub nr_online: u32,
    pub nr_slots: u32,
    pub nr_groups: u32,
    pub max_depth: u32,
    pub window_active: u32,
    pub timers_owed: u32,
    pub timers_refused: u32,
    pub timers_overdue: u32,
    pub groups_changed: u64,
    pub relinking: u32,
    pub relink_owed: u32,
    pub nr_relinks: u32,
    pub nr_links: u32,
    pub nr_linked: u32,
    pub lock_lost: u32,
    pub nr_merges: u32,
    pub nr_merged: u32,
    pub nr_give_way: u32,
}

/// What a group has per CPU besides, to take turns by lag and deadline.
pub const NODE_BYTES: u64 = size_of::<pl::Node>() as u64;

/// How many merges are kept to be told of.
pub const MERGES_KEPT: u32 = 32;

/// A cgroup that is scheduled as part of one above it: bpf/merge.h.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Merged {
    pub id: u64,
    pub into_id: u64,
    pub quota_us: u64,
    pub period_us: u64,
    pub level: u32,
    pub why: u32,
    pub name: [u8; 64],
}

/// In the order of `sizeof_state`.
pub fn sizes() -> [u32; 4] {
    [
        size_of::<State>(),
        size_of::<Cpu>(),
        size_of::<Group>(),
        size_of::<Task>(),
    ]
    .map(|size| size as u32)
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Settings {
    pub config: pl::Config,
    pub steal: pl::StealConfig,
    pub headroom: pl::HeadroomConfig,
    pub min_run_ns: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Knobs {
    pub cgroup_id: u64,
    pub burst_us: u64,
    pub tolerance_us: u64,
    pub burst_set: u32,
    pub onset_percent: u32,
    pub headroom_percent: u32,
    pub result: i32,
}
