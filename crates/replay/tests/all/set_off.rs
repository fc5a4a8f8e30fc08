// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What sets work off that no recorded thread wakes: the answer of a database, a timer, a client that asks again. Each follows what it
//! waited for, whenever that comes.
use crate::common::{compile, p, run};
use plimsoll_replay::{recorded, Program};
use plimsoll_trace::example::{connection, header, switch, waking, MS};
use plimsoll_trace::{Connection, Context, Event, Side, SocketOp, Sockets, State, What};
use std::sync::Arc;

const THREAD: u32 = 20;
/// Connections.
const CLIENT: u64 = 0;
const DATABASE: u64 = 1;
const OTHER_CLIENT: u64 = 2;
const WORK_NS: i64 = 2 * MS;
const ANSWER_NS: i64 = 20 * MS;
const REQUESTS: i64 = 40;

#[derive(Default)]
struct Recording(Vec<Event>);

impl Recording {
    fn socket(&mut self, ts_ns: i64, tid: u32, connection: u64, op: SocketOp) {
        let what = What::Socket {
            tid,
            connection,
            op,
            bytes: 100,
        };
        self.0.push(Event { ts_ns, cpu: 1, what });
    }

    fn wakes(&mut self, ts_ns: i64, context: Context) {
        self.0.push(waking(ts_ns + 1, 1, THREAD, 0, context));
        self.0.push(switch(ts_ns + 2, 1, 0, State::Runnable, THREAD));
    }

    /// Something arrives and wakes the thread.
    fn comes(&mut self, ts_ns: i64, connection: u64) {
        self.socket(ts_ns, 0, connection, SocketOp::Arrived);
        self.wakes(ts_ns, Context::Interrupt);
    }

    /// The thread stands still, as one that is throttled does.
    fn is_held(&mut self, from_ns: i64, to_ns: i64) {
        self.0.push(switch(from_ns, 1, THREAD, State::Runnable, 0));
        self.0.push(switch(to_ns, 1, 0, State::Runnable, THREAD));
    }

    fn sleeps(&mut self, ts_ns: i64) {
        self.0.push(switch(ts_ns, 1, THREAD, State::Sleeping, 0));
    }

    fn compile(mut self) -> (Arc<Program>, plimsoll_sim::Machine) {
        self.0.sort_by_key(|event| event.ts_ns);
        let mut header = header(self.0.last().unwrap().ts_ns + MS, &[(THREAD, "web", 1)]);
        header.only_below = Some("/web".into());
        let sides = [
            (CLIENT, 80, Side::Accepted),
            (DATABASE, 5432, Side::Opened),
            (OTHER_CLIENT, 80, Side::Accepted),
        ];
        let about = |(id, port, side)| Connection {
            local_port: Some(port),
            ..connection(id, side)
        };
        header.sockets = Sockets {
            recorded: true,
            connections: sides.into_iter().map(about).collect(),
            ..Default::default()
        };
        compile(&header, &self.0)
    }
}

/// A request each 100 ms: 2 ms of work, a question, its answer after 20 ms, 2 ms of work. The thread stands still for `held_ns` before
/// it asks, as one does that is throttled, in every other request.
fn asks(held_ns: i64) -> (Arc<Program>, plimsoll_sim::Machine) {
    let mut all = Recording(vec![switch(1, 1, THREAD, State::Sleeping, 0)]);
    for round in 0..REQUESTS {
        // At no fixed distance, as of clients that do not wait.
        let came_ns = (1 + round) * 100 * MS + round * round % 17 * MS;
        all.comes(came_ns, CLIENT);
        all.socket(came_ns + 3, THREAD, CLIENT, SocketOp::Read);
        let mut asked_ns = came_ns + 2 + WORK_NS;
        if round % 2 == 1 && held_ns > 0 {
            all.0.push(switch(came_ns + MS, 1, THREAD, State::Runnable, 0));
            all.0
                .push(switch(came_ns + MS + held_ns, 1, 0, State::Runnable, THREAD));
            asked_ns += held_ns;
        }
        all.socket(asked_ns, THREAD, DATABASE, SocketOp::Wrote);
        all.sleeps(asked_ns + 1);
        all.comes(asked_ns + ANSWER_NS, DATABASE);
        let read_ns = asked_ns + ANSWER_NS + 3;
        all.socket(read_ns, THREAD, DATABASE, SocketOp::Read);
        all.socket(read_ns + WORK_NS, THREAD, CLIENT, SocketOp::Wrote);
        all.sleeps(read_ns + WORK_NS + 1);
    }
    all.compile()
}

