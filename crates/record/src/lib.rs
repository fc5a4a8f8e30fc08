// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records what threads do, on a kernel whose scheduler is not replaced.
//!
//! With BPF: every switch and wake-up (`record`). Without: the groups' own statistics (`sample`).
//! Both write the file that `plimsoll-trace` reads.
pub mod cgroup;
mod connections;
mod datagrams;
mod error;
mod finished;
mod go;
pub mod machine;
mod measured;
mod names;
mod probes;
mod record;
mod recordable;
mod sample;
mod sessions;
mod sink;
mod spool;
mod stage;
mod streams;
mod urgent;
mod wire;

pub use error::RecordError;
pub use record::{record, Options, Report};
pub use sample::{sample, SampleReport};
pub use stage::Stage;
pub use wire::read_what_bpf_sends;
