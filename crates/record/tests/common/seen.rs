// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a recording says of sockets.
use super::record_into;
use plimsoll_trace::{Connection, Event, Header, SocketOp, TraceReader, What};
use std::io::Write;

/// Header, and the events of sockets: of which, when, by whom, what, how much.
pub struct Seen {
    pub header: Header,
    pub events: Vec<Event>,
}

impl Seen {
    pub fn of(cgroup: Option<String>, load: impl FnOnce() + Send + 'static) -> Option<Seen> {
        let dir = tempfile::tempdir().unwrap();
        let output = dir.path().join("t.parquet");
        let report = record_into(&output, None, cgroup, load)?;
        if let Some(why) = report.without_sockets {
            skipped!("{why}");
            return None;
        }
        assert_eq!(report.lost, 0);
        let mut reader = TraceReader::open(&output).unwrap();
        let (mut events, mut part) = (Vec::new(), Vec::new());
        while reader.read_group(&mut part).unwrap() {
            events.append(&mut part);
        }
        Some(Seen {
            header: reader.header().clone(),
            events,
        })
    }

    pub fn connection(&self, wanted: impl Fn(&Connection) -> bool) -> &Connection {
        let mut found = self.header.sockets.connections.iter().filter(|c| wanted(c));
        let one = found.next().expect("there is one");
        assert!(found.next().is_none(), "{:?}", self.header.sockets);
        one
    }

    /// What happened to a connection: by whom (a thread's name), what, how many bytes; but not whether what was written
    /// was held, as a busy machine may hold it.
    pub fn story(&self, id: u64) -> Vec<(&str, SocketOp, u32)> {
        let name = |tid: u32| {
            let thread = self.header.threads.iter().find(|t| t.tid == tid);
            thread.map_or("", |t| &t.comm)
        };
        let of = |event: &Event| match event.what {
            What::Socket {
                tid,
                connection,
                op,
                bytes,
            } if connection == id && op != SocketOp::Left => Some((name(tid), op, bytes)),
            _ => None,
        };
        self.events.iter().filter_map(of).collect()
    }

    pub fn times(&self, id: u64, wanted: SocketOp) -> Vec<i64> {
        let of = |event: &Event| match event.what {
            What::Socket { connection, op, .. } if connection == id && op == wanted => Some(event.ts_ns),
            _ => None,
        };
        self.events.iter().filter_map(of).collect()
    }
}
