// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Perfetto traces with the kernel's scheduling events (ftrace), compact or not.
//!
//! The generated types of all of Perfetto's messages take a minute to build; a dozen fields of them are
//! read here, so the field numbers are declared. Source of each: protos/perfetto/trace/ in Perfetto's
//! repository; they are stable.
use super::{bad, source, Birth, Importer, Trace};
use crate::error::{At, Place, TraceError};
use crate::model::{Context, Event, Loss, State, Thread, Tid, What, CPU_MAX, TID_MAX};
use quick_protobuf::BytesReader;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;

const EXPECTED: &str = "a Perfetto trace with the ftrace events sched/sched_switch and sched/sched_waking";

/// Field 1 of `Trace`, length-delimited: a packet.
const PACKET_TAG: u32 = 0x0a;

/// Whether bytes begin with a packet whose first field is one that packets have.
pub fn begins_like_one(head: &[u8]) -> bool {
    let mut reader = BytesReader::from_bytes(head);
    let first = reader.next_tag(head).ok() == Some(PACKET_TAG) && reader.read_varint64(head).is_ok();
    // Field numbers of TracePacket are below 1000; wire types 3 and 4 are not used.
    first
        && reader
            .next_tag(head)
            .is_ok_and(|tag| tag >> 3 > 0 && tag >> 3 < 1000 && matches!(tag & 7, 0 | 1 | 2 | 5))
}

pub fn read(path: &Path, flag: &AtomicBool) -> Result<Trace, TraceError> {
    let bytes = source::bytes(path)?;
    let mut import = Import::new(path);
    let mut reader = BytesReader::from_bytes(&bytes);
    while !reader.is_eof() {
        super::go_on(path, flag)?;
        let at = (bytes.len() - reader.len()) as u64;
        let damaged = |error: quick_protobuf::Error| {
            let (place, detail) = (
                Place::new(path, At::Byte(at)),
                format!("the packet here: {error}"),
            );
            match error {
                // It is longer than what is left of the file.
                quick_protobuf::Error::UnexpectedEndOfBuffer => TraceError::Truncated { place, detail },
                _ => TraceError::Damaged { place, detail },
            }
        };
        match reader.next_tag(&bytes).map_err(damaged)? {
            PACKET_TAG => {
                let packet = reader.read_bytes(&bytes).map_err(damaged)?;
                import.at = at;
                import.packet(packet)?;
            }
            tag => reader.read_unknown(&bytes, tag).map_err(damaged)?,
        }
    }
    import.finish()
}

/// Walks the fields of one message.
fn fields<'a>(
    bytes: &'a [u8],
    mut take: impl FnMut(u32, Value<'a>) -> Result<(), TraceError>,
    damaged: &dyn Fn(String) -> TraceError,
) -> Result<(), TraceError> {
    let mut reader = BytesReader::from_bytes(bytes);
    while !reader.is_eof() {
        let tag = reader.next_tag(bytes).map_err(|e| damaged(e.to_string()))?;
        let value = match tag & 7 {
            0 => reader.read_varint64(bytes).map(Value::Number),
            2 => reader.read_bytes(bytes).map(Value::Bytes),
            _ => reader.read_unknown(bytes, tag).map(|()| Value::Other),
        };
        take(tag >> 3, value.map_err(|e| damaged(e.to_string()))?)?;
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Other,
}

/// Events before they are in order; `prev` and `waker` of the compact form follow from the order.
struct Raw {
    ts_ns: i64,
    cpu: u32,
    what: RawWhat,
}

enum RawWhat {
    /// `prev` is not stored in the compact form.
    Switch {
        prev: Option<Tid>,
        state: u64,
        next: Tid,
    },
    Waking {
        tid: Tid,
        waker: Option<Tid>,
        flags: Option<u64>,
    },
    Wakeup {
        tid: Tid,
        waker: Tid,
        target_cpu: u32,
    },
    Birth {
        birth: Birth,
        parent: Tid,
        child: Tid,
    },
    Exit {
        tid: Tid,
    },
}

struct Import<'p> {
    path: &'p Path,
    /// Offset of the packet under way.
    at: u64,
    raw: Vec<Raw>,
    names: BTreeMap<Tid, String>,
    tgids: BTreeMap<Tid, Tid>,
    /// CPUs that a bundle said had lost events, and since when.
    lossy: Vec<(u32, i64)>,
    /// Overruns by CPU, as counted when tracing began and when it ended.
    overruns: BTreeMap<u32, [u64; 2]>,
}

#[derive(Default)]
struct EventFields<'a> {
    ts: u64,
    pid: u64,
    flags: Option<u64>,
    inner: Option<(u32, &'a [u8])>,
}

