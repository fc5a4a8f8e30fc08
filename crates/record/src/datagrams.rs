// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Datagrams of UDP sockets, as the trace has them: a socket and one of its peers are a connection.
//!
//! The kernel says of each datagram that arrives or is written whose it is. Of a read it does not: a socket's datagrams are read
//! in the order in which they came.
use crate::connections::numbered;
use crate::wire::{Datagram, Peer, SocketRecord};
use plimsoll_trace::{Connection, Event, Protocol, Side, SocketOp, What};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::fs;

/// Peers of one socket that are connections of their own; of more than these, as of clients that take a port for each
/// request, the one that has waited longest for a request makes room.
const PEERS_MAX: usize = 1000;

/// How many of those are looked at for one that is owed no answer.
const LOOKS: usize = 8;

/// A thread that has taken a datagram out of the queue is seen to read it hardly later: chosen. What came longer ago and is neither in
/// the queue nor read was taken unseen.
const IN_HANDS_NS: i64 = 1_000_000;

/// More than a socket's queue holds.
const QUEUED_MAX: u32 = 1 << 20;

/// Below are the numbers of other sockets.
const FIRST_ID: u64 = 1 << 32;

/// Whether one of these processes has a UDP socket; by their threads, which have the same files.
pub fn any_socket(threads: &[u32]) -> bool {
    let processes: BTreeSet<u32> = threads.iter().filter_map(|&tid| process_of(tid)).collect();
    let mut of_netns: HashMap<Option<u64>, HashSet<u64>> = HashMap::new();
    processes.iter().any(|pid| {
        let known = of_netns
            .entry(numbered(&format!("/proc/{pid}/ns/net"), "net"))
            .or_insert_with(|| {
                let read = |name| fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
                let texts = ["udp", "udp6"].map(read);
                texts.iter().flat_map(|text| inodes(text)).collect()
            });
        if known.is_empty() {
            return false;
        }
        let files = fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .flatten();
        let mut sockets = files.filter_map(|file| numbered(file.path().to_str()?, "socket"));
        sockets.any(|inode| known.contains(&inode))
    })
}

fn process_of(tid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let tgid = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    tgid.trim().parse().ok()
}

/// Of the sockets in the text of `/proc/net/udp` or `udp6`.
fn inodes(text: &str) -> impl Iterator<Item = u64> + '_ {
    let inode = |line: &str| line.split_whitespace().nth(9)?.parse().ok();
    text.lines().skip(1).filter_map(inode)
}

/// A connection, and its socket.
pub struct Flow {
    pub connection: Connection,
    pub socket: SocketRecord,
}

#[derive(Default)]
pub struct Datagrams {
    sockets: HashMap<u64, SocketRecord>,
    seen: Vec<Datagram>,
    peers: HashMap<u64, HashSet<Peer>>,
}

impl Datagrams {
    /// A recorded thread used a UDP socket for the first time.
    pub fn add_socket(&mut self, socket: SocketRecord) {
        self.sockets.insert(socket.id, socket);
    }

    pub fn add(&mut self, datagram: Datagram) {
        if let Some(peer) = datagram.peer {
            let known = self.peers.entry(datagram.socket).or_default();
            if known.len() < PEERS_MAX {
                known.insert(peer);
            }
        }
        self.seen.push(datagram);
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.seen.len() as u64
    }

    /// How many connections they are at most.
    pub fn connections(&self) -> u64 {
        self.peers.values().map(|peers| peers.len() as u64).sum()
    }

    /// The connections, and what happened to them, in no order.
    pub fn finish(mut self) -> (Vec<Flow>, Vec<Event>) {
        self.seen.sort_by_key(|datagram| datagram.ts_ns);
        let mut flows = Vec::new();
        let mut events = Vec::with_capacity(self.seen.len());
        let mut sockets: HashMap<u64, Socket> = HashMap::new();
        for datagram in &self.seen {
            let Some(record) = self.sockets.get(&datagram.socket) else {
                continue;
            };
            let socket = sockets
                .entry(datagram.socket)
                .or_insert_with(|| Socket::new(*record, datagram));
            socket.take(datagram, &mut flows, |datagram, flow, bytes| {
                events.push(Event {
                    ts_ns: datagram.ts_ns,
                    cpu: datagram.cpu,
                    what: What::Socket {
                        tid: datagram.tid,
                        connection: FIRST_ID + flow as u64,
                        op: datagram.op,
                        // No bytes would be an end.
                        bytes: bytes.max(1),
                    },
                })
            });
        }
        sockets.values().for_each(|socket| socket.take_sides(&mut flows));
        join_ends(&mut flows);
        (flows, events)
    }
}

