// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the engine keeps about a CPU, a task, a channel.
use super::events::NEVER;
use super::policy as pl;
use super::runqueue::RunQueue;
use super::topo::LEVELS;
use crate::config::{ChannelSpec, WorkloadId};
use crate::results::CpuResult;
use plimsoll_cpus::CpuSet;
use std::collections::VecDeque;

/// No task, no CPU, no order number.
pub(super) const NONE: u32 = u32::MAX;

/// A task that has exited.
pub(super) const GONE: u32 = u32::MAX - 1;

/// Fields in order of how often they are touched together: on large machines cache misses are what time goes to.
#[repr(C, align(64))]
pub(super) struct Cpu {
    // What it does now.
    pub running: u32,
    /// Neither running nor about to pick.
    pub idle: bool,
    pub online: bool,
    /// The task picked last is idle work.
    pub gives_way: bool,
    /// It is idle here only, and ran something as it was told of a task: see `Seat::gave_way_ns_on`.
    pub awake: bool,
    /// Run time is charged up to here; ahead of now while the CPU is still on its way to the task.
    pub exec_ns: u64,
    /// To be charged on top of that, see `Costs::idle_charged_ns`.
    pub early_ns: u64,
    /// The running task's work: what was left, as of when, and when it will be done.
    pub work_ns: u64,
    pub work_from_ns: u64,
    pub work_end_ns: u64,
    pub speed_percent: u32,

    // When it looks up from it.
    pub tick_ns: u64,
    pub resched_ns: u64,
    /// Whose turn is next, whatever the rules say; NONE: they decide.
    pub first: u32,
    /// Until then the end of a slice takes the CPU from nothing: see [`crate::When::After`].
    pub keeps_ns: u64,
    /// End of the slice or of the run time, where a timer enforces them.
    pub limit_ns: u64,
    pub slice_end_ns: u64,
    /// What the kernel has done since the last task was taken off: the next one begins so much later.
    pub owed_ns: u64,

    pub fair: pl::FairCpu,
    pub queue: RunQueue,
    pub steal: pl::Steal,
    pub newidle: [pl::Newidle; LEVELS],
    pub next_balance_ns: [u64; LEVELS],
    /// How many tasks were runnable here, on average, as seen at ticks; kept where the policy asks for it.
    pub runnable: pl::Pelt,
    /// What they weighed on average; likewise.
    pub load: pl::Pelt,
    /// Whose head is looked at next for a pull on lag.
    pub look_at: u32,
    /// The task that ran last (NONE: the idle one), and the address space that is loaded.
    pub last: u32,
    pub address_space: u32,

    /// Until when it is busy with the tasks that the fair class has it wake, one after the other.
    pub waking_until_ns: u64,
    /// What the fair class's searches for an idle CPU took on average.
    pub scan_cost_ns: u64,
    /// How long a virtual CPU polls at present, see `Costs::halt_poll_ns`.
    pub halt_poll_ns: u64,

    /// While idle: since when (ahead of now while it is still searching).
    pub idle_from_ns: u64,
    pub idle_total_ns: u64,
    /// While off line: since when.
    pub offline_from_ns: u64,
    pub offline_total_ns: u64,
    pub stats: CpuResult,
    /// Where tasks that woke up here went, by enum pl_place.
    pub placed: [u64; pl::PLACES],
}

impl Cpu {
    pub fn new(cpu: u32) -> Self {
        let fair: pl::FairCpu = pl::zeroed();
        let mut steal: pl::Steal = pl::zeroed();
        let mut newidle = pl::zeroed();
        pl::pl_newidle_init(&mut newidle);
        // As the kernel begins: idle for long, so that the first searches are made.
        steal.avg_idle_ns = 1_000_000;
        Self {
            running: NONE,
            idle: true,
            online: true,
            gives_way: false,
            awake: false,
            exec_ns: 0,
            early_ns: 0,
            work_ns: 0,
            work_from_ns: 0,
            work_end_ns: NEVER,
            speed_percent: 100,
            tick_ns: NEVER,
            resched_ns: NEVER,
            first: NONE,
            keeps_ns: 0,
            limit_ns: NEVER,
            slice_end_ns: 0,
            owed_ns: 0,
            fair,
            queue: RunQueue::default(),
            steal,
            newidle: [newidle; LEVELS],
            next_balance_ns: [0; LEVELS],
            runnable: pl::zeroed(),
            load: pl::zeroed(),
            look_at: cpu,
            last: NONE,
            address_space: 0,
            waking_until_ns: 0,
            scan_cost_ns: 0,
            halt_poll_ns: 0,
            idle_from_ns: 0,
            idle_total_ns: 0,
            offline_from_ns: 0,
            offline_total_ns: 0,
            stats: CpuResult::default(),
            placed: [0; pl::PLACES],
        }
    }

