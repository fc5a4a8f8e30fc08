// SPDX-License-Identifier: Apache-2.0 OR MIT
//! group.h and task.h: what a tree of groups makes of weights, limits and headroom.

use crate::common::MS;
use plimsoll_policy_sys::*;
use rand::{Rng, SeedableRng};

/// A tree of groups on memory that does not move.
struct Tree {
    groups: Vec<*mut Group>,
    cpus: u32,
    config: Config,
    touch: Touch,
}

impl Tree {
    fn new(cpus: u32) -> Self {
        let bandwidth = crate::common::published();
        let config = Config {
            bandwidth,
            side: BwConfig {
                slice_ns: MS / 2,
                ..bandwidth
            },
            load: LoadConfig { publish_ns: MS },
            fair: zeroed(),
            refresh_ns: MS,
        };
        let mut tree = Tree {
            groups: Vec::new(),
            cpus,
            config,
            touch: zeroed(),
        };
        tree.add(None, 100);
        tree
    }

    /// Adds a group under `parent`, an index; the first is the root. Memory is leaked: this is a test.
    fn add(&mut self, parent: Option<usize>, cpu_weight: u32) -> usize {
        let cpus = self.cpus as usize;
        let slots = self.cpus.next_power_of_two();
        let group: *mut Group = Box::leak(Box::new(zeroed()));
        let queues = vec![zeroed::<Queue>(); cpus].leak().as_mut_ptr();
        let balances = vec![zeroed::<Balance>(); cpus].leak().as_mut_ptr();
        let ring = vec![0u32; slots as usize].leak().as_mut_ptr();
        let above = parent.map_or(std::ptr::null_mut(), |p| self.groups[p]);
        // SAFETY: leaked memory of the right lengths.
        unsafe {
            pl_group_init(
                group,
                above,
                self.groups.len() as u64,
                queues,
                balances,
                self.cpus,
                ring,
                slots,
            );
            (*group).weight = pl_weight_of_cpu_weight(cpu_weight);
        }
        self.groups.push(group);
        self.groups.len() - 1
    }

    fn task(&self, group: usize) -> Task {
        Task {
            group: self.groups[group],
            weight: 1024,
            ..zeroed()
        }
    }

    fn runnable(&mut self, task: &mut Task, cpu: u32, now_ns: u64) -> u32 {
        unsafe { pl_task_runnable(task, cpu, now_ns, &mut self.touch, &self.config) }
    }

    fn blocked(&mut self, task: &mut Task, now_ns: u64) -> u32 {
        unsafe { pl_task_blocked(task, now_ns, &mut self.touch, &self.config) }
    }

    fn limit(&mut self, group: usize, quota_ns: u64, period_ns: u64) {
        let limits = BwLimits {
            quota_ns,
            period_ns,
            burst_ns: 0,
            onset_percent: 0,
            reserved: 0,
        };
        unsafe {
            pl_bw_set(
                &mut (*self.groups[group]).pool,
                &limits,
                0,
                0,
                &self.config.bandwidth,
            );
            for &group in &self.groups {
                pl_group_link(group);
            }
        }
    }

    fn queue(&self, group: usize, cpu: u32) -> Queue {
        unsafe { *(*self.groups[group]).queues.add(cpu as usize) }
    }
}

/// What share of the CPU each task is due, from the effective weights.
fn fractions(tree: &mut Tree, tasks: &mut [Task], now_ns: u64) -> Vec<f64> {
    let always = Config {
        refresh_ns: 0,
        ..tree.config
    };
    let effective: Vec<f64> = tasks
        .iter_mut()
        .map(|task| unsafe {
            pl_group_refresh(task.group, task.cpu, now_ns, &mut tree.touch, &always);
            pl_task_effective(task, task.cpu) as f64
        })
        .collect();
    let sum: f64 = effective.iter().sum();
    effective.iter().map(|e| e / sum).collect()
}