impl<'p> Import<'p> {
    fn new(path: &'p Path) -> Import<'p> {
        Import {
            path,
            at: 0,
            raw: Vec::new(),
            names: BTreeMap::new(),
            tgids: BTreeMap::new(),
            lossy: Vec::new(),
            overruns: BTreeMap::new(),
        }
    }

    fn place(&self) -> Place {
        Place::new(self.path, At::Byte(self.at))
    }

    fn walk<'a>(
        &mut self,
        bytes: &'a [u8],
        mut take: impl FnMut(&mut Self, u32, Value<'a>) -> Result<(), TraceError>,
    ) -> Result<(), TraceError> {
        let place = self.place();
        let damaged = move |detail: String| TraceError::Damaged {
            place: place.clone(),
            detail: format!("the packet here: {detail}"),
        };
        fields(bytes, |field, value| take(self, field, value), &damaged)
    }

    fn packet(&mut self, bytes: &[u8]) -> Result<(), TraceError> {
        self.walk(bytes, |import, field, value| match (field, value) {
            (1, Value::Bytes(bundle)) => import.bundle(bundle),
            (2, Value::Bytes(tree)) => import.process_tree(tree),
            (34, Value::Bytes(stats)) => import.stats(stats),
            (50, _) => Err(bad(
                import.place(),
                "packet",
                "compressed",
                "plain packets: record without compression_type, or convert the trace with traceconv",
            )),
            _ => Ok(()),
        })
    }

    fn bundle(&mut self, bytes: &[u8]) -> Result<(), TraceError> {
        let (mut cpu, mut lost) = (0, false);
        let (mut events, mut compact) = (Vec::new(), Vec::new());
        self.walk(bytes, |_, field, value| {
            match (field, value) {
                (1, Value::Number(n)) => cpu = n,
                (2, Value::Bytes(event)) => events.push(event),
                (3, Value::Number(n)) => lost = n != 0,
                (4, Value::Bytes(sched)) => compact.push(sched),
                _ => {}
            }
            Ok(())
        })?;
        if cpu >= CPU_MAX as u64 {
            return Err(bad(self.place(), "cpu", cpu, format!("0 to {}", CPU_MAX - 1)));
        }
        let first = self.raw.len();
        for event in events {
            self.event(event, cpu as u32)?;
        }
        for sched in compact {
            self.compact(sched, cpu as u32)?;
        }
        if lost {
            let at = self.raw[first..].iter().map(|r| r.ts_ns).min().unwrap_or(0);
            self.lossy.push((cpu as u32, at));
        }
        Ok(())
    }

    fn event(&mut self, bytes: &[u8], cpu: u32) -> Result<(), TraceError> {
        let mut event = EventFields::default();
        self.walk(bytes, |_, field, value| {
            match (field, value) {
                (1, Value::Number(n)) => event.ts = n,
                (2, Value::Number(n)) => event.pid = n,
                (5, Value::Number(n)) => event.flags = Some(n),
                (4 | 17 | 20 | 114 | 235 | 238 | 239, Value::Bytes(inner)) => {
                    event.inner = Some((field, inner))
                }
                _ => {}
            }
            Ok(())
        })?;
        let Some((kind, inner)) = event.inner else {
            return Ok(());
        };
        // The fields that matter have numbers below 8 in all seven messages.
        let (mut numbers, mut texts) = ([0u64; 8], [None; 8]);
        self.walk(inner, |_, field, value| {
            match value {
                Value::Number(n) if field < 8 => numbers[field as usize] = n,
                Value::Bytes(text) if field < 8 => texts[field as usize] = Some(text),
                _ => {}
            }
            Ok(())
        })?;
        let ts_ns = self.time(event.ts)?;
        let current = self.tid(event.pid)?;
        let what = match kind {
            4 => {
                let (prev, next) = (self.tid(numbers[2])?, self.tid(numbers[6])?);
                self.name(prev, texts[1]);
                self.name(next, texts[5]);
                RawWhat::Switch {
                    prev: Some(prev),
                    state: numbers[4],
                    next,
                }
            }
            17 | 20 => {
                let tid = self.tid(numbers[2])?;
                self.name(tid, texts[1]);
                if kind == 20 {
                    RawWhat::Waking {
                        tid,
                        waker: Some(current),
                        flags: event.flags,
                    }
                } else {
                    let target_cpu = numbers[5].min(CPU_MAX as u64 - 1) as u32;
                    RawWhat::Wakeup {
                        tid,
                        waker: current,
                        target_cpu,
                    }
                }
            }
            238 => RawWhat::Exit {
                tid: self.tid(numbers[2])?,
            },
            // sched_wakeup_new, task_newtask and sched_process_fork; the first two do not name the parent.
            _ => {
                let (birth, parent, child, comm) = match kind {
                    114 => (Birth::Woken, current, numbers[2], texts[1]),
                    235 => (Birth::Made, current, numbers[1], texts[2]),
                    _ => (Birth::Made, self.tid(numbers[2])?, numbers[4], texts[3]),
                };
                let child = self.tid(child)?;
                self.name(child, comm);
                RawWhat::Birth { birth, parent, child }
            }
        };
        self.raw.push(Raw { ts_ns, cpu, what });
        Ok(())
    }

    /// One column per value; times are differences to the one before, names index a table.
    fn compact(&mut self, bytes: &[u8], cpu: u32) -> Result<(), TraceError> {
        let mut columns: [Vec<u64>; 13] = Default::default();
        let mut comms: Vec<&[u8]> = Vec::new();
        self.walk(bytes, |import, field, value| match (field, value) {
            (5, Value::Bytes(comm)) => {
                comms.push(comm);
                Ok(())
            }
            (1..=12, Value::Bytes(packed)) => {
                let mut reader = BytesReader::from_bytes(packed);
                while !reader.is_eof() {
                    let number = reader.read_varint64(packed).map_err(|e| TraceError::Damaged {
                        place: import.place(),
                        detail: format!("the packed field {field} here: {e}"),
                    })?;
                    columns[field as usize].push(number);
                }
                Ok(())
            }
            (1..=12, Value::Number(n)) => {
                columns[field as usize].push(n);
                Ok(())
            }
            _ => Ok(()),
        })?;
        let [_, switch_ts, prev_state, next_pid, _, _, next_comm, waking_ts, waking_pid, _, _, waking_comm, flags] =
            &columns;
        let lengths = [switch_ts.len(), prev_state.len(), next_pid.len(), next_comm.len()];
        if lengths.iter().any(|&n| n != lengths[0]) || waking_ts.len() != waking_pid.len() {
            let value = format!("columns of {lengths:?} and {} values", waking_pid.len());
            return Err(bad(
                self.place(),
                "compact_sched",
                value,
                "columns of equal length",
            ));
        }
        let comm = |index: u64| comms.get(index as usize).copied();
        let mut ts = 0u64;
        for i in 0..switch_ts.len() {
            ts = ts.wrapping_add(switch_ts[i]);
            let next = self.tid(next_pid[i])?;
            self.name(next, comm(next_comm[i]));
            let ts_ns = self.time(ts)?;
            self.raw.push(Raw {
                ts_ns,
                cpu,
                what: RawWhat::Switch {
                    prev: None,
                    state: prev_state[i],
                    next,
                },
            });
        }
        ts = 0;
        for i in 0..waking_ts.len() {
            ts = ts.wrapping_add(waking_ts[i]);
            let tid = self.tid(waking_pid[i])?;
            self.name(tid, waking_comm.get(i).and_then(|&index| comm(index)));
            let ts_ns = self.time(ts)?;
            let flags = flags.get(i).copied();
            self.raw.push(Raw {
                ts_ns,
                cpu,
                what: RawWhat::Waking {
                    tid,
                    waker: None,
                    flags,
                },
            });
        }
        Ok(())
    }

    fn process_tree(&mut self, bytes: &[u8]) -> Result<(), TraceError> {
        self.walk(bytes, |import, field, value| {
            let (2, Value::Bytes(thread)) = (field, value) else {
                return Ok(());
            };
            let (mut tid, mut tgid, mut name) = (0, 0, None);
            import.walk(thread, |_, field, value| {
                match (field, value) {
                    (1, Value::Number(n)) => tid = n,
                    (2, Value::Bytes(text)) => name = Some(text),
                    (3, Value::Number(n)) => tgid = n,
                    _ => {}
                }
                Ok(())
            })?;
            let (tid, tgid) = (import.tid(tid)?, import.tid(tgid)?);
            import.tgids.insert(tid, tgid);
            import.name(tid, name);
            Ok(())
        })
    }

    fn stats(&mut self, bytes: &[u8]) -> Result<(), TraceError> {
        let mut phase = 0;
        let mut cpus = Vec::new();
        self.walk(bytes, |import, field, value| {
            match (field, value) {
                (1, Value::Number(n)) => phase = n,
                (2, Value::Bytes(cpu_stats)) => {
                    let mut of_cpu = (0, 0);
                    import.walk(cpu_stats, |_, field, value| {
                        match (field, value) {
                            (1, Value::Number(n)) => of_cpu.0 = n,
                            (3 | 8, Value::Number(n)) => of_cpu.1 += n, // overwritten, dropped
                            _ => {}
                        }
                        Ok(())
                    })?;
                    cpus.push(of_cpu);
                }
                _ => {}
            }
            Ok(())
        })?;
        for (cpu, lost) in cpus {
            // Phase 1 is the start of the trace, 2 its end.
            if let (Ok(cpu), 1 | 2) = (u32::try_from(cpu), phase) {
                self.overruns.entry(cpu).or_default()[phase as usize - 1] = lost;
            }
        }
        Ok(())
    }

    fn time(&self, ts: u64) -> Result<i64, TraceError> {
        i64::try_from(ts).map_err(|_| bad(self.place(), "timestamp", ts, format!("0 to {} ns", i64::MAX)))
    }

    fn tid(&self, pid: u64) -> Result<Tid, TraceError> {
        // int32 values are sign-extended to 64 bits.
        u32::try_from(pid)
            .ok()
            .filter(|&tid| tid <= TID_MAX)
            .ok_or_else(|| bad(self.place(), "pid", pid as i64, format!("0 to {TID_MAX}")))
    }

    fn name(&mut self, tid: Tid, comm: Option<&[u8]>) {
        if let Some(comm) = comm {
            self.names.insert(tid, String::from_utf8_lossy(comm).into_owned());
        }
    }

    /// Puts everything into order and fills in which thread ran.
    fn finish(mut self) -> Result<Trace, TraceError> {
        self.raw.sort_by_key(|r| r.ts_ns);
        let place = Place::whole(self.path);
        let mut running: BTreeMap<u32, Tid> = BTreeMap::new();
        let mut importer = Importer::default();
        for raw in &self.raw {
            let what = match raw.what {
                RawWhat::Switch { prev, state, next } => {
                    let before = running.insert(raw.cpu, next);
                    // Before the first compact switch of a CPU it is not known which thread ran there.
                    let prev = prev.or(before).unwrap_or(0);
                    What::Switch {
                        prev,
                        prev_state: State::from_ftrace_mask(state),
                        next,
                    }
                }
                RawWhat::Waking { tid, waker, flags } => {
                    let waker = current(&running, raw.cpu, waker, tid);
                    What::Waking {
                        tid,
                        waker,
                        context: context(waker, flags),
                    }
                }
                RawWhat::Wakeup {
                    tid,
                    waker,
                    target_cpu,
                } => What::Wakeup {
                    tid,
                    waker: current(&running, raw.cpu, Some(waker), tid),
                    target_cpu,
                },
                RawWhat::Birth { birth, parent, child } => {
                    let parent = current(&running, raw.cpu, Some(parent), child);
                    match importer.birth(birth, parent, child) {
                        Some(fork) => fork,
                        None => continue,
                    }
                }
                RawWhat::Exit { tid } => What::Exit { tid },
            };
            importer.push(
                Event {
                    ts_ns: raw.ts_ns,
                    cpu: raw.cpu,
                    what,
                },
                || place.clone(),
            )?;
        }
        for (&tid, name) in self.names.iter().filter(|(&tid, _)| tid != 0) {
            let tgid = self.tgids.get(&tid).copied();
            importer.threads.insert(
                tid,
                Thread {
                    tid,
                    tgid,
                    comm: name.clone(),
                    ..Default::default()
                },
            );
        }
        let mut trace = importer.finish(self.path, "perfetto", "CLOCK_BOOTTIME", EXPECTED)?;
        let (from_ns, to_ns) = (trace.header.clock.start_ns, trace.header.clock.end_ns);
        for (&cpu, &[start, end]) in &self.overruns {
            if end > start {
                let count = Some(end - start);
                trace.header.losses.push(Loss {
                    cpu: Some(cpu),
                    from_ns,
                    to_ns,
                    count,
                });
            }
        }
        for (cpu, at) in self.lossy {
            // The count, where there is one, covers these.
            if !trace
                .header
                .losses
                .iter()
                .any(|l| l.cpu == Some(cpu) && l.count.is_some())
            {
                trace.header.losses.push(Loss {
                    cpu: Some(cpu),
                    from_ns,
                    to_ns: at,
                    count: None,
                });
            }
        }
        Ok(trace)
    }
}

/// The thread that wakes or makes `other` on a CPU: as the event says or, where it does not, by the last switch there.
/// No thread wakes itself: BPF programs that write such traces (scxtop) put the woken thread where ftrace has the one
/// that runs.
fn current(running: &BTreeMap<u32, Tid>, cpu: u32, said: Option<Tid>, other: Tid) -> Tid {
    said.filter(|&tid| tid != other)
        .or_else(|| running.get(&cpu).copied())
        .unwrap_or(0)
}

/// ftrace's flags tell interrupts apart, but not timers from devices.
fn context(waker: Tid, flags: Option<u64>) -> Context {
    const HARDIRQ: u64 = 0x08;
    const SOFTIRQ: u64 = 0x10;
    match flags {
        _ if waker == 0 => Context::Interrupt,
        None => Context::Unknown,
        Some(f) if f & HARDIRQ != 0 => Context::Interrupt,
        Some(f) if f & SOFTIRQ != 0 => Context::TaskSoftirq,
        Some(_) => Context::Task,
    }
}
