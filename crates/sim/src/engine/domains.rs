// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which CPUs tasks can move between: the domains of policy/domain.h, for a class that compares CPUs.
use super::state::State;
use super::Engine;
use crate::class::Class;
use crate::config::TaskId;

/// The CPU that stands for all that tasks reach from this one.
fn root_of(parents: &mut [u32], mut cpu: u32) -> u32 {
    while parents[cpu as usize] != cpu {
        parents[cpu as usize] = parents[parents[cpu as usize] as usize];
        cpu = parents[cpu as usize];
    }
    cpu
}

impl<C: Class> Engine<'_, C> {
    /// Tells the class.
    #[cold]
    pub(super) fn make_domains(&mut self) {
        let n = self.cpus.len() as u32;
        let mut parents: Vec<u32> = (0..n).collect();
        let tasks = self.tasks.len() as u32;
        let free = |task: &super::state::Task| {
            task.affinity.is_none() && self.cpusets[task.group as usize].is_none()
        };
        let lives = |task: &super::state::Task| task.state != State::Exited && !task.external;
        let any_free = self.tasks.iter().any(|task| lives(task) && free(task));
        for task in 0..tasks {
            let entry = &self.tasks[task as usize];
            if any_free || !lives(entry) {
                continue;
            }
            let mut first = None;
            for cpu in (0..n).filter(|&cpu| self.allowed(task, cpu)) {
                let root = root_of(&mut parents, cpu);
                let first = *first.get_or_insert(root);
                parents[root as usize] = root_of(&mut parents, first);
            }
        }
        let counted: Vec<(TaskId, u32)> = (0..tasks)
            .map(|task| (TaskId(task), &self.tasks[task as usize].policy))
            .filter(|(_, policy)| policy.counted != 0)
            .map(|(task, policy)| (task, policy.cpu))
            .collect();
        let domain = |cpu: u32| if any_free { 0 } else { root_of(&mut parents, cpu) };
        let domain_of: Vec<u32> = (0..n).map(domain).collect();
        self.class.domains(&domain_of, &counted);
        self.domains_stale = false;
    }

    /// Whether there is only one CPU that a task may run on.
    pub(super) fn pinned(&self, task: u32) -> bool {
        let entry = &self.tasks[task as usize];
        match (&entry.affinity, &self.cpusets[entry.group as usize]) {
            (None, None) => self.nr_online == 1,
            _ => {
                let n = self.cpus.len() as u32;
                (0..n).filter(|&cpu| self.allowed(task, cpu)).take(2).count() < 2
            }
        }
    }
}
