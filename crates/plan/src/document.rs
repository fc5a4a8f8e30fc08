// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plans, replays and explanations as the documented JSON, as types: the schemas of docs/src/reference are made of these, so
//! that a field which is written and not described cannot be.
//!
//! Times are ns and shares are 0 to 1 where a name has no other unit. `format` is raised when a field changes its meaning or
//! goes; new fields do not raise it.
use crate::question::Answer;
use crate::{
    said_of_runtimes, Check, Explanation, Figures, Other, Paste, Plan, Range, Recordings, Replayed,
    Replicates, SelfCheck, Source, Subject, Variation, WaitingForOthers,
};
use schemars::JsonSchema;
use serde::Serialize;

/// Distributions of a replay, each of one run that might have been.
const RESAMPLES: usize = 40;

/// `plimsoll explain --json`.
#[derive(Serialize, JsonSchema)]
pub struct Explained<'a> {
    /// Version of this format: 1.
    pub format: u32,
    /// The trace's file.
    pub trace: &'a str,
    /// The group that is throttled.
    pub group: &'a str,
    /// False: the replay does not show what was recorded. Do not rely on the rest (exit code 1).
    pub self_check_holds: bool,
    /// Why.
    pub explanation: &'a Explanation,
}

impl<'a> Explained<'a> {
    /// Of what [`crate::explain`] found.
    pub fn of(source: &'a Source, check: &SelfCheck, explanation: &'a Explanation) -> Self {
        Explained {
            format: 1,
            trace: &source.file,
            group: source.target_path(),
            self_check_holds: check.holds(),
            explanation,
        }
    }
}

/// `plimsoll plan --json`.
#[derive(Serialize, JsonSchema)]
pub struct Planned<'a> {
    /// Version of this format: 2.
    pub format: u32,
    /// The traces' files.
    pub traces: Vec<String>,
    /// Number of the recording with the median CPU time per request.
    pub median_recording: usize,
    /// Whether most work is for clients that wait for their answers.
    pub closed_loop: bool,
    /// False: the replay does not show what was recorded. Do not rely on the plan (exit code 1).
    pub self_check_holds: bool,
    /// The settings that were looked at, and the one to take.
    pub plan: &'a Plan,
    /// The target that `plan` is for, as in `--for`.
    #[serde(rename = "for")]
    pub target: &'a str,
    /// The best for other targets, where these cannot express the recommendation.
    pub others: Vec<ForOther<'a>>,
    /// Lines to paste, by target.
    pub settings: &'a [Paste],
    /// What to give as `requests.cpu`, CPUs.
    pub request_cpus: f64,
    /// As given; null: not given.
    pub price_per_core: Option<f64>,
    /// What the service's runtime would take from the limit, a sentence for each runtime that was recognised.
    pub runtimes: Vec<String>,
    /// How much of a percentile is waiting for other work of the machine; null: next to nothing, or not known.
    pub waiting_for_others: Option<&'a WaitingForOthers>,
    /// Why the recommendation is not safe; null: it is.
    pub warning: Option<String>,
    /// Percentiles that few requests answer, as printed.
    pub few_requests: Vec<String>,
    /// Whether the goal for throttling was added.
    pub throttled_goal_is_default: bool,
}

impl<'a> Planned<'a> {
    /// Of an answer, with its settings to paste and what is waiting for others. `traces`: the recordings' files as they are
    /// to be named.
    pub fn of(
        recordings: &'a Recordings,
        answer: &'a Answer,
        settings: &'a [Paste],
        waiting: Option<&'a WaitingForOthers>,
        traces: Vec<String>,
        price_per_core: Option<f64>,
    ) -> Self {
        let median = recordings.median();
        let cpus = f64::from(median.machine.topology.nr_cpus());
        let reserved_cpus = answer.plan.recommended.reserved_cpus;
        let warnings = answer.warnings(recordings);
        Planned {
            format: 2,
            traces,
            median_recording: recordings.median,
            closed_loop: median.program.is_closed_loop(),
            self_check_holds: answer.holds(),
            plan: &answer.plan,
            target: answer.target.name(),
            others: answer
                .others()
                .map(|(target, plan)| ForOther { target, plan })
                .collect(),
            settings,
            request_cpus: answer.request_cpus(),
            price_per_core,
            runtimes: said_of_runtimes(&median.program, reserved_cpus, cpus),
            waiting_for_others: waiting,
            warning: warnings.unsafe_anyway,
            few_requests: warnings.few_requests,
            throttled_goal_is_default: answer.throttled_goal_is_default,
        }
    }
}

/// A target that cannot express the recommendation, and the best for it.
#[derive(Serialize, JsonSchema)]
pub struct ForOther<'a> {
    /// The target's name.
    #[serde(rename = "for")]
    pub target: &'a str,
    /// The best that it can express.
    pub plan: &'a Other,
}

/// `plimsoll simulate --replay --json`.
#[derive(Serialize, JsonSchema)]
pub struct Replay<'a> {
    /// Version of this format: 2.
    pub format: u32,
    /// One for each trace.
    pub recordings: Vec<Recording<'a>>,
    /// Number of the recording with the median CPU time per request.
    pub median_recording: usize,
    /// How much recordings, or the blocks of one, differ.
    pub variation: &'a Variation,
    /// The group that matters.
    pub target: &'a str,
    /// Whether most work is for clients that wait for their answers.
    pub closed_loop: bool,
    /// What `--set` changed.
    pub settings: &'a [String],
    /// The median recording under the changed settings; null without `--set`.
    pub changed: Option<Figures>,
    /// Of nine of ten runs under the changed settings; null without `--set`.
    pub ranges: Option<Ranges>,
}

