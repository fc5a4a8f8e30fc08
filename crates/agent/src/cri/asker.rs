// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread that asks a runtime whose the containers are. It connects anew each time: one that was started again needs no word,
//! and one that is left alone keeps nothing of ours.
use super::grpc::Connection;
use super::messages::{self, Container, Pod};
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use tokio::runtime::Builder;

const VERSION: &str = "/runtime.v1.RuntimeService/Version";
const LIST_CONTAINERS: &str = "/runtime.v1.RuntimeService/ListContainers";
const LIST_PODS: &str = "/runtime.v1.RuntimeService/ListPodSandbox";

/// The kubelet gives a runtime 2 minutes; lists are answered in milliseconds. A runtime that takes this long hangs.
const PATIENCE: Duration = Duration::from_secs(2);
/// A runtime that did not answer is asked again after this.
const AGAIN: Duration = Duration::from_secs(1);
/// What the runtime does not know is asked for again after these, then no more. A cgroup may come before CRI-O lists its
/// container; one that holds a pod's namespaces is never listed.
const NOT_YET: [Duration; 3] = [
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(5),
];

/// What the thread has found out.
pub enum Report {
    Found(String, Box<Container>, Box<Pod>),
    /// No container that the runtime knows.
    Nobody(String),
    Lost(String),
    Back,
}

pub struct Asker {
    ids: Sender<Vec<String>>,
    found: Receiver<Report>,
    /// A byte in here says that there are reports.
    bell: UnixStream,
}

impl Asker {
    /// Returns also what runtime it is. Waits for its answer for 2 s at most.
    pub fn of(socket: &Path) -> io::Result<(Self, String)> {
        let version = within_patience(version(socket))?;
        let (ids, asked) = channel();
        let (reports, found) = channel();
        let (bell, pull) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        pull.set_nonblocking(true)?;
        let thread = Thread {
            socket: socket.into(),
            reports,
            pull,
            waiting: BTreeMap::new(),
            lost_until: None,
        };
        // It ends with `ids`, which ends with the agent.
        std::thread::Builder::new()
            .name("cri".into())
            .spawn(move || thread.work(&asked))?;
        Ok((Self { ids, found, bell }, version))
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// These are asked for together.
    pub fn ask(&self, ids: Vec<String>) {
        // A thread that has ended is said by `reports`.
        let _ = self.ids.send(ids);
    }

    /// All that there is now. An error says that the thread has ended, which only a fault of it could do.
    pub fn reports(&mut self) -> io::Result<Vec<Report>> {
        // First the bell, or one that rings meanwhile would not be heard.
        loop {
            match self.bell.read(&mut [0; 64]) {
                Ok(0) => return Err(io::Error::other("the thread that asks has ended")),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(self.found.try_iter().collect())
    }
}

struct Thread {
    socket: PathBuf,
    reports: Sender<Report>,
    pull: UnixStream,
    /// How often each was asked for, and when it is next.
    waiting: BTreeMap<String, (usize, Instant)>,
    /// The runtime does not answer, and is left alone until then.
    lost_until: Option<Instant>,
}

impl Thread {
    fn work(mut self, asked: &Receiver<Vec<String>>) {
        loop {
            let due = self.waiting.values().map(|(_, due)| *due).min();
            let next = match due.map(|due| self.lost_until.map_or(due, |until| due.max(until))) {
                None => asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(due) => asked.recv_timeout(due.saturating_duration_since(Instant::now())),
            };
            let now = Instant::now();
            match next {
                Ok(ids) => {
                    let come = std::iter::once(ids).chain(asked.try_iter()).flatten();
                    self.waiting.extend(come.map(|id| (id, (0, now))));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.lost_until.is_none_or(|until| now >= until) {
                self.ask(now);
            }
        }
    }

    fn ask(&mut self, now: Instant) {
        let due = self.waiting.iter().filter(|(_, (_, due))| *due <= now);
        let due: Vec<String> = due.map(|(id, _)| id.clone()).collect();
        if due.is_empty() {
            return;
        }
        match within_patience(whose(&self.socket, &due)) {
            Ok(mut found) => {
                if self.lost_until.take().is_some() {
                    self.report(Report::Back);
                }
                for id in due {
                    let answer = found.remove(&id);
                    self.answered(id, answer, now);
                }
            }
            Err(error) => {
                if self.lost_until.replace(Instant::now() + AGAIN).is_none() {
                    self.report(Report::Lost(error.to_string()));
                }
            }
        }
    }

    fn answered(&mut self, id: String, answer: Option<(Container, Pod)>, now: Instant) {
        let (tries, due) = self.waiting.get_mut(&id).expect("it was asked for");
        match (answer, NOT_YET.get(*tries)) {
            (Some((container, pod)), _) => {
                self.waiting.remove(&id);
                self.report(Report::Found(id, container.into(), pod.into()));
            }
            (None, Some(later)) => (*tries, *due) = (*tries + 1, now + *later),
            (None, None) => {
                self.waiting.remove(&id);
                self.report(Report::Nobody(id));
            }
        }
    }

    fn report(&mut self, report: Report) {
        // The other end is closed where the agent has ended; a bell that is full has rung.
        let _ = self.reports.send(report);
        let _ = self.pull.write(&[1]);
    }
}

fn within_patience<T>(asked: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    // One for each time: what is left of a connection, above all of one that hangs, ends with it.
    let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
    runtime.block_on(async {
        let answer = tokio::time::timeout(PATIENCE, asked).await;
        answer.unwrap_or_else(|_| {
            let text = format!("no answer within {} s", PATIENCE.as_secs());
            Err(io::Error::new(ErrorKind::TimedOut, text))
        })
    })
}

async fn version(socket: &Path) -> io::Result<String> {
    let mut connection = Connection::to(socket).await?;
    messages::version(&connection.call(VERSION, &messages::version_request()).await?)
}

/// Those of these containers that the runtime knows, with their pods.
async fn whose(socket: &Path, ids: &[String]) -> io::Result<HashMap<String, (Container, Pod)>> {
    let mut connection = Connection::to(socket).await?;
    // One by its number; many out of the whole list, in two calls.
    let one = (ids.len() == 1).then(|| ids[0].as_str());
    let listed = connection.call(LIST_CONTAINERS, &messages::list(one)).await?;
    let is_asked_for = |read: &io::Result<Container>| match read {
        Ok(container) => ids.contains(&container.id),
        Err(_) => true,
    };
    let containers: Vec<Container> = messages::containers(&listed)
        .filter(is_asked_for)
        .collect::<io::Result<_>>()?;
    if containers.is_empty() {
        return Ok(HashMap::new());
    }
    let one = one.map(|_| containers[0].pod.as_str());
    let listed = connection.call(LIST_PODS, &messages::list(one)).await?;
    let pods: HashMap<String, Pod> = messages::pods(&listed)
        .map(|read| read.map(|pod| (pod.id.clone(), pod)))
        .collect::<io::Result<_>>()?;
    // One whose pod is not listed is going, or is asked for again.
    let found = containers.into_iter().filter_map(|container| {
        let pod = pods.get(&container.pod)?.clone();
        Some((container.id.clone(), (container, pod)))
    });
    Ok(found.collect())
}
