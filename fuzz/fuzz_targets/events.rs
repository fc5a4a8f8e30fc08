// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Any history of events: the writer takes it or refuses it, what it wrote is read back as it was or refused by its header, and what its threads did is
//! reconstructed. (A whole file that is damaged is caught by its checksum, so `trace` does not come this far.)
#![no_main]
use libfuzzer_sys::arbitrary::{self, Unstructured};
use libfuzzer_sys::fuzz_target;
use plimsoll_trace::example::{header, write};
use plimsoll_trace::{Context, Event, SocketOp, State, Timeline, Trace, TraceError, What};
use std::path::PathBuf;

const THREADS: u32 = 6;

fn event(u: &mut Unstructured, ts_ns: i64) -> arbitrary::Result<Event> {
    let cpu = u.int_in_range(0..=2)?;
    let tid = |u: &mut Unstructured| u.int_in_range(0..=THREADS);
    let state = |u: &mut Unstructured| Ok(*u.choose(&[State::Runnable, State::Sleeping, State::Dead])?);
    let what = match u.int_in_range(0..=8)? {
        0..=2 => What::Switch {
            prev: tid(u)?,
            prev_state: state(u)?,
            next: tid(u)?,
        },
        3 => What::Waking {
            tid: tid(u)?,
            waker: tid(u)?,
            context: *u.choose(&[
                Context::Task,
                Context::Timer,
                Context::Interrupt,
                Context::Unknown,
            ])?,
        },
        4 => What::Wakeup {
            tid: tid(u)?,
            waker: tid(u)?,
            target_cpu: u.int_in_range(0..=2)?,
        },
        5 => What::Fork {
            parent: tid(u)?,
            child: tid(u)?,
        },
        6 => What::Exit { tid: tid(u)? },
        7 => What::Request {
            tid: tid(u)?,
            begin: u.arbitrary()?,
        },
        _ => What::Socket {
            tid: tid(u)?,
            connection: u.int_in_range(0..=2)?,
            op: *u.choose(&[SocketOp::Arrived, SocketOp::Read, SocketOp::Wrote])?,
            bytes: u.arbitrary()?,
        },
    };
    Ok(Event { ts_ns, cpu, what })
}

fn events(u: &mut Unstructured) -> arbitrary::Result<Vec<Event>> {
    let (mut events, mut ts_ns) = (Vec::new(), 0);
    while !u.is_empty() {
        ts_ns += i64::from(u.arbitrary::<u8>()?) * 50_000;
        events.push(event(u, ts_ns)?);
    }
    Ok(events)
}

fuzz_target!(|data: &[u8]| {
    let Ok(events) = events(&mut Unstructured::new(data)) else {
        return;
    };
    let names = ["a", "b", "c", "d", "e", "f"];
    let threads: Vec<_> = (0..THREADS)
        .map(|tid| (tid + 1, names[tid as usize], tid % 2))
        .collect();
    let header = header(events.last().map_or(1, |event| event.ts_ns + 1), &threads);
    let timeline = Timeline::build(&header, &events);
    for thread in &timeline.threads {
        assert!(thread.bursts.windows(2).all(|two| two[0].end_ns <= two[1].end_ns));
    }
    let path = PathBuf::from(format!("/dev/shm/plimsoll-fuzz-events-{}", std::process::id()));
    if write(&path, &header, &events).is_ok() {
        match Trace::read(&path) {
            Ok(read) => assert_eq!(read.events, events),
            // The reader holds events against the header, such as connections that it does not name.
            Err(TraceError::Value { .. }) => {}
            Err(error) => panic!("written, and cannot be read: {error}"),
        }
    }
});
