// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shares and waits where tasks take turns by earliest eligible virtual deadline (policy/entity.h, steps.h).
use plimsoll_sim::{
    Behaviour, Config, Context, CpuSet, Fair, GroupId, GroupSpec, Machine, Observer, Policy, Results,
    Simulation, Step, TaskId, TaskSpec, Topology, WorkloadId,
};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

struct Case {
    config: Config,
    workload: WorkloadId,
    tasks: u32,
}

impl Case {
    fn new(nr_cpus: u32, duration_ms: u64) -> Self {
        let mut config = Config::new(Machine::new(Topology::flat(nr_cpus)), duration_ms * MS);
        config.warmup_ns = duration_ms * MS / 4;
        config.policy.fair = Fair::Eevdf;
        // As live: queue lengths do not count, and would be evened out against the weights.
        (config.policy.newidle, config.policy.periodic) = (false, false);
        let workload = config.add_workload("w");
        Self {
            config,
            workload,
            tasks: 0,
        }
    }

    fn group(&mut self, parent: GroupId, weight: u32) -> GroupId {
        let path = format!("/g{}", self.config.groups.len());
        let mut group = GroupSpec::new(path, parent);
        group.cpu_weight = weight;
        self.config.add_group(group)
    }

    fn task(&mut self, group: GroupId, behaviour: impl Behaviour + 'static) -> &mut TaskSpec {
        self.tasks += 1;
        let name = format!("t{}", self.tasks);
        let task = TaskSpec::new(group, self.workload, name, behaviour);
        self.config.add_task(task);
        self.config.tasks.last_mut().expect("just added")
    }

    fn spinners(&mut self, n: u32, group: GroupId, nice: i32, cpus: Option<&str>) {
        for _ in 0..n {
            let task = self.task(group, |_: &mut Context| Step::Compute { ns: u64::MAX });
            task.nice = nice;
            task.affinity = cpus.map(|list| CpuSet::parse(list).expect("a list"));
        }
    }

    /// `n` tasks that work for `work_us` and are released each `period_us`, one after the other.
    fn duties(&mut self, n: u32, group: GroupId, work_us: u64, period_us: u64) {
        for k in 0..n {
            let mut release_ns = u64::from(k) * period_us * US / u64::from(n);
            let mut works = false;
            let task = self.task(group, move |ctx: &mut Context| {
                works = !works;
                if works {
                    return Step::Compute { ns: work_us * US };
                }
                release_ns = (release_ns + period_us * US).max(ctx.now_ns() + 1);
                Step::SleepUntil { at_ns: release_ns }
            });
            task.start_ns = u64::from(k) * period_us * US / u64::from(n) + 1;
        }
    }

    /// A task that works for `work_us` at each of these times of every period.
    fn timed(&mut self, group: GroupId, at_us: &'static [u64], work_us: u64, period_us: u64) {
        let (mut next, mut works) = (0, false);
        self.task(group, move |_: &mut Context| {
            works = !works;
            if !works {
                return Step::Compute { ns: work_us * US };
            }
            let (round, place) = (next / at_us.len() as u64, next as usize % at_us.len());
            next += 1;
            let at_ns = (round * period_us + at_us[place]) * US + 1;
            Step::SleepUntil { at_ns }
        });
    }

    fn run(self) -> Results {
        Simulation::new(self.config)
            .expect("a valid case")
            .run(None)
            .unwrap()
    }
}

fn percent(results: &Results, group: GroupId) -> f64 {
    let all = results.groups[0].usage_ns as f64;
    results.groups[group.0 as usize].usage_ns as f64 * 100.0 / all
}

#[track_caller]
fn near(what: &str, got: f64, due: f64, within: f64) {
    println!("{what}: {got:.2} (due {due})");
    assert!((got - due).abs() <= within, "{what}: {got:.3}%, due {due}%");
}

#[test]
fn sleepers_and_spinners_of_a_group_have_its_share_whatever_their_nice_and_duty() {
    let cases = [
        // in a child of their own, spinners, their nice, sleepers, work, period in us
        (false, 1, 0, 10, 400, 10000),
        (false, 1, 0, 1, 750, 5000),
        (false, 1, 19, 1, 750, 3000),
        (false, 1, 19, 1, 30, 3000),
        (false, 1, 19, 1, 4000, 49000),
        (false, 1, 10, 1, 4000, 49000),
        (false, 3, 19, 2, 4000, 49000),
        (false, 1, -10, 3, 500, 5000),
        (false, 6, 0, 10, 200, 10200),
        (true, 1, 0, 10, 200, 10000),
        (true, 1, 0, 1, 750, 3000),
        (true, 1, 19, 1, 4000, 49000),
    ];
    for case in cases {
        let (own, spinners, nice, sleepers, work_us, period_us) = case;
        let mut machine = Case::new(1, 8000);
        let a = machine.group(GroupId::ROOT, 100);
        let b = machine.group(GroupId::ROOT, 100);
        let (c, d) = match own {
            true => (machine.group(b, 100), machine.group(b, 100)),
            false => (b, b),
        };
        machine.spinners(1, a, 0, None);
        machine.spinners(spinners, c, nice, None);
        machine.duties(sleepers, d, work_us, period_us);
        near(&format!("{case:?}"), percent(&machine.run(), b), 50.0, 0.5);
    }
}

