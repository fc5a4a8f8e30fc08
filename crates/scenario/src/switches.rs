// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `[switches]`: which of the published systems are on, and how the baseline around them behaves.
use plimsoll_sim::{CgroupMode, Enforce, Fair, Policy, WakeSearch};
use schemars::JsonSchema;
use serde::Deserialize;

/// Switches of the scheduling policy. Every one has the default of the live scheduler.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SwitchesTable {
    /// System 1: run time that a CPU takes from its group's pool at a time, in microseconds. Default 5000.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub slice_us: Option<u64>,
    /// System 1: true: slices expire with the period, as they did before. Default false.
    pub expire: Option<bool>,
    /// System 2: the global switch; false: no group may use carried time, whatever its burst. Default true.
    pub burst: Option<bool>,
    /// System 2: whose rules of burst hold. Default "published".
    pub burst_semantics: Option<BurstSemantics>,
    /// System 3: a CPU that runs dry takes a task from an overloaded one of its cache. Default true.
    pub steal: Option<bool>,
    /// System 3: no stealing on machines with more NUMA nodes than this. Default 1024; the published series had 2.
    #[schemars(range(min = 0, max = 4096))]
    pub steal_node_limit: Option<u32>,
    /// System 3: a CPU whose idle times are shorter on average does not look for work, in microseconds. Default 10.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub steal_cost_us: Option<u64>,
    /// System 4: least time between two writes of a queue to its group's load, in microseconds; 0: at every change, as
    /// before. Default 1000.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub load_publish_us: Option<u64>,
    /// System 4: least time between two computations of a queue's share, in microseconds; 0: at every change, as before.
    /// Default 1000.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub load_refresh_us: Option<u64>,
    /// System 5: how often the side's budget is set, in milliseconds. Default 100.
    #[schemars(range(min = 10, max = 1000))]
    pub headroom_window_ms: Option<u64>,
    /// System 5: what the side gets in every window, however busy main is, in microseconds. Default 1000.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub headroom_tolerance_us: Option<u64>,
    /// System 5: parts of a window in which the budget is handed out. Default 20.
    #[schemars(range(min = 1, max = 100))]
    pub headroom_steps: Option<u32>,
    /// When a running task is stopped whose group has used up its run time. Default "timer".
    pub enforce: Option<EnforceChoice>,
    /// Baseline: a CPU that runs dry searches other queues, domain by domain. Default: true where a kernel is named, as the
    /// kernel does it; the live scheduler does without.
    pub newidle: Option<bool>,
    /// Baseline: queue lengths are evened out from ticks. Default: as newidle.
    pub periodic: Option<bool>,
    /// Baseline: a waking task goes to an idle CPU of the cache, if there is one. Default true.
    pub wake_idle: Option<bool>,
    /// Baseline: at most this many CPUs are looked at for an idle one; 0: all of the cache. Default 0.
    #[schemars(range(min = 0, max = 8192))]
    pub wake_search_cpus: Option<u32>,
    /// Baseline: a waking task may be drawn to its waker's cache. Default true.
    pub wake_affine: Option<bool>,
    /// Baseline: whose rule of placing a waking task. Default: the kernel's, if the scenario names one; else "live".
    pub wake_search: Option<WakeSearchChoice>,
    /// Fairness: how long a task runs before the next is considered, in microseconds. Default 3000.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub run_slice_us: Option<u64>,
    /// Fairness "cfs": a queue's tasks share this, each not below run_slice_us, in microseconds; 0: slices are constant.
    /// Default 0.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub run_latency_us: Option<u64>,
    /// Fairness "cfs": how far before its queue's clock a woken task may be placed, in microseconds. Default 3000.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub sleeper_credit_us: Option<u64>,
    /// Fairness "cfs": a woken task preempts when it is at least this far ahead, in microseconds. Default 4000.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub wakeup_granularity_us: Option<u64>,
    /// Fairness: a task that another CPU's are ahead of by more of its own service is moved there, in microseconds; 0: never.
    /// Default 10000; 0 where a kernel is named, which does not compare its CPUs.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub pull_us: Option<u64>,
    /// Fairness: by which rules tasks take turns. Default: "eevdf"; "cfs" if the scenario names a kernel, as more measured runs
    /// come out right that way, those of kernels since 6.6 included.
    pub fair: Option<FairChoice>,
    /// Fairness: what a group's weight is for, by the names of the kernel's cgroup_mode. Default: the kernel's, if the
    /// scenario names one ("concur" from 7.3 on); else "smp".
    pub cgroup_mode: Option<CgroupModeChoice>,
}

/// What a group's weight is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CgroupModeChoice {
    /// All of the group, however many tasks it runs: kernels before 7.3, and the live scheduler.
    Smp,
    /// Each CPU that the group keeps busy: it weighs cpu.weight times the smaller of its runnable tasks and its CPUs.
    Concur,
}

