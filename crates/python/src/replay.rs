// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recordings replayed, as they were and under other limits.
use crate::error;
use crate::guard::{guarded, on_all_cpus};
use crate::point::setting;
use crate::recordings::{check_seed, Asked};
use crate::table::{cell, Table};
use arrow_array::{ArrayRef, BooleanArray, Int64Array, StringArray};
use plimsoll_plan::{
    Check, Figures, PlanError, Range, Replayed, Replicates, SourceError, Subject, REPLICATES,
};
use plimsoll_replay::{Outcome, Program, SettingsError};
use plimsoll_sweep::{fields, Cell, Row};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;

/// Recordings, their replays, and what changed settings make of them.
#[pyclass(frozen, module = "plimsoll._plimsoll", get_all)]
pub struct Replay {
    /// The group that matters.
    group: String,
    /// Whether the replays under the recorded settings show what was recorded.
    holds: bool,
    /// Doubts about the recordings.
    warnings: Vec<String>,
    /// A row for each `recording` and `run`: recorded, replayed, and, with `set`, changed, of nine of ten runs with `low`, `middle`
    /// and `high`.
    figures: Py<Table>,
    /// A row for each recording and figure that is compared.
    checks: Py<Table>,
    /// A row for each request of each run.
    requests: Py<Table>,
}

/// What may go wrong on the way.
pub enum Failed {
    Source(SourceError),
    Settings(SettingsError),
    Plan(PlanError),
    Machine(String),
}

impl Failed {
    pub fn raise(&self, py: Python<'_>) -> PyErr {
        match self {
            Failed::Source(error) => error::source(py, error),
            Failed::Settings(error) => error::settings(py, error),
            Failed::Plan(error) => error::plan(py, error),
            Failed::Machine(text) => error::RunError::new_err(text.clone()),
        }
    }
}

impl From<SourceError> for Failed {
    fn from(error: SourceError) -> Failed {
        Failed::Source(error)
    }
}

impl From<SettingsError> for Failed {
    fn from(error: SettingsError) -> Failed {
        Failed::Settings(error)
    }
}

impl From<PlanError> for Failed {
    fn from(error: PlanError) -> Failed {
        Failed::Plan(error)
    }
}

/// Rows on the way to tables.
#[derive(Default)]
struct Found {
    group: String,
    holds: bool,
    warnings: Vec<String>,
    figures: Vec<Row>,
    checks: Vec<Row>,
    requests: Requests,
}

#[derive(Default)]
struct Requests {
    recording: Vec<i64>,
    run: Vec<&'static str>,
    begin_ns: Vec<i64>,
    latency_ns: Vec<i64>,
    class: Vec<String>,
    done: Vec<bool>,
}

impl Requests {
    fn add(&mut self, recording: usize, run: &'static str, program: &Program, outcome: &Outcome) {
        for request in &outcome.requests {
            self.recording.push(recording as i64);
            self.run.push(run);
            self.begin_ns.push(request.begin_ns as i64);
            self.latency_ns.push(request.latency_ns as i64);
            self.class
                .push(program.classes[request.class as usize].name.clone());
            self.done.push(request.done);
        }
    }

    fn columns(self) -> Vec<(String, ArrayRef)> {
        let text = |values: Vec<&str>| -> ArrayRef { Arc::new(StringArray::from(values)) };
        let whole = |values: Vec<i64>| -> ArrayRef { Arc::new(Int64Array::from(values)) };
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("recording", whole(self.recording)),
            ("run", text(self.run)),
            ("class", Arc::new(StringArray::from(self.class))),
            ("begin_ns", whole(self.begin_ns)),
            ("latency_ns", whole(self.latency_ns)),
            ("done", Arc::new(BooleanArray::from(self.done))),
        ];
        let named = columns.into_iter().map(|(name, array)| (name.to_string(), array));
        named.collect()
    }
}

