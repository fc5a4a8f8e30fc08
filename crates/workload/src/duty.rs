// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Duty cycles: spinners, threads with a burst of work at every interval, and slow threads, in one group.
//!
//! The same program as the one that measured `bench/results/kernel-bandwidth-truth.csv`: release k of a duty thread is at
//! start + k * interval; a late one starts its next burst at once; nothing is released after the window, but what was
//! released is finished.
use crate::fibtest::slow;
use crate::place::{ns, Place};
use plimsoll_sim::{Behaviour, Config, Context, CounterId, LatencyId, Step, WorkloadId};
use rand::Rng;
use schemars::JsonSchema;
use serde::Deserialize;

/// Spinners, duty threads and slow threads.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Duty {
    /// Duty threads. Default 1.
    #[schemars(range(min = 0, max = 65536))]
    pub threads: u32,
    /// CPU time of one burst of work, in microseconds. Default 10000.
    #[schemars(range(min = 1.0, max = 1e9))]
    pub work_us: f64,
    /// Time between two releases, in microseconds. Default 100000.
    #[schemars(range(min = 1.0, max = 1e9))]
    pub interval_us: f64,
    /// Thread k's releases come k times this much later, in microseconds. Default 0.
    #[schemars(range(min = 0.0, max = 1e9))]
    pub stagger_us: f64,
    /// Threads that compute without end. Default 0.
    #[schemars(range(min = 0, max = 65536))]
    pub spinners: u32,
    /// Threads that compute briefly, then sleep 10 ms. Default 0.
    #[schemars(range(min = 0, max = 65536))]
    pub slow_threads: u32,
    /// CPU time of a slow thread between two sleeps, in microseconds. Default 20.
    #[schemars(range(min = 0.001, max = 1e6))]
    pub slow_work_us: f64,
    /// Thread k runs only on CPU k of `cpus`, else of its group's; counted round. Order: spinners, slow threads, duty
    /// threads. Default false.
    pub pin: bool,
    /// Threads are born at the beginning and sleep for this long before their first release, in milliseconds.
    /// Default 0.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub start_ms: f64,
    /// CPU time that a thread uses between its birth and the sleep of `start_ms`, in microseconds. Default 0.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub birth_work_us: f64,
    /// Threads are born one after the other, by one more that uses this much CPU time for each, in microseconds. 0: all
    /// at once. Default 0.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub create_us: f64,
    /// A duty thread looks at its own CPU clock every so often, in microseconds of CPU time; it does up to that much more
    /// than its work, and the kernel charges its group at every look. 0: it knows. Default 0.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub check_us: f64,
    /// Length of the window in which work is released, in milliseconds. Default: until the scenario ends.
    #[schemars(range(min = 0.001, max = 1e9))]
    pub window_ms: Option<f64>,
}

impl Default for Duty {
    fn default() -> Self {
        Duty {
            threads: 1,
            work_us: 10_000.0,
            interval_us: 100_000.0,
            stagger_us: 0.0,
            spinners: 0,
            slow_threads: 0,
            slow_work_us: 20.0,
            pin: false,
            start_ms: 0.0,
            birth_work_us: 0.0,
            create_us: 0.0,
            check_us: 0.0,
            window_ms: None,
        }
    }
}

/// A sleep of a slow thread may last this much longer: the kernel's timer slack.
const SLACK_NS: u64 = 50_000;
/// CPU time between two looks of a spinner at the clock.
const SPIN_NS: u64 = 200_000;