#[test]
fn nested_weights_divide_one_cpu_as_the_tree_says() {
    let mut tree = Tree::new(1);
    let a = tree.add(Some(0), 100);
    let b = tree.add(Some(0), 100);
    let b1 = tree.add(Some(b), 100);
    let b2 = tree.add(Some(b), 800);
    let mut tasks = [tree.task(a), tree.task(b1), tree.task(b2)];
    for task in &mut tasks {
        tree.runnable(task, 0, 0);
    }
    // Once more after the weights are known: the first refresh of one level feeds the next.
    fractions(&mut tree, &mut tasks, 50 * MS);
    let got = fractions(&mut tree, &mut tasks, 100 * MS);
    for (got, ideal) in got.iter().zip([0.5, 0.5 / 9.0, 0.5 * 8.0 / 9.0]) {
        assert!((got - ideal).abs() < 0.002, "{got} for {ideal}");
    }
}

#[test]
fn the_lightest_task_in_the_heaviest_group_gets_what_the_group_is_due() {
    for (outer, inner, nice, sched_idle) in [
        (100, 10_000, 19, false),
        (100, 10_000, 0, true),
        (10_000, 100, 19, false),
        (10_000, 10_000, 0, true),
    ] {
        let mut tree = Tree::new(1);
        let a = tree.add(Some(0), outer);
        let b = tree.add(Some(0), outer);
        let inner = tree.add(Some(a), inner);
        let mut tasks = [tree.task(inner), tree.task(b)];
        unsafe { pl_task_class(&mut tasks[0], nice, sched_idle) };
        for task in &mut tasks {
            tree.runnable(task, 0, 0);
        }
        fractions(&mut tree, &mut tasks, 50 * MS);
        let got = fractions(&mut tree, &mut tasks, 100 * MS);
        assert!((got[0] - 0.5).abs() < 0.005, "{outer}: {}", got[0]);
    }
}

#[test]
fn two_tasks_and_eight_of_equal_groups_weigh_the_same_over_the_machine() {
    let mut tree = Tree::new(4);
    let few = tree.add(Some(0), 100);
    let many = tree.add(Some(0), 100);
    let mut tasks: Vec<Task> = (0..10)
        .map(|i| tree.task(if i < 2 { few } else { many }))
        .collect();
    for (i, task) in tasks.iter_mut().enumerate() {
        tree.runnable(task, i as u32 % 4, 0);
    }
    for step in 1..200 {
        fractions(&mut tree, &mut tasks, step * 2 * MS);
    }
    let got = fractions(&mut tree, &mut tasks, 500 * MS);
    let few: f64 = got[..2].iter().sum();
    assert!((few - 0.5).abs() < 0.02, "{few}");
}

#[test]
fn idle_group_weighs_next_to_nothing() {
    let mut tree = Tree::new(1);
    let normal = tree.add(Some(0), 100);
    let idle = tree.add(Some(0), 10_000);
    unsafe { (*tree.groups[idle]).idle = 1 };
    let mut tasks = [tree.task(normal), tree.task(idle)];
    for task in &mut tasks {
        tree.runnable(task, 0, 0);
    }
    let got = fractions(&mut tree, &mut tasks, 100 * MS);
    assert!(got[1] < 0.01, "{}", got[1]);
}

#[test]
fn below_an_idle_group_all_give_way_and_nice_values_keep_their_meaning() {
    let mut tree = Tree::new(1);
    let idle = tree.add(Some(0), 100);
    let inner = tree.add(Some(idle), 100);
    let link = |tree: &Tree| {
        tree.groups
            .iter()
            .for_each(|&group| unsafe { pl_group_link(group) })
    };
    let classes = |task: &mut Task| {
        [(0, false), (5, false), (0, true)].map(|(nice, sched_idle)| {
            unsafe { pl_task_class(task, nice, sched_idle) };
            (task.weight, task.idle)
        })
    };
    let mut task = tree.task(inner);
    assert_eq!(classes(&mut task), [(1024, 0), (336, 0), (3, 1)]);
    unsafe { (*tree.groups[idle]).idle = 1 };
    link(&tree);
    assert_eq!(classes(&mut task), [(1024, 1), (336, 1), (3, 1)]);

    let mut tasks = [tree.task(inner), tree.task(inner)];
    for (task, nice) in tasks.iter_mut().zip([0, 5]) {
        unsafe { pl_task_class(task, nice, false) };
        tree.runnable(task, 0, 0);
    }
    let got = fractions(&mut tree, &mut tasks, 100 * MS);
    let ratio = got[0] / got[1];
    assert!((3.0..3.1).contains(&ratio), "{ratio}");

    unsafe { (*tree.groups[idle]).idle = 0 };
    link(&tree);
    assert_eq!(classes(&mut task)[0], (1024, 0));
}

