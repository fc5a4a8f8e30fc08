// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limits on a simulated machine, against what they are defined to do and what real kernels did.
use plimsoll_sim::{
    Config, Costs, Enforce, GroupId, GroupSpec, Limits, Machine, Simulation, Step, TaskSpec, Topology,
};

const MS: u64 = 1_000_000;

fn spinners(n: u32, nr_cpus: u32, limits: Limits, duration_ns: u64, enforce: Enforce) -> Config {
    let mut config = Config::new(Machine::new(Topology::flat(nr_cpus)), duration_ns);
    config.policy.enforce = enforce;
    let mut group = GroupSpec::new("/limited", GroupId::ROOT);
    group.limits = limits;
    let group = config.add_group(group);
    let workload = config.add_workload("spin");
    for i in 0..n {
        let spin = |_: &mut plimsoll_sim::Context| Step::Compute { ns: u64::MAX };
        config.add_task(TaskSpec::new(group, workload, format!("spin{i}"), spin));
    }
    config.check = true;
    config
}

fn usage_ms(config: Config) -> f64 {
    let results = Simulation::new(config).unwrap().run(None).unwrap();
    results.groups[1].usage_ns as f64 / 1e6
}

#[test]
fn one_spinner_uses_its_quota_when_a_timer_enforces_it() {
    let limits = Limits::quota(20 * MS, 100 * MS);
    let used = usage_ms(spinners(1, 4, limits, 2000 * MS, Enforce::Timer));
    assert!((used - 400.0).abs() < 0.5, "{used} ms");
}

#[test]
fn what_is_charged_from_idle_counts_for_limits_and_not_as_work() {
    // 1 ms of work each 10 ms.
    let throttled_by = |charged_ns| {
        let mut config = Config::new(Machine::new(Topology::flat(1)), 1000 * MS);
        config.machine.costs.idle_charged_ns = charged_ns;
        let mut group = GroupSpec::new("/limited", GroupId::ROOT);
        group.limits = Limits::quota(10_500_000, 100 * MS);
        let group = config.add_group(group);
        let workload = config.add_workload("waker");
        let mut next_ns = 0;
        let wakes = move |ctx: &mut plimsoll_sim::Context| match ctx.now_ns() >= next_ns {
            true => {
                next_ns += 10 * MS;
                Step::Compute { ns: MS }
            }
            false => Step::SleepUntil { at_ns: next_ns },
        };
        config.add_task(TaskSpec::new(group, workload, "waker", wakes));
        let results = Simulation::new(config).unwrap().run(None).unwrap();
        let stat = results.groups[1].stat.unwrap();
        (stat.nr_throttled, results.groups[1].usage_ns as f64 / 1e6)
    };
    let (without, work_ms) = throttled_by(0);
    assert_eq!(without, 0);
    let (with, work_with_ms) = throttled_by(100_000);
    assert!(with >= 9, "{with} of 10 periods");
    // 10 ms of work are due in each period; some of the last one wait.
    assert!(
        work_with_ms <= work_ms && work_with_ms > 95.0,
        "{work_ms}, {work_with_ms} ms"
    );
}

#[test]
fn four_spinners_share_one_quota() {
    let limits = Limits::quota(20 * MS, 100 * MS);
    let used = usage_ms(spinners(4, 4, limits, 2000 * MS, Enforce::Timer));
    assert!((used - 400.0).abs() < 4.5, "{used} ms");
}

#[test]
fn throttling_noticed_on_ticks_runs_52_then_48_ms() {
    // Real kernels at 250 Hz: a 50 ms quota runs 52, then 48 ms.
    // A virtual machine's CPU comes back from idle at once; stopping at a tick takes the interrupt's time.
    let limits = Limits::quota(50 * MS, 100 * MS);
    let used_by = |duration_ns| {
        let mut config = spinners(1, 1, limits, duration_ns, Enforce::Tick);
        config.machine.costs.idle_states.clear();
        usage_ms(config)
    };
    let (after_one, after_two) = (used_by(99 * MS), used_by(199 * MS));
    assert!((after_one - 52.0).abs() < 0.1, "{after_one} ms");
    assert!((after_two - 100.0).abs() < 0.1, "{after_two} ms");
}

