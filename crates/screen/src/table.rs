// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One row of a screening, and rows as CSV and Parquet.
use crate::class::{Advice, Class};
use crate::model::{Change, Estimate};
use crate::owners::Workload;
use plimsoll_columns::{Cell, Column, Columns};
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
    /// One of so many samples was looked at, evenly over the time; 1: every one.
    pub one_in: f64,
    pub advice: Advice,
    /// What was asked, the setting, and what the model says.
    pub estimates: Vec<(String, Change, Estimate)>,
    pub notes: Vec<String>,
}

impl Row {
    /// How much it may lose by its limit: what each throttled period costs is at least a part of it, for each pod. 0: it is not
    /// throttled.
    pub fn worth_recording(&self) -> f64 {
        match self.class {
            Class::ThrottledByBursts | Class::TooSmall => {
                self.throttled_share * self.used_p99.max(0.01) * self.pods.max(1) as f64
            }
            _ => 0.0,
        }
    }
}

/// A column of files: its name, in which its unit stands, and its value; `None`: not set or not known.
type Field = (&'static str, fn(&Row) -> Option<Cell>);

const FIELDS: [Field; 21] = [
    ("namespace", |row| text(&row.workload.namespace)),
    ("kind", |row| text(&row.workload.kind)),
    ("workload", |row| text(&row.workload.name)),
    ("container", |row| text(&row.container)),
    ("class", |row| text(row.class.name())),
    ("pods", |row| Some(Cell::Integer(row.pods as i64))),
    ("used_cpus", |row| number(row.used)),
    ("used_p99_cpus", |row| number(row.used_p99)),
    ("used_max_cpus", |row| number(row.used_max)),
    ("request_cpus", |row| row.request.and_then(number)),
    ("limit_cpus", |row| row.limit.and_then(number)),
    ("periods", |row| Some(Cell::Integer(row.periods.round() as i64))),
    ("throttled_percent", |row| number(row.throttled_share * 100.0)),
    ("throttled_s", |row| row.throttled_s.and_then(number)),
    ("advised_request_cpus", |row| row.advice.request.and_then(number)),
    ("advised_limit_cpus", |row| row.advice.limit.and_then(number)),
    ("advised_burst_ms", |row| row.advice.burst_ms.and_then(number)),
    ("back_cpus", |row| number(row.advice.back_cpus + 0.0)),
    ("saved_a_month", |row| row.advice.saved_a_month.and_then(number)),
    ("one_sample_in", |row| number(row.one_in)),
    ("reason", |row| text(&row.reason)),
];

fn text(text: &str) -> Option<Cell> {
    Some(Cell::Text(text.into()))
}

fn number(value: f64) -> Option<Cell> {
    Some(Cell::Number(value))
}

/// Every row with a header. Units stand in the names of the columns; empty: not set or not known.
pub fn write_csv(rows: &[Row]) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(FIELDS.map(|(name, _)| name)).expect("memory");
    for row in rows {
        let cells = FIELDS.map(|(_, of)| match of(row) {
            Some(Cell::Number(value)) => format!("{value:.4}"),
            Some(cell) => cell.text(),
            None => String::new(),
        });
        writer.write_record(cells).expect("memory");
    }
    writer.into_inner().expect("memory")
}

/// The same columns as a Parquet file, with all digits; a column of which nothing is known has only missing values.
pub fn write_parquet(rows: &[Row]) -> Vec<u8> {
    let column = |(name, of): Field| {
        let cells = rows.iter().map(of);
        let column = match name {
            "namespace" | "kind" | "workload" | "container" | "class" | "reason" => {
                Column::Text(cells.map(|cell| Some(cell?.text())).collect())
            }
            "pods" | "periods" => Column::Integer(cells.map(|cell| cell?.integer()).collect()),
            _ => Column::Number(cells.map(|cell| cell?.number()).collect()),
        };
        (name.to_string(), column)
    };
    let columns = Columns(FIELDS.map(column).into());
    columns.parquet().expect("columns of one length, into memory")
}