#[test]
fn three_hundred_threads_have_no_more_than_their_groups_weight() {
    for (weight, light, due) in [(10_000, 1, 0.01), (100, 100, 50.0)] {
        let mut machine = Case::new(1, 6000);
        let a = machine.group(GroupId::ROOT, weight);
        let b = machine.group(GroupId::ROOT, light);
        machine.spinners(1, a, 0, None);
        machine.spinners(300, b, 0, None);
        near(&format!("{weight}:{light}"), percent(&machine.run(), b), due, 0.5);
    }
}

#[test]
fn a_group_that_makes_tasks_without_end_has_its_share_and_no_more() {
    let mut machine = Case::new(1, 2000);
    machine.config.warmup_ns = 0;
    let a = machine.group(GroupId::ROOT, 100);
    let b = machine.group(GroupId::ROOT, 100);
    machine.spinners(1, a, 0, None);
    for k in 0..2000 {
        let mut done = false;
        let born = machine.task(b, move |_: &mut Context| {
            if std::mem::replace(&mut done, true) {
                return Step::Exit;
            }
            Step::Compute { ns: 1_500 * US }
        });
        born.start_ns = k * MS + 1;
    }
    near("births", percent(&machine.run(), b), 50.0, 0.5);
}

#[test]
fn what_runs_on_other_cpus_is_no_measure_for_those_that_cannot_go_there() {
    let shares = |nr_cpus: u32, kinds: &[(u32, &str)]| {
        let mut machine = Case::new(nr_cpus, 8000);
        let mut groups = Vec::new();
        for &(n, cpus) in kinds {
            for _ in 0..n {
                let group = machine.group(GroupId::ROOT, 100);
                machine.spinners(1, group, 0, Some(cpus));
                groups.push(group);
            }
        }
        let results = machine.run();
        let cpus = f64::from(nr_cpus);
        groups
            .iter()
            .map(|&g| percent(&results, g) * cpus)
            .collect::<Vec<_>>()
    };
    for (k, share) in shares(3, &[(5, "0-1"), (2, "2")]).into_iter().enumerate() {
        near(&format!("task {k}"), share, if k < 5 { 40.0 } else { 50.0 }, 1.0);
    }
    for (k, share) in shares(8, &[(5, "0-1"), (9, "2-7")]).into_iter().enumerate() {
        near(
            &format!("task {k}"),
            share,
            if k < 5 { 40.0 } else { 200.0 / 3.0 },
            1.0,
        );
    }
    for (k, share) in shares(2, &[(3, "0-1")]).into_iter().enumerate() {
        near(&format!("task {k}"), share, 200.0 / 3.0, 1.0);
    }
}

#[test]
fn weights_hold_over_several_cpus_flat_and_nested() {
    let mut machine = Case::new(8, 8000);
    let a = machine.group(GroupId::ROOT, 100);
    let b = machine.group(GroupId::ROOT, 1000);
    machine.spinners(8, a, 0, None);
    machine.spinners(8, b, 0, None);
    near("1000 beside 100, 8 CPUs", percent(&machine.run(), b), 90.91, 0.5);

    let mut machine = Case::new(4, 8000);
    let a = machine.group(GroupId::ROOT, 100);
    let b = machine.group(GroupId::ROOT, 100);
    let (c, d) = (machine.group(a, 800), machine.group(a, 100));
    for group in [c, d, b] {
        machine.spinners(4, group, 0, None);
    }
    let results = machine.run();
    near("nested, heavy", percent(&results, c), 44.44, 0.5);
    near("nested, light", percent(&results, d), 5.56, 0.5);
    near("beside them", percent(&results, b), 50.0, 0.5);

    let mut machine = Case::new(4, 8000);
    let a = machine.group(GroupId::ROOT, 100);
    let b = machine.group(GroupId::ROOT, 100);
    machine.spinners(2, a, 0, None);
    machine.spinners(8, b, 0, None);
    near("2 threads beside 8", percent(&machine.run(), a), 50.0, 0.5);
}

