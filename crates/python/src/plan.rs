// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cheapest limits under which recorded workloads meet goals.
use crate::error;
use crate::guard::{guarded, on_all_cpus};
use crate::recordings::{check_seed, texts, Asked};
use crate::replay::Failed;
use crate::table::Table;
use plimsoll_plan::{Candidate, Goal, Question, Target, Warnings, MAX_CPUS, MIN_THROUGHPUT_PERCENT};
use plimsoll_sweep::{candidate, verdict, Cell, Row};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ops::RangeInclusive;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

/// What is recommended, beside what is in force and what was tried.
#[pyclass(frozen, module = "plimsoll._plimsoll", get_all)]
pub struct Plan {
    /// met, met-narrowly or not-met.
    verdict: String,
    group: String,
    /// As in the columns `goals.N.value`.
    goals: Vec<String>,
    /// Whether the replays show what was recorded: without, the plan is nothing to rely on.
    holds: bool,
    /// CPUs to reserve, such as `requests.cpu`.
    request_cpus: f64,
    /// Why the plan may not be what it seems.
    warnings: Vec<String>,
    /// Text to paste for each system; empty where the replays do not hold.
    settings: Py<PyDict>,
    /// A row for each setting; `what` says which: recommended (nearest where nothing meets the goals), the best for others, next
    /// cheaper, today, frontier.
    table: Py<Table>,
}

#[pymethods]
impl Plan {
    fn __repr__(&self) -> String {
        format!("<plimsoll.Plan: {} for {}>", self.verdict, self.group)
    }
}

struct Found {
    group: String,
    goals: Vec<String>,
    verdict: String,
    holds: bool,
    request_cpus: f64,
    warnings: Warnings,
    settings: Vec<(&'static str, String)>,
    rows: Vec<Row>,
}

/// Plans, as `plimsoll plan` does.
#[pyfunction]
#[pyo3(signature = (recordings, goals, *, group=None, request=None, target=None, max_cpus=None, min_throughput=99.0, seed=1))]
#[allow(clippy::too_many_arguments)] // those of Python
pub fn plan(
    py: Python<'_>,
    recordings: &Bound<'_, PyAny>,
    goals: &Bound<'_, PyAny>,
    group: Option<String>,
    request: Option<&str>,
    target: Option<&str>,
    max_cpus: Option<f64>,
    min_throughput: f64,
    seed: u64,
) -> PyResult<Plan> {
    let asked = Asked::new(recordings, group, request)?;
    let goals = texts("goals", goals)?;
    let refused = |text: &String, allowed: &str| error::argument(py, "goals", &format!("{text:?}"), allowed);
    if goals.is_empty() {
        return Err(error::argument(
            py,
            "goals",
            &"none",
            "one or more, as 'p99(request) < 50ms'",
        ));
    }
    let goals = goals.iter().map(|text| {
        let read = text.parse::<Goal>();
        read.map_err(|bad| {
            let at = format!("at character {} {}", bad.position, bad.allowed);
            refused(text, &at)
        })
    });
    let mut question = Question::about(goals.collect::<PyResult<_>>()?);
    if let Some(name) = target {
        let read = name.parse::<Target>();
        question.target = Some(read.map_err(|_| {
            let names = Target::ALL.map(Target::name).join(", ");
            error::argument(py, "target", &format!("{name:?}"), &names)
        })?);
    }
    question.max_cpus = max_cpus
        .map(|cpus| within(py, "max_cpus", cpus, MAX_CPUS))
        .transpose()?;
    question.min_throughput_percent = within(py, "min_throughput", min_throughput, MIN_THROUGHPUT_PERCENT)?;
    check_seed(Some(seed))?;
    question.seed = seed;
    let found = guarded(py, move |cancel| {
        let work = || find(&asked, &question, cancel);
        on_all_cpus(work).unwrap_or_else(|error| Err(Failed::Machine(error)))
    })?;
    let found = found.map_err(|failed| failed.raise(py))?;
    let settings = PyDict::new(py);
    for (system, text) in &found.settings {
        settings.set_item(system, text)?;
    }
    Ok(Plan {
        verdict: found.verdict,
        group: found.group,
        goals: found.goals,
        holds: found.holds,
        request_cpus: found.request_cpus,
        warnings: found.warnings.all(),
        settings: settings.unbind(),
        table: Py::new(py, Table::new(&found.rows, &["what".to_string()])?)?,
    })
}

fn within(py: Python<'_>, name: &str, value: f64, allowed: RangeInclusive<f64>) -> PyResult<f64> {
    match allowed.contains(&value) {
        true => Ok(value),
        false => {
            let range = format!("{} to {}", allowed.start(), allowed.end());
            Err(error::argument(py, name, &value, &range))
        }
    }
}

fn find(asked: &Asked, question: &Question, cancel: &Arc<AtomicBool>) -> Result<Found, Failed> {
    let recordings = asked.read(cancel)?;
    let answer = question.answer(&recordings, &|_, _| {})?;
    let plan = &answer.plan;
    let row = |what: &str, of: &Candidate| {
        let mut row = candidate(of);
        row.insert("what".into(), Cell::Text(what.into()));
        row
    };
    let mut rows = vec![row(plan.called(), &plan.recommended)];
    rows.extend(answer.others().map(|(name, other)| row(name, &other.recommended)));
    rows.extend(plan.next_cheaper.iter().map(|of| row("next cheaper", of)));
    rows.push(row("today", &plan.today));
    rows.extend(plan.frontier.iter().map(|of| row("frontier", of)));
    let settings = answer.settings(&recordings).into_iter();
    Ok(Found {
        group: plan.group.clone(),
        goals: plan.goals.clone(),
        verdict: verdict(plan.verdict),
        holds: answer.holds(),
        request_cpus: answer.request_cpus(),
        warnings: answer.warnings(&recordings),
        settings: settings.map(|paste| (paste.system, paste.text)).collect(),
        rows,
    })
}
