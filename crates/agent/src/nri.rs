// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The agent as a plugin of the container runtime (NRI v1alpha1: containerd from 1.7, CRI-O): it hears of a container before that
//! runs, with what its pod is annotated with.
//!
//! | event | what is done before it is answered |
//! |---|---|
//! | CreateContainer | the period is changed, which is the runtime's to write |
//! | StartContainer | the cgroup is there, and nothing runs in it: its files are brought to what is asked for |
//! | UpdateContainer | the kernel's burst makes room for a quota below it; the period is changed as before |
//! | PostUpdateContainer | the burst comes back |
//! | RemoveContainer | it is forgotten |
//!
//! No event is answered with an error, which would keep the container from starting.
mod messages;
mod wire;

use crate::annotations::{in_pod, left_out, Most, Wishes, Written};
use crate::{Agent, Error, Files, Result, Store};
use messages::{About, Container, Known, Pod};
use plimsoll_protobuf::Message;
use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Component, Path, PathBuf};
use wire::{Asked, Wire, RUNTIME};

/// Plugins are called in the order of these: near the end, when others have said what the limits are.
const INDEX: &str = "90";
const NAME: &str = "plimsoll";
const RUNTIME_SERVICE: &str = "nri.pkg.api.v1alpha1.Runtime";
const PLUGIN_SERVICE: &str = "nri.pkg.api.v1alpha1.Plugin";

const CREATE: u64 = 4;
const START: u64 = 6;
const UPDATE: u64 = 8;
const POST_UPDATE: u64 = 9;
const REMOVE: u64 = 11;

/// A runtime that is gone is asked for again after this.
const AGAIN_NS: u64 = 1_000_000_000;

/// Reads bytes as a runtime's, as far as they can be understood. For `make fuzz-readers`, which has no runtime.
#[doc(hidden)]
pub fn read_what_a_runtime_sends(bytes: &[u8]) {
    for asked in Wire::split_of(bytes).into_iter().flatten() {
        if let Asked::Request { payload, .. } = asked {
            let _ = About::request(&payload);
            let _ = About::event(&payload);
            let _ = Known::part(&payload);
        }
    }
}

pub struct Nri {
    socket: PathBuf,
    most: Most,
    wire: Option<Wire>,
    again_ns: u64,
    /// What of Synchronize has come, where it comes in parts.
    known: Known,
    /// The cgroups of containers, by the runtime's number for them.
    cgroups: HashMap<String, PathBuf>,
    said: Vec<String>,
}

impl Nri {
    /// Registers with the runtime at `socket`. `most`: how much containers may ask for.
    pub fn register(socket: &Path, most: Most) -> Result<Self> {
        let mut nri = Self {
            socket: socket.into(),
            most,
            wire: None,
            again_ns: 0,
            known: Known::default(),
            cgroups: HashMap::new(),
            said: Vec::new(),
        };
        nri.connect().map_err(|error| {
            let place = socket.display();
            let hint = "containerd has NRI since 1.7, on by default since 2.0; CRI-O since 1.26: is it there, and on?";
            Error::Machine(format!("--nri {place}: {error}; {hint}"))
        })?;
        Ok(nri)
    }

    fn connect(&mut self) -> io::Result<()> {
        let mut wire = Wire::connect(&self.socket)?;
        wire.ask(
            RUNTIME,
            RUNTIME_SERVICE,
            "RegisterPlugin",
            &messages::registration(NAME, INDEX),
        )?;
        self.wire = Some(wire);
        self.known = Known::default();
        Ok(())
    }

