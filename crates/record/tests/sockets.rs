// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is recorded of the sockets of known loads, on the kernel at hand. Where BPF is not permitted, the tests say so and
//! do nothing.
#[macro_use]
mod common;

use common::{named, record_into, TestGroup};
use plimsoll_trace::{Connection, Event, Header, Protocol, Side, SocketOp, TraceReader, What};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::ptr;
use std::time::Duration;

/// Header, and the events of sockets: of which, when, by whom, what, how much.
struct Seen {
    header: Header,
    events: Vec<Event>,
}

impl Seen {
    fn of(cgroup: Option<String>, load: impl FnOnce() + Send + 'static) -> Option<Seen> {
        let dir = tempfile::tempdir().unwrap();
        let output = dir.path().join("t.parquet");
        let report = record_into(&output, None, cgroup, load)?;
        if let Some(why) = report.without_sockets {
            skipped!("{why}");
            return None;
        }
        assert_eq!(report.lost, 0);
        let mut reader = TraceReader::open(&output).unwrap();
        let (mut events, mut part) = (Vec::new(), Vec::new());
        while reader.read_group(&mut part).unwrap() {
            events.append(&mut part);
        }
        Some(Seen {
            header: reader.header().clone(),
            events,
        })
    }

    fn connection(&self, wanted: impl Fn(&Connection) -> bool) -> &Connection {
        let mut found = self.header.sockets.connections.iter().filter(|c| wanted(c));
        let one = found.next().expect("there is one");
        assert!(found.next().is_none(), "{:?}", self.header.sockets);
        one
    }

    /// What happened to a connection: by whom (a thread's name), what, how many bytes; but not whether what was written
    /// was held, as a busy machine may hold it.
    fn story(&self, id: u64) -> Vec<(&str, SocketOp, u32)> {
        let name = |tid: u32| {
            let thread = self.header.threads.iter().find(|t| t.tid == tid);
            thread.map_or("", |t| &t.comm)
        };
        let of = |event: &Event| match event.what {
            What::Socket {
                tid,
                connection,
                op,
                bytes,
            } if connection == id && op != SocketOp::Left => Some((name(tid), op, bytes)),
            _ => None,
        };
        self.events.iter().filter_map(of).collect()
    }

    fn times(&self, id: u64, wanted: SocketOp) -> Vec<i64> {
        let of = |event: &Event| match event.what {
            What::Socket { connection, op, .. } if connection == id && op == wanted => Some(event.ts_ns),
            _ => None,
        };
        self.events.iter().filter_map(of).collect()
    }
}

fn set_option<T>(stream: &TcpStream, name: libc::c_int, value: &T) {
    // SAFETY: `value` and what it points to live until the call returns, which keeps neither.
    let set = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            ptr::from_ref(value).cast(),
            size_of::<T>() as u32,
        )
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

