// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a run measured, from the end of the warm-up to the end of the run.
use hdrhistogram::Histogram;

#[derive(Clone, Debug)]
pub struct Results {
    /// Start of the run to its end, warm-up included.
    pub end_ns: u64,
    /// End of the warm-up to the end of the run. 0: every task ended within the warm-up, and that was the end.
    pub measured_ns: u64,
    /// Whether every task exited.
    pub all_exited: bool,
    /// Tasks that were runnable and did not run as the measured time began and as it ended.
    pub waiting_at_begin: u64,
    pub waiting_at_end: u64,
    pub events: EventCounts,
    /// The root first, then as configured.
    pub groups: Vec<GroupResult>,
    pub workloads: Vec<WorkloadResult>,
    pub cpus: Vec<CpuResult>,
    pub touches: Touches,
    /// `None`: no group asked for headroom at any time of the run.
    pub headroom: Option<HeadroomResult>,
}

/// Scheduling events of the whole run, warm-up included. The rate in benchmarks is their sum over wall time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// A CPU went from one task to another, or between a task and idle.
    pub switches: u64,
    pub wakeups: u64,
    pub ticks: u64,
    /// Period, slack, enforcement, headroom and sleep timers that fired.
    pub timers: u64,
    /// Tasks that began to run on another CPU than the last time. Not an event of its own: not in the total.
    pub migrations: u64,
}

impl EventCounts {
    pub fn total(&self) -> u64 {
        self.switches + self.wakeups + self.ticks + self.timers
    }
}

/// cpu.stat of a limited group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuStat {
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

#[derive(Clone, Debug)]
pub struct GroupResult {
    pub path: String,
    /// Run time of the group and all below it.
    pub usage_ns: u64,
    /// `None`: it never had a limit.
    pub stat: Option<CpuStat>,
    /// Of the group's own tasks.
    pub run_delay: RunDelay,
}

/// Waiting for a CPU while runnable, throttled or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunDelay {
    pub waits: u64,
    pub total_ns: u64,
    pub max_ns: u64,
}

#[derive(Clone, Debug)]
pub struct WorkloadResult {
    pub name: String,
    pub usage_ns: u64,
    /// Waiting for a CPU while runnable, throttled or not. One value per wait, ns, 3 significant digits.
    pub run_delay: Histogram<u64>,
    pub latencies: Vec<LatencyResult>,
    pub counters: Vec<CounterResult>,
}

#[derive(Clone, Debug)]
pub struct LatencyResult {
    pub name: String,
    /// Nanoseconds, 3 significant digits; above two days counts as two days.
    pub histogram: Histogram<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterResult {
    pub name: String,
    pub value: u64,
}

/// One CPU, in the terms of schedstat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuResult {
    /// Not idle: tasks, the kernel on their behalf, interrupts.
    pub busy_ns: u64,
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
    pub newidle_pulls: u64,
    pub periodic_pulls: u64,
    pub lag_pulls: u64,
    /// Searches for something to take when running dry.
    pub searches: u64,
    /// Time spent searching when running dry, looking for an idle CPU for a woken task, and keeping the mask of
    /// overloaded CPUs: what the published series counts as finding.
    pub find_ns: u64,
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touches {
    /// Of groups' load averages.
    pub load_reads: u64,
    pub load_writes: u64,
    pub pool_locks: u64,
    pub mask_writes: u64,
    /// CPU time spent fetching such lines and waiting for them.
    pub load_ns: u64,
    /// Of it, by CPUs that only read: those that compute a queue's share (update_cfs_group).
    pub load_read_ns: u64,
    pub pool_ns: u64,
    pub mask_ns: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
