// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads that do each other's work: a small runtime, recorded while it never sleeps and replayed under other limits.
use crate::common::sockets::{socket, with_connections, US};
use crate::common::{compile, p, run};
use plimsoll_replay::{recorded, Program};
use plimsoll_trace::example::{switch, MS};
use plimsoll_trace::{SocketOp, State};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::VecDeque;
use std::sync::Arc;

const REQUESTS: u64 = 1200;
const CLIENTS: u64 = 6;
const PAUSE_NS: i64 = 50 * US;

/// Something to do for a request: reading it and the first half of its work, or the rest and the answer.
struct Piece {
    ready_ns: i64,
    connection: u64,
    work_ns: i64,
    answers: bool,
}

/// Two threads, on a CPU each, take what came first; more clients wait than there are threads, so that both have always something to
/// do and never sleep. Each client asks again 50 us after its answer.
fn runtime(seed: u64) -> (Arc<Program>, plimsoll_sim::Machine) {
    let mut rng = Pcg64::seed_from_u64(seed);
    let mut work_ns = || rng.random_range(200 * US..1000 * US);
    let mut events = vec![
        switch(1, 0, 0, State::Runnable, 20),
        switch(1, 1, 0, State::Runnable, 21),
    ];
    let mut queue: VecDeque<Piece> = VecDeque::new();
    let asks = |queue: &mut VecDeque<Piece>, ready_ns: i64, connection: u64, work_ns: i64| {
        queue.push_back(Piece {
            ready_ns,
            connection,
            work_ns,
            answers: false,
        });
        socket(ready_ns, 0, connection, SocketOp::Arrived, 100)
    };
    for connection in 0..CLIENTS {
        events.push(asks(
            &mut queue,
            MS + connection as i64 * US,
            connection,
            work_ns(),
        ));
    }
    let mut free_ns = [2, 2];
    let mut asked = CLIENTS;
    while let Some(next) = queue.pop_front() {
        let thread = if free_ns[0] <= free_ns[1] { 0 } else { 1 };
        let from_ns = free_ns[thread].max(next.ready_ns);
        let to_ns = from_ns + next.work_ns;
        free_ns[thread] = to_ns;
        let tid = 20 + thread as u32;
        if !next.answers {
            events.push(socket(from_ns, tid, next.connection, SocketOp::Read, 100));
            queue.push_back(Piece {
                ready_ns: to_ns,
                work_ns: work_ns(),
                answers: true,
                ..next
            });
            continue;
        }
        events.push(socket(to_ns, tid, next.connection, SocketOp::Wrote, 200));
        if asked < REQUESTS {
            asked += 1;
            events.push(asks(&mut queue, to_ns + PAUSE_NS, next.connection, work_ns()));
        }
    }
    let end_ns = free_ns[0].max(free_ns[1]);
    for (cpu, tid) in [(0, 20), (1, 21)] {
        events.push(switch(end_ns + 1, cpu, tid, State::Sleeping, 0));
    }
    events.sort_by_key(|event| event.ts_ns);
    let threads = [(20, "worker-1", 1), (21, "worker-2", 1)];
    let mut header = with_connections(end_ns + MS, &threads, CLIENTS);
    header.threads.iter_mut().for_each(|t| t.tgid = Some(20));
    compile(&header, &events)
}

/// As recorded all comes as it came. On half of the CPU time a request takes twice as long, and some more as a throttled thread holds
/// its piece; a limit that stops both threads for 70 ms in 100 adds one such stop, not more. (A request that waits for the
/// thread that had it in the recording lasts for 109 and 180 ms.)
#[test]
fn nothing_stands_still_while_a_thread_of_its_pool_is_free() {
    for seed in 0..4 {
        let (program, machine) = runtime(seed);
        let own = recorded(&program);
        assert_eq!(program.classes[0].closed, REQUESTS - CLIENTS, "seed {seed}");
        let same = run(&program, &machine, &[]);
        for percent in [50.0, 99.0, 100.0] {
            let (a, b) = (p(&own, percent), p(&same, percent));
            assert!((a - b).abs() < 0.02 * a, "seed {seed}: p{percent} {b} ms for {a}");
        }
        let half = run(
            &program,
            &machine,
            &["group.web.quota_us=2000", "group.web.period_us=2000"],
        );
        let (a, b) = (p(&own, 99.0), p(&half, 99.0));
        assert!(b < 4.0 * a, "seed {seed}: p99 {b} ms for {a}");
        let stopped = run(&program, &machine, &["group.web.quota_us=60000"]);
        let most = p(&stopped, 100.0);
        assert!((70.0..90.0).contains(&most), "seed {seed}: {most} ms");
    }
}
