// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whose a cgroup is: the container and the pod, out of what container runtimes leave in files on the node. Here no socket of
//! theirs is opened, which would be the right to do anything with any container.
//!
//! | runtime | file | what it says |
//! |---|---|---|
//! | containerd under Kubernetes | `/run/containerd/io.containerd.runtime.v2.task/k8s.io/ID/config.json` | annotations `io.kubernetes.cri.*` of the OCI specification; the pod's where `pod_annotations` of its configuration passes them on |
//! | CRI-O | `/run/containers/storage/DRIVER-containers/ID/userdata/config.json` | annotations `io.kubernetes.*`; the pod's |
//! | Docker | `/var/lib/docker/containers/ID/config.v2.json` | `Name`, `Config.Image`, `Config.Labels` |
//! | Podman | `/var/lib/containers/storage/DRIVER-containers/containers.json`, `volatile-containers.json` beside it | `names`, and the image in `metadata` |
//! | Podman | `/var/lib/containers/storage/DRIVER-containers/ID/userdata/config.json` | annotations; its labels are in a database |
use crate::annotations::{in_pod, Written, PREFIX};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// What is not known is empty.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Container {
    pub namespace: String,
    pub pod: String,
    /// The container's name in its pod; `POD` is the one that holds the pod's namespaces.
    pub container: String,
    pub image: String,
    /// The runtime's name for it.
    pub name: String,
    pod_uid: String,
    asks: Asks,
}

/// Settings that a container's user has written on it or its pod.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Asks {
    pod: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

impl Container {
    /// What it asks for, as it is written.
    pub(crate) fn written(&self) -> Written<'_> {
        Written {
            pod: &self.asks.pod,
            labels: &self.asks.labels,
            annotations: &self.asks.annotations,
            name: &self.container,
        }
    }

    /// What a user would call it.
    pub(crate) fn who(&self) -> String {
        match self.pod.is_empty() {
            true => format!("container {}", self.name.escape_debug()),
            false => in_pod(&self.namespace, &self.pod, &self.container),
        }
    }
}

/// What was read about the containers that were there at the last look.
#[derive(Debug)]
pub struct Containers {
    root: PathBuf,
    known: HashMap<String, Container>,
}

impl Containers {
    /// `root`: `/`, or where the node's files are mounted.
    pub fn under(root: &Path) -> Self {
        Self {
            root: root.into(),
            known: HashMap::new(),
        }
    }

