// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes a trace as one Parquet file, in memory bounded by one row group.
use crate::cells::{self, Cells, Kept};
use crate::checksum;
use crate::error::{At, Place, TraceError};
use crate::model::{Event, Header};
use crate::schema::{schema, Col, COLUMNS, KEY_HEADER, KEY_VERSION, ROW_GROUP_ROWS, VERSION};
use crate::unfinished::Unfinished;
use parquet::basic::{Compression, Encoding};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

/// Takes events in order of time and a header at the end. Nothing appears under the final name until
/// [`TraceWriter::finish`] succeeded: a recording that was interrupted leaves no half file behind.
pub struct TraceWriter {
    names: Unfinished,
    parquet: Option<SerializedFileWriter<BufWriter<File>>>,
    rows: Rows,
    written: u64,
    last_ts_ns: i64,
}

/// One column of the row group that is being filled.
#[derive(Default)]
struct Column<T> {
    values: Vec<T>,
    /// 1 where the row has a value; only used for optional columns.
    present: Vec<i16>,
}

impl<T> Column<T> {
    fn push(&mut self, value: Option<T>) {
        self.present.push(value.is_some() as i16);
        self.values.extend(value);
    }

    fn clear(&mut self) {
        self.values.clear();
        self.present.clear();
    }
}

#[derive(Default)]
struct Rows {
    count: usize,
    ts_ns: Column<i64>,
    ints: [Column<i32>; cells::INTS.len()],
    texts: [Column<ByteArray>; cells::TEXTS.len()],
    longs: [Column<i64>; cells::LONGS.len()],
}

fn text(value: &'static str) -> ByteArray {
    ByteArray::from(bytes::Bytes::from_static(value.as_bytes()))
}

impl TraceWriter {
    /// Starts the file at `path`; an existing file is replaced when the trace is complete. Nothing else is: the trace is
    /// read again to be sealed, and what is renamed over a device takes its place.
    pub fn create(path: &Path) -> Result<TraceWriter, TraceError> {
        if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
            return Err(TraceError::Value {
                place: Place::whole(path),
                field: "output".into(),
                value: "a directory, device or pipe".into(),
                allowed: "a file, or a name that is free".into(),
            });
        }
        let (names, file) = Unfinished::create(path).map_err(|e| TraceError::io(path, "create", e))?;
        let ts = ColumnPath::from("ts_ns");
        let properties = WriterProperties::builder()
            .set_created_by(format!("plimsoll {}", env!("CARGO_PKG_VERSION")))
            .set_compression(Compression::SNAPPY)
            .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
            // Times rise by small steps: differences take a fifth of what plain values take.
            .set_column_dictionary_enabled(ts.clone(), false)
            .set_column_encoding(ts, Encoding::DELTA_BINARY_PACKED)
            .build();
        let parquet = SerializedFileWriter::new(BufWriter::new(file), schema(), Arc::new(properties))
            .map_err(|e| failed(&names.partial, e))?;
        Ok(TraceWriter {
            names,
            parquet: Some(parquet),
            rows: Rows::default(),
            written: 0,
            last_ts_ns: i64::MIN,
        })
    }

    /// Adds one event. Its time must not be before the previous one's.
    pub fn push(&mut self, event: &Event) -> Result<(), TraceError> {
        if event.ts_ns < self.last_ts_ns {
            return Err(TraceError::ClockBackwards {
                place: Place::new(&self.names.path, At::Row(self.written)),
                ts_ns: event.ts_ns,
                previous_ns: self.last_ts_ns,
            });
        }
        self.last_ts_ns = event.ts_ns;
        self.written += 1;
        self.rows.push(event);
        if self.rows.count == ROW_GROUP_ROWS {
            self.flush()?;
        }
        Ok(())
    }

    /// Number of events so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    fn flush(&mut self) -> Result<(), TraceError> {
        let parquet = self.parquet.as_mut().expect("flush comes before finish");
        self.rows
            .write(parquet)
            .map_err(|e| failed(&self.names.partial, e))?;
        self.rows.clear();
        Ok(())
    }

    /// Writes the header and gives the file its final name. Returns the size in bytes.
    pub fn finish(mut self, header: &Header) -> Result<u64, TraceError> {
        if self.rows.count > 0 {
            self.flush()?;
        }
        let mut parquet = self.parquet.take().expect("finish runs once");
        let json = serde_json::to_string(header).map_err(|e| TraceError::Write {
            place: Place::whole(&self.names.partial),
            detail: e.to_string(),
        })?;
        parquet.append_key_value_metadata(KeyValue::new(KEY_VERSION.into(), VERSION.to_string()));
        parquet.append_key_value_metadata(KeyValue::new(KEY_HEADER.into(), json));
        parquet.append_key_value_metadata(KeyValue::new(checksum::KEY.into(), checksum::placeholder()));
        let Unfinished { path, partial } = &self.names;
        let io = |action| move |e| TraceError::io(partial, action, e);
        let mut file = parquet.into_inner().map_err(|e| failed(partial, e))?;
        file.flush().map_err(io("write"))?;
        let mut file = File::options()
            .read(true)
            .write(true)
            .open(partial)
            .map_err(io("open"))?;
        checksum::stamp(&mut file).map_err(io("write"))?;
        self.names
            .finish()
            .map_err(|e| TraceError::io(path, "rename the finished trace to", e))?;
        std::fs::metadata(path)
            .map(|m| m.len())
            .map_err(|e| TraceError::io(path, "read", e))
    }
}

