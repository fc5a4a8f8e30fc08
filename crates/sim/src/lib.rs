// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine in software: CPUs, caches, tasks and time, scheduled by the policy in policy/*.h.
//!
//! Fill a [`Config`], give it to [`Simulation::new`], call [`Simulation::run`], read [`Results`]:
//!
//! ```
//! use plimsoll_sim::{Config, Context, GroupId, GroupSpec, Limits, Machine, Simulation, Step, TaskSpec, Topology};
//! const MS: u64 = 1_000_000;
//!
//! // Four CPUs, and a group that may use 20 ms of every 100 ms.
//! let mut config = Config::new(Machine::new(Topology::flat(4)), 1000 * MS);
//! let mut web = GroupSpec::new("/web", GroupId::ROOT);
//! web.limits = Limits::quota(20 * MS, 100 * MS);
//! let web = config.add_group(web);
//!
//! // A program is whatever says what it does next: here, compute without end.
//! let workload = config.add_workload("spinner");
//! let spin = |_: &mut Context| Step::Compute { ns: MS };
//! config.add_task(TaskSpec::new(web, workload, "spinner", spin));
//!
//! let results = Simulation::new(config)?.run(None)?;
//! let used = results.groups[web.0 as usize].usage_ns as f64 / results.measured_ns as f64;
//! assert!((used - 0.2).abs() < 0.01, "{used} CPUs were used");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `examples/` has more: `hello`, a workload of your own, a sweep over limits, and `fifo`, a second policy: see [`Class`].
//!
//! Invariant: no I/O, no clock, no environment, no globals, no iteration over hashed containers. Two runs of one
//! configuration and seed give the same bytes, whatever the build profile.
//! Invariant: no scheduling rule about quotas, weights or stealing lives here; they are policy/'s.
//! Invariant: what is `unsafe` is in one room, `engine::policy`, which makes the C policy safe to call.
#![warn(missing_docs)]
#![deny(unsafe_code)]
pub mod behaviour;
mod class;
pub mod config;
mod engine;
mod error;
mod histogram;
mod mainline;
pub mod observer;
pub mod results;
mod run;
mod switches;
pub mod topology;

pub use behaviour::{Behaviour, Choice, Context, Owed, Seat, Step, Turn, When};
pub use class::{Bound, Class, CpuSeen, Entry, Needs, Seen, Shape};
pub use config::{
    cpus_of, Change, ChangeKind, ChannelId, ChannelSpec, Config, Costs, CounterId, GroupId, GroupSpec,
    IdleState, LatencyId, Limits, Machine, PerDistance, TaskId, TaskSpec, WorkloadId,
};
pub use engine::turns::Plimsoll;
pub use error::{ConfigError, RunError, Stuck};
pub use histogram::Histogram;
pub use mainline::Mainline;
pub use observer::Observer;
pub use results::{Placed, Results};
pub use run::{Run, Simulation};
pub use switches::{BurstRules, CgroupMode, Enforce, Fair, Policy, WakeSearch};
pub use topology::{CpuPlace, Distance, Numbering, Topology};

pub use plimsoll_cpus::CpuSet;

/// The policy's own types, for code that sets its switches.
pub use plimsoll_policy_sys as policy;
