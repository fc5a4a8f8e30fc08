// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A recorded trace as a workload of the simulator: work between blocking points is kept, waiting for a CPU is
//! left out, and what woke what is kept, so that latencies change when limits do.
//!
//! Entry points: [`Program::build`] once for a trace, then [`replay`] for every setting; the program is shared, so
//! settings can be tried in parallel. [`recorded`] is what the trace itself measured, for comparison.
//!
//! What is kept and what is lost:
//! - A wake-up that the trace shows becomes a message: its receiver cannot start before its sender got there.
//! - A message that found its receiver running left no wake-up, so its sender is not waited for, unless sockets were
//!   recorded: then a read waits for its data, from outside or from the service's own threads (`exchanges.rs`).
//! - A lock that no thread waited for in the recording is free in the replay, too.
//! - What threads ran that are not recorded competes for its CPU: see `rivals.rs`.
//! - Work is CPU time. That caches are colder after a throttling is not in it.
//!
//! Memory is linear in the trace: 44 bytes for each burst, 16 for each wake-up, mark and what is woken later, 48 for each request, once;
//! 16 bytes for each request and 4 for each burst in each run.
mod arrivals;
mod arriving;
mod build;
mod client_task;
mod clients;
mod cost;
mod error;
mod exchanges;
mod groups;
mod hand_over;
mod inbox;
mod loops;
mod machine;
mod marks;
mod outcome;
mod outside;
mod outside_task;
mod pairing;
mod phase;
mod placed;
mod placement;
mod pools;
mod program;
mod questions;
mod reconnects;
mod recorder;
mod recording;
mod request;
mod requests;
mod rival_task;
mod rivals;
mod run;
mod segments;
mod settings;
mod sockets;
mod state;
mod task;
mod together;
mod workers;

pub use arrivals::Pacing;
pub use error::SettingsError;
pub use groups::Group;
pub use machine::{describe as describe_machine, machine};
pub use outcome::{CpuStat, GroupOutcome, Outcome, Request};
pub use pairing::Pairing;
pub use program::{Program, SocketCounts, Stretch, Thread, STRETCH_NS};
pub use request::{ClassIx, Loop, RequestClass};
pub use run::{recorded, replay, replay_cancelled_by};
pub use settings::{GroupSettings, Semantics, Settings};
