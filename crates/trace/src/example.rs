// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small recordings whose contents are known, for the tests of everything that reads traces.
use crate::error::TraceError;
use crate::model::{
    Clock, Connection, Context, Cpu, Event, Group, Header, Machine, Protocol, Side, State, Thread, Tid, What,
};
use crate::writer::TraceWriter;
use std::path::Path;

pub const MS: i64 = 1_000_000;

/// Two CPUs at 250 Hz, the groups / and /web; threads by number, name and group.
pub fn header(end_ns: i64, threads: &[(Tid, &str, u32)]) -> Header {
    let group = |path: &str| Group {
        path: path.into(),
        ..Default::default()
    };
    let cpu = |cpu| Cpu {
        cpu,
        ..Default::default()
    };
    Header {
        source: "bpf".into(),
        clock: Clock {
            name: "CLOCK_MONOTONIC".into(),
            start_ns: 0,
            end_ns,
            wall_start_ns: None,
        },
        machine: Machine {
            cpus: (0..2).map(cpu).collect(),
            hz: Some(250),
            ..Default::default()
        },
        groups: vec![group("/"), group("/web")],
        threads: threads
            .iter()
            .map(|&(tid, comm, group)| Thread {
                tid,
                tgid: Some(tid),
                comm: comm.into(),
                group: Some(group),
                from_ns: 0,
            })
            .collect(),
        ..Default::default()
    }
}

/// A TCP connection of /web that was there as recording began; its ports and its other end are not known.
pub fn connection(id: u64, side: Side) -> Connection {
    Connection {
        id,
        protocol: Protocol::Tcp,
        side,
        before: true,
        local_port: None,
        remote_port: None,
        group: Some(1),
        peer: None,
        secured_ns: None,
    }
}

pub fn switch(ts_ns: i64, cpu: u32, prev: Tid, prev_state: State, next: Tid) -> Event {
    Event {
        ts_ns,
        cpu,
        what: What::Switch {
            prev,
            prev_state,
            next,
        },
    }
}

pub fn waking(ts_ns: i64, cpu: u32, tid: Tid, waker: Tid, context: Context) -> Event {
    Event {
        ts_ns,
        cpu,
        what: What::Waking { tid, waker, context },
    }
}

/// Thread 20 of /web, woken by a timer every 10 ms on CPU 1, works for 3 ms: an open loop that needs 0.3 CPUs.
pub fn open_loop(rounds: i64) -> (Header, Vec<Event>) {
    open_loop_of(rounds, |_| 3 * MS)
}

/// The same with so much work in each round, below 9 ms.
pub fn open_loop_of(rounds: i64, work_ns: impl Fn(i64) -> i64) -> (Header, Vec<Event>) {
    let header = header(rounds * 10 * MS + 5 * MS, &[(20, "web", 1)]);
    let mut events = vec![switch(1, 1, 20, State::Sleeping, 0)];
    for round in 0..rounds {
        // The timer is a little early or late, as timers are.
        let t = round * 10 * MS + MS + (round * 7919 % 13) * 1000;
        events.push(waking(t, 1, 20, 0, Context::Timer));
        events.push(switch(t + 20, 1, 0, State::Runnable, 20));
        events.push(switch(t + 20 + work_ns(round), 1, 20, State::Sleeping, 0));
    }
    (header, events)
}

/// A client, thread 10 on CPU 0, asks thread 20 of /web on CPU 1, which works for 4 ms; the client then thinks for 1 ms
/// of CPU time: a closed loop.
pub fn closed_loop(rounds: i64) -> (Header, Vec<Event>) {
    let header = header(rounds * 5 * MS + 2 * MS, &[(10, "client", 0), (20, "server", 1)]);
    let mut events = vec![
        switch(1, 0, 0, State::Runnable, 10),
        switch(1, 1, 20, State::Sleeping, 0),
    ];
    for round in 0..rounds {
        let t = round * 5 * MS + MS;
        events.push(waking(t, 0, 20, 10, Context::Task));
        events.push(switch(t + 10, 0, 10, State::Sleeping, 0));
        events.push(switch(t + 20, 1, 0, State::Runnable, 20));
        events.push(waking(t + 4 * MS, 1, 10, 20, Context::Task));
        events.push(switch(t + 4 * MS + 10, 1, 20, State::Sleeping, 0));
        events.push(switch(t + 4 * MS + 20, 0, 0, State::Runnable, 10));
    }
    (header, events)
}

/// Writes a trace file. Refuses what [`TraceWriter`] refuses.
pub fn write(path: &Path, header: &Header, events: &[Event]) -> Result<(), TraceError> {
    let mut writer = TraceWriter::create(path)?;
    for event in events {
        writer.push(event)?;
    }
    writer.finish(header).map(|_| ())
}