/// Not a millisecond later, in which a heavy group's task would pay for a slice as a light one.
#[test]
fn a_weight_that_was_written_counts_at_the_next_pick_and_who_is_idle_no_longer_weighs_100() {
    let mut tree = Tree::new(1);
    tree.config.refresh_ns = MS;
    let group = tree.add(Some(0), 1000);
    let mut task = tree.task(group);
    tree.runnable(&mut task, 0, 10 * MS);
    let mut weighs = |change: &dyn Fn(*mut Group)| {
        change(tree.groups[group]);
        unsafe { pl_queue_written(tree.groups[group], 0) };
        unsafe { pl_group_refresh(tree.groups[group], 0, 10 * MS + 1, &mut tree.touch, &tree.config) };
        tree.queue(group, 0).effective as f64 / EFFECTIVE_ONE as f64
    };
    assert_eq!(weighs(&|_| ()), 10.0);
    assert_eq!(weighs(&|group| unsafe { pl_group_set_weight(group, 5000) }), 50.0);
    assert_eq!(weighs(&|group| unsafe { pl_group_set_idle(group, false) }), 50.0);
    assert!(weighs(&|group| unsafe { pl_group_set_idle(group, true) }) < 0.01);
    assert_eq!(weighs(&|group| unsafe { pl_group_set_idle(group, false) }), 1.0);
}

#[test]
fn random_lives_of_tasks_leave_every_queue_empty() {
    for seed in 0..300 {
        let mut rng = rand_pcg::Pcg64::seed_from_u64(seed);
        let cpus = rng.random_range(1..=8);
        let mut tree = Tree::new(cpus);
        for _ in 0..rng.random_range(1..12) {
            let parent = rng.random_range(0..tree.groups.len());
            let group = tree.add(Some(parent), rng.random_range(1..=10_000));
            if rng.random_bool(0.4) {
                tree.limit(group, rng.random_range(MS..50 * MS), 100 * MS);
            }
        }
        let mut tasks: Vec<(Task, bool)> = (0..20)
            .map(|_| (tree.task(rng.random_range(0..tree.groups.len())), false))
            .collect();
        let mut now = 0;
        for _ in 0..600 {
            now += rng.random_range(0..3 * MS);
            let i = rng.random_range(0..tasks.len());
            let (task, runnable) = &mut tasks[i];
            if *runnable {
                let ran = rng.random_range(0..MS);
                unsafe { pl_task_charge(task, ran, now, &mut tree.touch, &tree.config) };
                tree.blocked(task, now);
            } else {
                tree.runnable(task, rng.random_range(0..cpus), now);
                assert!(task.effective >= 2);
            }
            *runnable = !*runnable;
        }
        for (task, runnable) in &mut tasks {
            if *runnable {
                tree.blocked(task, now);
            }
        }
        for group in 0..tree.groups.len() {
            for cpu in 0..cpus {
                let queue = tree.queue(group, cpu);
                assert_eq!(
                    (queue.nr_runnable, queue.load.weight, queue.share),
                    (0, 0, 0),
                    "seed {seed}, group {group}, CPU {cpu}"
                );
            }
        }
    }
}

