// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plimsoll validate`: every measured run again in the simulator, figure by figure.
use crate::exit::{Failure, Outcome, Result};
use crate::{number, output};
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_report::Table;
use plimsoll_scenario::find::machine_file;
use plimsoll_scenario::stand_in;
use plimsoll_validate::{compare, measured, Column, Figure, Model, Scheduler, Tolerance, Verdict};
use std::path::{Path, PathBuf};

/// Compare the simulator with measured runs of a real kernel
///
/// Each row of the file is rebuilt from its parameters alone, simulated with the rules of the scheduler that ran it
/// (the kernel: mainline burst, enforcement at ticks) and compared. Exit code 1 when a figure lies outside its tolerance: counts
/// within 1, burst time 5%, CPU time 1.5%, latencies 3%, or 15% for runs on the edge of throttling.
#[derive(clap::Args)]
pub struct Args {
    /// Measured runs, in the form of bench/results/kernel-bandwidth-truth.csv (docs/src/lab/validation.md)
    measured: PathBuf,
    /// Machine that the rows were measured on: a model's name, or a path
    #[arg(long, default_value = "vm")]
    machine: String,
    /// The scheduler that ran them: `kernel` enforces limits at ticks, with mainline's burst; `plimsoll` by timer, with
    /// the published burst (runs of tests/live/duty-cycles.sh)
    #[arg(long, value_enum, default_value = "kernel")]
    scheduler: Measured,
    /// Seed of the runs
    #[arg(long, default_value_t = 1, allow_hyphen_values = true, value_parser = number::within(number::SEEDS))]
    seed: u64,
    /// Write the result as JSON; without FILE, or with "-", to the standard output instead of the tables
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Measured {
    Kernel,
    Plimsoll,
}

pub fn run(args: &Args) -> Result {
    let machine = machine_file(&args.machine, Path::new("."));
    output::check(
        [&args.measured].into_iter().chain(&machine),
        args.json.as_deref(),
        [],
    )?;
    let text = plimsoll_scenario::find::text(&args.measured)
        .map_err(|error| Failure::file("read it", &args.measured, &error))?;
    let scheduler = match args.scheduler {
        Measured::Kernel => Scheduler::Kernel,
        Measured::Plimsoll => Scheduler::Plimsoll,
    };
    let rows = measured::read(&args.measured.display().to_string(), &text, scheduler)?;
    let model = Model::load(&args.machine, scheduler)?;
    let progress = ProgressBar::new(rows.len() as u64).with_style(
        ProgressStyle::with_template("{pos}/{len} rows {wide_bar} {eta}")
            .unwrap_or(ProgressStyle::default_bar()),
    );
    let verdicts = compare(&model, &rows, args.seed, || progress.inc(1));
    progress.finish_and_clear();
    for line in stand_ins(&model, &verdicts) {
        errln!("{line}");
    }
    if output::json(args.json.as_deref(), || format!("{:#}\n", json(&verdicts, args)))? {
        out!("{}\n{}", rows_table(&verdicts), summary(&verdicts));
    }
    let missed = verdicts.iter().any(Verdict::missed);
    Ok(if missed { Outcome::Missed } else { Outcome::Done })
}

/// A line for each kernel that the machine's model does not have: what its rows were simulated as.
fn stand_ins(model: &Model, verdicts: &[Verdict]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for row in verdicts.iter().map(|verdict| &verdict.row) {
        if let Some(note) = stand_in(&row.kernel, model.kernel(row)) {
            let line = format!("note: {note}");
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    lines
}

/// "simulated/measured", in the unit of the column; missed figures are marked.
fn cell(verdict: &Verdict, column: Column) -> String {
    let Some(figure) = verdict.figures.iter().find(|figure| figure.column == column) else {
        return "-".to_string();
    };
    let mark = match (figure.missed(), verdict.repetitions_differ(column)) {
        (false, _) => "",
        (true, Some(true)) => "~",
        (true, _) => "!",
    };
    let (simulated, measured) = (shown(column, figure.simulated), shown(column, figure.measured));
    format!("{simulated}/{measured}{mark}")
}

/// A figure in the unit of its column: a count, or ms.
fn shown(column: Column, value: f64) -> String {
    match column {
        Column::Periods | Column::Throttled | Column::Bursts => format!("{value:.0}"),
        Column::Cpu | Column::BurstTime => format!("{:.1}", value / 1000.0),
        Column::P50 | Column::P99 => format!("{:.2}", value / 1000.0),
    }
}

/// What the figures of a column are in, in the JSON as in the measured file.
fn unit(column: Column) -> &'static str {
    match column {
        Column::Periods | Column::Throttled | Column::Bursts => "count",
        Column::Cpu | Column::BurstTime | Column::P50 | Column::P99 => "us",
    }
}

/// "least .. most" of a missed figure over more seeds, and whether what was measured lies between.
fn range(verdict: &Verdict, figure: &Figure) -> String {
    let column = figure.column;
    match verdict.ranges.iter().find(|range| range.0 == column) {
        None => "-".to_string(),
        Some(&(_, least, most)) => format!(
            "{} .. {}, measured {} {}",
            shown(column, least),
            shown(column, most),
            shown(column, figure.measured),
            if (least..=most).contains(&figure.measured) {
                "inside"
            } else {
                "outside"
            }
        ),
    }
}

fn rows_table(verdicts: &[Verdict]) -> Table {
    let mut table = Table::new(&[
        "run",
        "kernel",
        "CPUs",
        "rep",
        "periods",
        "throttled",
        "bursts",
        "burst time ms",
        "CPU ms",
        "p50 ms",
        "p99 ms",
        "worst",
        "",
    ]);
    for verdict in verdicts {
        let row = &verdict.row;
        let mut cells = vec![
            row.label.clone(),
            row.kernel.clone(),
            row.vcpus.to_string(),
            row.rep.to_string(),
        ];
        cells.extend(Column::ALL.iter().map(|&column| cell(verdict, column)));
        cells.push(format!("{:.2}", verdict.worst()));
        cells.push(if verdict.missed() { "miss" } else { "ok" }.to_string());
        table.row(cells);
    }
    table
}

fn worst_figure(verdict: &Verdict) -> Option<&Figure> {
    verdict
        .figures
        .iter()
        .max_by(|a, b| a.miss().total_cmp(&b.miss()))
}

fn off(figure: &Figure) -> String {
    match figure.tolerance {
        Tolerance::Count(allowed) => format!("{:+.0} (allowed {allowed:.0})", figure.off()),
        Tolerance::Percent(allowed) => format!("{:+.1}% (allowed {allowed}%)", figure.off()),
    }
}

fn summary(verdicts: &[Verdict]) -> String {
    let mut text = String::from("simulated/measured; ! outside the tolerance, ~ likewise where repetitions of the run differ by\nmore than twice the tolerance; worst: largest distance in tolerances\n\n");
    let mut table = Table::new(&["figure", "within", "of", "median off", "worst off"]);
    for column in Column::ALL {
        let mut figures: Vec<&Figure> = verdicts
            .iter()
            .flat_map(|one| &one.figures)
            .filter(|figure| figure.column == column)
            .collect();
        figures.sort_by(|a, b| a.miss().total_cmp(&b.miss()));
        let Some(last) = figures.last() else { continue };
        let within = figures.iter().filter(|figure| !figure.missed()).count();
        let cells = [
            column.name().to_string(),
            within.to_string(),
            figures.len().to_string(),
            off(figures[figures.len() / 2]),
            off(last),
        ];
        table.row(cells.into());
    }
    text += &table.to_string();
    let good = verdicts.iter().filter(|verdict| !verdict.missed()).count();
    let edge = verdicts.iter().filter(|verdict| verdict.edge).count();
    let assumed = verdicts.iter().filter(|verdict| verdict.start_assumed).count();
    text += &format!("\n{good} of {} rows hold every tolerance", verdicts.len());
    text += &format!("; {edge} are on the edge of throttling");
    text += &format!("; {assumed} do not say where in its period\nthe run began: simulated at every millisecond of it, the nearest is shown\n");
    let mut worst: Vec<&Verdict> = verdicts.iter().collect();
    worst.sort_by(|a, b| b.worst().total_cmp(&a.worst()));
    let mut table = Table::new(&["worst rows", "line", "figure", "off"]);
    for verdict in worst.iter().take(5) {
        let Some(figure) = worst_figure(verdict) else {
            continue;
        };
        table.row(vec![
            name(verdict),
            verdict.row.line.to_string(),
            figure.column.name().to_string(),
            off(figure),
        ]);
    }
    text += &format!("\n{table}");
    let mut table = Table::new(&[
        "misses",
        "line",
        "figure",
        "off",
        "with 20 more seeds",
        "repetitions",
    ]);
    for verdict in verdicts {
        for figure in verdict.figures.iter().filter(|figure| figure.missed()) {
            table.row(vec![
                name(verdict),
                verdict.row.line.to_string(),
                figure.column.name().to_string(),
                off(figure),
                range(verdict, figure),
                match verdict.repetitions_differ(figure.column) {
                    Some(true) => "differ by more than twice the tolerance",
                    Some(false) => "agree",
                    None => "-",
                }
                .to_string(),
            ]);
        }
    }
    if table.is_empty() {
        text += "\nno misses\n";
    } else {
        text += &format!("\n{table}");
    }
    text
}

fn name(verdict: &Verdict) -> String {
    let row = &verdict.row;
    format!(
        "{} kernel {} CPUs {} rep {}",
        row.label, row.kernel, row.vcpus, row.rep
    )
}

fn json(verdicts: &[Verdict], args: &Args) -> serde_json::Value {
    let rows: Vec<serde_json::Value> = verdicts
        .iter()
        .map(|verdict| {
            let figures: Vec<serde_json::Value> = verdict
                .figures
                .iter()
                .map(|figure| {
                    let (kind, allowed) = match figure.tolerance {
                        Tolerance::Count(allowed) => ("count", allowed),
                        Tolerance::Percent(allowed) => ("percent", allowed),
                    };
                    serde_json::json!({
                        "figure": figure.column.name(),
                        "unit": unit(figure.column),
                        "measured": figure.measured,
                        "simulated": figure.simulated,
                        "tolerance": allowed,
                        "tolerance_unit": kind,
                        "missed": figure.missed(),
                        "range_over_seeds": verdict.ranges.iter().find(|range| range.0 == figure.column).map(|range| [range.1, range.2]),
                        "repetitions_differ": verdict.repetitions_differ(figure.column),
                    })
                })
                .collect();
            serde_json::json!({
                "label": verdict.row.label,
                "line": verdict.row.line,
                "kernel": verdict.row.kernel,
                "vcpus": verdict.row.vcpus,
                "rep": verdict.row.rep,
                "edge": verdict.edge,
                "start_assumed_us": verdict.start_assumed.then_some(verdict.simulated.start_us),
                "throttled_us": { "measured": verdict.row.measured.throttled_us, "simulated": verdict.simulated.throttled_us },
                "missed": verdict.missed(),
                "figures": figures,
            })
        })
        .collect();
    serde_json::json!({
        "format": 1,
        "plimsoll": env!("CARGO_PKG_VERSION"),
        "measured": args.measured.display().to_string(),
        "machine": args.machine,
        "scheduler": match args.scheduler {
            Measured::Kernel => "kernel",
            Measured::Plimsoll => "plimsoll",
        },
        "seed": args.seed,
        "rows": rows,
        "rows_within": verdicts.iter().filter(|verdict| !verdict.missed()).count(),
        "rows_missed": verdicts.iter().filter(|verdict| verdict.missed()).count(),
    })
}
