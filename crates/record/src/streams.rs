// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams of HTTP/2, as the trace has them: each of those under way at a time is a connection of its own.
//!
//! The frames say which stream data belongs to as it comes or goes. When a thread reads it is told by the socket: its bytes are
//! counted, and read in the order in which they came. A stream takes the connection that was last free, so that a client that waits
//! for an answer before it asks again does so on one.
use crate::connections::Connections;
use crate::wire::{Frame, SocketRecord};
use plimsoll_trace::{Connection, Event, Protocol, Side, SocketOp, What};
use std::collections::{HashMap, HashSet, VecDeque};

/// Below are the numbers of sockets, and of what their datagrams are told as.
const FIRST_ID: u64 = 2 << 32;

/// Streams of one connection that are told apart at a time: most peers allow 100 to 250.
const STREAMS_MAX: usize = 1000;

/// A connection that has not shown in this time what it is is hardly used, or closed.
const UNDECIDED_NS: i64 = 5_000_000_000;

/// What leaves this long after it was written, or longer, has been held: as in bpf/record_sockets.h.
const HELD_MIN_NS: i64 = 100_000;

#[derive(Default)]
pub struct Streams {
    frames: Vec<Frame>,
    /// Sockets, by their numbers, and since when a recorded thread uses each.
    sockets: HashMap<u32, (u64, i64)>,
    /// How many streams a socket may have, by their numbers.
    counts: HashMap<u32, usize>,
    connections: u64,
    /// Those that are not followed any more, by their numbers, and whether they may be HTTP/2.
    decided: HashMap<u32, bool>,
    /// Those that are older than the recording.
    existed: HashSet<u32>,
    /// New ones are encrypted: each may begin with a handshake, which is seen from its first packet or not at all.
    has_new_sealed: bool,
    /// Those whose TLS handshake was seen, and when the first data came after it.
    secured: Vec<(u32, i64)>,
    /// Those that have shown frames.
    framed: HashSet<u32>,
    /// Those that are to show what they are, since when a thread uses them.
    undecided: VecDeque<(i64, u32)>,
}

impl Streams {
    /// A recorded thread used a socket for the first time.
    pub fn add_socket(&mut self, socket: &SocketRecord) {
        self.sockets.insert(socket.number, (socket.id, socket.ts_ns));
        if socket.existed {
            self.existed.insert(socket.number);
        }
        if socket.protocol == Protocol::Tcp {
            self.undecided.push_back((socket.ts_ns, socket.number));
        }
    }

    /// Whether packets need to be looked at: a connection is HTTP/2, or one that was used the first time not long ago may be, or new
    /// ones are encrypted.
    pub fn need_packets(&mut self, now_ns: i64) -> bool {
        let done = |&(ts_ns, number): &(i64, u32)| {
            now_ns - ts_ns > UNDECIDED_NS || self.decided.contains_key(&number)
        };
        while self.undecided.front().is_some_and(done) {
            self.undecided.pop_front();
        }
        self.has_new_sealed || !self.framed.is_empty() || !self.undecided.is_empty()
    }

    pub fn add(&mut self, frame: Frame) {
        if frame.sealed || frame.other {
            self.decided.insert(frame.number, frame.sealed);
            self.has_new_sealed |= (frame.sealed || frame.secured) && !self.existed.contains(&frame.number);
            if frame.secured {
                self.secured.push((frame.number, frame.ts_ns));
            }
            self.framed.remove(&frame.number);
            return;
        }
        self.framed.insert(frame.number);
        let count = self.counts.entry(frame.number).or_default();
        *count += 1;
        self.connections += u64::from(*count <= STREAMS_MAX);
        self.frames.push(frame);
    }

    /// How many events they become at most.
    pub fn len(&self) -> u64 {
        2 * self.frames.len() as u64
    }

    /// Accepted connections that are encrypted and may be HTTP/2: streams of these are not told apart.
    pub fn sealed(&self, connections: &Connections) -> u64 {
        let sealed = self.decided.iter().filter(|(_, &sealed)| sealed);
        let ids = sealed.filter_map(|(number, _)| self.sockets.get(number));
        let accepted =
            ids.filter(|&&(id, _)| connections.get(id).is_some_and(|own| own.side == Side::Accepted));
        accepted.count() as u64
    }

