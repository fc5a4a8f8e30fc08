// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a group is throttled: which threads ran as its quota ended, how long requests waited for that, and what would
//! have kept it.
//!
//! All of it is of the replay under a limit, the recorded one or another: a trace tells when threads ran, not when the
//! kernel took the CPU from them for a limit.
use crate::quantities::measure;
use crate::runtimes::is_below;
use crate::search::{Limits, PlanError};
use crate::source::Source;
use crate::Subject;
use plimsoll_replay::{replay, GroupSettings, Outcome, Settings};
use plimsoll_sim::observer::Stop;
use plimsoll_sim::{GroupId, Observer, TaskId};
use plimsoll_stats::percentile_ns;
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// A thread that ran within this before the quota ended ran at once with it: a tick of the slowest usual clock, at
/// which the kernel notices that a quota is used up.
const AT_ONCE_NS: u64 = 4_000_000;

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Explanation {
    pub limits: Limits,
    /// CPUs used under the limit.
    pub cpus: f64,
    /// CPUs used as recorded.
    pub recorded_cpus: f64,
    pub periods: u64,
    pub throttled_periods: u64,
    /// Sum over the CPUs that were throttled.
    pub throttled_ns: u64,
    /// CPUs on which the group ran as its quota ended: on average, and at most.
    pub at_once: f64,
    pub at_once_most: usize,
    /// These threads by name: in what share of the ends of a quota one of them ran, most often first.
    pub threads: Vec<(String, f64)>,
    pub requests: u64,
    /// Those that were under way while the group was throttled on some CPU.
    pub waited: u64,
    /// How long each of them shared with a throttling, ns: the average, and the longest.
    pub wait_ns: f64,
    pub wait_most_ns: u64,
    /// 0 without requests, as without any limit.
    pub p99_ns: u64,
    /// The same without any limit.
    pub free_p99_ns: u64,
    /// Other settings: a burst, another period, more CPU.
    pub instead: Vec<Instead>,
}

/// What another setting would have given.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Instead {
    pub limits: Limits,
    pub throttled: f64,
    pub p99_ns: u64,
}

/// Explains the throttling of the source's group under `limits`, which have a quota.
pub fn explain(source: &Source, limits: Limits) -> Result<Explanation, PlanError> {
    let program = &source.program;
    let target = program.target as usize;
    let with = |limits: Limits| {
        let mut settings = Settings::unrecorded(program);
        settings.groups[target] = limits.into();
        settings
    };
    let run = |limits: Limits| source.replay(&with(limits));
    let below = (0..program.groups.len() as u32).filter(|group| is_below(program, *group));
    let mut ends = Ends::new(GroupId(program.target), below.map(GroupId).collect());
    let outcome = replay(program, &source.machine, &with(limits), Some(&mut ends))?;
    ends.close(outcome.end_ns);
    let free = run(Limits {
        quota_us: None,
        burst_us: 0,
        ..limits
    })?;
    let p99 = |outcome: &Outcome| percentile_ns(&outcome.latencies(None), 99.0);
    let others: Vec<Limits> = alternatives(limits).into_iter().map(|s| s.into()).collect();
    let instead = others.par_iter().map(|&limits| {
        let outcome = run(limits)?;
        Ok(Instead {
            limits,
            throttled: measure(program, &outcome, &Subject::Throttled).unwrap_or(0.0),
            p99_ns: p99(&outcome),
        })
    });
    let instead = instead.collect::<Result<Vec<_>, PlanError>>()?;
    let stat = outcome.groups[target].stat.unwrap_or_default();
    let waits: Vec<u64> = outcome
        .requests
        .iter()
        .map(|r| ends.shared_ns(r.begin_ns, r.begin_ns + r.latency_ns))
        .filter(|ns| *ns > 0)
        .collect();
    let count = ends.at_once.len().max(1) as f64;
    let mut threads: Vec<(String, f64)> = ends
        .names
        .iter()
        .map(|(name, times)| (name.clone(), *times as f64 / count))
        .collect();
    threads.sort_by(|a, b| b.1.total_cmp(&a.1));
    Ok(Explanation {
        limits,
        cpus: outcome.groups[target].cpus,
        recorded_cpus: program.groups[target].work_ns as f64 / program.duration_ns.max(1) as f64,
        periods: stat.nr_periods,
        throttled_periods: stat.nr_throttled,
        throttled_ns: stat.throttled_ns,
        at_once: ends.at_once.iter().sum::<usize>() as f64 / count,
        at_once_most: ends.at_once.iter().copied().max().unwrap_or(0),
        threads,
        requests: outcome.requests.len() as u64,
        waited: waits.len() as u64,
        wait_ns: waits.iter().sum::<u64>() as f64 / waits.len().max(1) as f64,
        wait_most_ns: waits.iter().copied().max().unwrap_or(0),
        p99_ns: p99(&outcome),
        free_p99_ns: p99(&free),
        instead,
    })
}

