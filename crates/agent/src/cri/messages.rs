// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CRI's messages, as far as the agent needs them. Field numbers: kubernetes/cri-api pkg/apis/runtime/v1/api.proto, which only
//! grows.
use plimsoll_protobuf::{entry, fields, text, Message, Value};
use std::collections::BTreeMap;
use std::io::Result;

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Pod {
    pub id: String,
    pub name: String,
    pub namespace: String,
    pub annotations: BTreeMap<String, String>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Container {
    pub id: String,
    pub pod: String,
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

/// VersionRequest.
pub fn version_request() -> Message {
    let mut message = Message::default();
    message.text(1, "v1");
    message
}

/// VersionResponse: the runtime's name and version.
pub fn version(bytes: &[u8]) -> Result<String> {
    let (mut name, mut version) = (String::new(), String::new());
    for field in fields(bytes) {
        match field? {
            (2, value) => name = text(value)?,
            (3, value) => version = text(value)?,
            _ => {}
        }
    }
    Ok(format!("{name} {version}"))
}

/// ListContainersRequest and ListPodSandboxRequest: the one of this number, or all.
pub fn list(id: Option<&str>) -> Message {
    let mut message = Message::default();
    if let Some(id) = id {
        let mut filter = Message::default();
        filter.text(1, id);
        message.message(1, &filter);
    }
    message
}

/// ListContainersResponse.
pub fn containers(bytes: &[u8]) -> impl Iterator<Item = Result<Container>> + '_ {
    listed(bytes, container)
}

/// ListPodSandboxResponse.
pub fn pods(bytes: &[u8]) -> impl Iterator<Item = Result<Pod>> + '_ {
    listed(bytes, pod)
}

fn listed<'a, T: 'a>(
    bytes: &'a [u8],
    read: fn(Value<'_>) -> Result<T>,
) -> impl Iterator<Item = Result<T>> + 'a {
    fields(bytes).filter_map(move |field| match field {
        Ok((1, value)) => Some(read(value)),
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    })
}

fn container(value: Value<'_>) -> Result<Container> {
    let mut container = Container::default();
    for field in fields(value.bytes()?) {
        match field? {
            (1, value) => container.id = text(value)?,
            (2, value) => container.pod = text(value)?,
            (3, value) => container.name = name(value)?.0,
            (8, value) => entry(value, &mut container.labels)?,
            (9, value) => entry(value, &mut container.annotations)?,
            _ => {}
        }
    }
    Ok(container)
}

fn pod(value: Value<'_>) -> Result<Pod> {
    let mut pod = Pod::default();
    for field in fields(value.bytes()?) {
        match field? {
            (1, value) => pod.id = text(value)?,
            (2, value) => (pod.name, pod.namespace) = name(value)?,
            (6, value) => entry(value, &mut pod.annotations)?,
            _ => {}
        }
    }
    Ok(pod)
}

/// Name and namespace in PodSandboxMetadata; ContainerMetadata has the name alone.
fn name(value: Value<'_>) -> Result<(String, String)> {
    let (mut name, mut namespace) = (String::new(), String::new());
    for field in fields(value.bytes()?) {
        match field? {
            (1, value) => name = text(value)?,
            (3, value) => namespace = text(value)?,
            _ => {}
        }
    }
    Ok((name, namespace))
}
