// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Python's view of the simulator: the module `plimsoll._plimsoll`; python/plimsoll/ holds what users import, with its types.
//!
//! Invariant: whatever computes does so in [`guard::guarded`]: without the interpreter's lock, stopped by Ctrl-C, and a panic is
//! an exception.
mod error;
mod guard;
mod plan;
mod point;
mod recordings;
mod replay;
mod table;
mod trace;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;

/// Runs a scenario and gives its row.
#[pyfunction]
#[pyo3(signature = (scenario, *, set=None, seed=None))]
fn simulate(
    py: Python<'_>,
    scenario: PathBuf,
    set: Option<&Bound<'_, PyDict>>,
    seed: Option<u64>,
) -> PyResult<table::Table> {
    let point = point::Point::new(scenario, set, seed)?;
    let heads = point.heads();
    let row = point.run(py)?;
    if let Some(error) = row.get("error") {
        return Err(error::RunError::new_err(error.text()));
    }
    table::Table::new(&[row], &heads)
}

/// Runs a point of a sweep and gives its row as a dict. A run that cannot go on has the reason in `error`.
#[pyfunction]
#[pyo3(signature = (scenario, set=None, seed=None))]
fn run_point<'py>(
    py: Python<'py>,
    scenario: PathBuf,
    set: Option<&Bound<'py, PyDict>>,
    seed: Option<u64>,
) -> PyResult<Bound<'py, PyDict>> {
    let row = point::Point::new(scenario, set, seed)?.run(py)?;
    table::dict(py, row)
}

/// Panics where simulations run: shows that the interpreter survives it.
#[pyfunction]
fn _panic(py: Python<'_>) -> PyResult<()> {
    guard::guarded(py, |_| panic!("on purpose"))
}

#[pymodule]
fn _plimsoll(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("__version__", env!("PLIMSOLL_VERSION"))?;
    module.add("InputError", py.get_type::<error::InputError>())?;
    module.add("RunError", py.get_type::<error::RunError>())?;
    module.add("PanicError", py.get_type::<error::PanicError>())?;
    module.add_class::<table::Table>()?;
    module.add_class::<trace::Trace>()?;
    module.add_class::<replay::Replay>()?;
    module.add_class::<plan::Plan>()?;
    module.add_function(wrap_pyfunction!(simulate, module)?)?;
    module.add_function(wrap_pyfunction!(run_point, module)?)?;
    module.add_function(wrap_pyfunction!(trace::read_trace, module)?)?;
    module.add_function(wrap_pyfunction!(replay::replay, module)?)?;
    module.add_function(wrap_pyfunction!(plan::plan, module)?)?;
    module.add_function(wrap_pyfunction!(_panic, module)?)
}
