// SPDX-License-Identifier: Apache-2.0 OR MIT
//! schbench: message threads hand requests to worker threads; what counts is how long a worker takes to start.
//!
//! With a rate, requests are handed out eight at a time with equal sleeps in between, round robin over the workers, and
//! a second's remainder is slept off before the next second, as schbench does. Without a rate, each worker asks its
//! message thread for the next request as soon as it is done with one.
//!
//! Until April 2023 it was another program (`version = "2021"`). With a rate, two thirds of the workers were handed a
//! request at once, and the message thread slept for a second divided by the number of such rounds, whatever they had
//! taken. A request was a spin until its time had passed on the wall clock, in which a throttled thread's wait counts;
//! and its latency was completion less start less that time.
use crate::place::{ns, Place};
use plimsoll_sim::{Behaviour, ChannelId, Config, Context, CounterId, LatencyId, Step, WorkloadId};
use rand_distr::{Distribution, Exp1};
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::Arc;

/// schbench: message threads hand requests to worker threads.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Schbench {
    /// Message threads (-m). Default 1.
    #[schemars(range(min = 1, max = 4096))]
    pub message_threads: u32,
    /// Worker threads of each message thread (-t). Default 16.
    #[schemars(range(min = 1, max = 65536))]
    pub worker_threads: u32,
    /// CPU time of one request, in microseconds (-c). Default 10000.
    #[schemars(range(min = 0.001, max = 1e8))]
    pub cputime_us: f64,
    /// Requests per second of each message thread (-R); 0: as fast as workers ask. Default 0.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub requests_per_s: u32,
    /// Requests handed out between two sleeps of the message thread. schbench: 8.
    #[schemars(range(min = 1, max = 65536))]
    pub batch: u32,
    /// Sleeps of the message thread are exponential instead of equal: requests as independent as users are. Default
    /// false.
    pub random_sleeps: bool,
    /// CPU time that the message thread needs to hand out one request, in microseconds. Default 2.
    #[schemars(range(min = 0.001, max = 1e6))]
    pub dispatch_us: f64,
    /// What the kernel adds to each sleep of the message thread (timer slack), in microseconds. Linux: 50. Default 0.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub timer_slack_us: f64,
    /// Which schbench: "2023", or "2021" as it was before: two thirds of the workers get a request at once (`batch` does
    /// not count), requests spin on the wall clock, and latency is what completion takes beyond that. Default "2023".
    pub version: Version,
}

/// schbench changed what -R and -c mean in April 2023.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
pub enum Version {
    #[serde(rename = "2021")]
    Of2021,
    #[default]
    #[serde(rename = "2023")]
    Of2023,
}

impl Default for Schbench {
    fn default() -> Self {
        Schbench {
            message_threads: 1,
            worker_threads: 16,
            cputime_us: 10_000.0,
            requests_per_s: 0,
            batch: 8,
            random_sleeps: false,
            dispatch_us: 2.0,
            timer_slack_us: 0.0,
            version: Version::Of2023,
        }
    }
}

impl Schbench {
    /// Histogram "wakeup_latency": from handing a request out to the worker's start, in 2021 to its completion less
    /// `cputime_us`. Counter "requests".
    pub fn build(&self, place: &Place, config: &mut Config) -> WorkloadId {
        let workload = config.add_workload(&place.name);
        let latency = config.add_latency(workload, "wakeup_latency");
        let requests = config.add_counter(workload, "requests");
        let (cputime_ns, dispatch_ns) = (ns(self.cputime_us), ns(self.dispatch_us));
        let old = self.version == Version::Of2021;
        let batch = if old {
            (self.worker_threads * 2 / 3).max(1)
        } else {
            self.batch
        };
        let slept_ns = if old {
            1e9 / (f64::from(self.requests_per_s) / f64::from(batch)).ceil()
        } else {
            1e9 / f64::from(self.requests_per_s) * f64::from(batch)
        };
        for message_thread in 0..self.message_threads {
            let first = message_thread * self.worker_threads;
            let inbox = config.add_futex(self.worker_threads);
            let mut workers = Vec::new();
            for number in first..first + self.worker_threads {
                let channel = config.add_futex(PENDING_MAX + 1);
                let pending = Arc::new(AtomicU32::new(0));
                let asks = (self.requests_per_s == 0).then_some((inbox, u64::from(number - first)));
                let worker = Worker {
                    channel,
                    pending: pending.clone(),
                    asks,
                    state: Doing::Asking,
                    cputime_ns,
                    on_the_clock: old && asks.is_none(),
                    latency,
                    requests,
                };
                let task = place.task(workload, "worker", number, worker);
                config.add_task(task);
                workers.push((channel, pending));
            }
            let task = if self.requests_per_s == 0 {
                let replies = Replies {
                    inbox,
                    workers,
                    dispatch_ns,
                    ask: None,
                    dispatched: false,
                };
                place.task(workload, "message", message_thread, replies)
            } else {
                let schedule = Schedule {
                    workers,
                    dispatch_ns,
                    per_second: u64::from(self.requests_per_s),
                    sleep_ns: slept_ns,
                    slack_ns: ns(self.timer_slack_us),
                    batch: u64::from(batch),
                    random: self.random_sleeps,
                    by_seconds: !self.random_sleeps && !old,
                    second_ns: None,
                    handed: 0,
                    turn: 0,
                    dispatched: false,
                    slept: !old,
                };
                place.task(workload, "message", message_thread, schedule)
            };
            config.add_task(task);
        }
        workload
    }
}

