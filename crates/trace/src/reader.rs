// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a trace file, one row group at a time, and believes nothing in it.
use crate::checksum::{self, Verdict};
use crate::error::{At, Place, TraceError};
use crate::header::check_header;
use crate::model::{
    Context, CpuStat, Event, Header, Owed, SocketOp, State, What, CPU_MAX, DURATION_NS_MAX, TID_MAX,
};
use crate::schema::{
    columns_of, schema, Col, COLUMNS, KEY_HEADER, KEY_VERSION, KINDS, STATS, VERSION, VERSION_READ_MIN,
};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader};
use parquet::file::serialized_reader::SerializedFileReader;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// A trace file whose header has been checked. Rows are checked as they are read.
pub struct TraceReader {
    path: PathBuf,
    header: Header,
    /// Of the version that the file has.
    columns: usize,
    connections: BTreeSet<u64>,
    parquet: SerializedFileReader<File>,
    group: usize,
    row: u64,
    last_ts_ns: i64,
}

const MAGIC: &[u8; 4] = b"PAR1";

impl TraceReader {
    /// Opens `path` and checks that it is a complete trace of a version that this program knows.
    pub fn open(path: &Path) -> Result<TraceReader, TraceError> {
        let file = check_magic(path)?;
        let parquet = SerializedFileReader::new(file).map_err(|e| TraceError::Damaged {
            place: Place::whole(path),
            detail: e.to_string(),
        })?;
        let (version, header) = read_header(path, &parquet)?;
        let columns = columns_of(version);
        check_columns(path, &parquet, columns)?;
        check_header(path, &header)?;
        Ok(TraceReader {
            path: path.to_owned(),
            connections: header.sockets.connections.iter().map(|c| c.id).collect(),
            header,
            columns,
            parquet,
            group: 0,
            row: 0,
            last_ts_ns: i64::MIN,
        })
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    pub fn into_header(self) -> Header {
        self.header
    }

    /// Rows in the file, as its metadata counts them.
    pub fn rows(&self) -> u64 {
        self.parquet.metadata().file_metadata().num_rows().max(0) as u64
    }

    /// Appends the next row group to `events`. `false` when there is none left.
    pub fn read_group(&mut self, events: &mut Vec<Event>) -> Result<bool, TraceError> {
        if self.group >= self.parquet.num_row_groups() {
            return Ok(false);
        }
        let damaged = |e: ParquetError| TraceError::Damaged {
            place: Place::new(&self.path, At::Row(self.row)),
            detail: e.to_string(),
        };
        let columns = {
            let group = self.parquet.get_row_group(self.group).map_err(damaged)?;
            Columns::read(group.as_ref(), self.columns).map_err(damaged)?
        };
        self.group += 1;
        let mut cursor = Cursor::default();
        events.reserve(columns.rows);
        for row in 0..columns.rows {
            let event = columns
                .event(row, &mut cursor)
                .map_err(|bad| bad.at(&self.path, self.row))?;
            self.check_event(&event)?;
            self.last_ts_ns = event.ts_ns;
            self.row += 1;
            events.push(event);
        }
        Ok(true)
    }

    fn check_event(&self, event: &Event) -> Result<(), TraceError> {
        let place = || Place::new(&self.path, At::Row(self.row));
        if event.ts_ns < self.last_ts_ns {
            return Err(TraceError::ClockBackwards {
                place: place(),
                ts_ns: event.ts_ns,
                previous_ns: self.last_ts_ns,
            });
        }
        let clock = &self.header.clock;
        if event.ts_ns < clock.start_ns || event.ts_ns > clock.end_ns {
            return Err(TraceError::Value {
                place: place(),
                field: "ts_ns".into(),
                value: format!("{} ns", event.ts_ns),
                allowed: format!("{} to {} ns, the recorded window", clock.start_ns, clock.end_ns),
            });
        }
        let group = match event.what {
            What::Move { group, .. } | What::Sample { group, .. } => Some(group),
            What::Others { group, .. } => group,
            _ => None,
        };
        if let Some(group) = group {
            if group as usize >= self.header.groups.len() {
                return Err(TraceError::Value {
                    place: place(),
                    field: "group".into(),
                    value: group.to_string(),
                    allowed: format!(
                        "below {}, the number of groups in the header",
                        self.header.groups.len()
                    ),
                });
            }
        }
        match event.what {
            What::Socket { connection, .. } if !self.connections.contains(&connection) => {
                Err(TraceError::Value {
                    place: place(),
                    field: "connection".into(),
                    value: connection.to_string(),
                    allowed: format!(
                        "the id of one of the {} connections in the header",
                        self.connections.len()
                    ),
                })
            }
            _ => Ok(()),
        }
    }
}

/// Refuses what is empty, foreign or cut off before the Parquet library sees it, to name it plainly.
fn check_magic(path: &Path) -> Result<File, TraceError> {
    let read_error = |e| TraceError::io(path, "read", e);
    let mut file = File::open(path).map_err(|e| TraceError::io(path, "open", e))?;
    let size = file.metadata().map_err(read_error)?.len();
    const EXPECTED: &str = "a Parquet file written by `plimsoll record`";
    if size == 0 {
        return Err(TraceError::Empty {
            place: Place::whole(path),
            expected: EXPECTED,
        });
    }
    let mut head = [0u8; 8];
    let got = file.read(&mut head).map_err(read_error)?;
    if !head[..got].starts_with(MAGIC) {
        return Err(TraceError::Foreign {
            place: Place::whole(path),
            found: format!(
                "a file that starts with {:?}",
                String::from_utf8_lossy(&head[..got])
            ),
            expected: EXPECTED.into(),
        });
    }
    let mut tail = [0u8; 4];
    if size >= 12 {
        file.seek(SeekFrom::End(-4)).map_err(read_error)?;
        file.read_exact(&mut tail).map_err(read_error)?;
    }
    if &tail != MAGIC {
        return Err(TraceError::Truncated {
            place: Place::whole(path),
            detail: format!("no Parquet footer at the end of its {size} bytes"),
        });
    }
    match checksum::verify(&mut file).map_err(read_error)? {
        Verdict::Intact => Ok(file),
        Verdict::None => Err(TraceError::Foreign {
            place: Place::whole(path),
            found: "a Parquet file without Plimsoll's metadata".into(),
            expected: EXPECTED.into(),
        }),
        Verdict::Damaged { stored, computed } => Err(TraceError::Value {
            place: Place::whole(path),
            field: "CRC-32 of the file's bytes".into(),
            value: computed,
            allowed: format!("{stored}, as stored in it: the file was damaged after it was written"),
        }),
    }
}

/// The version of the file, and its header.
fn read_header(path: &Path, parquet: &SerializedFileReader<File>) -> Result<(u32, Header), TraceError> {
    let pairs = parquet.metadata().file_metadata().key_value_metadata();
    let value = |key: &str| {
        pairs
            .and_then(|kv| kv.iter().find(|kv| kv.key == key))
            .and_then(|kv| kv.value.as_deref())
    };
    let (Some(version), Some(json)) = (value(KEY_VERSION), value(KEY_HEADER)) else {
        return Err(TraceError::Foreign {
            place: Place::whole(path),
            found: "a Parquet file of another program".into(),
            expected: format!("the metadata keys {KEY_VERSION} and {KEY_HEADER}"),
        });
    };
    let Some(known) = (VERSION_READ_MIN..=VERSION).find(|v| v.to_string() == version) else {
        return Err(TraceError::Value {
            place: Place::new(path, At::Part("metadata")),
            field: KEY_VERSION.into(),
            value: version.into(),
            allowed: format!(
                "{VERSION_READ_MIN} to {VERSION}; record anew with this plimsoll, or use a newer one"
            ),
        });
    };
    let header = serde_json::from_str(json).map_err(|e| TraceError::Value {
        place: Place::new(path, At::Part("metadata")),
        field: KEY_HEADER.into(),
        value: e.to_string(),
        allowed: "the JSON object that docs/src/reference/trace-format.md describes".into(),
    })?;
    Ok((known, header))
}

fn check_columns(
    path: &Path,
    parquet: &SerializedFileReader<File>,
    columns: usize,
) -> Result<(), TraceError> {
    let all = schema();
    let want = &all.get_fields()[..columns];
    let have = parquet.metadata().file_metadata().schema();
    let same = want.len() == have.get_fields().len()
        && want.iter().zip(have.get_fields()).all(|(w, h)| {
            w.is_primitive()
                && h.is_primitive()
                && w.name() == h.name()
                && w.get_physical_type() == h.get_physical_type()
                && w.get_basic_info().repetition() == h.get_basic_info().repetition()
        });
    if same {
        return Ok(());
    }
    let names: Vec<&str> = have.get_fields().iter().map(|f| f.name()).collect();
    Err(TraceError::Foreign {
        place: Place::new(path, At::Part("columns")),
        found: names.join(", "),
        expected: want.iter().map(|f| f.name()).collect::<Vec<_>>().join(", "),
    })
}

/// The values of one row group, column by column: non-null values and where they belong.
#[derive(Default)]
struct Columns {
    rows: usize,
    ts_ns: Vec<i64>,
    ints: [Ints; COLUMNS],
    longs: [Longs; COLUMNS],
    texts: [Texts; COLUMNS],
}

type Ints = (Vec<i32>, Vec<i16>);
type Longs = (Vec<i64>, Vec<i16>);
type Texts = (Vec<ByteArray>, Vec<i16>);

/// How many non-null values of each column earlier rows have taken.
#[derive(Default)]
struct Cursor([usize; COLUMNS]);

/// A value that a row must not have.
struct Bad {
    field: &'static str,
    value: String,
    allowed: String,
}

impl Bad {
    fn at(self, path: &Path, row: u64) -> TraceError {
        TraceError::Value {
            place: Place::new(path, At::Row(row)),
            field: self.field.into(),
            value: self.value,
            allowed: self.allowed,
        }
    }
}

fn fill<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    rows: usize,
    values: &mut Vec<T::T>,
    levels: Option<&mut Vec<i16>>,
) -> Result<(), ParquetError>
where
    T::T: Default,
{
    let mut read = 0;
    let mut levels = levels;
    while read < rows {
        let (records, _, _) = reader.read_records(rows - read, levels.as_deref_mut(), None, values)?;
        if records == 0 {
            return Err(ParquetError::EOF(format!(
                "a column ends after {read} of {rows} rows"
            )));
        }
        read += records;
    }
    Ok(())
}

