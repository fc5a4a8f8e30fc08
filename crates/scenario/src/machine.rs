// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine file: topology, clock, what things cost, and where each number comes from.
use crate::kernel::{is_version, KernelTable};
use crate::problem::{Problem, Problems};
use crate::tree::Tree;
use plimsoll_sim::{Costs, IdleState, Machine, Numbering, PerDistance, Topology};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

/// As many as the simulator takes.
const CPUS_MAX: u64 = 4096;

/// A machine: the name of a model ("x6-2"), a path to a file ("./my-machine.toml"), or the model itself.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum MachineChoice {
    Name(String),
    Inline(Box<MachineFile>),
}

/// A plimsoll machine model. Times are in nanoseconds of the CPU that does something, unless said otherwise.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "plimsoll machine model")]
pub struct MachineFile {
    /// Which machine this is, in a line.
    #[serde(default)]
    pub description: String,
    pub topology: TopologyTable,
    #[serde(default)]
    pub clock: ClockTable,
    #[serde(default)]
    pub costs: CostsTable,
    /// Kernels by version, such as "6.1".
    #[serde(default)]
    pub kernel: BTreeMap<String, KernelTable>,
}

/// How CPUs are arranged: a machine whose sockets, NUMA nodes, caches and cores are all alike.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TopologyTable {
    /// Default 1.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 64))]
    pub sockets: u32,
    /// NUMA nodes of a socket. Default 1.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 64))]
    pub nodes_per_socket: u32,
    /// Last-level caches of a NUMA node. Default 1.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 64))]
    pub llcs_per_node: u32,
    /// Cores that share a last-level cache.
    #[schemars(range(min = 1, max = 4096))]
    pub cores_per_llc: u32,
    /// Hardware threads of a core. Default 1.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 8))]
    pub threads_per_core: u32,
    /// How Linux numbers hardware threads. Default "last".
    #[serde(default)]
    pub siblings: Siblings,
    /// Where this is known from.
    pub source: Option<String>,
}

fn one() -> u32 {
    1
}

/// How Linux numbers hardware threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Siblings {
    /// The first threads of all cores, then the second ones: usual on x86 servers.
    #[default]
    Last,
    /// 0 and 1 are siblings.
    Adjacent,
}

/// The kernel's clockwork.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClockTable {
    /// Ticks per second on a busy CPU. Default 250.
    #[schemars(extend("minimum" = 24, "maximum" = 10_000))]
    pub hz: Option<Number>,
    /// What CLOCK_MONOTONIC shows as the run begins: ticks and period boundaries are anchored in that clock. Default 0.
    pub start_ns: Option<Number>,
    /// Ticks are at clock = tick_phase_ns + k / hz. Default 0.
    pub tick_phase_ns: Option<Number>,
    /// Each CPU's ticks are this much later than those of the CPU before; 0: all at once. Default 0.
    pub tick_stagger_ns: Option<Number>,
}

/// A number, or a number with its source, as in `{ value = 599, source = "..." }`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Number {
    Plain(u64),
    Sourced(Sourced),
}

/// A number and where it comes from.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sourced {
    /// The number.
    pub value: u64,
    /// A file, a measurement, or what was assumed.
    pub source: String,
}

/// true or false, or that with its source.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Flag {
    Plain(bool),
    Sourced(SourcedFlag),
}

/// true or false, and where that comes from.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourcedFlag {
    /// true or false.
    pub value: bool,
    /// A file, a measurement, or what was assumed.
    pub source: String,
}

/// A cost by how far apart two CPUs are, in nanoseconds.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DistanceTable {
    /// Between hardware threads of one core.
    #[schemars(range(max = COST_MAX_NS))]
    pub core_ns: u64,
    /// Within one last-level cache.
    #[schemars(range(max = COST_MAX_NS))]
    pub llc_ns: u64,
    /// Within one socket, from another last-level cache.
    #[schemars(range(max = COST_MAX_NS))]
    pub socket_ns: u64,
    /// From another socket.
    #[schemars(range(max = COST_MAX_NS))]
    pub remote_ns: u64,
    /// A file, a measurement, or what was assumed.
    pub source: Option<String>,
}

/// A CPU that has been idle for at least `after_ns` takes `exit_ns` to come back.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IdleStateTable {
    /// Idle for at least this long.
    pub after_ns: u64,
    /// Time until it runs something again.
    #[schemars(range(max = COST_MAX_NS))]
    pub exit_ns: u64,
    /// A file, a measurement, or what was assumed.
    pub source: Option<String>,
}

/// What costs are left out mean.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Base {
    /// Of the order of a current x86 server.
    #[default]
    Server,
    /// Nothing but the tasks' own work takes time.
    Free,
}

