// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests that piled up as they were recorded, where they do not: each is served as it comes, whatever was done together or before.
use crate::common::sockets::{socket, with_connections, US};
use crate::common::{compile, p, run};
use plimsoll_replay::recorded;
use plimsoll_trace::example::{connection, switch, waking, MS};
use plimsoll_trace::{Connection, Context, Event, Side, SocketOp, State};

/// Three requests pile up while both are throttled. The front asks the back for each, over a connection of its own or one that they
/// share; the back finds all questions at once, and the front all answers, which it passes on one by one or after it has read all.
#[test]
fn a_front_and_a_back_that_served_several_at_once_serve_each_as_it_comes_where_they_do_not_pile_up() {
    use SocketOp::{Arrived, Read, Wrote};
    for (shared, at_once) in [(false, false), (true, false), (false, true)] {
        let mut header = with_connections(300 * MS, &[(20, "front", 1), (21, "back", 1)], 3);
        for i in 0..if shared { 1 } else { 3 } {
            for (id, side, peer) in [(10 + i, Side::Opened, 20 + i), (20 + i, Side::Accepted, 10 + i)] {
                header.sockets.connections.push(Connection {
                    peer: Some(peer),
                    ..connection(id, side)
                });
            }
        }
        let pair = |i: u64| if shared { (10, 20) } else { (10 + i, 20 + i) };
        let mut events = vec![
            switch(1, 1, 20, State::Sleeping, 0),
            switch(2, 0, 21, State::Sleeping, 0),
            waking(10 * MS + 1, 1, 20, 0, Context::Interrupt),
            switch(100 * MS, 1, 0, State::Runnable, 20),
            waking(101 * MS + 1, 1, 21, 20, Context::Task),
            switch(107 * MS, 1, 20, State::Runnable, 0),
            // The back, after another throttling; then the front once more.
            switch(200 * MS, 0, 0, State::Runnable, 21),
            switch(206 * MS + 9, 0, 21, State::Sleeping, 0),
            switch(207 * MS, 1, 0, State::Runnable, 20),
            switch(209 * MS, 1, 20, State::Sleeping, 0),
        ];
        for i in 0..3 {
            let (asks, answers) = pair(i);
            let t = i as i64 * 2 * MS;
            events.extend([
                socket((10 + 10 * i as i64) * MS, 0, i, Arrived, 50),
                // The front works for 1 ms before it asks.
                socket(100 * MS + t, 20, i, Read, 50),
                socket(101 * MS + t, 20, asks, Wrote, 10),
                socket(101 * MS + t, 20, answers, Arrived, 10),
                // The back for 2.
                socket(200 * MS + t + 1, 21, answers, Read, 10),
                socket(202 * MS + t, 21, answers, Wrote, 20),
                socket(202 * MS + t, 21, asks, Arrived, 20),
                // And the front for half of one.
                socket(
                    207 * MS + if at_once { i as i64 } else { t / 4 } + 1,
                    20,
                    asks,
                    Read,
                    20,
                ),
                socket(207 * MS + t / 4 + 500 * US, 20, i, Wrote, 70),
            ]);
        }
        events.sort_by_key(|e| e.ts_ns);
        let (program, machine) = compile(&header, &events);
        assert!(p(&recorded(&program), 50.0) > 180.0);
        let replayed = run(&program, &machine, &[]);
        // It asks for the next 1 ms after one; no request waits for the next one, and none is answered before the back has worked.
        for latency in replayed.latencies(None) {
            let ms = latency as f64 / MS as f64;
            assert!(
                (3.5..5.0).contains(&ms),
                "shared: {shared}, at once: {at_once}: {:?}",
                replayed.requests
            );
        }
    }
}

