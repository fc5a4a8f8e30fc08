// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A few seeds of `make fuzz` in every test run.
#[path = "../fuzz/mod.rs"]
mod fuzz;

use plimsoll_sim::{
    Class, Config, Context, Entry, GroupId, GroupSpec, Machine, Simulation, Step, TaskSpec, Topology,
};

#[test]
fn a_hundred_random_machines_keep_every_invariant() {
    for seed in 1..=100 {
        if let Err(broken) = fuzz::one(seed) {
            panic!("seed {seed}: {broken}");
        }
    }
}

/// First come, first served: what a class is that leaves out everything.
struct Fifo;

impl Class for Fifo {
    fn picked(&mut self, _: &mut Entry) -> u64 {
        3_000_000
    }
}

#[test]
fn a_second_class_of_turns_keeps_limits_and_books_on_every_machine() {
    for seed in 1..=40 {
        let mut config = fuzz::config(seed);
        config.check = true;
        let mut run = Simulation::new(config).unwrap().start_with(Fifo, None);
        assert_eq!(run.run_until(u64::MAX), Ok(true), "seed {seed}");
        fuzz::sums(&run.finish()).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
}

#[test]
fn classes_take_turns_by_rules_of_their_own() {
    let heavy_share = |class: Option<Fifo>| {
        let mut config = Config::new(Machine::new(Topology::flat(1)), 4_000_000_000);
        let workload = config.add_workload("w");
        for (path, cpu_weight) in [("/heavy", 1000), ("/light", 100)] {
            let mut group = GroupSpec::new(path, GroupId::ROOT);
            group.cpu_weight = cpu_weight;
            let group = config.add_group(group);
            let spin = |_: &mut Context| Step::Compute { ns: u64::MAX };
            config.add_task(TaskSpec::new(group, workload, path, spin));
        }
        let simulation = Simulation::new(config).unwrap();
        let results = match class {
            None => simulation.run(None).unwrap(),
            Some(fifo) => {
                let mut run = simulation.start_with(fifo, None);
                run.run_until(u64::MAX).unwrap();
                run.finish()
            }
        };
        results.groups[1].usage_ns as f64 / results.groups[0].usage_ns as f64
    };
    let (policy, fifo) = (heavy_share(None), heavy_share(Some(Fifo)));
    assert!((policy - 10.0 / 11.0).abs() < 0.01, "{policy}");
    assert!((fifo - 0.5).abs() < 0.01, "{fifo}");
}
