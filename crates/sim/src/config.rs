// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is simulated: a machine, groups, tasks, and what changes on the way. Plain data; nothing is read from outside.
use crate::behaviour::Behaviour;
use crate::topology::Topology;
use plimsoll_cpus::CpuSet;

pub use crate::error::ConfigError;
pub use crate::switches::{CgroupMode, Enforce, Fair, Policy, WakeSearch};

/// A group; 0 is the root, which is always there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupId(pub u32);

impl GroupId {
    /// The group that is always there, with every task below it.
    pub const ROOT: Self = Self(0);
}

/// A task; those of [`Config::tasks`] are numbered in order from 0, those spawned in the run follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskId(pub u32);

/// A channel (pipe, socket, queue) that tasks send to and receive from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChannelId(pub u32);

/// What tasks' results are added up under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkloadId(pub u32);

/// A histogram that behaviours record into, by [`crate::Context::record`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LatencyId(pub u32);

/// A sum that behaviours add to, by [`crate::Context::count`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CounterId(pub u32);

/// Everything a run depends on.
pub struct Config {
    /// What is simulated.
    pub machine: Machine,
    /// By which rules.
    pub policy: Policy,
    /// Group `i + 1`; see [`Config::add_group`].
    pub groups: Vec<GroupSpec>,
    /// Task `i`; see [`Config::add_task`].
    pub tasks: Vec<TaskSpec>,
    /// Channel `i`; see [`Config::add_channel`].
    pub channels: Vec<ChannelSpec>,
    /// Names of workloads; see [`Config::add_workload`].
    pub workloads: Vec<String>,
    /// Whose histograms, and their names; see [`Config::add_latency`].
    pub latencies: Vec<(WorkloadId, String)>,
    /// Whose counters, and their names; see [`Config::add_counter`].
    pub counters: Vec<(WorkloadId, String)>,
    /// In any order; those of one time happen in the order given.
    pub changes: Vec<Change>,
    /// Every random stream comes from this and a name.
    pub seed: u64,
    /// The run ends here at the latest.
    pub duration_ns: u64,
    /// Results count from here on; what happened before is left out.
    pub warmup_ns: u64,
    /// Whether the run ends when every task has exited, those in the background left out.
    pub stop_when_done: bool,
    /// Whether the invariants are checked at every event (slow). Debug builds always check, less often where the machine
    /// is large.
    pub check: bool,
}

impl Config {
    /// An empty machine, with the live scheduler's policy. `duration_ns`: 1 .. 2^51.
    pub fn new(machine: Machine, duration_ns: u64) -> Self {
        Self {
            machine,
            policy: Policy::default(),
            groups: Vec::new(),
            tasks: Vec::new(),
            channels: Vec::new(),
            workloads: Vec::new(),
            latencies: Vec::new(),
            counters: Vec::new(),
            changes: Vec::new(),
            seed: 1,
            duration_ns,
            warmup_ns: 0,
            stop_when_done: false,
            check: false,
        }
    }

    /// Adds a group below one that was added before, or below the root.
    pub fn add_group(&mut self, group: GroupSpec) -> GroupId {
        self.groups.push(group);
        GroupId(self.groups.len() as u32)
    }

    /// Adds a task that starts with the run, or at its `start_ns`.
    pub fn add_task(&mut self, task: TaskSpec) -> TaskId {
        self.tasks.push(task);
        TaskId(self.tasks.len() as u32 - 1)
    }

    /// A pipe: a sender is woken for each place that becomes free.
    pub fn add_channel(&mut self, capacity: u32) -> ChannelId {
        self.add_channel_with(capacity, capacity.saturating_sub(1))
    }

    /// A channel whose blocked senders are woken late, as sockets do it: see [`ChannelSpec::wake_level`].
    pub fn add_channel_with(&mut self, capacity: u32, wake_level: u32) -> ChannelId {
        self.add_channel_of(ChannelSpec {
            wake_level,
            ..ChannelSpec::new(capacity)
        })
    }