/// Three came while the thread was throttled, and it took the last one first, as a queue of a pool may have them.
#[test]
fn what_one_burst_served_in_another_order_is_served_as_it_came_where_it_does_not_pile_up() {
    use SocketOp::{Arrived, Read, Wrote};
    let mut events = vec![switch(1, 1, 20, State::Sleeping, 0)];
    for round in 0..40 {
        let t = round * 100 * MS;
        events.push(waking(t + 10 * MS + 1, 1, 20, 0, Context::Interrupt));
        events.push(switch(t + 10 * MS + 2, 1, 0, State::Runnable, 20));
        events.push(switch(t + 10 * MS + 12, 1, 20, State::Runnable, 0));
        events.push(switch(t + 80 * MS, 1, 0, State::Runnable, 20));
        for (place, connection) in [2, 0, 1].into_iter().enumerate() {
            let (place, own) = (place as i64, connection as i64);
            events.push(socket(t + (10 + 20 * own) * MS, 0, connection, Arrived, 10));
            let reads = t + (80 + 2 * place) * MS + US;
            events.push(socket(reads, 20, connection, Read, 10));
            events.push(socket(reads + 2 * MS - 2 * US, 20, connection, Wrote, 5));
        }
        events.push(switch(t + 86 * MS, 1, 20, State::Sleeping, 0));
    }
    events.sort_by_key(|e| e.ts_ns);
    let (program, machine) = compile(&with_connections(4000 * MS, &[(20, "web", 1)], 3), &events);
    assert!(p(&recorded(&program), 50.0) > 50.0);
    let replayed = run(&program, &machine, &[]);
    assert_eq!(replayed.requests.len(), 120);
    assert!(p(&replayed, 100.0) < 2.2, "{} ms", p(&replayed, 100.0));
}

/// An event loop was throttled in the middle of each request, and read the next one before it answered.
#[test]
fn an_answer_waits_for_no_request_that_was_read_before_it_in_one_burst_and_came_later() {
    use SocketOp::{Arrived, Read, Wrote};
    let mut events = vec![switch(1, 1, 20, State::Sleeping, 0)];
    for round in 0..40 {
        let t = round * 100 * MS;
        events.push(waking(t + 10 * MS + 1, 1, 20, 0, Context::Interrupt));
        events.push(switch(t + 10 * MS + 2, 1, 0, State::Runnable, 20));
        for connection in 0..3 {
            let (from, arrives) = (80 + 3 * connection as i64, 10 + 20 * connection as i64);
            events.push(socket(t + arrives * MS, 0, connection, Arrived, 10));
            // 1 ms after it is read, the one before is answered; then it goes on with this one.
            let reads = if connection == 0 { 11 } else { from };
            events.push(socket(t + reads * MS, 20, connection, Read, 10));
            events.push(socket(t + (from + 4) * MS, 20, connection, Wrote, 5));
        }
        events.push(switch(t + 12 * MS, 1, 20, State::Runnable, 0));
        events.push(switch(t + 80 * MS, 1, 0, State::Runnable, 20));
        events.push(switch(t + 90 * MS + US, 1, 20, State::Sleeping, 0));
    }
    events.sort_by_key(|e| e.ts_ns);
    let (program, machine) = compile(&with_connections(4000 * MS, &[(20, "web", 1)], 3), &events);
    let as_recorded = p(&recorded(&program), 50.0);
    assert!(as_recorded > 40.0, "{as_recorded} ms");
    let replayed = run(&program, &machine, &[]);
    assert_eq!(replayed.requests.len(), 120);
    // 2 and 4 ms of the first request, 3 of each other one.
    let (half, all) = (p(&replayed, 50.0), p(&replayed, 100.0));
    assert!(
        (2.9..3.2).contains(&half) && (5.9..6.2).contains(&all),
        "{half}, {all} ms"
    );
}

