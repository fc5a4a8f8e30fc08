// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scenario file: every key, its unit, its default and what it does. This is the only definition; the JSON schema,
//! the checks of a file and docs/src/reference/scenario.schema.json are made from it.
use crate::machine::MachineChoice;
use crate::switches::SwitchesTable;
use plimsoll_sim::CpuSet;
use plimsoll_workload::Workload;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

/// A plimsoll scenario: a machine, groups with limits, the work that they do, and how long to watch it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "plimsoll scenario")]
pub struct ScenarioFile {
    /// What the scenario shows, in a sentence or two. Printed above the results.
    #[serde(default)]
    pub description: String,
    /// The machine: the name of a model, a path to one, or the model itself as a table.
    pub machine: MachineChoice,
    /// A kernel by its version, such as "6.1" or "6.1.55": its way of slicing time, limits enforced at ticks. Of those that
    /// the machine's model knows, the newest one that is not newer is taken; if all are newer, the oldest. Default: the
    /// live scheduler's.
    pub kernel: Option<String>,
    /// Simulated time in which results are counted, in milliseconds.
    #[schemars(range(min = 1, max = 86_400_000))]
    pub duration_ms: u64,
    /// Simulated time before results are counted, in milliseconds.
    #[serde(default)]
    #[schemars(range(max = 86_400_000))]
    pub warmup_ms: u64,
    /// Seed of every random stream. The same scenario and seed give the same bytes.
    #[serde(default = "one")]
    #[schemars(range(max = 9_223_372_036_854_775_807_u64))]
    pub seed: u64,
    /// Switches of the scheduling policy.
    #[serde(default)]
    pub switches: SwitchesTable,
    /// Groups by name. A slash nests: "web/api" is a child of "web". The root group takes no table.
    #[serde(default)]
    pub group: BTreeMap<String, GroupTable>,
    /// Workloads by name.
    #[serde(default)]
    pub workload: BTreeMap<String, WorkloadTable>,
    /// Changes during the run, in any order; those of one time happen in the order given.
    #[serde(default)]
    pub change: Vec<ChangeTable>,
    /// The run ends as soon as every task has. Default false.
    #[serde(default)]
    pub stop_when_done: bool,
}

fn one() -> u64 {
    1
}

/// The knobs of a group's cgroup, under their names: as the run begins, or as a change sets them.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
pub struct Knobs {
    /// cpu.weight: share of CPU time against its siblings. 100 if never set.
    #[schemars(range(min = 1, max = 10_000))]
    pub weight: Option<u32>,
    /// Run time added in every period, in microseconds, over all CPUs; "max" or a negative number: no limit, as if never
    /// set.
    pub quota_us: Option<Quota>,
    /// Length of a period in microseconds. 100000 if never set.
    #[schemars(range(min = 1000, max = 1_000_000))]
    pub period_us: Option<u64>,
    /// Run time that may be carried over from earlier periods, in microseconds. 0 if never set.
    #[schemars(range(max = 17_592_186_044_415_u64))]
    pub burst_us: Option<u64>,
    /// Share of the burst that is there as the limits are set, in percent. 0 if never set.
    #[schemars(range(max = 100))]
    pub onset_percent: Option<u32>,
    /// cpu.idle: runs only where nothing else wants to. False if never set.
    pub idle: Option<bool>,
    /// cpu.headroom: share of the machine to keep idle beside this group, which makes it a main group, in percent.
    #[schemars(range(max = 100))]
    pub headroom_percent: Option<u32>,
}

/// What limits a group as the run begins.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct GroupTable {
    #[serde(flatten)]
    pub knobs: Knobs,
    /// cpuset: CPUs that the group may run on, as in "0-3,8". Default all of its parent's.
    pub cpus: Option<CpuList>,
    /// Period boundaries are at clock = phase_us + k * period_us; below the group's period. Default 0.
    #[schemars(range(max = 999_999))]
    pub phase_us: Option<u64>,
}

/// A quota in microseconds, or none.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Quota {
    // Any negative number is none; the policy has the last word.
    #[schemars(extend("x-allowed" = "1000 .. 17592186044415"))]
    Microseconds(i64),
    Unlimited(Max),
}

/// No limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Max {
    Max,
}

/// CPUs as in a cpuset file: "0-3,8".
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct CpuList(pub String);

impl CpuList {
    /// The CPUs as a set. The error says what is wrong.
    pub fn cpus(&self, nr_cpus: u32) -> Result<CpuSet, String> {
        let set = CpuSet::parse(&self.0).filter(|set| !set.is_empty());
        let Some(set) = set else {
            return Err(format!(
                "\"{}\": allowed is a list of CPUs as in \"0-3,8\"",
                self.0
            ));
        };
        let missing = set.iter().find(|cpu| *cpu >= nr_cpus);
        match missing {
            Some(cpu) => Err(format!(
                "\"{}\": no CPU {cpu}; allowed 0 .. {}",
                self.0,
                nr_cpus - 1
            )),
            None => Ok(set),
        }
    }
}

/// Something that an administrator does during the run: knobs of a group, or of a workload's tasks, or CPUs that go and
/// come.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ChangeTable {
    /// When, in milliseconds since the run began, warm-up included.
    #[schemars(range(min = 0.0, max = 1.8e8))]
    pub at_ms: f64,
    /// The group whose knobs change. Those not named stay as they are.
    pub group: Option<String>,
    #[serde(flatten)]
    pub knobs: Knobs,
    /// The workload whose tasks change.
    pub workload: Option<String>,
    /// Of a workload's tasks.
    #[schemars(range(min = -20, max = 19))]
    pub nice: Option<i32>,
    /// A workload's tasks go to this group.
    pub move_to: Option<String>,
    /// cpuset of the group, or affinity of the workload's tasks.
    pub cpus: Option<CpuList>,
    /// CPUs that are taken off line, as in "4-7".
    pub offline: Option<CpuList>,
    /// CPUs that come back.
    pub online: Option<CpuList>,
}

/// Work: which kind, where it runs, and what the kind wants to know.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct WorkloadTable {
    /// The group that its tasks are in. Default: the root group.
    pub group: Option<String>,
    /// nice of its tasks. Default 0.
    #[schemars(range(min = -20, max = 19))]
    pub nice: Option<i32>,
    /// CPUs that its tasks may run on, as in "0-3,8". Default: all of the group's.
    pub cpus: Option<CpuList>,
    /// When its tasks are born, in milliseconds since the run began; after its end: never. Default 0.
    #[schemars(range(min = 0.0, max = 1.8e8))]
    pub begin_ms: Option<f64>,
    #[serde(flatten)]
    pub work: Workload,
}