    /// Says of connections when their TLS handshake was over.
    pub fn secure(&self, connections: &mut Connections) {
        for (number, ts_ns) in &self.secured {
            if let Some((id, _)) = self.sockets.get(number) {
                connections.secure(*id, *ts_ns);
            }
        }
    }

    /// How many connections they are at most.
    pub fn connections(&self) -> u64 {
        self.connections
    }

    /// Tells streams apart: their connections take the place of their sockets' in the table. Returns what is needed to do so with
    /// the sockets' events, and what needs none of these, in no order: what was sent, and what came before a thread used the socket.
    pub fn finish(mut self, connections: &mut Connections) -> (Told, Vec<Event>) {
        self.frames.sort_by_key(|frame| frame.ts_ns);
        let mut seen: HashMap<u64, Asked> = HashMap::new();
        for frame in &self.frames {
            if let Some(&(id, _)) = self.sockets.get(&frame.number) {
                seen.entry(id).or_default().take(frame);
            }
        }
        let asks = seen
            .iter()
            .filter_map(|(&id, seen)| Some((id, seen.by_going(connections.get(id)?.side)?)));
        let asks_by_going: HashMap<u64, bool> = asks.collect();
        let mut told = Told::default();
        let mut events = Vec::new();
        let mut writers: HashMap<(u64, u32), u32> = HashMap::new();
        let mut pairs: HashMap<u64, Pair> = HashMap::new();
        for frame in &self.frames {
            let Some(&(id, used_ns)) = self.sockets.get(&frame.number) else {
                continue;
            };
            let Some(&by_going) = asks_by_going.get(&id) else {
                continue;
            };
            let peer = connections.get(id).and_then(|connection| connection.peer);
            let peer = peer.filter(|peer| asks_by_going.get(peer) == Some(&!by_going));
            let pair = pairs.entry(peer.map_or(id, |peer| peer.min(id))).or_default();
            let Some(slot) = pair.take(frame, frame.goes == by_going, by_going || peer.is_none()) else {
                continue;
            };
            let connection = told.connection(id, slot);
            if frame.goes {
                if by_going {
                    writers.insert((id, frame.stream), frame.tid);
                }
                if by_going || frame.ends || frame.breaks {
                    events.extend(went(frame, connection));
                }
                continue;
            }
            let socket = told.sockets.entry(id).or_default();
            if frame.ts_ns < used_ns {
                // The socket says of all that came before only when the first of it did, and it is read at once.
                let by = peer.and_then(|peer| writers.get(&(peer, frame.stream)));
                events.push(came(frame, connection, by.copied().unwrap_or(0)));
                socket.unread.push_back((1, connection));
            } else {
                socket.coming.push_back((frame.ts_ns, frame.at, connection));
            }
        }
        let instead = told.ids.iter().zip(FIRST_ID..);
        let instead = instead.filter_map(|(&(socket, place), id)| {
            let connection = connections.get(socket)?;
            let peer = connection.peer.and_then(|peer| told.by_place.get(&(peer, place)));
            let side = match asks_by_going[&socket] {
                true => Side::Opened,
                false => Side::Accepted,
            };
            let stream = Connection {
                id,
                side,
                before: true,
                peer: peer.copied(),
                ..connection.clone()
            };
            Some((socket, stream))
        });
        let instead = instead.collect();
        connections.replace(instead);
        (told, events)
    }
}

/// Which side of a connection asks: by what comes, and by what goes.
#[derive(Default)]
struct Asked {
    /// Streams with headers whose answer is not seen; only until one is.
    begun: [HashSet<u32>; 2],
    answered: [bool; 2],
}

impl Asked {
    fn take(&mut self, frame: &Frame) {
        let (own, other) = (usize::from(frame.goes), usize::from(!frame.goes));
        if !frame.headers {
            return;
        }
        self.answered[other] |= self.begun[other].contains(&frame.stream);
        // Those of clients have odd numbers.
        if frame.stream % 2 == 1 && !self.answered[own] {
            self.begun[own].insert(frame.stream);
        }
    }

    /// Whether what goes is the side's that asks; `None` if these are no streams: none was begun by one side and answered by the other.
    fn by_going(&self, side: Side) -> Option<bool> {
        let by_going = match side {
            Side::Accepted => false,
            Side::Opened => true,
            Side::Neither => self.answered[usize::from(true)],
        };
        self.answered[usize::from(by_going)].then_some(by_going)
    }
}

