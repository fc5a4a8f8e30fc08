// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the threads of one replay share.
use crate::program::{BurstIx, Program, Thread};
use crate::request::Arrival;
use crate::settings::Settings;
use plimsoll_sim::{ChannelId, Step, WorkloadId};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const UNSET: u64 = u64::MAX;

/// What the threads of one replay share. Written by one simulation, on one thread; atomic only so that behaviours may
/// be sent to it.
pub(crate) struct State {
    begin_ns: Vec<AtomicU64>,
    end_ns: Vec<AtomicU64>,
    /// A bit for each burst.
    done: Bits,
    /// Likewise: another thread has sent what it reads.
    sent: Bits,
    work_ns: AtomicU64,
    work_scale: f64,
    with_recorder: bool,
    /// The machine has the recorded CPUs, and the recorded kernel's scheduler.
    pub has_seats: bool,
    pub workload: WorkloadId,
}

/// Wakes a burst's thread for it.
pub(crate) fn tell(program: &Program, burst: BurstIx) -> Step {
    Step::Send {
        channel: ChannelId(program.bursts[burst as usize].thread),
        value: u64::from(burst),
    }
}

impl State {
    /// Of a replay that has just begun.
    pub fn new(program: &Program, settings: &Settings, has_seats: bool, workload: WorkloadId) -> State {
        let all = |count: usize, value: u64| (0..count).map(|_| AtomicU64::new(value)).collect();
        State {
            begin_ns: all(program.requests.len(), UNSET),
            end_ns: all(program.requests.len(), UNSET),
            done: Bits::none_of(program.bursts.len()),
            sent: Bits::none_of(program.bursts.len()),
            work_ns: AtomicU64::new(0),
            work_scale: settings.work_scale,
            with_recorder: settings.with_recorder,
            has_seats,
            workload,
        }
    }

    pub fn begin(&self, request: u32, now_ns: u64) {
        self.begin_ns[request as usize].store(now_ns, Relaxed);
    }

    pub fn end(&self, request: u32, now_ns: u64) {
        self.end_ns[request as usize].store(now_ns, Relaxed);
    }

    /// When a request begins; `None`: what it follows has not come yet.
    pub fn begins(&self, program: &Program, request: u32) -> Option<u64> {
        let info = &program.requests[request as usize];
        match info.arrival {
            Arrival::Marked => set(&self.begin_ns[request as usize]),
            Arrival::Kept => Some(info.begin_ns),
            Arrival::After { request, pause_ns } => Some(self.ended(request)? + pause_ns),
        }
    }

    /// When a request ended; `None`: it has not.
    pub fn ended(&self, request: u32) -> Option<u64> {
        set(&self.end_ns[request as usize])
    }

    pub fn is_done(&self, burst: BurstIx) -> bool {
        self.done.has(burst)
    }

    pub fn set_done(&self, burst: BurstIx) {
        self.done.set(burst);
    }

    pub fn is_sent(&self, burst: BurstIx) -> bool {
        self.sent.has(burst)
    }

    /// What it reads is there: its thread is to be told.
    pub fn wake(&self, program: &Program, burst: BurstIx) -> Step {
        self.sent.set(burst);
        tell(program, burst)
    }

    /// How long a thread's work takes here, as a share of the recorded time.
    pub fn scale(&self, thread: &Thread) -> f64 {
        match self.with_recorder {
            true => self.work_scale,
            false => self.work_scale * thread.own_share(),
        }
    }

    /// Counts recorded work as it is begun. How long it takes here.
    pub fn work(&self, ns: u64, scale: f64) -> u64 {
        self.work_ns.store(self.work_ns.load(Relaxed) + ns, Relaxed);
        ((ns as f64 * scale).round() as u64).max(1)
    }

    /// Recorded work that has been begun.
    pub fn begun_ns(&self) -> u64 {
        self.work_ns.load(Relaxed)
    }
}

/// One for each burst.
struct Bits(Vec<AtomicU64>);

impl Bits {
    fn none_of(count: usize) -> Bits {
        Bits((0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    fn has(&self, burst: BurstIx) -> bool {
        self.0[burst as usize / 64].load(Relaxed) >> (burst % 64) & 1 != 0
    }

    fn set(&self, burst: BurstIx) {
        let word = &self.0[burst as usize / 64];
        word.store(word.load(Relaxed) | 1 << (burst % 64), Relaxed);
    }
}

fn set(time: &AtomicU64) -> Option<u64> {
    let ns = time.load(Relaxed);
    (ns != UNSET).then_some(ns)
}
