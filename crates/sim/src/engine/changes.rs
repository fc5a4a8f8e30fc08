// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an administrator does while the machine runs.
use super::policy as pl;
use super::state::{State, NONE};
use super::Engine;
use crate::class::Class;
use crate::config::ChangeKind;
use crate::observer::{Move, Stop};
use plimsoll_cpus::CpuSet;

impl<C: Class> Engine<'_, C> {
    pub(super) fn change(&mut self, index: u32) {
        match self.changes[index as usize].what.clone() {
            ChangeKind::Limits { group, limits } => self.set_limits(group.0, &limits),
            ChangeKind::CpuWeight { group, cpu_weight } => self.write_weight(group.0, |memory| {
                memory.pl_group_set_weight(group.0, cpu_weight);
            }),
            ChangeKind::GroupIdle { group, idle } => {
                self.write_weight(group.0, |memory| memory.pl_group_set_idle(group.0, idle));
                self.link_groups();
                // No task's weight changes with cpu.idle, so that it may be queued meanwhile.
                for task in 0..self.tasks.len() as u32 {
                    self.set_class(task);
                }
            }
            ChangeKind::Headroom { group, percent } => {
                self.memory.set_headroom_percent(group.0, percent);
                self.link_side();
            }
            ChangeKind::Cpuset { group, cpuset } => {
                self.own_cpusets[group.0 as usize] = cpuset;
                self.cpus_changed();
            }
            ChangeKind::Affinity { task, affinity } => {
                let tasks = self.with_forks(task.0);
                let affinity = affinity.map(Box::new);
                for &task in &tasks {
                    self.tasks[task as usize].affinity.clone_from(&affinity);
                    self.forget_useless_affinity(task);
                }
                self.move_misplaced(tasks);
            }
            ChangeKind::Nice { task, nice } => {
                let tasks = self.with_forks(task.0);
                self.with_tasks_out(tasks.iter().copied(), |engine| {
                    for &task in &tasks {
                        engine.tasks[task as usize].nice = nice as i8;
                        engine.set_class(task);
                    }
                });
            }
            ChangeKind::MoveTask { task, group } => {
                let tasks = self.with_forks(task.0);
                self.with_tasks_out(tasks.iter().copied(), |engine| {
                    for &task in &tasks {
                        let entry = &mut engine.tasks[task as usize];
                        entry.group = group.0;
                        engine.memory.pl_task_regroup(&mut entry.policy, group.0);
                        engine.memory.touch(group.0, entry.policy.cpu);
                        engine.set_class(task);
                        engine.forget_useless_affinity(task);
                    }
                });
            }
            ChangeKind::CpuOffline { cpu } => {
                if self.cpus[cpu as usize].online && self.nr_online > 1 {
                    self.set_online(cpu, false);
                }
            }
            ChangeKind::CpuOnline { cpu } => {
                if !self.cpus[cpu as usize].online {
                    self.set_online(cpu, true);
                }
            }
        }
    }

    /// What a group weighs is written anew: see pl_queue_written.
    fn write_weight(&mut self, group: u32, write: impl FnOnce(&pl::Memory)) {
        write(&self.memory);
        let mut touch: pl::Touch = pl::zeroed();
        for cpu in 0..self.cpus.len() as u32 {
            self.memory.pl_queue_written(group, cpu);
            let config = &self.policy.core;
            self.memory
                .pl_steps_written(group, cpu, self.now_ns, &mut touch, config);
        }
    }

    /// A task and its forks that live, and theirs.
    fn with_forks(&self, task: u32) -> Vec<u32> {
        let mut tasks = vec![task];
        let mut next = 0;
        while next < tasks.len() {
            let forks = self.forks.range((tasks[next], 0)..=(tasks[next], NONE));
            tasks.extend(forks.map(|&(_, fork)| fork));
            next += 1;
        }
        tasks
    }

    /// A task's weight and class, from its nice value, its policy and its groups.
    pub(super) fn set_class(&mut self, task: u32) {
        let entry = &mut self.tasks[task as usize];
        pl::pl_task_class(&mut entry.policy, i32::from(entry.nice), entry.idle_class);
    }

    /// Takes those of these tasks that are runnable out of their queues, lets `change` do what may not be done under
    /// them, and puts them back. What concerns one task names that one: a change of a workload is one change for each
    /// of its tasks, and must not look at all tasks for each.
    pub(super) fn with_tasks_out(
        &mut self,
        tasks: impl IntoIterator<Item = u32>,
        change: impl FnOnce(&mut Self),
    ) {
        let mut out = Vec::new();
        let mut stopped = Vec::new();
        for task in tasks {
            let entry = &self.tasks[task as usize];
            let cpu = entry.policy.cpu;
            match entry.state {
                State::Running => {
                    self.take_off(cpu, Stop::Preempted);
                    self.tasks[task as usize].runnable_ns = self.now_ns;
                    self.uncount(task, cpu, false);
                    self.no_longer_runnable(task, cpu);
                    stopped.push(cpu);
                    out.push(task);
                }
                State::Queued | State::Parked => {
                    self.dequeue(task);
                    out.push(task);
                }
                _ => {}
            }
        }
        change(self);
        for task in out {
            let previous = self.tasks[task as usize].policy.cpu;
            let cpu = self.allowed_or_any(task, previous);
            if cpu != previous {
                self.observe_move(task, previous, cpu, Move::Forced);
            }
            self.activate(task, cpu, NONE, false);
        }
        for cpu in stopped {
            let state = &self.cpus[cpu as usize];
            if state.running == NONE && !state.idle {
                let begun_ns = state.exec_ns;
                self.schedule(cpu, begun_ns.saturating_sub(self.now_ns));
            }
        }
    }

    fn set_online(&mut self, cpu: u32, online: bool) {
        self.charge(cpu, false);
        let state = &mut self.cpus[cpu as usize];
        if !online && state.idle {
            state.idle_total_ns += self.now_ns.saturating_sub(state.idle_from_ns);
        }
        state.online = online;
        state.idle_from_ns = self.now_ns;
        if online {
            state.offline_total_ns += self.now_ns - state.offline_from_ns;
        } else {
            state.offline_from_ns = self.now_ns;
        }
        self.nr_online = if online {
            self.nr_online + 1
        } else {
            self.nr_online - 1
        };
        self.show_idle(cpu);
        self.cpus_changed();
        // What is still throttled there holds nothing any more: its turn in the ring comes and goes.
    }

    /// Cpusets or CPUs changed: everything that is where it may not be moves.
    pub(super) fn cpus_changed(&mut self) {
        self.resolve_cpusets();
        for task in 0..self.tasks.len() as u32 {
            self.forget_useless_affinity(task);
        }
        self.move_misplaced(0..self.tasks.len() as u32);
    }

    /// Of these tasks, those that are where they may not be move.
    fn move_misplaced(&mut self, tasks: impl IntoIterator<Item = u32>) {
        let misplaced = |task: &u32| !self.allowed(*task, self.tasks[*task as usize].policy.cpu);
        let misplaced: Vec<u32> = tasks.into_iter().filter(misplaced).collect();
        self.with_tasks_out(misplaced, |_| {});
    }

    /// As the kernel does: an affinity that leaves no CPU of the group's is forgotten.
    pub(super) fn forget_useless_affinity(&mut self, task: u32) {
        let entry = &self.tasks[task as usize];
        let group_set = self.cpusets[entry.group as usize].as_ref();
        let usable = |set: &CpuSet| {
            set.iter().any(|cpu| {
                self.cpus.get(cpu as usize).is_some_and(|c| c.online)
                    && group_set.is_none_or(|group| group.contains(cpu))
            })
        };
        if entry.affinity.as_deref().is_some_and(|set| !usable(set)) {
            self.tasks[task as usize].affinity = None;
        }
    }

    /// Cpusets with their ancestors' and the CPUs online; one that leaves none is its parent's.
    pub(super) fn resolve_cpusets(&mut self) {
        for group in 0..self.memory.side() {
            // Parents have lower numbers.
            let above = self
                .memory
                .parent(group)
                .and_then(|parent| self.cpusets[parent as usize].clone());
            let own = self.own_cpusets[group as usize].clone();
            let resolved = match (own, &above) {
                (Some(own), Some(above)) => Some(own.intersection(above)),
                (Some(own), None) => Some(own),
                (None, _) => None,
            };
            let usable = |set: &CpuSet| {
                set.iter()
                    .any(|cpu| self.cpus.get(cpu as usize).is_some_and(|c| c.online))
            };
            let set = resolved.filter(usable).or(above);
            let online = (0..self.cpus.len() as u32).filter(|cpu| {
                self.cpus[*cpu as usize].online && set.as_ref().is_none_or(|set| set.contains(*cpu))
            });
            self.memory.set_cpus(group, online.count() as u32);
            self.cpusets[group as usize] = set;
        }
    }
}
