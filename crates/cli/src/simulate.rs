// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs scenarios, several at once, with a progress line while they do.
use crate::exit::Failure;
use crate::output::{lost, Whole};
use crate::picture::{Picture, Window};
use crate::progress::Watched;
use crate::timeline::Timeline;
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use plimsoll_report::Run;
use plimsoll_scenario::Scenario;
use plimsoll_sim::{Observer, Results, RunError, Simulation};
use rayon::prelude::*;
use std::fmt::Write;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A scenario to run, and what to do on the way.
pub struct Job {
    /// What its run is called in tables.
    pub label: String,
    pub scenario: Scenario,
    /// Where its timeline goes.
    pub trace: Option<PathBuf>,
    /// Where a picture of part of it goes, in place of a timeline.
    pub picture: Option<(PathBuf, Window)>,
    /// Check the invariants at every event.
    pub check: bool,
}

/// Runs all jobs, as many at once as there are CPUs; runs come back in the order of the jobs. Simulations share nothing,
/// so the results do not depend on which finishes first.
pub fn run_all(jobs: &[Job]) -> Result<Vec<Run>, Failure> {
    let progress = ProgressBar::new(jobs.iter().map(|job| latest_end_ns(&job.scenario)).sum());
    let early = jobs.iter().any(|job| job.scenario.stop_when_done);
    let style = ProgressStyle::with_template("{spinner} simulated {share}, {elapsed} {wide_msg}")
        .expect("a constant template")
        .with_key("share", move |state: &ProgressState, text: &mut dyn Write| {
            let _ = text.write_str(&share(state.pos(), state.len().unwrap_or(0), early));
        });
    progress.set_style(style);
    progress.enable_steady_tick(Duration::from_millis(100));
    let runs: Result<Vec<(Run, u64)>, Failure> = jobs
        .par_iter()
        .map(|job| {
            progress.set_message(job.label.clone());
            run(job, &progress)
        })
        .collect();
    progress.finish_and_clear();
    let runs = runs?;
    for (run, end_ns) in runs.iter().filter(|(run, _)| run.measured_ns == 0) {
        errln!(
            "warning: {}: every task had ended at {:.3} ms, within the warm-up (warmup_ms: {}): nothing was measured",
            run.scenario,
            *end_ns as f64 / 1e6,
            run.warmup_ns / 1_000_000
        );
    }
    Ok(runs.into_iter().map(|(run, _)| run).collect())
}

/// How much of the simulated time is over. Runs that end `early`, with their tasks, say when only as they do.
fn share(now_ns: u64, end_ns: u64, early: bool) -> String {
    let (now_s, end_s) = (now_ns as f64 / 1e9, end_ns as f64 / 1e9);
    match early {
        true => format!("{now_s:.2} of at most {end_s:.2} s"),
        false => format!("{now_s:.2} of {end_s:.2} s, {:.0}%", now_s / end_s * 100.0),
    }
}

fn latest_end_ns(scenario: &Scenario) -> u64 {
    scenario.warmup_ns + scenario.duration_ns
}

/// A run, and when it ended.
fn run(job: &Job, progress: &ProgressBar) -> Result<(Run, u64), Failure> {
    let scenario = &job.scenario;
    let mut config = scenario.config();
    config.check |= job.check;
    let refused = |error: plimsoll_sim::ConfigError| Failure::Input(format!("{}: {error}", scenario.name));
    let simulation = Simulation::new(config).map_err(refused)?;
    let stuck = |error: RunError| Failure::Input(format!("{}: {error}", scenario.name));
    let results = match (&job.trace, &job.picture) {
        (None, None) => watched(simulation, scenario, progress, None).map_err(stuck)?,
        (Some(path), _) => traced(simulation, scenario, progress, path)
            .map_err(|error| lost(path, &error))?
            .map_err(stuck)?,
        (None, Some((path, window))) => {
            let mut picture = Picture::new(*window, nr_cpus(scenario), group_names(scenario));
            let results = watched(simulation, scenario, progress, Some(&mut picture)).map_err(stuck)?;
            let title = [std::slice::from_ref(&scenario.name), &scenario.settings[..]]
                .concat()
                .join(", ");
            crate::output::write(path, picture.svg(&title, results.end_ns))?;
            results
        }
    };
    Ok((Run::new(&job.label, scenario, &results), results.end_ns))
}

/// Without a terminal no progress is drawn, and nothing is spent on it.
fn watched<'a>(
    simulation: Simulation,
    scenario: &Scenario,
    progress: &'a ProgressBar,
    observer: Option<&'a mut dyn Observer>,
) -> Result<Results, RunError> {
    if progress.is_hidden() {
        return simulation.run(observer);
    }
    let mut watched = Watched::new(progress, latest_end_ns(scenario), observer);
    let results = simulation.run(Some(&mut watched));
    watched.finish();
    results
}

fn nr_cpus(scenario: &Scenario) -> usize {
    scenario.machine.topology.nr_cpus() as usize
}

/// In the order of their numbers, the root first.
fn group_names(scenario: &Scenario) -> Vec<String> {
    let groups = scenario.groups.iter().map(|group| group.name.clone());
    std::iter::once("/".to_string()).chain(groups).collect()
}

fn traced(
    simulation: Simulation,
    scenario: &Scenario,
    progress: &ProgressBar,
    path: &Path,
) -> std::io::Result<Result<Results, RunError>> {
    let whole = Whole::create(path)?;
    let out = BufWriter::new(&whole.file);
    let mut timeline = Timeline::new(out, nr_cpus(scenario), group_names(scenario))?;
    let results = watched(simulation, scenario, progress, Some(&mut timeline));
    // A run whose time stands still leaves half a timeline: it is dropped, and the file keeps what it held.
    if let Ok(results) = &results {
        timeline.finish(results.end_ns)?;
        whole.finish()?;
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_share_is_said_only_where_the_end_is_known() {
        assert_eq!(
            super::share(1_500_000_000, 6_000_000_000, false),
            "1.50 of 6.00 s, 25%"
        );
        assert_eq!(
            super::share(1_500_000_000, 6_000_000_000, true),
            "1.50 of at most 6.00 s"
        );
    }
}
