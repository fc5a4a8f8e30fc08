// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One random machine with random groups, tasks and changes: run with every check on, and the sums compared after.
mod programs;

use plimsoll_sim::{
    Change, ChangeKind, Config, Costs, CpuSet, Enforce, Fair, GroupId, GroupSpec, Limits, Machine, Numbering,
    Results, Simulation, TaskId, Topology, WakeSearch,
};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// Runs one seed. Returns how many scheduling events it had, or what is wrong with its sums; a broken invariant panics.
#[allow(dead_code)] // not every test that shares this module runs seeds
pub fn one(seed: u64) -> Result<u64, String> {
    // Both rules of taking turns, on the same machine.
    let mut events = 0;
    for fair in [Fair::Cfs, Fair::Eevdf] {
        if seed % 50 == 0 {
            events += shares(&mut Pcg64::seed_from_u64(seed), fair)?;
            continue;
        }
        let mut config = config(seed);
        config.policy.fair = fair;
        // What sleeps may stay in its queue only where the kernel is simulated.
        config.policy.delay_dequeue = config.policy.core.fair.as_kernel == 1 && seed % 2 == 0;
        if config.policy.core.fair.as_kernel == 1 && seed % 4 < 2 {
            config.policy.core.fair.doubled_ns = 5_400_000;
        }
        let results = Simulation::new(config)
            .map_err(|e| format!("refused: {e}"))?
            .run(None)
            .unwrap();
        sums(&results)?;
        events += results.events.total();
    }
    Ok(events)
}

/// The random machine of a seed.
pub fn config(seed: u64) -> Config {
    random(&mut Pcg64::seed_from_u64(seed), seed)
}

/// What was used is the same wherever it is counted, and no message is lost.
#[allow(dead_code)] // as above
pub fn sums(results: &Results) -> Result<(), String> {
    let equal = |what: &str, a: u64, b: u64| {
        if a == b {
            Ok(())
        } else {
            Err(format!("{what}: {a} and {b} differ"))
        }
    };
    let tasks_ns: u64 = results.cpus.iter().map(|cpu| cpu.task_ns).sum();
    equal(
        "run time of CPUs and of the root group",
        tasks_ns,
        results.groups[0].usage_ns,
    )?;
    let workloads_ns = results.workloads.iter().map(|w| w.usage_ns).sum();
    equal("run time of CPUs and of workloads", tasks_ns, workloads_ns)?;
    for (number, cpu) in results.cpus.iter().enumerate() {
        equal(
            &format!("CPU {number}: its time and the measured time"),
            cpu.busy_ns + cpu.idle_ns + cpu.offline_ns,
            results.measured_ns,
        )?;
        if cpu.task_ns > cpu.busy_ns + 100 * US {
            return Err(format!(
                "CPU {number}: tasks ran {} ns, but it was busy for {} ns",
                cpu.task_ns, cpu.busy_ns
            ));
        }
    }
    let counter = |name: &str| results.workloads[0].counters.iter().find(|c| c.name == name);
    let value = |name: &str| counter(name).map_or(0, |c| c.value);
    let (sent, received) = (value("sent"), value("received"));
    // Each of the channels holds at most its capacity and one value per task on its way.
    if received > sent || sent - received > 64 * 32 {
        return Err(format!("{sent} values sent, {received} received"));
    }
    Ok(())
}

/// Groups of spinners, more than enough of each to use its share: what they get is what they weigh.
fn shares(rng: &mut Pcg64, fair: Fair) -> Result<u64, String> {
    let nr_cpus = rng.random_range(1..=8);
    let mut config = Config::new(Machine::new(Topology::flat(nr_cpus)), 4000 * MS);
    config.warmup_ns = 2000 * MS;
    config.check = true;
    config.policy.enforce = Enforce::Timer;
    config.policy.fair = fair;
    let workload = config.add_workload("w");
    let weights: Vec<u32> = (0..rng.random_range(2..=4))
        .map(|_| rng.random_range(50..=500))
        .collect();
    for (i, &weight) in weights.iter().enumerate() {
        let mut group = GroupSpec::new(format!("/g{i}"), GroupId::ROOT);
        group.cpu_weight = weight;
        let group = config.add_group(group);
        for t in 0..nr_cpus * rng.random_range(1..=2) {
            config.add_task(programs::spinner(group, workload, format!("g{i}t{t}")));
        }
    }
    let results = Simulation::new(config)
        .map_err(|e| format!("refused: {e}"))?
        .run(None)
        .unwrap();
    let sum: u32 = weights.iter().sum();
    let whole = results.measured_ns as f64 * f64::from(nr_cpus);
    for (i, &weight) in weights.iter().enumerate() {
        let got = results.groups[i + 1].usage_ns as f64 / whole;
        let due = f64::from(weight) / f64::from(sum);
        if (got - due).abs() > 0.05 {
            return Err(format!(
                "shares do not converge: weights {weights:?} on {nr_cpus} CPUs: group {i} got {got:.3}, is due {due:.3}"
            ));
        }
    }
    Ok(results.events.total())
}