#[test]
fn one_group_divides_its_cpus_among_children_and_nice_values_as_they_weigh() {
    for nr_cpus in [2, 3, 8, 16] {
        let mut machine = Case::new(nr_cpus, 12_000);
        let pod = machine.group(GroupId::ROOT, 100);
        let (light, heavy) = (machine.group(pod, 100), machine.group(pod, 1000));
        machine.spinners(nr_cpus, light, 0, None);
        machine.spinners(nr_cpus, heavy, 0, None);
        let light = percent(&machine.run(), light);
        near(&format!("nested, {nr_cpus} CPUs"), light, 100.0 / 11.0, 0.5);
    }
    for (nr_cpus, n) in [(4, 6), (8, 8)] {
        let mut machine = Case::new(nr_cpus, 12_000);
        let pod = machine.group(GroupId::ROOT, 100);
        machine.spinners(n, pod, 0, None);
        let nice = machine.config.add_workload("nice");
        machine.workload = nice;
        machine.spinners(n, pod, 10, None);
        let results = machine.run();
        let all = results.groups[0].usage_ns as f64;
        let got = results.workloads[1].usage_ns as f64 * 100.0 / all;
        near(
            &format!("nice 10 beside 0, {nr_cpus} CPUs"),
            got,
            11_000.0 / 1134.0,
            0.5,
        );
        println!("longest wait {} us", results.groups[1].run_delay.max_ns / 1000);
    }
}

#[test]
fn who_is_due_a_whole_cpu_has_it_beside_a_crowd_that_fits_on_the_others() {
    for (cpus, tasks) in [(2, [1, 8]), (2, [1, 3]), (4, [1, 8]), (4, [2, 8])] {
        let mut machine = Case::new(cpus, 8_000);
        let groups = [
            machine.group(GroupId::ROOT, 100),
            machine.group(GroupId::ROOT, 100),
        ];
        for (group, n) in groups.into_iter().zip(tasks) {
            machine.spinners(n, group, 0, None);
        }
        let what = format!("{tasks:?} tasks, {cpus} CPUs");
        let due = 100.0 * f64::from(tasks[0]) / f64::from(cpus);
        near(&what, percent(&machine.run(), groups[0]), due, 0.5);
    }
}

#[test]
fn a_wait_is_bounded_whether_the_group_is_throttled_meanwhile_or_not() {
    let mut machine = Case::new(1, 8_000);
    let wait_max_ns = 50 * MS;
    machine.config.policy.core.fair.wait_max_ns = wait_max_ns;
    let group = machine.group(GroupId::ROOT, 100);
    // It runs for no longer at a time than a task may wait for its turn.
    machine.config.groups[0].limits = plimsoll_sim::Limits::quota(40 * MS, 100 * MS);
    machine.spinners(1, group, -20, None);
    machine.spinners(1, group, 19, None);
    let results = machine.run();
    let longest_ns = results.groups[1].run_delay.max_ns;
    assert!(longest_ns <= wait_max_ns + 103 * MS, "waited for {longest_ns} ns");
}

#[test]
fn a_service_beside_batch_work_of_an_equal_group_is_served_soon() {
    for (n, work_us, period_us, batch) in [(8, 200, 5200, 100), (2, 1000, 6000, 100), (16, 100, 5100, 50)] {
        let mut machine = Case::new(1, 12_000);
        let service = machine.group(GroupId::ROOT, 100);
        let batch = machine.group(GroupId::ROOT, batch);
        machine.duties(n, service, work_us, period_us);
        machine.spinners(2, batch, 0, None);
        let delay = machine.run().groups[service.0 as usize].run_delay;
        let mean_us = delay.total_ns / delay.waits / 1000;
        println!(
            "{n} x {work_us}/{period_us} us: mean {mean_us}, longest {} us",
            delay.max_ns / 1000
        );
        // At worst behind one request of the batch work, and a member's own.
        assert!(mean_us < 600, "mean wait {mean_us} us");
        assert!(delay.max_ns <= 3300 * US, "longest wait {} ns", delay.max_ns);
    }
}

/// Each of the crowd is due a turn in two hours.
#[test]
fn a_crowd_that_is_due_next_to_nothing_has_its_turns_within_the_bound() {
    let mut machine = Case::new(1, 40_000);
    machine.config.warmup_ns = 0;
    let heavy = machine.group(GroupId::ROOT, 10_000);
    let light = machine.group(GroupId::ROOT, 1);
    machine.spinners(1, heavy, 0, None);
    machine.spinners(300, light, 0, None);
    let bound_ns = machine.config.policy.core.fair.wait_max_ns;
    let results = machine.run();
    let delay = results.groups[light.0 as usize].run_delay;
    // Three times each; as they all wait for too long, after one another.
    assert!(delay.waits >= 900, "{} turns of 300 tasks", delay.waits);
    assert!(delay.max_ns < bound_ns + 2_000 * MS, "{} ms", delay.max_ns / MS);
    near("the heavy one", percent(&results, heavy), 99.9, 0.1);
}

