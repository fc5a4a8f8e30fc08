// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which of the policy's systems are on, and which baseline surrounds them.
use plimsoll_policy_sys as pl;

/// When the engine looks whether a running task must stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enforce {
    /// At ticks, at context switches and when tasks come and go: the kernel's fair class.
    Tick,
    /// By a timer armed for the moment the run time ends: the live scheduler.
    Timer,
}

/// The policy's switches, and which baseline surrounds it.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Limits, load and turns, as C has them.
    pub core: pl::Config,
    /// System 3.
    pub steal: pl::StealConfig,
    /// System 5.
    pub headroom: pl::HeadroomConfig,
    /// When a limit that is used up stops its tasks.
    pub enforce: Enforce,
    /// A CPU that runs dry searches other queues, domain by domain.
    pub newidle: bool,
    /// It does so only as often, by dice, as such searches have found something (NI_RANDOM of Linux 6.19 and its stable
    /// series).
    pub newidle_dice: bool,
    /// A CPU that has work takes more only from one that has had too much for a while (Linux 5.5 and later).
    pub busy_pull_overloaded: bool,
    /// Slices end by a timer where ticks enforce limits (HRTICK).
    pub slice_timer: bool,
    /// Queue lengths are evened out from ticks.
    pub periodic: bool,
    /// A waking task goes to an idle CPU of the cache, if there is one; else, or without this, where it last ran.
    pub wake_idle: bool,
    /// At most this many CPUs are looked at for an idle one; 0: all of the cache.
    pub wake_search_cpus: u32,
    /// A waking task may be drawn to its waker's cache.
    pub wake_affine: bool,
    /// Drawn, too, from an idle CPU that shares no cache with the waker's, if the waker is about to wait (mainline's
    /// wake_affine_idle). Off in the published machines, whose figures were compared without it.
    pub wake_affine_far: bool,
    /// A waking task leaves a CPU for an idle one only if so many tasks are runnable there; 0, 1: always.
    pub wake_crowd: u32,
    /// Whose rule of placement, and how many CPUs it looks at.
    pub wake_search: WakeSearch,
    /// By which rules tasks take turns.
    pub fair: Fair,
    /// Under [`Fair::Eevdf`]: what goes to sleep while it owes time stays in its queue until that is paid (DELAY_DEQUEUE), as in
    /// kernels since 6.12.
    pub delay_dequeue: bool,
    /// Periodic balance goes by what weighs on a CPU, and takes nothing that ran within `Costs::migration_hot_ns`, as the kernel's does
    /// until it has failed twice.
    pub balance_weighs: bool,
    /// What a group's weight is for.
    pub cgroup_mode: CgroupMode,
}

/// What a group's weight is for, by the names of the kernel's cgroup_mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupMode {
    /// All of the group, however many tasks it runs: every kernel before 7.3, and the live scheduler.
    Smp,
    /// Each CPU that the group keeps busy: times the smaller of its runnable tasks and its CPUs. Linux 7.3's default.
    Concur,
}

/// By which rules a CPU's tasks take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fair {
    /// policy/steps.h: earliest eligible virtual deadline first, with conserved lag, level by level. What the live scheduler does.
    Eevdf,
    /// policy/baseline/cfs.h: in order of vruntime, as the kernel's fair class did before 6.6. CPUs are not compared, whatever
    /// `pull_ns`.
    Cfs,
}

/// How a waking task's CPU is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeSearch {
    /// As policy/place.h says: the live scheduler. Processes that tasks fork, too, are placed so.
    Live,
    /// The waker's CPU or the previous one, by their queues, and all of that one's cache, or `wake_search_cpus`.
    All,
    /// The fair class before 6.0: by average idle time and the cost of earlier searches.
    Proportional,
    /// The fair class from 6.0 on: by how busy the cache's CPUs are.
    Utilisation,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            core: pl::Config {
                bandwidth: pl::BwConfig {
                    slice_ns: pl::BW_SLICE_NS,
                    expire: 0,
                    burst_off: 0,
                    mainline: 0,
                    reserved: 0,
                },
                side: pl::BwConfig {
                    slice_ns: pl::HEADROOM_SLICE_NS,
                    expire: 0,
                    burst_off: 1,
                    mainline: 0,
                    reserved: 0,
                },
                load: pl::LoadConfig {
                    publish_ns: pl::LOAD_PUBLISH_NS,
                },
                fair: pl::FairConfig::default(),
                refresh_ns: pl::REFRESH_NS,
            },
            steal: pl::StealConfig {
                enabled: 1,
                node_limit: pl::STEAL_NODE_LIMIT,
                cost_ns: pl::STEAL_COST_NS,
            },
            headroom: pl::HeadroomConfig {
                window_ns: pl::HEADROOM_WINDOW_NS,
                tolerance_ns: pl::HEADROOM_TOLERANCE_NS,
                steps: pl::HEADROOM_STEPS,
                reserved: 0,
            },
            enforce: Enforce::Timer,
            newidle: false,
            newidle_dice: false,
            busy_pull_overloaded: false,
            slice_timer: false,
            periodic: false,
            wake_idle: true,
            wake_search_cpus: 0,
            wake_affine: true,
            wake_affine_far: false,
            wake_crowd: 0,
            wake_search: WakeSearch::Live,
            fair: Fair::Eevdf,
            cgroup_mode: CgroupMode::Smp,
            delay_dequeue: false,
            balance_weighs: false,
        }
    }
}

