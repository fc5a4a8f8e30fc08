//! Where a workload's tasks go: their group, what they are called, and what they have in common.
use plimsoll_sim::{Behaviour, Config, CpuSet, GroupId, TaskSpec, WorkloadId};

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

    /// A task that may run on one CPU only: of the CPUs that the workload is given, else of the machine's, the one at
    /// `number`, counted round.
    pub(crate) fn pinned(&self, mut task: TaskSpec, number: u32, config: &Config) -> TaskSpec {
        let number = number % self.nr_cpus(config).max(1);
        let cpu = match &self.affinity {
            Some(cpus) => cpus.iter().nth(number as usize).unwrap_or(number),
            None => number,
        };
        task.affinity = Some(std::iter::once(cpu).collect());
        task
    }

    /// How many CPUs the workload is given, else the machine has.
    pub(crate) fn nr_cpus(&self, config: &Config) -> u32 {
        let machine = config.machine.topology.nr_cpus();
        self.affinity.as_ref().map_or(machine, CpuSet::len)
    }
}

/// Microseconds to nanoseconds, at least 1.
pub(crate) fn ns(us: f64) -> u64 {
    ((us * 1000.0) as u64).max(1)
}
