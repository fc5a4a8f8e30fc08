// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One thread of the trace at work in the simulator.
mod for_another;
mod put_off;

use crate::inbox::Inbox;
use crate::outside_task::OutsideTask;
use crate::program::{BurstIx, Deed, Program, Start, NONE};
use crate::state::State;
use plimsoll_sim::{Behaviour, ChannelId, Context, CpuSet, GroupId, Seat, Step, TaskSpec};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// Between bursts; may do any burst that is due, or those before this one only.
    Waiting {
        before: BurstIx,
    },
    /// Sleeps until this burst is due at this time, and does nothing else.
    Sleeping(BurstIx, u64),
    Working(BurstIx),
}

pub(crate) struct ThreadTask {
    program: Arc<Program>,
    state: Arc<State>,
    thread: u32,
    /// How long its work takes here, as a share of the recorded time.
    scale: f64,
    doing: Doing,
    /// Work of the current burst that is done.
    done_ns: u64,
    action: u32,
    action_end: u32,
    /// Bursts whose wake-up has come.
    inbox: Inbox,
    /// The same of the burst that exits: it has to be the last.
    exit: Option<BurstIx>,
    /// Bursts that come by themselves: when, which.
    timers: Vec<(u64, BurstIx)>,
    /// What is left of bursts that were put off or cut, as ranges that begin with one not done: see [`put_off`].
    left_over: Vec<Range<BurstIx>>,
    /// What it was waiting for when it took up one of those: no burst after this one.
    resume: BurstIx,
    /// What to wake in place of a burst that was put off.
    to_wake: VecDeque<Deed>,
    /// Next burst that has a time of its own, from the recording.
    next_at: BurstIx,
    /// What it has taken of its pool's work.
    taken: VecDeque<BurstIx>,
    /// What it has done for another one, which is to be told: all is done now that that did in one go with it.
    over: Option<BurstIx>,
}

impl ThreadTask {
    /// As a task of the simulator.
    pub fn spec(program: &Arc<Program>, state: &Arc<State>, thread: u32, forked: bool) -> TaskSpec {
        let known = &program.threads[thread as usize];
        let task = ThreadTask::new(program.clone(), state.clone(), thread, forked);
        // A thread's name only names its random stream, and a replay draws no random numbers.
        let mut spec = TaskSpec::new(GroupId(known.group), state.workload, known.name.clone(), task);
        spec.start_cpu = known.place.first_cpu.filter(|_| !forked);
        spec.follows_waker = known.place.follows;
        spec.affinity = known.pinned.map(|cpu| std::iter::once(cpu).collect::<CpuSet>());
        spec
    }

    /// `forked`: its first burst is due at once.
    fn new(program: Arc<Program>, state: Arc<State>, thread: u32, forked: bool) -> Self {
        let bursts = program.threads[thread as usize].bursts.clone();
        let scale = state.scale(&program.threads[thread as usize]);
        let mut task = Self {
            program,
            state,
            thread,
            scale,
            doing: Doing::Waiting { before: NONE },
            done_ns: 0,
            action: 0,
            action_end: 0,
            inbox: Inbox::default(),
            exit: None,
            timers: Vec::new(),
            left_over: Vec::new(),
            resume: NONE,
            to_wake: VecDeque::new(),
            next_at: bursts.start,
            taken: VecDeque::new(),
            over: None,
        };
        if forked {
            task.receive(bursts.start);
        }
        task.seek();
        task
    }

    /// Moves on to the next burst with a time of its own.
    fn seek(&mut self) {
        let end = self.program.threads[self.thread as usize].bursts.end;
        while self.next_at < end && self.program.bursts[self.next_at as usize].start != Start::At {
            self.next_at += 1;
        }
    }

    /// The next burst with a time of its own, and that time.
    fn at(&self) -> Option<(u64, BurstIx)> {
        let end = self.program.threads[self.thread as usize].bursts.end;
        (self.next_at < end).then(|| (self.program.bursts[self.next_at as usize].at_ns, self.next_at))
    }

