// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine at work.
//!
//! One event after the other, in order of time: a timer, or a CPU whose work ends, whose tick comes, that is
//! interrupted. An engine moves tasks, time and memory; what is decided about them is asked of the policy.
mod balance;
mod bandwidth;
mod bound;
mod changes;
mod check;
mod dispatch;
mod events;
mod fair_wake;
mod headroom;
pub(crate) mod input;
mod ledger;
mod lines;
#[allow(unsafe_code)]
pub(crate) mod policy;
mod report;
mod runqueue;
mod services;
mod setup;
mod state;
mod steps;
mod topo;
pub(crate) mod turns;
mod wake;

pub(crate) use services::Services;

use crate::behaviour::{Behaviour, Seat};
use crate::class::{Class, CpuSeen, Seen};
use crate::config::{Change, Costs, Policy};
use crate::error::{RunError, Stuck};
use crate::histogram::Histogram;
use crate::observer::Observer;
use crate::results::{EventCounts, RunDelay, Touches};
use events::{Slots, Timer, Timers};
use lines::Line;
use plimsoll_cpus::CpuSet;
use policy as pl;
use policy::Memory;
use state::{Channel, Cpu, Task, NONE};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use topo::{LlcState, Topo};

/// What a class sees of a task, and may change of it.
macro_rules! entry {
    ($engine:expr, $task:expr, $cpu:expr) => {{
        let task = &mut $engine.tasks[$task as usize];
        crate::class::Entry {
            task: crate::config::TaskId($task),
            cpu: $cpu,
            now_ns: $engine.now_ns,
            number: task.group,
            policy: &mut task.policy,
            fair: &mut $engine.cpus[$cpu as usize].fair,
            config: &$engine.policy.core.fair,
        }
    }};
}
use entry;

/// What a class sees of a task, while the class is borrowed.
macro_rules! seen {
    ($engine:expr, $task:expr) => {{
        let task = &$engine.tasks[$task as usize];
        crate::class::Seen {
            task: crate::config::TaskId($task),
            number: task.group,
            policy: &task.policy,
            config: &$engine.policy.core.fair,
        }
    }};
}
use seen;

/// So many events at one time mean that time stands still.
const EVENTS_AT_ONCE_MAX: u32 = 50_000_000;

/// Events between two looks at the flag that cancels a run: well below a millisecond.
const CANCEL_EVENTS: u32 = 1024;

pub(crate) struct Engine<'o, C> {
    pub(crate) now_ns: u64,
    pub(crate) ended: bool,
    /// Why the run ended without results.
    pub(crate) failed: Option<RunError>,
    topo: Topo,
    costs: Costs,
    policy: Policy,
    tick_len_ns: u64,
    tick_phase_ns: u64,
    tick_stagger_ns: u64,
    clock_start_ns: u64,
    stop_when_done: bool,
    /// Events between two checks of the invariants; 0: never.
    check_every: u32,
    since_check: u32,
    check_counts: check::Counts,
    /// Where every event is checked.
    ledger: Option<Box<ledger::Ledger>>,
    changes: Vec<Change>,

    slots: Slots,
    timers: Timers,
    cpus: Vec<Cpu>,
    llcs: Vec<LlcState>,
    nr_online: u32,
    nr_busy: u32,
    nr_overloaded: u32,
    /// CPUs that run idle work.
    nr_give_way: u32,
    /// The CPU whose task is between two steps; NONE: no one's.
    stepping: u32,
    /// Of the task that is being woken, if it is known.
    seat: Option<Seat>,

    tasks: Vec<Task>,
    behaviours: Vec<Box<dyn Behaviour>>,
    /// Tasks to start that wait for their time.
    unfinished: u32,
    /// Forks that live, behind their parents.
    forks: BTreeSet<(u32, u32)>,
    channels: Vec<Channel>,
    /// References to the loopback network's route.
    route_line: Line,
    services: Services,

    memory: Memory,
    pub(crate) class: C,
    paths: Vec<String>,
    phases_ns: Vec<u64>,
    own_cpusets: Vec<Option<CpuSet>>,
    /// With the ancestors', and only CPUs online; `None`: all that are.
    cpusets: Vec<Option<CpuSet>>,
    /// When the group's period timer is due; one that fires at another time was set again meanwhile.
    period_at_ns: Vec<u64>,
    is_side: Vec<bool>,
    /// A group has had a quota at some time of the run.
    had_quota: Vec<bool>,
    headroom: pl::Headroom,
    headroom_marks: headroom::Marks,
    released: Vec<u32>,
    unparked: Vec<u32>,

    observer: Option<&'o mut dyn Observer>,
    counts: EventCounts,
    touches: Touches,
    newidle_rng: rand_pcg::Pcg64,
    interrupts_rng: rand_pcg::Pcg64,
    group_usage_ns: Vec<u64>,
    group_delays: Vec<RunDelay>,
    workload_usage_ns: Vec<u64>,
    workload_delays: Vec<Histogram>,
    workloads: Vec<String>,
    latencies: Vec<(crate::config::WorkloadId, String)>,
    counters: Vec<(crate::config::WorkloadId, String)>,
    warm: report::WarmUp,
}

