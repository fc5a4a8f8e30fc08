// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A latency-sensitive server: requests arrive, wait in one queue, and are served by a pool of worker threads.
use crate::arrivals::{Arrivals, Spread};
use crate::place::Place;
use plimsoll_sim::{Behaviour, ChannelId, Config, Context, CounterId, LatencyId, Step, WorkloadId};
use rand_distr::{Distribution, Exp1};
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

/// A server with a pool of worker threads and one queue. Its clients are on other machines: each request interrupts one
/// of the CPUs, which wakes up a worker.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Server {
    /// Worker threads. Default 64.
    #[schemars(range(min = 1, max = 100_000))]
    pub workers: u32,
    /// How requests arrive. Default poisson, 1000 per second.
    pub arrivals: Arrivals,
    /// Clients, each a stream of its own; in a closed loop, the requests that can be under way. Default 1.
    #[schemars(range(min = 1, max = 100_000))]
    pub clients: u32,
    /// Mean CPU time of a request, in microseconds. Default 1000.
    #[schemars(range(min = 0.001, max = 1e8))]
    pub work_us: f64,
    /// How it spreads. Default "exponential".
    pub spread: Spread,
    /// A request is served in this many pieces, with a wait for another service's answer in between. Default 1.
    #[schemars(range(min = 1, max = 1000))]
    pub pieces: u32,
    /// Such a wait, in microseconds; exponential. Default 0.
    #[schemars(range(min = 0.0, max = 1e8))]
    pub wait_us: f64,
    /// Requests that the queue holds; more are refused and counted. Default 100000. The clients of a closed loop have
    /// one each at most, and none is refused.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub queue_requests: u32,
}

impl Default for Server {
    fn default() -> Self {
        Server {
            workers: 64,
            arrivals: Arrivals::Poisson { rate_per_s: 1000.0 },
            clients: 1,
            work_us: 1000.0,
            spread: Spread::Exponential,
            pieces: 1,
            wait_us: 0.0,
            queue_requests: 100_000,
        }
    }
}

impl Server {
    /// Histogram "latency": from arrival to answer, the wait for a worker included. Counters "requests" (answered) and
    /// "refused".
    pub fn build(&self, place: &Place, config: &mut Config) -> WorkloadId {
        let server = Server {
            arrivals: self.arrivals.on(&config.machine, self.work_us),
            ..self.clone()
        };
        let workload = config.add_workload(&place.name);
        let latency = config.add_latency(workload, "latency");
        let requests = config.add_counter(workload, "requests");
        let refused = config.add_counter(workload, "refused");
        let queue = config.add_futex(self.queue_requests.max(self.clients));
        let waiting = Arc::new(AtomicU32::new(0));
        let mut answers = Vec::new();
        let asked: Arc<[AtomicU64]> = (0..self.clients).map(|_| AtomicU64::new(0)).collect();
        for number in 0..self.clients {
            let client = if self.arrivals.is_closed() {
                let answer = config.add_channel(1);
                answers.push(answer);
                Client::Closed {
                    server: server.clone(),
                    queue,
                    answer,
                    number,
                    asked: asked.clone(),
                    stage: 0,
                }
            } else {
                let limit = self.queue_requests;
                Client::Open {
                    server: server.clone(),
                    queue,
                    waiting: waiting.clone(),
                    limit,
                    refused,
                    number,
                    due_ns: None,
                    left: 0,
                }
            };
            let mut task = place.task(workload, "client", number, client);
            task.external = true;
            config.add_task(task);
        }
        for number in 0..self.workers {
            let worker = Worker {
                server: server.clone(),
                queue,
                waiting: waiting.clone(),
                answers: answers.clone(),
                asked: asked.clone(),
                stage: Stage::Take,
                arrived_ns: 0,
                client: None,
                pieces: 0,
                latency,
                requests,
            };
            let task = place.task(workload, "worker", number, worker);
            config.add_task(task);
        }
        workload
    }
}

/// What asks. It is across the network: it costs no CPU time here. A request is the time of its arrival; in a closed
/// loop it is the number of the client, which has `asked` then.
enum Client {
    Open {
        server: Server,
        queue: ChannelId,
        waiting: Arc<AtomicU32>,
        limit: u32,
        refused: CounterId,
        number: u32,
        due_ns: Option<u64>,
        left: u32,
    },
    Closed {
        server: Server,
        queue: ChannelId,
        answer: ChannelId,
        number: u32,
        asked: Arc<[AtomicU64]>,
        stage: u32,
    },
}