/// 40 rounds of 100 ms of two threads of one process, each on its own CPU, that are throttled for most of the time. In each
/// the first one reads a request at 10 ms and is throttled at 12; `round` says what happens beside and after that.
fn two_threads(round: impl Fn(i64) -> Vec<Event>) -> plimsoll_replay::Outcome {
    let mut header = with_connections(4000 * MS, &[(20, "web", 1), (21, "web", 1)], 2);
    header.threads.iter_mut().for_each(|t| t.tgid = Some(20));
    let mut events = vec![
        switch(1, 1, 20, State::Sleeping, 0),
        switch(2, 0, 21, State::Sleeping, 0),
    ];
    for t in (0..40).map(|i| i * 100 * MS) {
        events.extend([
            socket(t + 10 * MS, 0, 0, SocketOp::Arrived, 10),
            waking(t + 10 * MS + 1, 1, 20, 0, Context::Interrupt),
            switch(t + 10 * MS + 2, 1, 0, State::Runnable, 20),
            socket(t + 10 * MS + 3, 20, 0, SocketOp::Read, 10),
            switch(t + 12 * MS, 1, 20, State::Runnable, 0),
        ]);
        events.extend(round(t));
    }
    events.sort_by_key(|e| e.ts_ns);
    let (program, machine) = compile(&header, &events);
    let slowest = p(&recorded(&program), 100.0);
    assert!(slowest > 70.0, "{slowest} ms as recorded");
    let replayed = run(&program, &machine, &[]);
    assert_eq!(replayed.requests.len(), 80);
    replayed
}

/// As a runtime moves its own tasks between threads that run: of that a recording has no event.
#[test]
fn what_one_thread_read_and_another_answers_does_not_wait_for_what_woke_that_one() {
    use SocketOp::{Arrived, Read, Wrote};
    let replayed = two_threads(|t| {
        vec![
            socket(t + 30 * MS, 0, 1, Arrived, 10),
            waking(t + 30 * MS + 1, 0, 21, 0, Context::Interrupt),
            switch(t + 30 * MS + 2, 0, 0, State::Runnable, 21),
            switch(t + 30 * MS + 12, 0, 21, State::Runnable, 0),
            switch(t + 80 * MS, 1, 0, State::Runnable, 20),
            switch(t + 80 * MS + 500 * US, 1, 20, State::Sleeping, 0),
            switch(t + 80 * MS + 1, 0, 0, State::Runnable, 21),
            socket(t + 81 * MS, 21, 1, Read, 10),
            socket(t + 84 * MS, 21, 0, Wrote, 5),
            socket(t + 85 * MS, 21, 1, Wrote, 5),
            switch(t + 86 * MS, 0, 21, State::Sleeping, 0),
        ]
    });
    let (least, most) = (p(&replayed, 1.0), p(&replayed, 100.0));
    assert!(
        (1.9..2.3).contains(&least) && (5.4..5.8).contains(&most),
        "{least}, {most} ms"
    );
}

/// The back has two threads. One is woken by the question and throttled; the other, woken later for a request of its own, reads it.
#[test]
fn what_a_thread_reads_for_another_request_than_it_was_woken_for_is_answered_as_it_comes() {
    use SocketOp::{Arrived, Read, Wrote};
    let threads = [(20, "front", 1), (21, "back", 1), (22, "back", 1)];
    let mut header = with_connections(300 * MS, &threads, 2);
    for (id, side, peer) in [(10, Side::Opened, 20), (20, Side::Accepted, 10)] {
        header.sockets.connections.push(Connection {
            peer: Some(peer),
            ..connection(id, side)
        });
    }
    let mut events: Vec<Event> = [20, 21, 22]
        .map(|tid| switch(tid as i64, tid % 2, tid, State::Sleeping, 0))
        .into();
    events.extend([
        socket(10 * MS, 0, 0, Arrived, 50),
        waking(10 * MS + 1, 1, 20, 0, Context::Interrupt),
        switch(10 * MS + 2, 1, 0, State::Runnable, 20),
        socket(10 * MS + 3, 20, 0, Read, 50),
        socket(11 * MS, 20, 10, Wrote, 10),
        socket(11 * MS, 20, 20, Arrived, 10),
        waking(11 * MS + 1, 1, 22, 20, Context::Task),
        switch(11 * MS + 2, 0, 0, State::Runnable, 22),
        switch(11 * MS + 12, 0, 22, State::Runnable, 0),
        switch(11 * MS + 13, 1, 20, State::Sleeping, 0),
        socket(30 * MS, 0, 1, Arrived, 50),
        waking(30 * MS + 1, 1, 21, 0, Context::Interrupt),
        switch(30 * MS + 2, 1, 0, State::Runnable, 21),
        switch(30 * MS + 12, 1, 21, State::Runnable, 0),
        switch(80 * MS, 0, 0, State::Runnable, 22),
        switch(80 * MS + 1, 1, 0, State::Runnable, 21),
        switch(80 * MS + 200 * US, 0, 22, State::Sleeping, 0),
        socket(81 * MS, 21, 20, Read, 10),
        socket(82 * MS, 21, 1, Read, 50),
        socket(84 * MS, 21, 20, Wrote, 20),
        socket(84 * MS, 21, 10, Arrived, 20),
        waking(84 * MS + 1, 1, 20, 21, Context::Task),
        switch(84 * MS + 2, 0, 0, State::Runnable, 20),
        socket(84 * MS + 3, 20, 10, Read, 20),
        socket(84 * MS + 500 * US, 20, 0, Wrote, 70),
        switch(84 * MS + 501 * US, 0, 20, State::Sleeping, 0),
        socket(85 * MS, 21, 1, Wrote, 5),
        switch(86 * MS, 1, 21, State::Sleeping, 0),
    ]);
    let (program, machine) = compile(&header, &events);
    let replayed = run(&program, &machine, &[]);
    // 1 ms of the front, 1 and 2 of the back, half of one; then 1 and 1.
    let (least, most) = (p(&replayed, 1.0), p(&replayed, 100.0));
    assert!(
        (1.9..2.3).contains(&least) && (4.4..4.8).contains(&most),
        "{least}, {most} ms"
    );
}

