// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plimsoll sweep`: a scenario, replays of recordings or plans from them, under many values and seeds, on one machine or many.
use crate::exit::{Failure, Outcome, Result};
use crate::output;
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_report::Table;
use plimsoll_sweep::{
    figure, html, merge, run as run_points, summary, Columns, Plans, Points, RecordingsError, Replays, Shard,
    Simulations, Store, Summary, Sweep,
};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const EXAMPLES: &str = "Examples:
  plimsoll sweep burst.toml --out burst
          every point that is not in the folder yet, on all CPUs
  plimsoll sweep burst.toml --out /shared/burst --shard 3/8
          every eighth point: one machine of eight that share a folder
  plimsoll sweep replay mon.trace tue.trace --spec limits.toml --out replays
          a replay of each recording for each limit and seed of the file
  plimsoll sweep plan mon.trace tue.trace --spec goals.toml --out plans
          a plan for each goal, target and seed of the file
  plimsoll sweep merge burst.toml --out burst -o burst.parquet
          one table of all points; its bytes do not depend on who ran them
  plimsoll sweep report burst.parquet --html burst.html
          quantiles over the seeds, and a page with plots";

/// Run a scenario under many values and seeds
///
/// SPEC is TOML: a scenario, the values that vary (a grid or a random sample), and the seeds (docs/src/how-to/sweep.md).
/// Each point is kept as a row under a key of its content: the scenario with its values, the seed, the version. Run again,
/// only what is missing is run. Killed at any moment, what is in the folder is whole; at most the last 5 s are run again.
///
/// Exit code 130: it was told to stop; what was done is kept.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true
)]
#[command(after_help = EXAMPLES, after_long_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    place: Option<Place>,

    /// Only the points of one of N machines; I from 0 to N - 1
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
}

/// The sweep and its folder.
#[derive(clap::Args)]
struct Place {
    /// The sweep's file
    #[arg(value_name = "SPEC")]
    spec: PathBuf,

    /// Folder of the rows, made if it is not there; machines may share one
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

#[derive(clap::Subcommand)]
enum Command {
    Replay(ReplayArgs),
    Plan(PlanArgs),
    Merge(MergeArgs),
    Report(ReportArgs),
}

const PLAN_EXAMPLES: &str = "Examples:
  plimsoll sweep plan mon.trace tue.trace wed.trace --spec goals.toml --out plans
          every plan that is not in the folder yet
  plimsoll sweep merge goals.toml mon.trace tue.trace wed.trace --out plans -o plans.parquet
          one table of all plans";

/// Plan from recordings under many goals, targets and seeds
///
/// SPEC is TOML: what varies of `goal`, `group`, `request`, `for`, `max_cpus` and `min_throughput` (a grid or a random
/// sample), the seeds, and whether each plan is from all recordings or from each of them (docs/src/how-to/sweep.md). Each
/// plan is kept as a row under a key of its content: the recordings' bytes, what is asked, the seed, the version. All else
/// is as for `plimsoll sweep`.
///
/// Exit code 130: it was told to stop; what was done is kept.
#[derive(clap::Args)]
#[command(after_help = PLAN_EXAMPLES, after_long_help = PLAN_EXAMPLES)]
struct PlanArgs {
    #[command(flatten)]
    recorded: Recorded,
}

const REPLAY_EXAMPLES: &str = "Examples:
  plimsoll sweep replay mon.trace tue.trace --spec limits.toml --out replays
          every replay that is not in the folder yet
  plimsoll sweep merge limits.toml mon.trace tue.trace --out replays -o replays.parquet
          one table of all replays";

/// Replay recordings under many limits and seeds
///
/// SPEC is TOML: which keys of `plimsoll simulate --replay --set` vary (a grid or a random sample), and the seeds, which are of
/// the limits' periods (docs/src/how-to/sweep.md). Each recording is replayed alone. Each replay is kept as a row under a key
/// of its content: the recording's bytes, what is changed, the seed, the version. All else is as for `plimsoll sweep`.
///
/// Exit code 130: it was told to stop; what was done is kept.
#[derive(clap::Args)]
#[command(after_help = REPLAY_EXAMPLES, after_long_help = REPLAY_EXAMPLES)]
struct ReplayArgs {
    #[command(flatten)]
    recorded: Recorded,
}

/// Recordings, and what is asked of them.
#[derive(clap::Args)]
struct Recorded {
    /// Traces of `plimsoll record`, of one service
    #[arg(value_name = "TRACE", required = true)]
    traces: Vec<PathBuf>,

    /// What varies
    #[arg(long, value_name = "SPEC")]
    spec: PathBuf,

