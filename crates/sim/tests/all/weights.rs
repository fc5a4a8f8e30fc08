// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Groups get what their weights say, however their tasks sleep, and in time.
use plimsoll_sim::{
    Config, Context, CpuSet, Enforce, GroupId, GroupSpec, Limits, Machine, Mainline, Simulation, Step,
    TaskSpec, Topology,
};

const DURATION_NS: u64 = 10_000_000_000;

fn spin(_: &mut Context) -> Step {
    Step::Compute { ns: u64::MAX }
}

/// Sleeps until `first_ns`, and from then on computes for `work_ns` and sleeps for `sleep_ns` in turn.
fn in_turn(first_ns: u64, work_ns: u64, sleep_ns: u64) -> impl FnMut(&mut Context) -> Step {
    let mut rests = false;
    move |context| {
        rests = !rests;
        match (rests, context.now_ns()) {
            (true, 0) => Step::SleepUntil { at_ns: first_ns },
            (true, now_ns) => Step::SleepUntil {
                at_ns: now_ns + sleep_ns,
            },
            (false, _) => Step::Compute { ns: work_ns },
        }
    }
}

/// One CPU, two groups of equal weight. One has a spinner; the other spinners of `nice`, and tasks that compute for
/// `work_ns` and sleep for `sleep_ns`: in itself, or as a pod, the spinners in one child group and the sleepers in another.
#[derive(Clone, Copy, Debug)]
struct Beside {
    pod: bool,
    spinners: u64,
    nice: i32,
    sleepers: u64,
    work_ns: u64,
    sleep_ns: u64,
}

/// The first group's share of the CPU.
fn share(beside: Beside) -> f64 {
    let mut config = Config::new(Machine::new(Topology::flat(1)), DURATION_NS);
    let [one, other] = ["/one", "/other"].map(|path| config.add_group(GroupSpec::new(path, GroupId::ROOT)));
    let [main, sidecar] = match beside.pod {
        true => ["/other/main", "/other/sidecar"].map(|path| config.add_group(GroupSpec::new(path, other))),
        false => [other, other],
    };
    let workload = config.add_workload("all");
    config.add_task(TaskSpec::new(one, workload, "alone".to_string(), spin));
    for number in 0..beside.spinners {
        let mut spinner = TaskSpec::new(main, workload, format!("beside {number}"), spin);
        spinner.nice = beside.nice;
        config.add_task(spinner);
    }
    for number in 0..beside.sleepers {
        let first_ns = number * beside.sleep_ns / beside.sleepers + 1 + beside.sleep_ns;
        let sleeper = in_turn(first_ns, beside.work_ns, beside.sleep_ns);
        let name = format!("sleeper {number}");
        config.add_task(TaskSpec::new(sidecar, workload, name, sleeper));
    }
    let results = Simulation::new(config).unwrap().run(None).unwrap();
    results.groups[one.0 as usize].usage_ns as f64 / DURATION_NS as f64
}

/// 300 are born within one instant: each takes its first turn, and all others, in turn with the group beside it.
#[test]
fn a_crowd_takes_turns_with_the_group_beside_it() {
    let mut config = Config::new(Machine::new(Topology::flat(1)), DURATION_NS);
    let [one, other] = ["/one", "/other"].map(|path| config.add_group(GroupSpec::new(path, GroupId::ROOT)));
    let alone = config.add_workload("alone");
    config.add_task(TaskSpec::new(one, alone, "alone".to_string(), spin));
    let crowd = config.add_workload("crowd");
    for number in 0..300 {
        config.add_task(TaskSpec::new(other, crowd, format!("crowd {number}"), spin));
    }
    let slice_ns = config.policy.core.fair.slice_ns;
    let results = Simulation::new(config).unwrap().run(None).unwrap();
    let longest_ns = results.workloads[0].run_delay.max();
    assert!(longest_ns <= 3 * slice_ns, "{longest_ns} ns");
}

