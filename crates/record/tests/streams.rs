// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams of HTTP/2 on the kernel at hand: told apart where they can be, and said where not. Where BPF is not permitted, the tests
//! say so and do nothing.
#[macro_use]
mod common;

use common::seen::Seen;
use common::{named, TestGroup};
use plimsoll_trace::{Side, SocketOp};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

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

/// Whether streams were told apart, at both ends, as two connections: the first stream is of one, the second of the other. The third one
/// is of either: a thread may be held up right after its answer has left, and then its stream is still under way.
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
    let (mut first, mut second) = (once.id, twice.id);
    if at(second, SocketOp::Arrived) < at(first, SocketOp::Arrived) {
        std::mem::swap(&mut first, &mut second);
    }
    assert!(at(first, SocketOp::Wrote) - at(second, SocketOp::Wrote) >= 20_000_000);
    // Asked 4 ms apart, however late the server reads.
    assert!(at(second, SocketOp::Arrived) - at(first, SocketOp::Arrived) >= 4_000_000);
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

/// A record of TLS.
fn sealed(kind: u8, bytes: u8) -> Vec<u8> {
    [vec![kind, 3, 3, 0, bytes], vec![9; bytes.into()]].concat()
}

/// The handshake of TLS 1.3 and of 1.2, and a request in the packet after it; the server's tickets come before that.
#[test]
fn a_tls_handshake_is_over_as_the_first_data_come_after_it() {
    const CHANGE: u8 = 20;
    const HANDSHAKE: u8 = 22;
    const DATA: u8 = 23;
    let new = vec![[sealed(CHANGE, 1), sealed(DATA, 53)].concat()];
    let old = vec![
        sealed(HANDSHAKE, 66),
        [sealed(CHANGE, 1), sealed(HANDSHAKE, 40)].concat(),
    ];
    for rest in [new, old] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let hello = client_hello(b"http/1.1");
        let look = to_have_packets_looked_at();
        let load = move || {
            look();
            named("plim-both", move || {
                let mut client = TcpStream::connect(address).unwrap();
                client.set_nodelay(true).unwrap();
                let (mut server, _) = listener.accept().unwrap();
                for (request, pause_ms) in std::iter::once(&hello)
                    .chain(&rest)
                    .map(|part| (part, 1))
                    .chain([(&sealed(DATA, 80), 5)])
                {
                    std::thread::sleep(Duration::from_millis(pause_ms));
                    client.write_all(request).unwrap();
                    server.read_exact(&mut vec![0; request.len()]).unwrap();
                    server.write_all(&[7; 100]).unwrap();
                    client.read_exact(&mut [0; 100]).unwrap();
                }
            })
            .join()
            .unwrap();
        };
        let Some(seen) = Seen::of(None, load) else { return };
        if seen.header.sockets.lack_streams() {
            return;
        }
        let accepted = seen.connection(|c| c.local_port == Some(address.port()));
        let secured_ns = accepted.secured_ns.expect("it was seen from its beginning");
        let (came, wrote) = (
            seen.times(accepted.id, SocketOp::Arrived),
            seen.times(accepted.id, SocketOp::Wrote),
        );
        let last = came.len() - 1;
        assert!(
            wrote[last - 1] < secured_ns && secured_ns <= came[last],
            "{secured_ns} {came:?} {wrote:?}"
        );
    }
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
                let rest = [sealed(23, 53), sealed(23, 80)].concat();
                client.write_all(&rest).unwrap();
                server.read_exact(&mut vec![0; rest.len()]).unwrap();
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
