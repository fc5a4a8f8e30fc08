// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simulator stays as close to real kernels as it has come.
use plimsoll_validate::{compare, read, Model, Scheduler, Verdict};
use std::collections::BTreeSet;
use std::sync::Mutex;

/// Figures that were given to us, and not measured by us (kernel-bandwidth-truth.md beside it).
const TRUTH: &str = include_str!("../../../bench/results/kernel-bandwidth-truth.csv");

/// What tests/live/duty-cycles.sh printed: the live scheduler on 7.2 (docs/src/lab/live.md).
const LIVE: &str = include_str!("../../../bench/results/live-2026-11-21-1904-duty-cycles.csv");

/// Other shapes than those (docs/src/lab/validation.md).
const SHAPES: &str = include_str!("../../../bench/results/2026-11-21-kernel-bandwidth.csv");

/// The same shapes on other numbers of CPUs.
const OTHER_CPUS: &str = include_str!("../../../bench/results/2026-11-21-kernel-bandwidth-truth-shapes.csv");

/// What was measured after the model was last looked at, and changed nothing in it.
const AFTER: &str = include_str!("../../../bench/results/2026-11-22-kernel-bandwidth-truth-shapes.csv");

/// The rows that miss: file, kernel, CPUs, repetition, label. UPDATE_EXPECT=1 writes it.
const MISSES: &str = include_str!("misses.csv");

#[test]
fn rows_of_other_shapes_that_held_still_hold() {
    still_hold("shapes", SHAPES, Scheduler::Kernel, 232, 58);
}

#[test]
fn rows_on_other_numbers_of_cpus_that_held_still_hold() {
    still_hold("other-cpus", OTHER_CPUS, Scheduler::Kernel, 60, 13);
}

/// README and docs/src/lab/validation.md say 72 of 80.
#[test]
fn of_the_figures_that_were_given_at_least_72_of_80_rows_hold_and_only_those_on_the_edge_of_throttling_miss()
{
    for verdict in still_hold("truth", TRUTH, Scheduler::Kernel, 80, 8) {
        assert!(verdict.edge, "{} of {}", verdict.row.label, verdict.row.kernel);
    }
}

/// They say 72 of 90.
#[test]
fn of_what_was_measured_afterwards_at_least_72_of_90_rows_hold() {
    still_hold("after", AFTER, Scheduler::Kernel, 90, 18);
}

#[test]
fn the_live_scheduler_does_what_was_simulated() {
    still_hold("live", LIVE, Scheduler::Plimsoll, 12, 0);
}

fn judged(name: &str, text: &str, scheduler: Scheduler) -> Vec<Verdict> {
    let rows = read(name, text, scheduler).unwrap();
    let model = Model::load("vm", scheduler).unwrap();
    compare(&model, &rows, 1, || {})
}

/// Judges all rows of a file: no row misses that is not listed, and no more than `misses_max`. That a listed one holds
/// is said, and no fault. Returns those that miss.
fn still_hold(file: &str, text: &str, scheduler: Scheduler, rows: usize, misses_max: usize) -> Vec<Verdict> {
    let verdicts = judged(file, text, scheduler);
    assert_eq!(verdicts.len(), rows);
    let key = |v: &Verdict| {
        let row = &v.row;
        format!("{file},{},{},{},{}", row.kernel, row.vcpus, row.rep, row.label)
    };
    let missed: BTreeSet<String> = verdicts.iter().filter(|v| v.missed()).map(key).collect();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        write_misses(file, &missed);
    } else {
        let of_this_file = |line: &&str| line.starts_with(&format!("{file},"));
        let listed: BTreeSet<String> = MISSES.lines().filter(of_this_file).map(String::from).collect();
        let all: BTreeSet<String> = verdicts.iter().map(key).collect();
        let unknown: Vec<_> = listed.difference(&all).collect();
        assert!(
            unknown.is_empty(),
            "misses.csv lists what {file} has not: {unknown:?}"
        );
        let new: Vec<_> = missed.difference(&listed).collect();
        assert!(new.is_empty(), "held before and miss now: {new:#?}");
        for holds in listed.difference(&missed) {
            println!("{holds} holds now: take it from misses.csv");
        }
    }
    assert!(
        missed.len() <= misses_max,
        "{file}: {} rows miss, at most {misses_max} did",
        missed.len()
    );
    verdicts.into_iter().filter(|v| v.missed()).collect()
}

/// The tests run beside each other, and each writes its own file's part.
fn write_misses(file: &str, missed: &BTreeSet<String>) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/misses.csv");
    let kept = std::fs::read_to_string(path).unwrap();
    let others = kept
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with(&format!("{file},")));
    let lines: BTreeSet<&str> = others.chain(missed.iter().map(String::as_str)).collect();
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(path, text).unwrap();
}

/// A tolerance that nothing can fail protects nothing: each figure off by twice its tolerance is a miss. In a row whose
/// start in its period is known (docs/src/lab/validation.md), and which holds as it is.
#[test]
fn figures_that_are_off_are_misses() {
    let mut lines = TRUTH.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let row: Vec<&str> = lines
        .find(|line| line.contains(",b1_"))
        .unwrap()
        .split(',')
        .collect();
    let missed = |row: &[&str]| {
        let text = format!("{}\n{}\n", names.join(","), row.join(","));
        judged("truth", &text, Scheduler::Kernel)[0].missed()
    };
    assert!(!missed(&row));
    for (name, percent) in [
        ("cpu_us", 3),
        ("p50", 6),
        ("p99", 6),
        ("nr_periods", 0),
        ("nr_throttled", 0),
    ] {
        let column = names.iter().position(|&other| other == name).unwrap();
        let value: u64 = row[column].parse().unwrap();
        let off = (value + if percent == 0 { 2 } else { value * percent / 100 }).to_string();
        let mut row = row.clone();
        row[column] = &off;
        assert!(missed(&row), "{name}: {off} instead of {value}");
    }
}