    /// What says that there is something to attend to.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.wire.as_ref().map(Wire::fd)
    }

    /// Answers what the runtime has asked, if `is_ready`, and finds it again where it was lost. Returns what there is to
    /// say; an error is one of the agent's journal.
    pub fn attend<F: Files, S: Store>(
        &mut self,
        agent: &mut Agent<F, S>,
        is_ready: bool,
        now_ns: u64,
    ) -> Result<Vec<String>> {
        let place = self.socket.display().to_string();
        if self.wire.is_none() && now_ns >= self.again_ns {
            self.again_ns = now_ns + AGAIN_NS;
            if self.connect().is_ok() {
                self.said.push(format!("{place}: the runtime is back"));
            }
        } else if is_ready {
            if let Err(error) = self.answer_all(agent, now_ns)? {
                self.wire = None;
                self.again_ns = now_ns + AGAIN_NS;
                let text = "the settings of its containers stay, and new ones have none until it is back";
                self.said
                    .push(format!("warning: {place}: the runtime is lost ({error}); {text}"));
            }
        }
        Ok(std::mem::take(&mut self.said))
    }

    /// The outer error is the journal's, the inner the connection's.
    fn answer_all<F: Files, S: Store>(
        &mut self,
        agent: &mut Agent<F, S>,
        now_ns: u64,
    ) -> Result<io::Result<()>> {
        let Some(mut wire) = self.wire.take() else {
            return Ok(Ok(()));
        };
        if let Err(error) = wire.read() {
            return Ok(Err(error));
        }
        while let Some(asked) = wire.next() {
            let done = match asked {
                Asked::Response { error, .. } if error.is_empty() => Ok(()),
                Asked::Response { error, .. } => {
                    Err(io::Error::other(format!("it refuses the plugin: {error}")))
                }
                Asked::Request {
                    connection,
                    stream,
                    service,
                    method,
                    payload,
                } => {
                    let answer = match service.as_str() {
                        PLUGIN_SERVICE => match self.answer(agent, &method, &payload, now_ns) {
                            Ok(answer) => answer?,
                            // Of what cannot be read nothing is done, and the container is not kept from starting.
                            Err(error) => {
                                self.said
                                    .push(format!("warning: {}: {method}: {error}", self.socket.display()));
                                Some(Message::default())
                            }
                        },
                        _ => None,
                    };
                    match answer {
                        Some(answer) => wire.answer(connection, stream, &answer),
                        None => wire.decline(connection, stream, &method),
                    }
                }
            };
            if let Err(error) = done {
                return Ok(Err(error));
            }
        }
        self.wire = Some(wire);
        Ok(Ok(()))
    }

    /// `None`: there is no such method. The outer error is of a message, the inner the journal's.
    fn answer<F: Files, S: Store>(
        &mut self,
        agent: &mut Agent<F, S>,
        method: &str,
        payload: &[u8],
        now_ns: u64,
    ) -> io::Result<Result<Option<Message>>> {
        let about = || About::request(payload);
        let answer = match method {
            "Configure" => Ok(messages::events(&[CREATE, START, UPDATE, POST_UPDATE, REMOVE])),
            "Synchronize" => {
                let part = Known::part(payload)?;
                self.known.pods.extend(part.pods);
                self.known.containers.extend(part.containers);
                let done = if part.more {
                    Ok(())
                } else {
                    self.synchronize(agent, now_ns)
                };
                done.map(|()| messages::synchronized(part.more))
            }
            "CreateContainer" => Ok(self.create(&about()?)),
            "StartContainer" => self.start(agent, &about()?, now_ns),
            "UpdateContainer" => self.update(agent, &about()?, now_ns),
            "PostUpdateContainer" => self.updated(agent, &about()?, now_ns),
            "RemoveContainer" => self.remove(agent, &about()?),
            // Runtimes of before NRI 0.10 tell what asks for no answer so.
            "StateChange" => match About::event(payload)? {
                (START, about) => self.start(agent, &about, now_ns),
                (POST_UPDATE, about) => self.updated(agent, &about, now_ns),
                (REMOVE, about) => self.remove(agent, &about),
                _ => Ok(Message::default()),
            },
            "Shutdown" => Ok(Message::default()),
            _ => return Ok(Ok(None)),
        };
        Ok(answer.map(Some))
    }

    /// Of all containers that there are what they ask for, and of those that are gone nothing.
    fn synchronize<F: Files, S: Store>(&mut self, agent: &mut Agent<F, S>, now_ns: u64) -> Result<()> {
        let known = std::mem::take(&mut self.known);
        let pods: HashMap<&str, &Pod> = known.pods.iter().map(|pod| (pod.id.as_str(), pod)).collect();
        let before = std::mem::take(&mut self.cgroups);
        let none = Pod::default();
        for container in &known.containers {
            let pod = pods.get(container.pod.as_str()).copied().unwrap_or(&none);
            let wishes = self.wishes(pod, container, true);
            self.hear(agent, pod, container, &wishes, now_ns)?;
        }
        for (id, cgroup) in before {
            if !self.cgroups.contains_key(&id) {
                agent.wish(&cgroup, None);
            }
        }
        let number = known.containers.len();
        self.said
            .push(format!("plimsoll: the runtime knows {number} containers"));
        Ok(())
    }

    fn create(&mut self, about: &About) -> Message {
        let wishes = self.wishes(&about.pod, &about.container, true);
        let cpu = about.container.cpu;
        match self.limits(about, &wishes, cpu.quota_us, cpu.period_us) {
            Some((quota_us, period_us)) => messages::created(quota_us, period_us),
            None => Message::default(),
        }
    }

    fn start<F: Files, S: Store>(
        &mut self,
        agent: &mut Agent<F, S>,
        about: &About,
        now_ns: u64,
    ) -> Result<Message> {
        let wishes = self.wishes(&about.pod, &about.container, false);
        let found = self.hear(agent, &about.pod, &about.container, &wishes, now_ns)?;
        if !found && wishes.knobs != Default::default() {
            let path = about.container.cgroups_path.escape_debug();
            let text = format!(
                "{}: no cgroup at `{path}`: what it asks for is not there",
                who(&about.pod, &about.container)
            );
            self.said.push(format!("warning: {text}"));
        }
        Ok(Message::default())
    }

    fn update<F: Files, S: Store>(
        &mut self,
        agent: &mut Agent<F, S>,
        about: &About,
        now_ns: u64,
    ) -> Result<Message> {
        let wishes = self.wishes(&about.pod, &about.container, false);
        let cpu = about.cpu;
        let period_us = cpu.period_us.or(about.container.cpu.period_us);
        let limits = self.limits(about, &wishes, cpu.quota_us, period_us);
        let quota_us = limits.map(|(quota_us, _)| quota_us);
        let quota_us = quota_us.or(cpu.quota_us.and_then(|quota_us| u64::try_from(quota_us).ok()));
        if let Some(cgroup) = self.cgroups.get(&about.container.id) {
            agent.make_room(cgroup, quota_us, now_ns)?;
        }
        Ok(match limits {
            Some((quota_us, period_us)) => messages::updated(&about.container.id, quota_us, period_us),
            None => Message::default(),
        })
    }

    fn updated<F: Files, S: Store>(
        &mut self,
        agent: &mut Agent<F, S>,
        about: &About,
        now_ns: u64,
    ) -> Result<Message> {
        if let Some(cgroup) = self.cgroups.get(&about.container.id) {
            agent.bring_now(cgroup, now_ns)?;
        }
        Ok(Message::default())
    }

    fn remove<F: Files, S: Store>(&mut self, agent: &mut Agent<F, S>, about: &About) -> Result<Message> {
        if let Some(cgroup) = self.cgroups.remove(&about.container.id) {
            agent.wish(&cgroup, None);
        }
        Ok(Message::default())
    }

    fn wishes(&mut self, pod: &Pod, container: &Container, tell: bool) -> Wishes {
        let written = Written {
            pod: &pod.annotations,
            labels: &container.labels,
            annotations: &container.annotations,
            name: &container.name,
        };
        let (wishes, wrong) = written.wishes(&self.most);
        if tell {
            let who = who(pod, container);
            self.said.extend(wrong.iter().map(|wrong| left_out(&who, wrong)));
        }
        wishes
    }

    fn limits(
        &mut self,
        about: &About,
        wishes: &Wishes,
        quota_us: Option<i64>,
        period_us: Option<u64>,
    ) -> Option<(u64, u64)> {
        wishes.limits(quota_us, period_us).unwrap_or_else(|wrong| {
            let who = who(&about.pod, &about.container);
            self.said.push(format!("warning: {who}: {wrong}"));
            None
        })
    }

    /// Has the agent hold what a container asks for, now if its cgroup is there. False: it is not.
    fn hear<F: Files, S: Store>(
        &mut self,
        agent: &mut Agent<F, S>,
        pod: &Pod,
        container: &Container,
        wishes: &Wishes,
        now_ns: u64,
    ) -> Result<bool> {
        let Some(cgroup) = cgroup_of(&container.cgroups_path) else {
            if !container.cgroups_path.is_empty() {
                let (who, path) = (who(pod, container), container.cgroups_path.escape_debug());
                self.said.push(format!(
                    "warning: {who}: `{path}` is not a cgroup below the mount"
                ));
            }
            return Ok(false);
        };
        agent.wish(&cgroup, Some(wishes.knobs));
        let found = agent.bring_now(&cgroup, now_ns)?;
        self.cgroups.insert(container.id.clone(), cgroup);
        Ok(found)
    }
}

