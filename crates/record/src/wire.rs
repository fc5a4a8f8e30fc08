// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The records of bpf/record.h, decoded.
use plimsoll_trace::{Context, Owed, Protocol, Side, SocketOp, State, What};

/// `struct record_batch` without its events.
pub const BATCH_HEADER: usize = 40;
/// `struct record_event`.
pub const EVENT: usize = 16;
/// `RECORD_BATCH`.
pub const BATCH_EVENTS: usize = 512;
/// `struct record_batch` with all of its events; `struct cpu_state` ends with one.
pub const BATCH: usize = BATCH_HEADER + BATCH_EVENTS * EVENT;
/// Bytes of a group's path that a record holds; a longer one comes cut to these.
pub const PATH_MAX: usize = 255;

/// Where `struct cpu_state` says since when its CPU runs threads that are not recorded, ns; 0: it does not.
pub const OTHERS_SINCE_AT: usize = 32;
/// `RECORD_OTHERS_PREEMPTED`.
const OTHERS_PREEMPTED: u16 = 0x8000;
/// `RECORD_OWED_SHIFT`.
const OWED_SHIFT: u32 = 8;
/// `RECORD_KIND_OTHERS`.
const KIND_OTHERS: u8 = 7;

/// One record from the ring buffer.
pub enum Record<'a> {
    Batch(Batch<'a>),
    Socket(SocketRecord),
    Datagram(Datagram),
    Frame(Frame),
    Thread {
        ts_ns: i64,
        group_id: u64,
        tid: u32,
        tgid: u32,
        comm: String,
    },
    Group {
        group_id: u64,
        path: String,
    },
    Single {
        ts_ns: i64,
        cpu: u32,
        what: What,
    },
}

/// A socket that a recorded thread used for the first time.
#[derive(Clone, Copy, Debug)]
pub struct SocketRecord {
    pub ts_ns: i64,
    pub cpu: u32,
    pub id: u64,
    pub tid: u32,
    pub tgid: u32,
    pub protocol: Protocol,
    /// Which side began the connection; `None`: that was not seen.
    pub side: Option<Side>,
    /// It may have been there as recording began.
    pub existed: bool,
    pub netns: u32,
    pub ends: Ends,
    /// What the recorder's programs call it before a recorded thread uses it.
    pub number: u32,
}

#[cfg(test)]
impl SocketRecord {
    /// Of this process, between two ports (local and remote) of one address; made before it was seen where nothing says by whom.
    pub fn example(id: u64, protocol: Protocol, side: Option<Side>, ports: (u16, u16)) -> SocketRecord {
        SocketRecord {
            ts_ns: 10 * id as i64,
            cpu: 1,
            id,
            tid: 7,
            tgid: std::process::id(),
            protocol,
            side,
            existed: side.is_none(),
            netns: 0,
            ends: Ends {
                netns: 0,
                local: [1; 16],
                remote: [1; 16],
                local_port: ports.0,
                remote_port: ports.1,
            },
            number: id as u32,
        }
    }
}

/// `struct record_frame`: frames of one HTTP/2 stream in one packet.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    pub ts_ns: i64,
    pub cpu: u32,
    /// [`SocketRecord::number`].
    pub number: u32,
    pub stream: u32,
    /// The packet was sent by the socket, not to it.
    pub goes: bool,
    /// Headers are among them: the first ones begin the stream.
    pub headers: bool,
    /// This side has no more to say.
    pub ends: bool,
    /// This side breaks the stream off.
    pub breaks: bool,
    /// None of these: the connection is encrypted and may be HTTP/2, and is not followed any more.
    pub sealed: bool,
    /// None of these: the connection is not HTTP/2, and is not followed any more.
    pub other: bool,
    /// Beside one of these: its TLS handshake was seen from its beginning, and this packet brings the first data after it.
    pub secured: bool,
    /// Bytes of the packet's data up to where the last of them ends.
    pub at: u32,
    /// Of what goes: when the connection was last written to, and by which thread; 0: not known.
    pub wrote_ns: i64,
    pub tid: u32,
}

/// `struct record_datagram`.
#[derive(Clone, Copy, Debug)]
pub struct Datagram {
    pub ts_ns: i64,
    pub cpu: u32,
    /// [`SocketRecord::id`].
    pub socket: u64,
    pub tid: u32,
    /// Arrived, read or wrote.
    pub op: SocketOp,
    pub bytes: u32,
    /// In the socket's queue now.
    pub queued: u32,
    /// `None`: not known, as of what is read.
    pub peer: Option<Peer>,
}

/// Address and port.
pub type Peer = ([u8; 16], u16);

/// What the two ends of a connection have in common, in reverse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ends {
    /// Each network namespace has loopback addresses of its own; 0 for all others.
    pub netns: u32,
    pub local: [u8; 16],
    pub remote: [u8; 16],
    pub local_port: u16,
    pub remote_port: u16,
}

impl Ends {
    pub fn reversed(self) -> Ends {
        Ends {
            netns: self.netns,
            local: self.remote,
            remote: self.local,
            local_port: self.remote_port,
            remote_port: self.local_port,
        }
    }
}