/// What each group below one of equal or other weight was ahead of the fluid that its parent's time is, at most and least.
struct Fluid {
    parents: Vec<usize>,
    weights: Vec<f64>,
    served_ns: Vec<f64>,
    ends_ns: Vec<(f64, f64)>,
    since: Option<(u64, usize)>,
}

impl Observer for Fluid {
    fn run(&mut self, now_ns: u64, _: u32, _: TaskId, group: GroupId) {
        self.since = Some((now_ns, group.0 as usize));
    }

    fn stop(&mut self, now_ns: u64, _: u32, _: TaskId, _: plimsoll_sim::observer::Stop) {
        let (since_ns, mut group) = self.since.take().expect("a task ran");
        let ran_ns = (now_ns - since_ns) as f64;
        self.served_ns[group] += ran_ns;
        while group != 0 {
            group = self.parents[group];
            self.served_ns[group] += ran_ns;
        }
        for group in 1..self.parents.len() {
            let parent = self.parents[group];
            let siblings = (1..self.parents.len()).filter(|&g| self.parents[g] == parent);
            let sum: f64 = siblings.map(|g| self.weights[g]).sum();
            let ahead = self.served_ns[group] - self.served_ns[parent] * self.weights[group] / sum;
            let ends = &mut self.ends_ns[group];
            *ends = (ends.0.min(ahead), ends.1.max(ahead));
        }
    }
}

#[test]
fn idle_work_has_what_others_leave_whether_they_spin_sleep_or_are_born() {
    // What the others take of one CPU's time.
    for (what, due) in [("a spinner", 100.0), ("births", 37.5), ("sleepers", 90.0)] {
        let mut machine = Case::new(1, 4000);
        machine.config.warmup_ns = 0;
        let idle = machine.group(GroupId::ROOT, 100);
        machine.config.groups[idle.0 as usize - 1].idle = true;
        let other = machine.group(GroupId::ROOT, 100);
        machine.spinners(1, idle, 0, None);
        match what {
            "a spinner" => machine.spinners(1, other, 0, None),
            "sleepers" => machine.duties(3, other, 3_000, 10_000),
            _ => {
                for k in 0..1000 {
                    let mut done = false;
                    let born = machine.task(other, move |_: &mut Context| {
                        match std::mem::replace(&mut done, true) {
                            true => Step::Exit,
                            false => Step::Compute { ns: 1_500 * US },
                        }
                    });
                    born.start_ns = k * 4 * MS + 1;
                }
            }
        }
        // Its weight is 3 beside 1024.
        near(what, percent(&machine.run(), other), due, 0.3);
    }
}

#[test]
fn a_group_that_comes_to_a_cpu_while_it_is_throttled_weighs_its_share_there_afterwards() {
    let mut machine = Case::new(2, 4000);
    let limited = machine.group(GroupId::ROOT, 100);
    machine.config.groups[limited.0 as usize - 1].limits.quota_ns = Some(10 * MS);
    let first = machine.group(limited, 100);
    let second = machine.group(limited, 100);
    machine.spinners(1, first, 0, Some("0"));
    machine.spinners(1, GroupId::ROOT, 0, Some("1"));
    machine.spinners(1, second, 0, Some("1"));
    // The first has used up the quota by then.
    machine.config.tasks.last_mut().expect("just added").start_ns = 30 * MS;
    let results = machine.run();
    let ms = |group: GroupId| results.groups[group.0 as usize].usage_ns / MS;
    println!("{} and {} ms", ms(first), ms(second));
    assert!(ms(second) >= 75, "{} ms beside {}", ms(second), ms(first));
}