/// A connection, of which both ends may be recorded: which of its streams have which place.
#[derive(Default)]
struct Pair {
    under_way: HashMap<u32, usize>,
    free: Vec<usize>,
    places: usize,
    /// The newest one: numbers only grow.
    newest: u32,
}

impl Pair {
    /// The place of a frame's stream. `asks`: it comes from the side that asks; `last`: nobody is seen to get the answer later.
    fn take(&mut self, frame: &Frame, asks: bool, last: bool) -> Option<usize> {
        if asks && frame.headers && frame.stream > self.newest && !self.under_way.contains_key(&frame.stream)
        {
            self.newest = frame.stream;
            let place = self.free.pop().or_else(|| {
                let next = self.places;
                self.places += usize::from(next < STREAMS_MAX);
                (next < STREAMS_MAX).then_some(next)
            })?;
            self.under_way.insert(frame.stream, place);
        }
        let place = *self.under_way.get(&frame.stream)?;
        if frame.breaks || (!asks && frame.ends && last) {
            self.under_way.remove(&frame.stream);
            self.free.push(place);
        }
        Some(place)
    }
}

fn event(frame: &Frame, connection: u64, ts_ns: i64, op: SocketOp, tid: u32, bytes: u32) -> Event {
    let what = What::Socket {
        tid,
        connection,
        op,
        bytes,
    };
    Event {
        ts_ns,
        cpu: frame.cpu,
        what,
    }
}

/// What came: its sender's thread; 0: that is not recorded.
fn came(frame: &Frame, connection: u64, tid: u32) -> Event {
    event(frame, connection, frame.ts_ns, SocketOp::Arrived, tid, 1)
}

/// What was written, and when it left if it was held.
fn went(frame: &Frame, connection: u64) -> impl Iterator<Item = Event> {
    let event = |ts_ns, op, tid, bytes| event(frame, connection, ts_ns, op, tid, bytes);
    let wrote_ns = match frame.wrote_ns {
        0 => frame.ts_ns,
        known => known.min(frame.ts_ns),
    };
    let held = frame.ts_ns - wrote_ns >= HELD_MIN_NS;
    let left = held.then(|| event(frame.ts_ns, SocketOp::Left, 0, 0));
    [event(wrote_ns, SocketOp::Wrote, frame.tid, 1)]
        .into_iter()
        .chain(left)
}

/// The sockets whose streams are told apart, up to some time.
#[derive(Default)]
pub struct Told {
    sockets: HashMap<u64, Socket>,
    /// The numbers of streams' connections, each with its socket and its place.
    ids: Vec<(u64, usize)>,
    by_place: HashMap<(u64, usize), u64>,
}

#[derive(Default)]
struct Socket {
    /// When, up to which byte of its packet, and whose: what is not noted to have come yet.
    coming: VecDeque<(i64, u32, u64)>,
    /// Up to which byte, and whose: what has come and is not read.
    unread: VecDeque<(u64, u64)>,
    arrived_bytes: u64,
    read_bytes: u64,
    connections: Vec<u64>,
}

impl Told {
    fn connection(&mut self, socket: u64, place: usize) -> u64 {
        *self.by_place.entry((socket, place)).or_insert_with(|| {
            let id = FIRST_ID + self.ids.len() as u64;
            self.ids.push((socket, place));
            self.sockets.entry(socket).or_default().connections.push(id);
            id
        })
    }

    /// How many sockets have streams that are told apart.
    pub fn sockets(&self) -> u64 {
        self.sockets.len() as u64
    }