impl Columns {
    /// Those beyond `present` are of later versions: null in every row.
    fn read(group: &dyn RowGroupReader, present: usize) -> Result<Columns, ParquetError> {
        let mut columns = Columns {
            rows: group.metadata().num_rows().max(0) as usize,
            ..Default::default()
        };
        let rows = columns.rows;
        for i in present..COLUMNS {
            columns.longs[i].1.resize(rows, 0);
            columns.texts[i].1.resize(rows, 0);
        }
        for i in 0..present {
            let required = [Col::TsNs, Col::Cpu, Col::Kind].iter().any(|&c| c as usize == i);
            match group.get_column_reader(i)? {
                ColumnReader::Int64ColumnReader(r) if i == Col::TsNs as usize => {
                    fill(r, rows, &mut columns.ts_ns, None)?
                }
                ColumnReader::Int64ColumnReader(r) => {
                    let (values, levels) = &mut columns.longs[i];
                    fill(r, rows, values, Some(levels))?
                }
                ColumnReader::Int32ColumnReader(r) => {
                    let (values, levels) = &mut columns.ints[i];
                    fill(r, rows, values, (!required).then_some(levels))?
                }
                ColumnReader::ByteArrayColumnReader(r) => {
                    let (values, levels) = &mut columns.texts[i];
                    fill(r, rows, values, (!required).then_some(levels))?
                }
                _ => {
                    return Err(ParquetError::General(format!(
                        "column {i} has a type that no column has"
                    )))
                }
            }
        }
        Ok(columns)
    }