    fn may(&self, burst: BurstIx, before: BurstIx) -> bool {
        burst <= self.last_before(before)
            && (self.state.left(self.thread) == 1 || !self.program.bursts[burst as usize].exits)
    }

    /// The last burst that may be done while the thread waits for one: what was cut from that, if it was in the middle of nothing.
    fn last_before(&self, before: BurstIx) -> BurstIx {
        match before == NONE || self.program.part_of(before).request != NONE {
            true => before,
            false => self.end_of_cut(before) - 1,
        }
    }

    fn receive(&mut self, burst: BurstIx) {
        match self.program.bursts[burst as usize].exits {
            _ if self.is_for_another(burst) => self.taken.push_back(burst),
            true => self.exit = Some(burst),
            false => self.inbox.push(burst),
        }
    }

    /// Takes the message to serve now.
    fn message(&mut self, before: BurstIx) -> Option<BurstIx> {
        match self.exit {
            Some(burst) if self.may(burst, before) => self.exit.take(),
            _ if before == NONE => self.inbox.first(),
            _ => self.inbox.first_up_to(self.last_before(before)),
        }
    }

    fn is_done(&self, burst: BurstIx) -> bool {
        self.state.is_done(burst)
    }

    /// Takes the burst to do now, or says until when to wait.
    fn choose(&mut self, now_ns: u64) -> Result<(BurstIx, u64), Option<u64>> {
        loop {
            let Doing::Waiting { before } = self.doing else {
                return Err(None);
            };
            if let Some(burst) = self.taken.pop_front() {
                return Ok((burst, now_ns));
            }
            let ready_ns = match self.put_off(before, now_ns) {
                Ok(burst) => {
                    self.resume = before;
                    return Ok((burst, now_ns));
                }
                Err(at_ns) => at_ns,
            };
            if let Some(burst) = self.message(before) {
                if self.state.waits(burst) && !self.state.is_taken(burst) {
                    match self.of_pool(before, now_ns) {
                        Some(first) => return Ok((first, now_ns)),
                        None => continue,
                    }
                }
                if self.is_done(burst) && self.state.is_moved(burst) {
                    self.follow(burst, now_ns);
                } else if !self.state.is_taken(burst) && !self.puts_off(burst, now_ns) {
                    return Ok((burst, now_ns));
                }
                continue;
            }
            if before != NONE && self.may(before, before) && self.is_free(before, now_ns) {
                return Ok((before, now_ns));
            }
            let timer = (0..self.timers.len())
                .filter(|&i| self.may(self.timers[i].1, before))
                .min_by_key(|&i| self.timers[i]);
            let at = self.at().filter(|&(_, burst)| self.may(burst, before));
            let timer_due = timer.map(|i| self.timers[i].0);
            let (due, burst) = match (timer_due, at) {
                (Some(due), _) if due <= now_ns && at.is_none_or(|(at, _)| due <= at) => {
                    self.timers.swap_remove(timer.expect("it has a time"))
                }
                (_, Some((due, burst))) if due <= now_ns => {
                    self.next_at += 1;
                    self.seek();
                    (due, burst)
                }
                (timer, at) => {
                    if self.state.has_mail(self.thread) {
                        return Err(None);
                    }
                    if let Some(burst) = self.of_pool(before, now_ns) {
                        return Ok((burst, now_ns));
                    }
                    return Err(timer
                        .into_iter()
                        .chain(at.map(|(at, _)| at))
                        .chain(ready_ns)
                        .min());
                }
            };
            if !self.is_done(burst) && !self.puts_off(burst, now_ns) {
                return Ok((burst, due));
            }
        }
    }

    /// `due_ns`: when it could have started.
    fn begin(&mut self, burst: BurstIx, due_ns: u64) {
        let own = &self.program.bursts[burst as usize];
        if own.request != NONE {
            self.state.begin(own.request, due_ns);
        }
        let actions = self.program.actions_of(burst);
        (self.action, self.action_end) = (actions.start as u32, actions.end as u32);
        self.done_ns = 0;
        self.state.take(&self.program, burst, self.thread);
        self.doing = Doing::Working(burst);
    }

