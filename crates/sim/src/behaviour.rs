// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a task does: a sequence of steps, decided one at a time.
use crate::config::{ChannelId, CounterId, GroupId, LatencyId, TaskId, TaskSpec};
use crate::engine::Services;
use rand_pcg::Pcg64;

/// The next thing a task does. All but Compute enter the kernel, which costs time of its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Runs for this much CPU time at full speed. A busy sibling, cold caches, interrupts stretch it.
    Compute {
        /// CPU time, in ns.
        ns: u64,
    },
    /// Sleeps until the clock of [`Context::now_ns`] shows `at_ns`; in the past: goes on at once.
    SleepUntil {
        /// Time of the run.
        at_ns: u64,
    },
    /// Puts a value into a channel; blocks while it is full.
    Send {
        /// Where to.
        channel: ChannelId,
        /// What.
        value: u64,
    },
    /// Takes the oldest value out of a channel; blocks while it is empty. See [`Context::received`].
    Receive {
        /// Where from.
        channel: ChannelId,
    },
    /// Takes the oldest value, or gives up at `at_ns`.
    ReceiveUntil {
        /// Where from.
        channel: ChannelId,
        /// Time of the run.
        at_ns: u64,
    },
    /// Reads the task's own CPU clock: the kernel charges its group for that, and may throttle it, without waiting for
    /// a tick.
    ReadClock,
    /// Lets others run first.
    Yield,
    /// The task ends.
    Exit,
}

/// Where a recorded kernel put a task that it woke. It goes there again if the CPU is idle, or if it was as busy then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Where the task went; `None`: the rules decide.
    pub cpu: Option<u32>,
    /// Where its waker ran; `None`: a timer or a device woke it.
    pub waker_cpu: Option<u32>,
    /// What there was to choose from.
    pub choice: Choice,
    /// When its turn came, if that CPU ran something; `None`: the rules decide.
    pub turn: Option<Turn>,
    /// What it was owed then beside another group's task that ran there. `None`: what follows from the run so far.
    pub owed: Option<Owed>,
    /// How long that CPU took to run it: to come back from idle, or until what was not recorded, such as the client that woke it, gave
    /// way. It takes as long if it is idle now, or, in the second case, runs another group's task. `None`: the rules decide.
    pub took_ns: Option<u32>,
}

impl Seat {
    /// See [`Seat::took_ns`]; of the CPU that the task goes to now.
    pub(crate) fn took_ns_on(&self, cpu: u32) -> Option<u64> {
        self.took_ns.filter(|_| self.cpu == Some(cpu)).map(u64::from)
    }

    /// The same, where it was not idle.
    pub(crate) fn gave_way_ns_on(&self, cpu: u32) -> Option<u64> {
        self.took_ns_on(cpu).filter(|_| self.choice != Choice::Idle)
    }
}

/// What a task that has just been woken, or its group, is owed beside one that runs, and what that one is: ns of service; below 0 they
/// owe that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owed {
    /// Of the woken one.
    pub own_ns: i32,
    /// The group of the one that ran then.
    pub beside: GroupId,
    /// What that was owed.
    pub beside_ns: i32,
}

/// When the turn of a woken task came. What tasks and groups are owed follows from all that ran before, and no recording tells of
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The group of the task that ran. Where another group's ran then and one of its own does now the rules decide.
    pub of: GroupId,
    /// When.
    pub when: When,
    /// If one of its own ran: for how long others did before its turn came. So long it waits where others run now.
    pub others_ns: u32,
}

/// When the turn of a woken task came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At once: it took the CPU.
    Now,
    /// Before any other, as that one was done. From another group's than that it takes the CPU.
    Next,
    /// As that one had had its slice.
    AfterSlice,
    /// As others than its own group had had the CPU for so long, which the rules need not tell: a neighbour that is in the
    /// kernel gives way late, or not at all. Where that one ends sooner its turn comes then.
    After {
        /// Since it was woken.
        ns: u32,
    },
}

/// What that kernel had to choose from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The CPU was idle.
    Idle,
    /// It was not, and another one was.
    NotIdle,
    /// None was.
    NoneIdle,
}

/// A program. Called again each time its last step is complete; it may hold any state of its own, but takes time
/// and randomness from the context only.
pub trait Behaviour: Send {
    /// The next step, once the last one is complete.
    fn next(&mut self, ctx: &mut Context) -> Step;

    /// Where a wake-up by `message` (`None`: by a timer) went when the workload was recorded; `None`: not known.
    fn woken_on(&self, _message: Option<u64>) -> Option<Seat> {
        None
    }
}

impl<F: FnMut(&mut Context) -> Step + Send> Behaviour for F {
    fn next(&mut self, ctx: &mut Context) -> Step {
        self(ctx)
    }
}

/// What a task sees of the machine while it decides.
pub struct Context<'a> {
    pub(crate) services: &'a mut Services,
    pub(crate) task: TaskId,
    pub(crate) now_ns: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) cpu: u32,
    pub(crate) received: Option<u64>,
}

impl Context<'_> {
    /// Time since the run began.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// CPU time that this task has used (CLOCK_THREAD_CPUTIME_ID).
    pub fn cpu_time_ns(&self) -> u64 {
        self.cpu_ns
    }

    /// The task itself.
    pub fn task(&self) -> TaskId {
        self.task
    }

    /// The CPU it is on (sched_getcpu); for an external task, 0.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// CPUs of the machine, whether on line or not.
    pub fn nr_cpus(&self) -> u32 {
        self.services.nr_cpus
    }

    /// The value that the last step received; `None` if it was not a receive, or the wait timed out.
    pub fn received(&self) -> Option<u64> {
        self.received
    }

    /// This task's own stream of random numbers, from the run's seed and the task's name.
    pub fn rng(&mut self) -> &mut Pcg64 {
        self.services.rng(self.task)
    }

    /// Adds a latency to a histogram, unless the run is still warming up.
    pub fn record(&mut self, latency: LatencyId, ns: u64) {
        self.services.record(latency, ns);
    }

    /// Adds to a counter, unless the run is still warming up.
    pub fn count(&mut self, counter: CounterId, n: u64) {
        self.services.count(counter, n);
    }

    /// Starts a task that has nothing to do with this one, at the later of `spec.start_ns` and now. Returns its id.
    pub fn spawn(&mut self, spec: TaskSpec) -> TaskId {
        self.services.spawn(spec, false)
    }

    /// Starts a process of this task's own, as fork does: in the group in which this task is now, with its nice value,
    /// class and affinity, whatever `spec` says of them. As long as it lives, changes of this task are changes of it,
    /// too: to an administrator, the two are one workload.
    pub fn fork(&mut self, spec: TaskSpec) -> TaskId {
        self.services.spawn(spec, true)
    }

    /// Makes a channel; capacity at least 1.
    pub fn add_channel(&mut self, capacity: u32) -> ChannelId {
        self.services.add_channel(capacity)
    }
}
