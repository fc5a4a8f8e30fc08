// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plimsoll simulate`: runs a scenario, or two side by side.
use crate::exit::{Failure, Outcome, Result};
use crate::picture::Window;
use crate::simulate::{run_all, Job};
use crate::{number, output};
use plimsoll_report::{tables, Report};
use plimsoll_scenario::find::machine_file;
use plimsoll_scenario::{Problems, Scenario};
use plimsoll_trace::is_device;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "Examples:
  plimsoll simulate scenarios/burst.toml
          what the groups, workloads and CPUs of a scenario do
  plimsoll simulate scenarios/burst.toml --set group.bench.burst_us=0
          the same beside what it is without burst
  plimsoll simulate before.toml --compare after.toml --json result.json
          two scenarios side by side, and the figures for a program
  plimsoll simulate scenarios/steal.toml --trace steal.pftrace
          a timeline for https://ui.perfetto.dev
  plimsoll simulate fibtest-8
          what slices that expire cost: one of fibtest-4, fibtest-8 and fibtest-16
  plimsoll simulate --replay web.trace --set group.web.quota_us=50000
          a recorded workload under another limit, beside what was recorded";

/// Simulate a scenario and print what its groups, workloads and CPUs do
///
/// The same scenario and seed give the same bytes on every machine. With --set, the scenario is run as it is and with
/// the settings, and both are printed side by side; with --compare, two scenarios are.
/// The book describes the file (docs/src/how-to/scenario.md) and the results (docs/src/reference/results.md).
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = EXAMPLES)]
pub struct Args {
    /// Scenario file, or the name of an example: throttled, burst, slices, steal, load, headroom, fibtest-4, fibtest-8, fibtest-16
    scenario: Option<PathBuf>,

    #[command(flatten)]
    replay: crate::cmd::replay::Args,

    /// A second scenario to print beside the first
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,

    /// Change a value, as in group.web.burst_us=0; may be repeated. Without --compare, the scenario as it is runs beside
    /// the changed one; with --compare, both are changed
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,

    /// Seed of the random streams, instead of the scenario's
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true, value_parser = number::within(number::SEEDS))]
    seed: Option<u64>,

    /// Simulated time after the warm-up, in milliseconds, instead of the scenario's
    #[arg(long, value_name = "MS", allow_hyphen_values = true, value_parser = number::within(DURATIONS_MS))]
    duration_ms: Option<u64>,

    /// Write the results as JSON; without FILE, or with "-", to the standard output instead of the tables
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,

    /// Write a timeline for the Perfetto UI. Two runs write two files, FILE with the run's label in its name
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Draw part of the run as SVG: what ran on each CPU, when groups were throttled, what limited groups had left to run.
    /// Two runs write two files, as for --trace
    #[arg(long, value_name = "FILE", conflicts_with = "trace")]
    picture: Option<PathBuf>,

    /// With --picture: the part to draw, in ms from the end of the warm-up
    #[arg(long, value_name = "FROM..TO", default_value = "0..500", requires = "picture", value_parser = window)]
    window: std::ops::Range<u64>,

    /// Print every CPU, not only their sum
    #[arg(long)]
    per_cpu: bool,

    /// Check the simulator's invariants at every event (slow)
    #[arg(long)]
    check: bool,
}

/// `FROM..TO`, in ms.
fn window(text: &str) -> std::result::Result<std::ops::Range<u64>, String> {
    let bounds = text.split_once("..").and_then(|(from, to)| {
        let (from, to) = (from.parse().ok()?, to.parse().ok()?);
        (from < to && to <= *DURATIONS_MS.end()).then_some(from..to)
    });
    bounds.ok_or_else(|| format!("allowed: FROM..TO in ms, as 0..500, up to {}", DURATIONS_MS.end()))
}

/// As scenario files take it.
const DURATIONS_MS: std::ops::RangeInclusive<u64> = 1..=86_400_000;

/// What to give where no scenario is. `--json` takes a file, and may have taken the scenario for it.
fn no_scenario(json: Option<&Path>) -> String {
    let examples: Vec<&str> = plimsoll_scenario::find::scenarios()
        .map(|(name, _)| name)
        .collect();
    let taken = json.filter(|path| *path != Path::new("-")).map(|path| {
        format!(
            "; --json took \"{}\" as its file: put --json last",
            path.display()
        )
    });
    format!(
        "no scenario given; allowed: a file, an example ({}), or --replay TRACE{}",
        examples.join(", "),
        taken.unwrap_or_default()
    )
}

