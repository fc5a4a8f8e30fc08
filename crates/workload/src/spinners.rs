// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Spinners: threads that compute without end.
use crate::place::Place;
use plimsoll_sim::{Config, Context, Step, WorkloadId};
use schemars::JsonSchema;
use serde::Deserialize;

/// Threads that compute without end.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Spinners {
    /// Threads. Default 1.
    #[schemars(range(min = 1, max = 100_000))]
    pub threads: u32,
    /// Thread k runs only on CPU k of `cpus`, else of its group's; counted round. Default false.
    pub pin: bool,
}

impl Default for Spinners {
    fn default() -> Self {
        Spinners {
            threads: 1,
            pin: false,
        }
    }
}

/// CPU time of one step: long, as nothing happens at its end.
const SPIN_NS: u64 = 1_000_000_000;

impl Spinners {
    /// What counts is the CPU time used.
    pub fn build(&self, place: &Place, config: &mut Config) -> WorkloadId {
        let workload = config.add_workload(&place.name);
        for number in 0..self.threads {
            let mut task = place.task(workload, "spin", number, |_: &mut Context| Step::Compute {
                ns: SPIN_NS,
            });
            if self.pin {
                task = place.pinned(task, number, config);
            }
            config.add_task(task);
        }
        workload
    }
}
