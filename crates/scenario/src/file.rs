//! The scenario file: every key, its unit, its default and what it does. This is the only definition; the JSON schema,
//! the checks of a file and docs/scenario.schema.json are made from it.
use crate::machine::MachineChoice;
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
    pub workload: BTreeMap<String, serde_json::Value>,
    /// Changes during the run, in any order.
    #[serde(default)]
    pub change: Vec<ChangeTable>,
}

fn one() -> u64 {
    1
}

/// What limits a group: the knobs of its cgroup, under their names.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupTable {
    /// cpu.weight: share of CPU time against its siblings. Default 100.
    #[schemars(range(min = 1, max = 10_000))]
    pub weight: Option<u32>,
    /// Run time added in every period, in microseconds, over all CPUs; "max" or a negative number: no limit (default).
    pub quota_us: Option<Quota>,
    /// Length of a period in microseconds. Default 100000.
    pub period_us: Option<u64>,
    /// Run time that may be carried over from earlier periods, in microseconds. Default 0.
    pub burst_us: Option<u64>,
    /// Share of the burst that is there from the start, in percent. Default 0.
    pub onset_percent: Option<u32>,
    /// cpu.idle: runs only where nothing else wants to. Default false.
    pub idle: Option<bool>,
    /// cpu.headroom: share of the machine to keep idle beside this group, which makes it a main group, in percent.
    #[schemars(range(max = 100))]
    pub headroom_percent: Option<u32>,
    /// cpuset: CPUs that the group may run on, as in "0-3,8". Default all of its parent's.
    pub cpus: Option<CpuList>,
}

/// A quota in microseconds, or none.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Quota {
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
    /// The CPUs, ascending, each once. The error says what is wrong.
    pub fn cpus(&self, nr_cpus: usize) -> Result<Vec<u32>, String> {
        let mut cpus = Vec::new();
        for part in self.0.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| {
                text.trim()
                    .parse::<u32>()
                    .map_err(|_| format!("\"{}\": allowed is a list as in \"0-3,8\"", self.0))
            };
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(format!("\"{}\": the range {first}-{last} runs backwards", self.0));
            }
            if last as usize >= nr_cpus {
                return Err(format!(
                    "\"{}\": the machine has CPUs 0 .. {}",
                    self.0,
                    nr_cpus - 1
                ));
            }
            cpus.extend(first..=last);
        }
        cpus.sort_unstable();
        cpus.dedup();
        Ok(cpus)
    }
}

/// Switches of the scheduling policy.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SwitchesTable {
    /// Run time that a CPU takes from its group's pool at a time, in microseconds. Default 5000.
    pub slice_us: Option<u64>,
    /// Global switch of burst: false, and no group may use carried time. Default true.
    pub burst: Option<bool>,
    /// Whose rules of burst hold. Default "published".
    pub burst_semantics: Option<BurstSemantics>,
    /// Slices expire with the period, as before non-expiring slices. Default false.
    pub expire: Option<bool>,
}

/// Whose rules of burst hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BurstSemantics {
    /// The published series: burst may exceed the quota, a sleep earns every period that it lasted.
    Published,
    /// What mainline Linux took: burst up to the quota, one quota for each refill.
    Mainline,
}
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeTable {
    /// When, in milliseconds of simulated time.
    pub at_ms: f64,
}
