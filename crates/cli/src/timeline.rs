// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The timeline of a run, for the Perfetto UI: what ran on each CPU, when groups were throttled, what their pools held.
//!
//! Groups are shown as processes, tasks as their threads. Between two tasks of a CPU there may be a gap that is shown
//! as idle: the time of the context switch, which belongs to neither.
use crate::perfetto::{PrevState, Thread, TraceWriter, IDLE};
use plimsoll_sim::observer::{Move, Observer, Stop};
use plimsoll_sim::{GroupId, TaskId};
use std::io::{Result, Write};

/// Numbers of a group's rows, from its number.
fn group_track(group: usize) -> u64 {
    100 + 10 * group as u64
}
const THROTTLED: u64 = 1;
const THROTTLED_CPUS: u64 = 2;
const POOL: u64 = 3;
const HEADROOM: u64 = 1;
const HEADROOM_BUDGET: u64 = 2;
const HEADROOM_SIDE: u64 = 3;
const HEADROOM_IDLE: u64 = 4;
const MOVES: u64 = 5;

/// A CPU's last task, while the next one is not known.
#[derive(Clone, Copy)]
struct Left {
    task: TaskId,
    state: PrevState,
    at_ns: u64,
}

/// Writes a timeline while the simulation runs. An error of the output stops the writing and is given at the end.
pub struct Timeline<W: Write> {
    writer: TraceWriter<W>,
    error: Option<std::io::Error>,
    groups: Vec<String>,
    names: Vec<String>,
    /// What runs on each CPU, and since when: a switch takes time, so it may begin after the end of the simulation.
    running: Vec<Option<(TaskId, u64)>>,
    left: Vec<Option<Left>>,
    throttled_cpus: Vec<u32>,
    moves: bool,
    headroom: bool,
}

impl<W: Write> Timeline<W> {
    /// `groups`: names in the order of their numbers, the root first. Behind them comes the side group of headroom, which
    /// the simulator has in any case; its rows are written once a group asks for headroom.
    pub fn new(out: W, nr_cpus: usize, mut groups: Vec<String>) -> Result<Self> {
        let mut writer = TraceWriter::new(out, nr_cpus);
        for (number, name) in groups.iter().enumerate() {
            group_rows(&mut writer, number, name)?;
            writer.counter_track(group_track(number) + POOL, group_track(number), "pool", "us")?;
        }
        groups.push("headroom's side".to_string());
        Ok(Timeline {
            writer,
            error: None,
            throttled_cpus: vec![0; groups.len()],
            groups,
            names: Vec::new(),
            running: vec![None; nr_cpus],
            left: vec![None; nr_cpus],
            moves: false,
            headroom: false,
        })
    }

    /// Closes what is open at `end_ns` and gives the output back.
    pub fn finish(mut self, end_ns: u64) -> Result<W> {
        for cpu in 0..self.left.len() {
            match (self.left[cpu], self.running[cpu]) {
                (Some(left), _) => self.switch(cpu, left.at_ns, Some(left.task), left.state, None),
                (None, Some((task, since_ns))) => {
                    self.switch(cpu, end_ns.max(since_ns), Some(task), PrevState::Runnable, None)
                }
                (None, None) => {}
            }
        }
        for group in 0..self.groups.len() {
            if self.throttled_cpus[group] > 0 {
                self.put(|writer| writer.slice_end(group_track(group) + THROTTLED, end_ns));
            }
        }
        match self.error {
            Some(error) => Err(error),
            None => self.writer.finish(),
        }
    }

    fn put(&mut self, write: impl FnOnce(&mut TraceWriter<W>) -> Result<()>) {
        if self.error.is_none() {
            self.error = write(&mut self.writer).err();
        }
    }

    /// Above the processes; none is the idle thread's 0.
    fn first_tid(&self) -> u32 {
        self.groups.len() as u32 + 1
    }

    /// Headroom's rows and its side's, before the first thing that is said of them.
    fn headroom_rows(&mut self) {
        if std::mem::replace(&mut self.headroom, true) {
            return;
        }
        let side = self.groups.len() - 1;
        let name = self.groups[side].clone();
        self.put(|writer| {
            group_rows(writer, side, &name)?;
            writer.track(HEADROOM, 0, "headroom")?;
            writer.counter_track(HEADROOM_BUDGET, HEADROOM, "side budget of the next window", "us")?;
            writer.counter_track(HEADROOM_SIDE, HEADROOM, "side used", "us")?;
            writer.counter_track(HEADROOM_IDLE, HEADROOM, "idle", "us")
        });
    }

    fn tid(&self, task: TaskId) -> u32 {
        self.first_tid() + task.0
    }

