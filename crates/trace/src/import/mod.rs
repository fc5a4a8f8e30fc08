// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a file of any format that we know into the trace model.
mod cpu_stat;
mod line;
mod named;
mod perf;
mod perfetto;
mod source;
mod time;

use crate::error::{At, Place, TraceError};
use crate::model::{Clock, Cpu, Event, Header, Machine, Thread, Tid, What, DURATION_NS_MAX};
use crate::reader::TraceReader;
use crate::reconstruct::TimelineBuilder;
use crate::timeline::Timeline;
use crate::unfinished::is_device;
use named::Named;
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{BufRead, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Formats, by what their files begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Parquet,
    PerfData,
    /// Of perf, ftrace or trace-cmd.
    Script,
    Perfetto,
    CpuStatCsv,
}

const KNOWN: &str =
    "a trace of `plimsoll record` (Parquet), perf.data of `perf sched record`, text of `perf script`, \
                     of ftrace or of `trace-cmd report`, a Perfetto trace with scheduling events, or a CSV series of cpu.stat";

/// How much of a file is looked at to tell its format.
const SAMPLE: u64 = 1 << 16;

/// A whole trace in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    pub header: Header,
    /// In order of time.
    pub events: Vec<Event>,
}

impl Trace {
    /// Reads a file of any known format, and checks every value in it.
    pub fn read(path: &Path) -> Result<Trace, TraceError> {
        Trace::read_until(path, &AtomicBool::new(false))
    }

    /// As [`Trace::read`], which ends soon after the flag is set, with [`TraceError::GivenUp`].
    pub fn read_until(path: &Path, flag: &AtomicBool) -> Result<Trace, TraceError> {
        match sniff(path)? {
            Format::Parquet => {
                let mut reader = TraceReader::open(path)?;
                let mut events = Vec::new();
                while reader.read_group(&mut events)? {
                    go_on(path, flag)?;
                }
                Ok(Trace {
                    header: reader.into_header(),
                    events,
                })
            }
            Format::PerfData => perf::read_data(path, flag),
            Format::Script => perf::read_script(path, flag),
            Format::Perfetto => perfetto::read(path, flag),
            Format::CpuStatCsv => cpu_stat::read(path, flag),
        }
    }
}

impl Timeline {
    /// Reads a file of any known format and reconstructs what its threads did. What can be read is not
    /// refused: whether the result can be trusted is for [`crate::Quality::check`].
    pub fn open(path: &Path) -> Result<(Header, Timeline), TraceError> {
        Timeline::open_until(path, &AtomicBool::new(false))
    }

    /// As [`Timeline::open`], which ends soon after the flag is set, with [`TraceError::GivenUp`].
    pub fn open_until(path: &Path, flag: &AtomicBool) -> Result<(Header, Timeline), TraceError> {
        if sniff(path)? == Format::Parquet {
            // Row group by row group: the events are never in memory all at once.
            let mut reader = TraceReader::open(path)?;
            let mut builder = TimelineBuilder::new(reader.header());
            let mut events = Vec::new();
            while reader.read_group(&mut events)? {
                events.drain(..).for_each(|event| builder.push(&event));
                go_on(path, flag)?;
            }
            return Ok((reader.into_header(), builder.finish()));
        }
        let trace = Trace::read_until(path, flag)?;
        let timeline = Timeline::build(&trace.header, &trace.events);
        Ok((trace.header, timeline))
    }
}

/// # Errors
/// The flag is set: the trace is no longer wanted.
fn go_on(path: &Path, flag: &AtomicBool) -> Result<(), TraceError> {
    match flag.load(Ordering::Relaxed) {
        false => Ok(()),
        true => Err(TraceError::GivenUp {
            place: Place::whole(path),
        }),
    }
}

fn sniff(path: &Path) -> Result<Format, TraceError> {
    if is_device(path) {
        return Err(TraceError::Value {
            place: Place::whole(path),
            field: "trace".into(),
            value: "a device or pipe".into(),
            allowed: "a file: it is read more than once".into(),
        });
    }
    let read_error = |e| TraceError::io(path, "read", e);
    let unread = |named: Named| TraceError::Unread {
        place: Place::whole(path),
        what: named.what,
        cure: named.cure,
    };
    let mut file = File::open(path).map_err(|e| TraceError::io(path, "open", e))?;
    let mut packed = Vec::new();
    file.by_ref()
        .take(SAMPLE)
        .read_to_end(&mut packed)
        .map_err(read_error)?;
    let mut head = Vec::new();
    source::open(path)?
        .take(SAMPLE)
        .read_to_end(&mut head)
        .map_err(read_error)?;
    if head.is_empty() {
        return Err(TraceError::Empty {
            place: Place::whole(path),
            expected: KNOWN,
        });
    }
    let binary = if head.starts_with(b"PAR1") {
        Some(Format::Parquet)
    } else if head.starts_with(b"PERFILE2") || head.starts_with(b"2ELIFREP") {
        Some(Format::PerfData)
    } else {
        None
    };
    match binary {
        // Their readers take the file itself.
        Some(_) if source::is_gzip(&packed) => {
            return Err(named::binary(&packed).map(unread).expect("gzip is named"))
        }
        Some(format) => return Ok(format),
        None => {}
    }
    if let Some(named) = named::binary(&head) {
        return Err(unread(named));
    }
    let sample = without_comments(source::open(path)?).map_err(read_error)?;
    let sample = String::from_utf8_lossy(&sample);
    let mut lines = sample
        .lines()
        .filter(|l| !l.trim().is_empty() && !l.starts_with('#'));
    if let Some(first) = lines.next() {
        if cpu_stat::is_heading(first) {
            return Ok(Format::CpuStatCsv);
        }
        if perf::is_line(first) || lines.any(perf::is_line) {
            return Ok(Format::Script);
        }
    }
    // Last, because text that begins with an empty line looks like it.
    let is_text = head
        .iter()
        .all(|&byte| byte >= b' ' || matches!(byte, b'\n' | b'\r' | b'\t'));
    if !is_text && perfetto::begins_like_one(&head) {
        return Ok(Format::Perfetto);
    }
    let begins = String::from_utf8_lossy(&head);
    // Behind a long header of comments, or with it.
    if let Some(named) = named::text(&begins).or_else(|| named::text(&sample)) {
        return Err(unread(named));
    }
    Err(TraceError::Foreign {
        place: Place::whole(path),
        found: format!(
            "a file that starts with {:?}",
            begins.chars().take(16).collect::<String>()
        ),
        expected: KNOWN.into(),
    })
}