/// A worker with more requests waiting gets no further ones. schbench: 8.
const PENDING_MAX: u32 = 8;

/// How often a spin looks at the clock: one whose time passed while it was throttled ends this much too late at most.
const SPIN_LOOK_NS: u64 = 100_000;

type WorkerInbox = (ChannelId, Arc<AtomicU32>);

enum Doing {
    Asking,
    Waiting,
    Computing,
    Spinning { handed_out_ns: u64, until_ns: u64 },
}

struct Worker {
    channel: ChannelId,
    pending: Arc<AtomicU32>,
    /// Where it asks for the next request, and as which client; None: requests come by themselves.
    asks: Option<(ChannelId, u64)>,
    state: Doing,
    cputime_ns: u64,
    on_the_clock: bool,
    latency: LatencyId,
    requests: CounterId,
}

impl Behaviour for Worker {
    fn next(&mut self, ctx: &mut Context) -> Step {
        match self.state {
            Doing::Asking => {
                self.state = Doing::Waiting;
                match self.asks {
                    Some((channel, value)) => Step::Send { channel, value },
                    None => self.next(ctx),
                }
            }
            Doing::Waiting => {
                self.state = Doing::Computing;
                Step::Receive {
                    channel: self.channel,
                }
            }
            Doing::Computing => {
                if let Some(handed_out_ns) = ctx.received() {
                    if self.on_the_clock {
                        let until_ns = ctx.now_ns() + self.cputime_ns;
                        self.state = Doing::Spinning {
                            handed_out_ns,
                            until_ns,
                        };
                        return self.next(ctx);
                    }
                    ctx.record(self.latency, ctx.now_ns() - handed_out_ns);
                    return Step::Compute { ns: self.cputime_ns };
                }
                self.pending.fetch_sub(1, Relaxed);
                ctx.count(self.requests, 1);
                self.state = Doing::Asking;
                self.next(ctx)
            }
            Doing::Spinning {
                handed_out_ns,
                until_ns,
            } => {
                if ctx.now_ns() < until_ns {
                    return Step::Compute {
                        ns: (until_ns - ctx.now_ns()).min(SPIN_LOOK_NS),
                    };
                }
                ctx.record(self.latency, ctx.now_ns() - handed_out_ns - self.cputime_ns);
                self.state = Doing::Computing; // nothing received: the request is done
                self.next(ctx)
            }
        }
    }
}

/// The message thread without a rate: answers every request.
struct Replies {
    inbox: ChannelId,
    workers: Vec<WorkerInbox>,
    dispatch_ns: u64,
    ask: Option<u64>,
    dispatched: bool,
}

impl Behaviour for Replies {
    fn next(&mut self, ctx: &mut Context) -> Step {
        if let Some(worker) = ctx.received() {
            self.ask = Some(worker);
            self.dispatched = true;
            return Step::Compute { ns: self.dispatch_ns };
        }
        match self
            .ask
            .take()
            .and_then(|worker| self.workers.get(worker as usize))
        {
            Some((channel, pending)) if self.dispatched => {
                pending.fetch_add(1, Relaxed);
                self.dispatched = false;
                Step::Send {
                    channel: *channel,
                    value: ctx.now_ns(),
                }
            }
            _ => Step::Receive { channel: self.inbox },
        }
    }
}

/// The message thread with a rate.
struct Schedule {
    workers: Vec<WorkerInbox>,
    dispatch_ns: u64,
    per_second: u64,
    sleep_ns: f64,
    slack_ns: u64,
    batch: u64,
    random: bool,
    /// What is left of a second is slept off.
    by_seconds: bool,
    /// When the present second began.
    second_ns: Option<u64>,
    /// Requests handed out in it.
    handed: u64,
    turn: usize,
    dispatched: bool,
    slept: bool,
}

impl Behaviour for Schedule {
    fn next(&mut self, ctx: &mut Context) -> Step {
        let second_ns = *self.second_ns.get_or_insert(ctx.now_ns());
        if self.dispatched {
            self.dispatched = false;
            self.slept = false;
            self.handed += 1;
            let turn = self.turn;
            self.turn = (turn + 1) % self.workers.len();
            let (channel, pending) = &self.workers[turn];
            if pending.load(Relaxed) <= PENDING_MAX {
                pending.fetch_add(1, Relaxed);
                return Step::Send {
                    channel: *channel,
                    value: ctx.now_ns(),
                };
            }
        }
        if self.by_seconds && self.handed >= self.per_second {
            // What is left of the second is slept off, and the next one begins.
            self.handed = 0;
            self.slept = true;
            self.second_ns = Some(ctx.now_ns().max(second_ns + 1_000_000_000));
            return Step::SleepUntil {
                at_ns: second_ns + 1_000_000_000 + self.slack_ns,
            };
        }
        if !self.slept && self.handed % self.batch == 0 {
            self.slept = true;
            let factor: f64 = if self.random { Exp1.sample(ctx.rng()) } else { 1.0 };
            return Step::SleepUntil {
                at_ns: ctx.now_ns() + (self.sleep_ns * factor) as u64 + self.slack_ns,
            };
        }
        self.dispatched = true;
        Step::Compute { ns: self.dispatch_ns }
    }
}
