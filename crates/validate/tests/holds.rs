//! The simulator stays as close to real kernels as it has come.
use plimsoll_validate::{compare, read, Model, Scheduler};

/// One repetition of every case of ../shared/truth/kernel-bandwidth.csv, without those on the edge of throttling.
const MEASURED: &str = include_str!("measured.csv");

#[test]
fn every_measured_case_off_the_edge_of_throttling_is_within_its_tolerance() {
    let rows = read("measured.csv", MEASURED, Scheduler::Kernel).unwrap();
    let model = Model::load("vm", Scheduler::Kernel).unwrap();
    let verdicts = compare(&model, &rows, 1, || {});
    assert_eq!(verdicts.len(), 32);
    let missed: Vec<String> = verdicts
        .iter()
        .filter(|verdict| verdict.missed())
        .map(|verdict| {
            format!(
                "{} {} CPUs {}",
                verdict.row.label, verdict.row.kernel, verdict.row.vcpus
            )
        })
        .collect();
    assert!(missed.is_empty(), "missed: {missed:?}");
}

/// A tolerance that nothing can fail protects nothing: figures off by twice the tolerance are misses.
#[test]
fn figures_that_are_off_are_misses() {
    let off = MEASURED.replace(",1034291,", ",1100000,");
    assert_ne!(off, MEASURED);
    let rows = read("measured.csv", &off, Scheduler::Kernel).unwrap();
    let model = Model::load("vm", Scheduler::Kernel).unwrap();
    let verdicts = compare(&model, &rows[..1], 1, || {});
    assert!(verdicts[0].missed());
}
