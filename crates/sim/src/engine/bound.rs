// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a task may run: what its affinity, its group's cpuset and the CPUs on line leave.
use super::Engine;
use crate::class::{Bound, Class};

impl<C: Class> Engine<'_, C> {
    pub(super) fn bound(&self, task: u32) -> Bound {
        let entry = &self.tasks[task as usize];
        if entry.affinity.is_none() && self.cpusets[entry.group as usize].is_none() {
            return match self.nr_online {
                1 => Bound::Cpu,
                _ => Bound::No,
            };
        }
        let n = self.cpus.len() as u32;
        let mut allowed = (0..n).filter(|&cpu| self.allowed(task, cpu));
        let (Some(first), Some(_)) = (allowed.next(), allowed.next()) else {
            return Bound::Cpu;
        };
        let forbidden = |cpu: u32| self.cpus[cpu as usize].online && !self.allowed(task, cpu);
        match (0..n).any(forbidden) {
            true => Bound::Set(first),
            false => Bound::No,
        }
    }
}
