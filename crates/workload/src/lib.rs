// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs for the simulated machine: each a typed set of parameters that builds tasks.
//!
//! A scenario file names a workload by `kind`; the parameters are the fields of the struct of that name. Every workload
//! puts itself into a [`Config`]: its tasks, channels, histograms and counters.
//!
//! Invariant: a behaviour takes time and randomness from its context only.
mod arrivals;
mod batch;
mod clients_db;
mod duty;
mod fibtest;
mod hackbench;
mod idle_keys;
mod lock;
mod place;
mod request_response;
mod schbench;
mod server;
mod spinners;
mod stream;

pub use arrivals::{Arrivals, Spread};
pub use batch::Batch;
pub use clients_db::ClientsDb;
pub use duty::Duty;
pub use fibtest::Fibtest;
pub use hackbench::{Hackbench, Mode, Transport};
pub use idle_keys::IdleKey;
pub use place::Place;
pub use request_response::{RequestResponse, Wire};
pub use schbench::Schbench;
pub use server::Server;
pub use spinners::Spinners;
pub use stream::Stream;

use plimsoll_sim::{Config, Machine, WorkloadId};
use schemars::JsonSchema;
use serde::Deserialize;

/// A workload, by its kind.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Workload {
    Schbench(Schbench),
    Hackbench(Hackbench),
    Fibtest(Fibtest),
    Duty(Duty),
    ClientsDb(ClientsDb),
    RequestResponse(RequestResponse),
    Stream(Stream),
    Server(Server),
    Batch(Batch),
    Spinners(Spinners),
}

impl Workload {
    /// Requests per second that a share of what `machine` can do comes to, where arrivals are given so.
    pub fn load_per_s(&self, machine: &Machine) -> Option<f64> {
        let Workload::Server(server) = self else {
            return None;
        };
        match (&server.arrivals, server.arrivals.on(machine, server.work_us)) {
            (Arrivals::Load { .. }, Arrivals::Poisson { rate_per_s }) => Some(rate_per_s),
            _ => None,
        }
    }

    /// The most tasks that [`Workload::build`] makes on a machine of so many CPUs: as many where it may use all of them.
    pub fn tasks_max(&self, nr_cpus: u32) -> u64 {
        let sum = |some: &[u32]| some.iter().copied().map(u64::from).sum();
        match self {
            Workload::Schbench(one) => u64::from(one.message_threads) * (1 + u64::from(one.worker_threads)),
            Workload::Hackbench(one) => u64::from(one.groups) * u64::from(one.fds) * 2,
            Workload::Fibtest(one) => {
                let slow = one
                    .slow_threads
                    .unwrap_or(nr_cpus.saturating_sub(one.fast_threads));
                sum(&[one.fast_threads, slow])
            }
            Workload::Duty(one) => {
                let create = u32::from((one.create_us * 1e3) as u64 > 0);
                sum(&[one.threads, one.spinners, one.slow_threads, create])
            }
            Workload::ClientsDb(one) => sum(&[one.clients; 2]),
            Workload::RequestResponse(one) => sum(&[one.pairs; 2]),
            Workload::Stream(one) => sum(&[one.pairs; 2]),
            Workload::Server(one) => sum(&[one.workers, one.clients]),
            Workload::Batch(one) => u64::from(one.threads.unwrap_or(nr_cpus)),
            Workload::Spinners(one) => u64::from(one.threads),
        }
    }

    /// Adds the workload's tasks to a configuration, in `place`. Returns the id that its results are under.
    pub fn build(&self, place: &Place, config: &mut Config) -> WorkloadId {
        match self {
            Workload::Schbench(one) => one.build(place, config),
            Workload::Hackbench(one) => one.build(place, config),
            Workload::Fibtest(one) => one.build(place, config),
            Workload::Duty(one) => one.build(place, config),
            Workload::ClientsDb(one) => one.build(place, config),
            Workload::RequestResponse(one) => one.build(place, config),
            Workload::Stream(one) => one.build(place, config),
            Workload::Server(one) => one.build(place, config),
            Workload::Batch(one) => one.build(place, config),
            Workload::Spinners(one) => one.build(place, config),
        }
    }
}