#[test]
fn over_any_window_each_group_has_what_the_fluid_gives_it_within_a_slice_and_a_tick() {
    let mut machine = Case::new(1, 8000);
    machine.config.machine.costs = plimsoll_sim::Costs::free();
    machine.config.check = true;
    let weights = [(0, 100), (0, 37), (0, 900), (1, 100), (1, 13), (3, 50), (3, 300)];
    let mut fluid = Fluid {
        parents: vec![0],
        weights: vec![100.0],
        served_ns: vec![0.0; weights.len() + 1],
        ends_ns: vec![(0.0, 0.0); weights.len() + 1],
        since: None,
    };
    for (parent, weight) in weights {
        machine.group(GroupId(parent), weight);
        fluid.parents.push(parent as usize);
        fluid.weights.push(f64::from(weight));
    }
    for (n, group) in [(2, 2), (3, 3), (1, 4), (2, 5), (1, 6), (4, 7)] {
        if fluid.parents.contains(&group) {
            continue;
        }
        machine.spinners(n, GroupId(group as u32), 0, None);
    }
    Simulation::new(machine.config)
        .expect("a valid case")
        .run(Some(&mut fluid))
        .unwrap();
    // A slice of 3 ms, and a tick of 4 ms: the lag is within that on either side, at every level.
    for (group, (behind, ahead)) in fluid.ends_ns.iter().enumerate().skip(1) {
        println!("group {group}: {behind:.0} .. {ahead:.0} ns of its parent's time");
        assert!(fluid.served_ns[group] > 0.0, "group {group} never ran");
        assert!(
            *behind >= -7e6 && *ahead <= 7e6,
            "group {group}: {behind} .. {ahead} ns"
        );
    }
}

/// Since Linux 6.12 a client that goes to sleep holds V back until the next pick, most often a tick. What ran meanwhile is ahead
/// of V, so that a service that the client has asked does its work in one go.
#[test]
fn what_sleeps_with_a_debt_holds_its_line_back_where_the_kernel_leaves_it_there() {
    let wait_ns = |delays| {
        let mut machine = Case::new(1, 8000);
        machine.config.policy = Policy::mainline();
        machine.config.policy.fair = Fair::Eevdf;
        machine.config.policy.core.fair.slice_ns = 700 * US;
        machine.config.policy.delay_dequeue = delays;
        machine.config.check = true;
        let client = machine.group(GroupId::ROOT, 10_000);
        let service = machine.group(GroupId::ROOT, 100);
        let batch = machine.group(GroupId::ROOT, 100);
        machine.timed(client, &[0, 550, 1_100, 2_250], 20, 10_000);
        machine.timed(service, &[1_110], 1_200, 10_000);
        machine.spinners(1, batch, 0, None);
        let results = machine.run();
        let own = &results.groups[service.0 as usize].run_delay;
        own.total_ns
    };
    let (with, without) = (wait_ns(true), wait_ns(false));
    assert!(with * 2 < without, "{with} and {without} ns");
}

/// As tests/live/cpusets.sh: five on two CPUs and nine on six; `any` more that may run anywhere, each weighing what one of the
/// nine does. Shares of a CPU, in percent.
fn bound_to_sets(any: u32) -> Vec<f64> {
    let mut machine = Case::new(8, 8_000);
    let five = machine.group(GroupId::ROOT, 100);
    let nine = machine.group(GroupId::ROOT, 100);
    for (group, n, cpus) in [(five, 5, "0-1"), (nine, 9, "2-7")] {
        for _ in 0..n {
            let each = machine.group(group, 100);
            machine.spinners(1, each, 0, Some(cpus));
        }
    }
    for _ in 0..any {
        let each = machine.group(GroupId::ROOT, 11);
        machine.spinners(1, each, 0, None);
    }
    let results = machine.run();
    let shares = results.groups.iter().map(|group| group.usage_ns as f64 / 60e6);
    // Behind the root, the five's group and the nine's.
    shares.skip(3).collect()
}

#[track_caller]
fn each_has_its_due_beside(any: u32, others: f64) {
    let shares = bound_to_sets(any);
    for (at, &share) in shares.iter().enumerate() {
        near(
            &format!("spinner {at}"),
            share,
            if at < 5 { 40.0 } else { others },
            1.0,
        );
    }
}

#[test]
fn tasks_bound_to_sets_of_cpus_are_even_within_them() {
    each_has_its_due_beside(0, 66.7);
}

/// It is due what it would have where that is most, and leaves the others of that set as much.
#[test]
fn one_that_may_run_anywhere_goes_where_it_has_most_beside_sets_of_cpus() {
    each_has_its_due_beside(1, 60.0);
}

#[test]
fn turns_on_one_cpu_do_not_depend_on_when_tasks_move() {
    let run = |pull_ns| {
        let mut machine = Case::new(1, 2_000);
        let group = machine.group(GroupId::ROOT, 100);
        machine.duties(3, group, 700, 10_000);
        machine.spinners(2, GroupId::ROOT, 0, None);
        machine.config.policy = machine.config.policy.clone().with_pull_ns(pull_ns);
        let results = machine.run();
        format!("{:?}", results.groups)
    };
    assert_eq!(run(0), run(10 * MS));
}