    /// Any channel.
    pub fn add_channel_of(&mut self, spec: ChannelSpec) -> ChannelId {
        self.channels.push(spec);
        ChannelId(self.channels.len() as u32 - 1)
    }

    /// A channel between threads that wake each other by futex.
    pub fn add_futex(&mut self, capacity: u32) -> ChannelId {
        self.add_channel_of(ChannelSpec {
            sync: false,
            ..ChannelSpec::new(capacity)
        })
    }

    /// Adds a name under which tasks' results are added up.
    pub fn add_workload(&mut self, name: impl Into<String>) -> WorkloadId {
        self.workloads.push(name.into());
        WorkloadId(self.workloads.len() as u32 - 1)
    }

    /// Adds a histogram for [`crate::Context::record`].
    pub fn add_latency(&mut self, workload: WorkloadId, name: impl Into<String>) -> LatencyId {
        self.latencies.push((workload, name.into()));
        LatencyId(self.latencies.len() as u32 - 1)
    }

    /// Adds a sum for [`crate::Context::count`].
    pub fn add_counter(&mut self, workload: WorkloadId, name: impl Into<String>) -> CounterId {
        self.counters.push((workload, name.into()));
        CounterId(self.counters.len() as u32 - 1)
    }
}

/// The hardware, and the kernel's clockwork on it.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Which CPUs there are.
    pub topology: Topology,
    /// Ticks per second on a busy CPU, 24 .. 10,000. An idle CPU has none.
    pub hz: u32,
    /// What CLOCK_MONOTONIC shows as the run begins: ticks and period boundaries are anchored in that clock.
    pub clock_start_ns: u64,
    /// Ticks are at clock = tick_phase_ns + k / hz.
    pub tick_phase_ns: u64,
    /// Each CPU's ticks are this much later than the CPU's before; 0: all at once.
    pub tick_stagger_ns: u64,
    /// What things cost.
    pub costs: Costs,
}

impl Machine {
    /// Default costs, 250 Hz, ticks at multiples of 4 ms.
    pub fn new(topology: Topology) -> Self {
        Self {
            topology,
            hz: 250,
            clock_start_ns: 0,
            tick_phase_ns: 0,
            tick_stagger_ns: 0,
            costs: Costs::default(),
        }
    }
}

/// A cost by how far apart two CPUs are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerDistance {
    /// Between hardware threads of one core.
    pub core_ns: u64,
    /// Within one last-level cache.
    pub llc_ns: u64,
    /// Within one socket.
    pub socket_ns: u64,
    /// From another socket.
    pub remote_ns: u64,
}

impl PerDistance {
    /// The same everywhere.
    pub const fn flat(ns: u64) -> Self {
        Self {
            core_ns: ns,
            llc_ns: ns,
            socket_ns: ns,
            remote_ns: ns,
        }
    }
}

/// A CPU that has been idle for at least `after_ns` takes `exit_ns` to come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleState {
    /// Idle for at least this long.
    pub after_ns: u64,
    /// Time until it runs something again.
    pub exit_ns: u64,
}