/// The beginning of a text behind its leading comments and empty lines, of which `perf script --header` writes any
/// number.
fn without_comments(mut reader: impl BufRead) -> std::io::Result<Vec<u8>> {
    let mut sample = Vec::new();
    loop {
        sample.clear();
        let n = reader.by_ref().take(SAMPLE).read_until(b'\n', &mut sample)?;
        if n == 0 || !(sample[0] == b'#' || sample.trim_ascii().is_empty()) {
            break;
        }
    }
    reader.take(SAMPLE).read_to_end(&mut sample)?;
    Ok(sample)
}

/// Collects what an import learns along the way, and makes the header of it.
#[derive(Default)]
struct Importer {
    events: Vec<Event>,
    threads: BTreeMap<Tid, Thread>,
    cpus: BTreeMap<u32, ()>,
    /// Threads whose making was seen, but no run yet.
    made: HashSet<Tid>,
}

/// The kernel's events about a new thread, in the order in which it sends them; a trace may have any of them.
#[derive(Clone, Copy, PartialEq)]
enum Birth {
    /// `task_newtask`, `sched_process_fork`
    Made,
    /// `sched_wakeup_new`
    Woken,
}

impl Importer {
    /// The fork that one of the events of a birth stands for, if none of those before it did.
    fn birth(&mut self, birth: Birth, parent: Tid, child: Tid) -> Option<What> {
        let first = match birth {
            Birth::Made => self.made.insert(child),
            Birth::Woken => !self.made.remove(&child),
        };
        first.then_some(What::Fork { parent, child })
    }

    /// A thread's name; the last one counts, because a new thread has its parent's until it names itself.
    fn name(&mut self, tid: Tid, comm: &str, ts_ns: i64) {
        if tid == 0 {
            return;
        }
        let thread = self.threads.entry(tid).or_insert_with(|| Thread {
            tid,
            from_ns: ts_ns,
            ..Default::default()
        });
        if thread.comm != comm {
            thread.comm = comm.into();
        }
    }

    /// Adds an event, which must not be before the previous one, nor so much later than the first that the clock must
    /// have jumped.
    fn push(&mut self, event: Event, place: impl FnOnce() -> Place) -> Result<(), TraceError> {
        if let (Some(first), Some(last)) = (self.events.first(), self.events.last()) {
            if event.ts_ns.saturating_sub(first.ts_ns) > DURATION_NS_MAX {
                return Err(bad(
                    place(),
                    "time",
                    format!("{} ns", event.ts_ns),
                    format!(
                        "at most {DURATION_NS_MAX} ns after the first event, {} ns",
                        first.ts_ns
                    ),
                ));
            }
            if event.ts_ns < last.ts_ns {
                return Err(TraceError::ClockBackwards {
                    place: place(),
                    ts_ns: event.ts_ns,
                    previous_ns: last.ts_ns,
                });
            }
        }
        if let What::Switch { next, .. } = event.what {
            self.made.remove(&next); // the next birth with its id is another thread's
        }
        self.cpus.insert(event.cpu, ());
        self.events.push(event);
        Ok(())
    }

    /// The trace; an error if there was no event in it.
    fn finish(
        self,
        path: &Path,
        source: &str,
        clock: &str,
        expected: &'static str,
    ) -> Result<Trace, TraceError> {
        let (Some(first), Some(last)) = (self.events.first(), self.events.last()) else {
            return Err(TraceError::Foreign {
                place: Place::whole(path),
                found: "no scheduling event".into(),
                expected: expected.into(),
            });
        };
        let header = Header {
            source: source.into(),
            clock: Clock {
                name: clock.into(),
                start_ns: first.ts_ns,
                end_ns: last.ts_ns,
                wall_start_ns: None,
            },
            machine: Machine {
                cpus: self
                    .cpus
                    .keys()
                    .map(|&cpu| Cpu {
                        cpu,
                        ..Default::default()
                    })
                    .collect(),
                ..Default::default()
            },
            threads: self.threads.into_values().collect(),
            ..Default::default()
        };
        Ok(Trace {
            header,
            events: self.events,
        })
    }
}

/// A value that a line or record must not have.
fn bad(place: Place, field: &str, value: impl ToString, allowed: impl ToString) -> TraceError {
    TraceError::Value {
        place,
        field: field.into(),
        value: value.to_string(),
        allowed: allowed.to_string(),
    }
}

fn line_place(path: &Path, line: u64) -> Place {
    Place::new(path, At::Line(line))
}