#[test]
fn an_answer_comes_sooner_where_nothing_holds_its_question_up() {
    let (program, machine) = asks(30 * MS);
    assert!(p(&recorded(&program), 99.0) > 53.0);
    let replayed = run(&program, &machine, &[]);
    let (least, most) = (p(&replayed, 0.0), p(&replayed, 100.0));
    assert!(least > 23.9 && most < 24.5, "{least} to {most} ms");
}

#[test]
fn an_answer_comes_later_where_a_limit_holds_its_question_up() {
    let (program, machine) = asks(0);
    assert!(p(&run(&program, &machine, &[]), 100.0) < 24.5);
    // 4 ms are wanted of each 100: every request waits for one refill, whichever half of its work that meets.
    let tight = run(
        &program,
        &machine,
        &["group./web.quota_us=3000", "group./web.period_us=100000"],
    );
    let soonest = p(&tight, 0.0);
    assert!(soonest >= 23.9, "an answer came {soonest} ms after the request");
}

/// Of two requests that come at once the second waits for the first, as the thread reads nothing else while it waits for its answer.
#[test]
fn a_thread_that_waits_for_its_answer_does_nothing_else() {
    let mut all = Recording(vec![switch(1, 1, THREAD, State::Sleeping, 0)]);
    for round in 0..REQUESTS {
        let came_ns = (1 + round) * 100 * MS + round * round % 17 * MS;
        all.comes(came_ns, CLIENT);
        let mut read_ns = came_ns + 3;
        for client in [CLIENT, OTHER_CLIENT] {
            all.socket(read_ns, THREAD, client, SocketOp::Read);
            all.socket(read_ns + WORK_NS, THREAD, DATABASE, SocketOp::Wrote);
            all.sleeps(read_ns + WORK_NS + 1);
            let answered_ns = read_ns + WORK_NS + ANSWER_NS;
            all.comes(answered_ns, DATABASE);
            all.socket(answered_ns + 3, THREAD, DATABASE, SocketOp::Read);
            read_ns = answered_ns + 3 + WORK_NS;
            all.socket(read_ns, THREAD, client, SocketOp::Wrote);
            read_ns += 1;
        }
        all.sleeps(read_ns + 1);
        all.socket(came_ns + MS, 0, OTHER_CLIENT, SocketOp::Arrived);
    }
    let (program, machine) = all.compile();
    let (seen, replayed) = (recorded(&program), run(&program, &machine, &[]));
    for percent in [25.0, 75.0] {
        let (was, is) = (p(&seen, percent), p(&replayed, percent));
        assert!((was - is).abs() < 1.0, "p{percent}: {was} ms, replayed {is}");
    }
}

/// Two requests, 10 ms apart: each is read, sleeps for 30 ms and is answered. The thread is held for 15 ms as it has read the second,
/// so that the first's timer goes off 4 ms after its last work.
#[test]
fn a_request_sleeps_as_long_whatever_its_thread_did_meanwhile() {
    let mut all = Recording(vec![switch(1, 1, THREAD, State::Sleeping, 0)]);
    for round in 0..REQUESTS {
        let came_ns = (1 + round) * 100 * MS + round * round % 17 * MS;
        for (client, came_ns, held_ns) in [(CLIENT, came_ns, 0), (OTHER_CLIENT, came_ns + 10 * MS, 15 * MS)] {
            all.comes(came_ns, client);
            all.socket(came_ns + 3, THREAD, client, SocketOp::Read);
            if held_ns > 0 {
                all.is_held(came_ns + MS / 2, came_ns + MS / 2 + held_ns);
            }
            let slept_ns = came_ns + held_ns + MS;
            all.sleeps(slept_ns);
            all.wakes(slept_ns + 30 * MS, Context::Timer);
            all.socket(slept_ns + 31 * MS, THREAD, client, SocketOp::Wrote);
            all.sleeps(slept_ns + 31 * MS + 1);
        }
    }
    let (program, machine) = all.compile();
    assert!(p(&recorded(&program), 75.0) > 46.0);
    let replayed = run(&program, &machine, &[]);
    let (least, most) = (p(&replayed, 0.0), p(&replayed, 100.0));
    assert!(least > 31.9 && most < 32.5, "{least} to {most} ms");
}

