// SPDX-License-Identifier: Apache-2.0 OR MIT
//! No replay hangs: random recordings, in which threads wake, fork and preempt each other, sleep, wait for storage and exit as
//! they like, read and write on connections, are replayed to their end under other settings, and all of their work is done.
//! So are recordings from which events are missing.
//!
//! `SEED=0 COUNT=30000 cargo test -p plimsoll-replay --test all all_work::` tries as many.
use plimsoll_replay::{machine, replay, Program, Settings};
use plimsoll_trace::example::{connection, header, switch, waking};
use plimsoll_trace::{
    Connection, Context, Event, Header, Side, SocketOp, Sockets, State, Thread, Timeline, What,
};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use std::sync::Arc;

const CPUS: usize = 2;
const US: i64 = 1000;
/// Two from outside, one to the outside, and the two ends of one within.
const CONNECTIONS: u64 = 5;

#[derive(Clone, Copy, PartialEq)]
enum Now {
    Blocked,
    Ready,
    Runs,
    Gone,
}

struct Recording {
    rng: Pcg64,
    now_ns: i64,
    /// Thread 10 + index.
    threads: Vec<Now>,
    /// The thread that runs, by index.
    cpus: [Option<usize>; CPUS],
    events: Vec<Event>,
    forked: Vec<Thread>,
    /// One process that has a lot of requests and seldom sleeps.
    busy: bool,
}

fn tid(ix: usize) -> u32 {
    10 + ix as u32
}

fn name(ix: usize, processes: usize) -> String {
    format!("p{}", ix % processes)
}

impl Recording {
    fn some(&mut self, state: Now) -> Option<usize> {
        let all: Vec<usize> = (0..self.threads.len())
            .filter(|&i| self.threads[i] == state)
            .collect();
        (!all.is_empty()).then(|| all[self.rng.random_range(0..all.len())])
    }

    /// Takes the CPU from its thread, which goes on as `state`, and gives it to a thread that is ready or to none.
    fn switch(&mut self, cpu: usize, state: State) {
        let next = self.some(Now::Ready);
        let before = self.cpus[cpu];
        let of = |ix: Option<usize>| ix.map_or(0, tid);
        if before.is_none() && next.is_none() {
            return;
        }
        self.events
            .push(switch(self.now_ns, cpu as u32, of(before), state, of(next)));
        if let Some(before) = before {
            self.threads[before] = match state {
                State::Runnable => Now::Ready,
                State::Dead => Now::Gone,
                _ => Now::Blocked,
            };
        }
        if let Some(next) = next {
            self.threads[next] = Now::Runs;
        }
        self.cpus[cpu] = next;
    }

    fn step(&mut self, processes: usize, threads_max: usize) {
        self.now_ns += match self.rng.random_range(0..10) {
            0 => self.rng.random_range(US..5000 * US),
            _ => self.rng.random_range(1..300 * US),
        };
        let cpu = self.rng.random_range(0..CPUS);
        let what = match self.busy && self.rng.random_bool(0.7) {
            true => 99,
            false => self.rng.random_range(0..100),
        };
        let Some(runs) = self.cpus[cpu] else {
            if what < 40 {
                self.wake(cpu, 0, what % 2 == 0);
            }
            return self.switch(cpu, State::Runnable);
        };
        match what {
            0..30 => self.wake(cpu, tid(runs), false),
            30..40 => self.wake(cpu, 0, what % 2 == 0),
            40..65 => self.switch(cpu, State::Sleeping),
            65..72 => self.switch(cpu, State::Uninterruptible),
            72..80 => self.switch(cpu, State::Runnable),
            80..83 if self.threads.len() < threads_max => {
                let ix = self.threads.len();
                let what = What::Fork {
                    parent: tid(runs),
                    child: tid(ix),
                };
                self.event(cpu, what);
                self.threads.push(Now::Ready);
                self.forked.push(Thread {
                    tid: tid(ix),
                    tgid: Some(tid(ix % processes)),
                    comm: name(ix, processes),
                    group: Some(1),
                    from_ns: self.now_ns,
                });
            }
            83 => {
                self.event(cpu, What::Exit { tid: tid(runs) });
                self.now_ns += 1;
                self.switch(cpu, State::Dead);
            }
            _ => {
                let data = [SocketOp::Arrived, SocketOp::Read, SocketOp::Wrote];
                let op = data[self.rng.random_range(0..data.len())];
                let outside = op == SocketOp::Arrived && (self.busy || self.rng.random());
                let what = What::Socket {
                    tid: if outside { 0 } else { tid(runs) },
                    connection: self.rng.random_range(1..=CONNECTIONS),
                    op,
                    bytes: self.rng.random_range(1..3) * 10,
                };
                self.event(cpu, what);
            }
        }
    }

    fn event(&mut self, cpu: usize, what: What) {
        let (ts_ns, cpu) = (self.now_ns, cpu as u32);
        self.events.push(Event { ts_ns, cpu, what });
    }

