// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests as the service's sockets see them: any threads may do the work, and the client may be anywhere.
//!
//! A request begins when data arrives on a connection that the service accepted and that owes no answer. It ends with
//! the service's last write before the next data arrives. A thread that goes on after that write to close the connection, before
//! the client does, ends it as it closes: an answer of unknown length ends so. While an answer is owed, more data belongs to the same
//! request: its body, or requests that overlap (pipelining), which from outside look alike. Where a thread
//! reads, after an answer, data that was there before it, they did overlap; the latency is then that of the time in which
//! the connection was busy.
//!
//! A TLS handshake is no request. Where it was seen from its beginning it belongs to the first one, as its client has it, unless that
//! comes long after it; and what says goodbye as a connection is closed is none, either.
//!
//! What is written does not always leave at once: Nagle's algorithm holds the second small part of an answer until the client has
//! acknowledged the first, which that may put off for 40 ms. No CPU limit changes that: a request lasts as much longer, in the recording
//! and in every replay.
//!
//! From when it comes after the last answer on its connection says whether the client waits: see [`crate::arrivals`];
//! of several connections also what they do together: see [`crate::together`].
use crate::arrivals::{self, Arrival, Pacing};
use crate::groups::{is_below, Group};
use crate::marks::Mark;
use crate::program::{SocketCounts, Thread};
use crate::reconnects::{self, Connection};
use crate::request::Loop;
use crate::together::{self, Together};
use plimsoll_trace::{ConnectionTimeline, Moment, Side, SocketEvent, SocketOp, Timeline};
use std::ops::Range;

/// One request.
pub(crate) struct Asked {
    pub begin_ns: i64,
    /// Its last write.
    pub end_ns: i64,
    /// How long what was written then was held before it left.
    pub held_ns: u64,
    /// The thread of the client, if that is in the recording: what the arrival waits for in a replay.
    pub sender: Option<Moment>,
    pub read: Option<(i64, Moment)>,
    pub end: Moment,
    /// The one before on its connection: into [`Sockets::requests`].
    pub before: Option<usize>,
    pub kind: Loop,
}

impl Asked {
    fn left_ns(&self) -> i64 {
        self.end_ns + self.held_ns as i64
    }
}

#[derive(Default)]
pub(crate) struct Sockets {
    pub requests: Vec<Asked>,
    pub counts: SocketCounts,
    connections: Vec<Connection>,
}

pub(crate) fn find(timeline: &Timeline, threads: &[Thread], groups: &[Group], target: u32) -> Sockets {
    let mut sockets = Sockets::default();
    let inside = |moment: &Moment| is_below(groups, threads[moment.thread as usize].group, target);
    for connection in &timeline.connections {
        if connection.about.side == Side::Accepted && comes_from_outside(timeline, connection, inside) {
            sockets.add(connection, inside);
        }
    }
    sockets.classify();
    sockets
}

/// Threads of the planned group answer it, and none of them sits at its other end.
fn comes_from_outside(
    timeline: &Timeline,
    connection: &ConnectionTimeline,
    inside: impl Fn(&Moment) -> bool,
) -> bool {
    let used = |end: &ConnectionTimeline| {
        let mut own = end.events.iter().filter(|e| e.op != SocketOp::Arrived);
        own.any(|e| e.by.as_ref().is_some_and(&inside))
    };
    let peer = connection.about.peer;
    let peer = peer.and_then(|id| timeline.connections.iter().find(|c| c.about.id == id));
    used(connection) && !peer.is_some_and(used)
}

/// After a handshake a client that has something to ask for does so at once, or as soon as the handshake's end has come to it.
const AFTER_HANDSHAKE_NS_MAX: i64 = 1_000_000_000;
/// What says goodbye, a record of TLS with an alert in it, is no longer; no request with a line of its own is as short.
const GOODBYE_BYTES_MAX: u64 = 31;

/// A connection's TLS handshake, where it was seen from its beginning.
struct Handshake {
    /// When the first data after it arrived; `None`: it was not seen.
    ends_ns: Option<i64>,
    before_ns: i64,
}

/// Where an event on a connection lies.
#[derive(PartialEq)]
enum Stage {
    Handshake,
    /// The first one after the handshake.
    First {
        /// So long after it that the handshake is no part of what begins here.
        late: bool,
    },
    Open,
}

impl Handshake {
    fn of(connection: &ConnectionTimeline) -> Handshake {
        Handshake {
            ends_ns: connection.about.secured_ns,
            before_ns: i64::MAX,
        }
    }

    /// Of the next event: they are asked about in order of time.
    fn stage(&mut self, ts_ns: i64) -> Stage {
        let before_ns = std::mem::replace(&mut self.before_ns, ts_ns);
        match self.ends_ns {
            Some(ends_ns) if ts_ns < ends_ns => Stage::Handshake,
            Some(ends_ns) if before_ns < ends_ns => Stage::First {
                late: ts_ns - before_ns > AFTER_HANDSHAKE_NS_MAX,
            },
            _ => Stage::Open,
        }
    }