/// Two event loops of one program, front and back, while throttled: the back answers the first of four requests, the third and the
/// fourth, which wake the front one after another, and then the second. Where the third has not come the front does not wait for its
/// answer.
#[test]
fn an_event_loop_does_not_wait_for_the_answer_that_woke_it() {
    use SocketOp::{Arrived, Read, Wrote};
    let mut header = with_connections(300 * MS, &[(20, "node", 1), (21, "node", 1)], 4);
    for i in 0..4 {
        for (id, side, peer) in [(10 + i, Side::Opened, 20 + i), (20 + i, Side::Accepted, 10 + i)] {
            header.sockets.connections.push(Connection {
                peer: Some(peer),
                ..connection(id, side)
            });
        }
    }
    let mut events = vec![
        switch(1, 1, 20, State::Sleeping, 0),
        switch(2, 0, 21, State::Sleeping, 0),
        waking(10 * MS + 1, 1, 20, 0, Context::Interrupt),
        switch(10 * MS + 2, 1, 0, State::Runnable, 20),
        switch(10 * MS + 12, 1, 20, State::Runnable, 0),
        // The front asks for all four.
        switch(100 * MS, 1, 0, State::Runnable, 20),
        waking(101 * MS + 1, 1, 21, 20, Context::Task),
        switch(101 * MS + 2, 0, 0, State::Runnable, 21),
        switch(101 * MS + 12, 0, 21, State::Runnable, 0),
        switch(104 * MS + 1, 1, 20, State::Sleeping, 0),
        // The back answers.
        switch(104 * MS + 2, 0, 0, State::Runnable, 21),
        switch(112 * MS + 2, 0, 21, State::Sleeping, 0),
        // The front passes the last two answers on in one go.
        waking(110 * MS + 1, 0, 20, 21, Context::Task),
        switch(110 * MS + 2, 1, 0, State::Runnable, 20),
        switch(110 * MS + 600 * US, 1, 20, State::Runnable, 0),
        switch(113 * MS, 1, 0, State::Runnable, 20),
        switch(113 * MS + 600 * US, 1, 20, State::Sleeping, 0),
    ];
    for front_ms in [106, 108] {
        events.extend([
            waking(front_ms * MS + 1, 0, 20, 21, Context::Task),
            switch(front_ms * MS + 2, 1, 0, State::Runnable, 20),
            switch(front_ms * MS + 600 * US, 1, 20, State::Sleeping, 0),
        ]);
    }
    // Of each request: when it came, when the back begins with it, and when the front goes on.
    for (i, came_ms, back_ms, front_ms) in [
        (0, 10, 104, 106),
        (1, 11, 110, 113),
        (2, 95, 106, 108),
        (3, 96, 108, 110),
    ] {
        let asks_ns = (101 + i as i64) * MS;
        events.extend([
            socket(came_ms * MS, 0, i, Arrived, 50),
            socket(asks_ns - MS + 1, 20, i, Read, 50),
            socket(asks_ns, 20, 10 + i, Wrote, 10),
            socket(asks_ns, 20, 20 + i, Arrived, 10),
            socket(back_ms * MS + 4, 21, 20 + i, Read, 10),
            socket((back_ms + 2) * MS, 21, 20 + i, Wrote, 20),
            socket((back_ms + 2) * MS, 21, 10 + i, Arrived, 20),
            socket(front_ms * MS + 3, 20, 10 + i, Read, 20),
            socket(front_ms * MS + 500 * US, 20, i, Wrote, 70),
        ]);
    }
    events.sort_by_key(|e| e.ts_ns);
    let (program, machine) = compile(&header, &events);
    assert!(p(&recorded(&program), 100.0) > 99.0);
    let replayed = run(&program, &machine, &[]);
    // 1 ms of the front, 2 of the back, half of one; the second waits for the first.
    let most = p(&replayed, 100.0);
    assert!(most < 5.0, "{most} ms");
}

