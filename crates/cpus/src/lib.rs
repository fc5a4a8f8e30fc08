// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPUs, as everything here names them: a set of them, and where each stands in the machine.
#![warn(missing_docs)]
mod set;
#[cfg(feature = "sysfs")]
pub mod sysfs;

pub use set::{CpuSet, CPUS_MAX};
