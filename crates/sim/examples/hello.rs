// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why is a container throttled that uses less than its limit? `cargo run --example hello`
//!
//! Four threads that each work for 10 ms of every 200 ms, a fifth of a CPU in all, in a group that may use 0.3 CPUs: 30 ms
//! of every 100 ms. They want their 40 ms all at once, and so wait for the next period. With burst they may spend what they
//! saved.
use plimsoll_sim::{
    Config, Context, GroupId, GroupSpec, Limits, Machine, Results, RunError, Simulation, Step, TaskSpec,
    Topology,
};

const MS: u64 = 1_000_000;

fn run(burst_ns: u64) -> Result<Results, RunError> {
    let mut config = Config::new(Machine::new(Topology::flat(4)), 10_000 * MS);
    let mut web = GroupSpec::new("/web", GroupId::ROOT);
    web.limits = Limits {
        burst_ns,
        ..Limits::quota(30 * MS, 100 * MS)
    };
    let web = config.add_group(web);
    let workload = config.add_workload("web");
    let latency = config.add_latency(workload, "request");
    for thread in 0..4 {
        // Every 200 ms a request: 10 ms of work, then wait for the next.
        let (mut due_ns, mut works) = (0, false);
        let serve = move |ctx: &mut Context| {
            works = !works;
            if works {
                return Step::Compute { ns: 10 * MS };
            }
            let took_ns = ctx.now_ns() - due_ns;
            ctx.record(latency, took_ns);
            due_ns += 200 * MS;
            Step::SleepUntil { at_ns: due_ns }
        };
        config.add_task(TaskSpec::new(web, workload, format!("worker{thread}"), serve));
    }
    Simulation::new(config)
        .expect("the limits are in range")
        .run(None)
}

fn main() -> Result<(), RunError> {
    println!("burst ms  periods  throttled  p50 ms  p99 ms");
    for burst_ms in [0, 10] {
        let results = run(burst_ms * MS)?;
        let stat = results.groups[1].stat.expect("it has a limit");
        let request = &results.workloads[0].latencies[0].histogram;
        let ms = |quantile| request.value_at_quantile(quantile) as f64 / MS as f64;
        println!(
            "{burst_ms:>8}  {:>7}  {:>9}  {:>6.1}  {:>6.1}",
            stat.nr_periods,
            stat.nr_throttled,
            ms(0.5),
            ms(0.99)
        );
    }
    Ok(())
}