/// The second one held a lock for a request that came while the first was throttled.
#[test]
fn a_lock_is_free_where_the_request_that_held_it_has_not_come() {
    use SocketOp::{Arrived, Read, Wrote};
    let replayed = two_threads(|t| {
        vec![
            socket(t + 40 * MS, 0, 1, Arrived, 10),
            waking(t + 40 * MS + 1, 0, 21, 0, Context::Interrupt),
            switch(t + 80 * MS, 0, 0, State::Runnable, 21),
            socket(t + 80 * MS + 1, 21, 1, Read, 10),
            switch(t + 80 * MS + 2, 1, 0, State::Runnable, 20),
            switch(t + 80 * MS + US, 1, 20, State::Sleeping, 0),
            waking(t + 83 * MS, 0, 20, 21, Context::Task),
            switch(t + 83 * MS + 1, 1, 0, State::Runnable, 20),
            socket(t + 84 * MS, 21, 1, Wrote, 5),
            switch(t + 84 * MS + 1, 0, 21, State::Sleeping, 0),
            socket(t + 85 * MS, 20, 0, Wrote, 5),
            switch(t + 85 * MS + 1, 1, 20, State::Sleeping, 0),
        ]
    });
    // 2 + 2 ms of the first, 4 ms of the second.
    let all = (p(&replayed, 1.0), p(&replayed, 100.0));
    assert!(all.0 > 3.9 && all.1 < 4.3, "{all:?} ms");
}

/// Two clients that wait. The first one's thread stands still for 40 ms in the recording and not in the replay, so that it is ahead
/// there of the second one's, which held a lock for a request of the same time.
#[test]
fn a_lock_is_free_where_the_client_of_the_request_that_held_it_has_not_asked_yet() {
    use SocketOp::{Arrived, Read, Wrote};
    let mut header = with_connections(700 * MS, &[(20, "web", 1), (21, "web", 1)], 2);
    header.threads.iter_mut().for_each(|t| t.tgid = Some(20));
    let mut events = vec![
        switch(1, 0, 20, State::Sleeping, 0),
        switch(2, 1, 21, State::Sleeping, 0),
    ];
    let mut serve = |cpu, thread: u32, came_ns, runs_ns, answers_ns| {
        let connection = u64::from(thread - 20);
        events.extend([
            socket(came_ns, 0, connection, Arrived, 10),
            waking(came_ns + 1, cpu, thread, 0, Context::Interrupt),
            switch(runs_ns, cpu, 0, State::Runnable, thread),
            socket(runs_ns + 1, thread, connection, Read, 10),
            socket(answers_ns, thread, connection, Wrote, 5),
            switch(answers_ns + 1, cpu, thread, State::Sleeping, 0),
        ]);
    };
    // Each asks again 1 ms after its answer. The fifth of the second one takes from 50 to 56 ms.
    let mut came_ns = 10 * MS;
    for i in 0..60 {
        let answers_ns = came_ns + [1, 12, 3, 20, 6][i % 5] * MS;
        serve(1, 21, came_ns, came_ns + 2, answers_ns);
        came_ns = answers_ns + MS;
    }
    serve(0, 20, 10 * MS, 50 * MS, 51 * MS);
    serve(0, 20, 52 * MS, 52 * MS + 2, 54 * MS);
    let mut came_ns = 55 * MS;
    for i in 0..40 {
        let answers_ns = came_ns + (400 + i * 7 % 5 * 300) * US;
        serve(0, 20, came_ns, came_ns + 2, answers_ns);
        came_ns = answers_ns + MS;
    }
    events.extend([
        switch(52 * MS + 500 * US, 0, 20, State::Sleeping, 0),
        waking(53 * MS, 0, 20, 21, Context::Task),
        switch(53 * MS + 1, 0, 0, State::Runnable, 20),
    ]);
    events.sort_by_key(|e| e.ts_ns);
    let (program, machine) = compile(&header, &events);
    assert!(p(&recorded(&program), 100.0) > 40.0);
    let most = p(&run(&program, &machine, &[]), 100.0);
    // The longest of the second one.
    assert!(most < 20.5, "{most} ms");
}

