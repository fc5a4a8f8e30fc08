// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The agent as a runtime's plugin, against a runtime that speaks the bytes of the real one: they are made here anew, by the field
//! numbers of NRI's api.proto.

use crate::made_up::{bytes, text, varint, Kernel, Memory, CGROUP};
use plimsoll_agent::{Agent, File, Journal, Nri, Settings};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

const CGROUPS_PATH: &str =
    "kubepods-pod1.slice:cri-containerd:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

fn number(field: u64, number: u64) -> Vec<u8> {
    [varint(field << 3), varint(number)].concat()
}

fn resources(quota_us: i64, period_us: u64) -> Vec<u8> {
    let quota = bytes(2, &number(1, quota_us as u64));
    let period = bytes(3, &number(1, period_us));
    bytes(2, &[quota, period].concat())
}

fn pod(annotations: &[(&str, &str)]) -> Vec<u8> {
    let pair = |(key, value): &(&str, &str)| bytes(6, &[text(1, key), text(2, value)].concat());
    let names = [
        text(1, "pod1"),
        text(2, "web-0"),
        text(3, "uid1"),
        text(4, "shop"),
    ]
    .concat();
    [names, annotations.iter().flat_map(pair).collect()].concat()
}

fn container(quota_us: i64) -> Vec<u8> {
    let linux = [bytes(3, &resources(quota_us, 100_000)), text(5, CGROUPS_PATH)].concat();
    [
        text(1, "abc"),
        text(2, "pod1"),
        text(3, "web"),
        number(4, 1),
        bytes(11, &linux),
    ]
    .concat()
}

fn about(annotations: &[(&str, &str)], quota_us: i64) -> Vec<u8> {
    [bytes(1, &pod(annotations)), bytes(2, &container(quota_us))].concat()
}

/// The other side of the socket, and the agent's main loop between two requests.
struct Runtime {
    stream: UnixStream,
    stream_number: u32,
    kernel: Kernel,
    agent: Agent<Kernel, Memory>,
    nri: Nri,
    now_ns: u64,
    said: Vec<String>,
    _folder: tempfile::TempDir,
}

