// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Holds what was recorded until it can be put into order.
//!
//! Each CPU's events arrive in order of time, but a quiet CPU's last batch arrives only at the end. So
//! the bytes go to one unnamed file per CPU and kind of batch while recording, which costs next to nothing, and are merged
//! and encoded afterwards, when nothing is being measured any more.
use crate::wire::{self, Batch, Stream as Source};
use plimsoll_trace::{Event, Loss};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::PathBuf;

pub struct Spool {
    dir: PathBuf,
    cpus: BTreeMap<(u32, Source), CpuSpool>,
    /// Rare events, which are not in batches.
    pub singles: Vec<Event>,
    pub losses: Vec<Loss>,
}

struct CpuSpool {
    file: BufWriter<File>,
    lost: u64,
    last_ns: u64,
}

impl Spool {
    /// Unnamed files are made in `dir`, where the trace will be.
    pub fn new(dir: PathBuf) -> Spool {
        Spool {
            dir,
            cpus: BTreeMap::new(),
            singles: Vec::new(),
            losses: Vec::new(),
        }
    }

    /// Appends a batch. `start_ns` is the beginning of the interval in which a first loss can lie.
    pub fn add(&mut self, batch: &Batch, start_ns: u64) -> io::Result<()> {
        let cpu = match self.cpus.entry((batch.cpu, batch.stream)) {
            std::collections::btree_map::Entry::Occupied(e) => e.into_mut(),
            std::collections::btree_map::Entry::Vacant(e) => e.insert(CpuSpool {
                file: BufWriter::with_capacity(1 << 16, tempfile::tempfile_in(&self.dir)?),
                lost: 0,
                last_ns: start_ns,
            }),
        };
        if batch.lost > cpu.lost {
            self.losses.push(Loss {
                cpu: Some(batch.cpu),
                from_ns: cpu.last_ns as i64,
                to_ns: batch.base_ns as i64,
                count: Some(batch.lost - cpu.lost),
            });
            cpu.lost = batch.lost;
        }
        cpu.last_ns = batch.last_ns;
        cpu.file.write_all(batch.bytes)
    }

    /// The losses of a CPU whose last batches were all lost, so that no batch could say so.
    pub fn add_final_loss(&mut self, cpu: u32, of: Source, lost: u64, start_ns: u64, end_ns: u64) {
        let (known, from) = self
            .cpus
            .get(&(cpu, of))
            .map_or((0, start_ns), |c| (c.lost, c.last_ns));
        if lost > known {
            self.losses.push(Loss {
                cpu: Some(cpu),
                from_ns: from as i64,
                to_ns: end_ns as i64,
                count: Some(lost - known),
            });
        }
    }

    /// All events in order of time; of two at the same time, single ones (forks) come first.
    pub fn merge(self) -> io::Result<Merged> {
        let mut singles = self.singles;
        singles.sort_by_key(|e| e.ts_ns);
        let mut streams = vec![Stream::Singles(singles.into_iter())];
        for ((cpu, _), spool) in self.cpus {
            let mut file = spool.file.into_inner().map_err(|e| e.into_error())?;
            file.rewind()?;
            streams.push(Stream::Cpu {
                cpu,
                reader: BufReader::with_capacity(1 << 16, file),
                batch: Vec::new(),
                next: wire::BATCH_HEADER,
                base_ns: 0,
            });
        }
        let mut merged = Merged {
            heads: vec![None; streams.len()],
            streams,
            heap: BinaryHeap::new(),
        };
        for i in 0..merged.streams.len() {
            merged.advance(i)?;
        }
        Ok(merged)
    }
}

enum Stream {
    Singles(std::vec::IntoIter<Event>),
    Cpu {
        cpu: u32,
        reader: BufReader<File>,
        batch: Vec<u8>,
        next: usize,
        base_ns: u64,
    },
}

/// Events of all CPUs in order of time.
pub struct Merged {
    streams: Vec<Stream>,
    heads: Vec<Option<Event>>,
    heap: BinaryHeap<Reverse<(i64, usize)>>,
}

impl Merged {
    pub fn next(&mut self) -> io::Result<Option<Event>> {
        let Some(Reverse((_, stream))) = self.heap.pop() else {
            return Ok(None);
        };
        let event = self.heads[stream].take();
        self.advance(stream)?;
        Ok(event)
    }

