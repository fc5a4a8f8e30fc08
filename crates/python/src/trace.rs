// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A recording's events as a table.
use crate::error;
use crate::guard::guarded;
use crate::table::Table;
use arrow_array::{ArrayRef, Int32Array, Int64Array, StringArray};
use plimsoll_trace::{Cells, Event, Kept};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::sync::Arc;

/// A recording.
#[pyclass(frozen, module = "plimsoll._plimsoll")]
pub struct Trace {
    /// What is known beside the events, as JSON.
    header: String,
    events: Py<Table>,
}

#[pymethods]
impl Trace {
    /// What is known beside the events: machine, groups, threads and more, as docs/src/reference/trace-format.md has it.
    #[getter]
    fn header<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let json = PyModule::import(py, "json")?;
        let read = json.call_method1("loads", (&self.header,))?;
        Ok(read.cast_into()?)
    }

    /// A row for each event, with the columns of the file.
    #[getter]
    fn events(&self, py: Python<'_>) -> Py<Table> {
        self.events.clone_ref(py)
    }

    fn __repr__(&self) -> String {
        format!("<plimsoll.Trace: {} events>", self.events.get().rows_len())
    }
}

/// Reads a trace of any kind that Plimsoll knows, and checks every value in it.
#[pyfunction]
pub fn read_trace(py: Python<'_>, path: PathBuf) -> PyResult<Trace> {
    let read = guarded(py, move |cancel| {
        let trace = plimsoll_trace::Trace::read_until(&path, cancel)?;
        let header = serde_json::to_string(&trace.header).expect("keys are strings");
        Ok((header, columns(&trace.events)))
    })?;
    let (header, columns) = read.map_err(|error| error::trace(py, &error))?;
    Ok(Trace {
        header,
        events: Py::new(py, Table::from_arrays(columns)?)?,
    })
}

fn columns(events: &[Event]) -> Vec<(String, ArrayRef)> {
    let array = |kept| -> ArrayRef {
        let cells = events.iter().map(Cells::of);
        match kept {
            Kept::Ts => Arc::new(cells.map(|cells| Some(cells.ts_ns)).collect::<Int64Array>()),
            Kept::Int(at) => Arc::new(cells.map(|cells| cells.ints[at]).collect::<Int32Array>()),
            Kept::Text(at) => Arc::new(cells.map(|cells| cells.texts[at]).collect::<StringArray>()),
            Kept::Long(at) => Arc::new(cells.map(|cells| cells.longs[at]).collect::<Int64Array>()),
        }
    };
    let columns = Cells::columns().into_iter();
    columns.map(|(name, kept)| (name, array(kept))).collect()
}
