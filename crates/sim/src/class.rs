// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The seam for a second policy: which task runs next on a CPU, and for how long.
//!
//! The engine keeps a queue of waiting tasks for each CPU, in ascending order of their [`Class::key`], those of one key in
//! order of arrival; it moves tasks and time, and holds limits, headroom and affinities for every class alike. What is left
//! to a class is the order in which tasks take turns. Every method has a default, and the defaults together are first come,
//! first served; [`crate::Plimsoll`] is what the policy's C headers say. `examples/fifo.rs` is one to copy.
use crate::behaviour::Owed;
use crate::config::{GroupId, TaskId};
use crate::engine::policy as pl;

/// By which rules a CPU's tasks take turns. Given to [`crate::Simulation::start_with`].
///
/// The order of calls for a task that is woken, runs and sleeps again: `moved` (if it comes from another CPU), `place`,
/// `join`, `key`, `comes` (if another one runs there), `pick`, `picked`, any number of `ran` and `tick`, `leave`.
///
/// ```
/// use plimsoll_sim::{Class, Config, Entry, GroupId, Machine, Simulation, Step, TaskSpec, Topology};
///
/// /// First come, first served, 5 ms at a time.
/// struct Fifo;
/// impl Class for Fifo {
///     fn picked(&mut self, _: &mut Entry) -> u64 {
///         5_000_000
///     }
/// }
///
/// let mut config = Config::new(Machine::new(Topology::flat(1)), 100_000_000);
/// let workload = config.add_workload("w");
/// for name in ["a", "b"] {
///     let spin = |_: &mut plimsoll_sim::Context| Step::Compute { ns: 1_000_000 };
///     config.add_task(TaskSpec::new(GroupId::ROOT, workload, name, spin));
/// }
/// let mut run = Simulation::new(config)?.start_with(Fifo, None);
/// run.run_until(u64::MAX)?;
/// let switches = run.finish().events.switches;
/// assert!((19..=21).contains(&switches), "{switches}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[allow(unused_variables)]
pub trait Class {
    /// The run begins.
    fn begin(&mut self, shape: &Shape) {}

    /// What else the engine does for this class.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// A task of this number comes into being; the one that had it before has exited.
    fn born(&mut self, task: TaskId) {}

    /// A task that is runnable, and not counted yet, has come from another CPU. For a class whose keys are of one CPU.
    fn moved(&mut self, entry: &mut Entry, from: &CpuSeen) {}

    /// A task is about to wait. `woken`: it slept, is new or was throttled; else it was preempted or moved. `alone`: the key
    /// of the task that runs there, if no other task waits.
    fn place(&mut self, entry: &mut Entry, woken: bool, alone: Option<u64>) {}

    /// A task is counted on its CPU. `bound`: where it may run; known to a class that needs that.
    fn join(&mut self, entry: &mut Entry, bound: Bound) {}

    /// It no longer is: it sleeps, or goes elsewhere, exits, or its group is throttled. Its time has been charged.
    fn leave(&mut self, entry: &mut Entry, sleeps: bool) {}

    /// What a waiting task is ordered by. It must not change while the task waits.
    fn key(&self, seen: &Seen) -> u64 {
        0
    }

    /// Whose turn it is among those that wait on a CPU, where no task runs. `first`: the one of the lowest key.
    fn pick(&mut self, on: &CpuSeen, now_ns: u64, first: TaskId) -> TaskId {
        first
    }

    /// A task begins to run, or goes on as if it had been picked. Run time until others are considered.
    fn picked(&mut self, entry: &mut Entry) -> u64 {
        u64::MAX
    }

    /// It ran for so long. `leaves`: it sleeps or exits now, and [`Self::leave`] is next.
    fn ran(&mut self, entry: &mut Entry, ran_ns: u64, leaves: bool) {}

    /// A tick came while it runs. `outweighed`: the policy's C finds, having weighed it anew, that its turn is over. Returns
    /// whether it is.
    fn tick(&mut self, entry: &mut Entry, outweighed: bool) -> bool {
        false
    }

    /// It lets others run first. `first`: the lowest key of those that wait.
    fn yields(&mut self, entry: &mut Entry, first: Option<u64>) {}