/// The same CPUs with bursts and with other periods, then more CPUs.
fn alternatives(own: Limits) -> Vec<GroupSettings> {
    let own: GroupSettings = own.into();
    let quota_us = own.quota_us.unwrap_or(0);
    let cpus = quota_us as f64 / own.period_us as f64;
    let mut found = Vec::new();
    let bursts = [quota_us / 2, quota_us]
        .into_iter()
        .filter(|us| *us > own.burst_us);
    found.extend(bursts.map(|burst_us| GroupSettings { burst_us, ..own }));
    for period_us in [10_000, 50_000, 100_000, 500_000, 1_000_000] {
        let quota_us = (cpus * period_us as f64).round() as u64;
        // The kernel takes no quota below 1 ms.
        if period_us != own.period_us && quota_us >= 1_000 {
            found.push(GroupSettings {
                quota_us: Some(quota_us),
                period_us,
                burst_us: 0,
                ..own
            });
        }
    }
    found.extend([125, 150, 200].map(|percent| GroupSettings {
        quota_us: Some(quota_us * percent / 100),
        ..own
    }));
    found
}

/// Watches the ends of the group's quota.
struct Ends {
    group: GroupId,
    /// It and those below it.
    below: Vec<GroupId>,
    names_of: HashMap<u32, String>,
    /// By CPU: which thread of the group runs there, since when; and which ran there last, until when.
    running: BTreeMap<u32, TaskId>,
    last: BTreeMap<u32, (TaskId, u64)>,
    /// CPUs on which the group is throttled.
    open: usize,
    since_ns: u64,
    spans: Vec<(u64, u64)>,
    at_once: Vec<usize>,
    names: BTreeMap<String, u64>,
}

impl Ends {
    fn new(group: GroupId, below: Vec<GroupId>) -> Ends {
        Ends {
            group,
            below,
            names_of: HashMap::new(),
            running: BTreeMap::new(),
            last: BTreeMap::new(),
            open: 0,
            since_ns: 0,
            spans: Vec::new(),
            at_once: Vec::new(),
            names: BTreeMap::new(),
        }
    }

    fn close(&mut self, now_ns: u64) {
        if self.open > 0 {
            self.spans.push((self.since_ns, now_ns.max(self.since_ns)));
        }
    }

    /// How much of a stretch of time lies within throttlings.
    fn shared_ns(&self, from_ns: u64, to_ns: u64) -> u64 {
        let first = self.spans.partition_point(|(_, end)| *end <= from_ns);
        let met = self.spans[first..].iter().take_while(|(start, _)| *start < to_ns);
        met.map(|(start, end)| end.min(&to_ns) - start.max(&from_ns))
            .sum()
    }
}

impl Observer for Ends {
    fn task(&mut self, _: u64, task: TaskId, name: &str, _: GroupId) {
        // Threads of one kind are numbered, and have their id behind a slash.
        let comm = name.rsplit_once('/').map_or(name, |(comm, _)| comm);
        let kind = comm.trim_end_matches(|c: char| c.is_ascii_digit());
        self.names_of.insert(task.0, kind.to_string());
    }

    fn run(&mut self, _: u64, cpu: u32, task: TaskId, group: GroupId) {
        if self.below.contains(&group) {
            self.running.insert(cpu, task);
        }
    }

    fn stop(&mut self, now_ns: u64, cpu: u32, task: TaskId, _: Stop) {
        if self.running.remove(&cpu) == Some(task) {
            self.last.insert(cpu, (task, now_ns));
        }
    }

    fn throttle(&mut self, now_ns: u64, group: GroupId, _: u32) {
        if group != self.group {
            return;
        }
        self.open += 1;
        if self.open > 1 {
            return;
        }
        self.since_ns = now_ns;
        let mut at_once: BTreeMap<u32, TaskId> = self.running.clone();
        for (cpu, (task, until_ns)) in &self.last {
            if until_ns + AT_ONCE_NS >= now_ns {
                at_once.entry(*cpu).or_insert(*task);
            }
        }
        self.at_once.push(at_once.len());
        let mut names: Vec<&String> = at_once.values().filter_map(|t| self.names_of.get(&t.0)).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            *self.names.entry(name.clone()).or_default() += 1;
        }
    }

    fn unthrottle(&mut self, now_ns: u64, group: GroupId, _: u32) {
        if group != self.group || self.open == 0 {
            return;
        }
        self.open -= 1;
        if self.open == 0 {
            self.spans.push((self.since_ns, now_ns));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_shares_with_throttlings_what_lies_within_them() {
        let mut ends = Ends::new(GroupId(1), Vec::new());
        ends.spans = vec![(10, 20), (30, 40), (50, 60)];
        for (from, to, shared) in [
            (0, 5, 0),
            (0, 12, 2),
            (12, 35, 13),
            (20, 30, 0),
            (0, 100, 30),
            (55, 100, 5),
        ] {
            assert_eq!(ends.shared_ns(from, to), shared, "{from} to {to}");
        }
    }
}
