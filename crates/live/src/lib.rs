// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The policy of policy/ on a real kernel: loads bpf/plimsoll.bpf.c, passes knobs on, reads statistics.
//!
//! Invariant: nothing here decides which task runs. What a limit means is policy's; this crate finds out what the machine is,
//! puts it into the BPF program, and reads back what happened.
mod config;
mod control;
mod error;
mod intf;
mod knobs;
mod machine;
mod merged;
mod probe;
mod scheduler;
mod status;
mod watch;

pub use config::Config;
pub use control::{ask, Request, Server, Serves};
pub use error::{Error, Result};
pub use knobs::{cgroup_id, cpu_max, is_root, only_roots, Knob, KnobValues};
pub use libbpf_rs::OpenObject;
pub use machine::Machine;
pub use merged::Merges;
pub use probe::probe;
pub use scheduler::{Ended, Scheduler};
pub use status::{shown, CpuStatus, GroupStatus, PlacedStatus, Status};
pub use watch::Watch;

/// Where cgroup v2 is mounted.
pub const CGROUP_ROOT: &str = "/sys/fs/cgroup";
