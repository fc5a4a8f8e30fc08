// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is reported is about the measured time, the whole of it and nothing else.

use crate::common::{at, run, MS};
use plimsoll_sim::{
    ChangeKind, Config, Context, GroupId, GroupSpec, Limits, Machine, Step, TaskSpec, Topology,
};

fn spinners(config: &mut Config, n: u32, group: GroupId) {
    let workload = config.add_workload("spin");
    for i in 0..n {
        let spin = |_: &mut Context| Step::Compute { ns: u64::MAX };
        config.add_task(TaskSpec::new(group, workload, format!("spin{i}"), spin));
    }
}

#[test]
fn a_cpu_off_line_is_neither_busy_nor_idle() {
    let mut config = Config::new(Machine::new(Topology::flat(3)), 1100 * MS);
    config.warmup_ns = 100 * MS;
    spinners(&mut config, 1, GroupId::ROOT);
    config.tasks[0].affinity = Some([0].into_iter().collect());
    // CPU 1 was off line already as the measured time began, CPU 2 is idle in between.
    for (ms, cpu) in [(50, 1), (300, 2)] {
        at(&mut config, ms, ChangeKind::CpuOffline { cpu });
    }
    at(&mut config, 700, ChangeKind::CpuOnline { cpu: 2 });
    let results = run(config);
    let ms = |ns: u64| (ns as f64 / 1e6).round() as u64;
    let cpus: Vec<_> = results
        .cpus
        .iter()
        .map(|cpu| (ms(cpu.busy_ns), ms(cpu.idle_ns), ms(cpu.offline_ns)))
        .collect();
    assert_eq!(cpus, [(1000, 0, 0), (0, 0, 1000), (0, 600, 400)]);
    assert_eq!(results.cpus[1].busy_percent(), 0.0);
    assert_eq!(results.cpus[2].busy_percent(), 0.0);
}

/// Two CPUs that are throttled within the first ms, until 1000 ms, and then again; a warm-up of 900 ms.
fn throttled_ns(duration_ms: u64) -> u64 {
    let mut config = Config::new(Machine::new(Topology::flat(2)), duration_ms * MS);
    config.warmup_ns = 900 * MS;
    let mut group = GroupSpec::new("/g", GroupId::ROOT);
    group.limits = Limits::quota(MS, 1000 * MS);
    let group = config.add_group(group);
    spinners(&mut config, 2, group);
    run(config).groups[1].stat.unwrap().throttled_ns
}

#[test]
fn a_throttling_that_began_in_the_warm_up_counts_from_there_on() {
    assert_eq!(throttled_ns(1500) / MS, 2 * 100);
}

#[test]
fn a_throttling_that_lasts_from_the_warm_up_to_the_end_is_not_counted() {
    assert_eq!(throttled_ns(950), 0);
}

/// 4 CPUs; main uses one and keeps 30% of the machine idle, and the side wants all the others. Windows of 1 s.
fn beside_main(warmup_ms: u64, measured_ms: u64) -> Config {
    let mut config = Config::new(Machine::new(Topology::flat(4)), (warmup_ms + measured_ms) * MS);
    config.warmup_ns = warmup_ms * MS;
    config.policy.headroom.window_ns = 1000 * MS;
    let mut main = GroupSpec::new("/main", GroupId::ROOT);
    main.headroom_percent = 30;
    let main = config.add_group(main);
    let side = config.add_group(GroupSpec::new("/side", GroupId::ROOT));
    spinners(&mut config, 1, main);
    spinners(&mut config, 4, side);
    config
}

#[test]
fn headroom_is_about_the_measured_time_whatever_windows_it_cuts() {
    for (warmup_ms, measured_ms) in [(0, 2500), (2500, 1900), (2100, 300)] {
        let results = run(beside_main(warmup_ms, measured_ms));
        let headroom = results.headroom.unwrap();
        let idle_ns: u64 = results.cpus.iter().map(|cpu| cpu.idle_ns).sum();
        assert_eq!(headroom.idle_ns, idle_ns, "{warmup_ms} {measured_ms}");
        assert_eq!(headroom.side_used_ns, results.groups[2].usage_ns);
        assert_eq!(headroom.capacity_ns, 4 * measured_ms * MS);
    }
}

#[test]
fn headroom_counts_while_a_group_asks_for_it() {
    let mut config = beside_main(0, 4000);
    let group = GroupId(1);
    at(&mut config, 2500, ChangeKind::Headroom { group, percent: 0 });
    at(&mut config, 3000, ChangeKind::CpuOffline { cpu: 3 });
    at(&mut config, 3500, ChangeKind::Headroom { group, percent: 10 });
    at(&mut config, 3800, ChangeKind::Headroom { group, percent: 0 });
    let headroom = run(config).headroom.unwrap();
    assert_eq!(headroom.capacity_ns, (4 * 2500 + 3 * 300) * MS);
    // All that there is, in the first window; after it at most 70 % less main's CPU.
    assert!(headroom.side_used_ns <= (3 * 1000 + 3 * 1500 + 3 * 300) * MS);
    assert!(headroom.side_used_ns + headroom.idle_ns <= headroom.capacity_ns);
    assert!(headroom.budget_ns < 4000 * MS, "{} ns", headroom.budget_ns);
    let mut never = beside_main(0, 100);
    never.groups[0].headroom_percent = 0;
    assert!(run(never).headroom.is_none());
}

#[test]
fn a_run_that_ends_within_the_warm_up_has_measured_nothing() {
    let mut config = Config::new(Machine::new(Topology::flat(2)), 1000 * MS);
    config.warmup_ns = 500 * MS;
    config.stop_when_done = true;
    let workload = config.add_workload("short");
    let pieces = config.add_counter(workload, "pieces");
    let mut steps = 0;
    let short = move |ctx: &mut Context| {
        steps += 1;
        if steps == 1 {
            return Step::Compute { ns: 10 * MS };
        }
        ctx.count(pieces, 1);
        Step::Exit
    };
    config.add_task(TaskSpec::new(GroupId::ROOT, workload, "short", short));
    let results = run(config);
    assert!(results.all_exited && results.end_ns < 11 * MS);
    assert_eq!(results.measured_ns, 0);
    assert_eq!(results.groups[0].usage_ns, 0);
    assert_eq!(results.workloads[0].counters[0].value, 0);
    assert_eq!(results.cpus[0].busy_ns + results.cpus[0].idle_ns, 0);
}
