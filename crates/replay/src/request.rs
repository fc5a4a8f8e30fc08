// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A request, as a program keeps it; `requests.rs` finds them.

pub type ClassIx = u32;

/// Requests of one kind: those that one program answers.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestClass {
    /// Name of the program's threads.
    pub name: String,
    /// Requests that arrive whether or not those before are done.
    pub open: u64,
    /// Requests of clients that wait for the answer before.
    pub closed: u64,
}

/// How a request comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loop {
    Open,
    Closed,
}

/// What the recording says of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestInfo {
    pub class: ClassIx,
    /// Since the recording began.
    pub begin_ns: u64,
    /// Until the last write of its answer.
    pub latency_ns: u64,
    /// How long that was held before it left; the client sees it, and no replay changes it.
    pub held_ns: u64,
    pub arrival: Arrival,
}

/// When a request begins in a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// When some thread gets to its mark.
    Marked,
    /// When it did in the recording.
    Kept,
    /// So long after the end of another one.
    After { request: u32, pause_ns: u64 },
}

/// When the last of the recorded requests ended.
pub(crate) fn last_end_ns<'a>(requests: impl Iterator<Item = &'a RequestInfo>) -> Option<u64> {
    requests.map(|r| r.begin_ns + r.latency_ns).max()
}