    /// The end of what was cut from the burst that begins here.
    fn end_of_cut(&self, burst: BurstIx) -> BurstIx {
        let thread = self.program.bursts[burst as usize].thread;
        let end = self.program.threads[thread as usize].bursts.end;
        let cut = |&at: &BurstIx| self.program.bursts[at as usize].start.is_part();
        burst + 1 + (burst + 1..end).take_while(cut).count() as BurstIx
    }

    /// What follows a burst that is done; `None`: parts of it are left.
    fn after(&mut self, burst: BurstIx, now_ns: u64) -> Option<BurstIx> {
        let first = self.program.first_of_cut(burst);
        if burst == first {
            let end = self.end_of_cut(burst);
            let rest = (burst + 1..end).find(|&part| !self.is_done(part));
            if let Some(rest) = rest {
                self.leave_over(rest..end, now_ns);
            }
        } else if !self.is_done(first) {
            self.go_on_ahead(burst);
        }
        let state = &self.state;
        for left in &mut self.left_over {
            while left.start < left.end && state.is_done(left.start) {
                left.start += 1;
            }
        }
        self.left_over.retain(|left| !left.is_empty());
        self.state
            .is_cut_over(&self.program, burst)
            .then(|| self.end_of_cut(burst))
    }

    /// Wakes what a deed wakes, now or later. `None`: it wakes nothing, or that is done.
    fn wake(&self, deed: Deed, now_ns: u64) -> Option<Step> {
        let woken = deed.wakes(&self.program.delayed)?;
        (!self.is_done(woken)).then(|| match deed {
            Deed::WakeLater(delayed) => OutsideTask::ask(&self.program, delayed),
            _ => self.state.wake(&self.program, woken, now_ns),
        })
    }

    /// What comes after a burst.
    fn end(&mut self, burst: BurstIx, now_ns: u64) {
        self.state.set_done(&self.program, burst);
        let resume = std::mem::replace(&mut self.resume, NONE);
        let is_over = resume == NONE || self.is_done(resume);
        self.doing = Doing::Waiting {
            before: if is_over { NONE } else { resume },
        };
        match self.is_for_another(burst) {
            true => self.over = Some(burst).filter(|&burst| self.state.is_cut_over(&self.program, burst)),
            false => self.follow(burst, now_ns),
        }
        self.go_on(burst, now_ns);
    }

    /// Takes up what comes after a burst of its own.
    fn follow(&mut self, burst: BurstIx, now_ns: u64) {
        let Some(next) = self.after(burst, now_ns) else {
            return;
        };
        let end = self.program.threads[self.thread as usize].bursts.end;
        let is_timed = self.timers.iter().any(|&(_, timed)| timed == next);
        if next >= end || is_timed || self.is_done(next) || self.is_left_over(next) {
            return;
        }
        let following = &self.program.bursts[next as usize];
        match following.start {
            Start::After if following.strict => self.doing = Doing::Sleeping(next, now_ns + following.at_ns),
            Start::After => self.timers.push((now_ns + following.at_ns, next)),
            Start::Message if following.strict => self.doing = Doing::Waiting { before: next },
            _ => {}
        }
    }
}

impl Behaviour for ThreadTask {
    fn woken_on(&self, message: Option<u64>) -> Option<Seat> {
        let burst = match (message, self.doing) {
            (Some(burst), _) => burst as BurstIx,
            (None, Doing::Sleeping(burst, _)) => burst,
            // For data, in the middle of a burst: of that nothing was recorded.
            (None, Doing::Working(_)) => return None,
            (None, _) => {
                let timers = self.timers.iter().copied().chain(self.at());
                timers.min().map(|(_, burst)| burst)?
            }
        };
        if self.is_for_another(burst) {
            return None;
        }
        self.program.seats[burst as usize]
            .get()
            .filter(|_| self.state.has_seats)
    }

