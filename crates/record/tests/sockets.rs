// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is recorded of the sockets of known loads, on the kernel at hand. Where BPF is not permitted, the tests say so and
//! do nothing.
#[macro_use]
mod common;

use common::seen::Seen;
use common::{named, TestGroup};
use plimsoll_trace::{Connection, Event, Protocol, Side, SocketOp, What};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::ptr;
use std::time::Duration;

fn set_option<T>(stream: &TcpStream, name: libc::c_int, value: &T) {
    set_option_of(stream, libc::SOL_SOCKET, name, value);
}

fn set_option_of<T>(stream: &TcpStream, level: libc::c_int, name: libc::c_int, value: &T) {
    // SAFETY: `value` and what it points to live until the call returns, which keeps neither.
    let set = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            level,
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

/// A server that answers, ends its side, and waits for the client's, as one does that has served enough requests on a connection.
#[test]
fn the_end_of_a_connection_that_the_server_closes_is_no_data() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let load = move || {
        let server = named("plim-server", move || {
            let mut stream = listener.accept().unwrap().0;
            stream.read_exact(&mut [0; 100]).unwrap();
            stream.write_all(&[1; 300]).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
        });
        let stream = TcpStream::connect(address).unwrap();
        ask(&stream, 1);
        std::thread::sleep(Duration::from_millis(5));
        drop(stream);
        server.join().unwrap();
    };
    let Some(seen) = Seen::of(None, load) else { return };
    let accepted = seen.connection(|c| c.local_port == Some(address.port()));
    let story = seen.story(accepted.id);
    let arrived: Vec<u32> = story
        .iter()
        .filter(|step| step.1 == SocketOp::Arrived)
        .map(|step| step.2)
        .collect();
    assert_eq!(arrived, [100], "{story:?}");
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

/// The server's kernel acknowledges each request as it comes, before that is seen. With the clock of that the answer before, which had
/// left at once, looked held for as long as the client thought.
#[test]
fn an_answer_is_not_held_until_the_next_request_is_acknowledged() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let load = move || {
        let server = named("plim-server", move || {
            let (stream, _) = listener.accept().unwrap();
            let at_once = || set_option_of(&stream, libc::IPPROTO_TCP, libc::TCP_QUICKACK, &1);
            at_once();
            while (&stream).read_exact(&mut [0; 100]).is_ok() {
                (&stream).write_all(&[1; 300]).unwrap();
                at_once();
            }
        });
        named("plim-client", move || {
            let stream = TcpStream::connect(address).unwrap();
            for _ in 0..30 {
                ask(&stream, 1);
                std::thread::sleep(Duration::from_millis(6));
            }
        })
        .join()
        .unwrap();
        server.join().unwrap();
    };
    let Some(seen) = Seen::of(None, load) else { return };
    let accepted = seen.connection(|c| c.local_port == Some(address.port()));
    assert_eq!(seen.times(accepted.id, SocketOp::Wrote).len(), 30);
    // On a slow machine any answer may leave some time after it was written.
    let left = seen.times(accepted.id, SocketOp::Left);
    assert!(left.len() <= 5, "{left:?}");
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
