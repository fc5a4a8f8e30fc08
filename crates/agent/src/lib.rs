// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU limits on any kernel with cgroup v2: what the kernel's own files can carry of the policy, and nothing loaded.
//!
//! [`Agent`] decides, over [`Files`] (the machine's, or a model of them in the tests), and writes into a [`Journal`] what
//! it is about to change. [`restore`] puts back what a journal names.
//!
//! Invariants: a file is changed only after the journal holds its owner's value and the new one. What an owner writes
//! stays. A quota is never below its owner's by more than headroom asks, and never above what the burst allows.
mod agent;
mod annotations;
mod containers;
mod cri;
mod files;
mod group;
mod headroom;
mod held;
mod idle;
mod journal;
mod lending;
mod lent;
mod limits;
mod marks;
mod mounted;
mod nri;
mod pods;
mod restore;
mod room;
mod settings;
mod status;

pub use agent::Agent;
pub use annotations::Most;
pub use containers::{Container, Containers};
pub use cri::{read_what_cri_answers, Cri};
pub use files::{Events, File, Files};
pub use journal::{Disk, Journal, Store};
pub use limits::Limits;
pub use mounted::{lock, Mounted};
pub use nri::{read_what_a_runtime_sends, Nri};
pub use plimsoll_live::{Error, Result};
pub use restore::restore;
pub use settings::Settings;
pub use status::At;