    fn next(&mut self, ctx: &mut Context) -> Step {
        self.state.works(&self.program, self.thread);
        let step = self.step(ctx);
        let waits = matches!(self.doing, Doing::Waiting { before: NONE });
        match step {
            Step::Receive { .. } | Step::ReceiveUntil { .. } => {
                self.state.blocks(&self.program, self.thread, waits)
            }
            Step::SleepUntil { .. } | Step::Exit => self.state.blocks(&self.program, self.thread, false),
            _ => {}
        }
        step
    }
}

impl ThreadTask {
    fn step(&mut self, ctx: &mut Context) -> Step {
        if let Some(value) = ctx.received() {
            self.state.received(self.thread);
            self.receive(value as BurstIx);
        }
        let now_ns = ctx.now_ns();
        loop {
            if let Some(burst) = self.over.take() {
                return self.state.tell(&self.program, burst);
            }
            if let Some(deed) = self.to_wake.pop_front() {
                match self.wake_instead(deed, now_ns) {
                    Some(step) => return step,
                    None => continue,
                }
            }
            match self.doing {
                Doing::Working(burst) => {
                    while self.action < self.action_end {
                        let action = self.program.actions[self.action as usize];
                        if action.at_ns > self.done_ns {
                            let ns = action.at_ns - self.done_ns;
                            self.done_ns = action.at_ns;
                            let ns = self.state.work(ns, self.scale);
                            return Step::Compute { ns };
                        }
                        self.action += 1;
                        match action.deed {
                            Deed::Begin(request) => self.state.begin(request, now_ns),
                            Deed::Await(request) => match self.state.begins(&self.program, request) {
                                Some(at_ns) if at_ns > now_ns => return Step::SleepUntil { at_ns },
                                _ => {}
                            },
                            Deed::End(request) => {
                                self.state.end(request, now_ns);
                                if let Some(step) = self.state.client_of(&self.program, request) {
                                    return step;
                                }
                            }
                            Deed::Fork(child) => {
                                let thread = self.program.bursts[child as usize].thread;
                                ctx.spawn(ThreadTask::spec(&self.program, &self.state, thread, true));
                            }
                            Deed::Wake(_) | Deed::WakeLater(_) => {
                                if let Some(step) = self.wake(action.deed, now_ns) {
                                    return step;
                                }
                            }
                            Deed::Send(_) | Deed::Receive(_) => {}
                        }
                    }
                    let work_ns = self.program.bursts[burst as usize].work_ns;
                    if self.done_ns < work_ns {
                        let ns = work_ns - self.done_ns;
                        self.done_ns = work_ns;
                        let ns = self.state.work(ns, self.scale);
                        return Step::Compute { ns };
                    }
                    self.end(burst, now_ns);
                }
                Doing::Sleeping(_, at_ns) if at_ns > now_ns => {
                    return self.pass_on(now_ns).unwrap_or(Step::SleepUntil { at_ns });
                }
                Doing::Sleeping(burst, due_ns) => self.begin(burst, due_ns),
                Doing::Waiting { .. } => {
                    if self.has_done_all() {
                        match self.leaves_behind(now_ns) {
                            Some(burst) => self.taken.push_back(burst),
                            None => return Step::Exit,
                        }
                    }
                    match self.choose(now_ns) {
                        Ok((burst, due_ns)) => self.begin(burst, due_ns),
                        Err(_) if !self.to_wake.is_empty() || !self.is_waiting() => {}
                        Err(until) => {
                            if let Some(step) = self.pass_on(now_ns) {
                                return step;
                            }
                            let channel = ChannelId(self.thread);
                            return match until {
                                Some(at_ns) => Step::ReceiveUntil { channel, at_ns },
                                None => Step::Receive { channel },
                            };
                        }
                    }
                }
            }
        }
    }
}