#[test]
fn what_sleepers_take_their_own_group_has_less_of() {
    for pod in [false, true] {
        for (spinners, nice, sleepers, work_us, sleep_us) in [
            (1, 0, 10, 400, 9_000),
            (1, 0, 1, 750, 2_250),
            (1, 0, 10, 200, 10_000),
            (1, 19, 1, 750, 2_250),
            (1, 19, 1, 30, 2_970),
            // As something heavy that was runnable beside it sleeps, what is light is not kept waiting for it.
            (1, 19, 1, 4_000, 45_000),
            (1, 10, 1, 4_000, 45_000),
            (3, 19, 2, 4_000, 45_000),
            (1, -10, 3, 500, 4_500),
            (6, 0, 1, 750, 2_250),
            (6, 0, 10, 200, 10_000),
        ] {
            let beside = Beside {
                pod,
                spinners,
                nice,
                sleepers,
                work_ns: work_us * 1000,
                sleep_ns: sleep_us * 1000,
            };
            let share = share(beside);
            assert!((share - 0.5).abs() < 0.02, "{share} beside {beside:?}");
        }
    }
}

/// A pod with two groups, each with a spinner, one limited to a tenth of a CPU, against a spinner in a group of the pod's
/// weight. What the limited one may not use of the pod's share is the other one's: as in the kernel, the group that is
/// throttled is not in its parent's queue meanwhile. `apart`: it is on a CPU of its own, and thins no other's share.
fn pods_share(limited_weight: u32, apart: bool) -> f64 {
    let cpus = 1 + u32::from(apart);
    let mut config = Config::new(Machine::new(Topology::flat(cpus)), DURATION_NS);
    let [pod, other] = ["/pod", "/other"].map(|path| config.add_group(GroupSpec::new(path, GroupId::ROOT)));
    let mut limited = GroupSpec::new("/pod/limited", pod);
    limited.cpu_weight = limited_weight;
    limited.limits = Limits::quota(10_000_000, 100_000_000);
    let limited = config.add_group(limited);
    let free = config.add_group(GroupSpec::new("/pod/free", pod));
    let workload = config.add_workload("all");
    for (group, cpu) in [(limited, 0), (free, cpus - 1), (other, cpus - 1)] {
        let mut spinner = TaskSpec::new(group, workload, "spinner".to_string(), spin);
        spinner.affinity = Some(CpuSet::from_iter([cpu]));
        config.add_task(spinner);
    }
    let results = Simulation::new(config).unwrap().run(None).unwrap();
    let used = |group: GroupId| results.groups[group.0 as usize].usage_ns as f64;
    used(pod) / (used(pod) + used(other))
}

#[test]
fn what_is_throttled_weighs_nothing_in_its_parent() {
    // The second: a turn of the free one at an eleventh of the pod's share leaps ahead, and comes back as the other is
    // throttled; it was 0.17, and 0.40. The last: half of all is due; it was 0.36.
    for (weight, apart, least, most) in [
        (100, false, 0.49, 0.51),
        (1_000, false, 0.48, 0.51),
        (10_000, false, 0.48, 0.51),
        (100, true, 0.49, 0.55),
    ] {
        let share = pods_share(weight, apart);
        assert!(
            (least..=most).contains(&share),
            "weight {weight}, apart {apart}: {share}"
        );
    }
}

/// What spinners of equal weight get that share the first `cpus`, beside one of cpu.weight `weight` alone on the next CPU,
/// in CPUs. Nothing but the policy balances, as live.
fn beside_one_alone(cpus: u32, spinners: u32, weight: u32) -> Vec<f64> {
    let mut config = Config::new(Machine::new(Topology::flat(cpus + 1)), DURATION_NS);
    config.policy.newidle = false;
    config.policy.periodic = false;
    let workload = config.add_workload("all");
    let mut groups = Vec::new();
    for number in 0..=spinners {
        let alone = number == spinners;
        let mut group = GroupSpec::new(format!("/{number}"), GroupId::ROOT);
        group.cpu_weight = if alone { weight } else { 100 };
        let group = config.add_group(group);
        let mut spinner = TaskSpec::new(group, workload, format!("spinner {number}"), spin);
        spinner.affinity = Some(match alone {
            true => CpuSet::from_iter([cpus]),
            false => (0..cpus).collect(),
        });
        config.add_task(spinner);
        groups.push(group);
    }
    let results = Simulation::new(config).unwrap().run(None).unwrap();
    groups[..spinners as usize]
        .iter()
        .map(|group| results.groups[group.0 as usize].usage_ns as f64 / DURATION_NS as f64)
        .collect()
}

