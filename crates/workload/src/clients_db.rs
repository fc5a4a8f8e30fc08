// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A database under a load generator: client threads, and server threads that read, wait for storage and hold locks.
//!
//! As sysbench with MySQL or PostgreSQL: each client has a server thread of its own. A transaction is a number of
//! queries; a query is a message to the server, its run time there, and the answer. A share of queries waits for
//! storage, and a share of transactions ends inside a critical section that all server threads share.
use crate::arrivals::Spread;
use crate::lock::Mutex;
use crate::place::Place;
use plimsoll_sim::{Behaviour, ChannelId, Config, Context, CounterId, LatencyId, Step, WorkloadId};
use rand::Rng;
use rand_distr::{Distribution, Exp1};
use schemars::JsonSchema;
use serde::Deserialize;

/// Clients and a database with one server thread for each.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientsDb {
    /// Clients, each with its server thread. Default 16.
    #[schemars(range(min = 1, max = 100_000))]
    pub clients: u32,
    /// Queries of a transaction. Default 20.
    #[schemars(range(min = 1, max = 10_000))]
    pub queries: u32,
    /// CPU time of the client between two queries, in microseconds. Default 20.
    #[schemars(range(min = 0.001, max = 1e6))]
    pub client_us: f64,
    /// CPU time of the server for a query, in microseconds. Default 80.
    #[schemars(range(min = 0.001, max = 1e6))]
    pub server_us: f64,
    /// How `client_us` and `server_us` spread. Default "exponential".
    pub spread: Spread,
    /// Share of queries that wait for storage, in percent. Default 0.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub storage_percent: f64,
    /// Such a wait, in microseconds; exponential. Default 100.
    #[schemars(range(min = 1.0, max = 1e7))]
    pub storage_us: f64,
    /// Time in the critical section at the end of a transaction, in microseconds; 0: there is none. Default 0.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub locked_us: f64,
    /// Think time of a client between two transactions, in microseconds; exponential. Default 0.
    #[schemars(range(min = 0.0, max = 1e9))]
    pub think_us: f64,
    /// Clients run on other machines: they cost no CPU time here but an interrupt for each query. Default false.
    pub remote_clients: bool,
    /// Clients begin at random times within this, in microseconds: they are started one after the other. Default 0.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub begin_us: f64,
}

impl Default for ClientsDb {
    fn default() -> Self {
        ClientsDb {
            clients: 16,
            queries: 20,
            client_us: 20.0,
            server_us: 80.0,
            spread: Spread::Exponential,
            storage_percent: 0.0,
            storage_us: 100.0,
            locked_us: 0.0,
            think_us: 0.0,
            remote_clients: false,
            begin_us: 0.0,
        }
    }
}

impl ClientsDb {
    /// Histogram "transaction": from the first query to the last answer. Counter "transactions".
    pub fn build(&self, place: &Place, config: &mut Config) -> WorkloadId {
        let workload = config.add_workload(&place.name);
        let latency = config.add_latency(workload, "transaction");
        let transactions = config.add_counter(workload, "transactions");
        let lock = (self.locked_us > 0.0).then(|| Mutex::new(self.clients, 0, config));
        for number in 0..self.clients {
            let (query, answer) = (config.add_channel(1), config.add_channel(1));
            let server = Server {
                db: self.clone(),
                query,
                answer,
                lock: lock.clone(),
                stage: ServerStage::Wait,
                last: false,
            };
            let task = place.task(workload, "server", number, server);
            config.add_task(task);
            let client = Client {
                db: self.clone(),
                query,
                answer,
                number: 0,
                begun_ns: 0,
                stage: ClientStage::Start,
                latency,
                transactions,
            };
            let mut task = place.task(workload, "client", number, client);
            task.external = self.remote_clients;
            config.add_task(task);
        }
        workload
    }
}

enum ClientStage {
    Start,
    Begin,
    Compute,
    Send,
    Receive,
    Answered,
}

struct Client {
    db: ClientsDb,
    query: ChannelId,
    answer: ChannelId,
    /// Queries of this transaction that were sent.
    number: u32,
    begun_ns: u64,
    stage: ClientStage,
    latency: LatencyId,
    transactions: CounterId,
}