/// What things cost in time of the CPU that does them, unless said otherwise.
#[derive(Clone, Debug)]
pub struct Costs {
    /// From one task to another, or between a task and idle.
    pub context_switch_ns: u64,
    /// On top of it, from one process to another: page tables, and what they had in the TLB.
    pub address_space_ns: u64,
    /// Entering and leaving the kernel: added to every step but Compute.
    pub syscall_ns: u64,
    /// Sending or receiving one message, on top of the system call.
    pub channel_ns: u64,
    /// Receiving one, on top of that: the receiver fetches what the sender has written, and frees its buffer.
    pub receive_extra_ns: u64,
    /// Waking a task, to the waker; the search for a CPU is `search_cpu_ns` for each CPU looked at.
    pub wakeup_ns: u64,
    /// Sending an interrupt to another CPU, to the sender.
    pub ipi_send_ns: u64,
    /// From sending until the other CPU has taken it.
    pub ipi: PerDistance,
    /// One interrupt of a timer (tick, period, slack, enforcement) or of a message from another machine, to the CPU that
    /// takes it.
    pub timer_ns: u64,
    /// From the moment at which a limit is used up until the timer that enforces it has led to the charge. The task is
    /// charged for it.
    pub limit_late_ns: u64,
    /// Work that a task has to repeat in cold caches on the first run after a move; a move within
    /// `migration_hot_ns` of its last run costs this, a later one nothing.
    pub migration: PerDistance,
    /// See `migration`.
    pub migration_hot_ns: u64,
    /// By ascending `after_ns`; empty: coming back from idle is free.
    pub idle_states: Vec<IdleState>,
    /// On top of coming back from idle, for each CPU that is busy at the time: virtual CPUs that share one real one
    /// take turns.
    pub idle_exit_per_busy_ns: u64,
    /// Charged to the task that a CPU comes back from idle for, on top of its run time: the kernel's clock of it starts before the switch.
    pub idle_charged_ns: u64,
    /// Timers that are due at the same time are taken CPU by CPU: virtual CPUs that share one real one take turns.
    pub turns: bool,
    /// A virtual CPU that runs dry polls this long at most before its host takes it away (kvm's halt_poll_ns, grown and
    /// shrunk by how long it has been idle). Polling, it comes back without `idle_states`; taken away, it looks
    /// preempted, and the fair class does not count it as idle. 0: CPUs are real.
    pub halt_poll_ns: u64,
    /// Speed of a hardware thread whose sibling is busy, in percent of its speed alone.
    pub smt_percent: u32,
    /// Looking at one CPU in a search (wake-up placement, new-idle, stealing).
    pub search_cpu_ns: u64,
    /// Beginning a new-idle search of one level: locks, statistics.
    pub newidle_level_ns: u64,
    /// A CPU whose idle times are shorter than this on average does not begin a new-idle search, whatever its cost
    /// was measured to be (sched_migration_cost_ns); 0: only the measured cost counts.
    pub newidle_idle_ns: u64,
    /// Taking a task from another CPU's queue: both queues' locks.
    pub move_task_ns: u64,
    /// One periodic balance of one level.
    pub periodic_level_ns: u64,
    /// Fetching a cache line that another CPU has written.
    pub line: PerDistance,
    /// How long a group's pool lock is held.
    pub pool_lock_ns: u64,
    /// Whether lines shared by all CPUs serve one transfer at a time, others waiting in order; else each
    /// transfer costs `line` only.
    pub contention: bool,
}

impl Default for Costs {
    /// Of the order of a current x86 server. Machine models override them, each number with its source.
    fn default() -> Self {
        Self {
            context_switch_ns: 600,
            address_space_ns: 0,
            syscall_ns: 72,
            channel_ns: 500,
            receive_extra_ns: 0,
            wakeup_ns: 300,
            ipi_send_ns: 200,
            ipi: PerDistance {
                core_ns: 500,
                llc_ns: 800,
                socket_ns: 900,
                remote_ns: 1200,
            },
            timer_ns: 500,
            limit_late_ns: 0,
            migration: PerDistance {
                core_ns: 0,
                llc_ns: 2000,
                socket_ns: 8000,
                remote_ns: 15000,
            },
            migration_hot_ns: 500_000,
            idle_states: vec![
                IdleState {
                    after_ns: 0,
                    exit_ns: 500,
                },
                IdleState {
                    after_ns: 20_000,
                    exit_ns: 2_000,
                },
            ],
            idle_exit_per_busy_ns: 0,
            idle_charged_ns: 0,
            turns: false,
            halt_poll_ns: 0,
            smt_percent: 60,
            search_cpu_ns: 30,
            newidle_level_ns: 500,
            newidle_idle_ns: 0,
            move_task_ns: 300,
            periodic_level_ns: 1000,
            line: PerDistance {
                core_ns: 8,
                llc_ns: 40,
                socket_ns: 50,
                remote_ns: 118,
            },
            pool_lock_ns: 50,
            contention: true,
        }
    }
}

