// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plimsoll demo`: what each of the five systems does to a workload that it was made for, without and with it.
use crate::exit::{Failure, Outcome, Result};
use crate::output;
use crate::simulate::{run_all, Job};
use plimsoll_report::Table;
use plimsoll_report::Value;
use plimsoll_report::{tables, Distribution, Report, Run};
use plimsoll_scenario::{find, Scenario};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Show what each of the five systems does, in seconds
///
/// Simulates the five example scenarios without and with their system. Every figure is computed in this run; the files
/// in scenarios/ describe the examples, and `plimsoll simulate NAME` prints all of one.
#[derive(clap::Args)]
pub struct Args {
    /// Write all results as JSON; without FILE, or with "-", to the standard output instead of the tables
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
}

/// An example, and what takes its system away.
struct Show {
    scenario: &'static str,
    without: &'static [&'static str],
}

const SHOWS: [Show; 5] = [
    Show {
        scenario: "burst",
        without: &["group.bench.burst_us=0"],
    },
    Show {
        scenario: "slices",
        without: &["switches.expire=true"],
    },
    Show {
        scenario: "steal",
        without: &["switches.steal=false"],
    },
    Show {
        scenario: "load",
        without: &["switches.load_publish_us=0", "switches.load_refresh_us=0"],
    },
    Show {
        scenario: "headroom",
        without: &["group.web.headroom_percent=0"],
    },
];

pub fn run(args: &Args) -> Result {
    let started = Instant::now();
    let mut jobs = Vec::new();
    for show in &SHOWS {
        let load = |label: &str, settings: &[&str]| -> std::result::Result<Job, Failure> {
            let settings: Vec<String> = settings.iter().map(|setting| setting.to_string()).collect();
            // Not by path: a file of that name that lies about is not the example.
            let found = find::example(show.scenario).expect("a test holds the names");
            let scenario = Scenario::parse(&found.name, &found.text, Path::new(""), &settings)?;
            Ok(Job {
                label: format!("{} {label}", show.scenario),
                scenario,
                trace: None,
                picture: None,
                check: false,
            })
        };
        jobs.push(load("without", show.without)?);
        jobs.push(load("with", &[])?);
    }
    let machines = jobs
        .iter()
        .filter_map(|job| find::machine_file(&job.scenario.machine_name, Path::new("")));
    let machines: Vec<PathBuf> = machines.collect();
    output::check(&machines, args.json.as_deref(), [])?;
    let report = Report::new(run_all(&jobs)?);
    if !output::json(args.json.as_deref(), || report.json())? {
        return Ok(Outcome::Done);
    }
    let [burst, slices, steal, load, headroom] =
        [0, 2, 4, 6, 8].map(|at| (&report.runs[at], &report.runs[at + 1]));
    out!("{}", burst_table(burst.0, burst.1));
    outln!("\nThe other four, without and with:\n");
    out!("{}", lines(slices, steal, load, headroom));
    let simulated_s: f64 = report
        .runs
        .iter()
        .map(|run| (run.warmup_ns + run.measured_ns) as f64 / 1e9)
        .sum();
    let events: u64 = report.runs.iter().map(|run| run.events).sum();
    outln!(
        "\n{simulated_s:.0} s of machine time, {:.1} million scheduling events, simulated in {:.1} s.",
        events as f64 / 1e6,
        started.elapsed().as_secs_f64()
    );
    outln!("More: plimsoll simulate burst --set group.bench.burst_us=0");
    Ok(Outcome::Done)
}