impl Behaviour for Client {
    fn next(&mut self, ctx: &mut Context) -> Step {
        match self.stage {
            ClientStage::Start => {
                self.stage = ClientStage::Begin;
                let within_ns = (self.db.begin_us * 1e3) as u64;
                if within_ns == 0 {
                    return self.next(ctx);
                }
                Step::SleepUntil {
                    at_ns: ctx.now_ns() + ctx.rng().random_range(0..=within_ns),
                }
            }
            ClientStage::Begin => {
                self.begun_ns = ctx.now_ns();
                self.stage = ClientStage::Compute;
                self.next(ctx)
            }
            ClientStage::Compute => {
                self.stage = ClientStage::Send;
                Step::Compute {
                    ns: self.db.spread.sample(self.db.client_us * 1e3, ctx.rng()),
                }
            }
            ClientStage::Send => {
                self.stage = ClientStage::Receive;
                self.number += 1;
                Step::Send {
                    channel: self.query,
                    value: u64::from(self.number == self.db.queries),
                }
            }
            ClientStage::Receive => {
                self.stage = ClientStage::Answered;
                Step::Receive { channel: self.answer }
            }
            ClientStage::Answered if self.number < self.db.queries => {
                self.stage = ClientStage::Compute;
                self.next(ctx)
            }
            ClientStage::Answered => {
                self.number = 0;
                ctx.record(self.latency, ctx.now_ns() - self.begun_ns);
                ctx.count(self.transactions, 1);
                self.stage = ClientStage::Begin;
                if self.db.think_us > 0.0 {
                    return Step::SleepUntil {
                        at_ns: ctx.now_ns() + exponential(self.db.think_us, ctx),
                    };
                }
                self.next(ctx)
            }
        }
    }
}

enum ServerStage {
    Wait,
    Compute,
    Storage,
    Lock,
    Unlock,
    Answer,
}

struct Server {
    db: ClientsDb,
    query: ChannelId,
    answer: ChannelId,
    lock: Option<Mutex>,
    stage: ServerStage,
    last: bool,
}

impl Behaviour for Server {
    fn next(&mut self, ctx: &mut Context) -> Step {
        match self.stage {
            ServerStage::Wait => {
                self.stage = ServerStage::Compute;
                Step::Receive { channel: self.query }
            }
            ServerStage::Compute => {
                self.last = ctx.received() == Some(1);
                self.stage = ServerStage::Storage;
                Step::Compute {
                    ns: self.db.spread.sample(self.db.server_us * 1e3, ctx.rng()),
                }
            }
            ServerStage::Storage => {
                self.stage = if self.last && self.lock.is_some() {
                    ServerStage::Lock
                } else {
                    ServerStage::Answer
                };
                if self.db.storage_percent > 0.0 && ctx.rng().random_bool(self.db.storage_percent / 100.0) {
                    return Step::SleepUntil {
                        at_ns: ctx.now_ns() + exponential(self.db.storage_us, ctx),
                    };
                }
                self.next(ctx)
            }
            ServerStage::Lock => {
                if let Some(step) = self.lock.as_mut().and_then(Mutex::take) {
                    return step;
                }
                self.stage = ServerStage::Unlock;
                Step::Compute {
                    ns: self.db.spread.sample(self.db.locked_us * 1e3, ctx.rng()),
                }
            }
            ServerStage::Unlock => {
                self.stage = ServerStage::Answer;
                match self.lock.as_mut().and_then(Mutex::release) {
                    Some(step) => step,
                    None => self.next(ctx),
                }
            }
            ServerStage::Answer => {
                self.stage = ServerStage::Wait;
                Step::Send {
                    channel: self.answer,
                    value: 0,
                }
            }
        }
    }
}

/// An exponential time around mean_us, in nanoseconds.
fn exponential(mean_us: f64, ctx: &mut Context) -> u64 {
    let x: f64 = Exp1.sample(ctx.rng());
    (mean_us * 1e3 * x) as u64
}