/// A worker of a pool was woken to help with the first request and had no time before the second one came: it read that
/// one, and answered the first later.
#[test]
fn a_worker_answers_while_what_it_read_before_in_the_recording_has_not_come() {
    use SocketOp::{Arrived, Read, Wrote};
    let replayed = two_threads(|t| {
        vec![
            waking(t + 11 * MS, 0, 21, 20, Context::Task),
            switch(t + 11 * MS + 1, 0, 0, State::Runnable, 21),
            switch(t + 11 * MS + 2, 0, 21, State::Runnable, 0),
            socket(t + 40 * MS, 0, 1, Arrived, 10),
            switch(t + 80 * MS, 0, 0, State::Runnable, 21),
            socket(t + 80 * MS + 1, 21, 1, Read, 10),
            switch(t + 80 * MS + 2, 1, 0, State::Runnable, 20),
            socket(t + 81 * MS, 21, 1, Wrote, 5),
            switch(t + 81 * MS + 1, 0, 21, State::Sleeping, 0),
            waking(t + 82 * MS, 0, 21, 20, Context::Task),
            switch(t + 82 * MS + 1, 1, 20, State::Sleeping, 0),
            switch(t + 82 * MS + 2, 0, 0, State::Runnable, 21),
            socket(t + 83 * MS, 21, 0, Wrote, 5),
            switch(t + 83 * MS + 1, 0, 21, State::Sleeping, 0),
        ]
    });
    // 4 ms of the first thread and 1 of the second; 1 ms.
    let (least, most) = (p(&replayed, 1.0), p(&replayed, 100.0));
    assert!(
        (0.9..1.2).contains(&least) && (4.9..5.3).contains(&most),
        "{least}, {most} ms"
    );
}

/// As of servers whose processes share one queue of connections: something else woke the thread than the data.
#[test]
fn a_request_is_served_as_its_data_come_though_its_thread_was_woken_later() {
    use SocketOp::{Arrived, Read, Wrote};
    let replayed = two_threads(|t| {
        vec![
            socket(t + 30 * MS, 0, 1, Arrived, 10),
            switch(t + 80 * MS, 1, 0, State::Runnable, 20),
            socket(t + 82 * MS, 20, 0, Wrote, 5),
            switch(t + 82 * MS + 1, 1, 20, State::Sleeping, 0),
            waking(t + 82 * MS + 50 * US, 1, 20, 0, Context::Interrupt),
            switch(t + 82 * MS + 51 * US, 1, 0, State::Runnable, 20),
            socket(t + 82 * MS + 52 * US, 20, 1, Read, 10),
            socket(t + 85 * MS + 51 * US, 20, 1, Wrote, 5),
            switch(t + 85 * MS + 52 * US, 1, 20, State::Sleeping, 0),
        ]
    });
    let (least, most) = (p(&replayed, 1.0), p(&replayed, 100.0));
    assert!(
        (2.9..3.2).contains(&least) && (3.9..4.2).contains(&most),
        "{least}, {most} ms"
    );
}