/// A socket, up to some time.
struct Socket {
    record: SocketRecord,
    /// Into the flows.
    by_peer: HashMap<Peer, usize>,
    /// In the order in which they were made, or last asked whether they make room.
    peers: VecDeque<Peer>,
    /// Flows that are owed an answer.
    owed: HashSet<usize>,
    /// What came and was not read, and when.
    unread: VecDeque<(i64, Came)>,
    /// What came and was read, of which it is not known whose it is: a thread took it out of the queue at once. Its arrival, and
    /// its read.
    nameless: VecDeque<(Datagram, Datagram)>,
    /// Peers that sent first, and that were sent to first.
    came: usize,
    went: usize,
    read_first: bool,
}

/// A datagram that came and was not read.
enum Came {
    Before,
    /// The flow, and how many bytes.
    To(usize, u32),
    Nameless(Datagram),
}

impl Socket {
    /// `first`: what is seen of it first. What is queued then came before.
    fn new(record: SocketRecord, first: &Datagram) -> Socket {
        let own = u32::from(first.op == SocketOp::Arrived);
        let before = first.queued.saturating_sub(own).min(QUEUED_MAX);
        Socket {
            record,
            by_peer: HashMap::new(),
            peers: VecDeque::new(),
            owed: HashSet::new(),
            unread: (0..before).map(|_| (first.ts_ns, Came::Before)).collect(),
            nameless: VecDeque::new(),
            came: 0,
            went: 0,
            read_first: first.op == SocketOp::Read,
        }
    }

    /// Says what was done with which flow, and with how many bytes.
    fn take(
        &mut self,
        datagram: &Datagram,
        flows: &mut Vec<Flow>,
        mut say: impl FnMut(&Datagram, usize, u32),
    ) {
        // Of a socket that has a peer it is known.
        let own = (self.record.ends.remote_port != 0)
            .then_some((self.record.ends.remote, self.record.ends.remote_port));
        let peer = datagram.peer.or(own);
        match (datagram.op, peer) {
            (SocketOp::Arrived, peer) => {
                self.drop_unseen(datagram, 1);
                let Some(peer) = peer else {
                    return self.unread.push_back((datagram.ts_ns, Came::Nameless(*datagram)));
                };
                let flow = self.flow(peer, true, flows);
                self.owed.insert(flow);
                self.unread
                    .push_back((datagram.ts_ns, Came::To(flow, datagram.bytes)));
                say(datagram, flow, datagram.bytes);
            }
            (SocketOp::Read, _) => match self.unread.pop_front().map(|(_, came)| came) {
                Some(Came::To(flow, bytes)) => say(datagram, flow, bytes),
                Some(Came::Nameless(arrived)) => self.nameless.push_back((arrived, *datagram)),
                Some(Came::Before) | None => {}
            },
            (_, Some(peer)) => {
                self.drop_unseen(datagram, 0);
                // Who is sent something, and is owed nothing, has asked: last, as what came before may never be answered.
                let known = self.by_peer.get(&peer);
                let asked = match known.is_some_and(|flow| self.owed.contains(flow)) {
                    true => None,
                    false => self.nameless.pop_back(),
                };
                let flow = self.flow(peer, asked.is_some(), flows);
                if let Some((arrived, read)) = asked {
                    say(&arrived, flow, read.bytes);
                    say(&read, flow, read.bytes);
                }
                self.owed.remove(&flow);
                say(datagram, flow, datagram.bytes);
            }
            (_, None) => {}
        }
    }

    /// No more than `queued` are in the queue.
    fn drop_unseen(&mut self, now: &Datagram, queued: u32) {
        if now.queued <= queued {
            let old = |&(ns, _): &(i64, Came)| now.ts_ns - ns > IN_HANDS_NS;
            while self.unread.front().is_some_and(old) {
                self.unread.pop_front();
            }
        }
    }

