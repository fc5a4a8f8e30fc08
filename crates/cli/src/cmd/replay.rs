// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plimsoll simulate --replay`: a recorded workload, as it was and under other limits.
use crate::exit::{Failure, Outcome, Result};
use crate::output;
use plimsoll_plan::document::Replay;
use plimsoll_plan::{
    figure, Range, Recordings, Replayed, Replicates, SelfCheck, Source, SourceError, Subject, REPLICATES,
};
use plimsoll_replay::{describe_machine, Pacing, Program, Settings};
use plimsoll_report::{text, Table};
use plimsoll_stats::percentile_ns;
use plimsoll_trace::{RequestSpec, TraceError};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[derive(clap::Args)]
#[group(id = "replay_args")]
pub struct Args {
    /// Replay a recorded trace instead of a scenario. Prints whether the replay shows what was recorded (exit code 1: it
    /// does not), and with --set what the other limits would have done. May be repeated for several recordings of one
    /// service: ranges then span what differs between them, as in `plimsoll plan`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["scenario", "compare", "duration_ms", "trace", "per_cpu", "check"])]
    pub replay: Vec<PathBuf>,

    /// With --replay: the group that matters [default: the lowest that holds all busy groups, else the one with the most CPU
    /// time]
    #[arg(long, value_name = "PATH", conflicts_with = "scenario")]
    group: Option<String>,

    /// With --replay: what a request is, as in `plimsoll record` [default: as recorded, else as the service's sockets
    /// show it, else each wake-up chain]
    #[arg(long, value_name = "SPEC", conflicts_with = "scenario")]
    request: Option<RequestSpec>,
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Failure {
        match &error {
            // One that is there and fails has been given a file that it cannot read.
            SourceError::Trace(TraceError::Tool { command, .. }) if !can_run(command) => {
                Failure::Machine(error.to_string())
            }
            _ => Failure::Input(error.to_string()),
        }
    }
}

/// Whether this machine has the program that a command line begins with.
fn can_run(command: &str) -> bool {
    let program = command.split(' ').next().unwrap_or(command);
    let mut version = Command::new(program);
    version.arg("--version").stdin(Stdio::null());
    version.stdout(Stdio::null()).stderr(Stdio::null());
    version.status().is_ok()
}

impl From<plimsoll_replay::SettingsError> for Failure {
    fn from(error: plimsoll_replay::SettingsError) -> Failure {
        Failure::Input(error.to_string())
    }
}

impl From<plimsoll_plan::PlanError> for Failure {
    fn from(error: plimsoll_plan::PlanError) -> Failure {
        Failure::Input(error.to_string())
    }
}

pub fn run(args: &Args, sets: &[String], seed: Option<u64>, json: Option<&Path>) -> Result {
    let recordings = Recordings::read(&args.replay, args.group.as_deref(), args.request.as_ref())?;
    let mut all = Vec::new();
    for source in &recordings.sources {
        all.push(Replayed::of(source, sets, seed)?);
    }
    let replicates = match sets {
        [] => None,
        _ => {
            let changed: Vec<Settings> = all.iter().map(|r| r.changed.clone()).collect();
            Some(Replicates::run(&recordings, &changed, REPLICATES)?)
        }
    };
    let median = &all[recordings.median];
    let other = replicates.as_ref().map(|r| r.first(recordings.median));
    let holds = all.iter().all(|r| r.check.holds());
    let outcome = if holds { Outcome::Done } else { Outcome::Missed };

    if !output::json(json, || {
        text(&Replay::of(&recordings, &all, sets, replicates.as_ref()))
    })? {
        return Ok(outcome);
    }
    for Replayed { source, check, .. } in &all {
        out!("{}", heading(source));
        outln!(
            "\nself-check: the replay under the recorded settings\n{}",
            check_table(check)
        );
        if !check.holds() {
            outln!("The replay does not show what was recorded: do not rely on what follows from it.");
        }
    }
    if let (Some(other), Some(replicates)) = (other, &replicates) {
        outln!(
            "with {}\n{}",
            sets.join(" "),
            changes(&median.source.program, &median.same, other)
        );
        outln!(
            "{}\nnine of ten runs\n{}",
            recordings.describe(),
            ranges(replicates)
        );
        let few = recordings.few_requests("p99 latency", None);
        if let Some(few) = few.filter(|_| median.source.no_requests.is_none()) {
            outln!("warning: {few}");
        }
    }
    Ok(outcome)
}

fn ranges(replicates: &Replicates) -> Table {
    let mut table = Table::new(&["", "from", "middle", "to", "unit"]);
    let mut add = |name: &str, unit: &str, range: Option<Range>, scale: f64| {
        let [low, middle, high] = match range {
            Some(r) => [r.low, r.middle, r.high].map(|v| figure(v * scale)),
            None => ["-"; 3].map(String::from),
        };
        table.row(vec![name.into(), low, middle, high, unit.into()]);
    };
    add("p50 latency", "ms", replicates.percentile(50.0), 1e-6);
    add("p99 latency", "ms", replicates.percentile(99.0), 1e-6);
    add("CPU use", "CPUs", replicates.cpus(), 1.0);
    add(
        "throttled periods",
        "%",
        replicates.range(&Subject::Throttled),
        100.0,
    );
    table
}