/// Replays recordings of one service.
#[pyfunction]
#[pyo3(signature = (recordings, *, set=None, group=None, request=None, seed=None))]
pub fn replay(
    py: Python<'_>,
    recordings: &Bound<'_, PyAny>,
    set: Option<&Bound<'_, PyDict>>,
    group: Option<String>,
    request: Option<&str>,
    seed: Option<u64>,
) -> PyResult<Replay> {
    let asked = Asked::new(recordings, group, request)?;
    check_seed(seed)?;
    let mut sets = Vec::new();
    for (key, value) in set.into_iter().flatten() {
        let key: String = key.extract()?;
        sets.push(format!("{key}={}", setting(&cell(&key, &value)?).toml()));
    }
    let found = guarded(py, move |cancel| {
        let work = || find(&asked, &sets, seed, cancel);
        on_all_cpus(work).unwrap_or_else(|error| Err(Failed::Machine(error)))
    })?;
    let found = found.map_err(|failed| failed.raise(py))?;
    let heads = ["recording", "run", "name", "unit"].map(String::from);
    Ok(Replay {
        group: found.group,
        holds: found.holds,
        warnings: found.warnings,
        figures: Py::new(py, Table::new(&found.figures, &heads)?)?,
        checks: Py::new(py, Table::new(&found.checks, &heads)?)?,
        requests: Py::new(py, Table::from_arrays(found.requests.columns())?)?,
    })
}

fn find(
    asked: &Asked,
    sets: &[String],
    seed: Option<u64>,
    cancel: &Arc<std::sync::atomic::AtomicBool>,
) -> Result<Found, Failed> {
    let recordings = asked.read(cancel)?;
    let mut found = Found {
        group: recordings.median().target_path().to_string(),
        holds: true,
        ..Found::default()
    };
    let mut all = Vec::new();
    for source in &recordings.sources {
        all.push(Replayed::of(source, sets, seed)?);
    }
    for (number, replayed) in all.iter().enumerate() {
        let program = &replayed.source.program;
        found.holds &= replayed.check.holds();
        found.warnings.extend(replayed.source.doubts());
        for (run, outcome) in [("recorded", &replayed.recorded), ("replayed", &*replayed.same)] {
            found.add(number, run, program, outcome);
        }
        for check in &replayed.check.checks {
            found.checks.push(checked(number, check));
        }
    }
    if !sets.is_empty() {
        let changed: Vec<_> = all.iter().map(|replayed| replayed.changed.clone()).collect();
        let replicates = Replicates::run(&recordings, &changed, REPLICATES)?;
        let program = &recordings.median().program;
        found.add(
            recordings.median,
            "changed",
            program,
            replicates.first(recordings.median),
        );
        let last = found.figures.last_mut().expect("it has just been added");
        for (name, range) in [
            ("p50_ns", replicates.percentile(50.0)),
            ("p99_ns", replicates.percentile(99.0)),
            ("throttled", replicates.range(&Subject::Throttled)),
            ("cpus", replicates.cpus()),
        ] {
            add_range(last, name, range);
        }
        found
            .warnings
            .extend(recordings.few_requests("p99 latency", None));
    }
    Ok(found)
}

impl Found {
    fn add(&mut self, recording: usize, run: &'static str, program: &Program, outcome: &Outcome) {
        let mut row = fields(&Figures::of(program, outcome));
        row.insert("recording".into(), Cell::Integer(recording as i64));
        row.insert("run".into(), Cell::Text(run.into()));
        self.figures.push(row);
        self.requests.add(recording, run, program, outcome);
    }
}

fn add_range(row: &mut Row, name: &str, range: Option<Range>) {
    let Some(range) = range else { return };
    for (end, value) in [("low", range.low), ("middle", range.middle), ("high", range.high)] {
        row.insert(format!("{name}.{end}"), Cell::Number(value));
    }
}

fn checked(recording: usize, check: &Check) -> Row {
    let mut row = Row::from([
        ("recording".into(), Cell::Integer(recording as i64)),
        ("name".into(), Cell::Text(check.name.clone())),
        ("unit".into(), Cell::Text(check.unit.into())),
        ("recorded".into(), Cell::Number(check.recorded)),
        ("replayed".into(), Cell::Number(check.replayed)),
        ("holds".into(), Cell::Flag(check.holds())),
    ]);
    if let Some(tolerance) = check.tolerance {
        row.insert("tolerance".into(), Cell::Number(tolerance));
    }
    row
}
