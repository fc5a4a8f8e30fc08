// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What of a run's results stands for a published metric.
use plimsoll_sim::{Histogram, Results};
use schemars::JsonSchema;
use serde::Deserialize;

/// A measure, and the factor from its unit to the published one.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// What is measured.
    pub of: What,
    /// The workload whose counter, latency or usage it is.
    pub workload: Option<String>,
    /// Counter or latency.
    pub name: Option<String>,
    /// Percentile of a latency.
    pub percentile: Option<f64>,
    /// Multiplied with this.
    pub factor: Option<f64>,
    /// Relative to this case's result without the change (its keys), instead of as measured.
    pub relative_to: Option<Vec<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A counter, per second.
    Rate,
    /// Seconds for the work of the case.
    Time,
    /// A latency's percentile, mean, least and largest value, in microseconds.
    Percentile,
    Mean,
    Least,
    Largest,
    /// Share of time that CPUs were busy, in percent.
    Busy,
    /// Busy time of one run of a task, in milliseconds: busy / (schedules - idles).
    Slice,
    /// How far schedules - idles are from wake-ups that came to run, in percent of these.
    Identity,
    /// For the work of the case, on one CPU: calls of the scheduler, those that found nothing, wake-ups, steals.
    Schedules,
    Idles,
    Wakeups,
    Steals,
    /// Share of time spent finding something to take, in percent.
    Find,
    /// Wake-ups of the machine, and tasks that changed CPU, per second.
    WakeupsPerS,
    MigrationsPerS,
    /// Share of busy time spent reading, writing the load averages of groups, or both, in percent.
    LoadRead,
    LoadWrite,
    LoadBoth,
    /// CPU use of a workload, in percent of one CPU, and of the machine.
    UsageOfOne,
    Usage,
    Idle,
    /// Periods at whose end the group was throttled on some CPU, over all groups.
    Throttled,
}

impl Measure {
    /// What a run shows. `work`: of the published run. The error names what the results do not have.
    pub fn take(&self, results: &Results, work: Option<f64>) -> Result<f64, String> {
        self.raw(results, work)
            .map(|value| value * self.factor.unwrap_or(1.0))
    }

    fn raw(&self, results: &Results, work: Option<f64>) -> Result<f64, String> {
        let seconds = results.measured_ns as f64 / 1e9;
        let nr_cpus = results.cpus.len() as f64;
        let sum = |of: fn(&plimsoll_sim::results::CpuResult) -> u64| -> f64 {
            results.cpus.iter().map(of).sum::<u64>() as f64
        };
        let busy = || sum(|cpu| cpu.busy_ns);
        // Of a count over all CPUs: for the published work, on one CPU.
        let scaled = |count: f64| -> Result<f64, String> {
            let done = self.counter(results)?;
            let work = work.ok_or("the case states no work")?;
            Ok(count * work / done.max(1.0) / nr_cpus)
        };
        Ok(match self.of {
            What::Rate => self.counter(results)? / seconds,
            What::Time => {
                let work = work.ok_or("the case states no work")?;
                work / (self.counter(results)? / seconds)
            }
            What::Percentile => {
                let quantile = self.percentile.ok_or("percentile is missing")?;
                self.latency(results)?.whole().value_at_percentile(quantile) as f64 / 1e3
            }
            What::Mean => self.latency(results)?.mean() / 1e3,
            What::Least => self.latency(results)?.min() as f64 / 1e3,
            What::Largest => self.latency(results)?.max() as f64 / 1e3,
            What::Busy => busy() / (busy() + sum(|cpu| cpu.idle_ns)) * 100.0,
            What::Slice => {
                let runs = sum(|cpu| cpu.schedules) - sum(|cpu| cpu.idles);
                busy() / runs.max(1.0) / 1e6
            }
            What::Identity => {
                // The source counts from the first fork to the last exit, when no task waits. A window begins and ends
                // with tasks woken and not yet run.
                let begun = results.waiting_at_begin as f64 - results.waiting_at_end as f64;
                let wakeups = sum(|cpu| cpu.wakeups) + begun;
                let runs = sum(|cpu| cpu.schedules) - sum(|cpu| cpu.idles);
                (runs - wakeups) / wakeups.max(1.0) * 100.0
            }
            What::Schedules => scaled(sum(|cpu| cpu.schedules))?,
            What::Idles => scaled(sum(|cpu| cpu.idles))?,
            What::Wakeups => scaled(sum(|cpu| cpu.wakeups))?,
            What::Steals => scaled(sum(|cpu| cpu.steals))?,
            What::Find => sum(|cpu| cpu.find_ns) / (busy() + sum(|cpu| cpu.idle_ns)) * 100.0,
            What::WakeupsPerS => sum(|cpu| cpu.wakeups) / seconds,
            What::MigrationsPerS => results.events.migrations as f64 / (results.end_ns as f64 / 1e9),
            What::LoadRead => results.touches.load_read_ns as f64 / busy() * 100.0,
            What::LoadWrite => {
                (results.touches.load_ns - results.touches.load_read_ns) as f64 / busy() * 100.0
            }
            What::LoadBoth => results.touches.load_ns as f64 / busy() * 100.0,
            What::UsageOfOne => self.workload(results)?.usage_ns as f64 / results.measured_ns as f64 * 100.0,
            What::Usage => {
                self.workload(results)?.usage_ns as f64 / results.measured_ns as f64 * 100.0 / nr_cpus
            }
            What::Idle => sum(|cpu| cpu.idle_ns) / (busy() + sum(|cpu| cpu.idle_ns)) * 100.0,
            What::Throttled => results
                .groups
                .iter()
                .filter_map(|group| group.stat)
                .map(|stat| stat.nr_throttled)
                .sum::<u64>() as f64,
        })
    }

    fn workload<'a>(
        &self,
        results: &'a Results,
    ) -> Result<&'a plimsoll_sim::results::WorkloadResult, String> {
        let name = self.workload.as_deref().unwrap_or("main");
        results
            .workloads
            .iter()
            .find(|workload| workload.name == name)
            .ok_or_else(|| format!("no workload \"{name}\" in the scenario"))
    }

    fn counter(&self, results: &Results) -> Result<f64, String> {
        let workload = self.workload(results)?;
        let found = match &self.name {
            Some(name) => workload.counters.iter().find(|counter| counter.name == *name),
            None => workload.counters.first(),
        };
        found
            .map(|counter| counter.value as f64)
            .ok_or_else(|| format!("workload \"{}\" has no such counter", workload.name))
    }

    fn latency<'a>(&self, results: &'a Results) -> Result<&'a Histogram, String> {
        let workload = self.workload(results)?;
        let found = match &self.name {
            Some(name) => workload.latencies.iter().find(|latency| latency.name == *name),
            None => workload.latencies.first(),
        };
        found
            .map(|latency| &latency.histogram)
            .ok_or_else(|| format!("workload \"{}\" has no such latency", workload.name))
    }
}
