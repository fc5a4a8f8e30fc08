// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a run measured, from the end of the warm-up to the end of the run.
//!
//! Written with serde, a histogram is a list of values and how often each was seen: `[[1023, 4], [2047, 1]]`, in ascending
//! order, each value the highest of its class of 3 significant digits.
use crate::histogram::Histogram;
use plimsoll_policy_sys as pl;
use serde::{Deserialize, Serialize};

/// What [`crate::Simulation::run`] returns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Start of the run to its end, warm-up included.
    pub end_ns: u64,
    /// End of the warm-up to the end of the run. 0: every task ended within the warm-up, and that was the end.
    pub measured_ns: u64,
    /// Whether every task exited.
    pub all_exited: bool,
    /// Tasks that were runnable and did not run as the measured time began and as it ended.
    pub waiting_at_begin: u64,
    /// As the measured time ended.
    pub waiting_at_end: u64,
    /// How much there was to do for the scheduler.
    pub events: EventCounts,
    /// The root first, then as configured.
    pub groups: Vec<GroupResult>,
    /// As configured.
    pub workloads: Vec<WorkloadResult>,
    /// By number.
    pub cpus: Vec<CpuResult>,
    /// Use of lines that all CPUs share.
    pub touches: Touches,
    /// `None`: no group asked for headroom at any time of the run.
    pub headroom: Option<HeadroomResult>,
}

/// Scheduling events of the whole run, warm-up included. The rate in benchmarks is their sum over wall time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventCounts {
    /// A CPU went from one task to another, or between a task and idle.
    pub switches: u64,
    /// Tasks that became runnable.
    pub wakeups: u64,
    /// Of busy CPUs.
    pub ticks: u64,
    /// Period, slack, enforcement, headroom and sleep timers that fired.
    pub timers: u64,
    /// Tasks that began to run on another CPU than the last time. Not an event of its own: not in the total.
    pub migrations: u64,
}

impl EventCounts {
    /// All of them, migrations left out.
    pub fn total(&self) -> u64 {
        self.switches + self.wakeups + self.ticks + self.timers
    }
}

/// cpu.stat of a limited group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuStat {
    /// Periods that ended.
    pub nr_periods: u64,
    /// Periods at whose end the group was throttled on some CPU.
    pub nr_throttled: u64,
    /// Summed over CPUs; a throttling that lasts at the end of the run is not in it, one that began in the warm-up only
    /// from there on.
    pub throttled_ns: u64,
    /// In the pool as the run ended; 0 without a limit.
    pub current_bw_ns: u64,
    /// Periods that used more than quota.
    pub nr_bursts: u64,
    /// Run time above quota.
    pub burst_ns: u64,
}

/// One group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupResult {
    /// As configured.
    pub path: String,
    /// Run time of the group and all below it.
    pub usage_ns: u64,
    /// `None`: it never had a limit.
    pub stat: Option<CpuStat>,
    /// Of the group's own tasks.
    pub run_delay: RunDelay,
}

/// Waiting for a CPU while runnable, throttled or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunDelay {
    /// How often a task waited.
    pub waits: u64,
    /// All waits together.
    pub total_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// All tasks of one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkloadResult {
    /// As configured.
    pub name: String,
    /// Run time.
    pub usage_ns: u64,
    /// Waiting for a CPU while runnable, throttled or not. One value per wait, ns, 3 significant digits.
    pub run_delay: Histogram,
    /// As configured.
    pub latencies: Vec<LatencyResult>,
    /// As configured.
    pub counters: Vec<CounterResult>,
}

/// One histogram of a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyResult {
    /// As configured.
    pub name: String,
    /// Nanoseconds, 3 significant digits; above two days counts as two days.
    pub histogram: Histogram,
}

/// One sum of a workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterResult {
    /// As configured.
    pub name: String,
    /// The sum.
    pub value: u64,
}

