// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests as sockets see them: small servers whose requests are known, recorded and replayed.
use crate::common::sockets::{socket, with_connections, US};
use crate::common::{compile, p, run};
use plimsoll_replay::{recorded, Program};
use plimsoll_stats::percentile_ns;
use plimsoll_trace::example::{switch, waking, MS};
use plimsoll_trace::{Context, Event, SocketOp, State};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use std::sync::Arc;

/// One thread that serves whatever came first, and may run in the first `quota_ns` of each 100 ms only.
struct Server {
    events: Vec<Event>,
    quota_ns: i64,
    /// When it is done with all it has.
    free_ns: i64,
    idle: bool,
    /// Each connection is over as its request is answered.
    closes: bool,
}

const PERIOD_NS: i64 = 100 * MS;

impl Server {
    fn new(quota_ns: i64) -> Server {
        Server {
            events: vec![switch(1, 1, 20, State::Sleeping, 0)],
            quota_ns,
            free_ns: 2,
            idle: true,
            closes: false,
        }
    }

    /// Serves a request that arrives at `at_ns`, none earlier than the one before. When it is answered.
    fn serve(&mut self, connection: u64, at_ns: i64, work_ns: i64) -> i64 {
        if self.free_ns < at_ns && !self.idle {
            self.events
                .push(switch(self.free_ns + 1, 1, 20, State::Sleeping, 0));
            self.idle = true;
        }
        self.events
            .push(socket(at_ns, 0, connection, SocketOp::Arrived, 100));
        let mut now = self.free_ns.max(at_ns + 2);
        if self.idle {
            self.events.push(waking(at_ns + 1, 1, 20, 0, Context::Interrupt));
            now = self.allowed(now);
            self.events.push(switch(now, 1, 0, State::Runnable, 20));
            self.idle = false;
        }
        self.events.push(socket(now, 20, connection, SocketOp::Read, 100));
        let mut left = work_ns;
        while left > 0 {
            let until = (now / PERIOD_NS * PERIOD_NS + self.quota_ns).min(now + left);
            left -= until - now;
            now = until;
            if left > 0 {
                self.events.push(switch(now, 1, 20, State::Runnable, 0));
                now = self.allowed(now);
                self.events.push(switch(now, 1, 0, State::Runnable, 20));
            }
        }
        self.events
            .push(socket(now, 20, connection, SocketOp::Wrote, 200));
        if self.closes {
            self.events
                .push(socket(now + 1, 0, connection, SocketOp::Closed, 0));
        }
        self.free_ns = now;
        now
    }

    /// From when on it may run.
    fn allowed(&self, now: i64) -> i64 {
        match now % PERIOD_NS < self.quota_ns {
            true => now,
            false => (now / PERIOD_NS + 1) * PERIOD_NS,
        }
    }

    fn compile(mut self, connections: u64) -> (Arc<Program>, plimsoll_sim::Machine) {
        self.events
            .push(switch(self.free_ns + 1, 1, 20, State::Sleeping, 0));
        self.events.sort_by_key(|e| e.ts_ns);
        let mut header = with_connections(self.free_ns + MS, &[(20, "web", 1)], connections);
        let made = header.sockets.connections.iter_mut();
        made.for_each(|own| own.before &= !self.closes);
        compile(&header, &self.events)
    }
}

fn random(rng: &mut Pcg64, mean: f64) -> i64 {
    (-mean * (1.0 - rng.random::<f64>()).ln()) as i64 + US
}

/// Requests that come at random, on any free connection or each on one of its own; their latencies, ascending,
/// and the trace.
fn poisson(seed: u64, quota_ns: i64, keeps: bool) -> (Vec<u64>, Arc<Program>, plimsoll_sim::Machine) {
    let mut rng = Pcg64::seed_from_u64(seed);
    let mut server = Server::new(quota_ns);
    let (mut at, mut free) = (MS, Vec::new());
    let mut latencies = Vec::new();
    server.closes = !keeps;
    for _ in 0..1500 {
        at += random(&mut rng, 10e6);
        let work_ns = random(&mut rng, 4e6).min(40 * MS);
        let connection = free.iter().position(|&ns| keeps && ns < at).unwrap_or(free.len());
        free.resize(free.len().max(connection + 1), 0);
        free[connection] = server.serve(connection as u64, at, work_ns);
        latencies.push((free[connection] - at) as u64);
    }
    latencies.sort_unstable();
    let (program, machine) = server.compile(free.len() as u64);
    (latencies, program, machine)
}