    /// For each of these cgroups whose it is; nothing for one that is neither a container's nor a pod's.
    pub fn of<'a>(&mut self, cgroups: impl Iterator<Item = &'a str> + Clone) -> Vec<Container> {
        let mut before = std::mem::take(&mut self.known);
        let mut podmans = None;
        for id in cgroups.clone().filter_map(container_id) {
            // One that is not known may be a moment later: its runtime writes the files first, but not for us.
            if let Some(known) = before.remove(id).or_else(|| self.read(id, &mut podmans)) {
                self.known.insert(id.into(), known);
            }
        }
        let of_pods: BTreeMap<&str, &Container> = self
            .known
            .values()
            .filter(|known| !known.pod_uid.is_empty())
            .map(|known| (known.pod_uid.as_str(), known))
            .collect();
        let of = |cgroup: &str| match container_id(cgroup) {
            Some(id) => self.known.get(id).cloned().unwrap_or_default(),
            None => {
                let known = pod_uid(cgroup).and_then(|uid| of_pods.get(uid.as_str()));
                known.map_or_else(Container::default, |known| Container {
                    namespace: known.namespace.clone(),
                    pod: known.pod.clone(),
                    ..Container::default()
                })
            }
        };
        cgroups.map(of).collect()
    }

    /// The container of one cgroup, read now. `None`: it is none, or no runtime says whose it is.
    pub(crate) fn one(&self, cgroup: &str) -> Option<Container> {
        self.read(container_id(cgroup)?, &mut None)
    }

    fn read(&self, id: &str, podmans: &mut Option<HashMap<String, Container>>) -> Option<Container> {
        let annotations = |bundle: PathBuf| {
            let text = std::fs::read_to_string(bundle.join("config.json")).ok()?;
            Some(serde_json::from_str::<Specification>(&text).ok()?.annotations)
        };
        let stored = |folder: &str| {
            let mut bundles = self
                .storages(folder)
                .map(|folder| folder.join(id).join("userdata"));
            bundles.find_map(annotations)
        };
        let containerds = self
            .root
            .join("run/containerd/io.containerd.runtime.v2.task/k8s.io");
        let of_pod = annotations(containerds.join(id)).and_then(|found| of_annotations(&found));
        of_pod
            .or_else(|| of_annotations(&stored("run/containers/storage")?))
            .or_else(|| self.dockers(id))
            .or_else(|| {
                let podman = podmans.get_or_insert_with(|| self.podmans()).remove(id)?;
                let annotations = stored(PODMANS).unwrap_or_default();
                Some(Container {
                    asks: Asks {
                        annotations: settings_in(&annotations),
                        ..Asks::default()
                    },
                    ..podman
                })
            })
    }

    fn dockers(&self, id: &str) -> Option<Container> {
        let file = self
            .root
            .join("var/lib/docker/containers")
            .join(id)
            .join("config.v2.json");
        let found: Docker = serde_json::from_str(&std::fs::read_to_string(file).ok()?).ok()?;
        Some(Container {
            name: found.name.trim_start_matches('/').into(),
            image: found.config.image,
            asks: Asks {
                labels: settings_in(&found.config.labels.unwrap_or_default()),
                ..Asks::default()
            },
            ..Container::default()
        })
    }

    /// Where containers/storage, which Podman and CRI-O use, keeps what belongs to containers: a folder for each storage driver that was
    /// ever chosen, such as overlay-containers.
    fn storages(&self, folder: &str) -> impl Iterator<Item = PathBuf> {
        let entries = std::fs::read_dir(self.root.join(folder)).into_iter().flatten();
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        paths.filter(|path| path.to_string_lossy().ends_with("-containers"))
    }

    fn podmans(&self) -> HashMap<String, Container> {
        // Those that are removed as they end are in a file of their own.
        let files = self
            .storages(PODMANS)
            .flat_map(|folder| ["containers.json", "volatile-containers.json"].map(|file| folder.join(file)));
        let found = files.flat_map(|file| {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            serde_json::from_str::<Vec<Podman>>(&text).unwrap_or_default()
        });
        let container = |found: Podman| {
            let metadata: PodmanMetadata = serde_json::from_str(&found.metadata).unwrap_or_default();
            let container = Container {
                name: found.names.into_iter().next().unwrap_or_default(),
                image: metadata.image_name,
                ..Container::default()
            };
            (found.id, container)
        };
        found.map(container).collect()
    }
}

/// Podman's storage.
const PODMANS: &str = "var/lib/containers/storage";

#[derive(Deserialize)]
struct Specification {
    #[serde(default)]
    annotations: HashMap<String, String>,
}

#[derive(Deserialize)]
struct Docker {
    #[serde(rename = "Name")]
    name: String,
    #[serde(rename = "Config")]
    config: DockerConfig,
}

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(rename = "Image")]
    image: String,
    /// `null` where there are none.
    #[serde(default, rename = "Labels")]
    labels: Option<HashMap<String, String>>,
}

#[derive(Deserialize)]
struct Podman {
    id: String,
    #[serde(default)]
    names: Vec<String>,
    #[serde(default)]
    metadata: String,
}

#[derive(Default, Deserialize)]
struct PodmanMetadata {
    #[serde(default, rename = "image-name")]
    image_name: String,
}

/// containerd's and CRI-O's names for the same. `None`: it is not a container of Kubernetes.
fn of_annotations(annotations: &HashMap<String, String>) -> Option<Container> {
    let first = |names: [&str; 2]| {
        let value = names.iter().find_map(|name| annotations.get(*name));
        value.cloned().unwrap_or_default()
    };
    let pod = first(["io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name"]);
    let kind = first([
        "io.kubernetes.cri.container-type",
        "io.kubernetes.cri-o.ContainerType",
    ]);
    let is_sandbox = kind == "sandbox";
    let name = first(["io.kubernetes.cri.container-name", "io.kubernetes.container.name"]);
    (!pod.is_empty()).then(|| Container {
        namespace: first([
            "io.kubernetes.cri.sandbox-namespace",
            "io.kubernetes.pod.namespace",
        ]),
        pod,
        container: if is_sandbox { "POD".into() } else { name },
        image: first(["io.kubernetes.cri.image-name", "io.kubernetes.cri-o.ImageName"]),
        name: String::new(),
        pod_uid: first(["io.kubernetes.cri.sandbox-uid", "io.kubernetes.pod.uid"]),
        asks: Asks {
            pod: settings_in(annotations),
            ..Asks::default()
        },
    })
}

