// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What commands write as JSON, as types: the schemas of docs/src/reference are made of these, so that a field which is
//! written and not described cannot be.
//!
//! Times are ns and shares are 0 to 1 where a name has no other unit. `format` is raised when a field changes its meaning or
//! goes; new fields do not raise it.
use plimsoll_plan::{Explanation, Figures, Other, Paste, Plan, Range, Variation, WaitingForOthers};
use plimsoll_screen::Screening;
use plimsoll_sweep::Summary;
use schemars::JsonSchema;
use serde::Serialize;

/// The JSON text of a document, its keys in alphabetical order, with a newline at its end.
pub fn text(document: &impl Serialize) -> String {
    let value = serde_json::to_value(document).expect("keys are strings");
    format!("{value:#}\n")
}

/// `plimsoll explain --json`.
#[derive(Serialize, JsonSchema)]
pub struct Explained<'a> {
    /// Version of this format: 1.
    pub format: u32,
    /// The trace's file.
    pub trace: &'a str,
    /// The group that is throttled.
    pub group: &'a str,
    /// Why.
    pub explanation: &'a Explanation,
}

/// `plimsoll screen --json`.
#[derive(Serialize, JsonSchema)]
pub struct Screened<'a> {
    /// Version of this format: 1.
    pub format: u32,
    /// Rows by workload and container.
    pub screening: &'a Screening,
}

/// `plimsoll sweep report --json`.
#[derive(Serialize, JsonSchema)]
pub struct Swept<'a> {
    /// Version of this format: 1.
    pub format: u32,
    /// Quantiles over the seeds, by combination.
    pub sweep: &'a Summary,
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

/// A trace, and its replay under the recorded settings.
#[derive(Serialize, JsonSchema)]
pub struct Recording<'a> {
    /// The trace's file.
    pub trace: &'a str,
    /// Doubts about the trace, as printed.
    pub warnings: Vec<String>,
    /// Whether the replay shows what was recorded.
    pub self_check: Vec<Checked<'a>>,
    /// Figures of the recording.
    pub recorded: Figures,
    /// The same of its replay.
    pub replayed: Figures,
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
    /// Whether the difference is within the tolerance.
    pub holds: bool,
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
