// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tasks take turns as policy/steps.h says: its steps called, its memory owned.
use super::super::policy::{self as pl, Turns};
use crate::behaviour::Owed;
use crate::class::{Bound, CpuSeen, Entry, Seen, Shape};

pub(super) struct Eevdf {
    turns: Turns,
    nr_groups: u32,
    nr_cpus: u32,
    /// Every event is checked, with what is next.
    checked: bool,
    /// What the task that leaves next has run since its lines were told.
    untold_ns: u64,
    /// What goes to sleep while it owes time stays in its line until that is paid.
    delays: bool,
    /// Of each task, with what lag it left its line: a second book.
    left: Vec<Option<Left>>,
}

#[derive(Clone, Copy)]
struct Left {
    /// Of whose line.
    node: usize,
    /// ns * 2^20.
    lag: i128,
    /// What it weighed.
    weight: i128,
    /// V after it had gone.
    mean: u64,
}

impl Eevdf {
    pub fn new(shape: &Shape) -> Self {
        Self {
            turns: Turns::new(shape.root, shape.nr_groups as usize, shape.nr_cpus as usize),
            // The last one is headroom's side, which has no line.
            nr_groups: shape.nr_groups - 1,
            nr_cpus: shape.nr_cpus,
            checked: shape.check,
            untold_ns: 0,
            delays: shape.delays,
            left: Vec::new(),
        }
    }

    pub fn born(&mut self, task: u32) {
        self.turns.born(task);
        if let Some(left) = self.left.get_mut(task as usize) {
            *left = None;
        }
    }

    /// A task was counted on its CPU.
    pub fn join(&mut self, entry: &mut Entry, bound: Bound) {
        let task = entry.task.0;
        // What stayed in its line paid there what it owed: the book does not know how much.
        let kept = self.checked && !self.delays;
        let before = kept.then(|| self.expected(task, entry.policy));
        self.turns
            .pl_steps_enter(entry.policy, task, bound, entry.now_ns, entry.config);
        if let Some(Some(expected)) = before {
            self.check_kept(task, entry.policy, expected, entry.now_ns);
        }
    }

    /// A task will be counted on its CPU no more.
    pub fn leave(&mut self, entry: &mut Entry, sleeps: bool) {
        let task = entry.task.0;
        let mut ran_ns = std::mem::take(&mut self.untold_ns);
        if self.delays && ran_ns > 0 {
            // Whether it owes time, and so stays, is known once its line is told.
            self.ran(entry, std::mem::take(&mut ran_ns), false);
        }
        let lag = self.checked.then(|| self.lag_after(task, entry.policy, ran_ns));
        let delays = self.delays;
        self.turns
            .pl_steps_leave(entry.policy, task, ran_ns, sleeps, delays);
        if let Some(lag) = lag {
            self.book_left(task, entry.policy, lag);
        }
    }

    /// `leaves`: its lines are told as it leaves them.
    pub fn ran(&mut self, entry: &mut Entry, ran_ns: u64, leaves: bool) {
        if leaves {
            self.untold_ns = ran_ns;
            return;
        }
        self.turns
            .pl_steps_ran(entry.policy, entry.task.0, ran_ns, entry.now_ns, entry.config);
    }

    /// Other CPUs look first at the task that is furthest behind.
    pub fn key(&self, task: u32) -> u64 {
        self.turns.u(task)
    }

    /// Weighs the groups of a running task anew.
    pub fn tick(&mut self, entry: &mut Entry) {
        let lags = self.keeps_lags(entry).then(|| self.group_lags(entry.policy));
        self.turns.pl_steps_tick(entry.policy, entry.config);
        self.check_weighed(entry, lags);
    }

    /// Whether weighing is checked to change no lag. In some kernels it does.
    fn keeps_lags(&self, entry: &Entry) -> bool {
        self.checked && entry.config.doubled_ns == 0
    }