impl Costs {
    /// A machine on which only the tasks' own work takes time.
    pub fn free() -> Self {
        Self {
            context_switch_ns: 0,
            address_space_ns: 0,
            syscall_ns: 0,
            channel_ns: 0,
            receive_extra_ns: 0,
            wakeup_ns: 0,
            ipi_send_ns: 0,
            ipi: PerDistance::flat(0),
            timer_ns: 0,
            limit_late_ns: 0,
            migration: PerDistance::flat(0),
            migration_hot_ns: 0,
            idle_states: Vec::new(),
            idle_exit_per_busy_ns: 0,
            idle_charged_ns: 0,
            turns: false,
            halt_poll_ns: 0,
            smt_percent: 100,
            search_cpu_ns: 0,
            newidle_level_ns: 0,
            newidle_idle_ns: 0,
            move_task_ns: 0,
            periodic_level_ns: 0,
            line: PerDistance::flat(0),
            pool_lock_ns: 0,
            contention: false,
        }
    }
}

/// A group's CPU limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Run time added per period; `None`: no limit. 1 ms .. (2^44 - 1) us.
    pub quota_ns: Option<u64>,
    /// 1 ms .. 1 s.
    pub period_ns: u64,
    /// Run time that may be carried over.
    pub burst_ns: u64,
    /// Share of the burst granted when the limits are set, 0 .. 100.
    pub onset_percent: u32,
}

impl Limits {
    /// No limit.
    pub const UNLIMITED: Self = Self {
        quota_ns: None,
        period_ns: 100_000_000,
        burst_ns: 0,
        onset_percent: 0,
    };

    /// A limit without burst.
    pub const fn quota(quota_ns: u64, period_ns: u64) -> Self {
        Self {
            quota_ns: Some(quota_ns),
            period_ns,
            burst_ns: 0,
            onset_percent: 0,
        }
    }
}

/// A group and its knobs as the run begins.
#[derive(Clone, Debug)]
pub struct GroupSpec {
    /// Full path, for results: "/web/api".
    pub path: String,
    /// The root, or a group added before.
    pub parent: GroupId,
    /// cpu.weight, 1 .. 10,000.
    pub cpu_weight: u32,
    /// cpu.idle
    pub idle: bool,
    /// Its CPU limit.
    pub limits: Limits,
    /// Period boundaries are at clock = phase_ns + k * period.
    pub phase_ns: u64,
    /// cpu.headroom, 0 .. 100; above 0 makes this a main group.
    pub headroom_percent: u32,
    /// `None`: as the parent.
    pub cpuset: Option<CpuSet>,
}

/// The CPUs that a group may run on, of those in `all`, from the parent and the cpuset of each group at an index (the
/// root has none). As in the kernel, a cpuset that the groups above leave nothing of does not count.
pub fn cpus_of<'c>(
    group: GroupId,
    parent: &impl Fn(usize) -> GroupId,
    own: &impl Fn(usize) -> Option<&'c CpuSet>,
    all: &CpuSet,
) -> CpuSet {
    let Some(at) = group.0.checked_sub(1) else {
        return all.clone();
    };
    let at = at as usize;
    let above = cpus_of(parent(at), parent, own, all);
    let left = own(at).map(|set| set.intersection(&above));
    left.filter(|set| !set.is_empty()).unwrap_or(above)
}

impl GroupSpec {
    /// A group of weight 100 without a limit. `path` is the full one.
    pub fn new(path: impl Into<String>, parent: GroupId) -> Self {
        Self {
            path: path.into(),
            parent,
            cpu_weight: 100,
            idle: false,
            limits: Limits::UNLIMITED,
            phase_ns: 0,
            headroom_percent: 0,
            cpuset: None,
        }
    }
}

