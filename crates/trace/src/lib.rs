// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What threads really did: the trace model, its Parquet file, readers for what people already
//! have, and the thread-by-thread reconstruction that replay is built on.
//!
//! Invariant: a trace that cannot be trusted never becomes a [`Timeline`] without saying so. What
//! makes a file unreadable is a [`TraceError`]; what makes it doubtful is a [`Warning`], and too
//! many of those are an error again ([`Quality::check`]).
//!
//! The file is described column by column in `docs/src/reference/trace-format.md`.
mod cells;
mod checksum;
mod error;
#[doc(hidden)]
pub mod example;
mod header;
mod import;
mod model;
mod open_thread;
mod quality;
mod reader;
mod reconstruct;
mod request;
mod schema;
mod timeline;
mod unfinished;
mod writer;

pub use cells::{Cells, Kept};
pub use error::{At, Place, TraceError};
pub use import::Trace;
pub use model::*;
pub use quality::{Doubt, Quality, Warning, DOUBTFUL_SHARE_MAX};
pub use reader::TraceReader;
pub use reconstruct::TimelineBuilder;
pub use request::{BadRequest, RequestSpec};
pub use schema::{EVENTS_MAX, HEADER_MAX};
pub use timeline::{
    Burst, Cause, ConnectionTimeline, End, Moment, OthersRun, Phase, Run, SocketEvent, ThreadIx,
    ThreadTimeline, Timeline, Wake,
};
pub use unfinished::{behind_links, is_device, remove_unfinished, Unfinished};
pub use writer::TraceWriter;
