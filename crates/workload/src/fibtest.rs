// SPDX-License-Identifier: Apache-2.0 OR MIT
//! fibtest: one busy thread and nearly idle ones, each on its own CPU, in one limited group.
//!
//! Every slow thread takes a slice whenever it wakes up and uses next to nothing of it. What it keeps is lost to the
//! busy thread when slices expire.
use crate::place::{ns, Place};
use plimsoll_sim::{Config, Context, Step, WorkloadId};
use rand::Rng;
use schemars::JsonSchema;
use serde::Deserialize;

/// fibtest: fast threads that compute, slow threads that nearly always sleep.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Fibtest {
    /// Threads that compute without end. Default 1.
    #[schemars(range(min = 0, max = 65536))]
    pub fast_threads: u32,
    /// Threads that compute briefly, then sleep. Default: one for each CPU, of `cpus` if given, that has no fast one.
    #[schemars(range(min = 0, max = 65536))]
    pub slow_threads: Option<u32>,
    /// CPU time of a slow thread between two sleeps, in microseconds. Default 5.
    #[schemars(range(min = 0.001, max = 1e6))]
    pub slow_work_us: f64,
    /// Sleep of a slow thread, in microseconds. Default 10000.
    #[schemars(range(min = 1.0, max = 1e9))]
    pub slow_sleep_us: f64,
    /// A sleep may last up to this much longer, in microseconds: the kernel's timer slack. Default 50.
    #[schemars(range(min = 0.0, max = 1e9))]
    pub slow_slack_us: f64,
    /// Thread k runs only on CPU k of `cpus`, else of its group's; counted round. Default true.
    pub pin: bool,
}

impl Default for Fibtest {
    fn default() -> Self {
        Fibtest {
            fast_threads: 1,
            slow_threads: None,
            slow_work_us: 5.0,
            slow_sleep_us: 10_000.0,
            slow_slack_us: 50.0,
            pin: true,
        }
    }
}

/// CPU time after which a fast thread counts.
const CHUNK_US: u64 = 100;

impl Fibtest {
    /// Counter "fast_us": microseconds of work that the fast threads completed.
    pub fn build(&self, place: &Place, config: &mut Config) -> WorkloadId {
        let workload = config.add_workload(&place.name);
        let fast_us = config.add_counter(workload, "fast_us");
        let nr_cpus = place.nr_cpus(config);
        let slow_threads = self
            .slow_threads
            .unwrap_or(nr_cpus.saturating_sub(self.fast_threads));
        let (work_ns, sleep_ns) = (ns(self.slow_work_us), ns(self.slow_sleep_us));
        let slack_ns = (self.slow_slack_us * 1e3) as u64;
        for number in 0..self.fast_threads + slow_threads {
            let mut task = if number < self.fast_threads {
                let mut started = false;
                place.task(workload, "fast", number, move |ctx: &mut Context| {
                    if started {
                        ctx.count(fast_us, CHUNK_US);
                    }
                    started = true;
                    Step::Compute { ns: CHUNK_US * 1000 }
                })
            } else {
                place.task(
                    workload,
                    "slow",
                    number,
                    slow(work_ns, sleep_ns, slack_ns, u64::MAX),
                )
            };
            if self.pin {
                task = place.pinned(task, number, config);
            }
            config.add_task(task);
        }
        workload
    }
}

/// Computes, sleeps, for ever, until a clock.
pub(crate) fn slow(
    work_ns: u64,
    sleep_ns: u64,
    slack_ns: u64,
    until_ns: u64,
) -> impl FnMut(&mut Context) -> Step + Send {
    let mut worked = false;
    move |ctx| {
        if !worked {
            if ctx.now_ns() >= until_ns {
                return Step::Exit;
            }
            worked = true;
            Step::Compute { ns: work_ns }
        } else {
            worked = false;
            let late_ns = ctx.rng().random_range(0..=slack_ns);
            Step::SleepUntil {
                at_ns: ctx.now_ns() + sleep_ns + late_ns,
            }
        }
    }
}