fn random(rng: &mut Pcg64, seed: u64) -> Config {
    let mut config = Config::new(machine(rng), rng.random_range(100..=600) * MS);
    config.seed = seed;
    config.check = true;
    policy(rng, &mut config);
    let nr_cpus = config.machine.topology.nr_cpus();
    let mainline = config.policy.core.bandwidth.mainline != 0;
    let mut groups = vec![GroupId::ROOT];
    for i in 0..rng.random_range(0..=6) {
        let parent = *groups.choose(rng).expect("the root is there");
        let mut group = GroupSpec::new(format!("/g{i}"), parent);
        group.cpu_weight = *[1, 10, 100, 100, 300, 10_000].choose(rng).expect("not empty");
        group.idle = rng.random_ratio(1, 10);
        if rng.random_ratio(2, 3) {
            group.limits = limits(rng, mainline);
        }
        group.phase_ns = rng.random_range(0..100 * MS);
        if rng.random_ratio(1, 10) {
            group.headroom_percent = rng.random_range(1..=60);
        }
        if rng.random_ratio(1, 6) {
            group.cpuset = Some(cpus(rng, nr_cpus));
        }
        groups.push(config.add_group(group));
    }
    programs::add(rng, &mut config, &groups);
    for _ in 0..rng.random_range(0..=8) {
        let change = Change {
            at_ns: rng.random_range(0..config.duration_ns),
            what: change(rng, nr_cpus, &groups, config.tasks.len() as u32, mainline),
        };
        config.changes.push(change);
    }
    // A stream of its own: seeds keep the machines that they have had.
    messages(&mut Pcg64::seed_from_u64(seed ^ u64::MAX), &mut config);
    config
}

/// How tasks that wait are woken, and what messages cost.
fn messages(rng: &mut Pcg64, config: &mut Config) {
    let searches = [
        WakeSearch::All,
        WakeSearch::Proportional,
        WakeSearch::Utilisation,
        WakeSearch::Live,
    ];
    config.policy.wake_search = *searches.choose(rng).expect("not empty");
    config.machine.costs.contention = rng.random();
    for channel in &mut config.channels {
        channel.loopback = rng.random_ratio(1, 3);
        channel.lines = rng.random_range(0..=4);
        channel.sync = rng.random();
    }
}

fn machine(rng: &mut Pcg64) -> Machine {
    let numbering = if rng.random() {
        Numbering::SiblingsAdjacent
    } else {
        Numbering::SiblingsLast
    };
    let topology = Topology::regular(
        rng.random_range(1..=2),
        1,
        rng.random_range(1..=2),
        rng.random_range(1..=4),
        rng.random_range(1..=2),
        numbering,
    );
    let mut machine = Machine::new(topology);
    machine.hz = *[100, 250, 1000].choose(rng).expect("not empty");
    machine.clock_start_ns = rng.random_range(0..1_000_000 * MS);
    machine.tick_stagger_ns = if rng.random() {
        0
    } else {
        rng.random_range(0..500 * US)
    };
    if rng.random_ratio(1, 4) {
        machine.costs = Costs::free();
    }
    machine
}

