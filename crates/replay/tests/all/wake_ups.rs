// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long a CPU takes to run what was woken there: to come back from idle, or until a client that runs there gives way.
use crate::common::sockets::{socket, with_connections, US};
use crate::common::{compile, p, run};
use plimsoll_replay::{recorded, Outcome};
use plimsoll_trace::example::{switch, waking, MS};
use plimsoll_trace::{Context, Event, SocketOp, State, What};

const THREAD: u32 = 20;
const CLIENT: u32 = 99;
const REQUESTS: i64 = 400;
const WORK_NS: i64 = 10 * US;

/// A request each 5 ms and some, for 10 us of work. Of ten wake-ups seven find the CPU idle, which takes 30 us to come back from that,
/// one of them 90; three are on the CPU of a client, which gives way after 8 us.
fn service() -> (Outcome, Outcome) {
    let mut header = with_connections((REQUESTS + 2) * 6 * MS, &[(THREAD, "web", 1)], 1);
    header.only_below = Some("/web".into());
    let mut events = vec![switch(1, 1, THREAD, State::Sleeping, 0)];
    for request in 0..REQUESTS {
        // At no fixed distance, as of clients that do not wait.
        let came_ns = (1 + request) * 5 * MS + request * request % 17 * 100 * US;
        let (waker, took_ns) = match request % 10 {
            0..3 => (CLIENT, 8 * US),
            3 => (0, 90 * US),
            _ => (0, 30 * US),
        };
        let starts_ns = came_ns + took_ns;
        events.push(socket(came_ns, waker, 0, SocketOp::Arrived, 100));
        let context = if waker == CLIENT {
            Context::TaskSoftirq
        } else {
            Context::Interrupt
        };
        events.push(waking(came_ns, 1, THREAD, waker, context));
        if waker == CLIENT {
            let what = What::Others {
                group: Some(0),
                run_ns: 40_000,
                state: State::Sleeping,
            };
            events.push(Event {
                ts_ns: starts_ns,
                cpu: 1,
                what,
            });
        }
        events.push(switch(starts_ns, 1, 0, State::Runnable, THREAD));
        events.push(socket(starts_ns + 1, THREAD, 0, SocketOp::Read, 100));
        let ends_ns = starts_ns + WORK_NS;
        events.push(socket(ends_ns, THREAD, 0, SocketOp::Wrote, 100));
        events.push(switch(ends_ns + 1, 1, THREAD, State::Sleeping, 0));
    }
    events.sort_by_key(|event| event.ts_ns);
    let (program, machine) = compile(&header, &events);
    (recorded(&program), run(&program, &machine, &[]))
}

#[test]
fn a_wake_up_takes_as_long_as_it_took() {
    let (seen, replayed) = service();
    assert_eq!(seen.requests.len(), REQUESTS as usize);
    for (percent, us) in [(20.0, 18), (60.0, 40), (95.0, 100)] {
        let (was, is) = (p(&seen, percent), p(&replayed, percent));
        let expected = us as f64 / 1e3;
        assert!((was - expected).abs() < 0.001, "p{percent}: {was} ms recorded");
        assert!(
            (is - expected).abs() < 0.001,
            "p{percent}: {is} ms, recorded {was}"
        );
    }
}
