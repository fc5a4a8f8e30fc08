// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What happens when, for timelines and traces. Without an observer none of it costs more than a branch.
use crate::config::{GroupId, TaskId};

/// Why a task left its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Sleeps or waits for a channel.
    Blocked,
    /// Another task runs first.
    Preempted,
    /// A group's run time is used up.
    Throttled,
    /// Its program ended.
    Exited,
}

/// Called in order of time; `now_ns` counts from the beginning of the run. Every method may be left out.
#[allow(unused_variables)]
pub trait Observer {
    /// A task exists. Comes before anything else about it.
    fn task(&mut self, now_ns: u64, task: TaskId, name: &str, group: GroupId) {}
    /// A task begins to run.
    fn run(&mut self, now_ns: u64, cpu: u32, task: TaskId, group: GroupId) {}
    /// It stops.
    fn stop(&mut self, now_ns: u64, cpu: u32, task: TaskId, why: Stop) {}
    /// A task was woken and sent to `cpu`, where it is now or, with the fair class's wake-ups, when the waker is done.
    fn wake(&mut self, now_ns: u64, task: TaskId, cpu: u32, waker_cpu: u32) {}
    /// A waiting task went to another CPU's queue.
    fn migrate(&mut self, now_ns: u64, task: TaskId, from_cpu: u32, to_cpu: u32, why: Move) {}
    /// A group may not run on `cpu` until it is released. Headroom's side has the number after the last group's.
    fn throttle(&mut self, now_ns: u64, group: GroupId, cpu: u32) {}
    /// A group may run on `cpu` again.
    fn unthrottle(&mut self, now_ns: u64, group: GroupId, cpu: u32) {}
    /// A pool of a configured group was refilled or set; `runtime_ns` is what it holds now.
    fn pool(&mut self, now_ns: u64, group: GroupId, runtime_ns: i64) {}
    /// Headroom's window ended; budget of the next one.
    fn headroom(&mut self, now_ns: u64, budget_ns: u64, side_used_ns: u64, idle_ns: u64) {}
}

/// What moved a task that was waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// A CPU that ran dry searched other queues.
    NewIdle,
    /// Queue lengths were evened out.
    Periodic,
    /// A CPU that ran dry took it from an overloaded one of its cache.
    Steal,
    /// What it is behind other CPUs' tasks.
    Pull,
    /// Affinity, cpuset or hotplug.
    Forced,
}

/// Sees nothing.
pub struct NoObserver;
impl Observer for NoObserver {}
