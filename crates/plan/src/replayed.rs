// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A recording beside its replay under the recorded settings, and what it is to be replayed with instead.
use crate::quantities::{self_check, SelfCheck};
use crate::source::Source;
use plimsoll_replay::{recorded, Outcome, Program, Settings, SettingsError};
use plimsoll_stats::percentile_ns;
use schemars::JsonSchema;
use serde::Serialize;
use std::borrow::Cow;

pub struct Replayed<'a> {
    pub source: &'a Source,
    pub recorded: Outcome,
    /// Under the recorded settings.
    pub same: Cow<'a, Outcome>,
    pub check: SelfCheck,
    /// The recorded settings with what is to be changed.
    pub changed: Settings,
}

impl Replayed<'_> {
    /// `sets`: as [`Settings::set_all`] takes them.
    pub fn of<'a>(
        source: &'a Source,
        sets: &[String],
        seed: Option<u64>,
    ) -> Result<Replayed<'a>, SettingsError> {
        let program = &source.program;
        let mut as_recorded = Settings::recorded(program);
        as_recorded.seed = seed.unwrap_or(as_recorded.seed);
        let mut changed = Settings {
            with_recorder: false,
            ..as_recorded.clone()
        };
        changed.set_all(program, sets)?;
        let recorded = recorded(program);
        let same = match seed {
            None => Cow::Borrowed(source.replayed()?),
            Some(_) => Cow::Owned(source.replay(&as_recorded)?),
        };
        Ok(Replayed {
            source,
            check: self_check(program, &recorded, &same),
            recorded,
            same,
            changed,
        })
    }
}

/// What a recording, or one replay, shows of the group.
#[derive(Serialize, JsonSchema)]
pub struct Figures {
    /// Requests that were answered.
    pub requests: usize,
    /// Latency of half of them, ns; 0 without requests, like those below.
    pub p50_ns: u64,
    /// Of 90 in 100, ns.
    pub p90_ns: u64,
    /// Of 99 in 100, ns.
    pub p99_ns: u64,
    /// Of all, ns.
    pub max_ns: u64,
    /// CPUs that the group used.
    pub cpus: f64,
    /// Share of periods in which it was throttled, 0 to 1; null: not known.
    pub throttled: Option<f64>,
    /// Sum over the CPUs that were throttled, ns; null: not known.
    pub throttled_ns: Option<u64>,
    /// Periods that ended while it was not idle; null: not known.
    pub nr_periods: Option<u64>,
    /// Length of the replay, ns.
    pub end_ns: u64,
    /// Share of the recorded work that was done, 0 to 1.
    pub work_done: f64,
    /// Scheduling events that were simulated; 0 for a recording.
    pub events: u64,
}

impl Figures {
    pub fn of(program: &Program, outcome: &Outcome) -> Figures {
        let latencies = outcome.latencies(None);
        let target = &outcome.groups[program.target as usize];
        Figures {
            requests: latencies.len(),
            p50_ns: percentile_ns(&latencies, 50.0),
            p90_ns: percentile_ns(&latencies, 90.0),
            p99_ns: percentile_ns(&latencies, 99.0),
            max_ns: percentile_ns(&latencies, 100.0),
            cpus: target.cpus,
            throttled: target.throttled,
            throttled_ns: target.stat.map(|s| s.throttled_ns),
            nr_periods: target.stat.map(|s| s.nr_periods),
            end_ns: outcome.end_ns,
            work_done: outcome.work_done,
            events: outcome.events,
        }
    }
}