/// One CPU, in the terms of schedstat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuResult {
    /// Not idle: tasks, the kernel on their behalf, interrupts.
    pub busy_ns: u64,
    /// On line, with nothing to do.
    pub idle_ns: u64,
    /// Neither: busy, idle and off line make up the measured time.
    pub offline_ns: u64,
    /// Run time of tasks.
    pub task_ns: u64,
    /// Calls of the scheduler.
    pub schedules: u64,
    /// Of those, the ones that found nothing to run.
    pub idles: u64,
    /// Tasks woken by this CPU.
    pub wakeups: u64,
    /// Tasks taken from others: by stealing, new-idle balance, periodic balance, pull on lag.
    pub steals: u64,
    /// By new-idle balance.
    pub newidle_pulls: u64,
    /// By periodic balance.
    pub periodic_pulls: u64,
    /// By pull on lag.
    pub lag_pulls: u64,
    /// Searches for something to take when running dry.
    pub searches: u64,
    /// Time spent searching when running dry, looking for an idle CPU for a woken task, and keeping the mask of
    /// overloaded CPUs: what the published series counts as finding.
    pub find_ns: u64,
    /// Where this CPU sent tasks that may run on more than one, and that woke up here or were born here.
    pub placed: Placed,
}

/// Where tasks that woke up went: enum pl_place of policy/place.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// To their waker's CPU, which that was about to leave.
    pub waker: u64,
    /// To their previous one, idle.
    pub kept: u64,
    /// To another idle one of its cache.
    pub cache: u64,
    /// To an idle one elsewhere.
    pub elsewhere: u64,
    /// To one that ran work which gave way.
    pub idle_work: u64,
    /// To one that was busy, behind what was there.
    pub behind: u64,
}

impl Placed {
    /// By the policy's numbers.
    pub(crate) fn from_counts(counts: [u64; pl::PLACES]) -> Self {
        let [waker, kept, cache, elsewhere, idle_work, behind] = counts;
        Self {
            waker,
            kept,
            cache,
            elsewhere,
            idle_work,
            behind,
        }
    }

    /// Those of two CPUs.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            waker: self.waker + other.waker,
            kept: self.kept + other.kept,
            cache: self.cache + other.cache,
            elsewhere: self.elsewhere + other.elsewhere,
            idle_work: self.idle_work + other.idle_work,
            behind: self.behind + other.behind,
        }
    }
}

impl CpuResult {
    /// Of the time on line.
    pub fn busy_percent(&self) -> f64 {
        percent(self.busy_ns, self.busy_ns + self.idle_ns)
    }

    /// Share of the time on line spent finding.
    pub fn find_percent(&self) -> f64 {
        percent(self.find_ns, self.busy_ns + self.idle_ns)
    }

    /// busy / (schedules - idles)
    pub fn mean_slice_ns(&self) -> f64 {
        let runs = self.schedules.saturating_sub(self.idles);
        if runs == 0 {
            0.0
        } else {
            self.busy_ns as f64 / runs as f64
        }
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 * 100.0 / whole as f64
    }
}

/// Use of the cache lines that all CPUs share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Touches {
    /// Of groups' load averages.
    pub load_reads: u64,
    /// Of groups' load averages.
    pub load_writes: u64,
    /// Of pools.
    pub pool_locks: u64,
    /// Of the mask of overloaded CPUs.
    pub mask_writes: u64,
    /// CPU time spent fetching such lines and waiting for them.
    pub load_ns: u64,
    /// Of it, by CPUs that only read: those that compute a queue's share (update_cfs_group).
    pub load_read_ns: u64,
    /// Likewise, for pools.
    pub pool_ns: u64,
    /// Likewise, for the mask.
    pub mask_ns: u64,
}

/// What headroom did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadroomResult {
    /// That ended in the measured time.
    pub windows: u64,
    /// Run time of the side in the measured time, as far as a group asked for headroom in it. So are the next two.
    pub side_used_ns: u64,
    /// Of all CPUs.
    pub idle_ns: u64,
    /// Of all CPUs on line.
    pub capacity_ns: u64,
    /// Of the last window.
    pub budget_ns: u64,
}
