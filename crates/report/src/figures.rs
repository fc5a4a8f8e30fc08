// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The figures that tables show, each defined once: what it is called, its unit, how many decimals it is worth.
//!
//! A table of one run has a row for each subject and a column for each figure; a comparison has a row for each figure
//! and a column for each run. Both are made from this list.
use crate::{Cpu, Distribution, Run};

/// A table of subjects of one kind.
pub struct Section {
    pub title: &'static str,
    pub subjects: Vec<Subject>,
}

/// One group, workload, latency or CPU, and its figures.
pub struct Subject {
    pub name: String,
    /// Why a figure is missing that others have; printed below the table.
    pub note: Option<&'static str>,
    pub figures: Vec<Figure>,
}

pub struct Figure {
    pub name: &'static str,
    pub unit: &'static str,
    pub value: Value,
}

/// A figure, or that there is none.
#[derive(Clone, Copy, PartialEq)]
pub enum Value {
    /// With so many decimals.
    Number(f64, usize),
    /// There is none: no limit, no such statistic.
    None,
}

impl Value {
    /// As tables have it; a hyphen where there is none.
    pub fn shown(self) -> String {
        match self {
            Value::Number(number, decimals) => format!("{number:.decimals$}"),
            Value::None => "-".to_string(),
        }
    }
}

fn figure(name: &'static str, unit: &'static str, number: f64, decimals: usize) -> Figure {
    Figure {
        name,
        unit,
        value: Value::Number(number, decimals),
    }
}

fn count(name: &'static str, unit: &'static str, number: u64) -> Figure {
    figure(name, unit, number as f64, 0)
}

