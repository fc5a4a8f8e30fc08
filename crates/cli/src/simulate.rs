//! Runs scenarios, several at once, with a progress line while they do.
use crate::exit::Failure;
use crate::report::Run;
use crate::timeline::Timeline;
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_scenario::Scenario;
use plimsoll_sim::{Results, Simulation};
use std::fs::File;
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

/// Runs all jobs, each on a thread of its own; runs come back in the order of the jobs. Simulations share nothing, so
/// the results do not depend on who is faster.
pub fn run_all(jobs: &[Job]) -> Result<Vec<Run>, Failure> {
    let progress = ProgressBar::new_spinner();
    progress
        .set_style(ProgressStyle::with_template("{spinner} {elapsed} {msg}").expect("a constant template"));
    let labels: Vec<&str> = jobs.iter().map(|job| job.label.as_str()).collect();
    progress.set_message(format!("simulating {}", labels.join(" and ")));
    progress.enable_steady_tick(Duration::from_millis(100));
    let runs = std::thread::scope(|scope| {
        let threads: Vec<_> = jobs.iter().map(|job| scope.spawn(move || run(job))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| match thread.join() {
            Ok(run) => run,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(join).collect()
    });
    progress.finish_and_clear();
    runs
}

fn run(job: &Job) -> Result<Run, Failure> {
    let scenario = &job.scenario;
    let mut config = scenario.config();
    config.check |= job.check;
    let refused = |error: plimsoll_sim::ConfigError| Failure::Input(format!("{}: {error}", scenario.name));
    let simulation = Simulation::new(config).map_err(refused)?;
    let results = match &job.trace {
        None => simulation.run(None),
        Some(path) => traced(simulation, scenario, path)
            .map_err(|error| Failure::file("write the timeline", path, &error))?,
    };
    Ok(Run::new(&job.label, scenario, &results))
}

fn traced(simulation: Simulation, scenario: &Scenario, path: &Path) -> std::io::Result<Results> {
    let groups = std::iter::once("/").chain(scenario.groups.iter().map(|group| group.name.as_str()));
    let nr_cpus = scenario.machine.topology.nr_cpus() as usize;
    let out = BufWriter::new(File::create(path)?);
    let mut timeline = Timeline::new(out, nr_cpus, groups.map(str::to_string).collect())?;
    let results = simulation.run(Some(&mut timeline));
    timeline.finish(results.end_ns)?;
    Ok(results)
}