#[test]
fn who_has_a_cpu_alone_is_no_measure_for_the_others() {
    for (cpus, spinners, weight) in [(3, 5, 100), (2, 3, 100), (3, 5, 1), (3, 5, 10_000), (3, 4, 1)] {
        let used = beside_one_alone(cpus, spinners, weight);
        let due = f64::from(cpus) / f64::from(spinners);
        let even = used.iter().all(|used| (used - due).abs() < 0.05 * due);
        assert!(
            even,
            "{spinners} on {cpus} CPUs, weight {weight}: {used:.3?}, due {due:.3}"
        );
    }
}

const THINK_NS: u64 = 5_000_000;

/// On one CPU `threads` that compute for `work_ns` and think for 5 ms, against two spinners in a group of `batch_weight`. What
/// 99 of 100 of their waits take at most.
fn wait_ns(threads: u64, work_ns: u64, batch_weight: u32) -> u64 {
    let mut config = Config::new(Machine::new(Topology::flat(1)), DURATION_NS);
    config.policy.enforce = Enforce::Timer;
    let service = config.add_group(GroupSpec::new("/service", GroupId::ROOT));
    let mut batch = GroupSpec::new("/batch", GroupId::ROOT);
    batch.cpu_weight = batch_weight;
    let batch = config.add_group(batch);
    let [serving, spinning] = ["serving", "spinning"].map(|name| config.add_workload(name));
    for number in 0..2 {
        config.add_task(TaskSpec::new(batch, spinning, format!("spinner {number}"), spin));
    }
    for number in 0..threads {
        let first_ns = number * THINK_NS / threads + 1;
        let serve = in_turn(first_ns, work_ns, THINK_NS + number * 10_000);
        config.add_task(TaskSpec::new(service, serving, format!("thread {number}"), serve));
    }
    let results = Simulation::new(config).unwrap().run(None).unwrap();
    results.workloads[serving.0 as usize]
        .run_delay
        .value_at_quantile(0.99)
}

#[test]
fn a_service_of_many_threads_waits_for_a_batch_job_no_longer_than_one_of_few() {
    for (threads, work_us, batch_weight) in [
        (1, 500, 100),
        (2, 1000, 100),
        (8, 200, 100),
        (16, 100, 50),
        (32, 50, 100),
    ] {
        let wait_us = wait_ns(threads, work_us * 1000, batch_weight) / 1000;
        // One of two threads that come at once waits for the other's millisecond. Else it is half of that, of what the batch job may
        // go on for. It was 3.1 ms with 16.
        let most_us = if threads == 2 { 1000 } else { 600 };
        assert!(
            wait_us <= most_us,
            "{threads} threads of {work_us} us beside weight {batch_weight}: {wait_us} us"
        );
    }
}