    fn event(&self, row: usize, cursor: &mut Cursor) -> Result<Event, Bad> {
        let ts_ns = self.ts_ns[row];
        let cpu = in_range("cpu", self.ints[Col::Cpu as usize].0[row] as i64, CPU_MAX - 1)?;
        let kind = self.texts[Col::Kind as usize].0[row].data();
        let tid = self.int(row, cursor, Col::Tid);
        let next = self.int(row, cursor, Col::NextTid);
        let waker = self.int(row, cursor, Col::WakerTid);
        let target = self.int(row, cursor, Col::TargetCpu);
        let group = self.int(row, cursor, Col::Group);
        let state = self.text(row, cursor, Col::PrevState);
        let context = self.text(row, cursor, Col::Context);
        let op = self.text(row, cursor, Col::Op);
        let connection = self.long(row, cursor, Col::Connection);
        let bytes = self.long(row, cursor, Col::Bytes);
        let run_ns = self.long(row, cursor, Col::RunNs);
        let owed_ns = self.long(row, cursor, Col::OwedNs);
        let beside_ns = self.long(row, cursor, Col::BesideOwedNs);
        let mut stats = [None; 6];
        for (stat, col) in stats.iter_mut().zip(STATS) {
            *stat = self.long(row, cursor, col);
        }
        let what = match kind {
            b"switch" => What::Switch {
                prev: tid_of("tid", tid)?,
                next: tid_of("next_tid", next)?,
                prev_state: one_of("prev_state", state, &State::ALL, State::letter)?,
            },
            b"waking" => What::Waking {
                tid: tid_of("tid", tid)?,
                waker: tid_of("waker_tid", waker)?,
                context: one_of("context", context, &Context::ALL, Context::name)?,
            },
            b"wakeup" => What::Wakeup {
                tid: tid_of("tid", tid)?,
                waker: tid_of("waker_tid", waker)?,
                target_cpu: needed("target_cpu", target, CPU_MAX - 1)?,
            },
            b"placed" => What::Placed {
                tid: tid_of("tid", tid)?,
                target_cpu: needed("target_cpu", target, CPU_MAX - 1)?,
            },
            b"migrate" => What::Migrate {
                tid: tid_of("tid", tid)?,
                target_cpu: needed("target_cpu", target, CPU_MAX - 1)?,
            },
            b"owed" => What::Owed {
                tid: tid_of("tid", tid)?,
                owed: Owed {
                    own_ns: long_in("owed_ns", owed_ns, i32::MIN.into()..=i32::MAX.into())? as i32,
                    beside_ns: long_in("beside_owed_ns", beside_ns, i32::MIN.into()..=i32::MAX.into())?
                        as i32,
                },
            },
            b"fork" => What::Fork {
                parent: tid_of("waker_tid", waker)?,
                child: tid_of("tid", tid)?,
            },
            b"exit" => What::Exit {
                tid: tid_of("tid", tid)?,
            },
            b"move" => What::Move {
                tid: tid_of("tid", tid)?,
                group: needed("group", group, i32::MAX as u32)?,
            },
            b"sample" => What::Sample {
                group: needed("group", group, i32::MAX as u32)?,
                stat: Box::new(CpuStat {
                    usage_ns: counter("usage_ns", stats[0])?,
                    nr_periods: counter("nr_periods", stats[1])?,
                    nr_throttled: counter("nr_throttled", stats[2])?,
                    throttled_ns: counter("throttled_ns", stats[3])?,
                    nr_bursts: counter("nr_bursts", stats[4])?,
                    burst_ns: counter("burst_ns", stats[5])?,
                }),
            },
            b"request_begin" => What::Request {
                tid: tid_of("tid", tid)?,
                begin: true,
            },
            b"request_end" => What::Request {
                tid: tid_of("tid", tid)?,
                begin: false,
            },
            b"socket" => What::Socket {
                tid: tid_of("tid", tid)?,
                connection: long_up_to("connection", connection, i64::MAX)? as u64,
                op: one_of("op", op, &SocketOp::ALL, SocketOp::name)?,
                bytes: long_up_to("bytes", bytes, u32::MAX.into())? as u32,
            },
            b"others" => What::Others {
                group: match group {
                    Some(_) => Some(needed("group", group, i32::MAX as u32)?),
                    None => None,
                },
                run_ns: long_up_to("run_ns", run_ns, DURATION_NS_MAX)? as u64,
                state: one_of("prev_state", state, &State::ALL, State::letter)?,
            },
            other => {
                return Err(Bad {
                    field: "kind",
                    value: format!("{:?}", String::from_utf8_lossy(other)),
                    allowed: KINDS.join(", "),
                })
            }
        };
        Ok(Event { ts_ns, cpu, what })
    }