impl<'a> Replay<'a> {
    /// Of recordings, each with its replay, and of what `sets` would have made of them; none: nothing was changed.
    pub fn of(
        recordings: &'a Recordings,
        replayed: &'a [Replayed<'a>],
        sets: &'a [String],
        replicates: Option<&Replicates>,
    ) -> Self {
        let median = &replayed[recordings.median];
        Replay {
            format: 2,
            recordings: replayed.iter().map(Recording::of).collect(),
            median_recording: recordings.median,
            variation: &recordings.variation,
            target: median.source.target_path(),
            closed_loop: median.source.program.is_closed_loop(),
            settings: sets,
            changed: replicates.map(|all| Figures::of(&median.source.program, all.first(recordings.median))),
            ranges: replicates.map(Ranges::of),
        }
    }
}

/// A trace, and its replay under the recorded settings.
#[derive(Serialize, JsonSchema)]
pub struct Recording<'a> {
    /// The trace's file.
    pub trace: &'a str,
    /// Doubts about the trace, as printed.
    pub warnings: Vec<String>,
    /// Share of the group's recorded CPU time that the recorder took, 0 to 1: left out of what is foretold; 0: none, or not known.
    pub recorder_share: f64,
    /// Whether the replay shows what was recorded.
    pub self_check: Vec<Checked<'a>>,
    /// Figures of the recording.
    pub recorded: Figures,
    /// The same of its replay.
    pub replayed: Figures,
}

impl<'a> Recording<'a> {
    fn of(replayed: &'a Replayed) -> Self {
        let program = &replayed.source.program;
        Recording {
            trace: &replayed.source.file,
            warnings: replayed.source.doubts(),
            recorder_share: program.recorder_share(),
            self_check: replayed.check.checks.iter().map(Checked::of).collect(),
            recorded: Figures::of(program, &replayed.recorded),
            replayed: Figures::of(program, &replayed.same),
        }
    }
}

/// One figure of the self-check.
#[derive(Serialize, JsonSchema)]
pub struct Checked<'a> {
    /// As printed.
    pub name: &'a str,
    /// Of `recorded` and `replayed`.
    pub unit: &'a str,
    /// In the recording.
    pub recorded: f64,
    /// In the replay.
    pub replayed: f64,
    /// Largest relative difference that is allowed; null: for information.
    pub tolerance: Option<f64>,
    /// In `unit`: a difference that is allowed whatever it is relatively.
    pub points: f64,
    /// Whether the difference is within what is allowed.
    pub holds: bool,
}

impl<'a> Checked<'a> {
    fn of(check: &'a Check) -> Self {
        Checked {
            name: &check.name,
            unit: check.unit,
            recorded: check.recorded,
            replayed: check.replayed,
            tolerance: check.tolerance,
            points: check.points,
            holds: check.holds(),
        }
    }
}

/// Between which values nine of ten runs are expected; null: no such figure.
#[derive(Serialize, JsonSchema)]
pub struct Ranges {
    /// Latency of half of the requests, ns.
    pub p50_ns: Option<Range>,
    /// Of 99 in 100, ns.
    pub p99_ns: Option<Range>,
    /// Share of throttled periods, 0 to 1.
    pub throttled: Option<Range>,
    /// CPUs that the group uses.
    pub cpus: Option<Range>,
    /// Requests in a second.
    pub requests_per_s: Option<Range>,
    /// What was replayed for these.
    pub cases: Vec<Case>,
}

impl Ranges {
    fn of(replicates: &Replicates) -> Self {
        let case = |(case, latencies): &(crate::Case, Vec<Vec<u64>>)| Case {
            recording: case.recording,
            work_scale: case.work_scale,
            latencies: latencies.iter().map(|l| distribution(l)).collect(),
        };
        Ranges {
            p50_ns: replicates.percentile(50.0),
            p99_ns: replicates.percentile(99.0),
            throttled: replicates.range(&Subject::Throttled),
            cpus: replicates.cpus(),
            requests_per_s: replicates.rate(),
            cases: replicates.resampled(RESAMPLES).iter().map(case).collect(),
        }
    }
}

/// Latencies in ns and how often, to 3 digits.
fn distribution(ascending: &[u64]) -> Vec<(u64, u64)> {
    let mut found: Vec<(u64, u64)> = Vec::new();
    for &ns in ascending {
        let unit = 10u64.pow(ns.max(1).ilog10().saturating_sub(2));
        let ns = ns / unit * unit;
        match found.last_mut() {
            Some((last, count)) if *last == ns => *count += 1,
            _ => found.push((ns, 1)),
        }
    }
    found
}

/// One recording, its work as recorded or scaled.
#[derive(Serialize, JsonSchema)]
pub struct Case {
    /// Number of the recording.
    pub recording: usize,
    /// Factor of all work.
    pub work_scale: f64,
    /// Distributions of latency of runs that might have been: pairs of a latency, ns, and how often it occurs.
    pub latencies: Vec<Vec<(u64, u64)>>,
}
