// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rows as a table that other libraries take through the Arrow PyCapsule interface, without a copy.
use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::{Float64Type, Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, RecordBatchIterator, StringArray,
};
use arrow_schema::{DataType, Field, Schema};
use plimsoll_sweep::{Cell, Column, Columns, Row};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyCapsule, PyDict, PyList, PyString, PyTuple};
use std::sync::Arc;

/// Columns of the same length.
#[pyclass(frozen, module = "plimsoll._plimsoll")]
pub struct Table {
    batch: RecordBatch,
}

impl Table {
    /// `first`: the columns that come first, where a row has them.
    pub fn new(rows: &[Row], first: &[String]) -> PyResult<Self> {
        Self::of(Columns::of(rows, first))
    }

    pub fn of(columns: Columns) -> PyResult<Self> {
        let mut all: Vec<(String, ArrayRef)> = Vec::new();
        for (name, column) in columns.0 {
            let array: ArrayRef = match column {
                Column::Integer(values) => Arc::new(Int64Array::from(values)),
                Column::Number(values) => Arc::new(Float64Array::from(values)),
                Column::Flag(values) => Arc::new(BooleanArray::from(values)),
                Column::Text(values) => Arc::new(StringArray::from(values)),
            };
            all.push((name, array));
        }
        Self::from_arrays(all)
    }

    /// Integers of 32 and 64 bits, floats of 64, booleans and texts.
    pub fn from_arrays(columns: Vec<(String, ArrayRef)>) -> PyResult<Self> {
        let field = |(name, array): &(String, ArrayRef)| Field::new(name, array.data_type().clone(), true);
        let fields: Vec<Field> = columns.iter().map(field).collect();
        let arrays = columns.into_iter().map(|(_, array)| array).collect();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Table { batch })
    }

    pub fn rows_len(&self) -> usize {
        self.batch.num_rows()
    }

    fn name(&self, column: usize) -> &str {
        self.batch.schema_ref().field(column).name()
    }

    /// The value of a row in a column.
    fn cell(&self, column: usize, row: usize) -> Option<Cell> {
        let array = self.batch.column(column);
        if array.is_null(row) {
            return None;
        }
        Some(match array.data_type() {
            DataType::Int32 => Cell::Integer(array.as_primitive::<Int32Type>().value(row).into()),
            DataType::Int64 => Cell::Integer(array.as_primitive::<Int64Type>().value(row)),
            DataType::Float64 => Cell::Number(array.as_primitive::<Float64Type>().value(row)),
            DataType::Boolean => Cell::Flag(array.as_boolean().value(row)),
            DataType::Utf8 => Cell::Text(array.as_string::<i32>().value(row).to_string()),
            other => unreachable!("no table is made with {other}"),
        })
    }

    /// As a file of our own takes them.
    fn columns(&self) -> Columns {
        let rows = self.batch.num_rows();
        let column = |at: usize| {
            let cells = (0..rows).map(|row| self.cell(at, row));
            match self.batch.column(at).data_type() {
                DataType::Int32 | DataType::Int64 => {
                    Column::Integer(cells.map(|cell| cell?.integer()).collect())
                }
                DataType::Float64 => Column::Number(cells.map(|cell| cell?.number()).collect()),
                DataType::Boolean => Column::Flag(
                    cells
                        .map(|cell| match cell? {
                            Cell::Flag(value) => Some(value),
                            _ => None,
                        })
                        .collect(),
                ),
                _ => Column::Text(cells.map(|cell| Some(cell?.text())).collect()),
            }
        };
        let all = (0..self.batch.num_columns()).map(|at| (self.name(at).to_string(), column(at)));
        Columns(all.collect())
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
        let bytes = self.columns().parquet();
        let bytes = bytes.map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// The names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<&str> {
        (0..self.batch.num_columns()).map(|at| self.name(at)).collect()
    }

    /// Each row as a dict, for those without a library for tables.
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let columns = 0..self.batch.num_columns();
        let cells = |row| {
            let own = columns.clone();
            own.filter_map(move |at| Some((self.name(at).to_string(), self.cell(at, row)?)))
        };
        let rows = (0..self.batch.num_rows()).map(|row| dict(py, cells(row)));
        PyList::new(py, rows.collect::<PyResult<Vec<_>>>()?)
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    fn __repr__(&self) -> String {
        format!(
            "<plimsoll.Table: {} rows, {} columns>",
            self.batch.num_rows(),
            self.batch.num_columns()
        )
    }

    /// The Arrow PyCapsule interface. The schema is the one there is; a caller that wants another one casts.
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
pub fn dict<'py>(
    py: Python<'py>,
    row: impl IntoIterator<Item = (String, Cell)>,
) -> PyResult<Bound<'py, PyDict>> {
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
