// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which requests keep their own time, through whatever hands them on.
use crate::common::{compile, compile_with, p, run};
use plimsoll_replay::Program;
use plimsoll_trace::example::{self, header, switch, waking, MS};
use plimsoll_trace::{Context, Event, Header, State, What};

/// Requests that were counted as open, and all.
fn open_of(program: &Program) -> (u64, u64) {
    let sum = |of: fn(&plimsoll_replay::RequestClass) -> u64| program.classes.iter().map(of).sum();
    (sum(|c| c.open), sum(|c| c.open + c.closed))
}

#[test]
fn arrival_stays_open_loop_through_the_threads_that_hand_it_on() {
    // Every 20 ms thread 5 of the load generator is woken by a timer and tells thread 10 to ask 20, which works 10 ms.
    let us = MS / 1000;
    let threads = [(5, "load", 0), (10, "load", 0), (20, "web", 1)];
    let header = header(100 * 20 * MS, &threads);
    let mut events = vec![
        switch(1, 1, 20, State::Sleeping, 0),
        switch(2, 0, 10, State::Sleeping, 0),
    ];
    for round in 0..90 {
        let at = round * 20 * MS + MS + (round * 7919 % 13) * us;
        events.extend([
            waking(at, 0, 5, 0, Context::Timer),
            switch(at + us, 0, 0, State::Runnable, 5),
            waking(at + 2 * us, 0, 10, 5, Context::Task),
            switch(at + 3 * us, 0, 5, State::Sleeping, 10),
            waking(at + 4 * us, 0, 20, 10, Context::Task),
            switch(at + 5 * us, 0, 10, State::Sleeping, 0),
            switch(at + 6 * us, 1, 0, State::Runnable, 20),
            waking(at + 10 * MS, 1, 10, 20, Context::Task),
            switch(at + 10 * MS + us, 1, 20, State::Sleeping, 0),
            switch(at + 10 * MS + 2 * us, 0, 0, State::Runnable, 10),
            switch(at + 10 * MS + 3 * us, 0, 10, State::Sleeping, 0),
        ]);
    }
    let (program, machine) = compile(&header, &events);
    assert_eq!(open_of(&program), (90, 90));
    assert!(
        !program.is_closed_loop() && program.open_share() > 0.999,
        "{}",
        program.open_share()
    );
    let tight = run(&program, &machine, &["group.web.quota_us=25000"]);
    assert!(
        p(&tight, 100.0) > 800.0,
        "the queue grows: {} ms",
        p(&tight, 100.0)
    );
    // What the server does counts by itself as well.
    let (program, _) = compile_with(&header, &events, Some("comm:web"));
    assert_eq!(open_of(&program), (90, 90));
}

#[test]
fn closed_loop_that_an_arrival_once_started_is_a_closed_loop() {
    let (header, mut events) = example::closed_loop(400);
    events[0] = switch(1, 0, 10, State::Sleeping, 0);
    events.insert(2, waking(2, 0, 10, 0, Context::Interrupt));
    events.insert(3, switch(3, 0, 0, State::Runnable, 10));
    let (program, _) = compile(&header, &events);
    let (open, all) = open_of(&program);
    assert!((1..=8).contains(&open) && all > 390, "{open} of {all}");
    assert!(
        program.is_closed_loop() && program.open_share() < 0.03,
        "{}",
        program.open_share()
    );
}

#[test]
fn probed_requests_come_as_the_bursts_in_which_they_begin() {
    let probed = |events: &mut Vec<Event>| {
        let probe = |e: &Event, begin| match e.what {
            What::Switch { prev, next, .. } if (if begin { next } else { prev }) == 20 => {
                let ts_ns = if begin { e.ts_ns + 10 } else { e.ts_ns - 10 };
                let what = What::Request { tid: 20, begin };
                Some(Event {
                    ts_ns,
                    what,
                    ..e.clone()
                })
            }
            _ => None,
        };
        let probes = events[2..]
            .iter()
            .flat_map(|e| [probe(e, true), probe(e, false)])
            .flatten();
        let probes: Vec<Event> = probes.collect();
        events.extend(probes);
        events.sort_by_key(|e| e.ts_ns);
    };
    for (open, (header, mut events)) in [
        (true, example::open_loop(300)),
        (false, example::closed_loop(300)),
    ] {
        probed(&mut events);
        let (program, _) = compile_with(&header, &events, Some("uprobe:/bin/web:begin:end"));
        let (found, all) = open_of(&program);
        assert!(
            all > 290 && found == if open { all } else { 0 },
            "{found} of {all}"
        );
        assert_eq!(program.is_closed_loop(), !open);
    }
}

#[test]
fn what_goes_on_after_storage_is_what_it_was_before_whoever_brings_it() {
    // Thread 20 reads in the middle of its work; a helper of the kernel, woken by the device, wakes it again.
    let us = MS / 1000;
    let with_storage = |(mut header, events): (Header, Vec<Event>)| {
        header.threads.push(plimsoll_trace::Thread {
            tid: 40,
            comm: "jbd2".into(),
            ..header.threads[0].clone()
        });
        header.threads.last_mut().unwrap().group = Some(0);
        let mut found = Vec::new();
        for event in events {
            let ts_ns = event.ts_ns;
            let begins = matches!(event.what, What::Switch { next: 20, .. });
            found.push(event);
            if begins {
                found.extend([
                    switch(ts_ns + MS, 1, 20, State::Uninterruptible, 0),
                    waking(ts_ns + MS + 100 * us, 1, 40, 0, Context::Interrupt),
                    switch(ts_ns + MS + 101 * us, 1, 0, State::Runnable, 40),
                    waking(ts_ns + MS + 102 * us, 1, 20, 40, Context::Task),
                    switch(ts_ns + MS + 103 * us, 1, 40, State::Sleeping, 20),
                ]);
            }
        }
        compile(&header, &found).0
    };
    let open = with_storage(example::open_loop(300));
    assert!(open.open_share() > 0.99, "{}", open.open_share());
    let closed = with_storage(example::closed_loop(300));
    assert_eq!(closed.open_share(), 0.0);
}