fn policy(rng: &mut Pcg64, config: &mut Config) {
    let policy = &mut config.policy;
    policy.enforce = if rng.random() {
        Enforce::Tick
    } else {
        Enforce::Timer
    };
    policy.core.bandwidth.expire = u32::from(rng.random_ratio(1, 8));
    policy.core.bandwidth.burst_off = u32::from(rng.random_ratio(1, 8));
    policy.core.bandwidth.mainline = u32::from(rng.random_ratio(1, 3));
    policy.core.bandwidth.slice_ns = rng.random_range(100 * US..=10 * MS);
    policy.core.load.publish_ns = if rng.random() { 0 } else { MS };
    policy.core.refresh_ns = if rng.random() { 0 } else { MS };
    policy.core.fair.wait_max_ns = rng.random_range(50..=200) * MS;
    policy.core.fair.as_kernel = u64::from(rng.random::<bool>());
    policy.core.fair.pull_ns = (1 - policy.core.fair.as_kernel) * 10 * MS;
    policy.core.fair.latency_ns = if rng.random() { 0 } else { 12 * MS };
    policy.steal.enabled = u32::from(rng.random::<bool>());
    policy.newidle = rng.random();
    policy.newidle_dice = rng.random();
    policy.busy_pull_overloaded = rng.random();
    policy.slice_timer = rng.random();
    policy.periodic = rng.random_ratio(3, 4);
    policy.wake_idle = rng.random_ratio(3, 4);
    policy.wake_affine = rng.random();
    policy.headroom.window_ns = *[20 * MS, 100 * MS].choose(rng).expect("not empty");
}

fn limits(rng: &mut Pcg64, mainline: bool) -> Limits {
    let period_ns = *[1, 10, 50, 100, 200].choose(rng).expect("not empty") * MS;
    let quota_ns = rng.random_range(MS..=(4 * period_ns).max(2 * MS));
    let burst_max = if mainline { quota_ns } else { 3 * quota_ns };
    Limits {
        quota_ns: Some(quota_ns),
        period_ns,
        burst_ns: if rng.random() {
            0
        } else {
            rng.random_range(0..=burst_max)
        },
        onset_percent: if rng.random() {
            0
        } else {
            rng.random_range(0..=100)
        },
    }
}

/// At least one CPU.
pub fn cpus(rng: &mut Pcg64, nr_cpus: u32) -> CpuSet {
    let mut set: CpuSet = (0..nr_cpus).filter(|_| rng.random()).collect();
    set.insert(rng.random_range(0..nr_cpus));
    set
}

fn change(rng: &mut Pcg64, nr_cpus: u32, groups: &[GroupId], nr_tasks: u32, mainline: bool) -> ChangeKind {
    let task = TaskId(rng.random_range(0..nr_tasks));
    let any = *groups.choose(rng).expect("the root is there");
    let maybe_set = |rng: &mut Pcg64| rng.random_ratio(2, 3).then(|| cpus(rng, nr_cpus));
    match rng.random_range(0..10) {
        0 => {
            return ChangeKind::Affinity {
                task,
                affinity: maybe_set(rng),
            }
        }
        1 => {
            let nice = rng.random_range(-20..=19);
            return ChangeKind::Nice { task, nice };
        }
        2 => return ChangeKind::MoveTask { task, group: any },
        3 => {
            let cpu = rng.random_range(0..nr_cpus);
            return ChangeKind::CpuOffline { cpu };
        }
        4 => {
            let cpu = rng.random_range(0..nr_cpus);
            return ChangeKind::CpuOnline { cpu };
        }
        _ => {}
    }
    // The others are about a group that is not the root.
    let Some(&group) = groups[1..].choose(rng) else {
        return ChangeKind::MoveTask { task, group: any };
    };
    match rng.random_range(0..6) {
        0 => ChangeKind::CpuWeight {
            group,
            cpu_weight: rng.random_range(1..=10_000),
        },
        1 => ChangeKind::GroupIdle {
            group,
            idle: rng.random(),
        },
        2 => ChangeKind::Headroom {
            group,
            percent: if rng.random() { 0 } else { rng.random_range(1..=60) },
        },
        3 => ChangeKind::Cpuset {
            group,
            cpuset: maybe_set(rng),
        },
        4 => ChangeKind::Limits {
            group,
            limits: Limits::UNLIMITED,
        },
        _ => ChangeKind::Limits {
            group,
            limits: limits(rng, mainline),
        },
    }
}
