// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an administrator does to tasks while the machine runs.

use crate::common::{at, run, MS};
use plimsoll_sim::{
    ChangeKind, Config, Context, GroupId, GroupSpec, Machine, Step, TaskId, TaskSpec, Topology,
};

/// A task that computes once and ends.
fn compute(ns: u64) -> impl FnMut(&mut Context) -> Step + Send + 'static {
    let mut begun = false;
    move |_| {
        begun = !begun;
        if begun {
            Step::Compute { ns }
        } else {
            Step::Exit
        }
    }
}

/// A task that starts a child of 50 ms, waits for it, and again; by `fork`, or as a task on its own. Returns the run
/// time of groups /a and /b: it is moved from one to the other after 1040 ms of 2000.
fn moved(fork: bool) -> (u64, u64) {
    let mut config = Config::new(Machine::new(Topology::flat(2)), 2000 * MS);
    config.check = true;
    let a = config.add_group(GroupSpec::new("/a", GroupId::ROOT));
    let b = config.add_group(GroupSpec::new("/b", GroupId::ROOT));
    let workload = config.add_workload("parent");
    let parent = move |ctx: &mut Context| {
        let child = TaskSpec::new(a, workload, "child", compute(50 * MS));
        if fork {
            ctx.fork(child);
        } else {
            ctx.spawn(child);
        }
        Step::SleepUntil {
            at_ns: ctx.now_ns() + 60 * MS,
        }
    };
    config.add_task(TaskSpec::new(a, workload, "parent", parent));
    let task = TaskId(0);
    at(&mut config, 1040, ChangeKind::MoveTask { task, group: b });
    let results = run(config);
    (results.groups[1].usage_ns / MS, results.groups[2].usage_ns / MS)
}

#[test]
fn what_a_task_forks_is_where_the_task_is_now() {
    // Children begin at 0, 60, 120 ms ...: the 18th is in the middle of its work and moves, too.
    let (a, b) = moved(true);
    assert!(
        (865..=875).contains(&a) && (785..=805).contains(&b),
        "{a} ms, {b} ms"
    );
    // A task that is not a fork stays where it was put.
    let (a, b) = moved(false);
    assert!(a > 1600 && b <= 1, "{a} ms, {b} ms");
}

#[test]
fn a_fork_has_the_cpus_and_the_nice_value_that_its_parent_has_now() {
    let mut config = Config::new(Machine::new(Topology::flat(4)), 2000 * MS);
    config.warmup_ns = 1000 * MS;
    config.check = true;
    let (parents, other) = (config.add_workload("parents"), config.add_workload("other"));
    for i in 0..4 {
        let parent = move |ctx: &mut Context| {
            let name = format!("child{i}");
            ctx.fork(TaskSpec::new(GroupId::ROOT, parents, name, compute(30 * MS)));
            Step::SleepUntil {
                at_ns: ctx.now_ns() + 100 * MS,
            }
        };
        config.add_task(TaskSpec::new(
            GroupId::ROOT,
            parents,
            format!("parent{i}"),
            parent,
        ));
    }
    let spin = |_: &mut Context| Step::Compute { ns: u64::MAX };
    let mut spinner = TaskSpec::new(GroupId::ROOT, other, "spin", spin);
    spinner.affinity = Some([0].into_iter().collect());
    config.add_task(spinner);
    for task in (0..4).map(TaskId) {
        let affinity = Some([0].into_iter().collect());
        at(&mut config, 100, ChangeKind::Affinity { task, affinity });
        at(&mut config, 100, ChangeKind::Nice { task, nice: 19 });
    }
    let results = run(config);
    let elsewhere_ns: u64 = results.cpus[1..].iter().map(|cpu| cpu.task_ns).sum();
    assert_eq!(elsewhere_ns, 0);
    // Against children of nice 0 the spinner would have next to nothing, as they are many.
    let spinner_ms = results.workloads[1].usage_ns / MS;
    assert!(spinner_ms > 300, "{spinner_ms} ms");
}

/// Looking at all tasks for each one that changes would take minutes.
#[test]
fn changes_of_many_tasks_end_in_time() {
    let nr_tasks = 60_000;
    let mut config = Config::new(Machine::new(Topology::flat(4)), 20 * MS);
    config.warmup_ns = 10 * MS;
    let workload = config.add_workload("many");
    for i in 0..nr_tasks {
        let spin = |_: &mut Context| Step::Compute { ns: u64::MAX };
        config.add_task(TaskSpec::new(GroupId::ROOT, workload, format!("many{i}"), spin));
    }
    for task in (0..nr_tasks).map(TaskId) {
        let affinity = Some([0, 1].into_iter().collect());
        at(&mut config, 5, ChangeKind::Affinity { task, affinity });
        at(&mut config, 5, ChangeKind::Nice { task, nice: 5 });
    }
    let results = run(config);
    let busy: Vec<_> = results.cpus.iter().map(|cpu| cpu.task_ns > 9 * MS).collect();
    assert_eq!(busy, [true, true, false, false]);
}
