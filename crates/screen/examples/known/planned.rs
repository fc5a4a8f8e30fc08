// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `plan` says of a workload from a recording of it, as `plimsoll record` would write one.
#[path = "../../../replay/tests/all/common/recorder.rs"]
mod recorder;

use crate::workload::{of, Known, CPUS, GROUP, PATH, PERIOD_NS};
use plimsoll_plan::{Goal, Question, Recordings, Replicates, Subject, REPLICATES};
use plimsoll_replay::Settings;
use plimsoll_screen::{Class, Options};
use plimsoll_trace::{example, Cpu, CpuStat, Group};
use recorder::Recorder;

/// That `plan` sees: the beginning of what is sampled. One minute is too little: of seeds 9001 to 9200 some were throttled twice as often
/// in it as over the whole time.
const SECONDS: u64 = 480;

/// What replays say of burst.
pub struct Replayed {
    recordings: Recordings,
    /// Whether the replays show what was recorded.
    pub holds: bool,
    /// Burst of one quota at today's limit halves what is throttled, as `plan` replays it.
    pub profits: bool,
}

/// The class that follows from a plan, and what it gains.
pub struct Planned {
    pub class: Class,
    /// Of the 99th percentile of latency, ns.
    pub gain_ns: f64,
}

/// # Errors
/// Why it cannot be replayed.
pub fn replayed(known: &Known, seed: u64) -> Result<Replayed, String> {
    let recordings = recorded(known, seed)?;
    let (now, burst) = (throttled(&recordings, 0.0)?, throttled(&recordings, known.limit)?);
    let check = recordings.median().self_check();
    Ok(Replayed {
        holds: check.map_err(|error| error.to_string())?.holds(),
        profits: now >= Options::default().throttled_share && burst <= now / 2.0,
        recordings,
    })
}

/// The goal is what the class "bursts" promises: throttled in less than `Options::throttled_share` of the periods, or half as often
/// as was counted.
///
/// # Errors
/// Why there is no plan.
pub fn planned(known: &Known, replayed: &Replayed, counted: f64) -> Result<Planned, String> {
    let options = Options::default();
    let goal = format!(
        "throttled < {:.3}%",
        100.0 * options.throttled_share.max(counted / 2.0)
    );
    let question = Question::about(vec![goal
        .parse::<Goal>()
        .map_err(|error| format!("{error:?}"))?]);
    let answer = question
        .answer(&replayed.recordings, &|_, _| {})
        .map_err(|error| error.to_string())?;
    let (new, today) = (&answer.plan.recommended, &answer.plan.today);
    let cpus = new
        .limits
        .quota_us
        .map(|us| us as f64 / new.limits.period_us as f64);
    let free = known.limit - cpus.unwrap_or(f64::INFINITY);
    let class = match (today.meets, cpus) {
        (true, Some(cpus)) if cpus < 0.75 * known.limit && free >= options.worth_cpus => Class::TooLarge,
        (true, _) => Class::Fine,
        (false, Some(cpus)) if cpus <= 1.001 * known.limit => Class::ThrottledByBursts,
        (false, _) => Class::TooSmall,
    };
    Ok(Planned {
        class,
        gain_ns: today.p99_ns.unwrap_or(0.0) - new.p99_ns.unwrap_or(0.0),
    })
}

/// The share of throttled periods with so many CPUs' burst: the middle of what replays give whose periods lie elsewhere.
fn throttled(recordings: &Recordings, burst_cpus: f64) -> Result<f64, String> {
    let program = &recordings.median().program;
    let mut settings = Settings::unrecorded(program);
    settings.groups[program.target as usize].burst_us = (burst_cpus * PERIOD_NS as f64 / 1e3) as u64;
    let replayed = Replicates::run(recordings, &[settings], REPLICATES).map_err(|error| error.to_string())?;
    let range = replayed.range(&Subject::Throttled);
    Ok(range.ok_or("no period is counted")?.middle)
}

fn recorded(known: &Known, seed: u64) -> Result<Recordings, String> {
    let mut header = example::header(0, &[]);
    let cpu = |cpu| Cpu {
        cpu,
        ..Default::default()
    };
    header.machine.cpus = (0..CPUS).map(cpu).collect();
    header.only_below = Some(PATH.into());
    header.groups[GROUP.0 as usize] = Group {
        path: PATH.into(),
        quota_us: Some((known.limit * PERIOD_NS as f64 / 1e3) as u64),
        period_us: Some(PERIOD_NS / 1_000),
        burst_us: Some(0),
        ..Default::default()
    };
    let mut recorder = Recorder::new(header, Some(GROUP.0));
    let limits = of((known.limit, PERIOD_NS, 0.0));
    let results = known.watched(seed, limits, SECONDS, &mut recorder);
    let (mut header, events) = recorder.finish(SECONDS * 1_000_000_000);
    let stat = results.groups[GROUP.0 as usize].stat.expect("it has a limit");
    let none = CpuStat {
        nr_periods: Some(0),
        nr_throttled: Some(0),
        ..Default::default()
    };
    let group = &mut header.groups[GROUP.0 as usize];
    group.stat_end = Some(CpuStat {
        nr_periods: Some(stat.nr_periods),
        nr_throttled: Some(stat.nr_throttled),
        ..Default::default()
    });
    group.stat_start = Some(none);
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let path = folder.path().join("known.trace");
    example::write(&path, &header, &events).map_err(|error| error.to_string())?;
    Recordings::read(&[path], Some(PATH), None).map_err(|error| error.to_string())
}