/// Whose rules of burst hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BurstRules {
    /// No group may use carried time, whatever its burst.
    Off,
    /// The published series: burst may exceed the quota, a sleep earns every period that it lasted.
    Published,
    /// What mainline Linux took: burst up to the quota, one quota for each refill.
    Mainline,
}

/// Switches by name; what is not named stays as it is.
///
/// ```
/// use plimsoll_sim::{BurstRules, Policy};
/// let policy = Policy::default().with_stealing(false).with_burst(BurstRules::Off);
/// assert!(!policy.stealing());
/// assert_eq!(Policy::mainline().burst(), BurstRules::Mainline);
/// ```
impl Policy {
    /// The kernel's fair class: limits are enforced at ticks, burst has mainline's rules, no CPU steals, and CPUs' clocks
    /// are not compared; CPUs are balanced as the kernel does it. A machine model's kernel adds what differs between versions.
    pub fn mainline() -> Self {
        let mut policy = Self::default()
            .with_burst(BurstRules::Mainline)
            .with_kernel_balance();
        policy = policy.with_stealing(false).with_pull_ns(0).with_fair(Fair::Cfs);
        policy.core.fair.as_kernel = 1;
        policy.enforce = Enforce::Tick;
        policy.wake_search = WakeSearch::All;
        policy
    }

    /// The kernel's own balance, which the live scheduler does without: a CPU that runs dry searches, and ticks even out
    /// queues.
    #[must_use]
    pub fn with_kernel_balance(mut self) -> Self {
        (self.newidle, self.periodic) = (true, true);
        self
    }

    /// System 1: run time that a CPU takes from its group's pool at a time, 1 us .. 1 s.
    #[must_use]
    pub fn with_slice_ns(mut self, slice_ns: u64) -> Self {
        self.core.bandwidth.slice_ns = slice_ns;
        self
    }

    /// System 1: slices end with their period, as they did before the series.
    #[must_use]
    pub fn with_slices_that_expire(mut self, expire: bool) -> Self {
        self.core.bandwidth.expire = u32::from(expire);
        self
    }

    /// System 2.
    #[must_use]
    pub fn with_burst(mut self, rules: BurstRules) -> Self {
        self.core.bandwidth.burst_off = u32::from(rules == BurstRules::Off);
        self.core.bandwidth.mainline = u32::from(rules == BurstRules::Mainline);
        self
    }

    /// See [`Policy::with_burst`].
    pub fn burst(&self) -> BurstRules {
        match (self.core.bandwidth.burst_off, self.core.bandwidth.mainline) {
            (0, 0) => BurstRules::Published,
            (0, _) => BurstRules::Mainline,
            _ => BurstRules::Off,
        }
    }

    /// System 3: a CPU that runs dry takes a task from an overloaded one of its cache.
    #[must_use]
    pub fn with_stealing(mut self, on: bool) -> Self {
        self.steal.enabled = u32::from(on);
        self
    }

    /// See [`Policy::with_stealing`].
    pub fn stealing(&self) -> bool {
        self.steal.enabled != 0
    }

    /// System 4: least time between two writes of a queue to its group's load; 0: at every change.
    #[must_use]
    pub fn with_load_publish_ns(mut self, publish_ns: u64) -> Self {
        self.core.load.publish_ns = publish_ns;
        self
    }

    /// System 5: how often the side's budget is set, 10 ms .. 1 s.
    #[must_use]
    pub fn with_headroom_window_ns(mut self, window_ns: u64) -> Self {
        self.headroom.window_ns = window_ns;
        self
    }

    /// How long a task runs before the next is considered, 1 us .. 1 s.
    #[must_use]
    pub fn with_run_slice_ns(mut self, slice_ns: u64) -> Self {
        self.core.fair.slice_ns = slice_ns;
        self
    }

    /// A task that another CPU's are ahead of by more of its own service is moved there; 0: never.
    #[must_use]
    pub fn with_pull_ns(mut self, pull_ns: u64) -> Self {
        self.core.fair.pull_ns = pull_ns;
        self
    }

    /// What a group's weight is for.
    #[must_use]
    pub fn with_cgroup_mode(mut self, mode: CgroupMode) -> Self {
        self.cgroup_mode = mode;
        self
    }

    /// By which rules a CPU's tasks take turns.
    #[must_use]
    pub fn with_fair(mut self, fair: Fair) -> Self {
        self.fair = fair;
        self
    }
}