    /// The run time of the task that runs on a CPU after which its turn ends for one that has just begun to wait there; 0: at
    /// once. `None`: it ends as it would have.
    fn comes(&self, woken: &Seen, running: &Seen) -> Option<u64> {
        None
    }

    /// Whether such a task, or its group beside that of the one that runs, owes no time to others; `None`: nobody is owed what
    /// was long ago.
    fn owes_nothing(&self, woken: &Seen, running: &Seen) -> Option<bool> {
        None
    }

    /// Such a task was owed so much as it was recorded.
    fn owed(&mut self, woken: &Seen, owed: Owed) {}

    /// A CPU whose slice is over, or that has nothing to do, looks at one other, where `first` has the lowest key. `own`: the
    /// lowest of its own. Whether it looks for a task to take.
    fn looks(&self, to: &CpuSeen, own: Option<u64>, from: &CpuSeen, first: &Seen) -> bool {
        false
    }

    /// Whether it takes this one, the first that may move.
    fn pulls(&mut self, entry: &mut Entry, to: &CpuSeen, own: Option<u64>) -> bool {
        true
    }

    /// Panics if what the class keeps is not right, at `now_ns`. Called where [`crate::Config::check`] asks for it.
    fn check(&self, now_ns: u64) {}
}

/// What a class wants to be told, or to have done. All of it costs time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Where tasks may run: see [`Class::join`].
    pub bound: bool,
    /// The running task is charged before one that waits leaves.
    pub charged: bool,
    /// Waits are bounded by what policy/baseline/cfs.h says, and that is checked.
    pub bounds_waits: bool,
}

/// Where a task may run, by its affinity, its group's cpuset and the CPUs on line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bound {
    /// Anywhere.
    #[default]
    No,
    /// On some CPUs, of which this is the first.
    Set(u32),
    /// On one CPU.
    Cpu,
}

/// What a class is made for.
pub struct Shape {
    /// CPUs of the machine.
    pub nr_cpus: u32,
    /// The root, the configured ones, and one more.
    pub nr_groups: u32,
    /// The class may check what it does at each step.
    pub check: bool,
    pub(crate) delays: bool,
    pub(crate) root: pl::Root,
}

/// A task on a CPU.
pub struct Entry<'a> {
    /// Which.
    pub task: TaskId,
    /// The CPU.
    pub cpu: u32,
    /// Time since the run began.
    pub now_ns: u64,
    pub(crate) policy: &'a mut pl::Task,
    pub(crate) fair: &'a mut pl::FairCpu,
    pub(crate) config: &'a pl::FairConfig,
    pub(crate) number: u32,
}

impl Entry<'_> {
    /// The task, to look at.
    pub fn seen(&self) -> Seen<'_> {
        Seen {
            task: self.task,
            policy: self.policy,
            config: self.config,
            number: self.number,
        }
    }

    /// Its CPU.
    pub fn on(&self) -> CpuSeen<'_> {
        CpuSeen {
            cpu: self.cpu,
            fair: self.fair,
            config: self.config,
        }
    }
}

/// A task on a CPU, to look at.
#[derive(Clone, Copy)]
pub struct Seen<'a> {
    /// Which.
    pub task: TaskId,
    pub(crate) policy: &'a pl::Task,
    pub(crate) config: &'a pl::FairConfig,
    pub(crate) number: u32,
}

impl Seen<'_> {
    /// Its group.
    pub fn group(&self) -> GroupId {
        GroupId(self.number)
    }

    /// What it weighs on its CPU, of [`CpuSeen::weight_sum`]: its nice value within its group's share of the machine.
    pub fn effective_weight(&self) -> u64 {
        self.policy.effective
    }

    /// Whether it is SCHED_IDLE, or in a group that is (cpu.idle).
    pub fn is_idle(&self) -> bool {
        self.policy.idle != 0
    }
}

/// A CPU, to look at.
#[derive(Clone, Copy)]
pub struct CpuSeen<'a> {
    /// Which.
    pub cpu: u32,
    pub(crate) fair: &'a pl::FairCpu,
    pub(crate) config: &'a pl::FairConfig,
}

impl CpuSeen<'_> {
    /// Tasks that run or wait there.
    pub fn nr_queued(&self) -> u32 {
        self.fair.nr_queued
    }

    /// Sum of their weights.
    pub fn weight_sum(&self) -> u64 {
        self.fair.weight_sum
    }
}
