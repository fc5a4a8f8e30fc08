// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tasks' programs: one step after the other, and the channels between them.
use super::dispatch::stretch;
use super::events::{Timer, NEVER};
use super::input::check_task;
use super::state::{Channel, Pending, State, NONE};
use super::{entry, Engine};
use crate::behaviour::{Context, Step};
use crate::class::Class;
use crate::config::{GroupId, TaskId, TaskSpec};
use crate::error::RunError;
use rand::Rng;

/// More steps than this without time passing are an endless loop.
const INSTANT_STEPS_MAX: u32 = 1_000_000;
/// The same for external tasks: their messages take no time, and a burst of them may be 1,000,000 (`size` of a workload's
/// arrivals).
const EXTERNAL_STEPS_MAX: u32 = 10_000_000;

impl<C: Class> Engine<'_, C> {
    /// The running task's work is done: what it was for takes effect, and the next step begins.
    pub(super) fn work_done(&mut self, cpu: u32) {
        let task = self.cpus[cpu as usize].running;
        self.stepping = cpu;
        loop {
            let pending = std::mem::replace(&mut self.tasks[task as usize].pending, Pending::Next);
            match pending {
                Pending::Next => {}
                Pending::Sleep { at_ns } => {
                    if at_ns > self.now_ns {
                        self.set_sleep(task, at_ns);
                        return self.stop_stepping(cpu, State::Blocked);
                    }
                }
                Pending::Send { channel, value } if self.channels[channel as usize].loopback => {
                    let wait_ns = self.route(cpu);
                    self.tasks[task as usize].pending = Pending::Deliver { channel, value };
                    if wait_ns == 0 {
                        continue;
                    }
                    self.begin_work(cpu, 0);
                    self.stall(cpu, wait_ns);
                    return;
                }
                Pending::Send { channel, value } | Pending::Deliver { channel, value } => {
                    if !self.send(task, channel, value, cpu) {
                        return self.stop_stepping(cpu, State::Blocked);
                    }
                }
                Pending::Receive { channel, until_ns } => {
                    if !self.receive(task, channel, until_ns, cpu) {
                        return self.stop_stepping(cpu, State::Blocked);
                    }
                }
                Pending::ReadClock => self.charge(cpu, true),
                Pending::Yield => {
                    self.stepping = NONE;
                    let state = &mut self.cpus[cpu as usize];
                    state.work_ns = 0;
                    state.work_from_ns = self.now_ns;
                    state.work_end_ns = NEVER;
                    return self.give_way(cpu);
                }
                Pending::Exit => return self.stop_stepping(cpu, State::Exited),
            }
            let cpu_ns = self.tasks[task as usize].cpu_ns
                + self.now_ns.saturating_sub(self.cpus[cpu as usize].exec_ns);
            let step = self.ask(task, cpu, cpu_ns);
            let (mut work_ns, pending) = self.costs_of(task, step);
            let entry = &mut self.tasks[task as usize];
            work_ns = work_ns.saturating_add(std::mem::take(&mut entry.debt_ns));
            entry.pending = pending;
            if work_ns == 0 {
                entry.instant_steps += 1;
                if entry.instant_steps < INSTANT_STEPS_MAX {
                    continue;
                }
                self.never_waits(task);
                return self.begin_work(cpu, 1);
            }
            entry.instant_steps = 0;
            return self.begin_work(cpu, work_ns);
        }
    }

    /// A behaviour lets no time pass.
    fn never_waits(&mut self, task: u32) {
        let why = format!(
            "task {:?} takes steps without end",
            self.services.name(TaskId(task))
        );
        self.is_stuck(why);
    }

    /// The running task's step takes so much work from now on.
    fn begin_work(&mut self, cpu: u32, work_ns: u64) {
        self.stepping = NONE;
        let state = &mut self.cpus[cpu as usize];
        state.work_ns = work_ns;
        state.work_from_ns = self.now_ns;
        state.work_end_ns = self.now_ns.saturating_add(stretch(work_ns, state.speed_percent));
    }

    /// What counting a packet's reference to the loopback route costs its sender: taken and dropped again where the packet
    /// is sent, as that is where it is received, too, so the line is fetched once.
    fn route(&mut self, cpu: u32) -> u64 {
        let mut seen = 0;
        self.route_line
            .write(cpu, &mut seen, self.now_ns, 0, &self.topo, &self.costs)
    }

    fn stop_stepping(&mut self, cpu: u32, state: State) {
        self.stepping = NONE;
        // What waking others cost is not charged to the sleeper when it wakes up: it delays the task that runs next.
        let task = self.cpus[cpu as usize].running;
        if state == State::Exited {
            self.exited(task);
        }
        self.cpus[cpu as usize].work_ns = 0;
        self.cpus[cpu as usize].work_from_ns = self.now_ns;
        let debt_ns = std::mem::take(&mut self.tasks[task as usize].debt_ns);
        self.block(cpu, state);
        self.overhead(cpu, debt_ns);
    }

    /// Asks a task's program for its next step.
    fn ask(&mut self, task: u32, cpu: u32, cpu_ns: u64) -> Step {
        let received = self.tasks[task as usize].received.take();
        let mut context = Context {
            services: &mut self.services,
            task: TaskId(task),
            now_ns: self.now_ns,
            cpu_ns,
            cpu,
            received,
        };
        let step = self.behaviours[task as usize].next(&mut context);
        if self.services.asked {
            self.take_over(task, cpu);
            if self.failed.is_some() {
                // The run is over; what is left of it must not do anything.
                return Step::Compute { ns: 1 };
            }
        }
        step
    }

    /// Channels and tasks that a program has just made begin to exist.
    #[cold]
    fn take_over(&mut self, task: u32, cpu: u32) {
        self.services.asked = false;
        for spec in std::mem::take(&mut self.services.new_channels) {
            self.channels.push(Channel::new(spec));
        }
        for mut spawned in std::mem::take(&mut self.services.spawned) {
            let child = spawned.task;
            if spawned.inherits {
                self.inherit(task, &mut spawned.spec);
            }
            let (nr_groups, nr_workloads) = (self.memory.side(), self.workloads.len() as u32);
            if let Err(problem) = check_task(&spawned.spec, nr_groups, nr_workloads, self.cpus.len() as u32) {
                self.services.refuse(problem);
                break;
            }
            self.add_task(child, spawned.spec, cpu);
            if spawned.inherits {
                self.tasks[child.0 as usize].forked_by = task;
                self.forks.insert((task, child.0));
            }
        }
        if let Some(mut problem) = self.services.problem.take() {
            let name = self.services.name(TaskId(task));
            problem.what = format!("task {name}: asks for {}", problem.what);
            let at_ns = self.now_ns;
            self.fails(RunError::Program { at_ns, problem });
        }
    }

    /// What a fork takes over: the children of a task that was moved, or given other CPUs, are moved as well from then on.
    fn inherit(&self, parent: u32, child: &mut TaskSpec) {
        let parent = &self.tasks[parent as usize];
        child.group = GroupId(parent.group);
        child.nice = i32::from(parent.nice);
        child.idle = parent.idle_class;
        child.affinity = parent.affinity.as_deref().cloned();
    }

    /// CPU time that a step takes, and what happens after it.
    fn costs_of(&mut self, task: u32, step: Step) -> (u64, Pending) {
        let syscall_ns = self.costs.syscall_ns;
        // Never free, or tasks that talk and do nothing else would stop time, as would two that yield to each other.
        let channel_ns = (syscall_ns + self.costs.channel_ns).max(1);
        let receive_ns = channel_ns + self.costs.receive_extra_ns;
        match step {
            Step::Compute { ns } => (ns, Pending::Next),
            Step::SleepUntil { at_ns } => (syscall_ns, Pending::Sleep { at_ns }),
            Step::Send { channel, .. } | Step::Receive { channel } | Step::ReceiveUntil { channel, .. }
                if channel.0 as usize >= self.channels.len() =>
            {
                self.services.unknown("channel", channel.0, self.channels.len());
                self.take_over(task, NONE);
                (1, Pending::Next)
            }
            Step::Send { channel, value } => (
                channel_ns,
                Pending::Send {
                    channel: channel.0,
                    value,
                },
            ),
            Step::Receive { channel } => (
                receive_ns,
                Pending::Receive {
                    channel: channel.0,
                    until_ns: NEVER,
                },
            ),
            Step::ReceiveUntil { channel, at_ns } => (
                receive_ns,
                Pending::Receive {
                    channel: channel.0,
                    until_ns: at_ns,
                },
            ),
            Step::ReadClock => (syscall_ns, Pending::ReadClock),
            Step::Yield => (syscall_ns.max(1), Pending::Yield),
            Step::Exit => (syscall_ns, Pending::Exit),
        }
    }

    /// The running task goes behind the next one.
    fn give_way(&mut self, cpu: u32) {
        self.charge(cpu, false);
        let state = &self.cpus[cpu as usize];
        let (task, first) = (state.running, state.queue.head_key());
        self.class.yields(&mut entry!(self, task, cpu), first);
        // Nothing is left to do of this step: the next one begins as soon as the task runs again.
        self.cpus[cpu as usize].work_end_ns = self.now_ns;
        self.resched(cpu, 0);
    }

    /// The line that a channel's ends share, fetched by a CPU.
    fn channel_line(&mut self, channel: u32, cpu: u32) {
        let last = std::mem::replace(&mut self.channels[channel as usize].cpu, cpu);
        if last != cpu && last != NONE {
            let cost_ns = self.topo.cost(&self.costs.line, last, cpu);
            self.overhead(cpu, cost_ns);
        }
    }

    /// false: the channel is full, and the task waits with its value.
    fn send(&mut self, task: u32, channel: u32, value: u64, cpu: u32) -> bool {
        if cpu != NONE {
            self.channel_line(channel, cpu);
        }
        let state = &mut self.channels[channel as usize];
        if state.nr_receivers > 0 {
            state.nr_receivers -= 1;
            let receiver = state.receivers.pop_front().expect("nr_receivers is their number");
            let (sync, lines) = (state.sync, state.lines);
            let entry = &mut self.tasks[receiver as usize];
            entry.received = Some(value);
            // What comes from another machine, no CPU of this one has written.
            entry.fetch_lines = if cpu == NONE { 0 } else { lines };
            entry.fetch_from = cpu as u16;
            entry.waits_for = NONE;
            self.cancel_sleep(receiver);
            self.wake(receiver, cpu, sync);
            return true;
        }
        if state.values.len() < state.capacity as usize {
            state.push(value, cpu);
            return true;
        }
        state.senders.push_back((task, value));
        self.tasks[task as usize].waits_for = channel;
        false
    }

    /// false: the channel is empty, and the task waits.
    fn receive(&mut self, task: u32, channel: u32, until_ns: u64, cpu: u32) -> bool {
        if cpu != NONE {
            self.channel_line(channel, cpu);
        }
        let state = &mut self.channels[channel as usize];
        let Some((value, from)) = state.pop() else {
            if until_ns <= self.now_ns {
                return true;
            }
            state.receivers.push_back(task);
            state.nr_receivers += 1;
            self.tasks[task as usize].waits_for = channel;
            if until_ns != NEVER {
                self.set_sleep(task, until_ns);
            }
            return false;
        };
        self.tasks[task as usize].received = Some(value);
        let lines = u64::from(state.lines);
        if state.values.len() <= state.wake_level as usize && !state.senders.is_empty() {
            self.wake_senders(channel, cpu);
        }
        if from != NONE && cpu != NONE {
            self.stall(cpu, lines * self.topo.cost(&self.costs.line, from, cpu));
        }
        true
    }

    /// Blocked senders' values go into the channel as far as there is room.
    fn wake_senders(&mut self, channel: u32, cpu: u32) {
        loop {
            let state = &mut self.channels[channel as usize];
            if state.values.len() >= state.capacity as usize {
                return;
            }
            let Some((sender, value)) = state.senders.pop_front() else {
                return;
            };
            state.push(value, self.tasks[sender as usize].policy.cpu);
            let sync = state.sync;
            self.tasks[sender as usize].waits_for = NONE;
            self.wake(sender, cpu, sync);
        }
    }

    fn set_sleep(&mut self, task: u32, at_ns: u64) {
        let entry = &mut self.tasks[task as usize];
        let rank = if self.costs.turns { entry.policy.cpu + 1 } else { 0 };
        entry.timer = self.timers.push_ranked(at_ns, rank, Timer::Sleep { task });
    }

    /// What a task waited for came before its timer.
    fn cancel_sleep(&mut self, task: u32) {
        if std::mem::take(&mut self.tasks[task as usize].timer) == 0 || !self.timers.cancel() {
            return;
        }
        let tasks = &self.tasks;
        self.timers.clean(|entry| match entry.timer {
            Timer::Sleep { task } => tasks[task as usize].timer == entry.sequence,
            _ => true,
        });
    }

    /// A sleeper's timer fired.
    pub(super) fn sleep_over(&mut self, task: u32, sequence: u64) {
        let entry = &mut self.tasks[task as usize];
        if entry.timer != sequence {
            self.timers.passed();
            return;
        }
        entry.timer = 0;
        self.counts.timers += 1;
        let channel = std::mem::replace(&mut entry.waits_for, NONE);
        let (cpu, external) = (entry.policy.cpu, entry.external);
        if channel != NONE {
            let state = &mut self.channels[channel as usize];
            state.receivers.retain(|&t| t != task);
            state.nr_receivers = state.receivers.len() as u32;
        }
        if external {
            self.external_step(task);
            return;
        }
        // The timer was set on the CPU where the task went to sleep, and interrupts that one.
        let waker = if self.cpus[cpu as usize].online { cpu } else { NONE };
        if waker != NONE {
            self.overhead(waker, self.costs.timer_ns);
        }
        self.wake(task, waker, false);
    }

    /// The CPU that takes the interrupt of a message from another machine, and so wakes up the task that it is for: any
    /// one that is online, as a card with a queue for each CPU spreads its many connections.
    fn interrupted(&mut self) -> u32 {
        let nr_cpus = self.cpus.len() as u32;
        let mut cpu = self.interrupts_rng.random_range(0..nr_cpus);
        while !self.cpus[cpu as usize].online {
            cpu = (cpu + 1) % nr_cpus;
        }
        self.overhead(cpu, self.costs.timer_ns);
        cpu
    }

    /// An external task goes on: its steps take time, and none of our CPUs but for the interrupts of what it sends.
    pub(super) fn external_step(&mut self, task: u32) {
        self.tasks[task as usize].instant_steps = 0;
        loop {
            let pending = std::mem::replace(&mut self.tasks[task as usize].pending, Pending::Next);
            let blocked = match pending {
                Pending::Send { channel, value } => {
                    let cpu = self.interrupted();
                    !self.send(task, channel, value, cpu)
                }
                Pending::Receive { channel, until_ns } => !self.receive(task, channel, until_ns, NONE),
                _ => false,
            };
            if blocked {
                return;
            }
            let step = self.ask(task, 0, 0);
            let now_ns = self.now_ns;
            let entry = &mut self.tasks[task as usize];
            match step {
                Step::Compute { ns } => {
                    self.timers
                        .push(now_ns.saturating_add(ns), Timer::External { task });
                    return;
                }
                Step::SleepUntil { at_ns } => {
                    self.timers.push(at_ns.max(now_ns), Timer::External { task });
                    return;
                }
                Step::Exit => {
                    entry.state = State::Exited;
                    self.exited(task);
                    return;
                }
                step => {
                    let (_, pending) = self.costs_of(task, step);
                    if self.failed.is_some() {
                        return;
                    }
                    let entry = &mut self.tasks[task as usize];
                    entry.pending = pending;
                    entry.instant_steps += 1;
                    if entry.instant_steps >= EXTERNAL_STEPS_MAX {
                        return self.never_waits(task);
                    }
                }
            }
        }
    }

    fn exited(&mut self, task: u32) {
        let parent = self.tasks[task as usize].forked_by;
        if parent != NONE {
            self.forks.remove(&(parent, task));
            self.services.release(TaskId(task));
        }
        self.unfinished -= u32::from(!self.tasks[task as usize].background);
        if self.unfinished == 0 && self.stop_when_done {
            self.ended = true;
        }
    }
}
