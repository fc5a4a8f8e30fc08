//! A service below its share does not wait for a batch job of another group, however many threads it has.
use plimsoll_sim::{
    Config, Context, Enforce, GroupId, GroupSpec, Machine, Simulation, Step, TaskSpec, Topology,
};

const DURATION_NS: u64 = 10_000_000_000;
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
        let spin = |_: &mut Context| Step::Compute { ns: u64::MAX };
        config.add_task(TaskSpec::new(batch, spinning, format!("spinner {number}"), spin));
    }
    for number in 0..threads {
        let mut thinks = false;
        let first_ns = number * THINK_NS / threads + 1;
        let serve = move |context: &mut Context| {
            thinks = !thinks;
            match (thinks, context.now_ns()) {
                (true, 0) => Step::SleepUntil { at_ns: first_ns },
                (true, now_ns) => Step::SleepUntil {
                    at_ns: now_ns + THINK_NS + number * 10_000,
                },
                (false, _) => Step::Compute { ns: work_ns },
            }
        };
        config.add_task(TaskSpec::new(service, serving, format!("thread {number}"), serve));
    }
    let results = Simulation::new(config).unwrap().run(None);
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
        // Others of the service come first, and a millisecond that the batch job may go on for. It was 3.1 ms with 16.
        assert!(
            wait_us <= 600,
            "{threads} threads of {work_us} us beside weight {batch_weight}: {wait_us} us"
        );
    }
}