fn ms(latencies: &[u64], percent: f64) -> f64 {
    percentile_ns(latencies, percent) as f64 / MS as f64
}

#[test]
fn requests_that_come_at_random_are_found_as_the_client_saw_them_and_keep_their_times() {
    for seed in 0..4 {
        let (latencies, program, machine) = poisson(seed, PERIOD_NS, true);
        assert_eq!(recorded(&program).latencies(None), latencies, "seed {seed}");
        let class = &program.classes[0];
        assert_eq!(
            (class.name.as_str(), class.open, class.closed),
            ("web", 1500, 0),
            "seed {seed}"
        );
        assert!(!program.is_closed_loop());
        let replayed = run(&program, &machine, &[]);
        for percent in [50.0, 99.0] {
            let (a, b) = (ms(&latencies, percent), p(&replayed, percent));
            assert!(
                (a - b).abs() < 0.02 * a,
                "seed {seed}: p{percent} {a}, replayed {b}"
            );
        }
        // Too little for 0.4 CPUs of work: the queue grows, as no client waits.
        let tight = run(&program, &machine, &["group.web.quota_us=30000"]);
        assert_eq!(tight.requests.len(), 1500);
        assert!(p(&tight, 99.0) > 1000.0, "seed {seed}: {} ms", p(&tight, 99.0));
    }
}

/// Each request on a connection of its own, or on any that is free: those are used again after pauses that are alike.
#[test]
fn a_recording_made_while_throttled_replays_without_the_limit_as_the_service_would_run() {
    for (seed, keeps) in (0..8).map(|i| (i / 2, i % 2 == 1)) {
        let (free, ..) = poisson(seed, PERIOD_NS, keeps);
        let (throttled, program, machine) = poisson(seed, 44 * MS, keeps);
        assert!(ms(&throttled, 50.0) > 5.0 * ms(&free, 50.0), "requests piled up");
        assert_eq!(recorded(&program).latencies(None), throttled, "seed {seed}");
        assert_eq!(
            program.classes[0].open, 1500,
            "seed {seed}, connections are kept: {keeps}"
        );
        let replayed = run(&program, &machine, &[]);
        for percent in [50.0, 90.0, 99.0] {
            let (a, b) = (ms(&free, percent), p(&replayed, percent));
            assert!(
                (a - b).abs() < 0.03 * a,
                "seed {seed}: p{percent} {a} without a limit, replayed {b}"
            );
        }
    }
}

/// A dispatcher hands each request to a worker, and goes on for a while. Requests happen to come 4 ms after it last blocked, as
/// those of a client that waits would; but each comes on a connection of its own, so that it follows no answer.
#[test]
fn a_dispatcher_is_woken_as_open_requests_come_though_another_thread_reads_them() {
    const COUNT: u64 = 400;
    let mut events = vec![
        switch(1, 1, 20, State::Sleeping, 0),
        switch(2, 0, 21, State::Sleeping, 0),
    ];
    let mut at = MS;
    for connection in 0..COUNT {
        // Some requests with a lot of work, some with less, some with little.
        let work_ns = [16, 6, 1][connection as usize / 40 % 3] * MS;
        let woken = at + 100 * US;
        events.extend([
            socket(at, 0, connection, SocketOp::Arrived, 10),
            waking(at + 1, 1, 20, 0, Context::Interrupt),
            switch(at + 2, 1, 0, State::Runnable, 20),
            waking(woken, 1, 21, 20, Context::Task),
            switch(woken + 1, 0, 0, State::Runnable, 21),
            socket(woken + 2, 21, connection, SocketOp::Read, 10),
            socket(woken + 500 * US, 21, connection, SocketOp::Wrote, 5),
            switch(woken + 501 * US, 0, 21, State::Sleeping, 0),
            switch(at + work_ns, 1, 20, State::Sleeping, 0),
        ]);
        at += work_ns + 4 * MS;
    }
    events.sort_by_key(|e| e.ts_ns);
    let mut header = with_connections(at, &[(20, "web", 1), (21, "web", 1)], COUNT);
    header.threads.iter_mut().for_each(|t| t.tgid = Some(20));
    let (program, machine) = compile(&header, &events);
    assert_eq!(program.classes[0].open, COUNT);
    // Under this limit those with a lot of work pile up, and the queue is gone before the next of them come. (It would grow if the
    // dispatcher were woken 4 ms after it blocked: 440 ms.)
    let limited = run(&program, &machine, &["group.web.quota_us=70000"]);
    assert!(p(&limited, 100.0) < 200.0, "{} ms", p(&limited, 100.0));
}

