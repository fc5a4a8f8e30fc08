// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What Python is told of errors.
use plimsoll_scenario::Problems;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

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
    "A simulation could not go on, such as one in which time stands still."
);
pyo3::create_exception!(
    plimsoll,
    PanicError,
    PyRuntimeError,
    "A bug of the simulator. The interpreter goes on."
);

/// All problems at once, as the command line prints them, and one by one.
pub fn input(py: Python<'_>, problems: &Problems) -> PyErr {
    let error = InputError::new_err(problems.to_string());
    let list: Vec<(String, String, String)> = problems
        .0
        .iter()
        .map(|problem| {
            (
                problem.place.clone(),
                problem.path.clone(),
                problem.message.clone(),
            )
        })
        .collect();
    match error.value(py).setattr("problems", list) {
        Ok(()) => error,
        Err(other) => other,
    }
}