impl CgroupModeChoice {
    pub(crate) fn mode(self) -> CgroupMode {
        match self {
            CgroupModeChoice::Smp => CgroupMode::Smp,
            CgroupModeChoice::Concur => CgroupMode::Concur,
        }
    }
}

/// By which rules tasks take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FairChoice {
    /// Earliest eligible virtual deadline first, with conserved lag, level by level: the live scheduler, and kernels since 6.6.
    Eevdf,
    /// In order of vruntime, as kernels before 6.6.
    Cfs,
}

/// Whose rules of burst hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BurstSemantics {
    /// The published series: burst may exceed the quota, a sleep earns every period that it lasted.
    Published,
    /// What mainline Linux took: burst up to the quota, one quota for each refill.
    Mainline,
}

/// When the engine looks whether a running task must stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EnforceChoice {
    /// At ticks and when tasks come and go, as the kernel's fair class does.
    Tick,
    /// By a timer armed for the moment the run time ends, as the live scheduler does.
    Timer,
}

/// How a waking task's CPU is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WakeSearchChoice {
    /// As the live scheduler: a waker that is about to wait and has its CPU to itself passes it on; else an idle CPU.
    Live,
    /// An idle CPU anywhere in the cache of the waker or of the previous CPU, by their queues.
    All,
    /// As the fair class before 6.0: by average idle time. Searches overlap: two wakers may find the same CPU idle.
    Proportional,
    /// As the fair class from 6.0 on: by how busy the cache is. Searches overlap.
    Utilisation,
}

impl WakeSearchChoice {
    pub(crate) fn search(self) -> WakeSearch {
        match self {
            WakeSearchChoice::Live => WakeSearch::Live,
            WakeSearchChoice::All => WakeSearch::All,
            WakeSearchChoice::Proportional => WakeSearch::Proportional,
            WakeSearchChoice::Utilisation => WakeSearch::Utilisation,
        }
    }
}

impl SwitchesTable {
    /// A policy with these switches set. Ranges have been checked against the schema.
    pub fn policy(&self, mut policy: Policy) -> Policy {
        fn us(given: Option<u64>, into: &mut u64) {
            *into = given.map_or(*into, |us| us * 1000);
        }
        fn set<T: Copy>(given: Option<T>, into: &mut T) {
            *into = given.unwrap_or(*into);
        }
        let core = &mut policy.core;
        us(self.slice_us, &mut core.bandwidth.slice_ns);
        set(self.expire.map(u32::from), &mut core.bandwidth.expire);
        set(self.burst.map(|on| u32::from(!on)), &mut core.bandwidth.burst_off);
        set(
            self.burst_semantics
                .map(|whose| u32::from(whose == BurstSemantics::Mainline)),
            &mut core.bandwidth.mainline,
        );
        us(self.load_publish_us, &mut core.load.publish_ns);
        us(self.load_refresh_us, &mut core.refresh_ns);
        us(self.run_slice_us, &mut core.fair.slice_ns);
        us(self.run_latency_us, &mut core.fair.latency_ns);
        us(self.sleeper_credit_us, &mut core.fair.sleeper_credit_ns);
        us(self.wakeup_granularity_us, &mut core.fair.wakeup_gran_ns);
        us(self.pull_us, &mut core.fair.pull_ns);
        set(self.steal.map(u32::from), &mut policy.steal.enabled);
        set(self.steal_node_limit, &mut policy.steal.node_limit);
        us(self.steal_cost_us, &mut policy.steal.cost_ns);
        us(
            self.headroom_window_ms.map(|ms| ms * 1000),
            &mut policy.headroom.window_ns,
        );
        us(self.headroom_tolerance_us, &mut policy.headroom.tolerance_ns);
        set(self.headroom_steps, &mut policy.headroom.steps);
        if let Some(enforce) = self.enforce {
            policy.enforce = match enforce {
                EnforceChoice::Tick => Enforce::Tick,
                EnforceChoice::Timer => Enforce::Timer,
            };
        }
        if let Some(fair) = self.fair {
            policy.fair = match fair {
                FairChoice::Eevdf => Fair::Eevdf,
                FairChoice::Cfs => Fair::Cfs,
            };
        }
        set(
            self.cgroup_mode.map(CgroupModeChoice::mode),
            &mut policy.cgroup_mode,
        );
        set(self.newidle, &mut policy.newidle);
        set(self.periodic, &mut policy.periodic);
        set(self.wake_idle, &mut policy.wake_idle);
        set(self.wake_search_cpus, &mut policy.wake_search_cpus);
        set(self.wake_affine, &mut policy.wake_affine);
        set(
            self.wake_search.map(WakeSearchChoice::search),
            &mut policy.wake_search,
        );
        policy
    }

    /// Whether burst follows mainline's rules.
    pub fn mainline(&self) -> bool {
        self.burst_semantics == Some(BurstSemantics::Mainline)
    }
}