/// How many tasks the periodic balance of Linux 6.18 moves: four of one group crowd the first of two CPUs, each of which has a spinner of
/// a group of equal weight; `client`: on the second one there is a group of a hundred times the weight now and then.
fn moved(client: bool, weighs: bool) -> u64 {
    let mut config = Config::new(Machine::new(Topology::flat(2)), 2_000_000_000);
    let kernel = Mainline::of("6.18");
    config.policy = kernel.policy();
    kernel.set_turns(&mut config.policy, 2, config.machine.hz);
    config.policy.balance_weighs = weighs;
    let workload = config.add_workload("all");
    let crowd = config.add_group(GroupSpec::new("/crowd", GroupId::ROOT));
    for cpu in 0..2 {
        let group = config.add_group(GroupSpec::new(format!("/spinner-{cpu}"), GroupId::ROOT));
        let mut spinner = TaskSpec::new(group, workload, format!("spinner {cpu}"), spin);
        spinner.affinity = Some(std::iter::once(cpu).collect());
        config.add_task(spinner);
    }
    if client {
        let mut group = GroupSpec::new("/client", GroupId::ROOT);
        group.cpu_weight = 10_000;
        let group = config.add_group(group);
        let works = in_turn(1_000_000, 1_000_000, 15_000_000);
        let mut task = TaskSpec::new(group, workload, "client".to_string(), works);
        task.affinity = Some(std::iter::once(1).collect());
        config.add_task(task);
    }
    for number in 0..4 {
        let mut task = TaskSpec::new(crowd, workload, format!("crowd {number}"), spin);
        task.start_cpu = Some(0);
        config.add_task(task);
    }
    let results = Simulation::new(config).unwrap().run(None).unwrap();
    results.cpus.iter().map(|cpu| cpu.periodic_pulls).sum()
}

#[test]
fn periodic_balance_weighs_what_runs_where_it_is_asked_to() {
    assert_eq!(moved(true, true), 0, "as much weighs on the other CPU");
    assert!(moved(true, false) > 0 && moved(false, true) > 0);
}

/// As many spinners of weight 1000 as there are CPUs beside as many of 100, as two groups below one or, in one group, of nice
/// 0 and 10. The light ones' percentage of the machine.
fn light_ones(cpus: u32, nice: bool, balance: bool) -> f64 {
    let mut config = Config::new(Machine::new(Topology::flat(cpus)), 14_000_000_000);
    config.warmup_ns = 2_000_000_000;
    config.policy.newidle = balance;
    config.policy.periodic = balance;
    let pod = config.add_group(GroupSpec::new("/pod", GroupId::ROOT));
    let groups = [("/pod/heavy", 1000), ("/pod/light", 100)].map(|(path, weight)| {
        let mut group = GroupSpec::new(path, pod);
        group.cpu_weight = weight;
        config.add_group(group)
    });
    let workloads = ["heavy", "light"].map(|name| config.add_workload(name));
    for number in 0..cpus {
        for kind in 0..2 {
            let group = if nice { pod } else { groups[kind] };
            let mut task = TaskSpec::new(group, workloads[kind], format!("{kind} {number}"), spin);
            task.nice = if nice { 10 * kind as i32 } else { 0 };
            config.add_task(task);
        }
    }
    let results = Simulation::new(config).unwrap().run(None).unwrap();
    results.workloads[1].usage_ns as f64 * 100.0 / results.groups[0].usage_ns as f64
}

/// As they weigh: 9.09%.
fn has_its_share(cpus: u32) {
    // Without the kernel's balance, as live: single tasks are pulled by what they are behind, and rest uneven for a while.
    for (balance, points) in [(false, 1.0), (true, 0.5)] {
        // With it, and from 48 CPUs on, how the groups begin decides: 9.1 to 10.2 (docs/src/lab/live-shares.md).
        if balance && cpus > 32 {
            continue;
        }
        let got = light_ones(cpus, false, balance);
        assert!(
            (got - 100.0 / 11.0).abs() < points,
            "{cpus} CPUs, balance {balance}: {got:.2}%, due 9.09%"
        );
    }
}

/// Two tests, as it takes as long as all others together.
#[test]
fn what_is_light_has_its_share_on_many_cpus() {
    has_its_share(64);
}

#[test]
fn what_is_light_has_its_share_on_few_cpus() {
    [2, 3, 4, 8, 16, 32].into_iter().for_each(has_its_share);
}

#[test]
fn what_is_nicer_has_its_share() {
    for cpus in [4, 8] {
        let got = light_ones(cpus, true, false);
        assert!(
            (got - 9.70).abs() < 1.5,
            "{cpus} CPUs, nice 10 beside 0: {got:.2}%, due 9.70%"
        );
    }
}