    /// Its groups were weighed, and their lags were these.
    fn check_weighed(&self, entry: &Entry, lags: Option<Vec<(i128, i128)>>) {
        let Some(lags) = lags else { return };
        for (before, after) in lags.iter().zip(self.group_lags(entry.policy)) {
            let off = (before.0 - after.0).abs();
            assert!(
                off <= 2 * (before.1 + after.1),
                "task {}: a group's lag became {} from {} as it was weighed at {} ns",
                entry.task.0,
                after.0,
                before.0,
                entry.now_ns
            );
        }
    }

    /// Its turn begins, and its groups are weighed. Run time until it may be another's.
    pub fn picked(&mut self, entry: &mut Entry) -> u64 {
        self.turns
            .follow_bound(entry.policy, entry.task.0, entry.now_ns, entry.config);
        let lags = self.keeps_lags(entry).then(|| self.group_lags(entry.policy));
        let turn_ns = self
            .turns
            .pl_steps_picked(entry.policy, entry.task.0, entry.now_ns, entry.config);
        self.check_weighed(entry, lags);
        turn_ns
    }

    /// Whose turn it is on a CPU where tasks wait and none runs.
    pub fn pick(&self, on: &CpuSeen, now_ns: u64) -> u32 {
        self.turns.pl_steps_pick(on.cpu, now_ns, on.config)
    }

    /// After how much run time of the one that runs one that has come goes before it: see pl_steps_comes.
    pub fn comes(&self, woken: &Seen, running: &Seen) -> u64 {
        let (a, b) = ((woken.policy, woken.task.0), (running.policy, running.task.0));
        self.turns.pl_steps_comes(a, b, woken.config)
    }

    /// Whether one that has come owes no time where its groups part from those of the one that runs.
    pub fn owes_nothing(&self, woken: &Seen, running: &Seen) -> bool {
        let (a, b) = ((woken.policy, woken.task.0), (running.policy, running.task.0));
        self.turns.pl_steps_owes_nothing(a, b)
    }

    /// One that has come is owed what it was in a recording.
    pub fn owed(&mut self, woken: &Seen, owed: Owed) {
        self.turns.pl_recorded_owed(woken.policy, woken.task.0, owed);
    }

    /// It gives the rest of its request away.
    pub fn yields(&mut self, entry: &mut Entry) {
        self.turns.pl_steps_yield(entry.policy, entry.task.0);
    }

    /// Whether a CPU takes over a task that waits elsewhere, by how far behind that is. `own`: the one of its own that is
    /// furthest behind.
    pub fn pulls(&mut self, entry: &mut Entry, to: &CpuSeen, own: Option<u64>) -> bool {
        let task = (&*entry.policy, entry.task.0, &*entry.fair);
        self.turns
            .pl_steps_pulls(task, (to.cpu, to.fair), own, entry.config)
    }
}

/// Checks: what the policy keeps of a lag, computed once more in 128 bits, by none of its functions but the mean and the lag.
impl Eevdf {
    fn lag_in(line: &pl::Line, entity: &pl::Entity) -> i128 {
        let mean = pl::pl_line_mean(line);
        i128::from(mean.wrapping_sub(entity.v) as i64) * i128::from(entity.weight)
    }

    fn bound(slice_ns: u64) -> i128 {
        /// PL_ENTITY_OVERRUN_NS, written down once more: this is a second book.
        const OVERRUN_NS: u64 = 10_000_000;
        i128::from(slice_ns.min(1_000_000_000) + OVERRUN_NS) << 20
    }

    /// The line of a task's group on its CPU, and the task in it.
    fn line_and_entity(&self, task: u32, entry: &pl::Task) -> (pl::Line, pl::Entity) {
        let line = self.turns.line(self.turns.node_of(entry));
        (line, self.turns.turn_of(task).entity)
    }