fn failed(path: &Path, error: ParquetError) -> TraceError {
    TraceError::Write {
        place: Place::whole(path),
        detail: error.to_string(),
    }
}

impl Rows {
    fn clear(&mut self) {
        self.count = 0;
        self.ts_ns.clear();
        self.ints.iter_mut().for_each(Column::clear);
        self.texts.iter_mut().for_each(Column::clear);
        self.longs.iter_mut().for_each(Column::clear);
    }

    fn push(&mut self, event: &Event) {
        let cells = Cells::of(event);
        self.count += 1;
        self.ts_ns.values.push(cells.ts_ns);
        self.ints
            .iter_mut()
            .zip(cells.ints)
            .for_each(|(column, value)| column.push(value));
        self.texts
            .iter_mut()
            .zip(cells.texts)
            .for_each(|(column, value)| column.push(value.map(text)));
        self.longs
            .iter_mut()
            .zip(cells.longs)
            .for_each(|(column, value)| column.push(value));
    }

    fn write(&self, parquet: &mut SerializedFileWriter<BufWriter<File>>) -> Result<(), ParquetError> {
        let mut group = parquet.next_row_group()?;
        for column in 0..COLUMNS {
            let mut writer = group.next_column()?.expect("the schema has this many columns");
            // Required columns take no definition levels.
            let required = [Col::TsNs, Col::Cpu, Col::Kind]
                .iter()
                .any(|&c| c as usize == column);
            match (writer.untyped(), cells::place(column)) {
                (ColumnWriter::Int64ColumnWriter(w), Kept::Ts) => {
                    w.write_batch(&self.ts_ns.values, None, None)?
                }
                (ColumnWriter::Int64ColumnWriter(w), Kept::Long(i)) => {
                    w.write_batch(&self.longs[i].values, Some(&self.longs[i].present), None)?
                }
                (ColumnWriter::Int32ColumnWriter(w), Kept::Int(i)) => {
                    let levels = (!required).then_some(self.ints[i].present.as_slice());
                    w.write_batch(&self.ints[i].values, levels, None)?
                }
                (ColumnWriter::ByteArrayColumnWriter(w), Kept::Text(i)) => {
                    let levels = (!required).then_some(self.texts[i].present.as_slice());
                    w.write_batch(&self.texts[i].values, levels, None)?
                }
                _ => unreachable!("column {column} is stored under another type than the schema's"),
            };
            writer.close()?;
        }
        group.close()?;
        Ok(())
    }
}