    fn wake(&mut self, cpu: usize, waker: u32, timer: bool) {
        let Some(woken) = self.some(Now::Blocked) else {
            return;
        };
        let context = match (waker, timer) {
            (0, true) => Context::Timer,
            (0, false) => Context::Interrupt,
            _ => Context::Task,
        };
        self.events
            .push(waking(self.now_ns, cpu as u32, tid(woken), waker, context));
        self.threads[woken] = Now::Ready;
    }
}

fn recording(seed: u64) -> (Header, Vec<Event>) {
    let mut rng = Pcg64::seed_from_u64(seed);
    let count = rng.random_range(1..9);
    let busy = seed % 4 == 1;
    let processes = if busy { 1 } else { rng.random_range(1..=count) };
    let steps = rng.random_range(20..600);
    let mut recording = Recording {
        rng,
        now_ns: 10,
        threads: vec![Now::Ready; count],
        cpus: [None; CPUS],
        events: Vec::new(),
        forked: Vec::new(),
        busy,
    };
    for _ in 0..steps {
        recording.step(processes, count + 4);
    }
    // What still ran as recording ended would run for as long as nothing more is recorded.
    for cpu in 0..CPUS {
        if let Some(runs) = recording.cpus[cpu] {
            recording.now_ns += 1;
            let last = switch(recording.now_ns, cpu as u32, tid(runs), State::Sleeping, 0);
            recording.events.push(last);
        }
    }
    let names: Vec<String> = (0..count).map(|ix| name(ix, processes)).collect();
    let threads: Vec<(u32, &str, u32)> = (0..count)
        .map(|ix| (tid(ix), names[ix].as_str(), u32::from(busy || ix % 2 == 1)))
        .collect();
    let mut header = header(recording.now_ns + US, &threads);
    for (ix, thread) in header.threads.iter_mut().enumerate() {
        thread.tgid = Some(tid(ix % processes));
    }
    header.threads.extend(recording.forked);
    let end = |id| {
        let (side, peer) = match id {
            1 | 2 => (Side::Accepted, None),
            3 => (Side::Opened, None),
            4 => (Side::Opened, Some(5)),
            _ => (Side::Accepted, Some(4)),
        };
        Connection {
            peer,
            ..connection(id, side)
        }
    };
    header.sockets = Sockets {
        recorded: true,
        connections: (1..=CONNECTIONS).map(end).collect(),
        ..Default::default()
    };
    (header, recording.events)
}

/// Loses one event of a hundred.
fn lose_some(events: &mut Vec<Event>, seed: u64) {
    let mut rng = Pcg64::seed_from_u64(!seed);
    events.retain(|_| rng.random_range(0..100) > 0);
}

#[test]
fn every_replay_of_a_random_recording_ends_with_all_work_done() {
    let number = |name: &str, default| std::env::var(name).map_or(default, |n| n.parse().expect("a number"));
    let from: u64 = number("SEED", 0);
    let (mut left, mut by_sockets, mut closed) = (Vec::new(), 0, 0);
    for seed in from..from + number("COUNT", 300) {
        let (mut header, mut events) = recording(seed);
        let is_whole = seed % 3 > 0;
        if !is_whole {
            lose_some(&mut events, seed);
        }
        // A job is replayed until it is done, whatever its loops; so are open loops. Clients that wait are replayed for as long as was
        // recorded: for long enough here, if all sleep in the end.
        if is_whole {
            let clock = &mut header.clock;
            clock.end_ns += 20 * (clock.end_ns - clock.start_ns);
        }
        let timeline = Timeline::build(&header, &events);
        let machine = machine(&header, &timeline);
        let job = "process:*".parse().expect("a request");
        for request in [Some(&job), None] {
            let Ok(program) = Program::build(&header, &timeline, None, request, 60) else {
                continue;
            };
            let program = Arc::new(program);
            if request.is_none() && program.is_closed_loop() {
                if !is_whole {
                    continue;
                }
                closed += 1;
            }
            by_sockets += u32::from(program.sockets.is_some());
            for set in [
                None,
                Some("group./web.quota_us=20000"),
                Some("machine.cpus=1"),
                Some("policy.semantics=published"),
            ] {
                let mut settings = Settings::recorded(&program);
                set.into_iter()
                    .for_each(|set| settings.set(&program, set).expect("a setting"));
                let outcome = replay(&program, &machine, &settings, None).expect("a replay");
                if (outcome.work_done - 1.0).abs() > 1e-6 {
                    let times = outcome.end_ns / program.duration_ns;
                    eprintln!(
                        "LEFT {seed} sockets {} closed {} set {set:?} done {} end {} dur {} undone {:?}",
                        program.sockets.is_some(),
                        program.is_closed_loop(),
                        outcome.work_done,
                        outcome.end_ns,
                        program.duration_ns,
                        outcome.requests.iter().filter(|r| !r.done).count()
                    );
                    left.push((seed, request.is_some(), set, outcome.work_done, times));
                }
            }
        }
    }
    assert!(left.is_empty(), "{} left work: {left:?}", left.len());
    assert!(by_sockets > 0, "no recording whose requests its sockets show");
    assert!(closed > 0, "no recording of clients that wait");
}
