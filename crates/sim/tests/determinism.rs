// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One configuration and seed, one result: byte for byte, in every run and in every build profile.
use expect_test::{expect, Expect};
use plimsoll_sim::observer::{Move, Stop};
use plimsoll_sim::{Fair, GroupId, Observer, Simulation, TaskId};
use std::fmt::Write;
#[path = "fuzz/mod.rs"]
mod fuzz;

/// Everything that happened, as text.
#[derive(Default)]
struct Log(String);

impl Observer for Log {
    fn run(&mut self, now_ns: u64, cpu: u32, task: TaskId, group: GroupId) {
        writeln!(self.0, "{now_ns} run {cpu} {task:?} {group:?}").unwrap();
    }
    fn stop(&mut self, now_ns: u64, cpu: u32, task: TaskId, why: Stop) {
        writeln!(self.0, "{now_ns} stop {cpu} {task:?} {why:?}").unwrap();
    }
    fn wake(&mut self, now_ns: u64, task: TaskId, cpu: u32, waker_cpu: u32) {
        writeln!(self.0, "{now_ns} wake {task:?} {cpu} {waker_cpu}").unwrap();
    }
    fn migrate(&mut self, now_ns: u64, task: TaskId, from: u32, to: u32, why: Move) {
        writeln!(self.0, "{now_ns} migrate {task:?} {from} {to} {why:?}").unwrap();
    }
    fn throttle(&mut self, now_ns: u64, group: GroupId, cpu: u32) {
        writeln!(self.0, "{now_ns} throttle {group:?} {cpu}").unwrap();
    }
    fn unthrottle(&mut self, now_ns: u64, group: GroupId, cpu: u32) {
        writeln!(self.0, "{now_ns} unthrottle {group:?} {cpu}").unwrap();
    }
    fn pool(&mut self, now_ns: u64, group: GroupId, runtime_ns: i64) {
        writeln!(self.0, "{now_ns} pool {group:?} {runtime_ns}").unwrap();
    }
}

fn log(seed: u64, fair: Fair) -> String {
    let mut log = Log::default();
    let mut config = fuzz::config(seed);
    config.policy.fair = fair;
    let results = Simulation::new(config).unwrap().run(Some(&mut log)).unwrap();
    write!(
        log.0,
        "{:?} {:?} {:?}",
        results.events, results.groups, results.cpus
    )
    .unwrap();
    log.0
}

/// FNV-1a: one number for a whole log.
fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[test]
fn two_runs_write_the_same_log() {
    for seed in 1..=20 {
        let (first, second) = (log(seed, Fair::Eevdf), log(seed, Fair::Eevdf));
        assert!(first.len() > 1000 || seed > 1, "the log has something in it");
        assert!(first == second, "seed {seed}: two runs differ");
    }
}

/// Each run has its own log, and the number is the same again when the runs are made in the other order: nothing outlives
/// a run.
fn digest_of_runs(fair: Fair, expected: &Expect) {
    let runs: Vec<u64> = (1..=60).map(|seed| digest(&log(seed, fair))).collect();
    let distinct: std::collections::BTreeSet<u64> = runs.iter().copied().collect();
    assert_eq!(distinct.len(), runs.len(), "two seeds gave the same log");
    let backwards: Vec<u64> = (1..=60).rev().map(|seed| digest(&log(seed, fair))).collect();
    assert!(
        runs.iter().eq(backwards.iter().rev()),
        "a run depends on those before it"
    );
    let all: String = runs.iter().map(|run| format!("{run:016x}\n")).collect();
    let all = digest(&all);
    println!("digest {all:016x}");
    expected.assert_eq(&format!("{all:016x}"));
}

/// Every event of sixty random machines, as one number. A change of what the engine or the policy does, on purpose,
/// renews it with UPDATE_EXPECT=1, and its commit says why the history is another one; one that makes them faster or
/// tidier must not have to. Debug and release builds must print the same: scripts/determinism.sh compares them.
#[test]
fn digest_of_many_runs() {
    digest_of_runs(Fair::Cfs, &expect!["ef796256e100b7bb"]);
}

/// The same machines, with turns by lag and deadline.
#[test]
fn digest_of_many_runs_by_lag_and_deadline() {
    digest_of_runs(Fair::Eevdf, &expect!["8869aba0d3e39ec8"]);
}
