//! Results as they are given out: the JSON of `--json`, documented in docs/results.md, and what the tables print.
//!
//! Times are integers of nanoseconds, so that no rounding depends on the build. Lists keep the order of the scenario.
use serde::Serialize;

/// Version of this format. Raised when a field changes its meaning or goes; new fields do not raise it.
pub const FORMAT: u32 = 1;

/// Everything that one command found out.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub format: u32,
    pub plimsoll: &'static str,
    /// One run, or two that are compared.
    pub runs: Vec<Run>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Run {
    /// The scenario's file, and what was changed in it.
    pub scenario: String,
    pub changes: Vec<String>,
    pub description: String,
    pub machine: String,
    pub nr_cpus: u32,
    pub seed: u64,
    pub warmup_ns: u64,
    pub duration_ns: u64,
    /// Scheduling events that the simulation handled.
    pub events: u64,
    pub groups: Vec<Group>,
    pub workloads: Vec<Workload>,
    pub cpu: CpuSummary,
    pub cpus: Vec<Cpu>,
}

/// One group's use, limit and cpu.stat.
#[derive(Debug, Clone, Serialize)]
pub struct Group {
    pub name: String,
    pub weight: u32,
    /// null: unlimited.
    pub quota_ns: Option<u64>,
    pub period_ns: u64,
    pub burst_ns: u64,
    pub used_ns: u64,
    /// Used time over duration: 1.0 is one CPU.
    pub used_cpus: f64,
    /// quota / period; null: unlimited.
    pub limit_cpus: Option<f64>,
    pub stat: CpuStat,
    /// What the pool held at the end, current_bw.
    pub pool_ns: Option<u64>,
}

/// cpu.stat, in the kernel's names and units.
#[derive(Debug, Clone, Default, Serialize)]
pub struct CpuStat {
    pub usage_usec: u64,
    pub nr_periods: u64,
    pub nr_throttled: u64,
    pub throttled_usec: u64,
    pub nr_bursts: u64,
    pub burst_usec: u64,
}

/// One workload's work and waiting.
#[derive(Debug, Clone, Serialize)]
pub struct Workload {
    pub name: String,
    pub kind: String,
    pub group: String,
    pub tasks: u64,
    pub used_ns: u64,
    /// Requests, messages, iterations: what the kind counts.
    pub operations: u64,
    pub operations_per_s: f64,
    /// When the last task ended, for workloads that end.
    pub finished_ns: Option<u64>,
    /// Of an operation; null where the kind measures none.
    pub latency: Option<Distribution>,
    /// From runnable to running.
    pub run_delay: Option<Distribution>,
}

/// A distribution of times.
#[derive(Debug, Clone, Serialize)]
pub struct Distribution {
    pub count: u64,
    pub min_ns: u64,
    pub mean_ns: f64,
    pub p50_ns: u64,
    pub p75_ns: u64,
    pub p90_ns: u64,
    pub p95_ns: u64,
    pub p99_ns: u64,
    pub p99_5_ns: u64,
    pub p99_9_ns: u64,
    pub max_ns: u64,
}

/// All CPUs together. Percentages are of CPU time; counts are sums.
#[derive(Debug, Clone, Serialize)]
pub struct CpuSummary {
    pub busy_percent: f64,
    pub schedules: u64,
    pub idles: u64,
    pub wakeups: u64,
    pub migrations: u64,
    pub steals: u64,
    pub find_percent: f64,
    pub mean_slice_ns: f64,
}

/// One CPU.
#[derive(Debug, Clone, Serialize)]
pub struct Cpu {
    pub cpu: u32,
    pub busy_ns: u64,
    pub idle_ns: u64,
    pub schedules: u64,
    pub idles: u64,
    pub wakeups: u64,
    pub steals: u64,
    pub find_ns: u64,
    pub mean_slice_ns: f64,
}