    fn flow(&mut self, peer: Peer, came: bool, flows: &mut Vec<Flow>) -> usize {
        if let Some(&flow) = self.by_peer.get(&peer) {
            return flow;
        }
        let flow = match self.that_makes_room() {
            Some(flow) => {
                // From now on of many.
                flows[flow].connection.remote_port = None;
                flow
            }
            None => {
                self.came += usize::from(came);
                self.went += usize::from(!came);
                flows.push(Flow {
                    connection: Connection {
                        id: FIRST_ID + flows.len() as u64,
                        protocol: Protocol::Udp,
                        side: if came { Side::Accepted } else { Side::Opened },
                        before: true,
                        local_port: Some(self.record.ends.local_port).filter(|&port| port != 0),
                        remote_port: Some(peer.1),
                        group: None,
                        peer: None,
                        secured_ns: None,
                    },
                    socket: self.record,
                });
                flows.len() - 1
            }
        };
        self.by_peer.insert(peer, flow);
        self.peers.push_back(peer);
        flow
    }

    fn that_makes_room(&mut self) -> Option<usize> {
        for _ in 0..LOOKS {
            if self.peers.len() < PEERS_MAX {
                return None;
            }
            let oldest = self.peers.pop_front()?;
            let flow = self.by_peer[&oldest];
            if !self.owed.contains(&flow) {
                self.by_peer.remove(&oldest);
                return Some(flow);
            }
            self.peers.push_back(oldest);
        }
        None
    }

    /// A socket without a peer of its own does the same for all. A server's is first read. One that was first seen to be written to may
    /// have been read just before: what most of its peers did says so, or if none sent first, that a server's port is the lower one. One
    /// that had no port yet is a client's.
    fn take_sides(&self, flows: &mut [Flow]) {
        if self.record.ends.remote_port != 0 {
            return;
        }
        let lower = || {
            if self.record.ends.local_port == 0 {
                return false;
            }
            let above = |peer: &&Peer| peer.1 > self.record.ends.local_port;
            2 * self.by_peer.keys().filter(above).count() > self.by_peer.len()
        };
        let serves = self.read_first
            || if self.came > 0 {
                self.came >= self.went
            } else {
                lower()
            };
        let side = if serves { Side::Accepted } else { Side::Opened };
        self.by_peer
            .values()
            .for_each(|&flow| flows[flow].connection.side = side);
    }
}

