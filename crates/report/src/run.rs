// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Results as they are given out: the JSON of `--json`, documented in docs/src/reference/results.md, and what the
//! tables print.
//!
//! Times are integers of nanoseconds, so that no rounding depends on the build. Lists keep the order of the scenario.
use plimsoll_scenario::Scenario;
use plimsoll_sim::results::{CpuResult, LatencyResult, Results};
use plimsoll_sim::{GroupId, Histogram};
use schemars::JsonSchema;
use serde::Serialize;

/// Version of this format. Raised when a field changes its meaning or goes; new fields do not raise it.
pub const FORMAT: u32 = 1;

/// Everything that one command found out.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Report {
    /// Version of this format.
    pub format: u32,
    /// Version of the program.
    pub plimsoll: &'static str,
    /// One run, or two that are compared.
    pub runs: Vec<Run>,
}

impl Report {
    /// Of one run, or of two that are compared.
    pub fn new(runs: Vec<Run>) -> Self {
        Report {
            format: FORMAT,
            plimsoll: env!("CARGO_PKG_VERSION"),
            runs,
        }
    }

    /// The JSON text, with a newline at its end.
    pub fn json(&self) -> String {
        let mut text =
            serde_json::to_string_pretty(self).expect("a report has string keys and finite numbers");
        text.push('\n');
        text
    }
}

/// One run of one scenario.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Run {
    /// What this run is called in tables.
    pub label: String,
    /// The scenario's file, or the name of an example.
    pub scenario: String,
    /// What `--set` changed.
    pub settings: Vec<String>,
    /// The scenario's description.
    pub description: String,
    /// Name of the machine model.
    pub machine: String,
    /// The kernel that the scenario asks for, and the one of the machine's model that was taken; null: the live
    /// scheduler's rules.
    pub kernel: Option<String>,
    /// The kernel of the machine model that was taken for it.
    pub kernel_taken: Option<String>,
    /// CPUs of the machine.
    pub nr_cpus: u32,
    /// Seed of all random streams.
    pub seed: u64,
    /// Simulated time that was left out, ns.
    pub warmup_ns: u64,
    /// From the end of the warm-up to the end of the run: what everything below is about.
    pub measured_ns: u64,
    /// Whether every task exited before the end.
    pub all_exited: bool,
    /// Whether that would have been the end.
    pub stop_when_done: bool,
    /// Scheduling events that were simulated, warm-up included.
    pub events: u64,
    /// The root group first.
    pub groups: Vec<Group>,
    /// In the order of the scenario.
    pub workloads: Vec<Workload>,
    /// The sum of all CPUs.
    pub cpu: Cpu,
    /// Each CPU.
    pub cpus: Vec<Cpu>,
    /// Cache lines that all CPUs write.
    pub shared: Shared,
    /// null: no group asked for headroom at any time of the run.
    pub headroom: Option<Headroom>,
}

/// One group's use, limit and cpu.stat.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Group {
    /// As in the scenario; "/" is the root.
    pub name: String,
    /// Run time of the group and all below it, ns.
    pub usage_ns: u64,
    /// Usage over measured time: 1.0 is one CPU.
    pub used_cpus: f64,
    /// quota / period as the run began; null: no limit.
    pub limit_cpus: Option<f64>,
    /// Run time in each period, ns; null: no limit.
    pub quota_ns: Option<u64>,
    /// Length of a period, ns; null: no limit.
    pub period_ns: Option<u64>,
    /// The most that may be saved, ns; null: no limit.
    pub burst_ns: Option<u64>,
    /// A change of the scenario gives it another quota or period, or takes it away.
    pub limit_changes: bool,
    /// null: it never had a limit.
    pub stat: Option<Stat>,
    /// Of the group's own tasks, from runnable to running.
    pub run_delay: RunDelay,
}

/// Waits from runnable to running.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct RunDelay {
    /// How often a task waited.
    pub waits: u64,
    /// All waits, ns.
    pub total_ns: u64,
    /// Mean wait, ns.
    pub mean_ns: f64,
    /// Longest wait, ns.
    pub max_ns: u64,
}