/// Which of a CPU's batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    Sched,
    Sockets,
}

/// Events of one CPU, in order of time.
#[derive(Clone, Copy)]
pub struct Batch<'a> {
    pub cpu: u32,
    pub stream: Stream,
    pub base_ns: u64,
    pub last_ns: u64,
    /// Events lost on this CPU before this batch, since recording began.
    pub lost: u64,
    pub events: &'a [u8],
    pub bytes: &'a [u8],
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn text_at(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

impl<'a> Batch<'a> {
    /// `bytes` begin with a batch; what its count does not cover is left out.
    pub fn parse(bytes: &'a [u8]) -> Option<Batch<'a>> {
        let count = u32_at(bytes.get(..BATCH_HEADER)?, 32) as usize;
        let events = bytes.get(BATCH_HEADER..BATCH_HEADER + count * EVENT)?;
        Some(Batch {
            cpu: u32_at(bytes, 4),
            stream: match u32_at(bytes, 36) {
                0 => Stream::Sched,
                _ => Stream::Sockets,
            },
            base_ns: u64_at(bytes, 8),
            lost: u64_at(bytes, 16),
            last_ns: u64_at(bytes, 24),
            events,
            bytes: &bytes[..BATCH_HEADER + count * EVENT],
        })
    }

    /// Lower halves of the ids of the groups that took time from the recorded ones.
    pub fn groups_of_others(&self) -> impl Iterator<Item = u32> + 'a {
        let others = self.events.chunks_exact(EVENT).filter(|e| e[12] == KIND_OTHERS);
        others.map(|event| u32_at(event, 8))
    }
}

fn socket_event(kind: u8, tid: u32, id: u32, bytes: u32) -> Option<What> {
    Some(What::Socket {
        tid,
        connection: id as u64,
        op: match kind {
            3 => SocketOp::Arrived,
            4 => SocketOp::Read,
            5 => SocketOp::Wrote,
            6 => SocketOp::Closed,
            10 => SocketOp::Left,
            _ => return None,
        },
        bytes,
    })
}

/// One event of a batch; `None` if its kind is not known. The group of others is the lower half of the kernel's id.
pub fn event(bytes: &[u8], base_ns: u64) -> Option<(i64, What)> {
    let ts_ns = base_ns.saturating_add(u32_at(bytes, 0).into()) as i64;
    let (a, b, kind, arg) = (u32_at(bytes, 4), u32_at(bytes, 8), bytes[12], bytes[13]);
    let mask = u16::from_ne_bytes([bytes[14], bytes[15]]);
    let what = match kind {
        1 => {
            let preempted = arg != 0;
            let prev_state = if preempted {
                State::Runnable
            } else {
                State::from_task_mask(mask as u64)
            };
            What::Switch {
                prev: a,
                prev_state,
                next: b,
            }
        }
        2 => {
            let context = match arg {
                0 => Context::Task,
                1 => Context::TaskSoftirq,
                2 => Context::Timer,
                3 => Context::Interrupt,
                _ => Context::Unknown,
            };
            What::Waking {
                tid: a,
                waker: b,
                context,
            }
        }
        8 => match arg {
            0 => What::Migrate {
                tid: a,
                target_cpu: b,
            },
            _ => What::Placed {
                tid: a,
                target_cpu: b,
            },
        },
        9 => What::Owed {
            tid: a,
            owed: Owed {
                own_ns: b as i32,
                // 24 bits with a sign.
                beside_ns: ((u32::from(mask) | u32::from(arg) << 16) << 8) as i32 >> 8 << OWED_SHIFT,
            },
        },
        KIND_OTHERS => What::Others {
            group: Some(b),
            run_ns: u64::from(a) | u64::from(arg) << 32,
            state: match mask & OTHERS_PREEMPTED != 0 {
                true => State::Runnable,
                false => State::from_task_mask(mask as u64),
            },
        },
        _ => socket_event(kind, a, b, u32::from(mask) | u32::from(arg) << 16)?,
    };
    Some((ts_ns, what))
}

/// Decodes one record; `None` if it is not one.
pub fn parse(bytes: &[u8]) -> Option<Record<'_>> {
    let kind = u32_at(bytes.get(..24)?, 0);
    let (cpu, ts_ns) = (u32_at(bytes, 4), u64_at(bytes, 8) as i64);
    Some(match kind {
        1 => Record::Batch(Batch::parse(bytes)?),
        2 => {
            let bytes = bytes.get(..48)?;
            Record::Thread {
                ts_ns,
                group_id: u64_at(bytes, 16),
                tid: u32_at(bytes, 24),
                tgid: u32_at(bytes, 28),
                comm: text_at(&bytes[32..]),
            }
        }
        3 => Record::Group {
            group_id: u64_at(bytes, 16),
            path: text_at(&bytes[24..]),
        },
        8 => Record::Socket(socket(bytes.get(..80)?, cpu, ts_ns)?),
        9 => {
            let bytes = bytes.get(..32)?;
            let kind = u8::try_from(u32_at(bytes, 24)).ok()?;
            Record::Single {
                ts_ns,
                cpu,
                what: socket_event(kind, u32_at(bytes, 16), u32_at(bytes, 20), u32_at(bytes, 28))?,
            }
        }
        10 => {
            let bytes = bytes.get(..56)?;
            let port = u16::from_ne_bytes([bytes[36], bytes[37]]);
            let peer: [u8; 16] = bytes[40..56].try_into().expect("sixteen bytes");
            Record::Datagram(Datagram {
                ts_ns,
                cpu,
                socket: u32_at(bytes, 16).into(),
                tid: u32_at(bytes, 20),
                op: match u32_at(bytes, 24) {
                    3 => SocketOp::Arrived,
                    4 => SocketOp::Read,
                    5 => SocketOp::Wrote,
                    _ => return None,
                },
                bytes: u32_at(bytes, 28),
                queued: u32_at(bytes, 32),
                peer: (port != 0).then_some((peer, port)),
            })
        }
        11 => {
            let bytes = bytes.get(..48)?;
            let flags = bytes[41];
            Record::Frame(Frame {
                ts_ns,
                cpu,
                wrote_ns: u64_at(bytes, 16) as i64,
                number: u32_at(bytes, 24),
                tid: u32_at(bytes, 28),
                stream: u32_at(bytes, 32),
                at: u32_at(bytes, 36),
                goes: bytes[40] != 0,
                headers: flags & 1 != 0,
                ends: flags & 2 != 0,
                breaks: flags & 4 != 0,
                sealed: flags & 8 != 0,
                other: flags & 16 != 0,
                secured: flags & 32 != 0,
            })
        }
        4..=7 => {
            let (a, b) = (u32_at(bytes, 16), u32_at(bytes, 20));
            let what = match kind {
                4 => What::Fork { parent: a, child: b },
                5 => What::Exit { tid: a },
                6 => What::Request { tid: a, begin: true },
                _ => What::Request { tid: a, begin: false },
            };
            Record::Single { ts_ns, cpu, what }
        }
        _ => return None,
    })
}

