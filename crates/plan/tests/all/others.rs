// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What of a percentile is waiting for others, of a service whose waits are known.
use plimsoll_plan::{Goal, Source, WaitingForOthers};
use plimsoll_trace::example::{self, switch, waking, MS};
use plimsoll_trace::{Context, Event, Group, Header, State, What};

/// The service works for 3 ms every 10 ms on CPU 1: it answers after 3 ms, or after 8. If `beside`, a group of a hundred times its weight has that CPU from
/// 1 ms before it is woken until 5 ms after.
fn recording(beside: bool) -> (Header, Vec<Event>) {
    let (mut header, mut events) = (example::header(3005 * MS, &[(20, "web", 1)]), Vec::new());
    header.only_below = Some("/web".into());
    header.groups.push(Group {
        path: "/batch".into(),
        weight: Some(10_000),
        ..Default::default()
    });
    events.push(switch(1, 1, 20, State::Sleeping, 0));
    for round in 0..300 {
        let woken = (round * 10 + 1) * MS + (round * 7919 % 13) * 1000;
        let from = if beside { woken + 5 * MS } else { woken + 20 };
        events.push(waking(woken, 1, 20, 0, Context::Timer));
        if beside {
            let what = What::Others {
                group: Some(2),
                run_ns: 6 * MS as u64,
                state: State::Sleeping,
            };
            events.push(Event {
                ts_ns: from,
                cpu: 1,
                what,
            });
        }
        events.push(switch(from, 1, 0, State::Runnable, 20));
        events.push(switch(from + 3 * MS, 1, 20, State::Sleeping, 0));
    }
    (header, events)
}

fn waiting(beside: bool, goals: &[&str]) -> Option<WaitingForOthers> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("web.trace");
    let (header, events) = recording(beside);
    example::write(&path, &header, &events).unwrap();
    let goals: Vec<Goal> = goals.iter().map(|g| g.parse().unwrap()).collect();
    WaitingForOthers::of(&Source::read(&path, None, None).unwrap(), &goals).unwrap()
}

#[test]
fn what_of_a_percentile_is_waiting_for_others_is_said_and_nothing_where_there_are_none() {
    let found = waiting(true, &["throttled < 1%", "p90(request) < 5ms"]).unwrap();
    assert_eq!(found.what, "p90(request)");
    // A replay does not know after how long the batch group would have given way.
    assert!((5_000_000..=8_100_000).contains(&found.beside_ns), "{found:?}");
    assert!((2_900_000..3_100_000).contains(&found.alone_ns), "{found:?}");
    assert!((0.58..0.62).contains(&found.cpus), "{found:?}");
    assert!((0.4..0.65).contains(&found.share()), "{found:?}");
    assert_eq!(waiting(true, &["throttled < 1%"]).unwrap().what, "p99(request)");
    assert_eq!(waiting(false, &["p99(request) < 5ms"]), None);
}