    fn switch(
        &mut self,
        cpu: usize,
        at_ns: u64,
        prev: Option<TaskId>,
        state: PrevState,
        next: Option<TaskId>,
    ) {
        if self.error.is_some() {
            return;
        }
        let (names, first) = (&self.names, self.first_tid());
        let thread = |task: Option<TaskId>| match task {
            Some(task) => Thread {
                tid: first + task.0,
                name: &names[task.0 as usize],
            },
            None => IDLE,
        };
        self.error = self
            .writer
            .switch(cpu, at_ns, thread(prev), state, thread(next))
            .err();
    }
}

/// A group, and the rows that say when it is throttled.
fn group_rows<W: Write>(writer: &mut TraceWriter<W>, group: usize, name: &str) -> Result<()> {
    let track = group_track(group);
    writer.process(process(group, name), &[])?;
    writer.track(track, 0, &format!("group {name}"))?;
    writer.track(track + THROTTLED, track, "throttled")?;
    writer.counter_track(track + THROTTLED_CPUS, track, "throttled CPUs", "CPUs")
}

fn process(group: usize, name: &str) -> Thread<'_> {
    Thread {
        tid: group as u32 + 1,
        name,
    }
}

impl<W: Write> Observer for Timeline<W> {
    fn task(&mut self, _now_ns: u64, task: TaskId, name: &str, group: GroupId) {
        let number = task.0 as usize;
        if self.names.len() <= number {
            self.names.resize(number + 1, String::new());
        }
        self.names[number] = name.to_string();
        let (tid, group) = (self.tid(task), group.0 as usize);
        if self.error.is_none() {
            let thread = Thread { tid, name };
            self.error = self
                .writer
                .process(process(group, &self.groups[group]), &[thread])
                .err();
        }
    }

    fn run(&mut self, now_ns: u64, cpu: u32, task: TaskId, _group: GroupId) {
        let cpu = cpu as usize;
        match self.left[cpu].take() {
            Some(left) if left.at_ns == now_ns => {
                self.switch(cpu, now_ns, Some(left.task), left.state, Some(task));
            }
            Some(left) => {
                self.switch(cpu, left.at_ns, Some(left.task), left.state, None);
                self.switch(cpu, now_ns, None, PrevState::Runnable, Some(task));
            }
            None => self.switch(cpu, now_ns, None, PrevState::Runnable, Some(task)),
        }
        self.running[cpu] = Some((task, now_ns));
    }

    fn stop(&mut self, now_ns: u64, cpu: u32, task: TaskId, why: Stop) {
        let cpu = cpu as usize;
        let state = match why {
            Stop::Blocked => PrevState::Sleeping,
            Stop::Preempted | Stop::Throttled => PrevState::Runnable,
            Stop::Exited => PrevState::Dead,
        };
        self.left[cpu] = Some(Left {
            task,
            state,
            at_ns: now_ns,
        });
        self.running[cpu] = None;
    }

    fn wake(&mut self, now_ns: u64, task: TaskId, cpu: u32, waker_cpu: u32) {
        if self.error.is_some() {
            return;
        }
        // A timer or a task outside wakes from no CPU of ours.
        let from = if (waker_cpu as usize) < self.running.len() {
            waker_cpu
        } else {
            cpu
        };
        // A CPU's events are in order of time: if it has gone idle since, that comes first.
        if let Some(left) = self.left[from as usize].filter(|left| left.at_ns < now_ns) {
            self.left[from as usize] = None;
            self.switch(from as usize, left.at_ns, Some(left.task), left.state, None);
        }
        let waker = self.running[from as usize].map_or(0, |(task, _)| self.tid(task));
        let woken = Thread {
            tid: self.tid(task),
            name: &self.names[task.0 as usize],
        };
        self.error = self
            .writer
            .waking(from as usize, now_ns, waker, woken, cpu as usize)
            .err();
    }

    fn migrate(&mut self, now_ns: u64, task: TaskId, from_cpu: u32, to_cpu: u32, why: Move) {
        if !self.moves {
            self.moves = true;
            self.put(|writer| writer.track(MOVES, 0, "moves of waiting tasks"));
        }
        let why = match why {
            Move::NewIdle => "new-idle",
            Move::Periodic => "periodic",
            Move::Steal => "steal",
            Move::Pull => "lag",
            Move::Forced => "forced",
        };
        let name = format!(
            "{why}: {} from CPU {from_cpu} to {to_cpu}",
            self.names[task.0 as usize]
        );
        self.put(|writer| writer.instant(MOVES, now_ns, &name));
    }

