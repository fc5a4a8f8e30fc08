//! Runs scenarios, several at once, with a progress line while they do.
use crate::exit::Failure;
use crate::output::{lost, Whole};
use crate::report::Run;
use crate::timeline::Timeline;
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_scenario::Scenario;
use plimsoll_sim::{Results, Simulation};
use rayon::prelude::*;
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
    /// Check the invariants at every event.
    pub check: bool,
}

/// Runs all jobs, as many at once as there are CPUs; runs come back in the order of the jobs. Simulations share nothing,
/// so the results do not depend on who is faster.
pub fn run_all(jobs: &[Job]) -> Result<Vec<Run>, Failure> {
    let progress = ProgressBar::new(jobs.len() as u64);
    let style = ProgressStyle::with_template("{spinner} simulating {pos}/{len} {elapsed} {wide_msg}");
    progress.set_style(style.expect("a constant template"));
    progress.enable_steady_tick(Duration::from_millis(100));
    let runs: Result<Vec<(Run, u64)>, Failure> = jobs
        .par_iter()
        .map(|job| {
            progress.set_message(job.label.clone());
            let run = run(job);
            progress.inc(1);
            run
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

/// A run, and when it ended.
fn run(job: &Job) -> Result<(Run, u64), Failure> {
    let scenario = &job.scenario;
    let mut config = scenario.config();
    config.check |= job.check;
    let refused = |error: plimsoll_sim::ConfigError| Failure::Input(format!("{}: {error}", scenario.name));
    let simulation = Simulation::new(config).map_err(refused)?;
    let results = match &job.trace {
        None => simulation.run(None),
        Some(path) => traced(simulation, scenario, path).map_err(|error| lost(path, &error))?,
    };
    Ok((Run::new(&job.label, scenario, &results), results.end_ns))
}

fn traced(simulation: Simulation, scenario: &Scenario, path: &Path) -> std::io::Result<Results> {
    let groups = std::iter::once("/").chain(scenario.groups.iter().map(|group| group.name.as_str()));
    let nr_cpus = scenario.machine.topology.nr_cpus() as usize;
    let whole = Whole::create(path)?;
    let out = BufWriter::new(&whole.file);
    let mut timeline = Timeline::new(out, nr_cpus, groups.map(str::to_string).collect())?;
    let results = simulation.run(Some(&mut timeline));
    timeline.finish(results.end_ns)?;
    whole.finish()?;
    Ok(results)
}
