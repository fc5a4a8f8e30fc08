//! `make bench-live`: every case on a real kernel in virtual time, one guest each, for each scheduler.
//!
//! Guests in virtual time do not feel how busy the host is, so several run at once without changing a figure.
mod figure;
mod rows;

use anyhow::{bail, Context, Result};
use clap::Parser;
use figure::{short, Figure};
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_vm::{find_qemu, obtain, run, Cache, Guest, Kernel, Program, Qemu, Wanted};
use rows::{rows, Row, Scheduler, CPUS};
use serde_json::{json, Value};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

/// Measure schedulers on a real kernel, in virtual time
#[derive(Parser)]
#[command(
    after_help = "Exit codes: 0 all bounds of plimsoll held, 1 one missed or a case failed, 2 bad usage, 3 no guest"
)]
struct Args {
    /// Schedulers to measure; the kernel's own is the control
    #[arg(long, value_enum, value_delimiter = ',', default_value = "eevdf")]
    scheduler: Vec<Scheduler>,

    /// Only the cases whose names begin so
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,

    /// Print the cases and what runs in the guest, and stop
    #[arg(long)]
    list: bool,

    /// Kernel: newest, or a series such as 7.2
    #[arg(long, default_value = "newest")]
    kernel: Wanted,

    /// Guests at once [default: as many as this machine has CPUs]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,

    /// Folder with the guest's programs, as `make guest` leaves them
    #[arg(long, default_value = "target/guest")]
    programs: PathBuf,

    /// The static plimsoll binary
    #[arg(long, default_value = "dist/plimsoll")]
    plimsoll: PathBuf,

    /// Keep what the guests printed, and the figures, in this file, one JSON object a line
    #[arg(long, value_name = "FILE")]
    raw: Option<PathBuf>,
}

/// One case under one scheduler.
struct Case {
    scheduler: Scheduler,
    row: Row,
}

/// What came of it: the guest's lines and their figures, or why there are none.
struct Outcome {
    lines: Vec<Value>,
    figures: Result<Vec<Figure>, String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match bench(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(3)
        }
    }
}

fn bench(args: &Args) -> Result<bool> {
    let wanted = |row: &Row| {
        args.only.is_empty()
            || args
                .only
                .iter()
                .any(|prefix| row.key.starts_with(prefix.as_str()))
    };
    let mut cases = Vec::new();
    for &scheduler in &args.scheduler {
        cases.extend(
            rows(scheduler)
                .into_iter()
                .filter(wanted)
                .map(|row| Case { scheduler, row }),
        );
    }
    if args.list {
        for case in &cases {
            println!(
                "{} ({}): {}\n{}\n",
                case.row.key,
                case.scheduler.name(),
                case.row.what,
                case.row.script.trim_end()
            );
        }
        return Ok(true);
    }
    let mut programs = Vec::new();
    for name in ["duty", "roundtrip", "hackbench"] {
        let path = args.programs.join(name);
        if !path.is_file() {
            bail!("{} is missing: run `make guest`", path.display());
        }
        programs.push(Program::of(path)?);
    }
    if args.scheduler.contains(&Scheduler::Plimsoll) {
        if !args.plimsoll.is_file() {
            bail!("{} is missing: run `make static`", args.plimsoll.display());
        }
        programs.push(Program {
            path: args.plimsoll.clone(),
            name: "plimsoll".into(),
        });
    }
    let cache = Cache::open()?;
    let kernel = obtain(&cache, &args.kernel, false, &|text| eprintln!("{text}"))?;
    let qemu = find_qemu(&cache, true, &|text| eprintln!("{text}"))?;
    println!(
        "Linux {}, {CPUS} CPUs, QEMU {}.{} in virtual time",
        kernel.release, qemu.version.0, qemu.version.1
    );

    let outcomes = run_all(args, &cases, &kernel, &qemu, &programs);
    if let Some(path) = &args.raw {
        write_raw(path, &kernel, &qemu, &cases, &outcomes).with_context(|| path.display().to_string())?;
    }
    let held = print(&cases, &outcomes);
    Ok(held)
}

fn run_all(args: &Args, cases: &[Case], kernel: &Kernel, qemu: &Qemu, programs: &[Program]) -> Vec<Outcome> {
    let progress = ProgressBar::new(cases.len() as u64);
    progress.set_style(
        ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}").expect("a fixed template"),
    );
    let jobs = args.jobs.map_or_else(
        || std::thread::available_parallelism().map_or(1, usize::from),
        usize::from,
    );
    let next = AtomicUsize::new(0);
    let outcomes: Vec<Mutex<Option<Outcome>>> = cases.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(cases.len()) {
            scope.spawn(|| loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(case) = cases.get(index) else { return };
                progress.set_message(format!("{} {}", case.scheduler.name(), case.row.key));
                *outcomes[index].lock().expect("no case panics") =
                    Some(run_case(case, kernel, qemu, programs));
                progress.inc(1);
            });
        }
    });
    progress.finish_and_clear();
    let all = outcomes
        .into_iter()
        .map(|outcome| outcome.into_inner().expect("no case panics"));
    all.map(|outcome| outcome.expect("every case ran")).collect()
}

