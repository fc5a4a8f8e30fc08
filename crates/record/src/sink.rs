// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the ring buffer's records go while recording.
use crate::cgroup::Hierarchy;
use crate::connections::Connections;
use crate::datagrams::Datagrams;
use crate::names::Names;
use crate::probes::Unsent;
use crate::spool::Spool;
use crate::streams::Streams;
use crate::wire::{self, Batch, Record};
use plimsoll_trace::{Event, Protocol, State, What};
use std::io;

pub struct Sink<'h> {
    pub hierarchy: &'h Hierarchy,
    pub spool: Spool,
    pub names: Names,
    pub connections: Connections,
    pub datagrams: Datagrams,
    pub streams: Streams,
    pub start_ns: i64,
    /// The first failure to write; the rest is dropped, and the recording reported as failed.
    pub error: Option<io::Error>,
    /// Events in batches so far.
    pub events: u64,
}

impl Sink<'_> {
    pub fn take(&mut self, bytes: &[u8]) {
        match wire::parse(bytes) {
            Some(Record::Batch(batch)) => {
                self.take_batch(&batch);
            }
            Some(Record::Socket(socket)) if socket.protocol == Protocol::Udp => {
                self.datagrams.add_socket(socket)
            }
            Some(Record::Datagram(datagram)) => self.datagrams.add(datagram),
            Some(Record::Frame(frame)) => self.streams.add(frame),
            Some(Record::Socket(socket)) => {
                self.streams.add_socket(&socket);
                let began = self.connections.add(&socket);
                self.spool.singles.extend(began);
            }
            Some(Record::Thread {
                ts_ns,
                group_id,
                tid,
                tgid,
                comm,
            }) => self.names.thread(ts_ns, tid, tgid, comm, group_id),
            Some(Record::Group { group_id, path }) => self.names.group(group_id, path, self.hierarchy),
            Some(Record::Single { ts_ns, cpu, what }) => {
                if let What::Exit { tid } = what {
                    self.names.exit(tid);
                }
                self.spool.singles.push(Event { ts_ns, cpu, what });
            }
            None => {
                self.error
                    .get_or_insert(io::Error::other("a record of the BPF program is malformed"));
            }
        }
    }

    pub fn take_batch(&mut self, batch: &Batch) {
        self.events += (batch.events.len() / wire::EVENT) as u64;
        batch.groups_of_others().for_each(|id| self.names.other(id));
        if let Err(error) = self.spool.add(batch, self.start_ns as u64) {
            self.error.get_or_insert(error);
        }
    }

    /// What the header's tables take at most if recording ends now.
    pub fn header_bytes(&self) -> u64 {
        let more = self.datagrams.connections() + self.streams.connections();
        self.names.header_bytes() + self.connections.header_bytes(more)
    }

    /// Events that the trace would hold if recording ended now.
    pub fn rows(&self) -> u64 {
        self.events
            + self.spool.singles.len() as u64
            + self.datagrams.len()
            + self.streams.len()
            + self.names.moves()
    }

    /// What a CPU had not sent: its last events, how many it had lost, and whether others run on it.
    pub fn take_unsent(&mut self, unsent: &Unsent, end_ns: i64) {
        if let Some(since_ns) = unsent.others_since_ns {
            self.spool.singles.push(Event {
                ts_ns: end_ns,
                cpu: unsent.cpu,
                what: What::Others {
                    group: None,
                    run_ns: (end_ns - since_ns.max(self.start_ns)).max(0) as u64,
                    state: State::Runnable,
                },
            });
        }
        let Some(batch) = Batch::parse(&unsent.batch) else {
            return;
        };
        if !batch.events.is_empty() {
            self.take_batch(&batch);
            return;
        }
        let (start_ns, end_ns) = (self.start_ns as u64, end_ns as u64);
        self.spool
            .add_final_loss(unsent.cpu, unsent.stream, batch.lost, start_ns, end_ns);
    }
}
