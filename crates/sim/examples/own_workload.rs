// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A workload of your own: implement `Behaviour`. `cargo run --example own_workload`
//!
//! A front end takes requests, asks one of two back ends over a channel and waits for its answer; batch work of another
//! group is beside them. How long requests take, by how much the batch work weighs.
use plimsoll_sim::{
    Behaviour, ChannelId, Config, Context, GroupId, GroupSpec, LatencyId, Machine, RunError, Simulation,
    Step, TaskSpec, Topology,
};
use rand::Rng;

const MS: u64 = 1_000_000;

/// Where a front end is in its request. A behaviour is asked for its next step each time the last one is complete.
enum Stage {
    Waits,
    Parses,
    Asks,
    Hears,
    Answers,
}

struct Front {
    stage: Stage,
    began_ns: u64,
    asks: [ChannelId; 2],
    answer: ChannelId,
    latency: LatencyId,
}

impl Behaviour for Front {
    fn next(&mut self, ctx: &mut Context) -> Step {
        match self.stage {
            Stage::Waits => {
                self.stage = Stage::Parses;
                // Random numbers come from the run's seed and the task's name.
                let pause_ns = ctx.rng().random_range(MS..=5 * MS);
                self.began_ns = ctx.now_ns() + pause_ns;
                Step::SleepUntil { at_ns: self.began_ns }
            }
            Stage::Parses => {
                self.stage = Stage::Asks;
                Step::Compute { ns: MS / 5 }
            }
            Stage::Asks => {
                self.stage = Stage::Hears;
                let channel = self.asks[ctx.rng().random_range(0..2)];
                // The value says where the answer goes.
                let value = u64::from(self.answer.0);
                Step::Send { channel, value }
            }
            Stage::Hears => {
                self.stage = Stage::Answers;
                Step::Receive { channel: self.answer }
            }
            Stage::Answers => {
                self.stage = Stage::Waits;
                let took_ns = ctx.now_ns() - self.began_ns;
                ctx.record(self.latency, took_ns);
                Step::Compute { ns: MS / 10 }
            }
        }
    }
}

/// What takes no more than a closure's state needs no type of its own.
fn back(asks: ChannelId) -> impl Behaviour {
    let mut answers = None;
    let mut works = false;
    move |ctx: &mut Context| {
        if let Some(value) = ctx.received() {
            answers = Some(ChannelId(value as u32));
            works = true;
            return Step::Compute { ns: MS };
        }
        match answers.filter(|_| works) {
            Some(channel) => {
                works = false;
                Step::Send { channel, value: 0 }
            }
            None => Step::Receive { channel: asks },
        }
    }
}

fn main() -> Result<(), RunError> {
    println!("batch weight  requests  p50 ms  p99 ms  batch CPUs");
    for cpu_weight in [1, 100, 1000] {
        let mut config = Config::new(Machine::new(Topology::flat(2)), 5_000 * MS);
        let service = config.add_group(GroupSpec::new("/service", GroupId::ROOT));
        let mut batch = GroupSpec::new("/batch", GroupId::ROOT);
        batch.cpu_weight = cpu_weight;
        let batch = config.add_group(batch);
        let workload = config.add_workload("service");
        let latency = config.add_latency(workload, "request");
        let asks = [config.add_channel(64), config.add_channel(64)];
        for (number, &channel) in asks.iter().enumerate() {
            config.add_task(TaskSpec::new(
                service,
                workload,
                format!("back{number}"),
                back(channel),
            ));
        }
        for number in 0..2 {
            let front = Front {
                stage: Stage::Waits,
                began_ns: 0,
                asks,
                answer: config.add_channel(1),
                latency,
            };
            config.add_task(TaskSpec::new(service, workload, format!("front{number}"), front));
        }
        let spinners = config.add_workload("batch");
        for number in 0..2 {
            let spin = |_: &mut Context| Step::Compute { ns: MS };
            config.add_task(TaskSpec::new(batch, spinners, format!("batch{number}"), spin));
        }
        let results = Simulation::new(config)
            .expect("what is set is in range")
            .run(None)?;
        let request = &results.workloads[0].latencies[0].histogram;
        let ms = |quantile| request.value_at_quantile(quantile) as f64 / MS as f64;
        println!(
            "{cpu_weight:>12}  {:>8}  {:>6.2}  {:>6.2}  {:>10.2}",
            request.len(),
            ms(0.5),
            ms(0.99),
            results.groups[batch.0 as usize].usage_ns as f64 / results.measured_ns as f64
        );
    }
    Ok(())
}