fn maybe(name: &'static str, unit: &'static str, number: Option<f64>, decimals: usize) -> Figure {
    Figure {
        name,
        unit,
        value: number.map_or(Value::None, |number| Value::Number(number, decimals)),
    }
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// All tables of a run; empty ones are left out.
pub fn sections(run: &Run, per_cpu: bool) -> Vec<Section> {
    let mut sections = vec![
        groups(run),
        workloads(run),
        latencies(run),
        counters(run),
        cpus(run, per_cpu),
    ];
    sections.push(shared(run));
    sections.push(headroom(run));
    sections.retain(|section| !section.subjects.is_empty());
    sections
}

fn groups(run: &Run) -> Section {
    let subject = |group: &crate::Group| {
        let stat = |of: fn(&crate::Stat) -> f64| group.stat.as_ref().map(of);
        // A limit that changed does not hold for the whole run, so no share of it is given.
        let limit = group.limit_cpus.filter(|_| !group.limit_changes);
        let of_limit = limit.map(|limit| 100.0 * group.used_cpus / limit);
        Subject {
            name: group.name.clone(),
            note: group.limit_changes.then_some("its limit changes within the run"),
            figures: vec![
                figure("used", "CPUs", group.used_cpus, 3),
                maybe("limit", "CPUs", limit, 3),
                maybe("used", "% of limit", of_limit, 1),
                maybe("nr_periods", "", stat(|stat| stat.nr_periods as f64), 0),
                maybe(
                    "nr_throttled",
                    "periods",
                    stat(|stat| stat.nr_throttled as f64),
                    0,
                ),
                maybe("throttled", "ms", stat(|stat| ms(stat.throttled_ns)), 1),
                maybe("nr_bursts", "periods", stat(|stat| stat.nr_bursts as f64), 0),
                maybe("burst", "ms", stat(|stat| ms(stat.burst_ns)), 1),
                maybe("current_bw", "ms", stat(|stat| ms(stat.current_bw_ns)), 1),
                figure("mean delay", "us", group.run_delay.mean_ns / 1e3, 1),
                figure("max delay", "us", us(group.run_delay.max_ns), 1),
            ],
        }
    };
    // The root has nothing to show that the CPUs do not, unless tasks of its own wait.
    let shown = run
        .groups
        .iter()
        .filter(|group| group.name != "/" || group.run_delay.waits > 0);
    Section {
        title: "group",
        subjects: shown.map(subject).collect(),
    }
}

fn workloads(run: &Run) -> Section {
    let subjects = run.workloads.iter().map(|workload| Subject {
        name: workload.name.clone(),
        note: None,
        figures: [
            figure("used", "CPUs", workload.used_cpus, 3),
            count("waits", "", workload.run_delay.count),
        ]
        .into_iter()
        .chain(distribution(&workload.run_delay))
        .collect(),
    });
    Section {
        title: "workload, run delay",
        subjects: subjects.collect(),
    }
}

fn distribution(of: &Distribution) -> Vec<Figure> {
    let figures = [
        ("min", us(of.min_ns)),
        ("mean", of.mean_ns / 1e3),
        ("p50", us(of.p50_ns)),
        ("p75", us(of.p75_ns)),
        ("p90", us(of.p90_ns)),
        ("p95", us(of.p95_ns)),
        ("p99", us(of.p99_ns)),
        ("p99.5", us(of.p99_5_ns)),
        ("p99.9", us(of.p99_9_ns)),
        ("max", us(of.max_ns)),
    ];
    figures
        .into_iter()
        .map(|(name, value)| figure(name, "us", value, 1))
        .collect()
}

fn latencies(run: &Run) -> Section {
    let subjects = run.workloads.iter().flat_map(|workload| {
        workload.latencies.iter().map(|latency| Subject {
            name: format!("{} {}", workload.name, latency.name),
            note: None,
            figures: std::iter::once(count("count", "", latency.distribution.count))
                .chain(distribution(&latency.distribution))
                .collect(),
        })
    });
    Section {
        title: "latency",
        subjects: subjects.collect(),
    }
}

fn counters(run: &Run) -> Section {
    let subjects = run.workloads.iter().flat_map(|workload| {
        workload.counters.iter().map(|counter| Subject {
            name: format!("{} {}", workload.name, counter.name),
            note: None,
            figures: vec![
                count("total", "", counter.value),
                figure("rate", "per s", counter.per_s, 2),
            ],
        })
    });
    Section {
        title: "throughput",
        subjects: subjects.collect(),
    }
}

fn cpus(run: &Run, per_cpu: bool) -> Section {
    let subject = |cpu: &Cpu| Subject {
        name: cpu.cpu.map_or("all".to_string(), |number| number.to_string()),
        note: None,
        figures: vec![
            figure("busy", "%", cpu.busy_percent, 2),
            figure("idle", "ms", ms(cpu.idle_ns), 1),
            count("schedules", "", cpu.schedules),
            count("idles", "", cpu.idles),
            count("wakeups", "", cpu.wakeups),
            figure("mean slice", "us", cpu.mean_slice_ns / 1e3, 1),
            count("steals", "", cpu.steals),
            count("new-idle", "pulls", cpu.newidle_pulls),
            count("periodic", "pulls", cpu.periodic_pulls),
            count("lag", "pulls", cpu.lag_pulls),
            figure("find", "%", cpu.find_percent, 3),
        ],
    };
    let each = run.cpus.iter().filter(|_| per_cpu);
    Section {
        title: "CPU",
        subjects: each.chain([&run.cpu]).map(subject).collect(),
    }
}

fn shared(run: &Run) -> Section {
    let shared = &run.shared;
    let figures = vec![
        count("load reads", "", shared.load_reads),
        count("load writes", "", shared.load_writes),
        figure("load", "% of CPU time", shared.load_percent, 3),
        count("pool locks", "", shared.pool_locks),
        figure("pool", "ms", ms(shared.pool_ns), 2),
        count("mask writes", "", shared.mask_writes),
        figure("mask", "ms", ms(shared.mask_ns), 2),
    ];
    Section {
        title: "shared lines",
        subjects: vec![Subject {
            name: "all".to_string(),
            note: None,
            figures,
        }],
    }
}

fn headroom(run: &Run) -> Section {
    let subjects = run.headroom.iter().map(|headroom| Subject {
        name: "machine".to_string(),
        note: None,
        figures: vec![
            count("windows", "", headroom.windows),
            figure("side used", "% of CPU time", headroom.side_used_percent, 2),
            figure("idle", "% of CPU time", headroom.idle_percent, 2),
            figure("last budget", "ms", ms(headroom.budget_ns), 1),
        ],
    });
    Section {
        title: "headroom",
        subjects: subjects.collect(),
    }
}