/// What things cost. Those left out are of a current x86 server, or nothing with `base = "free"`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CostsTable {
    /// What costs are left out mean. Default "server".
    #[serde(default)]
    pub base: Base,
    /// From one task to another, or between a task and idle.
    #[schemars(extend("minimum" = 0, "maximum" = COST_MAX_NS))]
    pub context_switch_ns: Option<Number>,
    /// On top of `context_switch_ns`, from one process to another. Only hackbench's processes have address spaces: no
    /// other workload pays it. Default 0.
    #[schemars(extend("minimum" = 0, "maximum" = COST_MAX_NS))]
    pub address_space_ns: Option<Number>,
    /// Entering and leaving the kernel.
    #[schemars(extend("minimum" = 0, "maximum" = COST_MAX_NS))]
    pub syscall_ns: Option<Number>,
    /// Sending or receiving one message, on top of the system call.
    #[schemars(extend("minimum" = 0, "maximum" = COST_MAX_NS))]
    pub channel_ns: Option<Number>,
    /// Receiving one message, on top of `channel_ns`. Default 0.
    #[schemars(extend("minimum" = 0, "maximum" = COST_MAX_NS))]
    pub receive_extra_ns: Option<Number>,
    /// Waking a task, to the waker, without the search for a CPU. Where the fair class places wake-ups (`wake_search`), the
    /// CPU that was found looks idle to others for so long: their searches overlap.
    #[schemars(extend("minimum" = 0, "maximum" = COST_MAX_NS))]
    pub wakeup_ns: Option<Number>,
    /// Sending an interrupt to another CPU, to the sender.
    #[schemars(extend("minimum" = 0, "maximum" = COST_MAX_NS))]
    pub ipi_send_ns: Option<Number>,
    /// From sending an interrupt until the other CPU has taken it.
    pub ipi: Option<DistanceTable>,
    /// One interrupt, of a timer or of a message from another machine, to the CPU that takes it.
    #[schemars(extend("minimum" = 0, "maximum" = COST_MAX_NS))]
    pub timer_ns: Option<Number>,
    /// From the moment at which a limit is used up until the timer that enforces it has led to the charge, which the
    /// task pays.
    #[schemars(extend("minimum" = 0, "maximum" = COST_MAX_NS))]
    pub limit_late_ns: Option<Number>,
    /// Work that a task repeats in cold caches after a move.
    pub migration: Option<DistanceTable>,
    /// A task that ran longer ago than this has nothing left in its caches.
    #[schemars(extend("minimum" = 0, "maximum" = COST_MAX_NS))]
    pub migration_hot_ns: Option<Number>,
    /// How long coming back from idle takes, by ascending `after_ns`; empty: it is free.
    pub idle_states: Option<Vec<IdleStateTable>>,
    /// On top of coming back from idle, for each CPU that is busy at the time: virtual CPUs that share one real one take
    /// turns. Default 0.
    #[schemars(extend("minimum" = 0, "maximum" = COST_MAX_NS))]
    pub idle_exit_per_busy_ns: Option<Number>,
    /// Charged to the task that a CPU comes back from idle for, on top of its run time: the kernel's clock of it starts before
    /// the switch. Default 0.
    #[schemars(extend("minimum" = 0, "maximum" = COST_MAX_NS))]
    pub idle_charged_ns: Option<Number>,
    /// Timers that are due at the same time are taken CPU by CPU: virtual CPUs that share one real one take turns.
    /// Default false.
    pub turns: Option<Flag>,
    /// A virtual CPU that runs dry polls this long at most before its host takes it away (kvm's halt_poll_ns, which grows and
    /// shrinks); taken away, it looks preempted and the fair class does not count it as idle. 0: CPUs are real.
    #[schemars(extend("minimum" = 0, "maximum" = COST_MAX_NS))]
    pub halt_poll_ns: Option<Number>,
    /// Speed of a hardware thread whose sibling is busy, in percent of its speed alone.
    #[schemars(extend("minimum" = 1, "maximum" = 100))]
    pub smt_percent: Option<Number>,
    /// Looking at one CPU in a search (wake-up placement, new-idle, stealing).
    #[schemars(extend("minimum" = 0, "maximum" = COST_MAX_NS))]
    pub search_cpu_ns: Option<Number>,
    /// Beginning a new-idle search of one level: locks, statistics.
    #[schemars(extend("minimum" = 0, "maximum" = COST_MAX_NS))]
    pub newidle_level_ns: Option<Number>,
    /// A CPU whose idle times are shorter than this on average does not search at all. Default 0.
    #[schemars(extend("minimum" = 0, "maximum" = COST_MAX_NS))]
    pub newidle_idle_ns: Option<Number>,
    /// Taking a task from another CPU's queue: both queues' locks.
    #[schemars(extend("minimum" = 0, "maximum" = COST_MAX_NS))]
    pub move_task_ns: Option<Number>,
    /// One periodic balance of one level.
    #[schemars(extend("minimum" = 0, "maximum" = COST_MAX_NS))]
    pub periodic_level_ns: Option<Number>,
    /// Fetching a cache line that another CPU has written.
    pub line: Option<DistanceTable>,
    /// How long a group's pool lock is held.
    #[schemars(extend("minimum" = 0, "maximum" = COST_MAX_NS))]
    pub pool_lock_ns: Option<Number>,
    /// Whether lines shared by all CPUs serve one transfer at a time, others waiting in order.
    pub contention: Option<Flag>,
}

