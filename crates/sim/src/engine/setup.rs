// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a configuration to a machine about to run: checks first, then memory, groups, tasks.
use super::bandwidth::policy_limits;
use super::events::{Slots, Timer, Timers};
use super::lines::Line;
use super::memory::Memory;
use super::services::new_histogram;
use super::state::{Channel, Cpu, Pending, State, Task, NONE};
use super::topo::{LlcState, Topo};
use super::{headroom, ledger, report, Engine, Services};
use crate::config::{ChangeKind, Config, ConfigError, GroupId, Limits, TaskId, TaskSpec};
use crate::cpuset::CpuSet;
use crate::observer::Observer;
use crate::results::{EventCounts, RunDelay, Touches};
use plimsoll_policy_sys as pl;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::RangeInclusive;

fn error(what: String, value: impl Display, allowed: impl Display) -> ConfigError {
    ConfigError {
        what,
        value: value.to_string(),
        allowed: allowed.to_string(),
    }
}

fn within<T: PartialOrd + Display>(
    what: impl FnOnce() -> String,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), ConfigError> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(error(
        what(),
        value,
        format!("{} .. {}", range.start(), range.end()),
    ))
}

fn check_set(what: impl FnOnce() -> String, set: &Option<CpuSet>, nr_cpus: u32) -> Result<(), ConfigError> {
    let Some(set) = set else { return Ok(()) };
    match set.iter().find(|&cpu| cpu >= nr_cpus) {
        Some(cpu) => Err(error(
            what(),
            format!("CPU {cpu}"),
            format!("CPUs 0 .. {}", nr_cpus - 1),
        )),
        None if set.is_empty() => Err(error(what(), "no CPU", "at least one")),
        None => Ok(()),
    }
}

fn check_limits(path: &str, limits: &Limits, is_root: bool, config: &Config) -> Result<(), ConfigError> {
    let mainline = config.policy.core.bandwidth.mainline != 0;
    // SAFETY: plain values.
    let code = unsafe { pl::pl_bw_check(&policy_limits(limits), is_root, mainline) };
    let us = |ns: u64| format!("{} us", ns / 1000);
    let quota = limits.quota_ns.map_or("max".to_owned(), us);
    let (field, value, allowed) = match code {
        pl::BW_OK => return Ok(()),
        pl::BW_ERR_ROOT => ("quota", quota, "no limit on the root group"),
        pl::BW_ERR_QUOTA => ("quota", quota, "1000 us .. 2^44 - 1 us, or max"),
        pl::BW_ERR_PERIOD => ("period", us(limits.period_ns), "1000 us .. 1000000 us"),
        pl::BW_ERR_BURST if mainline => (
            "burst",
            us(limits.burst_ns),
            "0 .. quota, both together up to 2^44 - 1 us (mainline semantics)",
        ),
        pl::BW_ERR_BURST => ("burst", us(limits.burst_ns), "0 .. 2^44 - 1 us"),
        _ => ("burst onset", format!("{} %", limits.onset_percent), "0 .. 100 %"),
    };
    Err(error(format!("group {path}: {field}"), value, allowed))
}

pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    let machine = &config.machine;
    let nr_cpus = machine.topology.nr_cpus();
    let nr_groups = config.groups.len() as u32 + 1;
    within(|| "machine: CPUs".into(), nr_cpus, 1..=4096)?;
    if let Err(problem) = machine.topology.check() {
        return Err(error(
            "machine: topology".into(),
            problem,
            "cores within caches within sockets, numbered from 0 without gaps",
        ));
    }
    within(|| "machine: hz".into(), machine.hz, 24..=10_000)?;
    within(
        || "machine: smt_percent".into(),
        machine.costs.smt_percent,
        1..=100,
    )?;
    within(|| "duration_ns".into(), config.duration_ns, 1..=1 << 51)?;
    within(|| "warmup_ns".into(), config.warmup_ns, 0..=config.duration_ns)?;
    let core = &config.policy.core;
    within(
        || "policy: bandwidth slice_ns".into(),
        core.bandwidth.slice_ns,
        1000..=1_000_000_000,
    )?;
    within(
        || "policy: fair slice_ns".into(),
        core.fair.slice_ns,
        1000..=1_000_000_000,
    )?;
    let headroom = &config.policy.headroom;
    within(
        || "policy: headroom window_ns".into(),
        headroom.window_ns,
        10_000_000..=1_000_000_000,
    )?;
    within(
        || "policy: headroom tolerance_ns".into(),
        headroom.tolerance_ns,
        1000..=headroom.window_ns,
    )?;
    within(|| "policy: headroom steps".into(), headroom.steps, 1..=100)?;

    for (i, group) in config.groups.iter().enumerate() {
        let at = |field: &str| format!("group {}: {field}", group.path);
        within(|| at("parent"), group.parent.0, 0..=i as u32)?;
        within(|| at("cpu.weight"), group.cpu_weight, 1..=10_000)?;
        within(|| at("cpu.headroom"), group.headroom_percent, 0..=100)?;
        check_limits(&group.path, &group.limits, false, config)?;
        check_set(|| at("cpuset"), &group.cpuset, nr_cpus)?;
        let mut depth = 1;
        let mut level = group.parent;
        while level != GroupId::ROOT {
            depth += 1;
            level = config.groups[level.0 as usize - 1].parent;
        }
        within(|| at("depth"), depth, 1..=pl::GROUP_DEPTH_MAX)?;
    }
    for channel in &config.channels {
        within(|| "channel: capacity".into(), channel.capacity, 1..=u32::MAX)?;
    }
    for (workload, name) in config.latencies.iter().chain(&config.counters) {
        let last = config.workloads.len() as u32;
        within(|| format!("{name}: workload"), workload.0 + 1, 1..=last)?;
    }
    for task in &config.tasks {
        let at = |field: &str| format!("task {}: {field}", task.name);
        within(|| at("group"), task.group.0, 0..=nr_groups - 1)?;
        within(
            || at("workload"),
            task.workload.0 + 1,
            1..=config.workloads.len() as u32,
        )?;
        within(|| at("nice"), task.nice, -20..=19)?;
        check_set(|| at("affinity"), &task.affinity, nr_cpus)?;
    }
    check_changes(config, nr_cpus, nr_groups)
}

fn check_changes(config: &Config, nr_cpus: u32, nr_groups: u32) -> Result<(), ConfigError> {
    let nr_tasks = config.tasks.len() as u32;
    let path = |group: GroupId| match group.0 {
        0 => "/",
        number => config.groups[number as usize - 1].path.as_str(),
    };
    for change in &config.changes {
        let at = |field: &str| format!("change at {} ns: {field}", change.at_ns);
        let group_ok = |group: &GroupId| within(|| at("group"), group.0, 0..=nr_groups - 1);
        let task_ok = |task: &TaskId| within(|| at("task number, from 1"), task.0 + 1, 1..=nr_tasks);
        match &change.what {
            ChangeKind::Limits { group, limits } => {
                group_ok(group)?;
                check_limits(path(*group), limits, *group == GroupId::ROOT, config)?;
            }
            ChangeKind::CpuWeight { group, cpu_weight } => {
                group_ok(group)?;
                within(|| at("cpu.weight"), *cpu_weight, 1..=10_000)?;
            }
            ChangeKind::GroupIdle { group, .. } => group_ok(group)?,
            ChangeKind::Headroom { group, percent } => {
                group_ok(group)?;
                within(|| at("cpu.headroom"), *percent, 0..=100)?;
            }
            ChangeKind::Cpuset { group, cpuset } => {
                group_ok(group)?;
                check_set(|| at("cpuset"), cpuset, nr_cpus)?;
            }
            ChangeKind::Affinity { task, affinity } => {
                task_ok(task)?;
                check_set(|| at("affinity"), affinity, nr_cpus)?;
            }
            ChangeKind::Nice { task, nice } => {
                task_ok(task)?;
                within(|| at("nice"), *nice, -20..=19)?;
            }
            ChangeKind::MoveTask { task, group } => {
                task_ok(task)?;
                group_ok(group)?;
            }
            ChangeKind::CpuOffline { cpu } | ChangeKind::CpuOnline { cpu } => {
                within(|| at("CPU"), *cpu, 0..=nr_cpus - 1)?;
            }
        }
    }
    Ok(())
}