    fn int(&self, row: usize, cursor: &mut Cursor, col: Col) -> Option<i32> {
        let (values, levels) = &self.ints[col as usize];
        take(row, levels, &mut cursor.0[col as usize]).map(|i| values[i])
    }

    fn long(&self, row: usize, cursor: &mut Cursor, col: Col) -> Option<i64> {
        let (values, levels) = &self.longs[col as usize];
        take(row, levels, &mut cursor.0[col as usize]).map(|i| values[i])
    }

    fn text(&self, row: usize, cursor: &mut Cursor, col: Col) -> Option<&[u8]> {
        let (values, levels) = &self.texts[col as usize];
        take(row, levels, &mut cursor.0[col as usize]).map(|i| values[i].data())
    }
}

/// Index of the row's value among the non-null ones, if it has one.
fn take(row: usize, levels: &[i16], taken: &mut usize) -> Option<usize> {
    (levels[row] == 1).then(|| {
        *taken += 1;
        *taken - 1
    })
}

fn missing(field: &'static str) -> Bad {
    Bad {
        field,
        value: "none".into(),
        allowed: "a value: this kind of event needs one".into(),
    }
}

fn in_range(field: &'static str, value: i64, max: u32) -> Result<u32, Bad> {
    if (0..=max as i64).contains(&value) {
        Ok(value as u32)
    } else {
        Err(Bad {
            field,
            value: value.to_string(),
            allowed: format!("0 to {max}"),
        })
    }
}

