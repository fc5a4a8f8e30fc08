// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much of a latency is waiting for others on the machine: what no limit of the service cures.
use crate::goal::{Goal, Subject};
use crate::source::Source;
use plimsoll_replay::{Settings, SettingsError};
use plimsoll_stats::percentile_ns;
use schemars::JsonSchema;
use serde::Serialize;

/// Where they make less of a difference nothing is said.
const SHARE_MIN: f64 = 0.05;

/// A percentile without any limit of the planned group, beside others and without them.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct WaitingForOthers {
    /// In the words of goals.
    pub what: String,
    pub beside_ns: u64,
    pub alone_ns: u64,
    /// CPUs that others took while it was recorded.
    pub cpus: f64,
}

impl WaitingForOthers {
    /// Of the first percentile among the goals, else of p99 of all requests. `None`: no others were recorded, they
    /// make no difference, or there are no requests.
    pub fn of(source: &Source, goals: &[Goal]) -> Result<Option<WaitingForOthers>, SettingsError> {
        let program = &source.program;
        if !program.has_rivals() || program.nr_requests() == 0 {
            return Ok(None);
        }
        let goal = goals.iter().find_map(|goal| match &goal.subject {
            Subject::Percentile { percent, class } => {
                Some((*percent, class.as_deref(), goal.subject.to_string()))
            }
            _ => None,
        });
        let (percent, class, what) = goal.unwrap_or((99.0, None, "p99(request)".into()));
        let class = class.and_then(|name| program.classes.iter().position(|c| c.name == name));
        let of = |alone| {
            let mut settings = Settings::unrecorded(program);
            settings.alone = alone;
            settings.groups[program.target as usize].quota_us = None;
            let outcome = source.replay(&settings)?;
            Ok(percentile_ns(
                &outcome.latencies(class.map(|ix| ix as u32)),
                percent,
            ))
        };
        let found = WaitingForOthers {
            what,
            beside_ns: of(false)?,
            alone_ns: of(true)?,
            cpus: program.others_ns as f64 / program.duration_ns.max(1) as f64,
        };
        Ok((found.share() >= SHARE_MIN).then_some(found))
    }

    /// Of the percentile, what is waiting for others; 0 to 1.
    pub fn share(&self) -> f64 {
        1.0 - self.alone_ns as f64 / self.beside_ns.max(1) as f64
    }
}