/// Both ends of one connection are recorded: their ports say so. A socket that takes from any address has none of its own.
fn join_ends(flows: &mut [Flow]) {
    let mut by_ports: HashMap<(Option<u16>, Option<u16>), usize> = HashMap::new();
    for ix in 0..flows.len() {
        let own = &flows[ix].connection;
        let (local, remote) = (own.local_port, own.remote_port);
        if local.is_none() || remote.is_none() {
            continue;
        }
        if let Some(other) = by_ports.remove(&(remote, local)) {
            flows[ix].connection.peer = Some(flows[other].connection.id);
            flows[other].connection.peer = Some(flows[ix].connection.id);
        } else {
            by_ports.insert((local, remote), ix);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SocketOp::{Arrived, Read, Wrote};

    fn socket(id: u64, local_port: u16, remote_port: u16) -> SocketRecord {
        SocketRecord::example(id, Protocol::Udp, None, (local_port, remote_port))
    }

    /// What happened to one socket, one after another: what, and the peer's port, where that is known.
    fn finish(
        socket: SocketRecord,
        seen: &[(SocketOp, Option<u16>)],
    ) -> (Vec<Flow>, Vec<(SocketOp, u64, u32)>) {
        let mut datagrams = Datagrams::default();
        datagrams.add_socket(socket);
        for (at, &(op, port)) in (1..).zip(seen) {
            datagrams.add(Datagram {
                ts_ns: 10 * at,
                cpu: 0,
                socket: socket.id,
                tid: 20,
                op,
                bytes: 30,
                queued: u32::from(op == Arrived),
                peer: port.map(|port| ([1; 16], port)),
            });
        }
        let (flows, mut events) = datagrams.finish();
        events.sort_by_key(|event| event.ts_ns);
        let events = events.iter().map(|event| match event.what {
            What::Socket {
                op,
                connection,
                bytes,
                ..
            } => (op, connection - FIRST_ID, bytes),
            _ => unreachable!(),
        });
        let events = events.collect();
        (flows, events)
    }

    #[test]
    fn a_process_with_a_udp_socket_is_told_from_one_without() {
        let mut without = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let _socket =
            std::net::UdpSocket::bind("[::1]:0").or_else(|_| std::net::UdpSocket::bind("127.0.0.1:0"));
        assert!(any_socket(&[without.id(), std::process::id()]));
        assert!(!any_socket(&[without.id()]));
        without.kill().and_then(|()| without.wait()).unwrap();
    }

    #[test]
    fn what_is_read_is_what_came_first_whoever_is_answered_first() {
        let seen = [
            (Arrived, Some(7)),
            (Arrived, Some(8)),
            (Read, None),
            (Read, None),
            (Wrote, Some(8)),
            (Wrote, Some(7)),
        ];
        let (flows, events) = finish(socket(1, 53, 0), &seen);
        let of = |op, flow| (op, flow, 30);
        assert_eq!(
            events,
            [
                of(Arrived, 0),
                of(Arrived, 1),
                of(Read, 0),
                of(Read, 1),
                of(Wrote, 1),
                of(Wrote, 0)
            ]
        );
        let about: Vec<_> = flows
            .iter()
            .map(|flow| (flow.connection.side, flow.connection.remote_port))
            .collect();
        assert_eq!(about, [(Side::Accepted, Some(7)), (Side::Accepted, Some(8))]);
    }

    /// The first datagram came before the socket was known. One was taken out of the queue as it came: who is answered and has not
    /// asked did.
    #[test]
    fn what_is_not_known_is_found_by_its_answer_or_left_out() {
        let seen = [
            (Read, None),
            (Wrote, Some(7)),
            (Arrived, None),
            (Arrived, Some(8)),
            (Read, None),
            (Read, None),
            (Wrote, Some(8)),
            (Arrived, Some(9)),
        ];
        let (flows, events) = finish(socket(1, 53, 0), &seen);
        let of = |op, flow| (op, flow, 30);
        assert_eq!(
            events,
            [
                of(Wrote, 0),
                of(Arrived, 1),
                of(Read, 1),
                of(Wrote, 1),
                of(Arrived, 2)
            ]
        );
        assert!(flows.iter().all(|flow| flow.connection.side == Side::Accepted));
    }

    #[test]
    fn clients_that_take_a_port_for_each_request_share_connections() {
        let mut seen = Vec::new();
        for port in 1..=2500 {
            seen.extend([(Arrived, Some(port)), (Read, None)]);
            // Every hundredth is never answered: what it is owed stays its own.
            if port % 100 != 0 {
                seen.push((Wrote, Some(port)));
            }
        }
        let (flows, events) = finish(socket(1, 53, 0), &seen);
        assert_eq!(events.len(), seen.len());
        assert!(flows.len() <= PEERS_MAX + 25, "{}", flows.len());
        let own = flows.iter().filter(|flow| flow.connection.remote_port.is_some());
        assert_eq!(
            own.count(),
            10,
            "those of the first thousand that were never answered"
        );
    }

    /// `sendto` gives a socket its port.
    #[test]
    fn a_socket_that_sends_before_it_has_a_port_is_a_clients() {
        let (flows, _) = finish(
            socket(1, 0, 0),
            &[(Wrote, Some(53)), (Arrived, Some(53)), (Read, None)],
        );
        assert_eq!(flows[0].connection.side, Side::Opened);
        // A server that was answering as recording began, and has one client.
        let (flows, _) = finish(
            socket(1, 53, 0),
            &[(Wrote, Some(4000)), (Arrived, Some(4000)), (Read, None)],
        );
        assert_eq!(flows[0].connection.side, Side::Accepted);
    }

    #[test]
    fn a_socket_that_asks_is_a_clients_and_both_ends_find_each_other() {
        let mut datagrams = Datagrams::default();
        datagrams.add_socket(socket(1, 53, 0));
        datagrams.add_socket(socket(2, 4000, 53));
        let mut add = |ts_ns, socket, op, port: u16| {
            datagrams.add(Datagram {
                ts_ns,
                cpu: 0,
                socket,
                tid: 20,
                op,
                bytes: 0,
                queued: u32::from(op == Arrived),
                peer: Some(([1; 16], port)),
            })
        };
        add(1, 2, Wrote, 53);
        add(2, 1, Arrived, 4000);
        add(3, 1, Wrote, 4000);
        add(4, 2, Arrived, 53);
        let (flows, _) = datagrams.finish();
        let about: Vec<_> = flows
            .iter()
            .map(|flow| (flow.connection.side, flow.connection.peer.map(|id| id - FIRST_ID)))
            .collect();
        assert_eq!(about, [(Side::Opened, Some(1)), (Side::Accepted, Some(0))]);
    }
}
