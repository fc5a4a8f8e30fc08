// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a workload's tasks go: their group, what they are called, and what they have in common.
use plimsoll_sim::{cpus_of, Behaviour, Config, CpuSet, GroupId, TaskSpec, WorkloadId};

/// What all tasks of a workload have in common.
#[derive(Debug, Clone)]
pub struct Place {
    /// The workload's name; its tasks are called "name/role-k".
    pub name: String,
    pub group: GroupId,
    /// -20 .. 19
    pub nice: i32,
    /// None: all CPUs of the group.
    pub affinity: Option<CpuSet>,
    /// When its tasks are born.
    pub start_ns: u64,
}

impl Place {
    /// In a group, from the beginning of the run, on any of the group's CPUs.
    pub fn new(name: impl Into<String>, group: GroupId) -> Self {
        Place {
            name: name.into(),
            group,
            nice: 0,
            affinity: None,
            start_ns: 0,
        }
    }

    /// A task of the workload.
    pub(crate) fn task(
        &self,
        workload: WorkloadId,
        role: &str,
        number: u32,
        behaviour: impl Behaviour + 'static,
    ) -> TaskSpec {
        let mut task = TaskSpec::new(
            self.group,
            workload,
            format!("{}/{role}-{number}", self.name),
            behaviour,
        );
        task.nice = self.nice;
        task.affinity = self.affinity.clone();
        task.start_ns = self.start_ns;
        task
    }

    /// A task that may run on one CPU only: of those that the workload may use, the one at `number`, counted round.
    pub(crate) fn pinned(&self, mut task: TaskSpec, number: u32, config: &Config) -> TaskSpec {
        let cpus = self.cpus(config);
        let number = (number % cpus.len()) as usize;
        task.affinity = Some(cpus.iter().skip(number).take(1).collect());
        task
    }

    /// How many CPUs the workload may use.
    pub(crate) fn nr_cpus(&self, config: &Config) -> u32 {
        self.cpus(config).len()
    }

    /// The CPUs that the workload is given, else the machine's, without those that its group may not use as the run
    /// begins.
    fn cpus(&self, config: &Config) -> CpuSet {
        let groups = &config.groups;
        let all = CpuSet::all(config.machine.topology.nr_cpus());
        let of_group = cpus_of(
            self.group,
            &|at| groups[at].parent,
            &|at| groups[at].cpuset.as_ref(),
            &all,
        );
        let both = self.affinity.as_ref().map(|cpus| cpus.intersection(&of_group));
        both.filter(|both| !both.is_empty()).unwrap_or(of_group)
    }
}

/// Microseconds to nanoseconds, at least 1.
pub(crate) fn ns(us: f64) -> u64 {
    ((us * 1000.0) as u64).max(1)
}
