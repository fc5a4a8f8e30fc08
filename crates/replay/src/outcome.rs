// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a replay, or the recording itself, measured.
use crate::request::ClassIx;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub begin_ns: u64,
    /// For one that was not done at the end: how old it was then.
    pub latency_ns: u64,
    pub class: ClassIx,
    pub done: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuStat {
    pub nr_periods: u64,
    pub nr_throttled: u64,
    pub throttled_ns: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct GroupOutcome {
    pub path: String,
    pub usage_ns: u64,
    /// CPUs used on average while there were requests: up to `busy_ns`.
    pub cpus: f64,
    pub stat: Option<CpuStat>,
    /// Share of periods that ended with the group throttled on a CPU; `None`: no limit.
    pub throttled: Option<f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// In the order in which they began in the recording.
    pub requests: Vec<Request>,
    /// As in the program.
    pub groups: Vec<GroupOutcome>,
    pub end_ns: u64,
    /// When the last request that was done was done; rates are up to here.
    pub busy_ns: u64,
    /// Share of the recorded work that was done.
    pub work_done: f64,
    /// Scheduling events simulated; 0 for the recording.
    pub events: u64,
}

impl Outcome {
    /// Latencies of one class, or of all, ascending.
    pub fn latencies(&self, class: Option<ClassIx>) -> Vec<u64> {
        let mut all: Vec<u64> = self
            .requests
            .iter()
            .filter(|r| class.is_none_or(|c| c == r.class))
            .map(|r| r.latency_ns)
            .collect();
        all.sort_unstable();
        all
    }
}
