// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A second policy, to copy: first come, first served. `cargo run -p plimsoll-sim --example fifo`
//!
//! A short request beside long jobs on one CPU, by the policy's own rules and by this one's.
use plimsoll_sim::{
    Class, Config, Context, Entry, GroupId, Machine, Plimsoll, Policy, RunError, Seen, Simulation, Step,
    TaskSpec, Topology,
};

const MS: u64 = 1_000_000;

/// Tasks run in the order in which they came, each until it sleeps or its slice is over.
struct Fifo {
    slice_ns: u64,
    /// Of each task, how often any had come when it did.
    arrived: Vec<u64>,
    arrivals: u64,
}

impl Class for Fifo {
    fn place(&mut self, entry: &mut Entry, _woken: bool, _alone: Option<u64>) {
        let task = entry.task.0 as usize;
        self.arrived.resize(self.arrived.len().max(task + 1), 0);
        self.arrivals += 1;
        self.arrived[task] = self.arrivals;
    }

    fn key(&self, seen: &Seen) -> u64 {
        self.arrived[seen.task.0 as usize]
    }

    fn picked(&mut self, _: &mut Entry) -> u64 {
        self.slice_ns
    }
}

/// p99 of a request of 1 ms every 50 ms, beside three jobs that always run.
fn p99_ms(class: impl Class) -> Result<f64, RunError> {
    let mut config = Config::new(Machine::new(Topology::flat(1)), 10_000 * MS);
    let workload = config.add_workload("requests");
    let latency = config.add_latency(workload, "request");
    let (mut due_ns, mut works) = (0, false);
    let serve = move |ctx: &mut Context| {
        works = !works;
        if works {
            return Step::Compute { ns: MS };
        }
        let took_ns = ctx.now_ns() - due_ns;
        ctx.record(latency, took_ns);
        due_ns += 50 * MS;
        Step::SleepUntil { at_ns: due_ns }
    };
    config.add_task(TaskSpec::new(GroupId::ROOT, workload, "server", serve));
    for name in ["job0", "job1", "job2"] {
        let job = |_: &mut Context| Step::Compute { ns: 10 * MS };
        config.add_task(TaskSpec::new(GroupId::ROOT, workload, name, job));
    }
    let simulation = Simulation::new(config).expect("what is set is in range");
    let mut run = simulation.start_with(class, None);
    run.run_until(u64::MAX)?;
    let results = run.finish();
    let request = &results.workloads[0].latencies[0].histogram;
    Ok(request.value_at_quantile(0.99) as f64 / MS as f64)
}

fn main() -> Result<(), RunError> {
    println!("class           p99 ms");
    println!(
        "plimsoll        {:>6.1}",
        p99_ms(Plimsoll::new(Policy::default().fair))?
    );
    for slice_ms in [1, 3, 10] {
        let fifo = Fifo {
            slice_ns: slice_ms * MS,
            arrived: Vec::new(),
            arrivals: 0,
        };
        println!("fifo, {slice_ms:>2} ms     {:>6.1}", p99_ms(fifo)?);
    }
    Ok(())
}
