// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether what was given can be simulated: the first thing that cannot, its value, what is allowed.
use super::bandwidth::policy_limits;
use super::policy as pl;
use crate::config::{ChangeKind, Config, ConfigError, Costs, GroupId, Limits, TaskId, TaskSpec};
use plimsoll_cpus::CpuSet;
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
    let asked = policy_limits(limits);
    let us = |ns: u64| format!("{} us", ns / 1000);
    let quota = || limits.quota_ns.map_or("max".to_owned(), us);
    let refused = |field: &str, value: String, allowed: String| {
        Err(error(format!("group {path}: {field}"), value, allowed))
    };
    if is_root && !asked.fits_root() {
        return refused("quota", quota(), "no limit on the root group".into());
    }
    // The first that is refused: those before it are allowed, those after it play no part in its range.
    let range = |part| {
        let beside = match part {
            pl::BwPart::Burst => pl::BwLimits { burst_ns: 0, ..asked },
            _ => pl::BwLimits::NONE,
        };
        let allowed = beside.allowed(part, mainline);
        (*allowed.start(), *allowed.end())
    };
    let Some(part) = asked.refused(mainline) else {
        return Ok(());
    };
    let (low, high) = range(part);
    match part {
        pl::BwPart::Quota => refused("quota", quota(), format!("{low} us .. {high} us, or max")),
        pl::BwPart::Period => refused("period", us(limits.period_ns), format!("{low} us .. {high} us")),
        pl::BwPart::Burst => {
            let rule = if mainline {
                " (mainline semantics: no more than the quota)"
            } else {
                ""
            };
            refused(
                "burst",
                us(limits.burst_ns),
                format!("{low} us .. {high} us{rule}"),
            )
        }
        pl::BwPart::Onset => {
            let onset = format!("{} %", limits.onset_percent);
            refused("burst onset", onset, format!("{low} .. {high} %"))
        }
    }
}

const SECOND_NS: u64 = 1_000_000_000;

/// No cost is longer than a second; what is was meant in another unit.
fn check_costs(costs: &Costs) -> Result<(), ConfigError> {
    let at = |field: &str| format!("machine: costs: {field}");
    let plain = [
        ("context_switch_ns", costs.context_switch_ns),
        ("address_space_ns", costs.address_space_ns),
        ("syscall_ns", costs.syscall_ns),
        ("channel_ns", costs.channel_ns),
        ("receive_extra_ns", costs.receive_extra_ns),
        ("wakeup_ns", costs.wakeup_ns),
        ("ipi_send_ns", costs.ipi_send_ns),
        ("timer_ns", costs.timer_ns),
        ("limit_late_ns", costs.limit_late_ns),
        ("migration_hot_ns", costs.migration_hot_ns),
        ("idle_exit_per_busy_ns", costs.idle_exit_per_busy_ns),
        ("idle_charged_ns", costs.idle_charged_ns),
        ("halt_poll_ns", costs.halt_poll_ns),
        ("search_cpu_ns", costs.search_cpu_ns),
        ("newidle_level_ns", costs.newidle_level_ns),
        ("newidle_idle_ns", costs.newidle_idle_ns),
        ("move_task_ns", costs.move_task_ns),
        ("periodic_level_ns", costs.periodic_level_ns),
        ("pool_lock_ns", costs.pool_lock_ns),
    ];
    for (field, ns) in plain {
        within(|| at(field), ns, 0..=SECOND_NS)?;
    }
    for (table, per) in [
        ("ipi", costs.ipi),
        ("migration", costs.migration),
        ("line", costs.line),
    ] {
        for (part, ns) in [
            ("core_ns", per.core_ns),
            ("llc_ns", per.llc_ns),
            ("socket_ns", per.socket_ns),
            ("remote_ns", per.remote_ns),
        ] {
            within(|| at(&format!("{table}.{part}")), ns, 0..=SECOND_NS)?;
        }
    }
    let mut before = None;
    for (number, state) in costs.idle_states.iter().enumerate() {
        let field = |part: &str| at(&format!("idle_states[{number}].{part}"));
        within(|| field("exit_ns"), state.exit_ns, 0..=SECOND_NS)?;
        if let Some(before) = before.filter(|&before| state.after_ns <= before) {
            let allowed = format!("more than {before}, the one before");
            return Err(error(field("after_ns"), state.after_ns, allowed));
        }
        before = Some(state.after_ns);
    }
    Ok(())
}

pub(crate) fn check(config: &Config) -> Result<(), ConfigError> {
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
    check_costs(&machine.costs)?;
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
    for (field, value_ns, most_ns) in [
        ("latency_ns", core.fair.latency_ns, SECOND_NS),
        ("sleeper_credit_ns", core.fair.sleeper_credit_ns, SECOND_NS),
        ("wakeup_gran_ns", core.fair.wakeup_gran_ns, SECOND_NS),
        ("pull_ns", core.fair.pull_ns, 10 * SECOND_NS),
        ("load publish_ns", core.load.publish_ns, SECOND_NS),
        ("refresh_ns", core.refresh_ns, SECOND_NS),
    ] {
        within(|| format!("policy: {field}"), value_ns, 0..=most_ns)?;
    }
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
    let nr_workloads = config.workloads.len() as u32;
    for task in &config.tasks {
        check_task(task, nr_groups, nr_workloads, nr_cpus)?;
    }
    check_changes(config, nr_cpus, nr_groups)
}

/// Whether a task's group, workload, nice value and affinity are there and in range.
pub(super) fn check_task(
    task: &TaskSpec,
    nr_groups: u32,
    nr_workloads: u32,
    nr_cpus: u32,
) -> Result<(), ConfigError> {
    let at = |field: &str| format!("task {}: {field}", task.name);
    within(|| at("group"), task.group.0, 0..=nr_groups - 1)?;
    within(
        || at("workload, from 1"),
        task.workload.0.saturating_add(1),
        1..=nr_workloads,
    )?;
    within(|| at("nice"), task.nice, -20..=19)?;
    check_set(|| at("affinity"), &task.affinity, nr_cpus)
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
