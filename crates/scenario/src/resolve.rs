// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a scenario's file to what the simulator takes: names become numbers, and what a schema cannot check is checked.
use crate::file::{CpuList, GroupTable, Knobs, ScenarioFile, WorkloadTable};
use crate::find;
use crate::kernel::{is_version, Kernel};
use crate::machine::{self, MachineChoice, MachineFile};
use crate::problem::{nearest, Problem, Problems};
use crate::switches::FairChoice;
use crate::tree::{Origin, Tree};
use plimsoll_policy_sys as pl;
use plimsoll_sim::{
    cpus_of, Change, ChangeKind, Config, CpuSet, Fair, GroupId, GroupSpec, Limits, Machine, Mainline, Policy,
    TaskId,
};
use plimsoll_workload::{Place, Workload};
use std::path::Path;

mod changes;

/// Tasks of all workloads. A million take 0.7 GB; what the ranges of two keys allow together, 20 million and more, ends
/// with the machine's memory.
const TASKS_MAX: u64 = 1_000_000;
/// Groups times CPUs. The simulator keeps about 140 bytes of each (docs/src/lab/simulator-speed.md): 1.2 GB of
/// addresses. Four times 2,000 groups on 1,024 CPUs, and 2,000 on the largest machine.
const CELLS_MAX: u64 = 1 << 23;
/// Requests per second; what `rate_per_s` is bound to, too.
const RATE_MAX: f64 = 1e8;

/// A scenario that has been checked and can be run, as often as wanted.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The file's name.
    pub name: String,
    /// What `--set` changed.
    pub settings: Vec<String>,
    pub description: String,
    pub machine_name: String,
    pub machine: Machine,
    /// `None`: the live scheduler's rules.
    pub kernel: Option<Kernel>,
    pub policy: Policy,
    pub seed: u64,
    pub warmup_ns: u64,
    /// Without the warm-up.
    pub duration_ns: u64,
    pub stop_when_done: bool,
    /// Parents before children, else in the order of the file.
    pub groups: Vec<ScenarioGroup>,
    pub workloads: Vec<ScenarioWorkload>,
    changes: Vec<(u64, What)>,
}

/// A group and its knobs as the run begins.
#[derive(Debug, Clone)]
pub struct ScenarioGroup {
    /// As in the file: "web/api".
    pub name: String,
    pub spec: GroupSpec,
}

#[derive(Debug, Clone)]
pub struct ScenarioWorkload {
    pub name: String,
    /// As in the file.
    pub kind: String,
    /// As in the file; empty for the root.
    pub group: String,
    pub place: Place,
    pub work: Workload,
}

/// A change whose tasks are not known before the workloads are built.
#[derive(Debug, Clone)]
enum What {
    Kind(ChangeKind),
    Nice(usize, i32),
    Affinity(usize, Option<CpuSet>),
    Move(usize, GroupId),
}

impl Scenario {
    /// Reads a scenario file, or an example that the binary holds, with the settings of `--set` applied.
    pub fn load(path: &Path, settings: &[String]) -> Result<Self, Problems> {
        Self::load_with(path, [settings]).map(|[one]| one)
    }

    /// Likewise, once with each of these settings. The file is read once: a pipe is empty the second time.
    pub fn load_with<const N: usize>(path: &Path, settings: [&[String]; N]) -> Result<[Self; N], Problems> {
        let found =
            find::scenario(path).map_err(|message| Problems::one(path.display().to_string(), message))?;
        let base = path.parent().unwrap_or(Path::new(""));
        let mut all = Vec::new();
        for settings in settings {
            all.push(Self::parse(&found.name, &found.text, base, settings)?);
        }
        Ok(all.try_into().expect("one for each"))
    }

