// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NRI's messages, as far as the agent needs them. Field numbers: containerd/nri pkg/api/api.proto, v1alpha1, which only grows.
use plimsoll_protobuf::{entry, fields, number, text, Message, Value};
use std::collections::BTreeMap;
use std::io::Result;

#[derive(Debug, Default, Clone)]
pub struct Pod {
    pub id: String,
    pub name: String,
    pub namespace: String,
    pub annotations: BTreeMap<String, String>,
}

#[derive(Debug, Default, Clone)]
pub struct Container {
    pub id: String,
    pub pod: String,
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub cpu: Cpu,
    /// As runtimes write it: a path below the mount, or systemd's `SLICE:PREFIX:NAME`.
    pub cgroups_path: String,
}

/// `None`: not said.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Cpu {
    /// Negative: no limit.
    pub quota_us: Option<i64>,
    pub period_us: Option<u64>,
}

/// What most requests are about.
#[derive(Debug, Default)]
pub struct About {
    pub pod: Pod,
    pub container: Container,
    /// What an update changes.
    pub cpu: Cpu,
}

impl About {
    /// Of CreateContainer, StartContainer, UpdateContainer, ...
    pub fn request(bytes: &[u8]) -> Result<Self> {
        let mut about = Self::default();
        for field in fields(bytes) {
            match field? {
                (1, value) => about.pod = pod(value)?,
                (2, value) => about.container = container(value)?,
                (3, value) => about.cpu = resources(value)?,
                _ => {}
            }
        }
        Ok(about)
    }

    /// Of StateChange, and the event's number.
    pub fn event(bytes: &[u8]) -> Result<(u64, Self)> {
        let (mut event, mut about) = (0, Self::default());
        for field in fields(bytes) {
            match field? {
                (1, value) => event = number(value)?,
                (2, value) => about.pod = pod(value)?,
                (3, value) => about.container = container(value)?,
                _ => {}
            }
        }
        Ok((event, about))
    }
}

/// Part of what there is: Synchronize.
#[derive(Debug, Default)]
pub struct Known {
    pub pods: Vec<Pod>,
    pub containers: Vec<Container>,
    pub more: bool,
}

impl Known {
    pub fn part(bytes: &[u8]) -> Result<Self> {
        let mut known = Self::default();
        for field in fields(bytes) {
            match field? {
                (1, value) => known.pods.push(pod(value)?),
                (2, value) => known.containers.push(container(value)?),
                (3, value) => known.more = number(value)? != 0,
                _ => {}
            }
        }
        Ok(known)
    }
}

fn pod(value: Value<'_>) -> Result<Pod> {
    let mut pod = Pod::default();
    for field in fields(value.bytes()?) {
        match field? {
            (1, value) => pod.id = text(value)?,
            (2, value) => pod.name = text(value)?,
            (4, value) => pod.namespace = text(value)?,
            (6, value) => entry(value, &mut pod.annotations)?,
            _ => {}
        }
    }
    Ok(pod)
}

fn container(value: Value<'_>) -> Result<Container> {
    let mut container = Container::default();
    for field in fields(value.bytes()?) {
        match field? {
            (1, value) => container.id = text(value)?,
            (2, value) => container.pod = text(value)?,
            (3, value) => container.name = text(value)?,
            (5, value) => entry(value, &mut container.labels)?,
            (6, value) => entry(value, &mut container.annotations)?,
            (11, value) => {
                for field in fields(value.bytes()?) {
                    match field? {
                        (3, value) => container.cpu = resources(value)?,
                        (5, value) => container.cgroups_path = text(value)?,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Ok(container)
}

fn resources(value: Value<'_>) -> Result<Cpu> {
    let mut cpu = Cpu::default();
    for field in fields(value.bytes()?) {
        let (2, value) = field? else { continue };
        for field in fields(value.bytes()?) {
            match field? {
                (2, value) => cpu.quota_us = Some(optional(value)? as i64),
                (3, value) => cpu.period_us = Some(optional(value)?),
                _ => {}
            }
        }
    }
    Ok(cpu)
}

/// OptionalInt64, OptionalUInt64: 0 is an empty message.
fn optional(value: Value<'_>) -> Result<u64> {
    let mut found = 0;
    for field in fields(value.bytes()?) {
        if let (1, value) = field? {
            found = number(value)?;
        }
    }
    Ok(found)
}

/// RegisterPluginRequest. `index`: two digits, by which plugins are called in turn.
pub fn registration(name: &str, index: &str) -> Message {
    let mut message = Message::default();
    message.text(1, name).text(2, index);
    message
}

/// ConfigureResponse: the events that are wanted.
pub fn events(wanted: &[u64]) -> Message {
    let mut message = Message::default();
    message.number(2, wanted.iter().map(|event| 1 << (event - 1)).sum());
    message
}

/// SynchronizeResponse: that more is waited for.
pub fn synchronized(more: bool) -> Message {
    let mut message = Message::default();
    if more {
        message.number(2, 1);
    }
    message
}

/// CreateContainerResponse.
pub fn created(quota_us: u64, period_us: u64) -> Message {
    wrapped(1, wrapped(6, wrapped(2, cpu(quota_us, period_us))))
}

/// UpdateContainerResponse.
pub fn updated(container: &str, quota_us: u64, period_us: u64) -> Message {
    let mut update = Message::default();
    update
        .text(1, container)
        .message(2, &wrapped(1, cpu(quota_us, period_us)));
    wrapped(1, update)
}

/// LinuxResources with quota and period.
fn cpu(quota_us: u64, period_us: u64) -> Message {
    let optional = |number| {
        let mut message = Message::default();
        message.number(1, number);
        message
    };
    let mut cpu = Message::default();
    cpu.message(2, &optional(quota_us))
        .message(3, &optional(period_us));
    wrapped(2, cpu)
}

fn wrapped(field: u32, inner: Message) -> Message {
    let mut message = Message::default();
    message.message(field, &inner);
    message
}