/// cpu.stat of a limited group.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Stat {
    /// Periods that ended while the group was not idle.
    pub nr_periods: u64,
    /// Periods at whose end some CPU of the group was throttled.
    pub nr_throttled: u64,
    /// Time throttled, ns, summed over CPUs; a throttling that lasts at the end is not in it.
    pub throttled_ns: u64,
    /// Run time in the pool at the end, ns.
    pub current_bw_ns: u64,
    /// Periods that used more than the quota.
    pub nr_bursts: u64,
    /// Run time above the quota, ns.
    pub burst_ns: u64,
}

/// One workload's work and waiting.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Workload {
    /// As in the scenario.
    pub name: String,
    /// Its kind, as in the scenario.
    pub kind: String,
    /// The group it runs in; "/" is the root.
    pub group: String,
    /// Run time of its tasks, ns.
    pub usage_ns: u64,
    /// Usage over measured time: 1.0 is one CPU.
    pub used_cpus: f64,
    /// From runnable to running.
    pub run_delay: Distribution,
    /// What the kind times.
    pub latencies: Vec<Latency>,
    /// What the kind counts.
    pub counters: Vec<Counter>,
}

/// Times of one kind.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Latency {
    /// What is timed, as `wakeup_latency` or `latency`.
    pub name: String,
    /// What came of it.
    #[serde(flatten)]
    pub distribution: Distribution,
}

/// A count.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Counter {
    /// What is counted, as `requests` or `messages`.
    pub name: String,
    /// How many in the measured time.
    pub value: u64,
    /// How many a second.
    pub per_s: f64,
}

/// A distribution of times; all 0 without any.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Distribution {
    /// Number of values.
    pub count: u64,
    /// Smallest value, ns.
    pub min_ns: u64,
    /// Mean, ns.
    pub mean_ns: f64,
    /// Half of the values are at most this, ns.
    pub p50_ns: u64,
    /// 75 of 100, ns.
    pub p75_ns: u64,
    /// 90 of 100, ns.
    pub p90_ns: u64,
    /// 95 of 100, ns.
    pub p95_ns: u64,
    /// 99 of 100, ns.
    pub p99_ns: u64,
    /// 995 of 1,000, ns.
    pub p99_5_ns: u64,
    /// 999 of 1,000, ns.
    pub p99_9_ns: u64,
    /// Largest value, ns.
    pub max_ns: u64,
}

/// One CPU, or the sum of all, in the terms of schedstat.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Cpu {
    /// null: all of them.
    pub cpu: Option<u32>,
    /// Time not idle, ns: tasks, the kernel on their behalf, interrupts.
    pub busy_ns: u64,
    /// Time idle, ns.
    pub idle_ns: u64,
    /// Time off line, ns; in no percentage.
    pub offline_ns: u64,
    /// Run time of tasks, ns.
    pub task_ns: u64,
    /// busy_ns, in percent of the time on line.
    pub busy_percent: f64,
    /// Calls of the scheduler.
    pub schedules: u64,
    /// Calls of the scheduler that found nothing to run.
    pub idles: u64,
    /// Tasks woken by this CPU.
    pub wakeups: u64,
    /// busy_ns over schedules less idles, ns.
    pub mean_slice_ns: f64,
    /// Tasks stolen from other CPUs.
    pub steals: u64,
    /// Tasks pulled as the CPU was about to go idle.
    pub newidle_pulls: u64,
    /// Tasks pulled by periodic balancing.
    pub periodic_pulls: u64,
    /// Tasks pulled because they were further behind.
    pub lag_pulls: u64,
    /// Searches for a task to take as the CPU ran dry.
    pub searches: u64,
    /// Time of these searches, ns.
    pub find_ns: u64,
    /// find_ns, in percent of the time on line.
    pub find_percent: f64,
    /// Where tasks that woke up here, or were born here, and may run on more than one CPU went.
    pub placed: Placed,
}

/// Where tasks that woke up went.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Placed {
    /// To their waker's CPU, which that was about to leave.
    pub waker: u64,
    /// To their previous CPU, which was idle.
    pub kept: u64,
    /// To another idle CPU of its cache.
    pub cache: u64,
    /// To an idle CPU elsewhere.
    pub elsewhere: u64,
    /// To a CPU that ran work which gives way.
    pub idle_work: u64,
    /// To a busy CPU, behind what was there.
    pub behind: u64,
}