/// On a connection of its own, or on a new one for each request.
#[test]
fn clients_that_wait_are_a_closed_loop_on_each_of_their_connections() {
    for (quota_ns, anew) in [PERIOD_NS, 44 * MS]
        .into_iter()
        .flat_map(|quota_ns| [(quota_ns, false), (quota_ns, true)])
    {
        let (latencies, program, machine) = eight_that_wait(quota_ns, anew);
        assert_eq!(recorded(&program).latencies(None), latencies);
        // The first of each follows no answer.
        let class = &program.classes[0];
        assert_eq!((class.open, class.closed), (8, 792), "new connections: {anew}");
        assert!(program.is_closed_loop());
        let half = run(&program, &machine, &["group.web.quota_us=50000"]);
        let done = half.requests.iter().filter(|r| r.done).count();
        let of_recorded = 800.0 * (0.5 * PERIOD_NS as f64 / quota_ns as f64).min(1.0);
        assert!(
            (0.85..1.15).contains(&(done as f64 / of_recorded)),
            "{done} of {of_recorded}: a client that waits sends no more"
        );
    }
}

/// Latencies, ascending, and the trace of eight clients that send 50 us after each answer.
fn eight_that_wait(quota_ns: i64, anew: bool) -> (Vec<u64>, Arc<Program>, plimsoll_sim::Machine) {
    let mut rng = Pcg64::seed_from_u64(5);
    let mut server = Server::new(quota_ns);
    server.closes = anew;
    let mut next: Vec<i64> = (0..8).map(|i| MS + i * 300 * US).collect();
    let mut latencies = Vec::new();
    for request in 0..800 {
        let client = (0..8).min_by_key(|&i| next[i]).unwrap();
        let connection = if anew { request } else { client as u64 };
        let at = next[client];
        let answered = server.serve(connection, at, random(&mut rng, 1e6).min(10 * MS));
        latencies.push((answered - at) as u64);
        next[client] = answered + 50 * US + random(&mut rng, 20e3);
    }
    latencies.sort_unstable();
    let (program, machine) = server.compile(800);
    (latencies, program, machine)
}

/// Another thread answers; a question in two parts; one without an answer.
#[test]
fn a_request_is_what_its_connection_says_whichever_threads_do_the_work() {
    use SocketOp::{Arrived, Closed, Read, Wrote};
    let header = with_connections(100 * MS, &[(20, "web", 1), (21, "web-worker", 1)], 4);
    let mut events = vec![
        switch(1, 1, 20, State::Sleeping, 0),
        switch(2, 0, 21, State::Sleeping, 0),
        // 20 takes it, 21 answers.
        socket(10 * MS, 0, 0, Arrived, 50),
        waking(10 * MS + 1, 1, 20, 0, Context::Interrupt),
        switch(10 * MS + 2, 1, 0, State::Runnable, 20),
        socket(11 * MS, 20, 0, Read, 50),
        waking(12 * MS, 1, 21, 20, Context::Task),
        switch(12 * MS + 1, 0, 0, State::Runnable, 21),
        // In two parts, on another connection.
        socket(13 * MS, 0, 1, Arrived, 10),
        socket(14 * MS, 20, 1, Read, 10),
        socket(15 * MS, 0, 1, Arrived, 90),
        socket(16 * MS, 20, 1, Read, 90),
        socket(17 * MS, 20, 1, Wrote, 5),
        socket(18 * MS, 21, 0, Wrote, 5),
        switch(18 * MS + 1, 0, 21, State::Sleeping, 0),
        // Two at once: the answer to the first leaves the second to be read.
        socket(20 * MS, 0, 2, Arrived, 10),
        socket(21 * MS, 20, 2, Read, 10),
        socket(22 * MS, 0, 2, Arrived, 10),
        socket(23 * MS, 20, 2, Wrote, 5),
        socket(24 * MS, 20, 2, Read, 10),
        socket(28 * MS, 20, 2, Wrote, 5),
        // No thread answers before it is closed, and what comes then asks for nothing.
        socket(30 * MS, 0, 3, Arrived, 10),
        socket(31 * MS, 20, 3, Read, 10),
        socket(32 * MS, 20, 3, Closed, 0),
        socket(33 * MS, 0, 3, Arrived, 1),
        switch(40 * MS, 1, 20, State::Sleeping, 0),
    ];
    events.sort_by_key(|e| e.ts_ns);
    let (program, _) = compile(&header, &events);
    let found: Vec<(u64, u64)> = recorded(&program)
        .requests
        .iter()
        .map(|r| (r.begin_ns, r.latency_ns))
        .collect();
    let ms = |from: i64, took: i64| ((from * MS) as u64, (took * MS) as u64);
    assert_eq!(found, [ms(10, 8), ms(13, 4), ms(20, 8)]);
    let seen = program.sockets.unwrap();
    assert_eq!(
        (seen.connections, seen.in_parts, seen.overlapping, seen.unanswered),
        (3, 2, 1, 1)
    );
    assert!(program
        .classes
        .iter()
        .all(|c| c.name == "web" || c.name == "web-worker"));
}