impl Duty {
    /// Histogram "latency": from scheduled release to completion. Counter "bursts".
    pub fn build(&self, place: &Place, config: &mut Config) -> WorkloadId {
        let workload = config.add_workload(&place.name);
        let latency = config.add_latency(workload, "latency");
        let bursts = config.add_counter(workload, "bursts");
        let start_ns = place.start_ns + (self.start_ms * 1e6) as u64;
        let end_ns = self.window_ms.map_or(u64::MAX, |ms| start_ns + (ms * 1e6) as u64);
        let birth_ns = (self.birth_work_us * 1e3) as u64;
        let create_ns = (self.create_us * 1e3) as u64;
        let threads = self.spinners + self.slow_threads + self.threads;
        if create_ns > 0 {
            let mut left_ns = Some(create_ns * u64::from(threads));
            let create = move |_: &mut Context| left_ns.take().map_or(Step::Exit, |ns| Step::Compute { ns });
            config.add_task(place.task(workload, "create", 0, create));
        }
        for number in 0..threads {
            let slow_number = number.checked_sub(self.spinners);
            let mut task = if number < self.spinners {
                let spin = move |ctx: &mut Context| match end_ns.saturating_sub(ctx.now_ns()) {
                    0 => Step::Exit,
                    left_ns => Step::Compute {
                        ns: left_ns.min(SPIN_NS),
                    },
                };
                place.task(workload, "spin", number, Born::new(birth_ns, start_ns, spin))
            } else if slow_number.is_some_and(|number| number < self.slow_threads) {
                let slow = slow(ns(self.slow_work_us), 10_000_000, SLACK_NS, end_ns);
                place.task(workload, "slow", number, Born::new(birth_ns, start_ns, slow))
            } else {
                let stagger_ns = (self.stagger_us * 1e3) as u64 * u64::from(number);
                let duty = Releases {
                    release_ns: start_ns + stagger_ns,
                    interval_ns: ns(self.interval_us),
                    work_ns: ns(self.work_us),
                    check_ns: (self.check_us * 1e3) as u64,
                    begun_ns: None,
                    looking: false,
                    end_ns,
                    state: State::Sleeping,
                    latency,
                    bursts,
                };
                place.task(workload, "duty", number, Born::new(birth_ns, start_ns, duty))
            };
            task.start_ns += create_ns * u64::from(number + 1);
            if self.pin {
                task = place.pinned(task, number, config);
            }
            config.add_task(task);
        }
        workload
    }
}

/// A thread that starts, sleeps until all have, and then does what it is for.
struct Born<B> {
    birth_ns: u64,
    start_ns: u64,
    stage: u32,
    rest: B,
}

impl<B> Born<B> {
    fn new(birth_ns: u64, start_ns: u64, rest: B) -> Self {
        Born {
            birth_ns,
            start_ns,
            stage: if birth_ns > 0 { 0 } else { 1 },
            rest,
        }
    }
}

impl<B: Behaviour> Behaviour for Born<B> {
    fn next(&mut self, ctx: &mut Context) -> Step {
        self.stage += 1;
        match self.stage {
            1 => Step::Compute { ns: self.birth_ns },
            2 if ctx.now_ns() < self.start_ns => Step::SleepUntil { at_ns: self.start_ns },
            _ => self.rest.next(ctx),
        }
    }
}

enum State {
    Sleeping,
    Working,
    Done,
}

struct Releases {
    release_ns: u64,
    interval_ns: u64,
    work_ns: u64,
    check_ns: u64,
    /// The thread's clock as this burst began.
    begun_ns: Option<u64>,
    looking: bool,
    end_ns: u64,
    state: State,
    latency: LatencyId,
    bursts: CounterId,
}

impl Behaviour for Releases {
    fn next(&mut self, ctx: &mut Context) -> Step {
        let now_ns = ctx.now_ns();
        match self.state {
            State::Sleeping if self.release_ns >= self.end_ns => Step::Exit,
            State::Sleeping => {
                self.state = State::Working;
                if now_ns < self.release_ns {
                    Step::SleepUntil {
                        at_ns: self.release_ns,
                    }
                } else {
                    self.next(ctx)
                }
            }
            State::Working if self.check_ns == 0 => {
                self.state = State::Done;
                Step::Compute { ns: self.work_ns }
            }
            State::Working => {
                // As the program does it: a piece of work, then a look at the thread's own clock.
                self.looking = !self.looking;
                if self.looking {
                    return Step::ReadClock;
                }
                let begun_ns = *self.begun_ns.get_or_insert(ctx.cpu_time_ns());
                if ctx.cpu_time_ns() - begun_ns < self.work_ns {
                    // Between a half and one and a half of it: interrupts and neighbours see to that.
                    let ns = ctx.rng().random_range(self.check_ns / 2..=self.check_ns * 3 / 2);
                    return Step::Compute { ns: ns.max(1) };
                }
                self.begun_ns = None;
                self.state = State::Done;
                self.next(ctx)
            }
            State::Done => {
                ctx.record(self.latency, now_ns - self.release_ns);
                ctx.count(self.bursts, 1);
                if now_ns > self.end_ns {
                    return Step::Exit;
                }
                self.release_ns += self.interval_ns;
                self.state = State::Sleeping;
                self.next(ctx)
            }
        }
    }
}
