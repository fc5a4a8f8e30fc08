// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes a trace as one Parquet file, in memory bounded by one row group.
use crate::checksum;
use crate::error::{At, Place, TraceError};
use crate::model::{Event, Header, What};
use crate::schema::{schema, Col, COLUMNS, KEY_HEADER, KEY_VERSION, ROW_GROUP_ROWS, STATS, VERSION};
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
    ints: [Column<i32>; 6],
    texts: [Column<ByteArray>; 4],
    longs: [Column<i64>; 9],
}

/// Where a column's values are kept in [`Rows`].
enum Store {
    Ts,
    Int(usize),
    Text(usize),
    Long(usize),
}

fn store(column: usize) -> Store {
    const INTS: [usize; 6] = [
        Col::Cpu as usize,
        Col::Tid as usize,
        Col::NextTid as usize,
        Col::WakerTid as usize,
        Col::TargetCpu as usize,
        Col::Group as usize,
    ];
    const TEXTS: [usize; 4] = [
        Col::Kind as usize,
        Col::PrevState as usize,
        Col::Context as usize,
        Col::Op as usize,
    ];
    const LATER: [Col; 3] = [Col::Connection, Col::Bytes, Col::RunNs];
    if column == Col::TsNs as usize {
        Store::Ts
    } else if let Some(i) = INTS.iter().position(|&c| c == column) {
        Store::Int(i)
    } else if let Some(i) = TEXTS.iter().position(|&c| c == column) {
        Store::Text(i)
    } else {
        let mut longs = STATS.iter().chain(&LATER);
        Store::Long(
            longs
                .position(|&c| c as usize == column)
                .expect("the rest are statistics, and what later versions count"),
        )
    }
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
        let int = |v: u32| Some(v as i32);
        let [mut tid, mut next, mut waker, mut target, mut group] = [None; 5];
        let [mut state, mut context, mut op] = [None; 3];
        let [mut connection, mut bytes, mut run_ns] = [None; 3];
        let mut stats = [None; 6];
        let kind = match &event.what {
            What::Switch {
                prev,
                prev_state,
                next: n,
            } => {
                (tid, next, state) = (int(*prev), int(*n), Some(prev_state.letter()));
                "switch"
            }
            What::Waking {
                tid: t,
                waker: w,
                context: c,
            } => {
                (tid, waker, context) = (int(*t), int(*w), Some(c.name()));
                "waking"
            }
            What::Wakeup {
                tid: t,
                waker: w,
                target_cpu,
            } => {
                (tid, waker, target) = (int(*t), int(*w), int(*target_cpu));
                "wakeup"
            }
            What::Fork { parent, child } => {
                (tid, waker) = (int(*child), int(*parent));
                "fork"
            }
            What::Exit { tid: t } => {
                tid = int(*t);
                "exit"
            }
            What::Move { tid: t, group: g } => {
                (tid, group) = (int(*t), int(*g));
                "move"
            }
            What::Sample { group: g, stat } => {
                group = int(*g);
                stats = [
                    stat.usage_ns,
                    stat.nr_periods,
                    stat.nr_throttled,
                    stat.throttled_ns,
                    stat.nr_bursts,
                    stat.burst_ns,
                ]
                .map(|v| v.map(|v| v as i64));
                "sample"
            }
            What::Request { tid: t, begin } => {
                tid = int(*t);
                if *begin {
                    "request_begin"
                } else {
                    "request_end"
                }
            }
            What::Socket {
                tid: t,
                connection: c,
                op: o,
                bytes: b,
            } => {
                tid = int(*t);
                (connection, op, bytes) = (Some(*c as i64), Some(o.name()), Some(i64::from(*b)));
                "socket"
            }
            What::Others {
                group: g,
                run_ns: ns,
                state: s,
            } => {
                (group, run_ns, state) = (g.and_then(int), Some(*ns as i64), Some(s.letter()));
                "others"
            }
        };
        self.count += 1;
        self.ts_ns.values.push(event.ts_ns);
        let ints = [int(event.cpu), tid, next, waker, target, group];
        self.ints
            .iter_mut()
            .zip(ints)
            .for_each(|(column, value)| column.push(value));
        let texts = [Some(kind), state, context, op];
        self.texts
            .iter_mut()
            .zip(texts)
            .for_each(|(column, value)| column.push(value.map(text)));
        let longs = stats.into_iter().chain([connection, bytes, run_ns]);
        self.longs
            .iter_mut()
            .zip(longs)
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
            match (writer.untyped(), store(column)) {
                (ColumnWriter::Int64ColumnWriter(w), Store::Ts) => {
                    w.write_batch(&self.ts_ns.values, None, None)?
                }
                (ColumnWriter::Int64ColumnWriter(w), Store::Long(i)) => {
                    w.write_batch(&self.longs[i].values, Some(&self.longs[i].present), None)?
                }
                (ColumnWriter::Int32ColumnWriter(w), Store::Int(i)) => {
                    let levels = (!required).then_some(self.ints[i].present.as_slice());
                    w.write_batch(&self.ints[i].values, levels, None)?
                }
                (ColumnWriter::ByteArrayColumnWriter(w), Store::Text(i)) => {
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