/// With `Connection: close` and no Content-Length the client reads until the end.
#[test]
fn an_answer_ends_as_its_thread_goes_on_to_close_the_connection() {
    use SocketOp::{Arrived, Closed, Read, Wrote};
    let header = with_connections(100 * MS, &[(20, "web", 1)], 3);
    let serve = |from: i64, connection, closes: i64, by| {
        let run = [
            socket(from * MS, 0, connection, Arrived, 50),
            waking(from * MS + 1, 1, 20, 0, Context::Interrupt),
            switch(from * MS + 2, 1, 0, State::Runnable, 20),
            socket((from + 1) * MS, 20, connection, Read, 50),
            socket((from + 3) * MS, 20, connection, Wrote, 5),
            switch((from + 6) * MS, 1, 20, State::Sleeping, 0),
        ];
        run.into_iter()
            .chain([socket(closes * MS, by, connection, Closed, 0)])
    };
    let mut events = vec![switch(1, 1, 20, State::Sleeping, 0)];
    events.extend(serve(10, 0, 15, 20));
    // The client closes first; and the thread only when it is woken again.
    events.extend(serve(20, 1, 25, 0));
    events.extend(serve(30, 2, 45, 20));
    events.extend([
        waking(44 * MS, 1, 20, 0, Context::Timer),
        switch(44 * MS + 1, 1, 0, State::Runnable, 20),
        switch(46 * MS, 1, 20, State::Sleeping, 0),
    ]);
    events.sort_by_key(|e| e.ts_ns);
    let (program, _) = compile(&header, &events);
    let took: Vec<u64> = recorded(&program).requests.iter().map(|r| r.latency_ns).collect();
    assert_eq!(took, [5 * MS as u64, 3 * MS as u64, 3 * MS as u64]);
}

/// Nagle's algorithm holds the second part until the client acknowledges the first.
#[test]
fn an_answer_lasts_until_what_was_held_has_left_in_every_replay() {
    use SocketOp::{Arrived, Left, Read, Wrote};
    let header = with_connections(200 * MS, &[(20, "web", 1)], 1);
    let mut events = vec![switch(1, 1, 20, State::Sleeping, 0)];
    for (from, left) in [(10, 54), (80, 0), (100, 144)] {
        events.extend([
            socket(from * MS, 0, 0, Arrived, 50),
            waking(from * MS + 1, 1, 20, 0, Context::Interrupt),
            switch(from * MS + 2, 1, 0, State::Runnable, 20),
            socket(from * MS + 3, 20, 0, Read, 50),
            socket((from + 3) * MS, 20, 0, Wrote, 5),
            socket((from + 4) * MS, 20, 0, Wrote, 500),
            switch((from + 4) * MS + 1, 1, 20, State::Sleeping, 0),
        ]);
        if left > 0 {
            events.push(socket(left * MS, 0, 0, Left, 0));
        }
    }
    let (program, machine) = compile(&header, &events);
    let took = |outcome: plimsoll_replay::Outcome| -> Vec<u64> {
        let took = outcome.requests.iter();
        took.map(|r| (r.latency_ns as f64 / MS as f64).round() as u64)
            .collect()
    };
    assert_eq!(took(recorded(&program)), [44, 4, 44]);
    assert_eq!(took(run(&program, &machine, &[])), [44, 4, 44]);
    assert_eq!(program.held_ns(), [40 * MS as u64; 2]);
}