    /// Whether what came last on a connection that is closed says goodbye, and asks for nothing.
    fn is_goodbye(&self, owed: &Owed) -> bool {
        self.ends_ns.is_some() && owed.bytes <= GOODBYE_BYTES_MAX
    }
}

/// A request that is under way on a connection.
struct Owed {
    begin_ns: i64,
    /// What has come of it.
    bytes: u64,
    sender: Option<Moment>,
    read: Option<(i64, Moment)>,
    /// The last write so far: when, and by which thread.
    wrote: Option<(i64, Option<Moment>)>,
    /// That left later than it was written.
    left_ns: Option<i64>,
    /// Nothing was left to read as that was written.
    answered: bool,
    in_parts: bool,
    overlapping: bool,
}

impl Owed {
    /// A client that knows how long the answer is does not wait for its end: it closes first, or hardly later. A thread that slept
    /// since its last write closes what has been idle.
    fn ends_with_close(&mut self, close: &SocketEvent) {
        let burst = |by: Option<Moment>| by.map(|by| (by.thread, by.burst));
        if let Some((ns, by)) = &mut self.wrote {
            if by.is_some() && burst(*by) == burst(close.by) {
                (*ns, *by) = (close.ts_ns, close.by);
            }
        }
    }
}

impl Sockets {
    fn add(&mut self, connection: &ConnectionTimeline, inside: impl Fn(&Moment) -> bool) {
        let count = self.requests.len();
        // Of a connection that no thread is seen to read from, unread data says nothing.
        let has_reads = connection.events.iter().any(|e| e.op == SocketOp::Read);
        let (mut owed, mut unread, mut before): (Option<Owed>, u64, _) = (None, 0, None);
        let mut handshake = Handshake::of(connection);
        let mut is_closed = false;
        for event in &connection.events {
            let stage = handshake.stage(event.ts_ns);
            if stage == (Stage::First { late: true }) {
                owed = None;
            }
            match event.op {
                SocketOp::Arrived if event.bytes > 0 => {
                    if owed.as_ref().is_some_and(|o| o.answered) {
                        self.close(owed.take(), &mut before);
                    }
                    match &mut owed {
                        Some(owed) => {
                            let in_parts = owed.read.is_some() || owed.wrote.is_some();
                            owed.in_parts |= in_parts && stage == Stage::Open;
                            owed.bytes += u64::from(event.bytes);
                        }
                        None => {
                            owed = Some(Owed {
                                begin_ns: event.ts_ns,
                                bytes: event.bytes.into(),
                                sender: event.by.filter(|by| !inside(by)),
                                read: None,
                                wrote: None,
                                left_ns: None,
                                answered: false,
                                in_parts: false,
                                overlapping: false,
                            })
                        }
                    }
                    unread += u64::from(has_reads) * u64::from(event.bytes);
                }
                SocketOp::Read if event.bytes > 0 => {
                    unread = unread.saturating_sub(event.bytes.into());
                    if let Some(owed) = &mut owed {
                        owed.read = owed.read.or(event.by.map(|by| (event.ts_ns, by)));
                        owed.overlapping |= owed.wrote.is_some();
                        owed.answered = false;
                    }
                }
                SocketOp::Wrote if event.bytes > 0 && stage != Stage::Handshake => {
                    if let Some(owed) = &mut owed {
                        owed.wrote = Some((event.ts_ns, event.by));
                        owed.left_ns = None;
                        owed.answered = unread == 0;
                    }
                }
                SocketOp::Left => {
                    if let Some(owed) = &mut owed {
                        owed.left_ns = Some(event.ts_ns);
                    }
                }
                SocketOp::Closed => {
                    owed = owed.filter(|owed| !handshake.is_goodbye(owed));
                    if let Some(owed) = &mut owed {
                        owed.ends_with_close(event);
                    }
                    self.close(owed.take(), &mut before);
                    is_closed = true;
                    // What comes now is never read: the client's own end of the connection.
                    break;
                }
                _ => {}
            }
        }
        // What is answered so far may not be the whole answer: nothing after it says so.
        if let Some(last) = owed {
            match last.answered {
                true => self.close(Some(last), &mut before),
                false => self.counts.unanswered += 1,
            }
        }
        if let [first, .., last] | [first @ last] = &self.requests[count..] {
            self.counts.connections += 1;
            // A client that is told of the end in the last answer has its next connection before this one is closed.
            let to_ns = if is_closed { last.end_ns } else { i64::MAX };
            let from_ns = if connection.about.before {
                i64::MIN
            } else {
                first.begin_ns
            };
            self.connections.push(Connection {
                open_ns: from_ns..to_ns,
                requests: count..self.requests.len(),
            });
        }
    }

