// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One row of a screening, and rows as CSV.
use crate::class::{Advice, Class};
use crate::model::{Change, Estimate};
use crate::owners::Workload;
use schemars::JsonSchema;
use serde::Serialize;

/// One container of one workload, over all of its pods.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Row {
    pub workload: Workload,
    pub container: String,
    pub class: Class,
    pub reason: String,
    /// That run today.
    pub pods: u64,
    /// One of them.
    pub pod: String,
    /// CPUs of one pod: on average, in 99% of the samples or less, and the most.
    pub used: f64,
    pub used_p99: f64,
    pub used_max: f64,
    /// CPUs of one pod.
    pub limit: Option<f64>,
    pub request: Option<f64>,
    pub period_ms: f64,
    /// Counted, of all pods.
    pub periods: f64,
    pub throttled_share: f64,
    /// Summed over CPUs and pods; `None`: the series is missing.
    pub throttled_s: Option<f64>,
    /// Share of the time in which some thread waited for a CPU; `None`: no pressure stall information.
    pub waiting_share: Option<f64>,
    /// Hour of the day (UTC) and its share of throttled periods.
    pub worst_hour: Option<(usize, f64)>,
    pub samples: u64,
    pub advice: Advice,
    /// What was asked, the setting, and what the model says.
    pub estimates: Vec<(String, Change, Estimate)>,
    pub notes: Vec<String>,
}

/// Every row with a header. Units stand in the names of the columns; empty: not set or not known.
pub fn write_csv(rows: &[Row]) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let head = [
        "namespace",
        "kind",
        "workload",
        "container",
        "class",
        "pods",
        "used_cpus",
        "used_p99_cpus",
        "used_max_cpus",
        "request_cpus",
        "limit_cpus",
        "periods",
        "throttled_percent",
        "throttled_s",
        "advised_request_cpus",
        "advised_limit_cpus",
        "advised_burst_ms",
        "back_cpus",
        "reason",
    ];
    let or_empty = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.4}"));
    writer.write_record(head).expect("memory");
    for row in rows {
        let cells = [
            row.workload.namespace.clone(),
            row.workload.kind.clone(),
            row.workload.name.clone(),
            row.container.clone(),
            row.class.name().into(),
            row.pods.to_string(),
            format!("{:.4}", row.used),
            format!("{:.4}", row.used_p99),
            format!("{:.4}", row.used_max),
            or_empty(row.request),
            or_empty(row.limit),
            format!("{:.0}", row.periods),
            format!("{:.3}", row.throttled_share * 100.0),
            or_empty(row.throttled_s),
            or_empty(row.advice.request),
            or_empty(row.advice.limit),
            or_empty(row.advice.burst_ms),
            format!("{:.4}", row.advice.back_cpus),
            row.reason.clone(),
        ];
        writer.write_record(cells).expect("memory");
    }
    writer.into_inner().expect("memory")
}