    fn throttle(&mut self, now_ns: u64, group: GroupId, _cpu: u32) {
        let group = group.0 as usize;
        if group + 1 == self.groups.len() {
            self.headroom_rows();
        }
        self.throttled_cpus[group] += 1;
        let (track, cpus) = (group_track(group), self.throttled_cpus[group]);
        if cpus == 1 {
            self.put(|writer| writer.slice_begin(track + THROTTLED, now_ns, "throttled"));
        }
        self.put(|writer| writer.counter(track + THROTTLED_CPUS, now_ns, cpus.into()));
    }

    fn unthrottle(&mut self, now_ns: u64, group: GroupId, _cpu: u32) {
        let group = group.0 as usize;
        // A release of a CPU where nothing had to stop was not begun here.
        if self.throttled_cpus[group] == 0 {
            return;
        }
        self.throttled_cpus[group] -= 1;
        let (track, cpus) = (group_track(group), self.throttled_cpus[group]);
        if cpus == 0 {
            self.put(|writer| writer.slice_end(track + THROTTLED, now_ns));
        }
        self.put(|writer| writer.counter(track + THROTTLED_CPUS, now_ns, cpus.into()));
    }

    fn pool(&mut self, now_ns: u64, group: GroupId, runtime_ns: i64) {
        let track = group_track(group.0 as usize) + POOL;
        self.put(|writer| writer.counter(track, now_ns, runtime_ns / 1000));
    }

    fn headroom(&mut self, now_ns: u64, budget_ns: u64, side_used_ns: u64, idle_ns: u64) {
        self.headroom_rows();
        for (track, ns) in [
            (HEADROOM_BUDGET, budget_ns),
            (HEADROOM_SIDE, side_used_ns),
            (HEADROOM_IDLE, idle_ns),
        ] {
            let us = i64::try_from(ns / 1000).unwrap_or(i64::MAX);
            self.put(|writer| writer.counter(track, now_ns, us));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect_file;
    use plimsoll_protobuf::{fields, Value};
    use std::fmt::Write as _;

    /// Every field of a message, in order: numbers as such, bytes as text where they are, else as a nested message.
    fn dump(bytes: &[u8], depth: usize, text: &mut String) -> std::io::Result<()> {
        for field in fields(bytes) {
            let (field, value) = field?;
            let indent = "  ".repeat(depth);
            match value {
                Value::Number(number) => writeln!(text, "{indent}{field}: {}", number as i64),
                Value::Bytes(inner) => {
                    let printable = !inner.is_empty() && inner.iter().all(|byte| (32..127).contains(byte));
                    let mut nested = String::new();
                    match printable && (depth >= 2 || inner.len() < 2)
                        || dump(inner, depth + 1, &mut nested).is_err()
                    {
                        true => writeln!(text, "{indent}{field}: \"{}\"", String::from_utf8_lossy(inner)),
                        false => write!(text, "{indent}{field}:\n{nested}"),
                    }
                }
            }
            .expect("memory");
        }
        Ok(())
    }

    /// One CPU: a task runs, is throttled, another follows at once, sleeps; the first runs again until the end.
    #[test]
    fn a_timeline_holds_switches_throttling_and_pools() {
        let (root, web) = (GroupId::ROOT, GroupId(1));
        let (a, b) = (TaskId(0), TaskId(1));
        let mut timeline = Timeline::new(Vec::new(), 1, vec!["/".into(), "web".into()]).expect("memory");
        timeline.task(0, a, "a", web);
        timeline.task(0, b, "b", root);
        timeline.pool(0, web, 20_000_000);
        timeline.wake(100, a, 0, 0);
        timeline.run(100, 0, a, web);
        timeline.throttle(500, web, 0);
        timeline.stop(500, 0, a, Stop::Throttled);
        timeline.run(500, 0, b, root);
        timeline.stop(600, 0, b, Stop::Blocked);
        timeline.unthrottle(700, web, 0);
        timeline.run(700, 0, a, web);
        let bytes = timeline.finish(1000).expect("memory");
        let mut text = String::new();
        dump(&bytes, 0, &mut text).expect("protobuf");
        expect_file!["../tests/all/golden/timeline.txt"].assert_eq(&text);
    }

    #[test]
    fn an_error_of_the_output_is_given_at_the_end() {
        /// A disk with room for the heading only.
        struct Full(usize);
        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> Result<usize> {
                self.0 = self
                    .0
                    .checked_sub(bytes.len())
                    .ok_or_else(|| std::io::Error::other("full"))?;
                Ok(bytes.len())
            }
            fn flush(&mut self) -> Result<()> {
                Ok(())
            }
        }
        let mut timeline = Timeline::new(Full(300), 1, vec!["/".into()]).expect("room for the heading");
        for now_ns in 0..100 {
            timeline.pool(now_ns, GroupId::ROOT, 1);
        }
        assert!(timeline.finish(1000).is_err());
    }
}
