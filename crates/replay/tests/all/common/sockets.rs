// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recordings with connections.
use plimsoll_trace::example::{connection, header, MS};
use plimsoll_trace::{Connection, Event, Header, Side, SocketOp, Sockets, What};

pub const US: i64 = MS / 1000;

pub fn socket(ts_ns: i64, tid: u32, connection: u64, op: SocketOp, bytes: u32) -> Event {
    let what = What::Socket {
        tid,
        connection,
        op,
        bytes,
    };
    Event { ts_ns, cpu: 1, what }
}

pub fn with_connections(end_ns: i64, threads: &[(u32, &str, u32)], count: u64) -> Header {
    let mut header = header(end_ns, threads);
    header.only_below = Some("/web".into());
    let accepted = |id| Connection {
        local_port: Some(80),
        ..connection(id, Side::Accepted)
    };
    header.sockets = Sockets {
        recorded: true,
        connections: (0..count).map(accepted).collect(),
        ..Default::default()
    };
    header
}