/// Use of the cache lines that all CPUs share, and the CPU time spent on fetching them and waiting for them.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Shared {
    /// Fetches of groups' load averages.
    pub load_reads: u64,
    /// Writes to groups' load averages.
    pub load_writes: u64,
    /// CPU time of both, ns.
    pub load_ns: u64,
    /// load_ns, in percent of all CPU time on line.
    pub load_percent: f64,
    /// Times that a CPU took the lock of a group's pool.
    pub pool_locks: u64,
    /// CPU time of that, ns.
    pub pool_ns: u64,
    /// Writes to masks of overloaded CPUs.
    pub mask_writes: u64,
    /// CPU time of that, ns.
    pub mask_ns: u64,
}

/// The side and what it left idle, of the measured time in which a group asked for headroom.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Headroom {
    /// Windows that ended in the measured time.
    pub windows: u64,
    /// Run time of the side, ns.
    pub side_used_ns: u64,
    /// side_used_ns, in percent of capacity_ns.
    pub side_used_percent: f64,
    /// Idle time of all CPUs, ns.
    pub idle_ns: u64,
    /// idle_ns, in percent of capacity_ns.
    pub idle_percent: f64,
    /// CPU time on line, ns.
    pub capacity_ns: u64,
    /// Budget of the last window, ns.
    pub budget_ns: u64,
}