pub fn run(args: &Args) -> Result {
    let Some(scenario) = &args.scenario else {
        if args.replay.replay.is_empty() {
            return Err(Failure::Input(no_scenario(args.json.as_deref())));
        }
        output::check(&args.replay.replay, args.json.as_deref(), [])?;
        return crate::cmd::replay::run(&args.replay, &args.settings, args.seed, args.json.as_deref());
    };
    // For all runs, as opposed to --set, which makes a second one.
    let mut common = Vec::new();
    common.extend(args.seed.map(|seed| format!("seed={seed}")));
    common.extend(args.duration_ms.map(|ms| format!("duration_ms={ms}")));
    let changed: Vec<String> = common.iter().chain(&args.settings).cloned().collect();
    let job = |label: &str, scenario: Scenario| Job {
        label: label.to_string(),
        scenario,
        trace: None,
        picture: None,
        check: args.check,
    };
    let mut jobs = match &args.compare {
        Some(other) => {
            let (a, b) = labels(scenario, other);
            let [one, two] = load_both(scenario, other, &changed)?;
            vec![job(&a, one), job(&b, two)]
        }
        None if args.settings.is_empty() => vec![job("run", Scenario::load(scenario, &common)?)],
        None => {
            let [base, changed] = Scenario::load_with(scenario, [&common, &changed])?;
            vec![job("base", base), job("changed", changed)]
        }
    };
    let several = jobs.len() > 1;
    let drawn = args.trace.as_ref().or(args.picture.as_ref());
    if let Some(path) = drawn.filter(|path| several && is_device(path)) {
        let message = format!(
            "{}: two runs write two files, and their names are made from this one; allowed: a file",
            path.display()
        );
        return Err(Failure::Input(message));
    }
    for job in &mut jobs {
        job.trace = args
            .trace
            .as_ref()
            .map(|path| trace_path(path, several.then_some(&job.label)));
        let warmup_ns = job.scenario.warmup_ns;
        let part = Window {
            from_ns: warmup_ns + args.window.start * 1_000_000,
            to_ns: warmup_ns + args.window.end * 1_000_000,
            zero_ns: warmup_ns,
        };
        job.picture = args
            .picture
            .as_ref()
            .map(|path| (trace_path(path, several.then_some(&job.label)), part));
    }
    crate::signals::leave_no_partials();
    let scenarios = || args.scenario.iter().chain(&args.compare);
    let machines = scenarios()
        .flat_map(|path| jobs.iter().map(move |job| (path, &job.scenario.machine_name)))
        .filter_map(|(path, machine)| machine_file(machine, path.parent().unwrap_or(Path::new(""))));
    let machines: Vec<PathBuf> = machines.collect();
    output::check(
        scenarios().chain(&machines),
        args.json.as_deref(),
        jobs.iter().filter_map(|job| {
            let picture = job.picture.as_ref().map(|(path, _)| path);
            job.trace.as_ref().or(picture)
        }),
    )?;
    let mut notes: Vec<String> = Vec::new();
    for note in jobs.iter().filter_map(|job| job.scenario.kernel.as_ref()?.note()) {
        if !notes.contains(&note) {
            errln!("note: {note}");
            notes.push(note);
        }
    }
    let report = Report::new(run_all(&jobs)?);
    for path in jobs.iter().filter_map(|job| job.trace.as_ref()) {
        errln!(
            "timeline: {} (open it in https://ui.perfetto.dev)",
            path.display()
        );
    }
    if !output::json(args.json.as_deref(), || report.json())? {
        return Ok(Outcome::Done);
    }
    match &report.runs[..] {
        [one] => out!("{}", tables::run(one, args.per_cpu)),
        [a, b] => out!("{}", tables::compare(a, b, args.per_cpu)),
        _ => unreachable!("one or two jobs"),
    }
    Ok(Outcome::Done)
}

/// Two scenarios, or what is wrong with both.
fn load_both(a: &Path, b: &Path, settings: &[String]) -> std::result::Result<[Scenario; 2], Problems> {
    match (Scenario::load(a, settings), Scenario::load(b, settings)) {
        (Ok(a), Ok(b)) => Ok([a, b]),
        (Err(Problems(a)), Err(Problems(mut b))) => {
            // A setting that is wrong is so in both.
            b.retain(|problem| !a.contains(problem));
            Err(Problems([a, b].concat()))
        }
        (Err(one), Ok(_)) | (Ok(_), Err(one)) => Err(one),
    }
}

/// Names of two scenarios in a table: their files' names, if these differ.
fn labels(a: &Path, b: &Path) -> (String, String) {
    let stem = |path: &Path| {
        path.file_stem()
            .map_or("?".to_string(), |stem| stem.to_string_lossy().to_string())
    };
    match (stem(a), stem(b)) {
        (a, b) if a != b => (a, b),
        _ => ("first".to_string(), "second".to_string()),
    }
}

/// Where a run's timeline goes: `x.pftrace`, or `x.base.pftrace` for one run of two.
fn trace_path(path: &Path, label: Option<&String>) -> PathBuf {
    let Some(label) = label else {
        return path.to_path_buf();
    };
    match path.extension() {
        Some(extension) => path.with_extension(format!("{label}.{}", extension.to_string_lossy())),
        None => path.with_extension(label),
    }
}