/// Decodes bytes as a record and, of a batch, its events. For `make fuzz-readers`, which has no kernel.
#[doc(hidden)]
pub fn read_what_bpf_sends(bytes: &[u8]) {
    if let Some(Record::Batch(batch)) = parse(bytes) {
        batch.groups_of_others().for_each(drop);
        for bytes in batch.events.chunks_exact(EVENT) {
            event(bytes, batch.base_ns);
        }
    }
}

/// `struct record_socket`.
fn socket(bytes: &[u8], cpu: u32, ts_ns: i64) -> Option<SocketRecord> {
    let u16_at = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
    let address = |at: usize| -> [u8; 16] { bytes[at..at + 16].try_into().expect("sixteen bytes") };
    let family = i32::from(u16_at(28));
    // As an IPv6 socket shows it.
    let mapped = |address: [u8; 16]| match family {
        libc::AF_INET => {
            let mut mapped = [0; 16];
            mapped[10..12].fill(0xff);
            mapped[12..].copy_from_slice(&address[..4]);
            mapped
        }
        _ => address,
    };
    let (local, remote) = (mapped(address(40)), mapped(address(56)));
    let of_netns = |address| {
        let ip = std::net::Ipv6Addr::from(address);
        ip.is_loopback() || ip.to_ipv4_mapped().is_some_and(|ip| ip.is_loopback())
    };
    let netns = u32_at(bytes, 36);
    let protocol = match family {
        libc::AF_INET | libc::AF_INET6 if bytes[30] == 4 => Protocol::Udp,
        libc::AF_INET | libc::AF_INET6 => Protocol::Tcp,
        libc::AF_UNIX => Protocol::Unix,
        _ => return None,
    };
    Some(SocketRecord {
        ts_ns,
        cpu,
        id: u32_at(bytes, 16) as u64,
        tid: u32_at(bytes, 20),
        tgid: u32_at(bytes, 24),
        protocol,
        side: match bytes[30] {
            1 => Some(Side::Accepted),
            2 => Some(Side::Opened),
            3 => Some(Side::Neither),
            _ => None,
        },
        existed: bytes[31] != 0,
        netns,
        ends: Ends {
            netns: if protocol == Protocol::Tcp && of_netns(local) {
                netns
            } else {
                0
            },
            local,
            remote,
            local_port: u16_at(32),
            remote_port: u16_at(34),
        },
        number: u32_at(bytes, 72),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by `make fuzz-readers`.
    #[test]
    fn a_batch_at_the_end_of_all_time_is_decoded() {
        let mut bytes = vec![0xff; BATCH_HEADER + EVENT];
        bytes[..4].copy_from_slice(&1u32.to_ne_bytes());
        bytes[32..36].copy_from_slice(&1u32.to_ne_bytes());
        assert!(matches!(parse(&bytes), Some(Record::Batch(batch)) if batch.events.len() == EVENT));
        read_what_bpf_sends(&bytes);
    }
}