    /// Where an event is one of these sockets', says what it is to their streams, and returns true. Events come in the order of time.
    pub fn take(&mut self, event: &Event, mut say: impl FnMut(Event)) -> bool {
        let What::Socket {
            connection: id,
            op,
            bytes,
            tid,
        } = event.what
        else {
            return false;
        };
        let Some(socket) = self.sockets.get_mut(&id) else {
            return false;
        };
        let mut tell = |connection, bytes| {
            say(Event {
                what: What::Socket {
                    connection,
                    op,
                    bytes,
                    tid,
                },
                ..*event
            })
        };
        match op {
            SocketOp::Arrived => {
                let before = socket.arrived_bytes;
                socket.arrived_bytes += u64::from(bytes);
                while let Some(&(ts_ns, at, connection)) = socket.coming.front() {
                    if ts_ns > event.ts_ns {
                        break;
                    }
                    socket.coming.pop_front();
                    tell(connection, 1);
                    socket
                        .unread
                        .push_back(((before + u64::from(at)).min(socket.arrived_bytes), connection));
                }
            }
            SocketOp::Read => {
                // What had come before recording began is read first.
                socket.read_bytes = (socket.read_bytes + u64::from(bytes)).min(socket.arrived_bytes);
                while let Some(&(until, connection)) = socket.unread.front() {
                    if until > socket.read_bytes {
                        break;
                    }
                    // As many as came: what is left unread would be part of the next request.
                    socket.unread.pop_front();
                    tell(connection, 1);
                }
            }
            SocketOp::Closed => socket.connections.iter().for_each(|&id| tell(id, 0)),
            _ => {}
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: u32 = 1;
    const SERVER: u32 = 2;

    /// A connection of which one end or both are recorded; their numbers are those of their ports.
    fn recorded(ends: &[u32]) -> (Streams, Connections) {
        let (mut streams, mut connections) = (Streams::default(), Connections::default());
        for &number in ends {
            let (side, ports) = match number {
                CLIENT => (Side::Opened, (4000, 80)),
                _ => (Side::Accepted, (80, 4000)),
            };
            let socket = SocketRecord {
                ts_ns: 0,
                ..SocketRecord::example(number.into(), Protocol::Tcp, Some(side), ports)
            };
            streams.add_socket(&socket);
            connections.add(&socket);
        }
        (streams, connections)
    }

    /// At the server's end and, if that is recorded, a moment earlier or later at the client's.
    fn add(streams: &mut Streams, ts_ns: i64, stream: u32, asks: bool, what: &str) {
        let mut frame = |number: u32, ts_ns: i64, goes: bool| {
            streams.add(Frame {
                ts_ns,
                cpu: 0,
                number,
                stream,
                goes,
                headers: what.contains("headers"),
                ends: what.contains("ends"),
                breaks: what.contains("breaks"),
                sealed: false,
                secured: false,
                other: false,
                at: 100,
                wrote_ns: ts_ns - 1,
                tid: 10 * number,
            })
        };
        frame(CLIENT, if asks { ts_ns - 2 } else { ts_ns + 2 }, asks);
        frame(SERVER, ts_ns, !asks);
    }

    /// What was sent: when it was written, and on which connection.
    fn sent(events: &[Event]) -> Vec<(i64, u64)> {
        let mut sent: Vec<_> = events
            .iter()
            .map(|event| match event.what {
                What::Socket { connection, op, .. } => {
                    assert_eq!(op, SocketOp::Wrote);
                    (event.ts_ns, connection - FIRST_ID)
                }
                _ => unreachable!(),
            })
            .collect();
        sent.sort_unstable();
        sent
    }

    fn event(ts_ns: i64, op: SocketOp, bytes: u32) -> Event {
        Event {
            ts_ns,
            cpu: 1,
            what: What::Socket {
                tid: 7,
                connection: SERVER.into(),
                op,
                bytes,
            },
        }
    }

    fn tell(told: &mut Told, event: Event) -> Vec<u64> {
        let mut ids = Vec::new();
        assert!(told.take(&event, |event| match event.what {
            What::Socket { connection, .. } => ids.push(connection - FIRST_ID),
            _ => unreachable!(),
        }));
        ids
    }

    #[test]
    fn answers_out_of_order_are_told_apart_and_places_are_taken_again() {
        let (mut streams, mut connections) = recorded(&[SERVER]);
        add(&mut streams, 10, 1, true, "headers ends");
        add(&mut streams, 20, 3, true, "headers");
        add(&mut streams, 25, 3, true, "ends");
        add(&mut streams, 30, 3, false, "headers ends");
        add(&mut streams, 40, 5, true, "headers ends");
        add(&mut streams, 50, 1, false, "headers");
        add(&mut streams, 60, 1, false, "ends");
        add(&mut streams, 70, 5, false, "headers ends");
        let (mut told, events) = streams.finish(&mut connections);
        // Only ends of answers; the third stream takes the place of the second.
        assert_eq!(sent(&events), [(29, 1), (59, 0), (69, 1)]);
        let ids: Vec<_> = connections.ids().map(|id| id - FIRST_ID).collect();
        assert_eq!(ids, [0, 1], "the socket itself is left out");
        assert_eq!(connections.get(FIRST_ID).unwrap().side, Side::Accepted);

        assert_eq!(tell(&mut told, event(11, SocketOp::Arrived, 100)), [0]);
        assert_eq!(tell(&mut told, event(21, SocketOp::Arrived, 100)), [1]);
        // Half of the first one, then both.
        assert!(tell(&mut told, event(22, SocketOp::Read, 50)).is_empty());
        assert_eq!(tell(&mut told, event(26, SocketOp::Arrived, 100)), [1]);
        // Both, and what came of the second one later: each is read.
        assert_eq!(tell(&mut told, event(27, SocketOp::Read, 250)), [0, 1, 1]);
        assert_eq!(tell(&mut told, event(80, SocketOp::Closed, 0)), [0, 1]);
        assert!(tell(&mut told, event(81, SocketOp::Wrote, 10)).is_empty());
    }

    /// The socket itself says of three packets that the first one came at 5.
    #[test]
    fn what_came_before_a_thread_used_the_connection_came_at_its_own_time() {
        let (mut streams, mut connections) = recorded(&[CLIENT, SERVER]);
        streams.sockets.get_mut(&SERVER).unwrap().1 = 30;
        add(&mut streams, 10, 1, true, "headers ends");
        add(&mut streams, 20, 3, true, "headers ends");
        add(&mut streams, 40, 1, false, "headers ends");
        add(&mut streams, 50, 5, true, "headers ends");
        add(&mut streams, 60, 3, false, "headers ends");
        let (mut told, mut events) = streams.finish(&mut connections);
        events.retain(|event| {
            matches!(
                event.what,
                What::Socket {
                    op: SocketOp::Arrived,
                    ..
                }
            )
        });
        let came = |event: &Event| match event.what {
            What::Socket { connection, tid, .. } => (event.ts_ns, connection, tid),
            _ => unreachable!(),
        };
        let came: Vec<_> = events.iter().map(came).collect();
        assert_eq!(came.iter().map(|own| own.0).collect::<Vec<_>>(), [10, 20]);
        assert!(
            came[0].1 != came[1].1 && came.iter().all(|own| own.2 == 10 * CLIENT),
            "{came:?}"
        );
        assert!(tell(&mut told, event(5, SocketOp::Arrived, 300)).is_empty());
        assert_eq!(tell(&mut told, event(30, SocketOp::Read, 300)).len(), 2);
        assert_eq!(tell(&mut told, event(51, SocketOp::Arrived, 100)).len(), 1);
        assert_eq!(tell(&mut told, event(52, SocketOp::Read, 100)).len(), 1);
    }

    #[test]
    fn both_ends_give_a_stream_the_same_place() {
        let (mut streams, mut connections) = recorded(&[CLIENT, SERVER]);
        add(&mut streams, 10, 1, true, "headers ends");
        add(&mut streams, 20, 3, true, "headers ends");
        add(&mut streams, 30, 1, false, "headers ends");
        add(&mut streams, 40, 3, false, "headers ends");
        let (_, events) = streams.finish(&mut connections);
        assert_eq!(sent(&events).len(), 4, "two asked, two answered");
        let linked = connections.ids().all(|id| {
            let peer = connections.get(id).and_then(|own| connections.get(own.peer?));
            peer.is_some_and(|peer| peer.peer == Some(id))
        });
        assert!(linked && connections.ids().count() == 4);
    }

    #[test]
    fn what_is_broken_off_frees_its_place_and_what_only_looks_like_frames_is_one_connection() {
        let (mut streams, mut connections) = recorded(&[SERVER]);
        add(&mut streams, 10, 1, true, "headers ends");
        add(&mut streams, 20, 1, true, "breaks");
        add(&mut streams, 30, 3, true, "headers ends");
        add(&mut streams, 40, 3, false, "headers ends");
        let (_, events) = streams.finish(&mut connections);
        assert_eq!(sent(&events), [(39, 0)]);
        assert_eq!(connections.ids().count(), 1);

        let (mut streams, mut connections) = recorded(&[SERVER]);
        add(&mut streams, 10, 1, true, "headers ends");
        add(&mut streams, 20, 3, false, "headers ends");
        let (mut told, events) = streams.finish(&mut connections);
        assert!(events.is_empty() && !told.take(&event(11, SocketOp::Arrived, 100), |_| unreachable!()));
        assert_eq!(connections.ids().collect::<Vec<_>>(), [u64::from(SERVER)]);
    }
}
