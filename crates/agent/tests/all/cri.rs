// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The agent as a client of a runtime's CRI socket, against a server of gRPC that answers what it is told to. Its messages are made
//! here anew, by the field numbers of CRI's api.proto.

use crate::made_up::{bytes, text, Kernel, Memory, CGROUP};
use bytes::Bytes;
use h2::server::SendResponse;
use h2::RecvStream;
use http::{HeaderMap, Request, Response};
use plimsoll_agent::{Agent, Cri, Journal, Settings};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

#[derive(Clone, Copy, PartialEq)]
enum Manner {
    Answers,
    /// Takes the call, and says nothing.
    Hangs,
    /// gRPC, and no message that could be read.
    Babbles,
    /// An error by gRPC's rules.
    Refuses,
    /// Another protocol.
    IsAnother,
    /// Closes at once, as one that is being started again.
    Gone,
}

struct Served {
    manner: Manner,
    containers: Vec<u8>,
    pods: Vec<u8>,
    /// The last part of each method's name, and the message.
    asked: Vec<(String, Vec<u8>)>,
    nr_connected: usize,
}

fn id(digit: char) -> String {
    String::from(digit).repeat(64)
}

fn pairs(field: u64, pairs: &[(&str, &str)]) -> Vec<u8> {
    let pair = |(key, value): &(&str, &str)| bytes(field, &[text(1, key), text(2, value)].concat());
    pairs.iter().flat_map(pair).collect()
}

fn container(digit: char, annotations: &[(&str, &str)]) -> Vec<u8> {
    let metadata = bytes(3, &text(1, "web"));
    let names = [text(1, &id(digit)), text(2, "pod1"), metadata].concat();
    bytes(1, &[names, pairs(9, annotations)].concat())
}

fn pod(annotations: &[(&str, &str)]) -> Vec<u8> {
    let metadata = [text(1, "web-0"), text(2, "uid1"), text(3, "shop")].concat();
    bytes(
        1,
        &[text(1, "pod1"), bytes(2, &metadata), pairs(6, annotations)].concat(),
    )
}

async fn answer(request: Request<RecvStream>, mut respond: SendResponse<Bytes>, served: Arc<Mutex<Served>>) {
    let method = request.uri().path().rsplit('/').next().unwrap().to_string();
    let mut body = request.into_body();
    let mut message = Vec::new();
    while let Some(part) = body.data().await {
        message.extend_from_slice(&part.unwrap());
    }
    let (manner, payload) = {
        let mut served = served.lock().unwrap();
        let payload = match (served.manner, method.as_str()) {
            (Manner::Babbles, _) => vec![0xff; 9],
            (_, "Version") => [text(2, "made-up"), text(3, "1.2")].concat(),
            (_, "ListContainers") => served.containers.clone(),
            (_, "ListPodSandbox") => served.pods.clone(),
            (_, other) => panic!("{other} is not asked for"),
        };
        served.asked.push((method, message[5..].to_vec()));
        (served.manner, payload)
    };
    if manner == Manner::Hangs {
        return std::future::pending().await;
    }
    let head = Response::builder().header("content-type", "application/grpc");
    if manner == Manner::Refuses {
        let head = head.header("grpc-status", "14").header("grpc-message", "not now");
        respond.send_response(head.body(()).unwrap(), true).unwrap();
        return;
    }
    let mut body = respond.send_response(head.body(()).unwrap(), false).unwrap();
    let header = [&[0][..], &(payload.len() as u32).to_be_bytes()].concat();
    // In two parts, as HTTP/2 may cut it anywhere.
    body.send_data(header.into(), false).unwrap();
    body.send_data(payload.into(), false).unwrap();
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    body.send_trailers(trailers).unwrap();
}

async fn connected(stream: UnixStream, served: Arc<Mutex<Served>>) {
    served.lock().unwrap().nr_connected += 1;
    speak(stream, &served).await;
    served.lock().unwrap().nr_connected -= 1;
}