fn run_case(case: &Case, kernel: &Kernel, qemu: &Qemu, programs: &[Program]) -> Outcome {
    let command = ["sh", "-ec", &case.row.script].map(String::from);
    let guest = Guest {
        kernel,
        cpus: &CPUS.to_string(),
        memory: "1G",
        timing: true,
        programs,
        command: &command,
        scheduler: case.scheduler == Scheduler::Plimsoll,
        timeout: Some(std::time::Duration::from_secs(1800)),
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let ended = run(&guest, qemu, &mut out, &mut err);
    let text = String::from_utf8_lossy(&out);
    let lines: Vec<Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let complaint = || {
        String::from_utf8_lossy(&err)
            .lines()
            .last()
            .unwrap_or("no message")
            .to_string()
    };
    let figures = match ended {
        Err(error) => Err(error.to_string()),
        Ok(ended) if ended.code != 0 => Err(complaint().trim_start_matches("error: ").to_string()),
        Ok(_) if lines.is_empty() => Err("the guest printed nothing".into()),
        Ok(_) => Ok((case.row.figures)(&lines)),
    };
    Outcome { lines, figures }
}

fn write_raw(
    path: &PathBuf,
    kernel: &Kernel,
    qemu: &Qemu,
    cases: &[Case],
    outcomes: &[Outcome],
) -> Result<()> {
    let mut file = std::fs::File::create(path)?;
    let commit = std::process::Command::new("git")
        .args(["rev-parse", "--short", "HEAD"])
        .output();
    let commit = commit
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string())
        .unwrap_or_default();
    let head = json!({
        "kernel": kernel.release,
        "suite": kernel.suite,
        "qemu": format!("{}.{}", qemu.version.0, qemu.version.1),
        "mode": "timing",
        "cpus": CPUS,
        "commit": commit,
    });
    writeln!(file, "{head}")?;
    for (case, outcome) in cases.iter().zip(outcomes) {
        let figures = outcome.figures.iter().flatten();
        let line = json!({
            "case": case.row.key,
            "scheduler": case.scheduler.name(),
            "script": case.row.script,
            "failed": outcome.figures.as_ref().err(),
            "figures": figures.map(|figure| json!({"name": figure.name, "unit": figure.unit, "value": figure.value}))
                .collect::<Vec<_>>(),
            "output": outcome.lines,
        });
        writeln!(file, "{line}")?;
    }
    Ok(())
}

/// Prints a table, a line for each figure, and returns whether plimsoll holds every bound.
fn print(cases: &[Case], outcomes: &[Outcome]) -> bool {
    let of = |scheduler: Scheduler, key: &str| {
        let index = cases
            .iter()
            .position(|case| case.scheduler == scheduler && case.row.key == key)?;
        Some(&outcomes[index].figures)
    };
    let mut held = true;
    let mut keys: Vec<(&str, &str)> = Vec::new();
    for case in cases {
        if !keys.iter().any(|(key, _)| *key == case.row.key) {
            keys.push((case.row.key, case.row.what));
        }
    }
    println!(
        "{:<28} {:>8} {:>20} {:>12} {:>12}",
        "", "unit", "must reach", "EEVDF", "plimsoll"
    );
    for (key, what) in keys {
        println!("{key}: {what}");
        let (control, ours) = (of(Scheduler::Eevdf, key), of(Scheduler::Plimsoll, key));
        for (scheduler, outcome) in [(Scheduler::Eevdf, control), (Scheduler::Plimsoll, ours)] {
            if let Some(Err(why)) = outcome {
                println!("  {} failed: {why}", scheduler.name());
                held &= scheduler == Scheduler::Eevdf;
            }
        }
        let figures = |outcome: Option<&'_ Result<Vec<Figure>, String>>| match outcome {
            Some(Ok(figures)) => figures.clone(),
            _ => Vec::new(),
        };
        let (control, ours) = (figures(control), figures(ours));
        for (index, figure) in if ours.is_empty() { &control } else { &ours }.iter().enumerate() {
            let control_value = control.get(index).map(|figure| figure.value);
            let mark =
                |figure: Option<&Figure>| match figure.map(|figure| (figure, figure.holds(control_value))) {
                    Some((figure, Some(false))) => format!("{} !", short(figure.value)),
                    Some((figure, _)) => format!("{}  ", short(figure.value)),
                    None => "-  ".into(),
                };
            held &= ours.get(index).and_then(|figure| figure.holds(control_value)) != Some(false);
            // The control is not compared with itself.
            let against_control = figure.must().contains("EEVDF");
            let control_cell = match control.get(index) {
                Some(figure) if against_control => format!("{}  ", short(figure.value)),
                figure => mark(figure),
            };
            println!(
                "  {:<26} {:>8} {:>20} {:>12} {:>12}",
                figure.name,
                figure.unit,
                figure.must(),
                control_cell,
                mark(ours.get(index))
            );
        }
    }
    println!("\n!: outside what must be reached");
    held
}