/// Makes a machine of its file. `at` is where the model stands in `tree`: nowhere for a file of its own, `machine` in a
/// scenario.
pub fn machine(file: &MachineFile, tree: &Tree, at: &[&str]) -> Result<Machine, Problems> {
    let mut build = Build {
        tree,
        at,
        problems: Vec::new(),
    };
    let t = &file.topology;
    let cpus = [
        t.sockets,
        t.nodes_per_socket,
        t.llcs_per_node,
        t.cores_per_llc,
        t.threads_per_core,
    ]
    .iter()
    .fold(1u64, |product, count| product.saturating_mul(u64::from(*count)));
    if cpus > CPUS_MAX {
        build.refuse(&["topology"], format!("{cpus} CPUs: allowed 1 .. {CPUS_MAX}"));
        return Err(Problems::sorted(build.problems));
    }
    let numbering = match t.siblings {
        Siblings::Last => Numbering::SiblingsLast,
        Siblings::Adjacent => Numbering::SiblingsAdjacent,
    };
    let mut machine = Machine::new(Topology::regular(
        t.sockets,
        t.nodes_per_socket,
        t.llcs_per_node,
        t.cores_per_llc,
        t.threads_per_core,
        numbering,
    ));
    let mut hz = u64::from(machine.hz);
    build.number("clock", "hz", &file.clock.hz, 24, 10_000, &mut hz);
    machine.hz = hz as u32;
    build.time(
        "clock",
        "start_ns",
        &file.clock.start_ns,
        &mut machine.clock_start_ns,
    );
    build.time(
        "clock",
        "tick_phase_ns",
        &file.clock.tick_phase_ns,
        &mut machine.tick_phase_ns,
    );
    build.time(
        "clock",
        "tick_stagger_ns",
        &file.clock.tick_stagger_ns,
        &mut machine.tick_stagger_ns,
    );
    machine.costs = build.costs(&file.costs);
    for name in file.kernel.keys().filter(|name| !is_version(name)) {
        let message = "a kernel's name is its version, as in \"6.1\" or \"6.1.55\"".to_string();
        build.refuse(&["kernel", name], message);
    }
    if build.problems.is_empty() {
        Ok(machine)
    } else {
        Err(Problems::sorted(build.problems))
    }
}

/// No cost is longer than this; what is was meant in another unit.
const COST_MAX_NS: u64 = 1_000_000_000;

struct Build<'a> {
    tree: &'a Tree,
    at: &'a [&'a str],
    problems: Vec<Problem>,
}

