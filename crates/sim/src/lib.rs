// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine in software: CPUs, caches, tasks and time, scheduled by the policy in policy/*.h.
//!
//! Entry points: fill a [`Config`], give it to [`Simulation::new`], call [`Simulation::run`], read [`Results`].
//!
//! Invariant: no I/O, no clock, no environment, no globals, no iteration over hashed containers. Two runs of one
//! configuration and seed give the same bytes, whatever the build profile.
//! Invariant: no scheduling rule about quotas, weights or stealing lives here; they are policy/'s.
pub mod behaviour;
pub mod config;
pub mod cpuset;
mod engine;
pub mod observer;
pub mod results;
pub mod topology;

pub use behaviour::{Behaviour, Choice, Context, Seat, Step};
pub use config::{
    cpus_of, Change, ChangeKind, ChannelId, ChannelSpec, Config, ConfigError, Costs, CounterId, Enforce,
    Fair, GroupId, GroupSpec, IdleState, LatencyId, Limits, Machine, PerDistance, Policy, TaskId, TaskSpec,
    WakeSearch, WorkloadId,
};
pub use cpuset::CpuSet;
pub use engine::{Simulation, Stuck};
pub use observer::Observer;
pub use results::Results;
pub use topology::{CpuPlace, Distance, Numbering, Topology};

/// The policy's own types, for those who set its switches.
pub use plimsoll_policy_sys as policy;
