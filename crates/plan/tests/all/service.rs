// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A synthetic service whose needs are known: 3 ms of work every 10 ms.
use plimsoll_plan::{plan, Goal, Knobs, Options, Plan, Recordings, SEARCHED};
use plimsoll_replay::Semantics;
use plimsoll_trace::example::{self};
use plimsoll_trace::{Event, Header};

/// Writes the traces and reads them as recordings of one service.
pub fn read(traces: &[(Header, Vec<Event>)]) -> Result<Recordings, String> {
    let dir = tempfile::tempdir().unwrap();
    let write = |(ix, (header, events)): (usize, &(Header, Vec<Event>))| {
        let path = dir.path().join(format!("{}.trace", ["a", "b", "c"][ix]));
        example::write(&path, header, events).unwrap();
        path
    };
    let paths: Vec<_> = traces.iter().enumerate().map(write).collect();
    Recordings::read(&paths, None, None).map_err(|e| e.to_string())
}

pub fn source() -> Recordings {
    read(&[example::open_loop(300)]).unwrap()
}

/// Recordings in which each request takes so many microseconds. Their lengths differ a little, as those of recordings do.
pub fn of_costs(work_us: &[i64]) -> Recordings {
    let traces: Vec<_> = (0..)
        .zip(work_us)
        .map(|(ix, us)| example::open_loop_of(300 + ix, |_| us * 1000))
        .collect();
    read(&traces).unwrap()
}

pub fn options(goals: &[&str]) -> Options {
    Options {
        goals: goals.iter().map(|g| g.parse::<Goal>().unwrap()).collect(),
        max_cpus: None,
        knobs: Knobs::ALL,
        others: Vec::new(),
        semantics: Semantics::Mainline,
        seed: 1,
        min_throughput: 0.99,
        replicates: 3,
        searched: SEARCHED,
    }
}

pub fn found(source: &Recordings, goals: &[&str]) -> Plan {
    plan(source, &options(goals), &|_, _| {}).unwrap()
}