impl<'o> Engine<'o> {
    pub fn new(config: Config, observer: Option<&'o mut dyn Observer>) -> Self {
        let machine = config.machine;
        let nr_cpus = machine.topology.nr_cpus();
        let mut parents = vec![None];
        parents.extend(config.groups.iter().map(|group| Some(group.parent.0)));
        parents.push(None);
        let nr_groups = parents.len();
        let topo = Topo::new(&machine.topology);
        let tick_len_ns = 1_000_000_000 / u64::from(machine.hz);
        let clock_ns = machine.clock_start_ns % tick_len_ns;
        let mut paths = vec!["/".to_owned()];
        let mut phases_ns = vec![0];
        let mut own_cpusets = vec![None];
        for group in &config.groups {
            paths.push(group.path.clone());
            phases_ns.push(group.phase_ns);
            own_cpusets.push(group.cpuset.clone());
        }
        phases_ns.push(0);
        let fair = config.policy.fair;
        let mut engine = Self {
            now_ns: 0,
            ended: false,
            stuck: None,
            llcs: topo.llcs.iter().map(|cpus| LlcState::new(cpus.len())).collect(),
            costs: machine.costs,
            policy: config.policy,
            tick_len_ns,
            tick_phase_ns: (machine.tick_phase_ns % tick_len_ns + tick_len_ns - clock_ns) % tick_len_ns,
            // Within a tick: for the last of many CPUs it is many times as much.
            tick_stagger_ns: machine.tick_stagger_ns % tick_len_ns,
            clock_start_ns: machine.clock_start_ns,
            stop_when_done: config.stop_when_done,
            check_every: match (config.check, cfg!(debug_assertions)) {
                (true, _) => 1,
                // A check looks at everything: on large machines not after every single event.
                (_, true) => 1 + (nr_groups * nr_cpus as usize + config.tasks.len()) as u32 / 64,
                _ => 0,
            },
            since_check: 0,
            ledger: config.check.then(|| Box::new(ledger::Ledger::new(nr_groups))),
            slots: Slots::new(nr_cpus as usize),
            timers: Timers::new(),
            cpus: (0..nr_cpus).map(Cpu::new).collect(),
            nr_online: nr_cpus,
            nr_busy: 0,
            nr_overloaded: 0,
            machine: pl::zeroed(),
            stepping: NONE,
            tasks: Vec::with_capacity(config.tasks.len()),
            behaviours: Vec::with_capacity(config.tasks.len()),
            unfinished: 0,
            forks: BTreeSet::new(),
            channels: config.channels.iter().map(|&spec| Channel::new(spec)).collect(),
            route_line: Line::default(),
            services: Services::new(
                config.seed,
                nr_cpus,
                config.latencies.len(),
                config.counters.len(),
                config.channels.len() as u32,
            ),
            memory: Memory::new(&parents, nr_cpus as usize),
            eevdf: super::eevdf::Eevdf::new(fair, nr_groups, nr_cpus as usize),
            paths,
            phases_ns,
            own_cpusets,
            cpusets: vec![None; nr_groups],
            period_at_ns: vec![0; nr_groups],
            is_side: vec![false; nr_groups],
            had_quota: vec![false; nr_groups],
            headroom: pl::zeroed(),
            headroom_marks: headroom::Marks::default(),
            released: Vec::new(),
            unparked: Vec::new(),
            waiting: Vec::new(),
            observer,
            counts: EventCounts::default(),
            touches: Touches::default(),
            newidle_rng: super::services::stream(config.seed, "new-idle"),
            interrupts_rng: super::services::stream(config.seed, "interrupts"),
            group_usage_ns: vec![0; nr_groups],
            group_delays: vec![RunDelay::default(); nr_groups],
            workload_usage_ns: vec![0; config.workloads.len()],
            workload_delays: config.workloads.iter().map(|_| new_histogram()).collect(),
            workloads: config.workloads,
            latencies: config.latencies,
            counters: config.counters,
            warm: report::WarmUp::until(config.warmup_ns),
            topo,
            changes: config.changes,
        };
        for cpu in 0..nr_cpus {
            engine.show_idle(cpu);
        }
        engine.begin_side();
        engine.resolve_cpusets();
        for (i, group) in config.groups.iter().enumerate() {
            let number = i as u32 + 1;
            // SAFETY: the group is alive and not borrowed.
            unsafe {
                let pointer = engine.memory.group(number);
                (*pointer).weight = pl::pl_weight_of_cpu_weight(group.cpu_weight);
                (*pointer).idle = u32::from(group.idle);
                (*pointer).headroom_percent = group.headroom_percent;
            }
            if group.limits.quota_ns.is_some() {
                engine.set_limits(number, &group.limits);
            }
        }
        engine.link_groups();
        engine.link_side();
        engine.timers.push(0, Timer::WarmUp);
        if config.warmup_ns > 0 {
            engine.timers.push(config.warmup_ns, Timer::WarmUp);
        }
        for (index, change) in engine.changes.iter().enumerate() {
            let index = index as u32;
            engine.timers.push(change.at_ns, Timer::Change { index });
        }
        for spec in config.tasks {
            let task = engine.services.register(spec.name.clone());
            engine.add_task(task, spec, 0);
        }
        engine.timers.push(config.duration_ns, Timer::End);
        engine
    }