    /// Reads a scenario's text. `base`: the directory that a machine's path is relative to.
    pub fn parse(name: &str, text: &str, base: &Path, settings: &[String]) -> Result<Self, Problems> {
        let mut tree = Tree::parse(name, text)?;
        for setting in settings {
            tree.set(setting)?;
        }
        let file: ScenarioFile = crate::read(&tree)?;
        let (machine_name, machine, (kernel, policy)) = machine_of(&file, &tree, base)?;
        let scenario = Scenario {
            name: name.to_string(),
            settings: settings.to_vec(),
            description: file.description.trim().to_string(),
            machine_name,
            machine,
            kernel,
            policy: file.switches.policy(policy),
            seed: file.seed,
            warmup_ns: file.warmup_ms * 1_000_000,
            duration_ns: file.duration_ms * 1_000_000,
            stop_when_done: file.stop_when_done,
            groups: Vec::new(),
            workloads: Vec::new(),
            changes: Vec::new(),
        };
        let mut resolve = Resolve {
            tree: &tree,
            file: &file,
            scenario,
            problems: Vec::new(),
        };
        resolve.switches();
        resolve.groups();
        resolve.workloads();
        resolve.changes();
        if resolve.problems.is_empty() {
            Ok(resolve.scenario)
        } else {
            Err(Problems::sorted(resolve.problems))
        }
    }

    /// Whether a change gives a group another quota or period than it begins with.
    pub fn limit_changes(&self, group: GroupId) -> bool {
        let Some(at) = group.0.checked_sub(1) else {
            return false;
        };
        let first = self.groups[at as usize].spec.limits;
        let another = |limits: &Limits| match (limits.quota_ns, first.quota_ns) {
            (None, None) => false,
            (now, before) => (now, limits.period_ns) != (before, first.period_ns),
        };
        self.changes.iter().any(|(_, what)| match what {
            What::Kind(ChangeKind::Limits { group: of, limits }) => *of == group && another(limits),
            _ => false,
        })
    }

    /// What the simulator takes. Workloads keep the order of the file, groups are numbered from 1.
    pub fn config(&self) -> Config {
        let mut config = Config::new(self.machine.clone(), self.warmup_ns + self.duration_ns);
        config.policy = self.policy.clone();
        config.seed = self.seed;
        config.warmup_ns = self.warmup_ns;
        config.stop_when_done = self.stop_when_done;
        for group in &self.groups {
            config.add_group(group.spec.clone());
        }
        let mut tasks = Vec::new();
        for workload in &self.workloads {
            let first = config.tasks.len() as u32;
            workload.work.build(&workload.place, &mut config);
            tasks.push(first..config.tasks.len() as u32);
        }
        for (at_ns, what) in &self.changes {
            let mut push = |what: ChangeKind| config.changes.push(Change { at_ns: *at_ns, what });
            let of = |workload: &usize| tasks[*workload].clone().map(TaskId);
            match what {
                What::Kind(kind) => push(kind.clone()),
                What::Nice(workload, nice) => {
                    of(workload).for_each(|task| push(ChangeKind::Nice { task, nice: *nice }));
                }
                What::Affinity(workload, affinity) => of(workload).for_each(|task| {
                    push(ChangeKind::Affinity {
                        task,
                        affinity: affinity.clone(),
                    })
                }),
                What::Move(workload, group) => {
                    of(workload).for_each(|task| push(ChangeKind::MoveTask { task, group: *group }));
                }
            }
        }
        config
    }
}

/// The kernel that the scenario names, and the policy that switches are set in.
type Rules = (Option<Kernel>, Policy);

/// The machine by name, and the rules that hold on it.
fn machine_of(file: &ScenarioFile, tree: &Tree, base: &Path) -> Result<(String, Machine, Rules), Problems> {
    match &file.machine {
        MachineChoice::Inline(model) => {
            let mut machine = machine::machine(model, tree, &["machine"])?;
            let rules = kernel_of(file, tree, model, &mut machine)?;
            let name = if model.description.is_empty() {
                "inline"
            } else {
                model.description.as_str()
            };
            Ok((name.to_string(), machine, rules))
        }
        MachineChoice::Name(wanted) => {
            let found = find::machine(wanted, base)
                .map_err(|message| Problems(vec![tree.problem_at(&["machine"], message)]))?;
            let model_tree = Tree::parse(&found.name, &found.text)?;
            let model: MachineFile = crate::read(&model_tree)?;
            let mut machine = machine::machine(&model, &model_tree, &[])?;
            let rules = kernel_of(file, tree, &model, &mut machine)?;
            Ok((wanted.clone(), machine, rules))
        }
    }
}

