// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which connection is which: turns what the kernel's side says of a socket into the header's table, and finds out who
//! began a connection that is older than the recording, and which two are the ends of one.
use crate::cgroup::Hierarchy;
use crate::datagrams::Flow;
use crate::wire::{Ends, SocketRecord};
use plimsoll_trace::{Connection, Event, GroupIx, Protocol, Side, SocketOp, Sockets, Tid, What};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::Path;

/// What a connection takes at most in the header (JSON).
const CONNECTION_BYTES: u64 = 250;

/// What is never seen of sockets, however new the kernel.
const LEFT_OUT: &str = "MPTCP, and the end of Unix streams";
/// Before 6.3.
const NO_DATAGRAMS: &str = "UDP, ";
/// Without cgroup v2, or CAP_NET_ADMIN, or CONFIG_CGROUP_BPF.
const NO_STREAMS: &str = "which of a connection's streams is whose (HTTP/2), ";

/// State of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";

#[derive(Default)]
pub struct Connections {
    known: Vec<Known>,
    by_id: HashMap<u64, usize>,
    /// Those whose other end has not been seen, by their ends.
    alone: HashMap<Ends, usize>,
    /// Ports that are listened on, by network namespace.
    listening: HashMap<u32, BTreeSet<u16>>,
}

struct Known {
    connection: Connection,
    /// The thread that used it first, and when.
    tid: Tid,
    ts_ns: i64,
}

impl Connections {
    /// Looks which sockets listen in the network namespaces of the processes that are recorded: of all, or of one group.
    pub fn new(hierarchy: &Hierarchy, only_below: Option<&str>) -> Connections {
        let mut connections = Connections::default();
        for pid in processes(hierarchy, only_below) {
            let netns = numbered(&format!("/proc/{pid}/ns/net"), "net");
            if let Some(netns) = netns.and_then(|netns| netns.try_into().ok()) {
                connections.ports(netns, pid);
            }
        }
        connections
    }

    /// Ports that are listened on in a namespace, which is that of a process.
    fn ports(&mut self, netns: u32, pid: u32) -> &BTreeSet<u16> {
        self.listening.entry(netns).or_insert_with(|| {
            let read = |name| fs::read_to_string(format!("/proc/{pid}/net/{name}"));
            ["tcp", "tcp6"]
                .into_iter()
                .flat_map(|name| listening(&read(name).unwrap_or_default()))
                .collect()
        })
    }

    /// A recorded thread used a socket for the first time. Returns how the connection began, where that was seen.
    pub fn add(&mut self, record: &SocketRecord) -> Option<Event> {
        let side = match record.side {
            None if record.protocol == Protocol::Tcp => self.side_by_port(record),
            side => side.unwrap_or(Side::Neither),
        };
        let ix = self.known.len();
        self.by_id.insert(record.id, ix);
        let peer = self.alone.remove(&record.ends.reversed());
        match peer {
            Some(other) => self.known[other].connection.peer = Some(record.id),
            None => drop(self.alone.insert(record.ends, ix)),
        }
        let port = |port: u16| (record.protocol == Protocol::Tcp).then_some(port);
        self.known.push(Known {
            connection: Connection {
                id: record.id,
                protocol: record.protocol,
                side,
                before: record.existed,
                local_port: port(record.ends.local_port),
                remote_port: port(record.ends.remote_port),
                group: None,
                peer: peer.map(|other| self.known[other].connection.id),
                secured_ns: None,
            },
            tid: record.tid,
            ts_ns: record.ts_ns,
        });
        let op = match side {
            Side::Accepted => SocketOp::Accepted,
            Side::Opened => SocketOp::Opened,
            Side::Neither => return None,
        };
        (!record.existed).then_some(Event {
            ts_ns: record.ts_ns,
            cpu: record.cpu,
            what: What::Socket {
                tid: record.tid,
                connection: record.id,
                op,
                bytes: 0,
            },
        })
    }

    /// Of a connection that is older than the recording: a port that is listened on has accepted it.
    fn side_by_port(&mut self, record: &SocketRecord) -> Side {
        let ports = self.ports(record.netns, record.tgid);
        match ports.contains(&record.ends.local_port) {
            true => Side::Accepted,
            // None is found where the process was gone already.
            false if ports.contains(&record.ends.remote_port) || !ports.is_empty() => Side::Opened,
            false => Side::Neither,
        }
    }

