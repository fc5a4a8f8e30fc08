// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether a client's answers can be told apart by wake-ups alone.
//!
//! A thread that has one request under way at a time asks, blocks and is answered. One with several (an event loop, a
//! client with many connections, pipelining) asks again before it is answered, and an answer to it may be that of any of
//! them. Two things show it: answers with no request since the answer before, since that was sent earlier, or to a server
//! that ran and left no wake-up; and requests from two bursts before one answer. Either may come from a client with one
//! request under way, too, but not often: its server then runs on after the answer until the next request is there.
//!
//! Where sockets were recorded they say which connections owed an answer as the thread asked on another one.
use plimsoll_trace::{SocketOp, ThreadIx, Timeline};
use std::collections::BTreeSet;

/// What was seen of all clients' answers, if requests are found by wake-ups of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pairing {
    /// Answers, each the end of a request.
    pub answers: u64,
    /// Of these: with no request before them that is seen.
    pub unseen: u64,
    /// Of these: before which the thread had asked in two bursts or, by its sockets, on two connections.
    pub several: u64,
}

/// Share of answers that may be those of other requests, above which they are told apart no more. A client with one request
/// under way whose server is slow to block after an answer stays below it.
const MISPAIRED_MAX: f64 = 0.05;

impl Pairing {
    /// Whether the requests that are found are the clients'.
    pub fn tells_apart(&self) -> bool {
        self.in_doubt() <= MISPAIRED_MAX
    }

    /// Share of answers that may be those of another request; 0 of none.
    pub fn in_doubt(&self) -> f64 {
        (self.unseen + self.several) as f64 / self.answers.max(1) as f64
    }
}

/// How often this thread asked on a connection, and how often it did so while another one owed it an answer. `None`: no
/// socket shows what it sent.
pub(crate) fn asked_on_sockets(timeline: &Timeline, client: ThreadIx) -> Option<(u64, u64)> {
    let mut events = Vec::new();
    for (connection, known) in timeline.connections.iter().enumerate() {
        let sends = |by: &Option<plimsoll_trace::Moment>| by.as_ref().is_some_and(|by| by.thread == client);
        if !known
            .events
            .iter()
            .any(|e| e.op == SocketOp::Arrived && sends(&e.by))
        {
            continue;
        }
        // The answering end: data arrives there from this thread, and it writes.
        events.extend(known.events.iter().filter_map(|e| match e.op {
            SocketOp::Arrived if sends(&e.by) => Some((e.ts_ns, connection, true)),
            SocketOp::Wrote | SocketOp::Closed => Some((e.ts_ns, connection, false)),
            _ => None,
        }));
    }
    events.sort_unstable();
    let mut owing = BTreeSet::new();
    let (mut asked, mut beside) = (0, 0);
    for (_, connection, sent) in events {
        if !sent {
            owing.remove(&connection);
        } else if owing.insert(connection) {
            asked += 1;
            beside += u64::from(owing.len() > 1);
        }
    }
    (asked > 0).then_some((asked, beside))
}