/// What the scenario's kernel does to the machine, and its rules.
fn kernel_of(
    file: &ScenarioFile,
    tree: &Tree,
    model: &MachineFile,
    machine: &mut Machine,
) -> Result<Rules, Problems> {
    let mut policy = Policy::default();
    let mut simulated = None;
    if let Some(wanted) = &file.kernel {
        let Some((taken, kernel)) = model.kernel(wanted) else {
            let message = format!("\"{wanted}\": the machine's model names no kernels");
            return Err(Problems(vec![tree.problem_at(&["kernel"], message)]));
        };
        if !is_version(wanted) {
            let message = format!(
                "\"{}\": allowed is a version as in \"6.1\" or \"6.1.55\"; the machine's model knows {}",
                wanted.escape_debug(),
                model.kernels()
            );
            return Err(Problems(vec![tree.problem_at(&["kernel"], message)]));
        }
        policy = policy.with_kernel_balance();
        let mainline = Mainline::of(wanted);
        policy = policy.with_fair(Fair::Cfs);
        if file.switches.fair == Some(FairChoice::Eevdf) {
            mainline.set_turns(&mut policy, machine.topology.nr_cpus(), machine.hz);
        }
        policy.cgroup_mode = mainline.cgroup_mode();
        kernel.apply(machine.topology.nr_cpus(), &mut policy, &mut machine.costs);
        simulated = Some(Kernel {
            asked: wanted.clone(),
            taken: taken.to_string(),
        });
    }
    Ok((simulated, policy))
}

struct Resolve<'a> {
    tree: &'a Tree,
    file: &'a ScenarioFile,
    scenario: Scenario,
    problems: Vec<Problem>,
}

/// What a CPU of a list has to be.
const LEFT: &str = "left by the groups above";