fn who(pod: &Pod, container: &Container) -> String {
    in_pod(&pod.namespace, &pod.name, &container.name)
}

/// The cgroup that a runtime makes of its `cgroupsPath`, below the mount. `SLICE:PREFIX:NAME` is systemd's: a slice lies in those
/// that its name begins with.
fn cgroup_of(path: &str) -> Option<PathBuf> {
    let plain = |path: &str| {
        let path = Path::new(path);
        let is_plain = |part| matches!(part, Component::RootDir | Component::Normal(_));
        let is_below = path.components().all(is_plain) && path.components().count() > 1;
        (path.has_root() && is_below).then(|| path.to_path_buf())
    };
    let parts: Vec<&str> = path.split(':').collect();
    let [slice, prefix, name] = parts[..] else {
        return plain(path);
    };
    // What systemd does where none is named.
    let slice = if slice.is_empty() { "system.slice" } else { slice };
    let words = slice.strip_suffix(".slice")?;
    let mut whole = String::new();
    // "-.slice" is the root.
    for (at, _) in words
        .match_indices('-')
        .filter(|(at, _)| *at > 0)
        .chain([(words.len(), "")])
    {
        if words != "-" {
            whole += &format!("/{}.slice", &words[..at]);
        }
    }
    let unit = match (name.ends_with(".slice"), prefix.is_empty()) {
        (true, _) => name.to_string(),
        (false, true) => format!("{name}.scope"),
        (false, false) => format!("{prefix}-{name}.scope"),
    };
    plain(&format!("{whole}/{unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_is_found_by_what_the_runtime_calls_it() {
        let of = |path| cgroup_of(path).map(|path| path.to_str().unwrap().to_string());
        let some = |path: &str| Some(path.to_string());
        assert_eq!(
            of("/kubepods/burstable/pod1-2/abc"),
            some("/kubepods/burstable/pod1-2/abc")
        );
        assert_eq!(
            of("kubepods-burstable-pod1_2.slice:cri-containerd:abc"),
            some("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-abc.scope")
        );
        assert_eq!(of("system.slice:crio:abc"), some("/system.slice/crio-abc.scope"));
        assert_eq!(of(":docker:abc"), some("/system.slice/docker-abc.scope"));
        assert_eq!(of("-.slice::abc"), some("/abc.scope"));
        for outside in ["", "/", "abc", "/a/../../b", "a:b", "web:crio:abc"] {
            assert_eq!(of(outside), None, "{outside}");
        }
    }
}