#[test]
fn the_tightest_ancestor_binds_and_children_of_a_throttled_group_are_throttled() {
    let mut tree = Tree::new(2);
    let outer = tree.add(Some(0), 100);
    let middle = tree.add(Some(outer), 100);
    let inner = tree.add(Some(middle), 100);
    tree.limit(outer, 2 * MS, 100 * MS);
    tree.limit(inner, 50 * MS, 100 * MS);
    let mut task = tree.task(inner);
    assert_eq!(tree.runnable(&mut task, 0, 0) & BW_THROTTLED, 0);
    assert_eq!(
        unsafe { pl_group_budget(tree.groups[inner], 0, 100 * MS) },
        2 * MS
    );
    let flags = unsafe { pl_task_charge(&mut task, 3 * MS, 3 * MS, &mut tree.touch, &tree.config) };
    assert_ne!(flags & BW_THROTTLED, 0);
    unsafe {
        assert_eq!(pl_group_throttled(tree.groups[inner], 0), tree.groups[outer]);
        assert!(
            pl_group_throttled(tree.groups[inner], 1).is_null(),
            "only where it ran out"
        );
        assert_eq!((*tree.groups[inner]).pool.nr_periods, 0);
    }
}

#[test]
fn headroom_makes_side_of_everything_but_main_its_ancestors_and_descendants() {
    let mut tree = Tree::new(2);
    let pods = tree.add(Some(0), 100);
    let main = tree.add(Some(pods), 100);
    let main_child = tree.add(Some(main), 100);
    let batch = tree.add(Some(pods), 100);
    let batch_child = tree.add(Some(batch), 100);
    let system = tree.add(Some(0), 100);
    let side = tree.add(None, 100);
    let mut headroom: Headroom = zeroed();
    unsafe {
        (*tree.groups[side]).is_side = 1;
        (*tree.groups[main]).headroom_percent = 30;
        for &group in &tree.groups {
            pl_headroom_clear(group);
        }
        for &group in &tree.groups {
            pl_headroom_mark(&mut headroom, group);
        }
        for &group in &tree.groups {
            pl_headroom_link(&headroom, group, tree.groups[side]);
        }
        assert_eq!(headroom.percent, 30);
        let is_side = |group: usize| !(*tree.groups[group]).side.is_null();
        for group in [0, pods, main, main_child] {
            assert!(!is_side(group), "group {group}");
        }
        for group in [batch, batch_child, system] {
            assert!(is_side(group), "group {group}");
        }
    }
    // Entering a side group counts once at the side, however deep.
    let mut task = tree.task(batch_child);
    tree.runnable(&mut task, 0, 0);
    assert_eq!(tree.queue(side, 0).nr_runnable, 1);
    let mut other = tree.task(system);
    tree.runnable(&mut other, 0, 0);
    assert_eq!(tree.queue(side, 0).nr_runnable, 2);
    tree.blocked(&mut task, MS);
    tree.blocked(&mut other, MS);
    assert_eq!(tree.queue(side, 0).nr_runnable, 0);
}

/// In units of weight.h.
fn share_of(tree: &Tree, group: usize, cpu: u32) -> f64 {
    tree.queue(group, cpu).share as f64 / f64::from(1 << LOAD_SHIFT)
}

#[test]
fn groups_of_unequal_weight_keep_their_ratio_on_machines_of_any_size() {
    for cpus in [1, 16, 224, 1024] {
        let mut tree = Tree::new(cpus);
        let groups = [
            tree.add(Some(0), 100),
            tree.add(Some(0), 1),
            tree.add(Some(0), 10_000),
        ];
        let nested = tree.add(Some(groups[0]), 10);
        let mut tasks: Vec<(u32, [Task; 3])> = (0..cpus)
            .map(|cpu| (cpu, [nested, groups[1], groups[2]].map(|group| tree.task(group))))
            .collect();
        for (cpu, three) in &mut tasks {
            three.iter_mut().for_each(|task| {
                tree.runnable(task, *cpu, 0);
            });
        }
        for step in 1..=300 {
            for (_, three) in &mut tasks {
                fractions(&mut tree, three, step * 4 * MS);
            }
        }
        let got = fractions(&mut tree, &mut tasks[0].1, 1300 * MS);
        // cpu.weight 1 is 10.24, kept as 10.
        let sum = 1024.0 + 10.0 + 102_400.0;
        for (got, ideal) in got.iter().zip([1024.0 / sum, 10.0 / sum, 102_400.0 / sum]) {
            assert!(
                (got / ideal - 1.0).abs() < 0.06,
                "{got} for {ideal} on {cpus} CPUs"
            );
        }
    }
}

