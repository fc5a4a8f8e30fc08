// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What Python is told of errors.
use plimsoll_plan::{PlanError, SourceError};
use plimsoll_replay::SettingsError;
use plimsoll_scenario::{Problem, Problems};
use plimsoll_trace::TraceError;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::fmt::Display;

pyo3::create_exception!(
    plimsoll,
    InputError,
    PyValueError,
    "An input is wrong. `problems` lists (place, key, what was given and what is allowed)."
);
pyo3::create_exception!(
    plimsoll,
    RunError,
    PyRuntimeError,
    "A simulation could not go on, such as one in which time stands still, or this machine cannot run it."
);
pyo3::create_exception!(
    plimsoll,
    PanicError,
    PyRuntimeError,
    "A bug of the simulator. The interpreter goes on."
);

/// All problems at once, as the command line prints them, and one by one.
pub fn input(py: Python<'_>, problems: &Problems) -> PyErr {
    let one = |problem: &Problem| {
        let (place, key) = (problem.place.clone(), problem.path.clone());
        (place, key, problem.message.clone())
    };
    with(py, problems.to_string(), problems.0.iter().map(one).collect())
}

/// One of an argument.
pub fn argument(py: Python<'_>, name: &str, value: &dyn Display, allowed: &str) -> PyErr {
    let message = format!("{value} is not allowed; allowed: {allowed}");
    let text = format!("{name}: {message}");
    with(py, text, vec![(String::new(), name.to_string(), message)])
}

/// One of a recording.
pub fn source(py: Python<'_>, error: &SourceError) -> PyErr {
    match error {
        SourceError::Trace(error) => trace(py, error),
        SourceError::Settings(error) => settings(py, error),
        SourceError::Empty { file, what, .. } => {
            let text = error.to_string();
            let message = text.strip_prefix(&format!("{file}: {what}: ")).unwrap_or(&text);
            let problem = (file.clone(), what.to_string(), message.to_string());
            with(py, text.clone(), vec![problem])
        }
    }
}

/// One of a trace's file.
pub fn trace(py: Python<'_>, error: &TraceError) -> PyErr {
    let text = error.to_string();
    let (place, key) = match error {
        TraceError::Value { place, field, .. } => (place, field.as_str()),
        TraceError::Io { place, .. }
        | TraceError::GivenUp { place }
        | TraceError::Empty { place, .. }
        | TraceError::Foreign { place, .. }
        | TraceError::Unread { place, .. }
        | TraceError::Truncated { place, .. }
        | TraceError::Damaged { place, .. }
        | TraceError::ClockBackwards { place, .. }
        | TraceError::Untrustworthy { place, .. }
        | TraceError::Tool { place, .. }
        | TraceError::Write { place, .. } => (place, ""),
    };
    let place = place.to_string();
    let rest = text.strip_prefix(&format!("{place}: ")).unwrap_or(&text);
    let rest = rest.strip_prefix(&format!("{key}: ")).unwrap_or(rest);
    with(py, text.clone(), vec![(place, key.to_string(), rest.to_string())])
}

/// One of a setting.
pub fn settings(py: Python<'_>, error: &SettingsError) -> PyErr {
    let SettingsError { what, value, allowed } = error;
    let message = format!("{value} is not allowed; allowed: {allowed}");
    with(
        py,
        error.to_string(),
        vec![(String::new(), what.clone(), message)],
    )
}

/// Why there is no plan.
pub fn plan(py: Python<'_>, error: &PlanError) -> PyErr {
    match error {
        PlanError::Settings(error) => settings(py, error),
        PlanError::TooFewRequests(error) => {
            let problem = (String::new(), "goals".to_string(), error.to_string());
            with(py, error.to_string(), vec![problem])
        }
        PlanError::NoRequests { why, .. } => {
            let problem = (why.file.clone(), "goals".to_string(), error.to_string());
            with(py, error.to_string(), vec![problem])
        }
    }
}

fn with(py: Python<'_>, text: String, problems: Vec<(String, String, String)>) -> PyErr {
    let error = InputError::new_err(text);
    match error.value(py).setattr("problems", problems) {
        Ok(()) => error,
        Err(other) => other,
    }
}