impl Run {
    /// What one run of a scenario gave.
    pub fn new(label: &str, scenario: &Scenario, results: &Results) -> Self {
        let seconds = results.measured_ns as f64 / 1e9;
        let cpus_of = |ns: u64| share(ns, results.measured_ns);
        let names = std::iter::once("/").chain(scenario.groups.iter().map(|group| group.name.as_str()));
        let specs = std::iter::once(None).chain(scenario.groups.iter().map(|group| Some(&group.spec)));
        let groups =
            names
                .zip(specs)
                .zip(&results.groups)
                .enumerate()
                .map(|(number, ((name, spec), result))| {
                    let limits = spec
                        .map(|spec| spec.limits)
                        .filter(|limits| limits.quota_ns.is_some());
                    Group {
                        name: name.to_string(),
                        usage_ns: result.usage_ns,
                        used_cpus: cpus_of(result.usage_ns),
                        limit_cpus: limits.and_then(|limits| Some(share(limits.quota_ns?, limits.period_ns))),
                        quota_ns: limits.and_then(|limits| limits.quota_ns),
                        period_ns: limits.map(|limits| limits.period_ns),
                        burst_ns: limits.map(|limits| limits.burst_ns),
                        limit_changes: scenario.limit_changes(GroupId(number as u32)),
                        stat: result.stat.map(|stat| Stat {
                            nr_periods: stat.nr_periods,
                            nr_throttled: stat.nr_throttled,
                            throttled_ns: stat.throttled_ns,
                            current_bw_ns: stat.current_bw_ns,
                            nr_bursts: stat.nr_bursts,
                            burst_ns: stat.burst_ns,
                        }),
                        run_delay: RunDelay {
                            waits: result.run_delay.waits,
                            total_ns: result.run_delay.total_ns,
                            mean_ns: share(result.run_delay.total_ns, result.run_delay.waits),
                            max_ns: result.run_delay.max_ns,
                        },
                    }
                });
        let groups = groups.collect();
        let workloads = scenario
            .workloads
            .iter()
            .zip(&results.workloads)
            .map(|(workload, result)| Workload {
                name: result.name.clone(),
                kind: workload.kind.clone(),
                group: if workload.group.is_empty() {
                    "/".to_string()
                } else {
                    workload.group.clone()
                },
                usage_ns: result.usage_ns,
                used_cpus: cpus_of(result.usage_ns),
                run_delay: distribution(&result.run_delay),
                latencies: result.latencies.iter().map(latency).collect(),
                counters: result
                    .counters
                    .iter()
                    .map(|counter| Counter {
                        name: counter.name.clone(),
                        value: counter.value,
                        per_s: if seconds > 0.0 {
                            counter.value as f64 / seconds
                        } else {
                            0.0
                        },
                    })
                    .collect(),
            });
        let workloads = workloads.collect();
        let mut all = CpuResult::default();
        for cpu in &results.cpus {
            add(&mut all, cpu);
        }
        let capacity_ns = all.busy_ns + all.idle_ns;
        let touches = &results.touches;
        Run {
            label: label.to_string(),
            scenario: scenario.name.clone(),
            settings: scenario.settings.clone(),
            description: scenario.description.clone(),
            machine: scenario.machine_name.clone(),
            kernel: scenario.kernel.as_ref().map(|kernel| kernel.asked.clone()),
            kernel_taken: scenario.kernel.as_ref().map(|kernel| kernel.taken.clone()),
            nr_cpus: results.cpus.len() as u32,
            seed: scenario.seed,
            warmup_ns: scenario.warmup_ns,
            measured_ns: results.measured_ns,
            all_exited: results.all_exited,
            stop_when_done: scenario.stop_when_done,
            events: results.events.total(),
            groups,
            workloads,
            cpu: cpu(None, &all),
            cpus: results
                .cpus
                .iter()
                .enumerate()
                .map(|(number, one)| cpu(Some(number as u32), one))
                .collect(),
            shared: Shared {
                load_reads: touches.load_reads,
                load_writes: touches.load_writes,
                load_ns: touches.load_ns,
                load_percent: 100.0 * share(touches.load_ns, capacity_ns),
                pool_locks: touches.pool_locks,
                pool_ns: touches.pool_ns,
                mask_writes: touches.mask_writes,
                mask_ns: touches.mask_ns,
            },
            headroom: results.headroom.as_ref().map(|headroom| Headroom {
                windows: headroom.windows,
                side_used_ns: headroom.side_used_ns,
                side_used_percent: 100.0 * share(headroom.side_used_ns, headroom.capacity_ns),
                idle_ns: headroom.idle_ns,
                idle_percent: 100.0 * share(headroom.idle_ns, headroom.capacity_ns),
                capacity_ns: headroom.capacity_ns,
                budget_ns: headroom.budget_ns,
            }),
        }
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

fn latency(result: &LatencyResult) -> Latency {
    Latency {
        name: result.name.clone(),
        distribution: distribution(&result.histogram),
    }
}

fn distribution(histogram: &Histogram) -> Distribution {
    let histogram = histogram.whole();
    let at = |quantile: f64| {
        if histogram.is_empty() {
            0
        } else {
            histogram.value_at_quantile(quantile)
        }
    };
    Distribution {
        count: histogram.len(),
        min_ns: if histogram.is_empty() { 0 } else { histogram.min() },
        mean_ns: histogram.mean(),
        p50_ns: at(0.5),
        p75_ns: at(0.75),
        p90_ns: at(0.9),
        p95_ns: at(0.95),
        p99_ns: at(0.99),
        p99_5_ns: at(0.995),
        p99_9_ns: at(0.999),
        max_ns: if histogram.is_empty() { 0 } else { histogram.max() },
    }
}

fn add(sum: &mut CpuResult, one: &CpuResult) {
    sum.busy_ns += one.busy_ns;
    sum.idle_ns += one.idle_ns;
    sum.offline_ns += one.offline_ns;
    sum.task_ns += one.task_ns;
    sum.schedules += one.schedules;
    sum.idles += one.idles;
    sum.wakeups += one.wakeups;
    sum.steals += one.steals;
    sum.newidle_pulls += one.newidle_pulls;
    sum.periodic_pulls += one.periodic_pulls;
    sum.lag_pulls += one.lag_pulls;
    sum.searches += one.searches;
    sum.find_ns += one.find_ns;
    sum.placed = sum.placed.plus(one.placed);
}

fn cpu(number: Option<u32>, one: &CpuResult) -> Cpu {
    Cpu {
        cpu: number,
        busy_ns: one.busy_ns,
        idle_ns: one.idle_ns,
        offline_ns: one.offline_ns,
        task_ns: one.task_ns,
        busy_percent: one.busy_percent(),
        schedules: one.schedules,
        idles: one.idles,
        wakeups: one.wakeups,
        mean_slice_ns: one.mean_slice_ns(),
        steals: one.steals,
        newidle_pulls: one.newidle_pulls,
        periodic_pulls: one.periodic_pulls,
        lag_pulls: one.lag_pulls,
        searches: one.searches,
        find_ns: one.find_ns,
        find_percent: one.find_percent(),
        placed: Placed {
            waker: one.placed.waker,
            kept: one.placed.kept,
            cache: one.placed.cache,
            elsewhere: one.placed.elsewhere,
            idle_work: one.placed.idle_work,
            behind: one.placed.behind,
        },
    }
}
