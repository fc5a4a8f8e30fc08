// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A service that asks a database which is not recorded: answers follow their questions, whenever those are asked.
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

    /// Something arrives and wakes the thread.
    fn comes(&mut self, ts_ns: i64, connection: u64) {
        self.socket(ts_ns, 0, connection, SocketOp::Arrived);
        self.0.push(waking(ts_ns + 1, 1, THREAD, 0, Context::Interrupt));
        self.0.push(switch(ts_ns + 2, 1, 0, State::Runnable, THREAD));
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
