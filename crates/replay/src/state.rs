// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the threads of one replay share.
use crate::client_task::ClientTask;
use crate::program::{BurstIx, Program, Start, Thread, NONE};
use crate::request::Arrival;
use crate::settings::Settings;
use crate::workers::Workers;
use plimsoll_sim::{ChannelId, Step, WorkloadId};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

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
    /// Likewise: a thread has begun with it, or will as soon as it runs.
    taken: Bits,
    /// Likewise: that is not its own.
    moved: Bits,
    /// Likewise: its thread has been told of it, and the next one of its pool that is free does it.
    waits: Bits,
    /// Of each thread: bursts that are not done.
    left: Vec<AtomicU32>,
    /// Of the first of what a thread does in one go: how much of that is not done.
    left_of_cut: Vec<AtomicU32>,
    /// Of each thread: messages to it that it has not taken.
    mail: Vec<AtomicU32>,
    workers: Workers,
    work_ns: AtomicU64,
    work_scale: f64,
    with_recorder: bool,
    alone: bool,
    /// The machine has the recorded CPUs, and the recorded kernel's scheduler.
    pub has_seats: bool,
    pub workload: WorkloadId,
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
            taken: Bits::none_of(program.bursts.len()),
            moved: Bits::none_of(program.bursts.len()),
            waits: Bits::none_of(program.bursts.len()),
            left: counts(program.threads.iter().map(|thread| thread.bursts.len() as u32)),
            left_of_cut: counts(program.cut_sizes.iter().copied()),
            mail: counts(program.threads.iter().map(|_| 0)),
            workers: Workers::new(&program.pools),
            work_ns: AtomicU64::new(0),
            work_scale: settings.work_scale,
            with_recorder: settings.with_recorder,
            alone: settings.alone,
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

    /// Whether a request comes after an answer that its client has not got yet.
    pub fn is_unasked(&self, program: &Program, request: u32) -> bool {
        match program.requests[request as usize].arrival {
            Arrival::After { request, .. } => self.ended(request).is_none(),
            _ => false,
        }
    }

    /// What its client runs as a request is answered, if that is on this machine.
    pub fn client_of(&self, program: &Program, request: u32) -> Option<Step> {
        ClientTask::tell(program, request).filter(|_| !self.alone)
    }

    /// When a request ended; `None`: it has not.
    pub fn ended(&self, request: u32) -> Option<u64> {
        set(&self.end_ns[request as usize])
    }

    pub fn is_done(&self, burst: BurstIx) -> bool {
        self.done.has(burst)
    }

    pub fn set_done(&self, program: &Program, burst: BurstIx) {
        self.done.set(burst);
        less(&self.left[program.bursts[burst as usize].thread as usize]);
        less(&self.left_of_cut[program.first_of_cut(burst) as usize]);
    }

    /// How many bursts of a thread are not done.
    pub fn left(&self, thread: u32) -> u32 {
        self.left[thread as usize].load(Relaxed)
    }

    /// Whether all is done that a thread did in one go with a burst.
    pub fn is_cut_over(&self, program: &Program, burst: BurstIx) -> bool {
        self.left_of_cut[program.first_of_cut(burst) as usize].load(Relaxed) == 0
    }

    /// Whether a thread does or has done it.
    pub fn is_taken(&self, burst: BurstIx) -> bool {
        self.taken.has(burst)
    }

    pub fn take(&self, program: &Program, burst: BurstIx, by: u32) {
        self.taken.set(burst);
        if program.bursts[burst as usize].thread != by {
            self.moved.set(burst);
        }
    }

    /// Whether its thread has been told of it, and the next one of its pool that is free does it.
    pub fn waits(&self, burst: BurstIx) -> bool {
        self.waits.has(burst)
    }

    /// Whether a thread has done it whose own it is not.
    pub fn is_moved(&self, burst: BurstIx) -> bool {
        self.moved.has(burst)
    }

    /// Takes for a thread what comes first in its pool, of what it may do.
    pub fn take_of_pool(
        &self,
        program: &Program,
        thread: u32,
        now_ns: u64,
        may: impl Fn(BurstIx) -> bool,
    ) -> Option<BurstIx> {
        let is_ready = |burst| may(burst) && self.is_ready(program, burst, now_ns).is_ok();
        let is_taken = |burst| self.is_taken(burst);
        let found = self.workers.first(program.pools.of(thread), is_taken, is_ready)?;
        self.take(program, found, thread);
        Some(found)
    }

    /// Whether no other thread of its pool is at work.
    pub fn works_alone(&self, program: &Program, thread: u32) -> bool {
        self.workers.works_alone(program.pools.of(thread))
    }

    /// A thread waits for something else, and no other one of its pool works: one that is idle does what waits there.
    pub fn pass_on(&self, program: &Program, thread: u32, now_ns: u64) -> Option<Step> {
        let is_ready = |burst| self.is_ready(program, burst, now_ns).is_ok();
        let is_taken = |burst| self.is_taken(burst);
        let (idle, found) = self
            .workers
            .passes_on(program.pools.of(thread), is_taken, is_ready)?;
        match program.bursts[found as usize].thread == idle {
            true => self.waits.clear(found),
            false => self.take(program, found, idle),
        }
        self.works(program, idle);
        Some(self.send(idle, found))
    }

    /// It is ready, and so is a thread of its pool, which takes what comes first.
    pub fn come_back_to(&self, program: &Program, burst: BurstIx) {
        self.waits.set(burst);
        self.workers
            .waits(program.pool_of(burst), program.at_ns[burst as usize], burst);
    }

    /// A thread runs, or has been woken.
    pub fn works(&self, program: &Program, thread: u32) {
        self.workers.works(program.pools.of(thread), thread);
    }

    /// A thread blocks; `is_idle`: until anything comes.
    pub fn blocks(&self, program: &Program, thread: u32, is_idle: bool) {
        self.workers.blocks(program.pools.of(thread), thread, is_idle);
    }

    /// Whether a burst's request is there, and what its thread did for that before is done; else from when on that may
    /// be so, if that is known.
    pub fn is_ready(&self, program: &Program, burst: BurstIx, now_ns: u64) -> Result<(), Option<u64>> {
        if program.bursts[burst as usize].start == Start::Sent && !self.sent.has(burst) {
            return Err(None);
        }
        let part = program.part_of(burst);
        if part.request == NONE {
            return Ok(());
        }
        // What the request follows may not have been answered yet: then it waits for that alone which the order says.
        if let Some(at_ns) = self.begins(program, part.request).filter(|at_ns| *at_ns > now_ns) {
            let from_ns = at_ns.saturating_sub(program.lead_ns(burst, part.request));
            if from_ns > now_ns {
                return Err(Some(from_ns));
            }
        }
        match part.before == NONE || self.is_done(part.before) {
            true => Ok(()),
            false => Err(None),
        }
    }

    /// What it reads is there: its thread is to be told, or one that does it instead.
    pub fn wake(&self, program: &Program, burst: BurstIx, now_ns: u64) -> Step {
        self.sent.set(burst);
        let own = program.bursts[burst as usize].thread;
        let pool = program.pool_of(burst);
        let is_ready = || !self.is_taken(burst) && self.is_ready(program, burst, now_ns).is_ok();
        let by = match pool.is_some() && is_ready() {
            true => self
                .workers
                .takes(pool, own, program.at_ns[burst as usize], burst),
            false => Some(own),
        };
        match by {
            Some(by) if by != own => self.take(program, burst, by),
            Some(_) => {}
            None => self.waits.set(burst),
        }
        let by = by.unwrap_or(own);
        self.works(program, by);
        self.send(by, burst)
    }

    /// Wakes a burst's thread for it.
    pub fn tell(&self, program: &Program, burst: BurstIx) -> Step {
        self.send(program.bursts[burst as usize].thread, burst)
    }

    fn send(&self, thread: u32, burst: BurstIx) -> Step {
        let mail = &self.mail[thread as usize];
        mail.store(mail.load(Relaxed) + 1, Relaxed);
        Step::Send {
            channel: ChannelId(thread),
            value: u64::from(burst),
        }
    }

    /// A thread has taken a message.
    pub fn received(&self, thread: u32) {
        less(&self.mail[thread as usize]);
    }

    /// Whether there are messages that a thread has not taken.
    pub fn has_mail(&self, thread: u32) -> bool {
        self.mail[thread as usize].load(Relaxed) > 0
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

fn counts(of: impl Iterator<Item = u32>) -> Vec<AtomicU32> {
    of.map(AtomicU32::new).collect()
}

fn less(count: &AtomicU32) {
    count.store(count.load(Relaxed) - 1, Relaxed);
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

    fn clear(&self, burst: BurstIx) {
        let word = &self.0[burst as usize / 64];
        word.store(word.load(Relaxed) & !(1 << (burst % 64)), Relaxed);
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