impl Behaviour for Client {
    fn next(&mut self, ctx: &mut Context) -> Step {
        let now_ns = ctx.now_ns();
        match self {
            Client::Open {
                server,
                queue,
                waiting,
                limit,
                refused,
                number,
                due_ns,
                left,
            } => {
                while *left > 0 {
                    *left -= 1;
                    if waiting.load(Relaxed) < *limit {
                        waiting.fetch_add(1, Relaxed);
                        return Step::Send {
                            channel: *queue,
                            value: now_ns,
                        };
                    }
                    ctx.count(*refused, 1);
                }
                let (gap_ns, size) = server.arrivals.next(server.clients, ctx.rng());
                let at_ns = match *due_ns {
                    Some(due_ns) => due_ns.saturating_add(gap_ns),
                    // Equal gaps over all clients, not for each of them alone.
                    None if server.arrivals.is_regular() => {
                        let share = u128::from(gap_ns) * u128::from(*number + 1) / u128::from(server.clients);
                        now_ns.saturating_add(share as u64)
                    }
                    None => now_ns.saturating_add(gap_ns),
                };
                *due_ns = Some(at_ns);
                *left = size;
                Step::SleepUntil { at_ns }
            }
            Client::Closed {
                server,
                queue,
                answer,
                number,
                asked,
                stage,
            } => {
                *stage = (*stage + 1) % 3;
                match *stage {
                    1 => {
                        let (think_ns, _) = server.arrivals.next(1, ctx.rng());
                        Step::SleepUntil {
                            at_ns: now_ns + think_ns,
                        }
                    }
                    2 => {
                        asked[*number as usize].store(now_ns, Relaxed);
                        Step::Send {
                            channel: *queue,
                            value: u64::from(*number),
                        }
                    }
                    _ => Step::Receive { channel: *answer },
                }
            }
        }
    }
}

enum Stage {
    Take,
    Taken,
    Compute,
    Wait,
    Answer,
}

struct Worker {
    server: Server,
    queue: ChannelId,
    waiting: Arc<AtomicU32>,
    /// Of closed loops: of each client, where it waits, and since when.
    answers: Vec<ChannelId>,
    asked: Arc<[AtomicU64]>,
    stage: Stage,
    /// The request: when it arrived, and whose it is in a closed loop.
    arrived_ns: u64,
    client: Option<usize>,
    /// Still to do of this request.
    pieces: u32,
    latency: LatencyId,
    requests: CounterId,
}

impl Behaviour for Worker {
    fn next(&mut self, ctx: &mut Context) -> Step {
        match self.stage {
            Stage::Take => {
                self.stage = Stage::Taken;
                Step::Receive { channel: self.queue }
            }
            Stage::Taken => {
                if let Some(value) = ctx.received() {
                    if self.answers.is_empty() {
                        self.arrived_ns = value;
                        self.waiting.fetch_sub(1, Relaxed);
                    } else {
                        let client = value as usize;
                        self.arrived_ns = self.asked[client].load(Relaxed);
                        self.client = Some(client);
                    }
                }
                self.pieces = self.server.pieces;
                self.stage = Stage::Compute;
                self.next(ctx)
            }
            Stage::Compute => {
                self.pieces -= 1;
                self.stage = if self.pieces > 0 {
                    Stage::Wait
                } else {
                    Stage::Answer
                };
                let mean_ns = self.server.work_us * 1e3 / f64::from(self.server.pieces);
                Step::Compute {
                    ns: self.server.spread.sample(mean_ns, ctx.rng()),
                }
            }
            Stage::Wait => {
                self.stage = Stage::Compute;
                let x: f64 = Exp1.sample(ctx.rng());
                Step::SleepUntil {
                    at_ns: ctx.now_ns() + (self.server.wait_us * 1e3 * x) as u64,
                }
            }
            Stage::Answer => {
                ctx.record(self.latency, ctx.now_ns() - self.arrived_ns);
                ctx.count(self.requests, 1);
                self.stage = Stage::Take;
                match self.client {
                    Some(client) => Step::Send {
                        channel: self.answers[client],
                        value: 0,
                    },
                    None => self.next(ctx),
                }
            }
        }
    }
}