impl Runtime {
    /// `more`: the configuration.
    fn started(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("nri.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let settings = Settings::read(Path::new("a.toml"), config).unwrap();
        let nri = Nri::register(&socket, settings.most().clone()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let kernel = Kernel::default();
        let journal = Journal::open(Memory::default(), "boot").unwrap();
        let agent = Agent::new(kernel.clone(), journal, settings, false);
        let mut runtime = Self {
            stream,
            stream_number: 1,
            kernel,
            agent,
            nri,
            now_ns: 1_000_000_000,
            said: Vec::new(),
            _folder: folder,
        };
        let (connection, message) = runtime.message();
        assert_eq!(connection, 2);
        let register = [text(1, "plimsoll"), text(2, "90")].concat();
        let service = text(1, "nri.pkg.api.v1alpha1.Runtime");
        let asked = [service, text(2, "RegisterPlugin"), bytes(3, &register)].concat();
        assert_eq!(message[4..10], [0, 0, 0, 1, 1, 1], "stream 1, a request, closed");
        assert_eq!(message[10..], asked);
        runtime.send(2, 1, 2, &[]);
        runtime.agent.step(runtime.now_ns).unwrap();
        runtime
    }

    fn send(&mut self, connection: u32, stream: u32, kind: u8, body: &[u8]) {
        let header = [
            &(body.len() as u32).to_be_bytes()[..],
            &stream.to_be_bytes(),
            &[kind, 0],
        ]
        .concat();
        // As Go's buffered writer cuts it.
        for frame in [header.as_slice(), body] {
            let length = (frame.len() as u32).to_be_bytes();
            let frame = [&connection.to_be_bytes()[..], &length, frame].concat();
            self.stream.write_all(&frame).unwrap();
        }
    }

    /// A ttrpc message and the connection it came on.
    fn message(&mut self) -> (u32, Vec<u8>) {
        let (mut message, mut connection) = (Vec::new(), 0);
        loop {
            if let Some(length) = message.get(..4) {
                let length: [u8; 4] = <[u8; 4]>::try_from(length).unwrap();
                if message.len() == 10 + u32::from_be_bytes(length) as usize {
                    return (connection, message);
                }
            }
            let mut header = [0; 8];
            self.stream.read_exact(&mut header).unwrap();
            connection = u32::from_be_bytes(header[..4].try_into().unwrap());
            let length = u32::from_be_bytes(header[4..].try_into().unwrap());
            let at = message.len();
            message.resize(at + length as usize, 0);
            self.stream.read_exact(&mut message[at..]).unwrap();
        }
    }

    /// What is answered, without its status.
    fn ask(&mut self, method: &str, payload: &[u8]) -> Vec<u8> {
        let service = text(1, "nri.pkg.api.v1alpha1.Plugin");
        let body = [
            service,
            text(2, method),
            bytes(3, payload),
            number(4, 2_000_000_000),
        ]
        .concat();
        self.stream_number += 2;
        let stream = self.stream_number;
        self.send(1, stream, 1, &body);
        self.stream
            .set_read_timeout(Some(std::time::Duration::from_millis(20)))
            .unwrap();
        // What is sent in parts may be read in parts.
        while self.stream.peek_is_empty() {
            let lines = self.nri.attend(&mut self.agent, true, self.now_ns).unwrap();
            self.said.extend(lines);
        }
        self.stream.set_read_timeout(None).unwrap();
        let (connection, message) = self.message();
        assert_eq!(
            (connection, &message[4..8], message[8]),
            (1, &stream.to_be_bytes()[..], 2)
        );
        message[10..].to_vec()
    }

    fn handshake(&mut self, known: &[u8]) {
        let configure = [text(2, "containerd"), text(3, "v2.1.9")].concat();
        let events = 1 << 3 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 10;
        assert_eq!(self.ask("Configure", &configure), bytes(2, &number(2, events)));
        assert_eq!(self.ask("Synchronize", known), bytes(2, &[]));
    }

    fn step(&mut self) {
        self.now_ns += 100_000_000;
        self.said.extend(self.agent.step(self.now_ns).unwrap());
    }
}

trait Peek {
    fn peek_is_empty(&self) -> bool;
}

impl Peek for UnixStream {
    fn peek_is_empty(&self) -> bool {
        use std::os::fd::AsRawFd;
        let mut descriptor = libc::pollfd {
            fd: self.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one descriptor, which is open.
        unsafe { libc::poll(&mut descriptor, 1, 0) == 0 }
    }
}

const EMPTY: [u8; 0] = [];

fn payload(inner: &[u8]) -> Vec<u8> {
    bytes(2, inner)
}

#[test]
fn an_annotated_container_has_its_burst_before_it_runs_and_a_resize_below_it_goes_through() {
    let mut runtime = Runtime::started("");
    runtime.handshake(&EMPTY);
    let annotations = [
        ("plimsoll.dev/burst-us", "20000"),
        ("other.example/burst-us", "1"),
    ];
    assert_eq!(
        runtime.ask("CreateContainer", &about(&annotations, 30_000)),
        payload(&EMPTY)
    );
    runtime.kernel.add("30000 100000");
    assert_eq!(
        runtime.ask("StartContainer", &about(&annotations, 30_000)),
        payload(&EMPTY)
    );
    assert_eq!(
        runtime.kernel.burst(),
        "19999",
        "odd, which says that it is the agent's"
    );
    runtime.step();
    runtime.ask(
        "UpdateContainer",
        &[about(&annotations, 30_000), bytes(3, &resources(40_000, 100_000))].concat(),
    );
    runtime
        .kernel
        .set(Path::new(CGROUP), File::Max, "40000 100000")
        .unwrap();
    runtime.ask("PostUpdateContainer", &about(&annotations, 40_000));
    // The event of that write comes late, and is not taken for one that was refused.
    runtime.step();
    assert_eq!(runtime.kernel.burst(), "19999");
    // The kubelet makes it smaller than the burst, which the kernel refuses while it is there.
    assert!(runtime
        .kernel
        .set(Path::new(CGROUP), File::Max, "10000 100000")
        .is_err());
    let update = [about(&annotations, 30_000), bytes(3, &resources(10_000, 100_000))].concat();
    assert_eq!(runtime.ask("UpdateContainer", &update), payload(&EMPTY));
    runtime
        .kernel
        .set(Path::new(CGROUP), File::Max, "10000 100000")
        .unwrap();
    runtime.ask("PostUpdateContainer", &about(&annotations, 10_000));
    runtime.step();
    // Above the quota the kernel's burst is refused: it is lent from here on.
    assert_eq!(runtime.kernel.burst(), "0");
    runtime.ask(
        "UpdateContainer",
        &[about(&annotations, 10_000), bytes(3, &resources(40_000, 100_000))].concat(),
    );
    runtime
        .kernel
        .set(Path::new(CGROUP), File::Max, "40000 100000")
        .unwrap();
    runtime.ask("PostUpdateContainer", &about(&annotations, 40_000));
    assert_eq!(runtime.kernel.burst(), "19999");
    // What was removed is not brought back by a cgroup of its name.
    runtime.kernel.0.borrow_mut().clear();
    runtime.ask("RemoveContainer", &about(&annotations, 40_000));
    runtime.kernel.add("30000 100000");
    runtime
        .agent
        .bring_now(Path::new(CGROUP), runtime.now_ns)
        .unwrap();
    assert_eq!(runtime.kernel.burst(), "0");
    assert!(
        !runtime.said.iter().any(|line| line.contains("warning")),
        "{:?}",
        runtime.said
    );
}

#[test]
fn a_period_is_the_runtimes_to_write_and_comes_with_a_quota_of_the_same_rate() {
    let mut runtime = Runtime::started("");
    runtime.handshake(&EMPTY);
    let annotations = [("plimsoll.dev/period-us", "10000")];
    let adjusted = bytes(1, &bytes(6, &bytes(2, &resources(3_000, 10_000))));
    assert_eq!(
        runtime.ask("CreateContainer", &about(&annotations, 30_000)),
        payload(&adjusted)
    );
    let update = [about(&annotations, 30_000), bytes(3, &resources(50_000, 100_000))].concat();
    let updated = bytes(
        1,
        &[text(1, "abc"), bytes(2, &bytes(1, &resources(5_000, 10_000)))].concat(),
    );
    assert_eq!(runtime.ask("UpdateContainer", &update), payload(&updated));
}

#[test]
fn a_wrong_annotation_is_named_and_the_container_starts() {
    let mut runtime = Runtime::started("[annotations]\nburst_us = 5000\n");
    runtime.handshake(&EMPTY);
    let annotations = [("plimsoll.dev/burst-us", "5001"), ("plimsoll.dev/period-us", "x")];
    assert_eq!(
        runtime.ask("CreateContainer", &about(&annotations, 30_000)),
        payload(&EMPTY)
    );
    runtime.kernel.add("30000 100000");
    assert_eq!(
        runtime.ask("StartContainer", &about(&annotations, 30_000)),
        payload(&EMPTY)
    );
    assert_eq!(runtime.kernel.burst(), "0");
    let warnings: Vec<&String> = runtime
        .said
        .iter()
        .filter(|line| line.starts_with("warning"))
        .collect();
    assert_eq!(
        *warnings[0],
        "warning: pod shop/web-0, container web: plimsoll.dev/burst-us=5001: allowed are whole numbers from 0 to 5000; it is left out"
    );
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    // A request that cannot be read is answered, too.
    assert_eq!(runtime.ask("StartContainer", &[0xff]), payload(&EMPTY));
    assert!(runtime
        .said
        .last()
        .unwrap()
        .contains("StartContainer: not understood"));
}

#[test]
fn what_runs_already_is_told_in_parts_and_older_runtimes_tell_of_starts_as_a_change_of_state() {
    let mut runtime = Runtime::started("");
    runtime.kernel.add("30000 100000");
    let annotations = [
        ("plimsoll.dev/burst-us", "10000"),
        ("plimsoll.dev/burst-us.web", "15000"),
    ];
    let first = [bytes(1, &pod(&annotations)), number(3, 1)].concat();
    assert_eq!(runtime.ask("Synchronize", &first), payload(&number(2, 1)));
    runtime.handshake(&bytes(2, &container(30_000)));
    assert_eq!(runtime.kernel.burst(), "14999");
    let changed = [("plimsoll.dev/burst-us", "8000")];
    let start = [
        number(1, 6),
        bytes(2, &pod(&changed)),
        bytes(3, &container(30_000)),
    ]
    .concat();
    assert_eq!(runtime.ask("StateChange", &start), payload(&EMPTY));
    assert_eq!(runtime.kernel.burst(), "7999");
    // Synchronized anew without it: it is gone.
    runtime.ask("Synchronize", &EMPTY);
    runtime.step();
    assert_eq!(runtime.kernel.burst(), "0");
}

#[test]
fn a_runtime_that_is_not_there_is_said_with_what_to_look_at() {
    let refused = Nri::register(Path::new("/nowhere/nri.sock"), Default::default())
        .err()
        .unwrap();
    assert!(
        refused
            .to_string()
            .starts_with("--nri /nowhere/nri.sock: No such file"),
        "{refused}"
    );
}