    /// Folder of the rows, made if it is not there; machines may share one
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Only the points of one of N machines; I from 0 to N - 1
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
}

/// Make one table of all points, in Parquet
///
/// The rows are in the order of the points, and what varied is in columns "set.KEY". The bytes do not depend on which
/// machines ran the points. Exit code 1: points are missing (nothing is written without --partial), or could not be run.
#[derive(clap::Args)]
struct MergeArgs {
    #[command(flatten)]
    place: Place,

    /// Of replays and plans: the recordings, in the order in which `plimsoll sweep replay` or `plan` was given them
    #[arg(value_name = "TRACE")]
    traces: Vec<PathBuf>,

    /// The table
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Write what is there although points are missing
    #[arg(long)]
    partial: bool,
}

/// Print the quantiles over seeds of a merged table
#[derive(clap::Args)]
struct ReportArgs {
    /// What `plimsoll sweep merge` wrote
    #[arg(value_name = "TABLE")]
    table: PathBuf,

    /// A column to show; "*" stands for any part of its name; may be repeated [default: latencies, rates, use and
    /// throttling that are not the same in all runs]
    #[arg(long, value_name = "COLUMN")]
    metric: Vec<String>,

    /// Print every combination, not the first 20
    #[arg(long)]
    all: bool,

    /// Write the quantiles as JSON; without FILE, or with "-", to the standard output instead of the tables
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,

