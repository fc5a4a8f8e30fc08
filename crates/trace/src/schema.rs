// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The columns of the Parquet table. `docs/src/reference/trace-format.md` is the reader's side of this file.
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::Type;
use std::sync::Arc;

/// Metadata keys. `plimsoll.version` counts incompatible changes of the columns or of the header.
pub const KEY_VERSION: &str = "plimsoll.version";
pub const KEY_HEADER: &str = "plimsoll.header";
pub const VERSION: u32 = 4;
/// Version 1 had neither sockets nor others, version 2 no migrations, version 3 nothing of what is owed; all are still read.
pub const VERSION_READ_MIN: u32 = 1;

/// Rows in a row group: bounds the memory of writer and reader (about 10 MB).
pub const ROW_GROUP_ROWS: usize = 65_536;

/// Events that a trace can hold: Parquet numbers the row groups with 16 bits and a sign, and the writer needs one more.
pub const EVENTS_MAX: u64 = i16::MAX as u64 * ROW_GROUP_ROWS as u64;

/// Bytes that the header's JSON may take: Parquet counts those of the whole footer with 31 bits, and [`EVENTS_MAX`] events
/// take 0.1 GiB of it.
pub const HEADER_MAX: u64 = 3 << 29;

pub const MESSAGE: &str = "
message plimsoll_trace {
  required int64 ts_ns;
  required int32 cpu;
  required binary kind (STRING);
  optional int32 tid;
  optional int32 next_tid;
  optional binary prev_state (STRING);
  optional int32 waker_tid;
  optional binary context (STRING);
  optional int32 target_cpu;
  optional int32 group;
  optional int64 usage_ns;
  optional int64 nr_periods;
  optional int64 nr_throttled;
  optional int64 throttled_ns;
  optional int64 nr_bursts;
  optional int64 burst_ns;
  optional int64 connection;
  optional binary op (STRING);
  optional int64 bytes;
  optional int64 run_ns;
  optional int64 owed_ns;
  optional int64 beside_owed_ns;
}
";

/// Position of each column in [`MESSAGE`].
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub enum Col {
    TsNs,
    Cpu,
    Kind,
    Tid,
    NextTid,
    PrevState,
    WakerTid,
    Context,
    TargetCpu,
    Group,
    UsageNs,
    NrPeriods,
    NrThrottled,
    ThrottledNs,
    NrBursts,
    BurstNs,
    Connection,
    Op,
    Bytes,
    RunNs,
    OwedNs,
    BesideOwedNs,
}

/// The columns of a sample, in the order of [`crate::CpuStat`]'s fields.
pub const STATS: [Col; 6] = [
    Col::UsageNs,
    Col::NrPeriods,
    Col::NrThrottled,
    Col::ThrottledNs,
    Col::NrBursts,
    Col::BurstNs,
];

pub const COLUMNS: usize = Col::BesideOwedNs as usize + 1;

/// The columns of a version: those that came later are at the end.
pub fn columns_of(version: u32) -> usize {
    match version {
        1 => Col::BurstNs as usize + 1,
        2 | 3 => Col::RunNs as usize + 1,
        _ => COLUMNS,
    }
}

/// Values of `kind`.
pub const KINDS: [&str; 14] = [
    "switch",
    "waking",
    "wakeup",
    "placed",
    "migrate",
    "owed",
    "fork",
    "exit",
    "move",
    "sample",
    "request_begin",
    "request_end",
    "socket",
    "others",
];

pub fn schema() -> Arc<Type> {
    Arc::new(parse_message_type(MESSAGE).expect("the built-in schema parses"))
}
