// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Work that gives way to any other: a woken task has its CPUs, and a group that is idle no longer has its share at
//! once.
use plimsoll_sim::{
    Change, ChangeKind, Config, Context, Fair, GroupId, GroupSpec, Machine, Simulation, Step, TaskSpec,
    Topology,
};
use std::sync::{Arc, Mutex};

const MS: u64 = 1_000_000;

fn spin(_: &mut Context) -> Step {
    Step::Compute { ns: u64::MAX }
}

/// As the live scheduler does: no balance beside stealing and pulling.
fn machine(cpus: u32, duration_ns: u64) -> Config {
    let mut config = Config::new(Machine::new(Topology::flat(cpus)), duration_ns);
    config.policy.newidle = false;
    config.policy.periodic = false;
    config.check = true;
    config
}

/// The kind of batch work that gives way.
#[derive(Clone, Copy, Debug)]
enum Batch {
    IdleGroup,
    BelowIdleGroup,
    SchedIdle,
}

/// Four CPUs, each with a spinner of `batch`, and three threads of a service that work for 3 ms of each 10. Returns the
/// latencies of their requests, sorted.
fn latencies(batch: Batch) -> Vec<u64> {
    let mut config = machine(4, 2000 * MS);
    let mut parent = GroupSpec::new("/batch", GroupId::ROOT);
    parent.idle = !matches!(batch, Batch::SchedIdle);
    let mut spinners = config.add_group(parent);
    if matches!(batch, Batch::BelowIdleGroup) {
        spinners = config.add_group(GroupSpec::new("/batch/job", spinners));
    }
    let service = config.add_group(GroupSpec::new("/service", GroupId::ROOT));
    let workload = config.add_workload("all");
    for number in 0..4 {
        let mut spinner = TaskSpec::new(spinners, workload, format!("spinner {number}"), spin);
        spinner.idle = matches!(batch, Batch::SchedIdle);
        config.add_task(spinner);
    }
    let seen = Arc::new(Mutex::new(Vec::new()));
    for number in 0..3 {
        let seen = seen.clone();
        let (mut released_ns, mut works) = (10 * MS, false);
        let request = move |context: &mut Context| {
            if works {
                seen.lock().unwrap().push(context.now_ns() - released_ns);
                released_ns += 10 * MS;
            }
            works = context.now_ns() >= released_ns;
            match works {
                true => Step::Compute { ns: 3 * MS },
                false => Step::SleepUntil { at_ns: released_ns },
            }
        };
        let mut thread = TaskSpec::new(service, workload, format!("service {number}"), request);
        // They wake up as one, and all were on this CPU before.
        thread.start_cpu = Some(0);
        config.add_task(thread);
    }
    Simulation::new(config).unwrap().run(None).unwrap();
    let mut seen = std::mem::take(&mut *seen.lock().unwrap());
    seen.sort_unstable();
    seen
}

#[test]
fn who_wakes_up_does_not_wait_beside_a_cpu_of_idle_work() {
    for batch in [Batch::IdleGroup, Batch::BelowIdleGroup, Batch::SchedIdle] {
        let latencies = latencies(batch);
        let p99 = latencies[latencies.len() * 99 / 100];
        assert!(latencies.len() > 550, "{batch:?}: {}", latencies.len());
        let longest = latencies[latencies.len() - 1];
        println!("{batch:?}: p99 {p99} ns, longest {longest} ns");
        // A group that is not cpu.idle has its weight, whatever the policy of its tasks: half of a CPU, a slice at a time. What
        // wakes up has the CPU first all the same.
        let most_ns = match batch {
            Batch::SchedIdle => 6_000_000,
            _ => 3_500_000,
        };
        assert!(longest < most_ns, "{batch:?}: {longest} ns of work of 3 ms");
    }
}

/// Two groups of four spinners each on four CPUs; one of them, or what is above it, is cpu.idle for two seconds. Returns its
/// share of the 200 ms after that.
fn share_afterwards(nested: bool, fair: Fair) -> f64 {
    let mut config = machine(4, 2200 * MS);
    config.policy.fair = fair;
    config.warmup_ns = 2000 * MS;
    let mut idle = GroupSpec::new("/one", GroupId::ROOT);
    idle.idle = true;
    let idle = config.add_group(idle);
    let one = match nested {
        true => config.add_group(GroupSpec::new("/one/below", idle)),
        false => idle,
    };
    let other = config.add_group(GroupSpec::new("/other", GroupId::ROOT));
    let workload = config.add_workload("all");
    for number in 0..4 {
        for group in [one, other] {
            let name = format!("{} {number}", group.0);
            config.add_task(TaskSpec::new(group, workload, name, spin));
        }
    }
    config.changes.push(Change {
        at_ns: 2000 * MS,
        what: ChangeKind::GroupIdle {
            group: idle,
            idle: false,
        },
    });
    let results = Simulation::new(config).unwrap().run(None).unwrap();
    let used = |group: GroupId| results.groups[group.0 as usize].usage_ns as f64;
    used(one) / (used(one) + used(other))
}

#[test]
fn a_group_that_is_idle_no_longer_has_its_share_at_once() {
    for (nested, fair) in [
        (false, Fair::Cfs),
        (true, Fair::Cfs),
        (false, Fair::Eevdf),
        (true, Fair::Eevdf),
    ] {
        let share = share_afterwards(nested, fair);
        let near = (0.45..0.55).contains(&share);
        assert!(near, "nested {nested}, {fair:?}: {share:.3}");
    }
}