#[test]
fn workers_of_a_pool_answer_requests_of_one_kind() {
    use SocketOp::{Arrived, Read, Wrote};
    let workers = [(21, "pool-1-thread-1", 1), (22, "pool-1-thread-2", 1)];
    let mut header = with_connections(100 * MS, &workers, 2);
    header.threads.iter_mut().for_each(|t| t.tgid = Some(20));
    let mut events = Vec::new();
    for (tid, connection) in [(21, 0), (22, 1)] {
        let t = (10 + 20 * connection as i64) * MS;
        events.extend([
            switch(1 + connection as i64, 1, tid, State::Sleeping, 0),
            socket(t, 0, connection, Arrived, 50),
            waking(t + 1, 1, tid, 0, Context::Interrupt),
            switch(t + 2, 1, 0, State::Runnable, tid),
            socket(t + MS, tid, connection, Read, 50),
            socket(t + 2 * MS, tid, connection, Wrote, 5),
            switch(t + 3 * MS, 1, tid, State::Sleeping, 0),
        ]);
    }
    events.sort_by_key(|e| e.ts_ns);
    let (program, _) = compile(&header, &events);
    let names: Vec<&str> = program.classes.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["pool-1-thread"]);
}

/// TLS: the handshake, a ticket of the server, a request that is sent right behind it or long after, and a goodbye, which the server
/// returns before it closes.
#[test]
fn a_tls_handshake_belongs_to_the_first_request_and_a_goodbye_to_none() {
    use SocketOp::{Arrived, Closed, Read, Wrote};
    for (pause_ns, latency_ns) in [(MS, 8 * MS), (3000 * MS, 4 * MS)] {
        let mut header = with_connections(20_000 * MS, &[(20, "web", 1)], 4);
        let mut events = vec![switch(1, 1, 20, State::Sleeping, 0)];
        for i in 0..4 {
            let t = (10 + 4000 * i as i64) * MS;
            let asks_ns = t + 3 * MS + pause_ns;
            header.sockets.connections[i as usize].secured_ns = Some(asks_ns - 1000);
            for at_ns in [t, asks_ns] {
                events.push(waking(at_ns + 1, 1, 20, 0, Context::Interrupt));
                events.push(switch(at_ns + 2, 1, 0, State::Runnable, 20));
            }
            events.extend([
                socket(t, 0, i, Arrived, 281),
                socket(t + 3, 20, i, Read, 281),
                socket(t + 2 * MS, 20, i, Wrote, 610),
                // The end of the handshake, and a ticket for it.
                socket(t + 2 * MS + 100 * US, 0, i, Arrived, 64),
                socket(t + 2 * MS + 200 * US, 20, i, Read, 64),
                socket(t + 2 * MS + 300 * US, 20, i, Wrote, 255),
                switch(t + 2 * MS + 400 * US, 1, 20, State::Sleeping, 0),
                socket(asks_ns, 0, i, Arrived, 156),
                socket(asks_ns + 3, 20, i, Read, 156),
                socket(asks_ns + 4 * MS, 20, i, Wrote, 159),
                socket(asks_ns + 4 * MS + 100 * US, 0, i, Arrived, 24),
                socket(asks_ns + 4 * MS + 200 * US, 20, i, Read, 24),
                socket(asks_ns + 4 * MS + 300 * US, 20, i, Wrote, 24),
                socket(asks_ns + 4 * MS + 400 * US, 20, i, Closed, 0),
                switch(asks_ns + 4 * MS + 500 * US, 1, 20, State::Sleeping, 0),
            ]);
        }
        events.sort_by_key(|e| e.ts_ns);
        let (program, _) = compile(&header, &events);
        let latencies: Vec<i64> = recorded(&program)
            .latencies(None)
            .iter()
            .map(|&ns| ns as i64)
            .collect();
        assert_eq!(latencies, [latency_ns; 4]);
        assert_eq!((program.classes[0].open, program.classes[0].closed), (4, 0));
    }
}
