//! Stealing on a simulated machine, and the baseline without it.
use plimsoll_sim::{Config, GroupId, Machine, Results, Simulation, Step, TaskSpec, Topology};

const MS: u64 = 1_000_000;

/// Four CPUs, six tasks that run and sleep: queues grow and empty all the time. Every line costs something.
fn crowd(steal: bool) -> Results {
    let mut config = Config::new(Machine::new(Topology::flat(4)), 50 * MS);
    config.machine.costs.line.llc_ns = 40;
    config.policy.steal.enabled = u32::from(steal);
    config.check = true;
    let workload = config.add_workload("crowd");
    for i in 0..6 {
        let mut runs = false;
        let task = move |ctx: &mut plimsoll_sim::Context| {
            runs = !runs;
            if runs {
                return Step::Compute {
                    ns: 70_000 + i * 9_000,
                };
            }
            Step::SleepUntil {
                at_ns: ctx.now_ns() + 40_000,
            }
        };
        config.add_task(TaskSpec::new(GroupId::ROOT, workload, format!("task{i}"), task));
    }
    Simulation::new(config).unwrap().run(None)
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