fn settings_in(words: &HashMap<String, String>) -> BTreeMap<String, String> {
    let ours = words.iter().filter(|(key, _)| key.starts_with(PREFIX));
    ours.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The runtimes' numbers have 64 digits, alone or after the runtime's name: `cri-containerd-ID.scope`.
pub(crate) fn container_id(cgroup: &str) -> Option<&str> {
    let last = cgroup.rsplit('/').next()?;
    let last = last.strip_suffix(".scope").unwrap_or(last);
    let (runtime, id) = last.rsplit_once('-').unwrap_or(("", last));
    let is_digit = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    let is_container = id.len() == 64 && id.bytes().all(is_digit) && !runtime.ends_with("conmon");
    is_container.then_some(id)
}

/// `kubepods-burstable-podUID.slice` with systemd, `podUID` without.
pub(crate) fn pod_uid(cgroup: &str) -> Option<String> {
    let last = cgroup.rsplit('/').next()?;
    let uid = match last.strip_suffix(".slice") {
        Some(slice) if slice.starts_with("kubepods") => slice.rsplit_once("-pod")?.1.replace('_', "-"),
        Some(_) => return None,
        None => last.strip_prefix("pod")?.into(),
    };
    Some(uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotations::Most;

    fn node(files: &[(String, &str)]) -> tempfile::TempDir {
        let node = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = node.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        node
    }

    fn id(digit: char) -> String {
        std::iter::repeat_n(digit, 64).collect()
    }

    #[test]
    fn a_container_of_containerd_and_its_pod_have_kubernetes_names() {
        let bundle = |digit| {
            format!(
                "run/containerd/io.containerd.runtime.v2.task/k8s.io/{}/config.json",
                id(digit)
            )
        };
        let node = node(&[
            (
                bundle('a'),
                r#"{"ociVersion": "1.1.0", "annotations": {
                    "io.kubernetes.cri.container-name": "web", "io.kubernetes.cri.container-type": "container",
                    "io.kubernetes.cri.image-name": "docker.io/library/nginx:1", "io.kubernetes.cri.sandbox-name": "web-0",
                    "io.kubernetes.cri.sandbox-namespace": "shop", "io.kubernetes.cri.sandbox-uid": "12-ab",
                    "plimsoll.dev/burst-us": "5000"}}"#,
            ),
            (
                bundle('b'),
                r#"{"annotations": {"io.kubernetes.cri.container-type": "sandbox",
                    "io.kubernetes.cri.sandbox-name": "web-0", "io.kubernetes.cri.sandbox-namespace": "shop",
                    "io.kubernetes.cri.sandbox-uid": "12-ab"}}"#,
            ),
        ]);
        let pod = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12_ab.slice";
        let cgroups = [
            pod.to_string(),
            format!("{pod}/cri-containerd-{}.scope", id('a')),
            format!("{pod}/cri-containerd-{}.scope", id('b')),
            format!("/kubepods/burstable/pod12-ab/{}", id('a')),
            "/kubepods.slice/kubepods-burstable.slice".into(),
            "/system.slice/plimsoll.service".into(),
        ];
        let mut containers = Containers::under(node.path());
        let found = containers.of(cgroups.iter().map(String::as_str));
        let names = |of: &Container| [&of.namespace, &of.pod, &of.container, &of.image].map(String::clone);
        assert_eq!(names(&found[0]), ["shop", "web-0", "", ""]);
        assert_eq!(
            names(&found[1]),
            ["shop", "web-0", "web", "docker.io/library/nginx:1"]
        );
        assert_eq!(names(&found[2]), ["shop", "web-0", "POD", ""]);
        assert_eq!(found[3], found[1]);
        let web = Containers::under(node.path()).one(&cgroups[1]).unwrap();
        assert_eq!(web.who(), "pod shop/web-0, container web");
        assert_eq!(burst(&web), Some(5_000));
        assert!(Containers::under(node.path()).one(pod).is_none());
        assert_eq!(found[4..], [Container::default(), Container::default()]);
        // Of what is gone nothing is kept.
        containers.of(cgroups[..1].iter().map(String::as_str));
        assert!(containers.known.is_empty());
    }

    #[test]
    fn cri_o_docker_and_podman_say_it_in_files_of_their_own() {
        let node = node(&[
            (
                format!(
                    "run/containers/storage/overlay-containers/{}/userdata/config.json",
                    id('c')
                ),
                r#"{"annotations": {"io.kubernetes.container.name": "db", "io.kubernetes.pod.name": "db-1",
                    "io.kubernetes.pod.namespace": "shop", "io.kubernetes.cri-o.ContainerType": "container",
                    "io.kubernetes.cri-o.ImageName": "quay.io/db:2", "io.kubernetes.pod.uid": "9"}}"#,
            ),
            (
                format!("var/lib/docker/containers/{}/config.v2.json", id('d')),
                r#"{"Name": "/cache", "Config": {"Image": "redis:7",
                    "Labels": {"plimsoll.dev/burst-us": "2000", "maintainer": "me"}}}"#,
            ),
            (
                "var/lib/containers/storage/overlay-containers/containers.json".into(),
                &format!(
                    r#"[{{"id": "{}", "names": ["job"], "metadata": "{{\"image-name\":\"alpine:3\"}}"}}]"#,
                    id('e')
                ),
            ),
            (
                format!(
                    "var/lib/containers/storage/overlay-containers/{}/userdata/config.json",
                    id('e')
                ),
                r#"{"annotations": {"plimsoll.dev/burst-us": "3000", "io.container.manager": "libpod"}}"#,
            ),
            // Of another kind of storage, and one that is removed as it ends.
            (
                "var/lib/containers/storage/vfs-containers/volatile-containers.json".into(),
                &format!(r#"[{{"id": "{}", "names": ["once"]}}]"#, id('a')),
            ),
            (
                format!(
                    "var/lib/containers/storage/vfs-containers/{}/userdata/config.json",
                    id('a')
                ),
                r#"{"annotations": {"plimsoll.dev/burst-us": "4000"}}"#,
            ),
        ]);
        let cgroups = [
            format!("/kubepods.slice/kubepods-pod9.slice/crio-{}.scope", id('c')),
            format!(
                "/kubepods.slice/kubepods-pod9.slice/crio-conmon-{}.scope",
                id('c')
            ),
            format!("/system.slice/docker-{}.scope", id('d')),
            format!("/machine.slice/libpod-{}.scope", id('e')),
            format!("/system.slice/docker-{}.scope", id('f')),
            format!("/libpod_parent/libpod-{}", id('a')),
        ];
        let found = Containers::under(node.path()).of(cgroups.iter().map(String::as_str));
        assert_eq!(
            (found[0].pod.as_str(), found[0].container.as_str()),
            ("db-1", "db")
        );
        assert_eq!(found[0].image, "quay.io/db:2");
        assert_eq!(found[1], Container::default());
        assert_eq!(
            (found[2].name.as_str(), found[2].image.as_str()),
            ("cache", "redis:7")
        );
        assert_eq!(
            (found[3].name.as_str(), found[3].image.as_str()),
            ("job", "alpine:3")
        );
        assert_eq!(found[4], Container::default());
        assert_eq!((burst(&found[2]), burst(&found[3])), (Some(2_000), Some(3_000)));
        assert_eq!((found[5].name.as_str(), burst(&found[5])), ("once", Some(4_000)));
        assert_eq!(found[2].who(), "container cache");
    }

    fn burst(of: &Container) -> Option<u64> {
        let (wishes, wrong) = of.written().wishes(&Most::default());
        assert!(wrong.is_empty(), "{wrong:?}");
        wishes.knobs.burst_us
    }
}