impl Resolve<'_> {
    fn refuse(&mut self, path: &[&str], message: impl Into<String>) {
        self.problems.push(self.tree.problem_at(path, message));
    }

    fn nr_cpus(&self) -> u32 {
        self.scenario.machine.topology.nr_cpus()
    }

    fn mainline(&self) -> bool {
        self.file.switches.mainline()
    }

    /// Names in the order of the file.
    fn names(&self, table: &str) -> Vec<String> {
        self.tree.root.entry(table).map_or(Vec::new(), |entry| {
            entry.node.keys().map(str::to_string).collect()
        })
    }

    fn group_id(&self, name: &str) -> Option<GroupId> {
        if name.is_empty() || name == "/" {
            return Some(GroupId::ROOT);
        }
        let at = self.scenario.groups.iter().position(|group| group.name == name)?;
        Some(GroupId(at as u32 + 1))
    }

    /// The CPUs that a group may run on, of those in `all`; `own` is the cpuset of the group at an index.
    fn cpus_of<'c>(
        &self,
        group: GroupId,
        own: &impl Fn(usize) -> Option<&'c CpuSet>,
        all: &CpuSet,
    ) -> CpuSet {
        cpus_of(group, &|at| self.scenario.groups[at].spec.parent, own, all)
    }

    /// Likewise, as the run begins.
    fn first_cpus_of(&self, group: GroupId) -> CpuSet {
        let own = |at: usize| self.scenario.groups[at].spec.cpuset.as_ref();
        self.cpus_of(group, &own, &CpuSet::all(self.nr_cpus()))
    }

    /// A list of CPUs, not all of which are lost outside `within`.
    fn cpu_list(
        &mut self,
        list: &Option<CpuList>,
        within: &CpuSet,
        rule: &str,
        path: &[&str],
    ) -> Option<CpuSet> {
        match list.as_ref()?.cpus(self.nr_cpus()) {
            Ok(set) if set.intersection(within).is_empty() => {
                let allowed = within;
                self.refuse(path, format!("none of these CPUs is {rule}; allowed: {allowed}"));
                None
            }
            Ok(set) => Some(set),
            Err(message) => {
                self.refuse(path, message);
                None
            }
        }
    }

    fn limits(&mut self, knobs: &Knobs, before: Limits, path: &[&str]) -> Option<Limits> {
        match knobs.apply(before, self.mainline()) {
            Ok(limits) => Some(limits),
            Err(refusals) => {
                for refusal in refusals {
                    let path: Vec<&str> = path.iter().copied().chain([refusal.key]).collect();
                    self.refuse(&path, refusal.message);
                }
                None
            }
        }
    }

    /// What two switches allow together.
    fn switches(&mut self) {
        let headroom = &self.scenario.policy.headroom;
        if headroom.tolerance_ns > headroom.window_ns {
            let message = format!(
                "{}: allowed 1 .. {}, the window (headroom_window_ms)",
                headroom.tolerance_ns / 1000,
                headroom.window_ns / 1000
            );
            self.refuse(&["switches", "headroom_tolerance_us"], message);
        }
        if self.scenario.policy.fair == Fair::Cfs {
            return;
        }
        let switches = &self.file.switches;
        let of_cfs = [
            ("run_latency_us", switches.run_latency_us),
            ("sleeper_credit_us", switches.sleeper_credit_us),
            ("wakeup_granularity_us", switches.wakeup_granularity_us),
        ];
        for (key, given) in of_cfs {
            if given.is_some() {
                let message = "tasks take turns by lag and deadline, which has no such number; allowed with fair = \"cfs\"";
                self.refuse(&["switches", key], message);
            }
        }
    }

    fn groups(&mut self) {
        let mut names = self.names("group");
        let most = CELLS_MAX / u64::from(self.nr_cpus());
        if names.len() as u64 > most {
            let message = format!(
                "{} groups: allowed 0 .. {most} on a machine of {} CPUs",
                names.len(),
                self.nr_cpus()
            );
            self.refuse(&["group"], message);
        }
        names.sort_by_key(|name| name.matches('/').count());
        for name in names {
            let path = ["group", name.as_str()];
            if name == "/" {
                self.refuse(&path, "the root group takes no knobs");
                continue;
            }
            if name.split('/').any(str::is_empty) || name.contains(char::is_control) {
                self.refuse(
                    &path,
                    "a group's name is one word, or several with single slashes: \"web/api\"",
                );
                continue;
            }
            let depth = name.matches('/').count() + 1;
            if depth > pl::GROUP_DEPTH_MAX as usize {
                self.refuse(
                    &path,
                    format!("{depth} levels deep: allowed 1 .. {}", pl::GROUP_DEPTH_MAX),
                );
                continue;
            }
            let parent = name.rsplit_once('/').map_or("", |(parent, _)| parent);
            let Some(parent) = self.group_id(parent) else {
                // One that is there was refused before: that is the mistake.
                if !self.file.group.contains_key(parent) {
                    self.refuse(
                        &path,
                        format!("there is no group \"{parent}\"; add [group.\"{parent}\"]"),
                    );
                }
                continue;
            };
            let table = &self.file.group[&name];
            let spec = self.group(&name, parent, table);
            self.scenario.groups.push(ScenarioGroup { name, spec });
        }
    }

    fn group(&mut self, name: &str, parent: GroupId, table: &GroupTable) -> GroupSpec {
        let mut spec = GroupSpec::new(format!("/{name}"), parent);
        let above = self.first_cpus_of(parent);
        spec.cpu_weight = table.knobs.weight.unwrap_or(spec.cpu_weight);
        spec.idle = table.knobs.idle.unwrap_or(false);
        spec.headroom_percent = table.knobs.headroom_percent.unwrap_or(0);
        spec.cpuset = self.cpu_list(&table.cpus, &above, LEFT, &["group", name, "cpus"]);
        spec.limits = self
            .limits(&table.knobs, Limits::UNLIMITED, &["group", name])
            .unwrap_or(spec.limits);
        if let Some(phase_us) = table.phase_us {
            let period_us = spec.limits.period_ns / 1000;
            if phase_us >= period_us {
                self.refuse(
                    &["group", name, "phase_us"],
                    format!("{phase_us}: allowed 0 .. {}", period_us - 1),
                );
            } else {
                spec.phase_ns = phase_us * 1000;
            }
        }
        spec
    }

    /// The number of a group that something names, or a problem there. One that is in the file and has no number was
    /// refused before, and is not missed again.
    fn named_group(&mut self, name: &str, path: &[&str]) -> Option<GroupId> {
        let id = self.group_id(name);
        if id.is_none() && !self.file.group.contains_key(name) {
            let message = self.unknown("group", name, self.file.group.keys());
            self.refuse(path, message);
        }
        id
    }

    fn unknown<'n>(&self, what: &str, name: &str, known: impl Iterator<Item = &'n String>) -> String {
        let known: Vec<&str> = known.map(String::as_str).collect();
        match nearest(name, known.iter().copied()) {
            Some(near) => format!("\"{name}\": no such {what}; did you mean \"{near}\"?"),
            None if known.is_empty() => format!("\"{name}\": no such {what}; the scenario has none"),
            None => format!("\"{name}\": no such {what}; known: {}", known.join(", ")),
        }
    }

    fn workloads(&mut self) {
        let mut before = 0;
        for name in self.names("workload") {
            let table = &self.file.workload[&name];
            self.tasks(&name, table.work.tasks_max(self.nr_cpus()), &mut before);
            let workload = self.workload(&name, table);
            self.scenario.workloads.push(workload);
        }
    }

    /// Refuses what are too many tasks alone, and the first that are too many with those of the workloads before.
    fn tasks(&mut self, name: &str, tasks: u64, before: &mut u64) {
        let path = ["workload", name];
        if tasks > TASKS_MAX {
            self.refuse(&path, format!("{tasks} tasks: allowed 1 .. {TASKS_MAX}"));
            return;
        }
        let within = *before <= TASKS_MAX;
        *before += tasks;
        if within && *before > TASKS_MAX {
            let message = format!("{before} tasks with those before: allowed 1 .. {TASKS_MAX} in all");
            self.refuse(&path, message);
        }
    }

    fn workload(&mut self, name: &str, table: &WorkloadTable) -> ScenarioWorkload {
        if name.contains(char::is_control) {
            self.refuse(
                &["workload", name],
                "a workload's name is text without control characters",
            );
        }
        let group_name = table.group.clone().unwrap_or_default();
        let group = self
            .named_group(&group_name, &["workload", name, "group"])
            .unwrap_or(GroupId::ROOT);
        let mut place = Place::new(name, group);
        let within = self.first_cpus_of(group);
        place.nice = table.nice.unwrap_or(0);
        place.affinity = self.cpu_list(&table.cpus, &within, LEFT, &["workload", name, "cpus"]);
        place.start_ns = ns_of_ms(table.begin_ms.unwrap_or(0.0));
        self.idle_keys(name, &table.work);
        let load_per_s = table.work.load_per_s(&self.scenario.machine);
        if let Some(rate) = load_per_s.filter(|rate| *rate > RATE_MAX) {
            let message =
                format!("comes to {rate:e} requests/s of work_us here; allowed: up to {RATE_MAX:e}");
            self.refuse(&["workload", name, "arrivals", "load_percent"], message);
        }
        let kind = self
            .tree
            .root
            .entry("workload")
            .and_then(|entry| entry.node.entry(name))
            .and_then(|entry| match entry.node.to_json().get("kind") {
                Some(serde_json::Value::String(kind)) => Some(kind.clone()),
                _ => None,
            });
        ScenarioWorkload {
            name: name.to_string(),
            kind: kind.unwrap_or_default(),
            group: group_name.trim_matches('/').to_string(),
            place,
            work: table.work.clone(),
        }
    }

    /// Refuses keys without effect. One that `--set` turns off may stay: a sweep down to nothing is none of a mistake.
    fn idle_keys(&mut self, name: &str, work: &Workload) {
        for idle in work.idle_keys() {
            let node = |key: &str| self.tree.node_at(&["workload", name, key]);
            let set = |key: &&str| node(key).is_some_and(|node| matches!(node.origin, Origin::Option(_)));
            if idle.needs.iter().any(set) {
                continue;
            }
            let given = node(idle.key).map_or(String::new(), |node| node.shown());
            let message = format!("{given}: has no effect here; it needs {}", idle.wanted);
            self.refuse(&["workload", name, idle.key], message);
        }
    }
}

fn ns_of_ms(ms: f64) -> u64 {
    (ms * 1e6).round() as u64
}