impl<C: Class> Engine<'_, C> {
    /// Handles all events up to and including those at `until_ns`, or to the end. `cancel` is looked at now and then.
    pub(crate) fn run_until(&mut self, until_ns: u64, cancel: Option<&AtomicBool>) {
        let (mut last_ns, mut events_at_once, mut events) = (self.now_ns, 0, 0u32);
        while !self.ended {
            if self.now_ns != last_ns {
                (last_ns, events_at_once) = (self.now_ns, 0);
            }
            events_at_once += 1;
            if events_at_once == EVENTS_AT_ONCE_MAX {
                self.is_stuck(format!("{EVENTS_AT_ONCE_MAX} events follow each other"));
            }
            events = events.wrapping_add(1);
            if events % CANCEL_EVENTS == 0 && cancel.is_some_and(|flag| flag.load(Ordering::Relaxed)) {
                let at_ns = self.now_ns;
                return self.fails(RunError::Cancelled { at_ns });
            }
            let timer_ns = self.timers.next_ns();
            let (cpu_ns, cpu) = self.slots.earliest();
            if timer_ns.min(cpu_ns) > until_ns {
                self.now_ns = self.now_ns.max(until_ns);
                return;
            }
            if timer_ns <= cpu_ns {
                let Some(entry) = self.timers.pop() else { break };
                debug_assert!(entry.at_ns >= self.now_ns);
                self.now_ns = entry.at_ns;
                self.timer(entry.timer, entry.sequence);
            } else {
                debug_assert!(cpu_ns >= self.now_ns);
                self.now_ns = cpu_ns;
                self.cpu_event(cpu);
            }
            if self.check_every > 0 {
                self.since_check += 1;
                if self.since_check >= self.check_every {
                    self.since_check = 0;
                    self.check_invariants();
                    self.check_books();
                }
            }
        }
    }

    /// Ends the run.
    fn is_stuck(&mut self, why: String) {
        let at_ns = self.now_ns;
        self.fails(Stuck { at_ns, why }.into());
    }

    /// Likewise; what came first is the reason.
    fn fails(&mut self, why: RunError) {
        self.failed.get_or_insert(why);
        self.ended = true;
    }

    fn timer(&mut self, timer: Timer, sequence: u64) {
        match timer {
            Timer::Sleep { task } => self.sleep_over(task, sequence),
            Timer::Start { task } => self.start_task(task),
            Timer::External { task } => self.external_step(task),
            Timer::Wake { task, waker, sync } => self.wake_found(task, waker, sync),
            Timer::Woken { task, cpu, waker } => self.woken(task, cpu, waker),
            Timer::Offer { task } => self.offer(task),
            Timer::Turn { task, cpu, ns } => self.turn_comes(task, cpu, ns),
            Timer::Period { group } => self.period(group),
            Timer::Slack { group } => self.slack(group),
            Timer::Headroom => self.headroom_window(),
            Timer::Change { index } => self.change(index),
            Timer::WarmUp => self.warm_up(),
            Timer::End => self.ended = true,
        }
    }

    /// One thing that is due on a CPU; if there are more, the next event is this CPU's again.
    fn cpu_event(&mut self, cpu: u32) {
        let state = &self.cpus[cpu as usize];
        let now_ns = self.now_ns;
        if state.tick_ns == now_ns {
            self.tick(cpu);
        } else if state.resched_ns == now_ns {
            self.reschedule(cpu);
        } else if state.limit_ns == now_ns {
            self.limit(cpu);
        } else {
            self.work_done(cpu);
        }
        self.update_slot(cpu);
    }

    #[inline]
    fn update_slot(&mut self, cpu: u32) {
        self.slots.set(cpu, self.cpus[cpu as usize].next_ns());
    }

    /// What a class sees of a task.
    #[inline]
    fn seen(&self, task: u32) -> Seen<'_> {
        seen!(self, task)
    }

    /// What a class sees of a CPU.
    #[inline]
    fn cpu_seen(&self, cpu: u32) -> CpuSeen<'_> {
        CpuSeen {
            cpu,
            fair: &self.cpus[cpu as usize].fair,
            config: &self.policy.core.fair,
        }
    }

    /// What a task is ordered by among those that wait on its CPU.
    #[inline]
    fn key(&self, task: u32) -> u64 {
        self.class.key(&self.seen(task))
    }

    #[inline]
    fn running(&self, cpu: u32) -> Option<u32> {
        let task = self.cpus[cpu as usize].running;
        (task != NONE).then_some(task)
    }

    /// Whether a task may run on a CPU.
    #[inline]
    fn allowed(&self, task: u32, cpu: u32) -> bool {
        let task = &self.tasks[task as usize];
        self.cpus[cpu as usize].online
            && task.affinity.as_ref().is_none_or(|set| set.contains(cpu))
            && self.cpusets[task.group as usize]
                .as_ref()
                .is_none_or(|set| set.contains(cpu))
    }
}