/// A client asks `rounds` times with 100 bytes and is answered with 300.
fn ask(mut stream: impl Read + Write, rounds: usize) {
    for _ in 0..rounds {
        stream.write_all(&[1; 100]).unwrap();
        stream.read_exact(&mut [0; 300]).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn answer(mut stream: impl Read + Write) {
    while stream.read_exact(&mut [0; 100]).is_ok() {
        stream.write_all(&[1; 300]).unwrap();
    }
}

#[test]
fn a_request_over_tcp_is_seen_from_both_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let load = move || {
        let server = named("plim-server", move || answer(listener.accept().unwrap().0));
        named("plim-client", move || {
            ask(TcpStream::connect(address).unwrap(), 3)
        })
        .join()
        .unwrap();
        server.join().unwrap();
    };
    let Some(seen) = Seen::of(None, load) else { return };
    let accepted = seen.connection(|c| c.local_port == Some(address.port()));
    let opened = seen.connection(|c| c.remote_port == Some(address.port()));
    assert_eq!((accepted.side, opened.side), (Side::Accepted, Side::Opened));
    assert_eq!((accepted.peer, opened.peer), (Some(opened.id), Some(accepted.id)));
    assert!(accepted.protocol == Protocol::Tcp && !accepted.before && accepted.group.is_some());

    // The first data may come before the connection is accepted.
    let mut story = seen.story(accepted.id);
    story.retain(|step| step.1 != SocketOp::Accepted);
    // Over loopback the client's own system call delivers, unless the kernel's softirq thread was busy.
    let steps: Vec<_> = story.iter().map(|step| (step.1, step.2)).collect();
    let round = [
        (SocketOp::Arrived, 100),
        (SocketOp::Read, 100),
        (SocketOp::Wrote, 300),
    ];
    assert_eq!(steps[..9], round.repeat(3));
    assert_eq!(steps[9..], [(SocketOp::Closed, 0)]);
    let server_steps = story
        .iter()
        .filter(|s| matches!(s.1, SocketOp::Read | SocketOp::Wrote));
    assert!(server_steps.clone().all(|s| s.0 == "plim-server"), "{story:?}");
    let brought = story
        .iter()
        .filter(|s| s.1 == SocketOp::Arrived && s.0 == "plim-client");
    assert!(brought.count() >= 2, "{story:?}");
    assert_eq!(seen.story(opened.id)[0], ("plim-client", SocketOp::Opened, 0));
}

/// An answer that does not fit into the client's window until it reads, but into the server's buffer.
#[test]
fn an_answer_that_is_held_is_seen_to_leave() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    const ANSWER: usize = 160 << 10;
    let load = move || {
        let server = named("plim-server", move || {
            let (mut stream, _) = listener.accept().unwrap();
            set_option(&stream, libc::SO_SNDBUF, &200_000);
            while stream.read_exact(&mut [0; 100]).is_ok() {
                stream.write_all(&[1; ANSWER]).unwrap();
            }
        });
        named("plim-client", move || {
            let mut stream = TcpStream::connect(address).unwrap();
            // As it is, but that it does not grow. A smaller one would drop what the window allowed before.
            set_option(&stream, libc::SO_RCVBUF, &65_536);
            for _ in 0..2 {
                stream.write_all(&[1; 100]).unwrap();
                std::thread::sleep(Duration::from_millis(50));
                stream.read_exact(&mut [0; ANSWER]).unwrap();
            }
        })
        .join()
        .unwrap();
        server.join().unwrap();
    };
    let Some(seen) = Seen::of(None, load) else { return };
    let accepted = seen.connection(|c| c.local_port == Some(address.port()));
    let times = |op| seen.times(accepted.id, op);
    let (wrote, left) = (times(SocketOp::Wrote), times(SocketOp::Left));
    assert_eq!(left.len(), 2, "{left:?}");
    let (first, second) = (times(SocketOp::Arrived)[0], times(SocketOp::Arrived)[1]);
    let written = wrote.iter().filter(|&&ns| ns < second).max().unwrap();
    assert!(
        left[0] - first >= 45_000_000 && left[0] < second,
        "{first} {left:?} {second}"
    );
    assert!(left[0] > *written && left[1] - second >= 45_000_000);
}

/// The client drops what arrives, for longer than the server waits until it sends again: when a limit let it write is not when
/// that left.
#[test]
fn an_answer_that_is_lost_is_not_held() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let load = move || {
        let server = named("plim-server", move || answer(listener.accept().unwrap().0));
        named("plim-client", move || {
            let stream = TcpStream::connect(address).unwrap();
            ask(&stream, 1);
            let mut nothing = libc::sock_filter {
                code: (libc::BPF_RET | libc::BPF_K) as u16,
                jt: 0,
                jf: 0,
                k: 0,
            };
            let drops = libc::sock_fprog {
                len: 1,
                filter: &raw mut nothing,
            };
            set_option(&stream, libc::SO_ATTACH_FILTER, &drops);
            (&stream).write_all(&[1; 100]).unwrap();
            std::thread::sleep(Duration::from_millis(50));
            set_option(&stream, libc::SO_DETACH_FILTER, &0);
            (&stream).read_exact(&mut [0; 300]).unwrap();
            ask(&stream, 1);
        })
        .join()
        .unwrap();
        server.join().unwrap();
    };
    let Some(seen) = Seen::of(None, load) else { return };
    let accepted = seen.connection(|c| c.local_port == Some(address.port()));
    let asked = seen.times(accepted.id, SocketOp::Arrived);
    let wrote = seen.times(accepted.id, SocketOp::Wrote)[1];
    assert!(
        asked[2] - wrote >= 100_000_000,
        "the answer came at once: {asked:?} {wrote}"
    );
    // On a slow machine any answer may leave some time after it was written.
    let left = seen.times(accepted.id, SocketOp::Left);
    assert!(
        left.iter().all(|&ns| ns < wrote + 40_000_000 || ns > asked[2]),
        "{left:?} {asked:?} {wrote}"
    );
}

