// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A batch job: threads that take pieces of work one after another, as a video encoder does frames.
//!
//! What a piece ends with makes it other programs, too: a critical section (threads that share a file's position), a
//! barrier (loops of OpenMP), a process of its own for each piece (shell scripts), a wait (daemons).
use crate::arrivals::Spread;
use crate::lock::{Barrier, Mutex};
use crate::place::Place;
use plimsoll_sim::{Behaviour, ChannelId, Config, Context, CounterId, Step, WorkloadId};
use rand_distr::{Distribution, Exp1};
use schemars::JsonSchema;
use serde::Deserialize;

/// Threads that work through pieces of a batch without end.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Batch {
    /// Threads. Default: one for each CPU.
    #[schemars(range(min = 1, max = 100_000))]
    pub threads: Option<u32>,
    /// Mean CPU time of a piece, in microseconds. Default 5000.
    #[schemars(range(min = 0.1, max = 1e9))]
    pub work_us: f64,
    /// How it spreads. Default "exponential".
    pub spread: Spread,
    /// Wait for input between two pieces, in microseconds; exponential. Default 0.
    #[schemars(range(min = 0.0, max = 1e9))]
    pub wait_us: f64,
    /// Time in a critical section that all threads share, after each piece, in microseconds; spreads as work does. 0:
    /// there is none. Default 0.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub locked_us: f64,
    /// After each piece the threads wait for each other. Default false.
    pub barrier: bool,
    /// A thread that finds the lock taken, or is early at the barrier, spins this long before it sleeps, in
    /// microseconds. Default 0.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub spin_us: f64,
    /// Each piece is a process of its own, which the thread starts and waits for, as shells do. Default false.
    pub children: bool,
}

impl Default for Batch {
    fn default() -> Self {
        Batch {
            threads: None,
            work_us: 5000.0,
            spread: Spread::Exponential,
            wait_us: 0.0,
            locked_us: 0.0,
            barrier: false,
            spin_us: 0.0,
            children: false,
        }
    }
}

impl Batch {
    /// Counter "pieces".
    pub fn build(&self, place: &Place, config: &mut Config) -> WorkloadId {
        let workload = config.add_workload(&place.name);
        let pieces = config.add_counter(workload, "pieces");
        let threads = self.threads.unwrap_or(config.machine.topology.nr_cpus());
        let spin_ns = (self.spin_us * 1e3) as u64;
        let mutex = (self.locked_us > 0.0).then(|| Mutex::new(threads, spin_ns, config));
        let barrier = self.barrier.then(|| Barrier::new(threads, spin_ns, config));
        for number in 0..threads {
            let thread = Thread {
                batch: self.clone(),
                place: place.clone(),
                workload,
                number,
                pieces,
                stage: Stage::Work,
                mutex: mutex.clone(),
                barrier: barrier.clone(),
                done: self.children.then(|| config.add_channel(1)),
            };
            let task = place.task(workload, "thread", number, thread);
            config.add_task(task);
        }
        workload
    }
}

#[derive(Clone, Copy)]
enum Stage {
    Work,
    Lock,
    Locked,
    Meet,
    Done,
}

struct Thread {
    batch: Batch,
    place: Place,
    workload: WorkloadId,
    number: u32,
    pieces: CounterId,
    stage: Stage,
    mutex: Option<Mutex>,
    barrier: Option<Barrier>,
    /// Where a child says that it is done.
    done: Option<ChannelId>,
}

impl Thread {
    fn sample(&self, mean_us: f64, ctx: &mut Context) -> u64 {
        self.batch.spread.sample(mean_us * 1e3, ctx.rng())
    }

    /// A piece of work: by the thread, or by a process that it starts and waits for.
    fn work(&mut self, ctx: &mut Context) -> Step {
        let ns = self.sample(self.batch.work_us, ctx);
        let Some(channel) = self.done else {
            return Step::Compute { ns };
        };
        let mut stage = 0;
        let child = move |_: &mut Context| {
            stage += 1;
            match stage {
                1 => Step::Compute { ns },
                2 => Step::Send { channel, value: 0 },
                _ => Step::Exit,
            }
        };
        let mut child = self.place.task(self.workload, "child", self.number, child);
        child.start_ns = 0;
        ctx.fork(child);
        Step::Receive { channel }
    }
}

impl Behaviour for Thread {
    fn next(&mut self, ctx: &mut Context) -> Step {
        loop {
            match self.stage {
                Stage::Work => {
                    self.stage = Stage::Lock;
                    return self.work(ctx);
                }
                Stage::Lock => {
                    let Some(mutex) = &mut self.mutex else {
                        self.stage = Stage::Meet;
                        continue;
                    };
                    if let Some(step) = mutex.take() {
                        return step;
                    }
                    self.stage = Stage::Locked;
                    return Step::Compute {
                        ns: self.sample(self.batch.locked_us, ctx),
                    };
                }
                Stage::Locked => {
                    self.stage = Stage::Meet;
                    if let Some(step) = self.mutex.as_mut().and_then(Mutex::release) {
                        return step;
                    }
                }
                Stage::Meet => {
                    if let Some(step) = self.barrier.as_mut().and_then(Barrier::pass) {
                        return step;
                    }
                    self.stage = Stage::Done;
                }
                Stage::Done => {
                    ctx.count(self.pieces, 1);
                    self.stage = Stage::Work;
                    if self.batch.wait_us > 0.0 {
                        let x: f64 = Exp1.sample(ctx.rng());
                        return Step::SleepUntil {
                            at_ns: ctx.now_ns() + (self.batch.wait_us * 1e3 * x) as u64,
                        };
                    }
                }
            }
        }
    }
}