    /// Takes over a task that has been numbered, and starts it when its time comes.
    pub(super) fn add_task(&mut self, task: TaskId, spec: TaskSpec, near_cpu: u32) {
        let number = task.0;
        // Those of the configuration have been checked; one that a behaviour spawns is a mistake of its author's.
        let nr_groups = self.memory.side();
        assert!(
            spec.group.0 < nr_groups,
            "task {}: group {} is not there; allowed: 0 .. {}",
            spec.name,
            spec.group.0,
            nr_groups - 1
        );
        assert!(
            (spec.workload.0 as usize) < self.workloads.len(),
            "task {}: workload {} is not there; allowed: numbers below {}",
            spec.name,
            spec.workload.0,
            self.workloads.len()
        );
        let mut policy: pl::Task = pl::zeroed();
        policy.group = self.memory.group(spec.group.0);
        policy.cpu = near_cpu;
        let task = Task {
            policy,
            group: spec.group.0,
            state: State::New,
            pending: Pending::Next,
            order: 0,
            work_ns: 0,
            debt_ns: 0,
            received: None,
            fetch_lines: 0,
            fetch_from: 0,
            cpu_ns: 0,
            runnable_ns: 0,
            last_ran_ns: 0,
            last_cpu: NONE,
            timer: 0,
            waits_for: NONE,
            parked_by: NONE,
            parked_next: NONE,
            parked_previous: NONE,
            workload: spec.workload,
            address_space: spec.address_space,
            forked_by: NONE,
            nice: spec.nice as i8,
            idle_class: spec.idle,
            external: spec.external,
            background: spec.background,
            follows_waker: spec.follows_waker,
            start_cpu: spec.start_cpu.unwrap_or(NONE),
            affinity: spec.affinity.map(Box::new),
            instant_steps: 0,
            recent_cpu: near_cpu,
            waker: pl::zeroed(),
        };
        if number as usize == self.tasks.len() {
            self.tasks.push(task);
            self.behaviours.push(spec.behaviour);
        } else {
            debug_assert_eq!(self.tasks[number as usize].state, State::Exited);
            self.tasks[number as usize] = task;
            self.behaviours[number as usize] = spec.behaviour;
        }
        if let Some(eevdf) = self.eevdf.as_deref_mut() {
            eevdf.is_new(number);
        }
        self.unfinished += u32::from(!spec.background);
        self.set_class(number);
        self.timers
            .push(spec.start_ns.max(self.now_ns), Timer::Start { task: number });
    }

    /// A task comes into being: on the least busy CPU, with its queue's clock.
    pub(super) fn start_task(&mut self, task: u32) {
        if let Some(observer) = self.observer.as_deref_mut() {
            let group = GroupId(self.tasks[task as usize].group);
            observer.task(self.now_ns, TaskId(task), self.services.name(TaskId(task)), group);
        }
        self.tasks[task as usize].state = State::Blocked;
        if self.tasks[task as usize].external {
            self.external_step(task);
            return;
        }
        self.forget_useless_affinity(task);
        let wanted = self.tasks[task as usize].start_cpu;
        let cpu = match wanted < self.cpus.len() as u32 && self.allowed(task, wanted) {
            true => wanted,
            false => self.select_any(task),
        };
        let entry = &mut self.tasks[task as usize];
        // SAFETY: plain structs.
        unsafe {
            let fair = &self.cpus[cpu as usize].fair;
            pl::pl_task_born(&mut entry.policy, cpu, fair, &self.policy.core.fair);
        }
        entry.runnable_ns = self.now_ns;
        self.counts.wakeups += 1;
        if let Some(observer) = self.observer.as_deref_mut() {
            observer.wake(self.now_ns, TaskId(task), cpu, cpu);
        }
        self.activate(task, cpu, NONE, true);
    }
}