/// The first published table: latencies of schbench, and what the limit did.
fn burst_table(without: &Run, with: &Run) -> String {
    let latency = |run: &Run| run.workloads[0].latencies[0].distribution.clone();
    let stat = |run: &Run| run.groups[1].stat.clone();
    let (a, b) = (latency(without), latency(with));
    let mut table = Table::new(&["", "burst 0", "burst 400 ms", "change"]);
    let mut row = |name: &str, a: f64, b: f64, decimals: usize| {
        let (a, b) = (Value::Number(a, decimals), Value::Number(b, decimals));
        table.row(vec![name.to_string(), a.shown(), b.shown(), tables::change(a, b)]);
    };
    type Quantile = (&'static str, fn(&Distribution) -> u64);
    let quantiles: [Quantile; 8] = [
        ("wake-up latency p50, us", |one| one.p50_ns),
        ("p75, us", |one| one.p75_ns),
        ("p90, us", |one| one.p90_ns),
        ("p95, us", |one| one.p95_ns),
        ("p99, us", |one| one.p99_ns),
        ("p99.5, us", |one| one.p99_5_ns),
        ("p99.9, us", |one| one.p99_9_ns),
        ("max, us", |one| one.max_ns),
    ];
    for (name, of) in quantiles {
        row(name, of(&a) as f64 / 1e3, of(&b) as f64 / 1e3, 1);
    }
    row(
        "requests per s",
        without.workloads[0].counters[0].per_s,
        with.workloads[0].counters[0].per_s,
        2,
    );
    row(
        "used, CPUs",
        without.groups[1].used_cpus,
        with.groups[1].used_cpus,
        3,
    );
    if let (Some(a), Some(b)) = (stat(without), stat(with)) {
        row("nr_periods", a.nr_periods as f64, b.nr_periods as f64, 0);
        row("nr_throttled", a.nr_throttled as f64, b.nr_throttled as f64, 0);
        row(
            "throttled, ms",
            a.throttled_ns as f64 / 1e6,
            b.throttled_ns as f64 / 1e6,
            1,
        );
        row("nr_bursts", a.nr_bursts as f64, b.nr_bursts as f64, 0);
    }
    let title = "Burst: schbench, 30 threads at 500 requests of 10 ms a second, limit 700 ms per 100 ms";
    format!("{title}\n\n{table}")
}

type Pair<'a> = (&'a Run, &'a Run);

/// One line for each of the other systems.
fn lines(slices: Pair, steal: Pair, load: Pair, headroom: Pair) -> Table {
    let mut table = Table::new(&["system", "workload", "figure", "without", "with", "change"]).words(3);
    let mut line = |system: &str, workload: &str, figure: &str, (a, b): (f64, f64), decimals: usize| {
        let (a, b) = (Value::Number(a, decimals), Value::Number(b, decimals));
        let cells = [system, workload, figure].map(str::to_string);
        table.row(
            cells
                .into_iter()
                .chain([a.shown(), b.shown(), tables::change(a, b)])
                .collect(),
        );
    };
    let both = |pair: Pair, of: fn(&Run) -> f64| (of(pair.0), of(pair.1));
    let rate = |run: &Run| run.workloads[0].counters[0].per_s;
    line(
        "slices",
        "fibtest, 10 ms per 100 ms on 80 CPUs",
        "busy thread, ms per s",
        both(slices, |run| run.workloads[0].counters[0].per_s / 1e3),
        2,
    );
    line(
        "steal",
        "hackbench, 1 group on 20 CPUs",
        "messages per s",
        both(steal, rate),
        0,
    );
    line(
        "load",
        "request and response, 224 pairs on 224 CPUs",
        "transactions per s",
        both(load, rate),
        0,
    );
    line(
        "headroom",
        "web server beside an encoder, 40 CPUs",
        "mean latency, ms",
        both(headroom, |run| {
            run.workloads[0].latencies[0].distribution.mean_ns / 1e6
        }),
        2,
    );
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_of_the_demo_is_there_and_its_system_can_be_taken_away() {
        for show in &SHOWS {
            let settings: Vec<String> = show.without.iter().map(|setting| setting.to_string()).collect();
            let found =
                find::example(show.scenario).unwrap_or_else(|| panic!("no example {}", show.scenario));
            Scenario::parse(&found.name, &found.text, Path::new(""), &settings)
                .unwrap_or_else(|problems| panic!("{problems}"));
        }
    }
}