    fn close(&mut self, owed: Option<Owed>, before: &mut Option<usize>) {
        let Some(owed) = owed else { return };
        let Some((end_ns, by)) = owed.wrote else {
            self.counts.unanswered += 1;
            return;
        };
        let Some(end) = by else {
            self.counts.unseen += 1;
            return;
        };
        let held_ns = owed.left_ns.map_or(0, |left_ns| (left_ns - end_ns).max(0) as u64);
        self.counts.overlapping += u64::from(owed.overlapping);
        self.counts.in_parts += u64::from(owed.in_parts);
        self.requests.push(Asked {
            begin_ns: owed.begin_ns,
            end_ns,
            held_ns,
            sender: owed.sender,
            read: owed.read,
            end,
            before: before.replace(self.requests.len()),
            kind: Loop::Open,
        });
    }

    /// Says of each request whether it keeps its own time. One that follows no answer does.
    fn classify(&mut self) {
        if self.keep_one_schedule() {
            return;
        }
        let together = self.pool();
        let renewed = match together {
            Some(Together::Closed | Together::RatherClosed) => self.follow_reconnects(),
            _ => Vec::new(),
        };
        let unclear = match together {
            Some(Together::Open) => return,
            Some(_) => Pacing::Closed,
            None => Pacing::Open,
        };
        let pacing = |all: &[Arrival]| match together {
            // Clients that wait, but for one beside them with a clock of its own.
            Some(Together::Closed)
                if all.len() < arrivals::ARRIVALS_MIN || !arrivals::keeps_a_schedule(all) =>
            {
                Pacing::Closed
            }
            _ => arrivals::pacing(all, unclear),
        };
        let arrival = |own: &Asked| {
            let before = &self.requests[own.before?];
            Some(Arrival {
                woken_ns: before.begin_ns,
                idle_ns: before.left_ns(),
                next_ns: own.begin_ns,
            })
        };
        let (mut closed, mut few) = (Vec::new(), Vec::new());
        let mut decide = |members: Vec<usize>| {
            let all: Vec<Arrival> = members
                .iter()
                .filter_map(|&i| arrival(&self.requests[i]))
                .collect();
            if pacing(&all) == Pacing::Closed {
                closed.extend(members);
            }
        };
        for connection in &self.connections {
            let Range { start, end } = connection.requests;
            match end - start > arrivals::ARRIVALS_MIN {
                true => decide((start + 1..end).collect()),
                false => few.extend(start + 1..end),
            }
        }
        decide(few);
        decide(renewed);
        closed
            .into_iter()
            .for_each(|i| self.requests[i].kind = Loop::Closed);
    }

    /// Clients that wait: what comes first on a connection follows what came last on another. Returns those that do.
    fn follow_reconnects(&mut self) -> Vec<usize> {
        let found = reconnects::find(
            &self.connections,
            |request| self.requests[request].begin_ns,
            |request| self.requests[request].left_ns(),
        );
        let follow = |(first, last): (usize, usize)| {
            self.requests[first].before = Some(last);
            first
        };
        found.into_iter().map(follow).collect()
    }

    fn pool(&self) -> Option<Together> {
        // A client may end a connection, or be told to, and open the next one.
        let opened = self.connections.iter().map(|own| (own.open_ns.start, 1));
        let closed = self.connections.iter().map(|own| (own.open_ns.end, -1));
        let mut changes: Vec<(i64, i64)> = opened.chain(closed).collect();
        changes.sort_unstable();
        let (mut open, mut most, mut most_ns) = (0, 0, i64::MAX);
        for (ts_ns, change) in changes {
            open += change;
            if open > most {
                (most, most_ns) = (open, ts_ns);
            }
        }
        let own = self.requests.iter().map(|r| (r.begin_ns, r.left_ns()));
        let own: Vec<(i64, i64)> = own.collect();
        let connections = together::Connections {
            most: most as usize,
            since_ns: most_ns,
        };
        together::pacing(&own, connections)
    }

    /// A client that sends at a constant rate takes any free connection: the schedule shows in all together.
    fn keep_one_schedule(&self) -> bool {
        let mut begins: Vec<i64> = self.requests.iter().map(|r| r.begin_ns).collect();
        begins.sort_unstable();
        let all = begins.windows(2).map(|pair| Arrival {
            woken_ns: pair[0],
            idle_ns: pair[0],
            next_ns: pair[1],
        });
        let all: Vec<Arrival> = all.collect();
        all.len() >= arrivals::ARRIVALS_MIN && arrivals::keeps_a_schedule(&all)
    }
}

impl From<Moment> for Mark {
    fn from(moment: Moment) -> Mark {
        Mark::Works(moment.thread, moment.burst, moment.at_work_ns)
    }
}