#[test]
fn whoever_is_released_preempts_as_whoever_wakes_up_where_a_timer_enforces_limits() {
    // Alone it waits 90 ms of each period of 100. Beside work that gives way, and a slice of 50 ms, the same.
    let throttled_ns = |enforce, with_idle: bool| {
        let mut config = spinners(1, 1, Limits::quota(10 * MS, 100 * MS), 2000 * MS, enforce);
        config.machine.costs = Costs::free();
        config.policy.core.fair.slice_ns = 50 * MS;
        if with_idle {
            let mut idle = GroupSpec::new("/idle", GroupId::ROOT);
            idle.idle = true;
            let group = config.add_group(idle);
            let workload = config.add_workload("idle");
            let spin = |_: &mut plimsoll_sim::Context| Step::Compute { ns: u64::MAX };
            config.add_task(TaskSpec::new(group, workload, "idle".to_string(), spin));
        }
        let results = Simulation::new(config).unwrap().run(None).unwrap();
        results.groups[1].stat.as_ref().unwrap().throttled_ns
    };
    let alone = throttled_ns(Enforce::Timer, false);
    assert_eq!(throttled_ns(Enforce::Timer, true), alone);
    // The kernel's unthrottling interrupts no CPU: the group starts late, and is stopped late.
    assert!(throttled_ns(Enforce::Tick, true) < alone);
}

#[test]
fn weights_count_from_the_first_moment() {
    let mut config = spinners(1, 1, Limits::UNLIMITED, 500 * MS, Enforce::Timer);
    config.policy.core.refresh_ns = 1000 * MS;
    config.groups[0].cpu_weight = 10_000;
    let mut light = GroupSpec::new("/light", GroupId::ROOT);
    light.cpu_weight = 1;
    let group = config.add_group(light);
    let workload = config.add_workload("light");
    let spin = |_: &mut plimsoll_sim::Context| Step::Compute { ns: u64::MAX };
    config.add_task(TaskSpec::new(group, workload, "light".to_string(), spin));
    let used = usage_ms(config);
    assert!(used > 490.0, "{used} ms");
}

#[test]
fn a_group_without_limit_uses_the_machine() {
    let used = usage_ms(spinners(8, 4, Limits::UNLIMITED, 1000 * MS, Enforce::Tick));
    assert!(used > 3990.0, "{used} ms");
}

#[test]
fn a_light_task_released_with_a_heavy_one_waits_no_longer_than_both_weights_allow() {
    // It wakes up while its group is throttled, and is due a turn in seconds. Its group may not run for as long at a time as a task
    // waits for its turn.
    let wait_max_ns = 50 * MS;
    let mut config = spinners(1, 1, Limits::quota(50 * MS, 100 * MS), 4000 * MS, Enforce::Timer);
    config.policy.core.fair.wait_max_ns = wait_max_ns;
    config.tasks[0].nice = -20;
    let workload = config.add_workload("light");
    let mut steps = 0;
    let in_turn = move |context: &mut plimsoll_sim::Context| {
        steps += 1;
        if steps % 2 == 1 {
            Step::Compute { ns: 2 * MS }
        } else {
            let at_ns = (context.now_ns() / (100 * MS) + 1) * 100 * MS - 25 * MS;
            Step::SleepUntil { at_ns }
        }
    };
    let mut light = TaskSpec::new(GroupId(1), workload, "light".to_string(), in_turn);
    light.nice = 19;
    config.add_task(light);
    let results = Simulation::new(config).unwrap().run(None).unwrap();
    // Half of the time is the group's: a turn comes after two periods and a slice at the latest.
    let turns = results.workloads[1].usage_ns / (2 * MS);
    assert!(turns >= 13, "{turns} turns in 4 s");
}

#[test]
fn one_that_yields_in_a_loop_leaves_the_cpu_to_a_spinner_beside_it() {
    // Of one group the kernel's own leaves 1.2% to it.
    let mut config = spinners(1, 1, Limits::UNLIMITED, 1000 * MS, Enforce::Tick);
    let workload = config.add_workload("yields");
    let mut steps = 0;
    let yields = move |_: &mut plimsoll_sim::Context| {
        steps += 1;
        if steps % 2 == 1 {
            Step::Compute { ns: 1_000 }
        } else {
            Step::Yield
        }
    };
    config.add_task(TaskSpec::new(GroupId(1), workload, "yields".to_string(), yields));
    let results = Simulation::new(config).unwrap().run(None).unwrap();
    let used_ns = results.workloads[1].usage_ns;
    assert!(used_ns > 0 && used_ns <= 12 * MS, "{used_ns} ns of 1 s");
}
