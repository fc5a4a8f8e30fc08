// SPDX-License-Identifier: Apache-2.0 OR MIT
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
    #[arg(long, value_enum, value_delimiter = ',', default_value = "eevdf,plimsoll")]
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

    /// Keep what the guests printed, and the figures, in this file, one JSON object a line, as the cases end
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

    let raw = match &args.raw {
        Some(path) => Some(Raw::create(path, &kernel, &qemu).with_context(|| path.display().to_string())?),
        None => None,
    };
    let outcomes = run_all(args, &cases, &kernel, &qemu, &programs, raw.as_ref())?;
    let held = print(&cases, &outcomes);
    Ok(held)
}

fn run_all(
    args: &Args,
    cases: &[Case],
    kernel: &Kernel,
    qemu: &Qemu,
    programs: &[Program],
    raw: Option<&Raw>,
) -> Result<Vec<Outcome>> {
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
    let unwritten = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(cases.len()) {
            scope.spawn(|| loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(case) = cases.get(index) else { return };
                progress.set_message(format!("{} {}", case.scheduler.name(), case.row.key));
                let outcome = run_case(case, kernel, qemu, programs);
                if let Some(Err(error)) = raw.map(|raw| raw.add(case, &outcome)) {
                    unwritten.lock().expect("no case panics").get_or_insert(error);
                }
                *outcomes[index].lock().expect("no case panics") = Some(outcome);
                progress.inc(1);
            });
        }
    });
    progress.finish_and_clear();
    if let Some(error) = unwritten.into_inner().expect("no case panics") {
        return Err(error).context("the raw results");
    }
    let all = outcomes
        .into_iter()
        .map(|outcome| outcome.into_inner().expect("no case panics"));
    Ok(all.map(|outcome| outcome.expect("every case ran")).collect())
}

fn run_case(case: &Case, kernel: &Kernel, qemu: &Qemu, programs: &[Program]) -> Outcome {
    let command = ["sh", "-ec", &case.row.script].map(String::from);
    let guest = Guest {
        kernel,
        cpus: &CPUS.to_string(),
        possible_cpus: None,
        memory: "1G",
        timing: true,
        programs,
        command: &command,
        scheduler: case.scheduler == Scheduler::Plimsoll && !case.row.starts_scheduler,
        forward: &[],
        drivers: &[],
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

/// The file of raw results. A case is in it as soon as it has ended, so that a run cut short keeps what it has.
struct Raw(Mutex<std::fs::File>);

impl Raw {
    fn create(path: &PathBuf, kernel: &Kernel, qemu: &Qemu) -> Result<Self> {
        let commit = std::process::Command::new("git")
            .args(["describe", "--always", "--dirty"])
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
        let mut file = std::fs::File::create(path)?;
        writeln!(file, "{head}")?;
        Ok(Raw(Mutex::new(file)))
    }

    fn add(&self, case: &Case, outcome: &Outcome) -> std::io::Result<()> {
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
        // One call, so that no line is ever half there.
        self.0
            .lock()
            .expect("no case panics")
            .write_all(format!("{line}\n").as_bytes())
    }
}

/// Prints a table, a line for each figure, and returns whether plimsoll holds every bound.
fn print(cases: &[Case], outcomes: &[Outcome]) -> bool {
    let mut keys: Vec<(&str, &str)> = Vec::new();
    for case in cases {
        if !keys.iter().any(|(key, _)| *key == case.row.key) {
            keys.push((case.row.key, case.row.what));
        }
    }
    let of = |scheduler: Scheduler, key: &str| {
        let mut pairs = cases.iter().zip(outcomes);
        pairs.find_map(|(case, outcome)| {
            (case.scheduler == scheduler && case.row.key == key).then_some(&outcome.figures)
        })
    };
    println!(
        "{:<28} {:>8} {:>18} {:>10} {:>10}  verdict",
        "", "unit", "must reach", "EEVDF", "plimsoll"
    );
    let mut missed = 0;
    let mut held = 0;
    for (key, what) in keys {
        println!("{key}: {what}");
        let none = Vec::new();
        let mut figures = [&none, &none];
        for (figures, scheduler) in figures.iter_mut().zip([Scheduler::Eevdf, Scheduler::Plimsoll]) {
            match of(scheduler, key) {
                Some(Ok(found)) => *figures = found,
                Some(Err(why)) => {
                    println!("  {} failed: {why}", scheduler.name());
                    missed += u32::from(scheduler == Scheduler::Plimsoll);
                }
                None => {}
            }
        }
        let [control, ours] = figures;
        let named = |list: &'_ [Figure], name: &str| {
            list.iter()
                .find(|figure| figure.name == name)
                .map(|one| one.value)
        };
        for figure in ours.iter().chain(
            control
                .iter()
                .filter(|figure| named(ours, &figure.name).is_none()),
        ) {
            let (control, our) = (named(control, &figure.name), named(ours, &figure.name));
            let cell = |value: Option<f64>| value.map_or_else(|| "-".into(), short);
            let verdict = match our.and_then(|_| figure.holds(control)) {
                Some(true) => "holds",
                Some(false) => "MISSED",
                None => "",
            };
            held += u32::from(verdict == "holds");
            missed += u32::from(verdict == "MISSED");
            let line = format!(
                "  {:<26} {:>8} {:>18} {:>10} {:>10}  {verdict}",
                figure.name,
                figure.unit,
                figure.must(),
                cell(control),
                cell(our)
            );
            println!("{}", line.trim_end());
        }
    }
    println!("\n{held} held, {missed} missed or failed");
    missed == 0
}