#[test]
fn a_request_over_a_unix_stream_is_seen_from_both_ends() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let load = move || {
        let server = named("plim-userver", move || answer(listener.accept().unwrap().0));
        named("plim-uclient", move || ask(UnixStream::connect(path).unwrap(), 3))
            .join()
            .unwrap();
        server.join().unwrap();
    };
    let Some(seen) = Seen::of(None, load) else { return };
    let of_server = |c: &Connection| {
        let story = seen.story(c.id);
        c.protocol == Protocol::Unix
            && story
                .iter()
                .any(|s| s.0 == "plim-userver" && s.1 == SocketOp::Read)
    };
    let accepted = seen.connection(of_server);
    assert_eq!(accepted.side, Side::Accepted);
    let opened = seen.connection(|c| c.peer == Some(accepted.id));
    assert_eq!((opened.side, accepted.peer), (Side::Opened, Some(opened.id)));
    let steps: Vec<_> = seen.story(accepted.id).iter().map(|s| (s.0, s.1)).collect();
    let round = [
        ("plim-uclient", SocketOp::Arrived),
        ("plim-userver", SocketOp::Read),
        ("plim-userver", SocketOp::Wrote),
    ];
    assert_eq!(steps, round.repeat(3));
}

/// Which side accepted a connection that is older than the recording is known by the port that is listened on.
/// Three clients ask a socket of IPv4, and one that takes both kinds, at once; a thread answers them in any order.
#[test]
fn requests_over_udp_are_seen_by_their_peers() {
    for at in ["127.0.0.1:0", "[::]:0"] {
        let socket = UdpSocket::bind(at).unwrap();
        let port = socket.local_addr().unwrap().port();
        let load = move || {
            let server = named("plim-server", move || {
                let mut room = [0; 100];
                let mut asked = Vec::new();
                for _ in 0..4 {
                    for _ in 0..3 {
                        let (bytes, peer) = socket.recv_from(&mut room).unwrap();
                        asked.push((bytes, peer));
                    }
                    while let Some((bytes, peer)) = asked.pop() {
                        socket.send_to(&room[..2 * bytes], peer).unwrap();
                    }
                }
            });
            let clients: Vec<_> = (1..=3)
                .map(|number| {
                    named(&format!("plim-client{number}"), move || {
                        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                        socket.connect(("127.0.0.1", port)).unwrap();
                        for _ in 0..4 {
                            // The server is asleep: where it reads on, who sent what it takes at once is a guess.
                            std::thread::sleep(Duration::from_millis(3 * number as u64));
                            socket.send(&[1; 30][..10 * number]).unwrap();
                            socket.recv(&mut [0; 100]).unwrap();
                        }
                    })
                })
                .collect();
            clients.into_iter().for_each(|client| client.join().unwrap());
            server.join().unwrap();
        };
        let Some(seen) = Seen::of(None, load) else { return };
        let ours = |c: &&Connection| c.protocol == Protocol::Udp && c.local_port == Some(port);
        let all = &seen.header.sockets.connections;
        if !all.iter().any(|c| c.protocol == Protocol::Udp) {
            skipped!("{:?}", seen.header.sockets.without);
            return;
        }
        let flows: Vec<&Connection> = all.iter().filter(ours).collect();
        assert_eq!(flows.len(), 3, "{at}: {flows:?}");
        for flow in flows {
            assert_eq!(flow.side, Side::Accepted);
            let client = all
                .iter()
                .find(|c| Some(c.id) == flow.peer)
                .expect("its other end");
            assert_eq!(client.side, Side::Opened);
            let story = seen.story(flow.id);
            // What came before a recorded thread first used the socket is not seen: the first request of each, at most.
            let whole = story.iter().position(|step| step.1 == SocketOp::Arrived).unwrap();
            assert!(whole <= 1, "{at}: {story:?}");
            let bytes = story[whole].2;
            assert!(story.len() - whole >= 9, "{at}: {story:?}");
            for round in story[whole..].chunks(3) {
                assert_eq!(
                    round.iter().map(|step| (step.1, step.2)).collect::<Vec<_>>(),
                    [
                        (SocketOp::Arrived, bytes),
                        (SocketOp::Read, bytes),
                        (SocketOp::Wrote, 2 * bytes)
                    ],
                    "{at}: {story:?}"
                );
                assert_eq!((round[1].0, round[2].0), ("plim-server", "plim-server"));
            }
            let asked: Vec<_> = seen.story(client.id);
            assert_eq!((asked[0].1, asked[0].2), (SocketOp::Wrote, bytes));
        }
    }
}