/// A task of nice 19 spins; one of nice 0 in the same group is runnable for a moment now and then.
#[test]
fn a_task_does_not_weigh_less_for_a_sibling_that_sleeps_again() {
    let mut tree = Tree::new(1);
    let group = tree.add(Some(0), 100);
    let (mut spinner, mut beat) = (tree.task(group), tree.task(group));
    unsafe { pl_task_class(&mut spinner, 19, false) };
    tree.runnable(&mut spinner, 0, 0);
    let mut fair: FairCpu = zeroed();
    let mut weigh = |tree: &mut Tree, task: &mut Task, now_ns: u64| {
        unsafe { pl_task_reweigh(task, &mut fair, now_ns, &mut tree.touch, &tree.config) };
        task.effective as f64 / FAIR_WEIGHT_ONE as f64
    };
    for ms in 1..100 {
        let now_ns = ms * 3 * MS;
        tree.runnable(&mut beat, 0, now_ns);
        let both = weigh(&mut tree, &mut beat, now_ns) + weigh(&mut tree, &mut spinner, now_ns);
        assert!((both - 1.0).abs() < 0.01, "{both} of the group's weight");
        tree.blocked(&mut beat, now_ns + MS / 30);
        let alone = weigh(&mut tree, &mut spinner, now_ns + MS / 30);
        assert!((alone - 1.0).abs() < 0.01, "{alone} of the group's weight");
    }
}

#[test]
fn a_group_does_not_weigh_less_for_cpus_where_nothing_of_it_has_run_for_long() {
    for cpus in [2, 4, 224] {
        let mut tree = Tree::new(cpus);
        let group = tree.add(Some(0), 100);
        let mut tasks: Vec<Task> = (0..cpus).map(|_| tree.task(group)).collect();
        let refresh = |tree: &mut Tree, cpu: u32, now_ns: u64| unsafe {
            pl_group_refresh(tree.groups[group], cpu, now_ns, &mut tree.touch, &tree.config)
        };
        let mut fair: FairCpu = zeroed();
        let mut reweigh = |tree: &mut Tree, task: &mut Task, now_ns: u64| unsafe {
            pl_task_reweigh(task, &mut fair, now_ns, &mut tree.touch, &tree.config)
        };
        for (cpu, task) in tasks.iter_mut().enumerate() {
            tree.runnable(task, cpu as u32, 0);
        }
        for step in 1..=250 {
            (0..cpus).for_each(|cpu| refresh(&mut tree, cpu, step * 4 * MS));
        }
        let fair = 1024.0 / f64::from(cpus);
        let share = share_of(&tree, group, 0);
        assert!(
            (share / fair - 1.0).abs() < 0.03,
            "{share} of 1024 on {cpus} CPUs"
        );
        // All but the first sleep from now on, or have exited.
        for task in &mut tasks[1..] {
            tree.blocked(task, 1000 * MS);
        }
        for step in 251..=600 {
            reweigh(&mut tree, &mut tasks[0], step * 4 * MS);
        }
        assert_eq!(share_of(&tree, group, 0), 1024.0, "{cpus} CPUs");
        let published = unsafe { (*tree.groups[group]).load.load_avg };
        let books: i64 = (0..cpus)
            .map(|cpu| tree.queue(group, cpu).load.contribution)
            .sum();
        assert_eq!(published, books, "{cpus} CPUs");
    }
}

