// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the tests of replays share.
pub mod recorder;
pub mod sockets;

use plimsoll_replay::{machine, replay, Outcome, Program, Settings};
use plimsoll_sim::{Config, Fair, Limits, Machine};
use plimsoll_stats::percentile_ns;
use plimsoll_trace::example::MS;
use plimsoll_trace::{Event, Header, Timeline};
use std::sync::Arc;

/// A program to be replayed, and the machine that it was recorded on.
pub fn compile(header: &Header, events: &[Event]) -> (Arc<Program>, Machine) {
    compile_with(header, events, None)
}

/// Likewise, with requests of this kind.
pub fn compile_with(header: &Header, events: &[Event], request: Option<&str>) -> (Arc<Program>, Machine) {
    let timeline = Timeline::build(header, events);
    assert!(
        timeline.quality.warnings.is_empty(),
        "{:?}",
        timeline.quality.warnings
    );
    let request = request.map(|text| text.parse().unwrap());
    let program = Program::build(header, &timeline, None, request.as_ref(), 60).unwrap();
    (Arc::new(program), machine(header, &timeline))
}

/// Under the recorded settings, and these.
pub fn run(program: &Arc<Program>, machine: &Machine, sets: &[&str]) -> Outcome {
    let mut settings = Settings::recorded(program);
    sets.iter().for_each(|set| settings.set(program, set).unwrap());
    replay(program, machine, &settings, None).unwrap()
}

/// The rules of a kernel since 6.6 on two CPUs.
pub fn since_6_6(config: &mut Config) {
    config.policy.fair = Fair::Eevdf;
    config.policy.delay_dequeue = true;
    config.policy.balance_weighs = true;
    config.policy.core.fair.slice_ns = 1_400_000;
    config.policy.core.fair.doubled_ns = 5_400_000; // and a tick: the kernel counts lags twice
}

/// So much CPU time in each 100 ms.
pub fn in_100_ms(quota_ms: Option<u64>) -> Limits {
    Limits {
        quota_ns: quota_ms.map(|ms| ms * MS as u64),
        period_ns: 100 * MS as u64,
        burst_ns: 0,
        onset_percent: 0,
    }
}

/// A percentile of the latencies, in ms.
pub fn p(outcome: &Outcome, percent: f64) -> f64 {
    percentile_ns(&outcome.latencies(None), percent) as f64 / MS as f64
}