    /// Write a self-contained page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// A shell's code for SIGINT: a run that was told to stop has not failed.
const STOPPED: u8 = 130;
/// Combinations on the first screen.
const SHOWN: usize = 20;

pub fn run(args: &Args) -> Result {
    match (&args.command, &args.place) {
        (Some(Command::Merge(args)), _) => run_merge(args),
        (Some(Command::Report(args)), _) => run_report(args),
        (Some(Command::Replay(args)), _) => run_replays(&args.recorded),
        (Some(Command::Plan(args)), _) => run_plans(&args.recorded),
        (None, Some(place)) => {
            let points = simulations(&place.spec)?;
            run_shard(points, &place.out, args.shard.unwrap_or(Shard::WHOLE))
        }
        (None, None) => Err(Failure::Input("no sweep given; allowed: a file".into())),
    }
}

fn simulations(spec: &Path) -> std::result::Result<Arc<dyn Points>, Failure> {
    Ok(Arc::new(Simulations::new(Sweep::load(spec)?, crate::VERSION)?))
}

fn run_replays(args: &Recorded) -> Result {
    let shard = args.shard.unwrap_or(Shard::WHOLE);
    let replays = Replays::load(&args.spec, &args.traces, crate::VERSION)?;
    replays.check(shard).map_err(recordings)?;
    run_shard(Arc::new(replays), &args.out, shard)
}

fn run_plans(args: &Recorded) -> Result {
    let shard = args.shard.unwrap_or(Shard::WHOLE);
    let plans = Plans::load(&args.spec, &args.traces, crate::VERSION)?;
    plans.check(shard).map_err(recordings)?;
    run_shard(Arc::new(plans), &args.out, shard)
}

fn recordings(error: RecordingsError) -> Failure {
    match error {
        RecordingsError::Problems(problems) => Failure::from(problems),
        RecordingsError::Source(error) => Failure::from(error),
    }
}

/// What a file asks of recordings: with a goal plans, without one replays.
fn asked_of(spec: &Path, traces: &[PathBuf]) -> std::result::Result<Arc<dyn Points>, Failure> {
    Ok(match Plans::asks(spec)? {
        true => Arc::new(Plans::load(spec, traces, crate::VERSION)?),
        false => Arc::new(Replays::load(spec, traces, crate::VERSION)?),
    })
}

fn run_shard(points: Arc<dyn Points>, out: &Path, shard: Shard) -> Result {
    let store = Store::open(out).map_err(folder)?;
    let stop = crate::signals::stop()?;
    let bar = ProgressBar::new(1);
    let style = ProgressStyle::with_template("points {bar:40} {pos}/{len} {elapsed}, {eta} left")
        .expect("a fixed template");
    bar.set_style(style);
    let done = run_points(&points, &store, shard, &stop, &|done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let done = done.map_err(|error| Failure::Machine(error.to_string()))?;
    let of = match shard {
        Shard::WHOLE => String::new(),
        Shard { index, of } => format!(" of shard {index}/{of}"),
    };
    outln!(
        "{} points{of}: {} were there, {} run, {} failed",
        done.points,
        done.there,
        done.run,
        done.failed
    );
    if done.stopped {
        let left = done.points - done.there - done.run;
        errln!("stopped with {left} points left; the same command runs them");
        return Ok(Outcome::Code(STOPPED));
    }
    Ok(outcome(done.failed))
}

fn outcome(bad: u64) -> Outcome {
    match bad {
        0 => Outcome::Done,
        _ => Outcome::Missed,
    }
}

fn folder(error: plimsoll_sweep::StoreError) -> Failure {
    Failure::Input(error.to_string())
}

fn run_merge(args: &MergeArgs) -> Result {
    crate::signals::leave_no_partials();
    let inputs = std::iter::once(&args.place.spec).chain(&args.traces);
    output::check(inputs, None, [&args.output])?;
    let points = match args.traces.is_empty() {
        true => simulations(&args.place.spec)?,
        false => asked_of(&args.place.spec, &args.traces)?,
    };
    let store = Store::at(&args.place.out).map_err(folder)?;
    let merged = merge(points.as_ref(), &store).map_err(folder)?;
    if merged.missing > 0 && !args.partial {
        let (spec, out) = (args.place.spec.display(), args.place.out.display());
        let command = match args.traces.is_empty() {
            true => format!("plimsoll sweep {spec} --out {out}"),
            false => {
                let what = if Plans::asks(&args.place.spec)? {
                    "plan"
                } else {
                    "replay"
                };
                format!("plimsoll sweep {what} TRACE... --spec {spec} --out {out}")
            }
        };
        errln!(
            "error: {spec}: {} of {} points are missing; allowed: run them ({command}), or --partial",
            merged.missing,
            merged.points,
        );
        return Ok(Outcome::Missed);
    }
    let bytes = merged
        .columns
        .parquet()
        .map_err(|error| Failure::Machine(error.to_string()))?;
    output::write(&args.output, bytes)?;
    outln!(
        "{} of {} points in {}, {} failed",
        merged.points - merged.missing,
        merged.points,
        args.output.display(),
        merged.failed
    );
    Ok(outcome(merged.missing + merged.failed))
}

fn run_report(args: &ReportArgs) -> Result {
    crate::signals::leave_no_partials();
    output::check([&args.table], args.json.as_deref(), &args.html)?;
    let bytes = std::fs::read(&args.table).map_err(|error| Failure::file("read it", &args.table, &error))?;
    let wrong = |error: &dyn std::fmt::Display| Failure::Input(format!("{}: {error}", args.table.display()));
    let table = Columns::read(bytes, None).map_err(|error| wrong(&error))?;
    let found = summary(&table, &args.metric).map_err(|error| wrong(&error))?;
    if let Some(path) = &args.html {
        output::write(path, html(&found, &stem(&args.table)))?;
    }
    if !output::json(args.json.as_deref(), || {
        plimsoll_report::text(&plimsoll_sweep::Swept::of(&found))
    })? {
        return Ok(Outcome::Done);
    }
    let mut text = String::new();
    describe(&mut text, &found, args.all).expect("writing into memory");
    out!("{text}");
    Ok(Outcome::Done)
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().to_string()
}

/// A table for each figure.
fn describe(text: &mut String, found: &Summary, all: bool) -> std::fmt::Result {
    writeln!(
        text,
        "{} runs of {} combinations",
        found.points,
        found.combinations.len()
    )?;
    if found.measures.is_empty() {
        writeln!(text, "no figure differs between the runs")?;
    }
    for measure in &found.measures {
        let heads = found.keys.iter().map(String::as_str);
        let heads: Vec<&str> = heads
            .chain(["runs", "min", "5%", "median", "95%", "max"])
            .collect();
        let mut table = Table::new(&heads).words(0);
        let rows = found.combinations.iter().zip(&measure.quantiles);
        for (values, quantiles) in rows.take(if all { usize::MAX } else { SHOWN }) {
            let mut cells: Vec<String> = values
                .iter()
                .map(|value| value.clone().unwrap_or("-".into()))
                .collect();
            match quantiles {
                None => cells.extend(["0", "-", "-", "-", "-", "-"].map(str::to_string)),
                Some(q) => {
                    cells.push(q.runs.to_string());
                    cells.extend([q.min, q.p5, q.median, q.p95, q.max].map(figure));
                }
            }
            table.row(cells);
        }
        writeln!(text, "\n{}\n{table}", measure.title)?;
        if !all && found.combinations.len() > SHOWN {
            writeln!(
                text,
                "  and {} more: --all, --html or --json shows them",
                found.combinations.len() - SHOWN
            )?;
        }
    }
    Ok(())
}