    pub fn ids(&self) -> impl Iterator<Item = u64> + '_ {
        self.known.iter().map(|known| known.connection.id)
    }

    pub fn get(&self, id: u64) -> Option<&Connection> {
        let ix = *self.by_id.get(&id)?;
        Some(&self.known[ix].connection)
    }

    /// Its TLS handshake was over by then: see [`Connection::secured_ns`].
    pub fn secure(&mut self, id: u64, ts_ns: i64) {
        if let Some(&ix) = self.by_id.get(&id) {
            self.known[ix].connection.secured_ns = Some(ts_ns);
        }
    }

    fn len(&self) -> u64 {
        self.known.len() as u64
    }

    /// What the table takes at most in the header, with so many `more`.
    pub fn header_bytes(&self, more: u64) -> u64 {
        (self.len() + more) * CONNECTION_BYTES
    }

    /// Likewise those of datagrams.
    pub fn add_flows(&mut self, flows: Vec<Flow>) {
        self.known.extend(flows.into_iter().map(|flow| Known {
            connection: flow.connection,
            tid: flow.socket.tid,
            ts_ns: flow.socket.ts_ns,
        }));
    }

    /// Puts others into the place of some: of each the number of the one that it stands for, which is left out.
    pub fn replace(&mut self, by: Vec<(u64, Connection)>) {
        let gone: HashSet<u64> = by.iter().map(|&(id, _)| id).collect();
        let instead = by.into_iter().filter_map(|(id, connection)| {
            let known = &self.known[*self.by_id.get(&id)?];
            Some(Known { connection, ..*known })
        });
        let instead: Vec<Known> = instead.collect();
        self.known.retain(|known| !gone.contains(&known.connection.id));
        for known in &mut self.known {
            let peer = &mut known.connection.peer;
            *peer = peer.filter(|peer| !gone.contains(peer));
        }
        self.known.extend(instead);
        let numbers = self.known.iter().map(|known| known.connection.id);
        self.by_id = numbers.zip(0..).collect();
    }

    /// The header's table. `group_of`: the group of a thread at a time; `has_datagrams`: they were looked at, too; `has_streams`:
    /// and those of HTTP/2; `sealed`: [`Sockets::sealed`].
    pub fn finish(
        self,
        group_of: impl Fn(Tid, i64) -> Option<GroupIx>,
        has_datagrams: bool,
        has_streams: bool,
        sealed: u64,
    ) -> Sockets {
        let of = |known: Known| Connection {
            group: group_of(known.tid, known.ts_ns),
            ..known.connection
        };
        Sockets {
            recorded: true,
            without: Some(format!(
                "{}{}{LEFT_OUT}",
                if has_datagrams { "" } else { NO_DATAGRAMS },
                if has_streams { "" } else { NO_STREAMS },
            )),
            connections: self.known.into_iter().map(of).collect(),
            sealed,
        }
    }
}

/// Those that are recorded: of all, or of one group. By their threads.
pub fn processes(hierarchy: &Hierarchy, only_below: Option<&str>) -> Vec<u32> {
    match only_below {
        Some(group) => hierarchy.threads(group),
        None => numbers_in(Path::new("/proc")),
    }
}

/// N of a link to `KIND:[N]`, as of a namespace or a socket.
pub fn numbered(link: &str, kind: &str) -> Option<u64> {
    let to = fs::read_link(link).ok()?;
    let number = to.to_str()?.strip_prefix(kind)?.strip_prefix(":[")?;
    number.strip_suffix(']')?.parse().ok()
}

/// The entries that are numbers: of /proc the processes.
pub(crate) fn numbers_in(dir: &Path) -> Vec<u32> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Local ports of listening sockets in the text of `/proc/net/tcp` or `tcp6`.
fn listening(text: &str) -> Vec<u16> {
    let port = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let (_, port) = words.next()?.rsplit_once(':')?;
        (words.nth(1)? == LISTEN).then(|| u16::from_str_radix(port, 16).ok())?
    };
    text.lines().skip(1).filter_map(port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_connection_find_each_other_also_when_the_ports_come_again() {
        let mut connections = Connections::default();
        let ends = [(1, 2), (2, 1), (2, 1), (1, 2), (3, 4)];
        for (id, ports) in (1..).zip(ends) {
            connections.add(&SocketRecord::example(
                id,
                Protocol::Tcp,
                Some(Side::Opened),
                ports,
            ));
        }
        let table = connections
            .finish(|tid, ts_ns| Some((tid as i64 + ts_ns) as u32), true, true, 0)
            .connections;
        let peers: Vec<_> = table.iter().map(|c| c.peer).collect();
        assert_eq!(peers, [Some(2), Some(1), Some(4), Some(3), None]);
        assert_eq!(table[0].group, Some(17));
    }

    #[test]
    fn how_a_connection_began_is_an_event_only_where_it_was_seen() {
        let mut connections = Connections::default();
        let began = connections.add(&SocketRecord::example(
            1,
            Protocol::Tcp,
            Some(Side::Accepted),
            (80, 9),
        ));
        assert!(matches!(
            began.unwrap().what,
            What::Socket {
                op: SocketOp::Accepted,
                connection: 1,
                ..
            }
        ));
        assert!(connections
            .add(&SocketRecord::example(2, Protocol::Unix, None, (0, 0)))
            .is_none());
        let table = connections.finish(|_, _| None, true, true, 0).connections;
        assert_eq!(
            (table[1].side, table[1].before, table[1].local_port),
            (Side::Neither, true, None)
        );
    }

    #[test]
    fn who_listens_has_accepted_what_is_older_than_the_recording() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut connections = Connections::default();
        connections.add(&SocketRecord::example(1, Protocol::Tcp, None, (port, 9)));
        connections.add(&SocketRecord::example(2, Protocol::Tcp, None, (9, port)));
        let table = connections.finish(|_, _| None, true, true, 0).connections;
        let sides: Vec<_> = table.iter().map(|c| c.side).collect();
        assert_eq!(sides, [Side::Accepted, Side::Opened]);
    }

    #[test]
    fn listening_ports_are_read_as_the_kernel_writes_them() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
                    0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 17 1 0\n   \
                    1: 0100007F:1F91 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 18 1 0\n";
        assert_eq!(listening(text), [0x1f90]);
    }
}