impl Build<'_> {
    fn refuse(&mut self, path: &[&str], message: String) {
        let path: Vec<&str> = self.at.iter().chain(path).copied().collect();
        self.problems.push(self.tree.problem_at(&path, message));
    }

    fn number(
        &mut self,
        table: &str,
        key: &str,
        given: &Option<Number>,
        low: u64,
        high: u64,
        into: &mut u64,
    ) {
        let Some(given) = given else { return };
        let (value, path): (u64, &[&str]) = match given {
            Number::Plain(value) => (*value, &[table, key]),
            Number::Sourced(sourced) => (sourced.value, &[table, key, "value"]),
        };
        if (low..=high).contains(&value) {
            *into = value;
        } else {
            self.refuse(path, format!("{value}: allowed {low} .. {high}"));
        }
    }

    fn time(&mut self, table: &str, key: &str, given: &Option<Number>, into: &mut u64) {
        // A clock may show years; a tick's phase and stagger are checked no closer, they only shift it.
        self.number(table, key, given, 0, i64::MAX as u64 / 4, into);
    }

    fn cost(&mut self, key: &str, given: &Option<Number>, into: &mut u64) {
        self.number("costs", key, given, 0, COST_MAX_NS, into);
    }

    fn distance(&mut self, key: &str, given: &Option<DistanceTable>, into: &mut PerDistance) {
        let Some(given) = given else { return };
        let parts = [
            ("core_ns", given.core_ns, &mut into.core_ns),
            ("llc_ns", given.llc_ns, &mut into.llc_ns),
            ("socket_ns", given.socket_ns, &mut into.socket_ns),
            ("remote_ns", given.remote_ns, &mut into.remote_ns),
        ];
        for (part, value, into) in parts {
            *into = value;
            if value > COST_MAX_NS {
                self.refuse(
                    &["costs", key, part],
                    format!("{value}: allowed 0 .. {COST_MAX_NS}"),
                );
            }
        }
    }

    fn costs(&mut self, table: &CostsTable) -> Costs {
        let mut costs = match table.base {
            Base::Server => Costs::default(),
            Base::Free => Costs::free(),
        };
        self.cost(
            "context_switch_ns",
            &table.context_switch_ns,
            &mut costs.context_switch_ns,
        );
        self.cost(
            "address_space_ns",
            &table.address_space_ns,
            &mut costs.address_space_ns,
        );
        self.cost(
            "idle_exit_per_busy_ns",
            &table.idle_exit_per_busy_ns,
            &mut costs.idle_exit_per_busy_ns,
        );
        self.cost(
            "idle_charged_ns",
            &table.idle_charged_ns,
            &mut costs.idle_charged_ns,
        );
        self.cost("halt_poll_ns", &table.halt_poll_ns, &mut costs.halt_poll_ns);
        self.cost("syscall_ns", &table.syscall_ns, &mut costs.syscall_ns);
        self.cost("channel_ns", &table.channel_ns, &mut costs.channel_ns);
        self.cost(
            "receive_extra_ns",
            &table.receive_extra_ns,
            &mut costs.receive_extra_ns,
        );
        self.cost("wakeup_ns", &table.wakeup_ns, &mut costs.wakeup_ns);
        self.cost("ipi_send_ns", &table.ipi_send_ns, &mut costs.ipi_send_ns);
        self.distance("ipi", &table.ipi, &mut costs.ipi);
        self.cost("timer_ns", &table.timer_ns, &mut costs.timer_ns);
        self.cost("limit_late_ns", &table.limit_late_ns, &mut costs.limit_late_ns);
        self.distance("migration", &table.migration, &mut costs.migration);
        self.cost(
            "migration_hot_ns",
            &table.migration_hot_ns,
            &mut costs.migration_hot_ns,
        );
        let mut smt_percent = u64::from(costs.smt_percent);
        self.number(
            "costs",
            "smt_percent",
            &table.smt_percent,
            1,
            100,
            &mut smt_percent,
        );
        costs.smt_percent = smt_percent as u32;
        self.cost("search_cpu_ns", &table.search_cpu_ns, &mut costs.search_cpu_ns);
        self.cost(
            "newidle_level_ns",
            &table.newidle_level_ns,
            &mut costs.newidle_level_ns,
        );
        self.cost(
            "newidle_idle_ns",
            &table.newidle_idle_ns,
            &mut costs.newidle_idle_ns,
        );
        self.cost("move_task_ns", &table.move_task_ns, &mut costs.move_task_ns);
        self.cost(
            "periodic_level_ns",
            &table.periodic_level_ns,
            &mut costs.periodic_level_ns,
        );
        self.distance("line", &table.line, &mut costs.line);
        self.cost("pool_lock_ns", &table.pool_lock_ns, &mut costs.pool_lock_ns);
        for (flag, into) in [
            (&table.contention, &mut costs.contention),
            (&table.turns, &mut costs.turns),
        ] {
            match flag {
                Some(Flag::Plain(value)) => *into = *value,
                Some(Flag::Sourced(sourced)) => *into = sourced.value,
                None => {}
            }
        }
        if let Some(states) = &table.idle_states {
            costs.idle_states = states
                .iter()
                .map(|state| IdleState {
                    after_ns: state.after_ns,
                    exit_ns: state.exit_ns,
                })
                .collect();
            for (i, state) in states
                .iter()
                .enumerate()
                .filter(|(_, state)| state.exit_ns > COST_MAX_NS)
            {
                self.refuse(
                    &["costs", "idle_states", &i.to_string(), "exit_ns"],
                    format!("{}: allowed 0 .. {COST_MAX_NS}", state.exit_ns),
                );
            }
            for (i, pair) in states.windows(2).enumerate() {
                if pair[1].after_ns <= pair[0].after_ns {
                    let allowed = format!(
                        "{}: allowed more than {}, the one before",
                        pair[1].after_ns, pair[0].after_ns
                    );
                    self.refuse(
                        &["costs", "idle_states", &(i + 1).to_string(), "after_ns"],
                        allowed,
                    );
                }
            }
        }
        costs
    }
}
