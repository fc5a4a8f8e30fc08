// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The records of bpf/record.h, decoded.
use plimsoll_trace::{Context, State, What};

/// `struct record_batch` without its events.
pub const BATCH_HEADER: usize = 40;
/// `struct record_event`.
pub const EVENT: usize = 16;
/// `RECORD_BATCH`.
pub const BATCH_EVENTS: usize = 512;
/// `struct record_batch` with all of its events; `struct cpu_state` ends with one.
pub const BATCH: usize = BATCH_HEADER + BATCH_EVENTS * EVENT;
/// Bytes of a group's path that a record holds; a longer one comes cut to these.
pub const PATH_MAX: usize = 255;

/// One record from the ring buffer.
pub enum Record<'a> {
    Batch(Batch<'a>),
    Thread {
        ts_ns: i64,
        group_id: u64,
        tid: u32,
        tgid: u32,
        comm: String,
    },
    Group {
        group_id: u64,
        path: String,
    },
    Single {
        ts_ns: i64,
        cpu: u32,
        what: What,
    },
}

/// Events of one CPU, in order of time.
#[derive(Clone, Copy)]
pub struct Batch<'a> {
    pub cpu: u32,
    pub base_ns: u64,
    pub last_ns: u64,
    /// Events lost on this CPU before this batch, since recording began.
    pub lost: u64,
    pub events: &'a [u8],
    pub bytes: &'a [u8],
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn text_at(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

impl<'a> Batch<'a> {
    /// `bytes` begin with a batch; what its count does not cover is left out.
    pub fn parse(bytes: &'a [u8]) -> Option<Batch<'a>> {
        let count = u32_at(bytes.get(..BATCH_HEADER)?, 32) as usize;
        let events = bytes.get(BATCH_HEADER..BATCH_HEADER + count * EVENT)?;
        Some(Batch {
            cpu: u32_at(bytes, 4),
            base_ns: u64_at(bytes, 8),
            lost: u64_at(bytes, 16),
            last_ns: u64_at(bytes, 24),
            events,
            bytes: &bytes[..BATCH_HEADER + count * EVENT],
        })
    }
}

/// One event of a batch; `None` if its kind is not known.
pub fn event(bytes: &[u8], base_ns: u64) -> Option<(i64, What)> {
    let ts_ns = (base_ns + u32_at(bytes, 0) as u64) as i64;
    let (a, b, kind, arg) = (u32_at(bytes, 4), u32_at(bytes, 8), bytes[12], bytes[13]);
    let mask = u16::from_ne_bytes([bytes[14], bytes[15]]);
    let what = match kind {
        1 => {
            let preempted = arg != 0;
            let prev_state = if preempted {
                State::Runnable
            } else {
                State::from_task_mask(mask as u64)
            };
            What::Switch {
                prev: a,
                prev_state,
                next: b,
            }
        }
        2 => {
            let context = match arg {
                0 => Context::Task,
                1 => Context::TaskSoftirq,
                2 => Context::Timer,
                3 => Context::Interrupt,
                _ => Context::Unknown,
            };
            What::Waking {
                tid: a,
                waker: b,
                context,
            }
        }
        _ => return None,
    };
    Some((ts_ns, what))
}

/// Decodes one record; `None` if it is not one.
pub fn parse(bytes: &[u8]) -> Option<Record<'_>> {
    let kind = u32_at(bytes.get(..24)?, 0);
    let (cpu, ts_ns) = (u32_at(bytes, 4), u64_at(bytes, 8) as i64);
    Some(match kind {
        1 => Record::Batch(Batch::parse(bytes)?),
        2 => {
            let bytes = bytes.get(..48)?;
            Record::Thread {
                ts_ns,
                group_id: u64_at(bytes, 16),
                tid: u32_at(bytes, 24),
                tgid: u32_at(bytes, 28),
                comm: text_at(&bytes[32..]),
            }
        }
        3 => Record::Group {
            group_id: u64_at(bytes, 16),
            path: text_at(&bytes[24..]),
        },
        4..=7 => {
            let (a, b) = (u32_at(bytes, 16), u32_at(bytes, 20));
            let what = match kind {
                4 => What::Fork { parent: a, child: b },
                5 => What::Exit { tid: a },
                6 => What::Request { tid: a, begin: true },
                _ => What::Request { tid: a, begin: false },
            };
            Record::Single { ts_ns, cpu, what }
        }
        _ => return None,
    })
}