#[test]
fn a_connection_that_is_older_than_the_recording_is_known() {
    let listener = TcpListener::bind("[::1]:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let client = TcpStream::connect(("::1", port)).unwrap();
    let (stream, _) = listener.accept().unwrap();
    let load = move || {
        let server = named("plim-server6", move || answer(stream));
        named("plim-client6", move || ask(client, 3)).join().unwrap();
        server.join().unwrap();
        drop(listener);
    };
    let Some(seen) = Seen::of(None, load) else { return };
    let accepted = seen.connection(|c| c.local_port == Some(port));
    assert!(accepted.before && accepted.side == Side::Accepted, "{accepted:?}");
    let opened = seen.connection(|c| c.remote_port == Some(port));
    assert!(
        opened.before && opened.side == Side::Opened && opened.peer == Some(accepted.id),
        "{opened:?}"
    );
    let arrived = seen
        .story(accepted.id)
        .iter()
        .filter(|s| s.1 == SocketOp::Arrived)
        .map(|s| s.2)
        .sum::<u32>();
    assert_eq!(arrived, 300);
}

/// Only the service's end; and what others take from its CPUs while it is recorded.
#[test]
fn a_group_is_recorded_with_its_sockets_and_what_others_take() {
    let Some(group) = TestGroup::new(&format!("plimsoll-sockets-{}", std::process::id())) else {
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let tasks = [group.0.join("tasks"), group.0.join("cgroup.threads")];
    let load = move || {
        let server = named("plim-inside", move || {
            // A thread of its own in version 1; version 2 wants a threaded group.
            let file = tasks.iter().find(|file| file.exists()).unwrap();
            if std::fs::write(file, "0").is_ok() {
                answer(listener.accept().unwrap().0);
            } else {
                drop(listener.accept());
            }
        });
        named("plim-outside", move || {
            let stream = TcpStream::connect(address).unwrap();
            let _ = std::panic::catch_unwind(|| ask(stream, 3));
            let until = std::time::Instant::now() + Duration::from_millis(300);
            while std::time::Instant::now() < until {}
        })
        .join()
        .unwrap();
        server.join().unwrap();
    };
    let Some(seen) = Seen::of(Some(group.1.clone()), load) else {
        return;
    };
    if seen.header.threads.is_empty() {
        skipped!("a thread cannot be moved alone here");
        return;
    }
    let [only] = &seen.header.sockets.connections[..] else {
        panic!("{:?}", seen.header.sockets);
    };
    assert!(only.side == Side::Accepted && only.local_port == Some(address.port()) && only.peer.is_none());
    let path = &seen.header.groups[only.group.unwrap() as usize].path;
    assert_eq!(path, &format!("/{}", group.1));
    let run_ns = |event: &Event| match event.what {
        What::Others { run_ns, .. } => Some((event.ts_ns, event.cpu, run_ns)),
        _ => None,
    };
    let others: Vec<_> = seen.events.iter().filter_map(run_ns).collect();
    let all: u64 = others.iter().map(|o| o.2).sum();
    assert!(
        all >= 250_000_000,
        "300 ms were spun outside of the group: {all} ns"
    );
    // One after the other on each CPU, and never while a recorded thread runs there.
    let mut free_from = std::collections::HashMap::new();
    for event in &seen.events {
        match event.what {
            What::Others { run_ns, .. } => {
                let start = event.ts_ns - run_ns as i64;
                assert!(start >= *free_from.get(&event.cpu).unwrap_or(&start), "{event:?}");
                free_from.insert(event.cpu, event.ts_ns);
            }
            What::Switch { prev, .. } if seen.header.threads.iter().any(|t| t.tid == prev) => {
                free_from.insert(event.cpu, event.ts_ns);
            }
            _ => {}
        }
    }
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END: u8 = 1;

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, body.len() as u8, kind, flags, 0, 0, 0, stream];
    bytes.extend(body);
    bytes
}

/// What a stream is asked and answered, in so many packets: the second one begins within the header of a frame.
fn asked(stream: u8) -> [Vec<u8>; 2] {
    let mut first = frame(HEADERS, 4, stream, &[7; 30]);
    let rest = frame(DATA, END, stream, &[8; 50]);
    first.extend(&rest[..4]);
    [first, rest[4..].to_vec()]
}

fn answered(stream: u8) -> Vec<u8> {
    [
        frame(HEADERS, 4, stream, &[7; 20]),
        frame(DATA, END, stream, &[8; 40]),
    ]
    .concat()
}

/// Asks for these streams, each in two packets.
fn ask_for(client: &mut TcpStream, streams: &[u8]) {
    for &stream in streams {
        for packet in asked(stream) {
            client.write_all(&packet).unwrap();
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Two streams at once, of which the second one is answered first, and then another one.
fn ask_streams(mut client: TcpStream, begin: &[u8], [first, second, third]: [u8; 3]) {
    client.set_nodelay(true).unwrap();
    client.write_all(begin).unwrap();
    ask_for(&mut client, &[first, second]);
    client
        .read_exact(&mut vec![0; 2 * answered(first).len()])
        .unwrap();
    ask_for(&mut client, &[third]);
    client.read_exact(&mut vec![0; answered(third).len()]).unwrap();
}

/// Answers them, after so many bytes of something else.
fn answer_streams(mut server: TcpStream, begin: usize, [first, second, third]: [u8; 3]) {
    server.set_nodelay(true).unwrap();
    let size = |stream| asked(stream).concat().len();
    server
        .read_exact(&mut vec![0; begin + size(first) + size(second)])
        .unwrap();
    for stream in [second, first] {
        std::thread::sleep(Duration::from_millis(20));
        server.write_all(&answered(stream)).unwrap();
    }
    server.read_exact(&mut vec![0; size(third)]).unwrap();
    server.write_all(&answered(third)).unwrap();
    // The client closes.
    assert_eq!(server.read(&mut [0]).unwrap(), 0);
}

fn ask_and_answer(client: TcpStream, server: TcpStream, begin: Vec<u8>, streams: [u8; 3]) {
    let size = begin.len();
    let serve = named("plim-server", move || answer_streams(server, size, streams));
    let ask = named("plim-client", move || ask_streams(client, &begin, streams));
    ask.join().unwrap();
    serve.join().unwrap();
}

/// Uses a connection that is older than the recording: packets are looked at from soon after that on, for as long as it may yet
/// show that it is HTTP/2. Before, they may be or not, as a busy machine has it.
fn have_packets_looked_at(old: &mut TcpStream) {
    old.write_all(&[1]).unwrap();
    old.read_exact(&mut [0]).unwrap();
    std::thread::sleep(Duration::from_millis(300));
}

/// Both ends of a connection over loopback.
fn both_ends(listener: &TcpListener) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// Answers a byte with it.
fn echo(old: &mut TcpStream) {
    let mut byte = [0];
    old.read_exact(&mut byte).unwrap();
    old.write_all(&byte).unwrap();
}

/// Likewise, to be called while recording, with a connection that is made now.
fn to_have_packets_looked_at() -> impl FnOnce() + Send {
    let (mut old, mut other) = both_ends(&TcpListener::bind("127.0.0.1:0").unwrap());
    move || {
        let echoes = named("plim-echo", move || echo(&mut other));
        have_packets_looked_at(&mut old);
        echoes.join().unwrap();
    }
}

fn first_bytes() -> Vec<u8> {
    let mut begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    begin.extend(frame(SETTINGS, 0, 0, &[0; 6]));
    begin
}

/// What a thread did with a connection: what it read and wrote, but not how often in a row.
fn reads_and_writes(seen: &Seen, id: u64) -> Vec<(SocketOp, String)> {
    let mut steps: Vec<_> = seen
        .story(id)
        .iter()
        .map(|step| (step.1, step.0.to_string()))
        .collect();
    steps.retain(|step| !matches!(step.0, SocketOp::Closed | SocketOp::Arrived));
    steps.dedup();
    steps
}

/// Whether streams were told apart, at both ends: the first one and the last one as one connection, the second as another.
fn tells_streams(seen: &Seen, port: u16) -> bool {
    let sockets = &seen.header.sockets;
    if sockets
        .without
        .as_ref()
        .is_some_and(|without| without.contains("HTTP/2"))
    {
        skipped!("streams are not told apart here: {sockets:?}");
        return false;
    }
    let mut accepted: Vec<_> = sockets
        .connections
        .iter()
        .filter(|c| c.local_port == Some(port))
        .collect();
    accepted.sort_by_key(|connection| seen.story(connection.id).len());
    let [once, twice] = accepted[..] else {
        panic!("{sockets:?}");
    };
    let server = |op| (op, "plim-server".to_string());
    let round = [server(SocketOp::Read), server(SocketOp::Wrote)];
    assert_eq!(reads_and_writes(seen, once.id), round);
    assert_eq!(
        reads_and_writes(seen, twice.id),
        [&round[..], &round[..]].concat()
    );
    for (connection, answers) in [(once, 1), (twice, 2)] {
        assert_eq!(connection.side, Side::Accepted);
        let arrived = seen.times(connection.id, SocketOp::Arrived);
        assert_eq!(arrived.len(), 2 * answers, "each in two packets");
        let client = seen.connection(|c| Some(c.id) == connection.peer);
        assert!(
            client.side == Side::Opened && client.peer == Some(connection.id),
            "{client:?}"
        );
        assert_eq!(seen.times(client.id, SocketOp::Arrived).len(), answers);
    }
    // The second one was answered first, though the first one came before.
    let at = |id, op| seen.times(id, op)[0];
    assert!(at(twice.id, SocketOp::Arrived) < at(once.id, SocketOp::Arrived));
    assert!(at(twice.id, SocketOp::Wrote) - at(once.id, SocketOp::Wrote) >= 20_000_000);
    true
}

#[test]
fn streams_of_http2_are_told_apart() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let look = to_have_packets_looked_at();
    let load = move || {
        look();
        let (client, server) = both_ends(&listener);
        ask_and_answer(client, server, first_bytes(), [1, 3, 5]);
    };
    let Some(seen) = Seen::of(None, load) else { return };
    tells_streams(&seen, address.port());
}

#[test]
fn streams_of_a_connection_that_is_older_than_the_recording_are_told_apart() {
    let listener = TcpListener::bind("[::1]:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (client, server) = both_ends(&listener);
    let look = to_have_packets_looked_at();
    let load = move || {
        look();
        ask_and_answer(client, server, Vec::new(), [101, 103, 105]);
        drop(listener);
    };
    let Some(seen) = Seen::of(None, load) else { return };
    tells_streams(&seen, address.port());
}

/// Not a test: the process that the next one records, in a group of its own. It says its port, and answers two connections.
#[test]
#[ignore = "a service, which another test starts"]
fn serves_streams() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    std::fs::write(
        std::env::var("PORT_FILE").unwrap(),
        listener.local_addr().unwrap().port().to_string(),
    )
    .unwrap();
    let (mut old, _) = listener.accept().unwrap();
    echo(&mut old);
    answer_streams(listener.accept().unwrap().0, first_bytes().len(), [1, 3, 5]);
}

#[test]
fn streams_of_a_group_are_told_apart() {
    let Some(group) = TestGroup::new(&format!("plimsoll-streams-{}", std::process::id())) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("port");
    let mut service = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "serves_streams", "--ignored"])
        .env("PORT_FILE", &file)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let moved = std::fs::write(group.0.join("cgroup.procs"), service.id().to_string());
    let port = (0..100).find_map(|_| {
        std::thread::sleep(Duration::from_millis(50));
        std::fs::read_to_string(&file).ok()?.parse::<u16>().ok()
    });
    let connect = move || TcpStream::connect(("127.0.0.1", port.unwrap())).unwrap();
    let mut old = connect();
    let load = move || {
        have_packets_looked_at(&mut old);
        ask_streams(connect(), &first_bytes(), [1, 3, 5]);
    };
    let seen = Seen::of(Some(group.1.clone()), load);
    let _ = service.kill();
    service.wait().unwrap();
    moved.unwrap();
    let Some(seen) = seen else { return };
    if seen.header.sockets.lack_streams() {
        skipped!("streams are not told apart here: {:?}", seen.header.sockets);
        return;
    }
    let mut steps: Vec<_> = seen
        .header
        .sockets
        .connections
        .iter()
        .map(|connection| reads_and_writes(&seen, connection.id))
        .collect();
    steps.sort_by_key(Vec::len);
    // The old one's, the second stream, and the others.
    let by = |op| (op, "serves_streams".to_string());
    let round = [by(SocketOp::Read), by(SocketOp::Wrote)];
    assert_eq!(
        steps,
        [round.to_vec(), round.to_vec(), [&round[..], &round[..]].concat()]
    );
}

/// Three requests with bodies that begin as frames do, answered over HTTP/1.1.
#[test]
fn a_connection_of_http1_is_one_whatever_it_carries() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let load = move || {
        let mut client = TcpStream::connect(address).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let request = [
            b"POST / HTTP/1.1\r\nContent-Length: 98\r\n\r\n".to_vec(),
            asked(1).concat(),
        ]
        .concat();
        named("plim-both", move || {
            for _ in 0..3 {
                client.write_all(&request[..request.len() - 98]).unwrap();
                client.write_all(&request[request.len() - 98..]).unwrap();
                server.read_exact(&mut vec![0; request.len()]).unwrap();
                server.write_all(&answered(1)).unwrap();
                client.read_exact(&mut vec![0; answered(1).len()]).unwrap();
            }
        })
        .join()
        .unwrap();
    };
    let Some(seen) = Seen::of(None, load) else { return };
    let accepted = seen.connection(|c| c.local_port == Some(address.port()));
    assert_eq!(seen.times(accepted.id, SocketOp::Wrote).len(), 3);
}