    #[inline]
    pub fn next_ns(&self) -> u64 {
        self.work_end_ns
            .min(self.tick_ns)
            .min(self.resched_ns.min(self.limit_ns))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not started yet.
    New,
    Running,
    /// In its CPU's queue.
    Queued,
    /// Runnable, but a level of its group is throttled on its CPU.
    Parked,
    /// Sleeps or waits for a channel.
    Blocked,
    Exited,
}

/// What takes effect when the present work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    /// The next step is to be asked for.
    Next,
    Sleep {
        at_ns: u64,
    },
    Send {
        channel: u32,
        value: u64,
    },
    /// A packet that has its reference to the route.
    Deliver {
        channel: u32,
        value: u64,
    },
    Receive {
        channel: u32,
        until_ns: u64,
    },
    ReadClock,
    Yield,
    Exit,
}

/// A few cache lines: what every step touches, what the policy touches, the rest.
#[repr(C, align(64))]
pub(super) struct Task {
    pub pending: Pending,
    /// Work left of the present step, at full speed.
    pub work_ns: u64,
    /// What the kernel did on its behalf after a step: done before the next one.
    pub debt_ns: u64,
    pub received: Option<u64>,
    /// Steps in a row that took no time: a program that never lets time pass is a mistake of its author.
    pub instant_steps: u32,
    pub state: State,
    pub external: bool,
    pub background: bool,
    pub idle_class: bool,
    pub follows_waker: bool,
    /// NONE: anywhere.
    pub start_cpu: u32,

    pub policy: pl::Task,
    pub group: u32,
    /// Order number in its CPU's queue.
    pub order: u32,
    pub last_cpu: u32,
    pub workload: WorkloadId,

    /// Run time so far.
    pub cpu_ns: u64,
    pub runnable_ns: u64,
    pub last_ran_ns: u64,
    /// Sequence number of the timer that may wake it; 0: none.
    pub timer: u64,
    pub affinity: Option<Box<CpuSet>>,
    /// The channel it waits for; NONE: none.
    pub waits_for: u32,
    /// The group whose throttling parked it, and its neighbours there.
    pub parked_by: u32,
    pub parked_next: u32,
    pub parked_previous: u32,
    pub address_space: u32,
    /// NONE: the task was not forked.
    pub forked_by: u32,
    pub nice: i8,
    /// Lines of what it has received that it fetches as soon as it runs, and the CPU that wrote them.
    pub fetch_lines: u8,
    pub fetch_from: u16,
    /// Where it ran before its previous CPU, as the fair class remembers it.
    pub recent_cpu: u32,
    pub waker: pl::Waker,
}

const _: () = assert!(std::mem::size_of::<Task>() <= 256);

/// Three cache lines; the second is touched only when a task waits, the third if values have lines.
#[repr(C, align(64))]
pub(super) struct Channel {
    pub capacity: u32,
    pub wake_level: u32,
    pub sync: bool,
    pub loopback: bool,
    pub lines: u8,
    /// The CPU that used it last.
    pub cpu: u32,
    /// receivers.len()
    pub nr_receivers: u32,
    pub values: VecDeque<u64>,
    pub receivers: VecDeque<u32>,
    pub senders: VecDeque<(u32, u64)>,
    /// Where the values were sent; kept if they have lines.
    pub from: VecDeque<u32>,
}

impl Channel {
    /// Puts a value in that was sent on a CPU (NONE: on another machine).
    #[inline]
    pub fn push(&mut self, value: u64, cpu: u32) {
        self.values.push_back(value);
        if self.lines > 0 {
            self.from.push_back(cpu);
        }
    }

    /// Takes the oldest value out. Where it was sent, if it has lines; else NONE.
    #[inline]
    pub fn pop(&mut self) -> Option<(u64, u32)> {
        let value = self.values.pop_front()?;
        let from = match self.lines {
            0 => None,
            _ => self.from.pop_front(),
        };
        Some((value, from.unwrap_or(NONE)))
    }

    pub fn new(spec: ChannelSpec) -> Self {
        Self {
            capacity: spec.capacity,
            sync: spec.sync,
            loopback: spec.loopback,
            lines: spec.lines,
            wake_level: spec.wake_level.min(spec.capacity - 1),
            cpu: NONE,
            nr_receivers: 0,
            values: VecDeque::new(),
            receivers: VecDeque::new(),
            senders: VecDeque::new(),
            from: VecDeque::new(),
        }
    }
}