/// Two clients that wait, one for 5 ms and one for 20 between an answer and its next request. Every fifth request is held for 8 ms.
#[test]
fn a_client_asks_again_a_while_after_its_own_answer() {
    let mut all = Recording(vec![switch(1, 1, THREAD, State::Sleeping, 0)]);
    let mut next = [(10 * MS, CLIENT, 5 * MS), (12 * MS, OTHER_CLIENT, 20 * MS)];
    let mut free_ns = 0;
    for request in 0..400 {
        next.sort_unstable();
        let (came_ns, client, pause_ns) = next[0];
        let asleep = came_ns > free_ns;
        let read_ns = came_ns.max(free_ns) + 3;
        match asleep {
            true => {
                if free_ns > 0 {
                    all.sleeps(free_ns + 1);
                }
                all.comes(came_ns, client);
            }
            false => all.socket(came_ns, 0, client, SocketOp::Arrived),
        }
        all.socket(read_ns, THREAD, client, SocketOp::Read);
        let held_ns = if request % 5 == 4 { 8 * MS } else { 0 };
        if held_ns > 0 {
            all.is_held(read_ns + MS, read_ns + MS + held_ns);
        }
        free_ns = read_ns + held_ns + WORK_NS;
        all.socket(free_ns, THREAD, client, SocketOp::Wrote);
        // Never to the ns alike, as no client's are.
        next[0].0 = free_ns + pause_ns + request * request % 7 * 10_000;
    }
    all.sleeps(free_ns + 1);
    let (program, machine) = all.compile();
    assert!(program.is_closed_loop(), "{:?}", program.classes);
    assert!(p(&recorded(&program), 90.0) > 9.9);
    let replayed = run(&program, &machine, &[]);
    let (middle, most) = (p(&replayed, 50.0), p(&replayed, 100.0));
    assert!(
        middle < 2.1 && most < 4.1,
        "half within {middle} ms, all within {most}"
    );
}

/// A client that waits asks again 0.3 ms after its answer. The thread stands still for 50 to 98 ms before each of its two parts and never blocks: whatever
/// comes meanwhile is there, so that all is one burst. Without that it reads nothing before it was asked.
#[test]
fn a_client_that_waits_asks_again_after_its_answer_though_the_thread_never_blocked() {
    let mut all = Recording(vec![switch(1, 1, THREAD, State::Sleeping, 0)]);
    let mut now_ns = 10 * MS;
    all.comes(now_ns, CLIENT);
    now_ns += 3;
    for request in 0..REQUESTS {
        let held_ns = (50 + request * request % 17 * 3) * MS;
        all.socket(now_ns, THREAD, CLIENT, SocketOp::Read);
        now_ns += WORK_NS;
        all.socket(now_ns, THREAD, DATABASE, SocketOp::Wrote);
        all.socket(now_ns + ANSWER_NS, 0, DATABASE, SocketOp::Arrived);
        all.is_held(now_ns + 1, now_ns + held_ns);
        now_ns += held_ns + 1;
        all.socket(now_ns, THREAD, DATABASE, SocketOp::Read);
        now_ns += WORK_NS;
        all.socket(now_ns, THREAD, CLIENT, SocketOp::Wrote);
        all.socket(now_ns + 3 * MS / 10, 0, CLIENT, SocketOp::Arrived);
        all.is_held(now_ns + 1, now_ns + held_ns);
        now_ns += held_ns + 1;
    }
    all.sleeps(now_ns);
    let (program, machine) = all.compile();
    assert!(program.is_closed_loop(), "{:?}", program.classes);
    assert!(p(&recorded(&program), 50.0) > 100.0);
    let replayed = run(&program, &machine, &[]);
    let (least, most) = (p(&replayed, 0.0), p(&replayed, 100.0));
    assert!(least > 23.9 && most < 24.5, "{least} to {most} ms");
}

/// A client that waits asks again 3 ms after its answer. The thread works on for 2 ms as it has answered, and never blocks, as it then stands
/// still for 20 ms or more: the client's pause is over by then.
#[test]
fn a_client_asks_again_after_its_answer_and_not_after_what_the_thread_does_then() {
    let mut all = Recording(vec![switch(1, 1, THREAD, State::Sleeping, 0)]);
    let mut now_ns = 10 * MS;
    all.comes(now_ns, CLIENT);
    now_ns += 3;
    for request in 0..REQUESTS {
        all.socket(now_ns, THREAD, CLIENT, SocketOp::Read);
        let answered_ns = now_ns + WORK_NS;
        all.socket(answered_ns, THREAD, CLIENT, SocketOp::Wrote);
        // Never to the ns alike, as no client's are.
        all.socket(
            answered_ns + 3 * MS + request * request % 7 * 10_000,
            0,
            CLIENT,
            SocketOp::Arrived,
        );
        let held_ns = (20 + request * request % 17 * 3) * MS;
        all.is_held(answered_ns + 2 * MS, answered_ns + 2 * MS + held_ns);
        now_ns = answered_ns + 2 * MS + held_ns + 1;
    }
    all.sleeps(now_ns);
    let (program, machine) = all.compile();
    assert!(program.is_closed_loop(), "{:?}", program.classes);
    assert!(p(&recorded(&program), 50.0) > 20.0);
    let replayed = run(&program, &machine, &[]);
    let (least, most) = (p(&replayed, 0.0), p(&replayed, 100.0));
    assert!(least > 1.9 && most < 2.1, "{least} to {most} ms");
}
