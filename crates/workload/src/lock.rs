// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What threads meet at: a mutex that the running thread may take again, and a barrier that threads spin at before they
//! sleep.
use plimsoll_sim::{ChannelId, Config, Step};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::Arc;

/// CPU time between two looks of a spinning thread.
const LOOK_NS: u64 = 200;

/// Threads that sleep until another wakes them: a futex's queue.
#[derive(Clone)]
struct Sleepers {
    /// Those that are asleep or on their way: a token is sent to each, so no wake-up is lost.
    waiting: Arc<AtomicU32>,
    tokens: ChannelId,
}

impl Sleepers {
    fn new(threads: u32, config: &mut Config) -> Self {
        Sleepers {
            waiting: Arc::new(AtomicU32::new(0)),
            tokens: config.add_futex(threads.max(1)),
        }
    }

    fn sleep(&self) -> Step {
        self.waiting.fetch_add(1, Relaxed);
        Step::Receive { channel: self.tokens }
    }

    /// The step that wakes one; None: no task sleeps.
    fn wake(&self) -> Option<Step> {
        let waiting = self.waiting.load(Relaxed).checked_sub(1)?;
        self.waiting.store(waiting, Relaxed);
        Some(Step::Send {
            channel: self.tokens,
            value: 0,
        })
    }
}

/// A mutex as futexes and the kernel's own are: the task that lets go wakes one sleeper and does not wait for it, so a running
/// thread may take the lock before the woken one does. Each thread has its own clone.
#[derive(Clone)]
pub(crate) struct Mutex {
    held: Arc<AtomicBool>,
    sleepers: Sleepers,
    /// A thread spins this long at most before it sleeps.
    spin_ns: u64,
    spun_ns: u64,
}

impl Mutex {
    /// `threads`: the most that use it.
    pub fn new(threads: u32, spin_ns: u64, config: &mut Config) -> Self {
        Mutex {
            held: Arc::new(AtomicBool::new(false)),
            sleepers: Sleepers::new(threads, config),
            spin_ns,
            spun_ns: 0,
        }
    }

    /// None: the lock is taken. Else the step to do before asking again.
    pub fn take(&mut self) -> Option<Step> {
        if !self.held.swap(true, Relaxed) {
            self.spun_ns = 0;
            return None;
        }
        if self.spun_ns < self.spin_ns {
            self.spun_ns += LOOK_NS;
            return Some(Step::Compute { ns: LOOK_NS });
        }
        self.spun_ns = 0;
        Some(self.sleepers.sleep())
    }

    /// Lets go. The step that wakes a sleeper, if there is one.
    pub fn release(&mut self) -> Option<Step> {
        self.held.store(false, Relaxed);
        self.sleepers.wake()
    }
}

/// A barrier: no thread goes on before all have arrived. Each thread has its own clone.
#[derive(Clone)]
pub(crate) struct Barrier {
    threads: u32,
    arrived: Arc<AtomicU32>,
    round: Arc<AtomicU32>,
    /// Of even and of odd rounds: while those of one are woken, threads that were quick may sleep in the next one, but
    /// not in the one after it. In one queue the quick would be woken again and again, and take others' wake-ups.
    sleepers: [Sleepers; 2],
    spin_ns: u64,
    spun_ns: u64,
    /// The round that this thread has arrived in and not left; None: it works.
    waits: Option<u32>,
    /// The round whose sleepers this thread wakes.
    wakes: Option<u32>,
}

/// CPU time between two looks of a thread at a barrier.
const BARRIER_LOOK_NS: u64 = 2_000;

impl Barrier {
    pub fn new(threads: u32, spin_ns: u64, config: &mut Config) -> Self {
        Barrier {
            threads,
            arrived: Arc::new(AtomicU32::new(0)),
            round: Arc::new(AtomicU32::new(0)),
            sleepers: [Sleepers::new(threads, config), Sleepers::new(threads, config)],
            spin_ns,
            spun_ns: 0,
            waits: None,
            wakes: None,
        }
    }

    /// None: all have arrived, and those that slept are awake. Else the step to do before asking again.
    pub fn pass(&mut self) -> Option<Step> {
        if let Some(round) = self.wakes {
            let step = self.sleepers_of(round).wake();
            self.wakes = step.as_ref().map(|_| round);
            return step;
        }
        let Some(round) = self.waits else {
            let round = self.round.load(Relaxed);
            if self.arrived.fetch_add(1, Relaxed) + 1 == self.threads {
                self.arrived.store(0, Relaxed);
                self.round.store(round.wrapping_add(1), Relaxed);
                self.wakes = Some(round);
                return self.pass();
            }
            self.waits = Some(round);
            self.spun_ns = 0;
            return self.pass();
        };
        if self.round.load(Relaxed) != round {
            self.waits = None;
            return None;
        }
        if self.spun_ns < self.spin_ns {
            self.spun_ns += BARRIER_LOOK_NS;
            return Some(Step::Compute { ns: BARRIER_LOOK_NS });
        }
        Some(self.sleepers_of(round).sleep())
    }

    fn sleepers_of(&self, round: u32) -> &Sleepers {
        &self.sleepers[round as usize % 2]
    }
}
