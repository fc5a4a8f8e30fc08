// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stealing on a simulated machine, and the baseline without it.
use plimsoll_sim::observer::Move;
use plimsoll_sim::{
    Config, CpuSet, GroupId, GroupSpec, Limits, Machine, Numbering, Observer, Results, Simulation, Step,
    TaskId, TaskSpec, Topology,
};
use std::collections::BTreeSet;

const MS: u64 = 1_000_000;

fn runs_and_sleeps(run_ns: u64, sleep_ns: u64) -> impl FnMut(&mut plimsoll_sim::Context) -> Step {
    let mut runs = false;
    move |ctx| {
        runs = !runs;
        if runs {
            return Step::Compute { ns: run_ns };
        }
        Step::SleepUntil {
            at_ns: ctx.now_ns() + sleep_ns,
        }
    }
}

/// Four CPUs, six tasks that run and sleep: queues grow and empty all the time. Every line costs something.
fn crowd(steal: bool) -> Results {
    let mut config = Config::new(Machine::new(Topology::flat(4)), 50 * MS);
    config.machine.costs.line.llc_ns = 40;
    config.policy.steal.enabled = u32::from(steal);
    config.check = true;
    let workload = config.add_workload("crowd");
    for i in 0..6 {
        let task = runs_and_sleeps(70_000 + i * 9_000, 40_000);
        config.add_task(TaskSpec::new(GroupId::ROOT, workload, format!("task{i}"), task));
    }
    Simulation::new(config).unwrap().run(None).unwrap()
}

#[test]
fn the_mask_of_overloaded_cpus_costs_the_baseline_nothing() {
    let with = crowd(true).touches;
    assert!(
        with.mask_writes > 100 && with.mask_ns == 40 * with.mask_writes,
        "{with:?}"
    );
    let without = crowd(false).touches;
    assert_eq!((without.mask_writes, without.mask_ns), (0, 0));
}

/// Where each group is throttled, and the moves of its tasks to such a CPU.
#[derive(Default)]
struct Throttled {
    at: BTreeSet<(u32, u32)>,
    moves: u32,
    to_throttled: Vec<(u64, u32, Move)>,
}

impl Observer for Throttled {
    fn throttle(&mut self, _: u64, group: GroupId, cpu: u32) {
        self.at.insert((group.0, cpu));
    }

    fn unthrottle(&mut self, _: u64, group: GroupId, cpu: u32) {
        self.at.remove(&(group.0, cpu));
    }

    fn migrate(&mut self, now_ns: u64, _: TaskId, _: u32, to: u32, why: Move) {
        self.moves += 1;
        if self.at.contains(&(1, to)) {
            self.to_throttled.push((now_ns, to, why));
        }
    }
}

#[test]
fn no_cpu_takes_a_task_that_it_could_only_park() {
    for (steal, newidle) in [(true, false), (false, true)] {
        let mut config = Config::new(Machine::new(Topology::flat(4)), 4000 * MS);
        config.policy.steal.enabled = u32::from(steal);
        config.policy.newidle = newidle;
        config.check = true;
        let mut group = GroupSpec::new("/limited", GroupId::ROOT);
        group.limits = Limits::quota(150 * MS, 100 * MS);
        let group = config.add_group(group);
        let workload = config.add_workload("crowd");
        for i in 0..9 {
            let task = runs_and_sleeps(700_000 + i * 90_000, 400_000);
            config.add_task(TaskSpec::new(group, workload, format!("task{i}"), task));
        }
        let mut seen = Throttled::default();
        Simulation::new(config).unwrap().run(Some(&mut seen)).unwrap();
        assert!(seen.moves > 50, "{}", seen.moves);
        assert!(
            seen.to_throttled.is_empty(),
            "{} of {} moves, the first {:?}",
            seen.to_throttled.len(),
            seen.moves,
            seen.to_throttled[0]
        );
    }
}

/// Stealing ends at the cache, and nothing balances: as the live scheduler does, a CPU that runs dry pulls from afar.
#[test]
fn a_cpu_that_runs_dry_pulls_from_another_cache() {
    let topology = Topology::regular(2, 1, 1, 1, 1, Numbering::SiblingsLast);
    let mut config = Config::new(Machine::new(topology), 1000 * MS);
    config.policy.newidle = false;
    config.policy.periodic = false;
    config.check = true;
    let workload = config.add_workload("all");
    let spin = |_: &mut plimsoll_sim::Context| Step::Compute { ns: u64::MAX };
    let mut ends = vec![Step::Exit, Step::Compute { ns: 100 * MS }];
    let short = move |_: &mut plimsoll_sim::Context| ends.pop().expect("it has exited");
    let mut short = TaskSpec::new(GroupId::ROOT, workload, "short".to_string(), short);
    short.affinity = Some(CpuSet::from_iter([1]));
    config.add_task(short);
    for name in ["one", "two"] {
        config.add_task(TaskSpec::new(GroupId::ROOT, workload, name.to_string(), spin));
    }
    let results = Simulation::new(config).unwrap().run(None).unwrap();
    let busy_ns: u64 = results.cpus.iter().map(|cpu| cpu.task_ns).sum();
    assert!(busy_ns > 1990 * MS, "{busy_ns}");
    let pulls: u64 = results.cpus.iter().map(|cpu| cpu.lag_pulls).sum();
    assert!(pulls > 0);
}
