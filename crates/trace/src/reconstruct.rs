// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns events into a [`Timeline`], one pass, in order of time.
//!
//! A thread is running, waiting for a CPU, or blocked. `switch` moves it between the three, `waking` ends
//! a block. Two orders look wrong and are not:
//! - A waker can reach a thread that is still on its way to sleep. The wake-up is then logged before the
//!   switch; it counts if the thread runs again with no later wake-up.
//! - A thread can be woken several times before it runs. The first one made it runnable.
use crate::model::{Context, Event, GroupIx, Header, Owed, State, Tid, What};
use crate::open_thread::{OpenThread, Status};
use crate::quality::{Doubt, Quality, GAP_NS_MAX};
use crate::timeline::{
    Cause, ConnectionTimeline, End, Moment, OthersRun, SocketEvent, ThreadIx, ThreadTimeline, Timeline, Wake,
};
use std::collections::HashMap;

/// Takes events one by one, so that a trace need not be in memory twice.
pub struct TimelineBuilder {
    start_ns: i64,
    end_ns: i64,
    /// Only threads below one group have their switches recorded.
    partial: bool,
    /// Whether each change of a thread's run queue is among the events.
    migrations: bool,
    /// Whether each group is among those whose threads are recorded.
    inside: Vec<bool>,
    threads: Vec<OpenThread>,
    by_tid: HashMap<Tid, ThreadIx>,
    /// Header entries by thread id, latest first.
    known: HashMap<Tid, Vec<KnownThread>>,
    has_sockets: bool,
    connections: Vec<ConnectionTimeline>,
    /// Into `connections`, by [`crate::Connection::id`].
    by_id: HashMap<u64, usize>,
    others: Vec<OthersRun>,
    /// What threads that are not recorded were owed as they were woken beside recorded ones, until they run.
    owed: HashMap<Tid, Owed>,
    quality: Quality,
    last_ns: i64,
    /// By number.
    cpus: Vec<CpuNow>,
}

/// What runs on a CPU by the last switch that was seen there.
#[derive(Clone, Copy, Default)]
struct CpuNow {
    /// `None`: nothing was seen yet, the idle task, or a thread that is not followed.
    running: Option<ThreadIx>,
    /// When it last gave a sign of being there.
    seen_ns: i64,
    /// Of a thread that is not recorded and took the CPU from one that is: what it was owed.
    owed: Option<Owed>,
}

struct KnownThread {
    tgid: Option<Tid>,
    comm: String,
    group: Option<GroupIx>,
    from_ns: i64,
}

