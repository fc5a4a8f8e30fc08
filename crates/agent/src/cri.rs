// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What pods ask for, where there is no NRI: of each cgroup that comes, the container runtime is asked over its CRI socket whose
//! it is, and what its pod is annotated with. Nothing is changed there.
//!
//! A thread asks, so that a runtime that hangs does not hold the agent up; what it finds is taken in turn by the
//! agent's own thread.
mod asker;
mod grpc;
mod messages;

use crate::annotations::{in_pod, left_out, Most, Written};
use crate::containers::container_id;
use crate::{Agent, Error, Files, Result, Store};
use asker::{Asker, Report};
use messages::{Container, Pod};
use std::collections::{BTreeSet, HashMap};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

/// Where containerd, CRI-O, and the containerd of k3s and RKE2 listen unless they are told otherwise.
const SOCKETS: [&str; 3] = [
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/k3s/containerd/containerd.sock",
];

/// A node has some hundreds. More are made by a user who may make cgroups, while the runtime does not answer.
const MOST_ASKED: usize = 10_000;

/// Reads bytes as a runtime's answer, as far as they can be understood. For `make fuzz-readers`, which has no runtime.
#[doc(hidden)]
pub fn read_what_cri_answers(bytes: &[u8]) {
    messages::containers(bytes).for_each(drop);
    messages::pods(bytes).for_each(drop);
    let _ = messages::version(bytes);
}

pub struct Cri {
    place: String,
    most: Most,
    asker: Asker,
    /// The cgroups whose container is asked for, by the runtime's number for it. There are two of a name where a user made one.
    asked: HashMap<String, BTreeSet<PathBuf>>,
    /// That there are too many was said.
    is_full: bool,
    said: Vec<String>,
}

impl Cri {
    /// Asks the runtime at `socket`, or at the first of the usual places that there is, who it is. `most`: how much containers may
    /// ask for. `agent` says from now on which cgroups come.
    pub fn of<F: Files, S: Store>(
        socket: Option<&Path>,
        most: Most,
        agent: &mut Agent<F, S>,
    ) -> Result<Self> {
        let Some(socket) = socket.or_else(|| SOCKETS.iter().map(Path::new).find(|socket| socket.exists()))
        else {
            let places = SOCKETS.join(", ");
            let message =
                format!("--cri: no container runtime listens at {places}; --cri SOCKET names another");
            return Err(Error::Machine(message));
        };
        let place = socket.display().to_string();
        let (asker, version) = Asker::of(socket).map_err(|error| {
            let hint = "is it the socket of containerd or CRI-O, and is the runtime there?";
            Error::Machine(format!("--cri {place}: {error}; {hint}"))
        })?;
        agent.tell_what_comes();
        Ok(Self {
            said: vec![format!(
                "plimsoll: the runtime at {place} is {}",
                version.escape_debug()
            )],
            place,
            most,
            asker,
            asked: HashMap::new(),
            is_full: false,
        })
    }

    /// What says that there is something to attend to.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.asker.fd()
    }

    /// Asks for what has come, and has the agent hold what was found. Returns what there is to say; an error is one of the
    /// agent's journal, or says that the agent has ended.
    pub fn attend<F: Files, S: Store>(
        &mut self,
        agent: &mut Agent<F, S>,
        now_ns: u64,
    ) -> Result<Vec<String>> {
        let came = agent.came().into_iter();
        let ids: Vec<String> = came.filter_map(|cgroup| self.asks_for(cgroup)).collect();
        if !ids.is_empty() {
            self.asker.ask(ids);
        }
        let reports = self.asker.reports();
        for report in reports.map_err(|error| Error::Machine(format!("--cri {}: {error}", self.place)))? {
            match report {
                Report::Found(id, container, pod) => {
                    for cgroup in self.asked.remove(&id).unwrap_or_default() {
                        self.hold(agent, &cgroup, &container, &pod, now_ns)?;
                    }
                }
                Report::Nobody(id) => drop(self.asked.remove(&id)),
                Report::Lost(error) => {
                    let text = "what its containers have stays, and new ones are asked for until it answers";
                    let error = error.escape_debug();
                    self.said.push(format!(
                        "warning: {}: the runtime does not answer ({error}); {text}",
                        self.place
                    ));
                }
                Report::Back => self
                    .said
                    .push(format!("{}: the runtime answers again", self.place)),
            }
        }
        Ok(std::mem::take(&mut self.said))
    }

    /// The number of its container, if it is one's.
    fn asks_for(&mut self, cgroup: PathBuf) -> Option<String> {
        // What a container makes below its own cgroup is its own, whatever it calls it.
        let is_container = |path: &Path| path.to_str().and_then(container_id).is_some();
        if cgroup.ancestors().skip(1).any(is_container) {
            return None;
        }
        let id = cgroup.to_str().and_then(container_id)?.to_string();
        let is_new = !self.asked.contains_key(&id);
        if is_new && self.asked.len() >= MOST_ASKED {
            if !std::mem::replace(&mut self.is_full, true) {
                let text = "containers are asked for already: one that comes now has no annotations";
                self.said
                    .push(format!("warning: {}: {MOST_ASKED} {text}", self.place));
            }
            return None;
        }
        self.is_full &= !is_new;
        self.asked.entry(id.clone()).or_default().insert(cgroup);
        Some(id)
    }

    fn hold<F: Files, S: Store>(
        &mut self,
        agent: &mut Agent<F, S>,
        cgroup: &Path,
        container: &Container,
        pod: &Pod,
        now_ns: u64,
    ) -> Result<()> {
        let written = Written {
            pod: &pod.annotations,
            labels: &container.labels,
            annotations: &container.annotations,
            name: &container.name,
        };
        let (knobs, wrong) = written.knobs_of_what_runs(&self.most);
        let who = in_pod(&pod.namespace, &pod.name, &container.name);
        self.said.extend(wrong.iter().map(|wrong| left_out(&who, wrong)));
        agent.wish(cgroup, Some(knobs));
        if !agent.bring_now(cgroup, now_ns)? {
            // It is gone already, and another of its name would ask anew.
            agent.wish(cgroup, None);
        }
        Ok(())
    }
}
