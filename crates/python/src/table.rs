// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rows as a table that other libraries take through the Arrow PyCapsule interface, without a copy.
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, RecordBatchIterator, StringArray,
};
use arrow_schema::{DataType, Field, Schema};
use plimsoll_sweep::{Cell, Column, Columns, Row};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyCapsule, PyDict, PyList, PyString, PyTuple};
use std::sync::Arc;

/// Runs, one in each row.
#[pyclass(frozen, module = "plimsoll._plimsoll")]
pub struct Table {
    columns: Columns,
    batch: RecordBatch,
}

impl Table {
    /// `first`: the columns that come first, where a row has them.
    pub fn new(rows: &[Row], first: &[String]) -> PyResult<Self> {
        Self::of(Columns::of(rows, first))
    }

    fn of(columns: Columns) -> PyResult<Self> {
        let (mut fields, mut arrays) = (Vec::new(), Vec::<ArrayRef>::new());
        for (name, column) in &columns.0 {
            let (kind, array): (DataType, ArrayRef) = match column {
                Column::Integer(values) => (DataType::Int64, Arc::new(Int64Array::from(values.clone()))),
                Column::Number(values) => (DataType::Float64, Arc::new(Float64Array::from(values.clone()))),
                Column::Flag(values) => (DataType::Boolean, Arc::new(BooleanArray::from(values.clone()))),
                Column::Text(values) => (DataType::Utf8, Arc::new(StringArray::from_iter(values.iter()))),
            };
            fields.push(Field::new(name, kind, true));
            arrays.push(array);
        }
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Table { columns, batch })
    }
}

#[pymethods]
impl Table {
    /// A table of the rows that `run_point` gave.
    #[staticmethod]
    fn from_rows(rows: Vec<Bound<'_, PyDict>>, first: Vec<String>) -> PyResult<Self> {
        let mut all = Vec::with_capacity(rows.len());
        for row in &rows {
            let mut cells = Row::new();
            for (name, value) in row {
                let name: String = name.extract()?;
                let value = cell(&name, &value)?;
                cells.insert(name, value);
            }
            all.push(cells);
        }
        Self::new(&all, &first)
    }

    /// What `parquet` gave.
    #[staticmethod]
    fn from_parquet(bytes: Vec<u8>) -> PyResult<Self> {
        let columns = Columns::read(bytes, None).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Self::of(columns)
    }

    /// The bytes of a Parquet file: the same runs give the same ones.
    fn parquet<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.columns.parquet();
        let bytes = bytes.map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// The names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<&str> {
        self.columns.0.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// Each row as a dict, for those without a library for tables.
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let rows = (0..self.columns.rows()).map(|row| dict(py, &self.columns.row(row)));
        PyList::new(py, rows.collect::<PyResult<Vec<_>>>()?)
    }

    fn __len__(&self) -> usize {
        self.columns.rows()
    }

    fn __repr__(&self) -> String {
        format!(
            "<plimsoll.Table: {} rows, {} columns>",
            self.columns.rows(),
            self.columns.0.len()
        )
    }

    /// The Arrow PyCapsule interface. The schema is the one there is: who asks for another one casts.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        // A batch is pointers to columns that it shares.
        let reader = RecordBatchIterator::new([Ok(self.batch.clone())], self.batch.schema());
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new(py, stream, Some(c"arrow_array_stream".to_owned()))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let py = slf.py();
        let bytes = slf.get().parquet(py)?;
        let make = slf.get_type().getattr("from_parquet")?;
        Ok((make, PyTuple::new(py, [bytes])?))
    }
}

/// A value of Python as one of a row. `name`: what an error calls it.
pub fn cell(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Cell> {
    // True is an integer, too.
    if value.is_instance_of::<PyBool>() {
        return Ok(Cell::Flag(value.extract()?));
    }
    if value.is_instance_of::<PyString>() {
        return Ok(Cell::Text(value.extract()?));
    }
    if let Ok(value) = value.extract::<i64>() {
        return Ok(Cell::Integer(value));
    }
    if let Ok(value) = value.extract::<f64>() {
        return Ok(Cell::Number(value));
    }
    Err(PyTypeError::new_err(format!(
        "{name}: {}; allowed: an int of 64 bits, a float, a bool, a str",
        value.repr()?
    )))
}

/// A row as a dict.
pub fn dict<'py>(py: Python<'py>, row: &Row) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, cell) in row {
        match cell {
            Cell::Integer(value) => dict.set_item(name, value)?,
            Cell::Number(value) => dict.set_item(name, value)?,
            Cell::Flag(value) => dict.set_item(name, value)?,
            Cell::Text(value) => dict.set_item(name, value)?,
        }
    }
    Ok(dict)
}