async fn speak(mut stream: UnixStream, served: &Arc<Mutex<Served>>) {
    let manner = served.lock().unwrap().manner;
    if manner == Manner::Gone {
        return;
    }
    if manner == Manner::IsAnother {
        return stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .unwrap();
    }
    let mut connection = h2::server::handshake(stream).await.unwrap();
    while let Some(Ok((request, respond))) = connection.accept().await {
        tokio::spawn(answer(request, respond, served.clone()));
    }
}

/// The runtime, and the agent's main loop beside it.
struct Node {
    served: Arc<Mutex<Served>>,
    kernel: Kernel,
    agent: Agent<Kernel, Memory>,
    cri: Cri,
    now_ns: u64,
    said: Vec<String>,
    _folder: tempfile::TempDir,
}

impl Node {
    fn started(manner: Manner) -> Result<Self, String> {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("cri.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let served = Arc::new(Mutex::new(Served {
            manner,
            containers: Vec::new(),
            pods: Vec::new(),
            asked: Vec::new(),
            nr_connected: 0,
        }));
        let serves = served.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
            runtime.unwrap().block_on(async move {
                listener.set_nonblocking(true).unwrap();
                let listener = tokio::net::UnixListener::from_std(listener).unwrap();
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    tokio::spawn(connected(stream, serves.clone()));
                }
            });
        });
        let kernel = Kernel::default();
        let journal = Journal::open(Memory::default(), "boot").unwrap();
        let settings = Settings::read(Path::new("a.toml"), "[annotations]\nburst_us = 20000\n").unwrap();
        let most = settings.most().clone();
        let mut agent = Agent::new(kernel.clone(), journal, settings, false);
        let cri = Cri::of(Some(&socket), most, &mut agent).map_err(|error| error.to_string())?;
        Ok(Self {
            served,
            kernel,
            agent,
            cri,
            now_ns: 1_000_000_000,
            said: Vec::new(),
            _folder: folder,
        })
    }

    fn serve(&self, manner: Manner, containers: &[u8], pods: &[u8]) {
        let mut served = self.served.lock().unwrap();
        (served.manner, served.containers, served.pods) = (manner, containers.into(), pods.into());
    }

    fn asked(&self) -> Vec<(String, Vec<u8>)> {
        std::mem::take(&mut self.served.lock().unwrap().asked)
    }

    /// The kernel tells of what has come, and the agent looks.
    fn step(&mut self) {
        self.now_ns += 100_000_000;
        self.kernel.1.borrow_mut().all = true;
        self.said.extend(self.agent.step(self.now_ns).unwrap());
        let at = Instant::now();
        self.said
            .extend(self.cri.attend(&mut self.agent, self.now_ns).unwrap());
        assert!(at.elapsed() < Duration::from_secs(1), "it waits for the runtime");
    }

    /// Waits for the runtime's answers until `is_so`.
    fn until(&mut self, is_so: impl Fn(&Self) -> bool) {
        while !is_so(self) {
            let mut descriptor = libc::pollfd {
                fd: self.cri.fd().as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one descriptor, which is open.
            let ready = unsafe { libc::poll(&mut descriptor, 1, 20_000) };
            assert_eq!(ready, 1, "nothing comes; said: {:?}", self.said);
            let lines = self.cri.attend(&mut self.agent, self.now_ns).unwrap();
            self.said.extend(lines);
        }
    }

    /// Nothing is asked: no connection is kept.
    fn is_left_alone(&self) {
        let at = Instant::now();
        while self.served.lock().unwrap().nr_connected > 0 {
            assert!(at.elapsed() < Duration::from_secs(20), "a connection stays");
            std::thread::yield_now();
        }
    }

    fn has_said(&self, what: &str) -> bool {
        self.said.iter().any(|line| line.contains(what))
    }
}