#[test]
fn a_group_with_tasks_of_its_own_is_refreshed_beside_a_busy_child() {
    let mut tree = Tree::new(2);
    let parent = tree.add(Some(0), 100);
    let child = tree.add(Some(parent), 100);
    let mut tasks = [tree.task(parent), tree.task(child), tree.task(parent)];
    tree.runnable(&mut tasks[0], 0, 0);
    tree.runnable(&mut tasks[1], 0, 0);
    for step in 1..1000 {
        if step == 500 {
            // From now on about half of the parent's weight is the other CPU's.
            tree.runnable(&mut tasks[2], 1, step * MS);
        }
        for (group, at_ns) in [(child, 0), (parent, MS / 2)] {
            let now_ns = step * MS + at_ns;
            unsafe { pl_group_refresh(tree.groups[group], 0, now_ns, &mut tree.touch, &tree.config) };
        }
        if step >= 500 {
            let now_ns = step * MS;
            unsafe { pl_group_refresh(tree.groups[parent], 1, now_ns, &mut tree.touch, &tree.config) };
        }
    }
    let due = share_of(&tree, parent, 0) / 1024.0;
    let kept = tree.queue(parent, 0).effective as f64 / EFFECTIVE_ONE as f64;
    assert!((kept / due - 1.0).abs() < 0.05, "{kept} for {due}");
}

/// Against the formulas at the head of group.h and task.h, level by level in floating point.
#[test]
fn queues_above_weigh_what_all_below_do_and_count_what_any_of_it_runs() {
    let mut rng = rand_pcg::Pcg64::seed_from_u64(23);
    for _ in 0..200 {
        let mut tree = Tree::new(1);
        tree.config.fair.slice_ns = 1000 * MS;
        for _ in 0..rng.random_range(1..12) {
            let parent = rng.random_range(0..tree.groups.len());
            tree.add(Some(parent), rng.random_range(1..=10_000));
        }
        let nr_groups = tree.groups.len();
        let homes: Vec<usize> = (0..rng.random_range(1..10))
            .map(|_| rng.random_range(1..nr_groups))
            .collect();
        let mut tasks: Vec<Task> = homes.iter().map(|&home| tree.task(home)).collect();
        for task in &mut tasks {
            tree.runnable(task, 0, 0);
        }
        // Each computes its own way up, from what the others' left there the time before.
        for step in 1..=8 {
            fractions(&mut tree, &mut tasks, step * 50 * MS);
        }
        let above = |tree: &Tree, group: usize| unsafe { (*(*tree.groups[group]).parent).id as usize };
        let weighs = |tree: &Tree, group: usize| {
            let mut level = group;
            let mut weighs = tree.queue(group, 0).share as f64;
            while above(tree, level) != 0 {
                level = above(tree, level);
                let queue = tree.queue(level, 0);
                weighs *= queue.share as f64 / queue.load.weight as f64;
            }
            weighs / 1024.0
        };
        let ran: Vec<u64> = tasks.iter().map(|_| rng.random_range(1..20 * MS)).collect();
        for (task, &delta_ns) in tasks.iter_mut().zip(&ran) {
            unsafe { pl_cfs_ran(task, delta_ns, &tree.config.fair) };
        }
        for group in 1..nr_groups {
            let queue = tree.queue(group, 0);
            if queue.nr_runnable == 0 {
                continue;
            }
            let (got, due) = (
                queue.effective as f64 / (1 << EFFECTIVE_SHIFT) as f64,
                weighs(&tree, group),
            );
            assert!(
                (got - due).abs() < 0.002 * due + 0.001,
                "group {group} weighs {got}, not {due}"
            );
            let below = |home: usize| {
                let mut level = home;
                while level != 0 && level != group {
                    level = above(&tree, level);
                }
                level == group
            };
            let run: u64 = homes
                .iter()
                .zip(&ran)
                .filter(|(&home, _)| below(home))
                .map(|(_, ns)| ns)
                .sum();
            let due = run as f64 * 1024.0 / got;
            let got = queue.vruntime as f64;
            assert!(
                (got / due - 1.0).abs() < 0.01,
                "group {group} is at {got}, not {due}"
            );
        }
    }
}