/// What the trace is and how it was understood.
pub fn heading(source: &Source) -> String {
    let program = &source.program;
    let mut text = format!(
        "{}: {:.3} s, {} switches, {} threads; replay program of {:.1} MB\nmachine: {}\ngroup: {}\n",
        source.file,
        program.duration_ns as f64 / 1e9,
        program.switches,
        program.threads.len(),
        program.memory_bytes() as f64 / 1e6,
        describe_machine(&source.machine),
        source.target_path(),
    );
    let request = source.definition();
    if let Some(why) = &source.no_requests {
        text += &format!("requests: none: {why}\n");
    }
    for class in &program.classes {
        text += &format!(
            "requests ({request}): {}: {} closed loop (the client waits), {} open loop (arrivals keep their times)\n",
            class.name, class.closed, class.open
        );
    }
    if let Some(seen) = program.sockets {
        text += &format!("connections with requests: {}", seen.connections);
        for (count, what) in [
            (
                seen.overlapping,
                "requests overlapped on theirs: their latency is that of its busy time",
            ),
            (seen.in_parts, "requests came in parts, or overlapped"),
            (seen.unanswered, "without an answer, not counted"),
            (seen.unseen, "answered by no recorded thread, not counted"),
        ] {
            if count > 0 {
                text += &format!("; {count} {what}");
            }
        }
        text += "\n";
    }
    if !program.answered_ns.is_empty() {
        let ms = |percent| figure(percentile_ns(&program.answered_ns, percent) as f64 / 1e6);
        text += &format!(
            "asked of others that are not recorded: {} answers, half of them within {} ms, 99 of 100 within {} ms: no limit changes that\n",
            program.answered_ns.len(),
            ms(50.0),
            ms(99.0)
        );
    }
    text += &format!(
        "work that arrivals set off which keep their times: {:.1}% of the group's CPU time\n",
        program.open_share() * 100.0
    );
    // Threads of one name that are woken alike are one line.
    let mut pacings: Vec<(&str, &str, Pacing, u64)> = Vec::new();
    for (name, kind, pacing, count) in &program.pacings {
        match pacings
            .iter_mut()
            .find(|p| (p.0, p.1, p.2) == (name, *kind, *pacing))
        {
            Some(same) => same.3 += count,
            None => pacings.push((name, kind, *pacing, *count)),
        }
    }
    pacings.sort_by_key(|p| std::cmp::Reverse(p.3));
    for (name, kind, pacing, count) in pacings.into_iter().take(4) {
        let how = match pacing {
            Pacing::Open => "at the times of the recording",
            Pacing::Closed => "after the work before",
        };
        text += &format!("wake-ups by {kind}: {name}: {count}, {how}\n");
    }
    for doubt in source.doubts() {
        text += &format!("doubt: {doubt}\n");
    }
    text
}

pub fn check_table(check: &SelfCheck) -> Table {
    let mut table = Table::new(&["", "recorded", "replayed", "difference", "allowed", ""]);
    for c in &check.checks {
        let unit = |v: f64| format!("{} {}", figure(v), c.unit).trim_end().to_string();
        table.row(vec![
            c.name.clone(),
            unit(c.recorded),
            unit(c.replayed),
            format!("{:+.1}%", c.difference() * 100.0),
            match (c.tolerance, c.points) {
                (None, _) => "-".into(),
                (Some(share), 0.0) => format!("{:.0}%", share * 100.0),
                (Some(share), points) => {
                    let unit = if c.unit == "%" { "points" } else { c.unit };
                    format!("{:.0}% or {points} {unit}", share * 100.0)
                }
            },
            if c.holds() { "" } else { "MISSED" }.into(),
        ]);
    }
    table
}

fn changes(program: &Program, same: &plimsoll_replay::Outcome, other: &plimsoll_replay::Outcome) -> Table {
    let mut table = Table::new(&["", "recorded settings", "changed", "unit"]);
    let runs = [same, other];
    let latencies = runs.map(|o| o.latencies(None));
    let mut add = |name: &str, unit: &str, values: [f64; 2]| {
        table.row(vec![
            name.into(),
            figure(values[0]),
            figure(values[1]),
            unit.into(),
        ]);
    };
    add("requests", "", latencies.each_ref().map(|l| l.len() as f64));
    let percents: &[f64] = match program.nr_requests() {
        0 => &[],
        _ => &[50.0, 90.0, 99.0, 100.0],
    };
    for &percent in percents {
        let name = if percent == 100.0 {
            "max latency".into()
        } else {
            format!("p{percent} latency")
        };
        add(
            &name,
            "ms",
            latencies
                .each_ref()
                .map(|l| percentile_ns(l, percent) as f64 / 1e6),
        );
    }
    let target = program.target as usize;
    add("CPU use", "CPUs", runs.map(|o| o.groups[target].cpus));
    add(
        "throttled periods",
        "%",
        runs.map(|o| o.groups[target].throttled.unwrap_or(0.0) * 100.0),
    );
    let throttled =
        |o: &plimsoll_replay::Outcome| o.groups[target].stat.map_or(0.0, |s| s.throttled_ns as f64 / 1e6);
    add("throttled time", "ms", runs.map(throttled));
    add("recorded work done", "%", runs.map(|o| o.work_done * 100.0));
    add("simulated time", "s", runs.map(|o| o.end_ns as f64 / 1e9));
    table
}