impl TimelineBuilder {
    pub fn new(header: &Header) -> TimelineBuilder {
        let mut known: HashMap<Tid, Vec<KnownThread>> = HashMap::new();
        for t in &header.threads {
            known.entry(t.tid).or_default().push(KnownThread {
                tgid: t.tgid,
                comm: t.comm.clone(),
                group: t.group,
                from_ns: t.from_ns,
            });
        }
        for entries in known.values_mut() {
            entries.sort_by_key(|e| std::cmp::Reverse(e.from_ns));
        }
        let only_below = header
            .only_below
            .as_deref()
            .map(|path| path.trim_end_matches('/'));
        let is_inside = |path: &str| {
            only_below.is_none_or(|top| {
                path.strip_prefix(top)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
        };
        TimelineBuilder {
            inside: header.groups.iter().map(|g| is_inside(&g.path)).collect(),
            start_ns: header.clock.start_ns,
            end_ns: header.clock.end_ns,
            partial: header.only_below.is_some(),
            migrations: header.migrations,
            threads: Vec::new(),
            by_tid: HashMap::new(),
            known,
            has_sockets: header.sockets.recorded,
            by_id: (header.sockets.connections.iter().map(|c| c.id))
                .zip(0..)
                .collect(),
            connections: (header.sockets.connections.iter())
                .map(|about| ConnectionTimeline {
                    about: about.clone(),
                    events: Vec::new(),
                })
                .collect(),
            others: Vec::new(),
            owed: HashMap::new(),
            quality: Quality::of(header),
            last_ns: header.clock.start_ns,
            cpus: Vec::new(),
        }
    }

    /// Adds one event; events come in order of time, as the readers guarantee.
    pub fn push(&mut self, event: &Event) {
        let ts = event.ts_ns;
        if ts - self.last_ns > GAP_NS_MAX && !matches!(event.what, What::Sample { .. }) && !self.partial {
            let gap = ts - self.last_ns;
            self.quality
                .note(Doubt::ClockGap, self.last_ns, || format!("{gap} ns"));
        }
        self.last_ns = ts;
        match event.what {
            What::Switch {
                prev,
                prev_state,
                next,
            } => {
                self.quality.switches += 1;
                let since_ns = self.evict(prev, "leaves it", event.cpu, ts);
                if prev != 0 {
                    self.switch_out(prev, prev_state, event.cpu, ts, since_ns);
                }
                let owed = self.owed.remove(&next);
                let cpu = self.cpu(event.cpu);
                cpu.running = None;
                cpu.owed = owed.filter(|_| prev_state == State::Runnable);
                if next != 0 {
                    self.switch_in(next, event.cpu, ts);
                }
            }
            What::Waking { tid, waker, context } => {
                self.sign_of(waker, event.cpu, ts);
                let cause = self.cause(waker, event.cpu, context, ts);
                self.wake(tid, cause, ts);
            }
            What::Placed { tid, target_cpu } => {
                if let Some(ix) = self.find(tid, ts) {
                    self.threads[ix].place_on(target_cpu);
                }
            }
            What::Migrate { tid, target_cpu } => {
                if let Some(ix) = self.find(tid, ts) {
                    self.threads[ix].cpu = Some(target_cpu);
                }
            }
            What::Owed { tid, owed } => match self.find(tid, ts) {
                Some(ix) if self.threads[ix].out.recorded => self.threads[ix].is_owed(owed),
                _ => drop(self.owed.insert(tid, owed)),
            },
            What::Wakeup { tid, waker, .. } => {
                let context = if waker == 0 {
                    Context::Interrupt
                } else {
                    Context::Unknown
                };
                let cause = self.cause(waker, event.cpu, context, ts);
                self.wake(tid, cause, ts);
            }
            What::Fork { parent, child } => self.fork(parent, child, event.cpu, ts),
            What::Exit { tid } => {
                if let Some(thread) = self.find(tid, ts) {
                    self.threads[thread].exiting = true;
                }
            }
            What::Move { tid, group } => {
                let inside = self.inside.get(group as usize).copied().unwrap_or(true);
                match self.find(tid, ts) {
                    Some(thread) if inside => self.threads[thread].move_to(group, ts),
                    // From here on it is as if it were no more.
                    Some(thread) => self.threads[thread].cut(ts),
                    None if inside && self.by_tid.contains_key(&tid) => {
                        let thread = self.add(tid, ts);
                        self.threads[thread].from_ns = ts;
                        self.threads[thread].group = Some(group);
                    }
                    None => {}
                }
            }
            What::Request { tid, begin } => {
                if let Some(thread) = self.find(tid, ts) {
                    self.threads[thread].out.requests.push((ts, begin));
                }
            }
            What::Socket {
                tid,
                connection,
                op,
                bytes,
            } => {
                let Some(&connection) = self.by_id.get(&connection) else {
                    return;
                };
                let by = self.find_waker(tid, event.cpu, ts).and_then(|ix| {
                    let (burst, at_work_ns) = self.threads[ix].work_so_far(ts)?;
                    let thread = ix as ThreadIx;
                    Some(Moment {
                        thread,
                        burst,
                        at_work_ns,
                    })
                });
                self.connections[connection].events.push(SocketEvent {
                    ts_ns: ts,
                    op,
                    bytes,
                    by,
                });
            }
            What::Others { group, run_ns, state } => {
                let owed = self.cpu(event.cpu).owed.take();
                self.others.push(OthersRun {
                    end_ns: ts,
                    run_ns,
                    cpu: event.cpu,
                    group,
                    wants_more: !state.blocks(),
                    owed,
                });
            }
            What::Sample { .. } => {}
        }
    }

    /// Closes what is still open at the end of the recorded window.
    pub fn finish(mut self) -> Timeline {
        for thread in &mut self.threads {
            thread.cut(self.end_ns);
        }
        self.collect_wakes();
        Timeline {
            start_ns: self.start_ns,
            end_ns: self.end_ns,
            threads: self.threads.into_iter().map(|t| t.out).collect(),
            has_sockets: self.has_sockets,
            connections: self.connections,
            others: self.others,
            quality: self.quality,
        }
    }

    /// The index of `tid`, made on its first event. `None` for the idle task, and for a thread that is outside of what
    /// was recorded at `ts`.
    fn find(&mut self, tid: Tid, ts: i64) -> Option<usize> {
        if tid == 0 {
            return None;
        }
        let last = self.by_tid.get(&tid).map(|&ix| ix as usize);
        if let Some(ix) = last.filter(|&ix| self.threads[ix].status != Status::Dead) {
            return Some(ix);
        }
        if self.partial {
            // Outside until its entry says otherwise: before it moves into the tree, when it has moved out, and where
            // the id of a thread that was recorded comes again for one that is not.
            let known_from_ns = self.entry(tid, ts)?.from_ns;
            if last.is_some_and(|ix| known_from_ns <= self.threads[ix].from_ns) {
                return None;
            }
        }
        if last.is_some() {
            self.quality
                .note(Doubt::AfterExit, ts, || format!("thread {tid}"));
        } else if !self.known.contains_key(&tid) {
            self.quality
                .note(Doubt::ThreadFromNowhere, ts, || format!("thread {tid}"));
        }
        Some(self.add(tid, ts))
    }

    /// The entry of `tid` that was current at `ts`.
    fn entry(&self, tid: Tid, ts: i64) -> Option<&KnownThread> {
        self.known.get(&tid)?.iter().find(|e| e.from_ns <= ts)
    }

    fn add(&mut self, tid: Tid, ts: i64) -> usize {
        // For the first event of a thread its table entry may be written a moment later.
        let known = self
            .entry(tid, ts)
            .or_else(|| self.known.get(&tid).and_then(|es| es.last()));
        let from_ns = match known {
            Some(known) if self.partial => known.from_ns.min(ts).max(self.start_ns),
            _ => self.start_ns,
        };
        let out = ThreadTimeline {
            tid,
            tgid: known.and_then(|k| k.tgid),
            comm: known.map_or_else(String::new, |k| k.comm.clone()),
            recorded: false,
            bursts: Vec::new(),
            runs: Vec::new(),
            wakes: Vec::new(),
            requests: Vec::new(),
        };
        let group = known.and_then(|k| k.group);
        let ix = self.threads.len();
        self.threads
            .push(OpenThread::new(out, group, from_ns, self.migrations));
        self.by_tid.insert(tid, ix as ThreadIx);
        ix
    }

    fn cause(&mut self, waker: Tid, cpu: u32, context: Context, ts: i64) -> Cause {
        match context {
            Context::Timer => return Cause::Timer,
            Context::Interrupt => return Cause::Interrupt,
            Context::Task | Context::TaskSoftirq | Context::Unknown => {}
        }
        let Some(ix) = self.find_waker(waker, cpu, ts) else {
            // The idle task wakes no thread itself: an interrupt did.
            return if waker == 0 {
                Cause::Interrupt
            } else {
                Cause::Outside { waker }
            };
        };
        match self.threads[ix].work_so_far(ts) {
            Some((burst, at_work_ns)) => Cause::Thread {
                thread: ix as ThreadIx,
                burst,
                at_work_ns,
            },
            None => Cause::Outside { waker },
        }
    }

    /// The waker, if its own life is recorded. It is running on `cpu` at `ts`, whether or not that was seen.
    fn find_waker(&mut self, waker: Tid, cpu: u32, ts: i64) -> Option<usize> {
        let ix = self.find(waker, ts)?;
        match self.threads[ix].status {
            Status::Unseen => {
                // Running since before the first event that we have of it.
                let since_ns = self.evict(waker, "is there", cpu, ts);
                self.threads[ix].first_run(cpu, since_ns);
                *self.cpu(cpu) = CpuNow {
                    running: Some(ix as ThreadIx),
                    seen_ns: ts,
                    ..CpuNow::default()
                };
            }
            // The switch to it follows, late: a recorder adds one that the kernel did not raise as it next hears of
            // that CPU, and of a fork it hears in another way.
            Status::Blocked { since_ns } => self.unblock(ix, since_ns, cpu, ts),
            Status::Running { .. } | Status::Waiting | Status::Dead => {}
        }
        Some(ix)
    }

    /// A thread that is blocked is seen on `cpu`: it was woken up, before it slept or unseen.
    fn unblock(&mut self, ix: usize, since_ns: i64, cpu: u32, ts: i64) {
        let thread = &mut self.threads[ix];
        thread.status = Status::Waiting;
        if let Some(cause) = thread.early_wake.take() {
            return thread.open_burst(cause, since_ns);
        }
        thread.open_burst(Cause::Unseen, ts);
        let tid = thread.out.tid;
        self.quality
            .note(Doubt::MissedWakeup, ts, || format!("thread {tid} on CPU {cpu}"));
    }

    fn wake(&mut self, tid: Tid, cause: Cause, ts: i64) {
        let Some(ix) = self.find(tid, ts) else { return };
        let thread = &mut self.threads[ix];
        match thread.status {
            Status::Blocked { .. } | Status::Unseen => {
                thread.early_wake = None;
                thread.open_burst(cause, ts);
                thread.status = Status::Waiting;
            }
            Status::Running { .. } => thread.early_wake = Some(cause),
            Status::Waiting | Status::Dead => {}
        }
    }

    fn fork(&mut self, parent: Tid, child: Tid, cpu: u32, ts: i64) {
        let cause = match self.cause(parent, cpu, Context::Task, ts) {
            Cause::Thread {
                thread,
                burst,
                at_work_ns,
            } => Cause::Fork {
                thread,
                burst,
                at_work_ns,
            },
            other => other,
        };
        let parent_group = self
            .by_tid
            .get(&parent)
            .and_then(|&ix| self.threads[ix as usize].group);
        if let Some(&old) = self.by_tid.get(&child) {
            let status = self.threads[old as usize].status;
            if !matches!(status, Status::Dead | Status::Unseen) && !self.threads[old as usize].exiting {
                self.quality.note(Doubt::MissedSwitch, ts, || {
                    format!("thread {child} is made while it lives")
                });
            }
        }
        let ix = self.add(child, ts);
        let thread = &mut self.threads[ix];
        thread.group = thread.group.or(parent_group);
        thread.open_burst(cause, ts);
        thread.status = Status::Waiting;
    }

    fn cpu(&mut self, cpu: u32) -> &mut CpuNow {
        let cpu = cpu as usize;
        if self.cpus.len() <= cpu {
            self.cpus.resize(cpu + 1, CpuNow::default());
        }
        &mut self.cpus[cpu]
    }

    /// `tid` was seen on `cpu`.
    fn sign_of(&mut self, tid: Tid, cpu: u32, ts: i64) {
        let Some(ix) = self.cpu(cpu).running else { return };
        if self.threads[ix as usize].out.tid == tid {
            self.cpu(cpu).seen_ns = ts;
        }
    }

    /// If another thread than `other` was last seen on `cpu`, its switch away was missed. It is taken off where it
    /// last gave a sign: until when it ran is not known, and made-up work would displace real work in a replay.
    /// Returns from when `cpu` may have run something else.
    fn evict(&mut self, other: Tid, does: &str, cpu: u32, ts: i64) -> Option<i64> {
        let CpuNow { running, seen_ns, .. } = *self.cpu(cpu);
        let thread = &mut self.threads[running? as usize];
        if thread.out.tid == other || !matches!(thread.status, Status::Running { cpu: on, .. } if on == cpu) {
            return None;
        }
        let tid = thread.out.tid;
        thread.vanish(seen_ns, cpu);
        self.quality.note(Doubt::MissedSwitch, ts, || {
            format!("thread {tid} is on CPU {cpu}, but thread {other} {does}")
        });
        Some(seen_ns)
    }

    /// `since_ns`: the doubt about which thread ran on `cpu` before is noted already, and goes back to here.
    fn switch_out(&mut self, tid: Tid, state: State, cpu: u32, ts: i64, since_ns: Option<i64>) {
        let Some(ix) = self.find(tid, ts) else { return };
        let thread = &mut self.threads[ix];
        match thread.status {
            Status::Running { cpu: on, .. } if on == cpu => {}
            Status::Unseen => thread.first_run(cpu, since_ns),
            status => {
                if since_ns.is_none() {
                    self.quality.note(Doubt::MissedSwitch, ts, || {
                        format!("thread {tid} leaves CPU {cpu} but was not running there")
                    });
                }
                if let Status::Blocked { since_ns: blocked_ns } = status {
                    let cause = thread.early_wake.take().unwrap_or(Cause::Unseen);
                    thread.open_burst(cause, since_ns.unwrap_or(ts).max(blocked_ns));
                }
                if !matches!(status, Status::Running { .. }) {
                    let ready_ns = thread.ready_ns();
                    thread.start_running(since_ns.unwrap_or(ts).max(ready_ns), cpu);
                }
            }
        }
        thread.stop_running_on(ts, cpu);
        match state {
            State::Runnable => thread.status = Status::Waiting,
            State::Dead => {
                thread.close_burst(ts, End::Exit);
                thread.status = Status::Dead;
            }
            _ => {
                let uninterruptible = state == State::Uninterruptible;
                thread.close_burst(ts, End::Blocked { uninterruptible });
                thread.status = Status::Blocked { since_ns: ts };
            }
        }
    }

    fn switch_in(&mut self, tid: Tid, cpu: u32, ts: i64) {
        let Some(ix) = self.find(tid, ts) else { return };
        let thread = &mut self.threads[ix];
        match thread.status {
            Status::Waiting => {}
            Status::Unseen => thread.open_burst(Cause::Start, thread.from_ns),
            Status::Blocked { since_ns } => self.unblock(ix, since_ns, cpu, ts),
            Status::Running { cpu: on, .. } => {
                let seen_ns = match self.cpus.get_mut(on as usize) {
                    Some(other) if other.running == Some(ix as ThreadIx) => {
                        other.running = None;
                        other.seen_ns
                    }
                    _ => ts,
                };
                thread.vanish(seen_ns, on);
                thread.open_burst(Cause::Unseen, seen_ns);
                self.quality.note(Doubt::MissedSwitch, ts, || {
                    format!("thread {tid} starts on CPU {cpu} while it runs elsewhere")
                });
            }
            Status::Dead => unreachable!("find makes a new thread for a thread id that had exited"),
        }
        let thread = &mut self.threads[ix];
        thread.early_wake = None;
        thread.start_running(ts, cpu);
        *self.cpu(cpu) = CpuNow {
            running: Some(ix as ThreadIx),
            seen_ns: ts,
            ..CpuNow::default()
        };
    }

    /// Gives every waker the list of what it woke, from the causes on the other side.
    fn collect_wakes(&mut self) {
        for ix in 0..self.threads.len() {
            for burst in 0..self.threads[ix].out.bursts.len() {
                if let Cause::Thread {
                    thread,
                    burst: by_burst,
                    at_work_ns,
                }
                | Cause::Fork {
                    thread,
                    burst: by_burst,
                    at_work_ns,
                } = self.threads[ix].out.bursts[burst].cause
                {
                    let wake = Wake {
                        at_work_ns,
                        thread: ix as ThreadIx,
                        burst: burst as u32,
                        by_burst,
                    };
                    self.threads[thread as usize].out.wakes.push(wake);
                }
            }
        }
        for thread in &mut self.threads {
            thread
                .out
                .wakes
                .sort_by_key(|w| (w.by_burst, w.at_work_ns, w.thread, w.burst));
            let mut next = 0;
            for (i, burst) in thread.out.bursts.iter_mut().enumerate() {
                let first = next;
                while thread.out.wakes.get(next).is_some_and(|w| w.by_burst == i as u32) {
                    next += 1;
                }
                burst.wakes = first as u32..next as u32;
            }
        }
    }
}

impl Timeline {
    /// Reconstructs events that are in memory.
    pub fn build(header: &Header, events: &[Event]) -> Timeline {
        let mut builder = TimelineBuilder::new(header);
        events.iter().for_each(|event| builder.push(event));
        builder.finish()
    }
}