fn needed(field: &'static str, value: Option<i32>, max: u32) -> Result<u32, Bad> {
    in_range(field, value.ok_or_else(|| missing(field))? as i64, max)
}

/// 0 up to `max`.
fn long_up_to(field: &'static str, value: Option<i64>, max: i64) -> Result<i64, Bad> {
    long_in(field, value, 0..=max)
}

fn long_in(field: &'static str, value: Option<i64>, allowed: RangeInclusive<i64>) -> Result<i64, Bad> {
    let value = value.ok_or_else(|| missing(field))?;
    match allowed.contains(&value) {
        true => Ok(value),
        false => Err(Bad {
            field,
            value: value.to_string(),
            allowed: format!("{} to {}", allowed.start(), allowed.end()),
        }),
    }
}

fn tid_of(field: &'static str, value: Option<i32>) -> Result<u32, Bad> {
    needed(field, value, TID_MAX)
}

fn counter(field: &'static str, value: Option<i64>) -> Result<Option<u64>, Bad> {
    match value {
        Some(v) if v < 0 => Err(Bad {
            field,
            value: v.to_string(),
            allowed: "0 or more".into(),
        }),
        other => Ok(other.map(|v| v as u64)),
    }
}

fn one_of<T: Copy>(
    field: &'static str,
    value: Option<&[u8]>,
    all: &[T],
    name: fn(T) -> &'static str,
) -> Result<T, Bad> {
    let value = value.ok_or_else(|| missing(field))?;
    all.iter()
        .copied()
        .find(|&v| name(v).as_bytes() == value)
        .ok_or_else(|| Bad {
            field,
            value: format!("{:?}", String::from_utf8_lossy(value)),
            allowed: all.iter().map(|&v| name(v)).collect::<Vec<_>>().join(", "),
        })
}