/// A TLS client's first message, as far as it is looked at: with a name of a protocol that it offers.
fn client_hello(offer: &[u8]) -> Vec<u8> {
    let number = |n: usize| (n as u16).to_be_bytes();
    let extension = |kind: usize, body: &[u8]| [&number(kind)[..], &number(body.len()), body].concat();
    let names = [&[8][..], b"http/1.1", &[offer.len() as u8], offer].concat();
    let names = [&number(names.len())[..], &names].concat();
    let extensions = [extension(43, &[2, 3, 4]), extension(16, &names)].concat();
    let mut hello = vec![3; 34];
    hello.push(32);
    hello.extend([5; 32]);
    hello.extend([0, 2, 0x13, 1, 1, 0]);
    hello.extend(number(extensions.len()));
    hello.extend(extensions);
    let length = hello.len();
    [
        &[0x16, 3, 1][..],
        &number(length + 4),
        &[1, 0],
        &number(length),
        &hello,
    ]
    .concat()
}

#[test]
fn encrypted_connections_that_may_be_http2_are_counted() {
    for (offer, expected) in [(&b"h2"[..], 1), (b"spdy/3", 0)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let hello = client_hello(offer);
        let look = to_have_packets_looked_at();
        let load = move || {
            look();
            named("plim-both", move || {
                let mut client = TcpStream::connect(address).unwrap();
                let (mut server, _) = listener.accept().unwrap();
                client.write_all(&hello).unwrap();
                server.read_exact(&mut vec![0; hello.len()]).unwrap();
                server.write_all(&[7; 100]).unwrap();
                client.read_exact(&mut [0; 100]).unwrap();
            })
            .join()
            .unwrap();
        };
        let Some(seen) = Seen::of(None, load) else { return };
        if !seen.header.sockets.lack_streams() {
            assert_eq!(seen.header.sockets.sealed, expected, "{:?}", seen.header.sockets);
        }
    }
}