    /// Its lag once its line is told that it ran.
    fn lag_after(&self, task: u32, entry: &pl::Task, ran_ns: u64) -> i128 {
        let (mut line, mut entity) = self.line_and_entity(task, entry);
        let ahead = u128::from(ran_ns) * (1 << 20) / u128::from(entity.weight.max(1));
        entity.v = entity.v.wrapping_add(ahead as u64);
        match line.n {
            1 => line.v0 = entity.v,
            _ => line.sum_wv += ahead as i64 * entity.weight as i64,
        }
        let bound = Self::bound(entity.slice_ns);
        Self::lag_in(&line, &entity).clamp(-bound, bound)
    }

    fn book_left(&mut self, task: u32, entry: &pl::Task, lag: i128) {
        let (line, entity) = self.line_and_entity(task, entry);
        if self.left.len() <= task as usize {
            self.left.resize(task as usize + 1, None);
        }
        self.left[task as usize] = Some(Left {
            node: self.turns.node_of(entry),
            lag,
            weight: i128::from(entity.weight),
            mean: pl::pl_line_mean(&line),
        });
    }

    /// What a task that comes to a line where others are should have there, before it is bounded; else nothing.
    fn expected(&self, task: u32, entry: &pl::Task) -> Option<i128> {
        let left = (*self.left.get(task as usize)?)?;
        let node = self.turns.node_of(entry);
        let line = self.turns.line(node);
        let behind = i128::from(self.turns.turn_of(task).behind);
        if line.n == 0 {
            return None;
        }
        let paid = match left.node == node && left.lag < 0 {
            true => i128::from(pl::pl_line_mean(&line).wrapping_sub(left.mean) as i64) * left.weight,
            false => 0,
        };
        Some((left.lag + paid.max(0)).min(left.lag.max(0)) + behind)
    }

    fn check_kept(&self, task: u32, entry: &pl::Task, expected: i128, now_ns: u64) {
        let (line, entity) = self.line_and_entity(task, entry);
        let bound = Self::bound(entity.slice_ns);
        let (got, expected) = (Self::lag_in(&line, &entity), expected.clamp(-bound, bound));
        // V and v are whole numbers, and so was what it left with.
        let left = self.left[task as usize].map_or(0, |left| left.weight);
        let rounding = 4 * i128::from(entity.weight) + 4 * left;
        assert!(
            (got - expected).abs() <= rounding,
            "task {task} came back with a lag of {got} at {now_ns} ns; it is due {expected}, within {rounding}"
        );
    }

    /// Lags and weights of the groups above a task, from its own upwards.
    fn group_lags(&self, entry: &pl::Task) -> Vec<(i128, i128)> {
        let levels = self.turns.nodes_above(entry);
        let in_parent = levels.iter().zip(&levels[1..]);
        in_parent
            .map(|(&node, &above)| {
                let entity = self.turns.entity(node);
                (
                    Self::lag_in(&self.turns.line(above), &entity),
                    i128::from(entity.weight),
                )
            })
            .collect()
    }

    /// Every line's sums are those of its entities: the lags of a line add up to nothing.
    pub fn check(&self, now_ns: u64) {
        for group in 0..self.nr_groups {
            for cpu in 0..self.nr_cpus {
                let line = self.turns.line(self.turns.node(group, cpu));
                let (mut n, mut sum_w, mut sum_wv, mut lags) = (0, 0u64, 0i128, 0i128);
                self.turns.entities(&line, |entity| {
                    n += 1;
                    sum_w += entity.weight;
                    let ahead = entity.v.wrapping_sub(line.v0) as i64;
                    sum_wv += i128::from(ahead) * i128::from(entity.weight);
                    lags += i128::from(pl::pl_entity_lag(&line, entity));
                });
                let at = || format!("group {group}, CPU {cpu}, at {now_ns} ns");
                assert_eq!(line.n, n, "entities of {}", at());
                assert_eq!(line.sum_w, sum_w, "weights of {}", at());
                assert_eq!(i128::from(line.sum_wv), sum_wv, "moments of {}", at());
                assert!(
                    lags.unsigned_abs() <= u128::from(sum_w),
                    "lags of {}: {lags}",
                    at()
                );
            }
        }
    }
}
