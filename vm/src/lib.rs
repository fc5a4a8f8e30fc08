// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Boots a real Debian kernel in QEMU and runs one command in it.
//!
//! `kernel` and `qemu` fetch what is needed into a cache, `initramfs` builds the guest's file system in memory, and
//! `guest` runs it. Nothing is installed on the host and no part of this needs root.
mod apt;
mod cache;
mod cpio;
mod error;
mod files;
mod guest;
mod image;
mod initramfs;
mod kernel;
mod libraries;
mod madt;
mod modules;
mod qemu;
mod sources;

pub use cache::Cache;
pub use error::{Error, Result};
pub use guest::{run, Ended, Guest};
pub use initramfs::Program;
pub use kernel::{obtain, with_drivers, Kernel, Wanted};
pub use modules::NETWORK;
pub use qemu::{find as find_qemu, Qemu};