/// A task.
pub struct TaskSpec {
    /// The group it starts in.
    pub group: GroupId,
    /// What its results are added up under.
    pub workload: WorkloadId,
    /// Names the task's random stream: two tasks of one name draw the same numbers.
    pub name: String,
    /// -20 .. 19
    pub nice: i32,
    /// SCHED_IDLE
    pub idle: bool,
    /// `None`: all of its group's CPUs.
    pub affinity: Option<CpuSet>,
    /// When it comes into being.
    pub start_ns: u64,
    /// Where it comes into being; `None`: on the least busy CPU.
    pub start_cpu: Option<u32>,
    /// A waker may draw it to its own CPU. The kernel's does not where many wake one (wake_wide).
    pub follows_waker: bool,
    /// Tasks of one address space share page tables; 0: none of its own, and a switch to the task costs nothing. Going to another one costs
    /// [`Costs::address_space_ns`].
    pub address_space: u32,
    /// It runs on another machine, a client across a network: its steps take time but none of our CPUs. What it sends
    /// interrupts one of them ([`Costs::timer_ns`]), which then is the waker.
    pub external: bool,
    /// [`Config::stop_when_done`] does not wait for it.
    pub background: bool,
    /// What it does.
    pub behaviour: Box<dyn Behaviour>,
}

impl TaskSpec {
    /// A task of nice 0 that starts with the run and may run on all of its group's CPUs.
    pub fn new(
        group: GroupId,
        workload: WorkloadId,
        name: impl Into<String>,
        behaviour: impl Behaviour + 'static,
    ) -> Self {
        Self {
            group,
            workload,
            name: name.into(),
            nice: 0,
            idle: false,
            affinity: None,
            start_ns: 0,
            start_cpu: None,
            follows_waker: true,
            address_space: 0,
            external: false,
            background: false,
            behaviour: Box::new(behaviour),
        }
    }
}

/// A first-in-first-out queue of 64-bit values between tasks.
#[derive(Clone, Copy, Debug)]
pub struct ChannelSpec {
    /// Values it holds before senders block; at least 1, `u32::MAX`: never.
    pub capacity: u32,
    /// Senders that found it full are woken, all of them, when it holds no more than this; below `capacity`.
    /// `capacity - 1` wakes one sender for each place that becomes free.
    pub wake_level: u32,
    /// Waking through it says that the waker is about to wait itself, as sockets and pipes do; a futex does not.
    pub sync: bool,
    /// Its messages are packets of the loopback network: each counts a reference to the one route that all of them take,
    /// a line that every CPU writes, and is on its way when that is done.
    pub loopback: bool,
    /// Cache lines that a value is made of: the receiver fetches them from the CPU where it was sent. 0: that is part
    /// of what receiving costs.
    pub lines: u8,
}

impl ChannelSpec {
    /// Blocked senders are woken as soon as there is room.
    pub const fn new(capacity: u32) -> Self {
        Self {
            capacity,
            wake_level: capacity.saturating_sub(1),
            sync: true,
            loopback: false,
            lines: 0,
        }
    }
}

/// Something that an administrator does at `at_ns`.
#[derive(Clone, Debug)]
pub struct Change {
    /// Time of the run.
    pub at_ns: u64,
    /// What is done.
    pub what: ChangeKind,
}

/// What it is. Changes of a task are changes of what it has forked ([`crate::Context::fork`]), too.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // the fields are what their types say
pub enum ChangeKind {
    /// A group's quota, period, burst.
    Limits { group: GroupId, limits: Limits },
    /// cpu.weight, 1 .. 10,000.
    CpuWeight { group: GroupId, cpu_weight: u32 },
    /// cpu.idle
    GroupIdle { group: GroupId, idle: bool },
    /// cpu.headroom, 0 .. 100.
    Headroom { group: GroupId, percent: u32 },
    /// `None`: as the parent.
    Cpuset { group: GroupId, cpuset: Option<CpuSet> },
    /// `None`: all of its group's CPUs.
    Affinity { task: TaskId, affinity: Option<CpuSet> },
    /// -20 .. 19
    Nice { task: TaskId, nice: i32 },
    /// To another group.
    MoveTask { task: TaskId, group: GroupId },
    /// What is there goes elsewhere; the last CPU stays.
    CpuOffline { cpu: u32 },
    /// It is used again.
    CpuOnline { cpu: u32 },
}