#[test]
fn a_container_that_comes_has_what_its_pod_is_annotated_with() {
    let mut node = Node::started(Manner::Answers).unwrap();
    let annotations = [
        ("plimsoll.dev/burst-us", "5000"),
        ("plimsoll.dev/burst-us.web", "8000"),
        ("plimsoll.dev/period-us", "10000"),
        ("plimsoll.dev/onset-percent", "200"),
    ];
    node.serve(
        Manner::Answers,
        &container('a', &[("plimsoll.dev/burst-us", "6000")]),
        &pod(&annotations),
    );
    node.asked();
    node.kernel.add("30000 100000");
    node.step();
    node.until(|node| node.kernel.burst() != "0");
    node.is_left_alone();
    assert_eq!(
        node.kernel.burst(),
        "7999",
        "odd, which says that it is the agent's"
    );
    let one = |id: &str| bytes(1, &text(1, id));
    assert_eq!(
        node.asked(),
        [
            ("ListContainers".into(), one(&id('a'))),
            ("ListPodSandbox".into(), one("pod1"))
        ]
    );
    assert_eq!(
        node.said,
        [
            format!("plimsoll: the runtime at {} is made-up 1.2", node._folder.path().join("cri.sock").display()),
            "warning: pod shop/web-0, container web: plimsoll.dev/onset-percent=200: allowed are whole numbers from 0 to 100; it is left out".into(),
            "warning: pod shop/web-0, container web: plimsoll.dev/period-us: only with --nri, as the period is the runtime's to write; it is left out".into(),
        ]
    );
    // With its cgroup it is forgotten: the next of this name has what the runtime says of it, which is nothing.
    node.kernel.0.borrow_mut().clear();
    node.step();
    node.serve(Manner::Answers, &container('a', &[]), &pod(&[]));
    node.kernel.add("30000 100000");
    node.step();
    node.until(|node| node.served.lock().unwrap().asked.len() == 2);
    node.step();
    assert_eq!(node.kernel.burst(), "0");
}

#[test]
fn what_runs_already_is_asked_for_together_and_what_is_no_container_not_at_all() {
    let mut node = Node::started(Manner::Answers).unwrap();
    node.asked();
    let listed = [
        container('b', &[("plimsoll.dev/burst-us", "2000")]),
        container('a', &[("plimsoll.dev/burst-us", "5000")]),
    ]
    .concat();
    node.serve(Manner::Answers, &listed, &pod(&[]));
    node.kernel.add("30000 100000");
    let other = CGROUP.replace(&id('a'), &id('c'));
    // Made by a container, with another's name.
    let below = format!("{CGROUP}/{}", id('b'));
    for path in [
        other.as_str(),
        below.as_str(),
        "/system.slice",
        "/system.slice/web.service",
    ] {
        let files = ("30000 100000".to_string(), "0".to_string());
        node.kernel.0.borrow_mut().insert(path.into(), files);
    }
    node.step();
    node.until(|node| node.kernel.burst() == "4999");
    let asked = node.asked();
    assert_eq!(asked[0], ("ListContainers".into(), Vec::new()), "of all");
    assert_eq!(asked[1], ("ListPodSandbox".into(), Vec::new()));
    for path in [below.as_str(), "/system.slice/web.service"] {
        assert_eq!(node.kernel.0.borrow()[Path::new(path)].1, "0", "{path}");
    }
}

#[test]
fn a_user_who_makes_cgroups_with_a_container_s_name_takes_nothing_from_it() {
    let mut node = Node::started(Manner::Answers).unwrap();
    let annotated = pod(&[("plimsoll.dev/burst-us", "5000")]);
    node.serve(Manner::Answers, &container('a', &[]), &annotated);
    node.kernel.add("30000 100000");
    let files = ("30000 100000".to_string(), "0".to_string());
    let path = format!("/user.slice/{}", id('a'));
    node.kernel.0.borrow_mut().insert(path.into(), files);
    node.step();
    node.until(|node| node.kernel.burst() == "4999");
}