    fn advance(&mut self, stream: usize) -> io::Result<()> {
        self.heads[stream] = self.streams[stream].next()?;
        if let Some(event) = &self.heads[stream] {
            self.heap.push(Reverse((event.ts_ns, stream)));
        }
        Ok(())
    }
}

impl Stream {
    fn next(&mut self) -> io::Result<Option<Event>> {
        match self {
            Stream::Singles(events) => Ok(events.next()),
            Stream::Cpu {
                cpu,
                reader,
                batch,
                next,
                base_ns,
            } => {
                if *next >= batch.len() {
                    batch.resize(wire::BATCH_HEADER, 0);
                    match reader.read_exact(batch) {
                        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                        other => other?,
                    }
                    let count = u32::from_ne_bytes(batch[32..36].try_into().expect("four bytes")) as usize;
                    *base_ns = u64::from_ne_bytes(batch[8..16].try_into().expect("eight bytes"));
                    batch.resize(wire::BATCH_HEADER + count * wire::EVENT, 0);
                    reader.read_exact(&mut batch[wire::BATCH_HEADER..])?;
                    *next = wire::BATCH_HEADER;
                }
                let bytes = &batch[*next..*next + wire::EVENT];
                *next += wire::EVENT;
                let (ts_ns, what) = wire::event(bytes, *base_ns)
                    .ok_or_else(|| io::Error::other("a recorded event has an unknown kind"))?;
                Ok(Some(Event {
                    ts_ns,
                    cpu: *cpu,
                    what,
                }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_trace::What;

    fn batch(cpu: u32, base_ns: u64, lost: u64, deltas: &[u32]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let last_ns = base_ns + *deltas.last().unwrap() as u64;
        bytes.extend(1u32.to_ne_bytes());
        bytes.extend(cpu.to_ne_bytes());
        bytes.extend(base_ns.to_ne_bytes());
        bytes.extend(lost.to_ne_bytes());
        bytes.extend(last_ns.to_ne_bytes());
        bytes.extend((deltas.len() as u32).to_ne_bytes());
        bytes.extend(0u32.to_ne_bytes());
        for delta in deltas {
            bytes.extend(delta.to_ne_bytes());
            bytes.extend(7u32.to_ne_bytes());
            bytes.extend(8u32.to_ne_bytes());
            bytes.extend([1, 0, 1, 0]);
        }
        bytes
    }

    fn add(spool: &mut Spool, bytes: &[u8]) {
        spool.add(&Batch::parse(bytes).unwrap(), 0).unwrap();
    }

    #[test]
    fn events_of_all_cpus_come_out_in_order_of_time() {
        let mut spool = Spool::new(std::env::temp_dir());
        add(&mut spool, &batch(1, 100, 0, &[0, 50, 200]));
        add(&mut spool, &batch(0, 120, 0, &[0, 10]));
        add(&mut spool, &batch(1, 400, 0, &[0]));
        spool.singles.push(Event {
            ts_ns: 130,
            cpu: 0,
            what: What::Exit { tid: 9 },
        });
        let mut merged = spool.merge().unwrap();
        let mut seen = Vec::new();
        while let Some(event) = merged.next().unwrap() {
            seen.push((event.ts_ns, event.cpu, matches!(event.what, What::Exit { .. })));
        }
        assert_eq!(
            seen,
            [
                (100, 1, false),
                (120, 0, false),
                (130, 0, true),
                (130, 0, false),
                (150, 1, false),
                (300, 1, false),
                (400, 1, false)
            ]
        );
    }

    #[test]
    fn losses_are_counted_once_and_placed_between_the_batches_around_them() {
        let mut spool = Spool::new(std::env::temp_dir());
        add(&mut spool, &batch(1, 100, 0, &[0, 50]));
        add(&mut spool, &batch(1, 900, 512, &[0]));
        add(&mut spool, &batch(1, 1000, 512, &[0]));
        spool.add_final_loss(1, Source::Sched, 600, 0, 2000);
        spool.add_final_loss(0, Source::Sched, 3, 10, 2000);
        let losses: Vec<_> = spool
            .losses
            .iter()
            .map(|l| (l.cpu, l.from_ns, l.to_ns, l.count))
            .collect();
        assert_eq!(
            losses,
            [
                (Some(1), 150, 900, Some(512)),
                (Some(1), 1000, 2000, Some(88)),
                (Some(0), 10, 2000, Some(3))
            ]
        );
    }
}
