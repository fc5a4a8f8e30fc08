//! A batch job: threads that take pieces of work one after another, as a video encoder does frames.
use crate::arrivals::Spread;
use crate::place::Place;
use plimsoll_sim::{Config, Context, Step, WorkloadId};
use rand_distr::{Distribution, Exp1};
use schemars::JsonSchema;
use serde::Deserialize;

/// Threads that work through pieces of a batch without end.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Batch {
    /// Threads. Default: one for each CPU.
    #[schemars(range(min = 1, max = 100_000))]
    pub threads: Option<u32>,
    /// Mean CPU time of a piece, in microseconds. Default 5000.
    #[schemars(range(min = 1.0, max = 1e9))]
    pub work_us: f64,
    /// How it spreads. Default "exponential".
    pub spread: Spread,
    /// Wait for input between two pieces, in microseconds; exponential. Default 0.
    #[schemars(range(min = 0.0, max = 1e9))]
    pub wait_us: f64,
}

impl Default for Batch {
    fn default() -> Self {
        Batch {
            threads: None,
            work_us: 5000.0,
            spread: Spread::Exponential,
            wait_us: 0.0,
        }
    }
}

impl Batch {
    /// Counter "pieces".
    pub fn build(&self, place: &Place, config: &mut Config) -> WorkloadId {
        let workload = config.add_workload(&place.name);
        let pieces = config.add_counter(workload, "pieces");
        let (mean_ns, spread, wait_ns) = (self.work_us * 1e3, self.spread, self.wait_us * 1e3);
        for number in 0..self.threads.unwrap_or(config.machine.topology.nr_cpus()) {
            let mut worked = false;
            let thread = move |ctx: &mut Context| {
                if worked {
                    worked = false;
                    ctx.count(pieces, 1);
                    if wait_ns > 0.0 {
                        let x: f64 = Exp1.sample(ctx.rng());
                        return Step::SleepUntil {
                            at_ns: ctx.now_ns() + (wait_ns * x) as u64,
                        };
                    }
                }
                worked = true;
                Step::Compute {
                    ns: spread.sample(mean_ns, ctx.rng()),
                }
            };
            let task = place.task(workload, "thread", number, thread);
            config.add_task(task);
        }
        workload
    }
}
