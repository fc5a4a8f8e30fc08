// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One question, many settings, all CPUs: which quota does a service need? `cargo run --release --example sweep`
//!
//! Simulations share nothing, so they run side by side, and the table does not depend on which ends first.
use plimsoll_sim::{
    Config, Context, GroupId, GroupSpec, Limits, Machine, Policy, Results, RunError, Simulation, Step,
    TaskSpec, Topology,
};
use rand::Rng;
use rayon::prelude::*;

const MS: u64 = 1_000_000;

/// Eight threads with 1 to 8 ms of work at random times, half a CPU in all, under a quota for each 100 ms.
fn run(quota_ms: u64, policy: &Policy) -> Result<Results, RunError> {
    let mut config = Config::new(Machine::new(Topology::flat(4)), 30_000 * MS);
    config.policy = policy.clone();
    let mut group = GroupSpec::new("/service", GroupId::ROOT);
    group.limits = Limits::quota(quota_ms * MS, 100 * MS);
    let group = config.add_group(group);
    let workload = config.add_workload("service");
    let latency = config.add_latency(workload, "request");
    for thread in 0..8 {
        let (mut due_ns, mut works) = (0, true);
        let serve = move |ctx: &mut Context| {
            works = !works;
            if works {
                let ns = ctx.rng().random_range(MS..=8 * MS);
                return Step::Compute { ns };
            }
            if due_ns > 0 {
                let took_ns = ctx.now_ns() - due_ns;
                ctx.record(latency, took_ns);
            }
            due_ns = ctx.now_ns().max(due_ns) + ctx.rng().random_range(0..=144 * MS);
            Step::SleepUntil { at_ns: due_ns }
        };
        config.add_task(TaskSpec::new(group, workload, format!("thread{thread}"), serve));
    }
    Simulation::new(config)
        .expect("the quotas are in range")
        .run(None)
}

fn main() -> Result<(), RunError> {
    let policies = [("plimsoll", Policy::default()), ("mainline", Policy::mainline())];
    let points: Vec<(u64, &str, &Policy)> = [20, 40, 50, 60, 80, 160, 400]
        .into_iter()
        .flat_map(|quota_ms| {
            policies
                .iter()
                .map(move |(name, policy)| (quota_ms, *name, policy))
        })
        .collect();
    let rows: Result<Vec<String>, RunError> = points
        .into_par_iter()
        .map(|(quota_ms, name, policy)| {
            let results = run(quota_ms, policy)?;
            let stat = results.groups[1].stat.expect("it has a limit");
            let request = &results.workloads[0].latencies[0].histogram;
            Ok(format!(
                "{quota_ms:>8}  {name:<8}  {:>5.2}  {:>8.1}%  {:>7.1}",
                results.groups[1].usage_ns as f64 / results.measured_ns as f64,
                stat.nr_throttled as f64 * 100.0 / stat.nr_periods.max(1) as f64,
                request.value_at_quantile(0.99) as f64 / MS as f64
            ))
        })
        .collect();
    println!("quota ms  policy     CPUs  throttled   p99 ms");
    rows?.iter().for_each(|row| println!("{row}"));
    Ok(())
}
