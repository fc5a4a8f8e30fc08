// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What goals speak of, measured; and whether a replay under the recorded settings shows what was recorded.
use crate::confidence::mean;
use crate::goal::Subject;
use plimsoll_replay::{Outcome, Program};
use plimsoll_stats::percentile_ns;

/// The value of a goal's subject: ns, or a share. `None`: no such request, or no limit to be throttled by.
pub fn measure(program: &Program, outcome: &Outcome, subject: &Subject) -> Option<f64> {
    match subject {
        Subject::Throttled => Some(outcome.groups[program.target as usize].throttled.unwrap_or(0.0)),
        Subject::Percentile { percent, class } => {
            let found = latencies(program, outcome, class.as_deref());
            (!found.is_empty()).then(|| percentile_ns(&found, *percent) as f64)
        }
        Subject::Mean { class } => {
            let found = latencies(program, outcome, class.as_deref());
            (!found.is_empty()).then(|| mean(&found))
        }
    }
}

fn latencies(program: &Program, outcome: &Outcome, class: Option<&str>) -> Vec<u64> {
    match class {
        None => outcome.latencies(None),
        Some(name) => match program.classes.iter().position(|c| c.name == name) {
            Some(class) => outcome.latencies(Some(class as u32)),
            None => Vec::new(),
        },
    }
}

/// One figure, recorded and replayed.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    pub name: String,
    pub unit: &'static str,
    pub recorded: f64,
    pub replayed: f64,
    /// Largest relative difference that is allowed; `None`: for information.
    pub tolerance: Option<f64>,
    /// In `unit`: a difference that is allowed whatever it is relatively.
    pub points: f64,
}

impl Check {
    pub fn difference(&self) -> f64 {
        match self.recorded {
            0.0 if self.replayed == 0.0 => 0.0,
            0.0 => f64::INFINITY,
            recorded => (self.replayed - recorded) / recorded,
        }
    }

    pub fn holds(&self) -> bool {
        let near = (self.replayed - self.recorded).abs() <= self.points;
        self.tolerance
            .is_none_or(|allowed| near || self.difference().abs() <= allowed)
    }
}

/// All figures of the self-check.
#[derive(Clone, Debug, PartialEq)]
pub struct SelfCheck {
    pub checks: Vec<Check>,
}

impl SelfCheck {
    pub fn holds(&self) -> bool {
        self.checks.iter().all(Check::holds)
    }

    /// What does not hold, in words: "p50 latency -42.4% (allowed 10%), ...".
    pub fn missed(&self) -> String {
        let off = |check: &Check| {
            let allowed = check.tolerance.unwrap_or(0.0) * 100.0;
            format!(
                "{} {:+.1}% (allowed {allowed:.0}%)",
                check.name,
                check.difference() * 100.0
            )
        };
        let missed: Vec<String> = self.checks.iter().filter(|c| !c.holds()).map(off).collect();
        missed.join(", ")
    }
}

/// A thread that found its data as it looked was not woken, so no recording tells how long it takes to run where a replay wakes it: 0.01
/// to 0.05 ms. A replay may be off by so much, ms. It is a twentieth of the smallest quota.
const WAKE_UP_MS: f64 = 0.05;
/// Of the share of throttled periods, in percent.
const THROTTLED_POINTS: f64 = 5.0;

/// Compares the recording with its replay under the recorded settings. The tolerances are those that predictions are
/// held to against real kernels: CPU use within 3%, p50 within 10%, p99 within 15%, and latencies that differ by no more than a wake-up
/// takes, 0.05 ms. Where there are no requests it is the share of throttled periods that a plan rests on: within 15%, or 5 points.
pub fn self_check(program: &Program, recorded: &Outcome, replayed: &Outcome) -> SelfCheck {
    let mut checks = Vec::new();
    let mut add = |name: &str, unit, values: [f64; 2], tolerance, points| {
        checks.push(Check {
            name: name.into(),
            unit,
            recorded: values[0],
            replayed: values[1],
            tolerance,
            points,
        });
    };
    let (old, new) = (recorded.latencies(None), replayed.latencies(None));
    add("requests", "", [old.len() as f64, new.len() as f64], None, 0.0);
    let percents: &[(f64, Option<f64>)] = match program.nr_requests() {
        0 => &[],
        _ => &[
            (50.0, Some(0.10)),
            (90.0, None),
            (99.0, Some(0.15)),
            (100.0, None),
        ],
    };
    for &(percent, tolerance) in percents {
        let name = if percent == 100.0 {
            "max latency".into()
        } else {
            format!("p{percent} latency")
        };
        let values = [&old, &new].map(|l| percentile_ns(l, percent) as f64 / 1e6);
        add(&name, "ms", values, tolerance, WAKE_UP_MS);
    }
    let target = program.target as usize;
    let cpus = [recorded.groups[target].cpus, replayed.groups[target].cpus];
    add(
        &format!("CPU use of {}", program.groups[target].path),
        "CPUs",
        cpus,
        Some(0.03),
        0.0,
    );
    if let (Some(a), Some(b)) = (
        recorded.groups[target].throttled,
        replayed.groups[target].throttled,
    ) {
        let tolerance = (program.nr_requests() == 0).then_some(0.15);
        add(
            "throttled periods",
            "%",
            [a * 100.0, b * 100.0],
            tolerance,
            THROTTLED_POINTS,
        );
    }
    SelfCheck { checks }
}