#[test]
fn while_no_runtime_answers_there_is_a_limit_to_what_is_asked_for() {
    let mut node = Node::started(Manner::Answers).unwrap();
    node.serve(Manner::Gone, &[], &[]);
    let files = ("max 100000".to_string(), "0".to_string());
    let paths = (0..10_002).map(|number| (format!("/user.slice/{number:064x}").into(), files.clone()));
    node.kernel.0.borrow_mut().extend(paths);
    node.step();
    let full = "10000 containers are asked for already: one that comes now has no annotations";
    let said = node.said.iter().filter(|line| line.contains(full));
    assert_eq!(said.count(), 1, "{:?}", node.said);
}

#[test]
fn a_container_that_the_runtime_lists_only_later_is_asked_for_again() {
    let mut node = Node::started(Manner::Answers).unwrap();
    node.kernel.add("30000 100000");
    node.step();
    let served = node.served.clone();
    while served.lock().unwrap().asked.len() < 2 {
        std::thread::yield_now();
    }
    // Listed without its pod it is not there yet, either.
    let listed = container('a', &[("plimsoll.dev/burst-us", "5000")]);
    node.serve(Manner::Answers, &listed, &[]);
    while served.lock().unwrap().asked.len() < 4 {
        std::thread::yield_now();
    }
    assert_eq!(node.kernel.burst(), "0");
    node.serve(Manner::Answers, &listed, &pod(&[]));
    node.until(|node| node.kernel.burst() == "4999");
    assert!(!node.has_said("warning"), "{:?}", node.said);
}

/// The runtime takes to `manner` while a container comes, and answers again later.
#[track_caller]
fn is_survived(manner: Manner, said: &str) {
    let mut node = Node::started(Manner::Answers).unwrap();
    let listed = container('a', &[]);
    let annotated = pod(&[("plimsoll.dev/burst-us", "5000")]);
    node.serve(manner, &listed, &annotated);
    node.kernel.add("30000 100000");
    node.step();
    node.until(|node| node.has_said(said));
    assert_eq!(node.kernel.burst(), "0");
    node.step();
    node.serve(Manner::Answers, &listed, &annotated);
    node.until(|node| node.kernel.burst() == "4999");
    let warnings = node.said.iter().filter(|line| line.starts_with("warning"));
    assert_eq!(warnings.count(), 1, "once and no more: {:?}", node.said);
    assert!(node.has_said("the runtime answers again"));
    node.is_left_alone();
    // What it has stays when the runtime is lost again.
    node.serve(Manner::Gone, &[], &[]);
    node.step();
    assert_eq!(node.kernel.burst(), "4999");
}

#[test]
fn a_runtime_that_hangs_keeps_nobody_waiting() {
    is_survived(
        Manner::Hangs,
        "the runtime does not answer (no answer within 2 s); what",
    );
}

#[test]
fn a_runtime_that_is_started_again_is_asked_until_it_is_there() {
    is_survived(Manner::Gone, "the runtime does not answer (");
}

#[test]
fn of_an_answer_that_cannot_be_read_nothing_is_taken() {
    is_survived(Manner::Babbles, "the runtime does not answer (not understood: ");
    is_survived(Manner::IsAnother, "the runtime does not answer (");
    is_survived(
        Manner::Refuses,
        "the runtime does not answer (gRPC status 14: not now)",
    );
}

#[test]
fn a_socket_where_no_runtime_answers_ends_the_start() {
    for (manner, why) in [
        (
            Manner::Refuses,
            "gRPC status 14: not now; is it the socket of containerd",
        ),
        (Manner::IsAnother, "is it the socket of"),
        (Manner::Hangs, "no answer within 2 s; is"),
    ] {
        let refused = Node::started(manner).err().unwrap();
        assert!(
            refused.starts_with("--cri /") && refused.contains(why),
            "{refused}"
        );
    }
    let journal = Journal::open(Memory::default(), "boot").unwrap();
    let mut agent = Agent::new(Kernel::default(), journal, Settings::default(), false);
    let refused = Cri::of(
        Some(Path::new("/nowhere/cri.sock")),
        Default::default(),
        &mut agent,
    );
    let refused = refused.err().unwrap().to_string();
    assert!(
        refused.starts_with("--cri /nowhere/cri.sock: No such file"),
        "{refused}"
    );
}
