// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A pod's own limit. The kubelet gives a pod's cgroup the sum of its containers' limits, which would hold their bursts: so the pod's
//! group saves and spends what they do together. With limits of the pod alone (spec.resources) the burst is the pod's.
use crate::containers::{container_id, pod_uid};
use crate::group::Group;
use crate::{Agent, Files, Result, Store};
use plimsoll_live::{Knob, KnobValues};
use std::path::{Path, PathBuf};

/// What one of its containers brings to a pod's burst.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    burst_us: u64,
    onset_percent: Option<u64>,
    is_limited: bool,
}

impl Part {
    pub fn of(group: &Group) -> Self {
        Self {
            burst_us: group.knobs.burst_us.unwrap_or(0),
            onset_percent: group.knobs.onset_percent,
            is_limited: group.owner.quota_us.is_some(),
        }
    }
}

/// The group of the pod, right above a container's. Both below the mount.
fn pod_of(container: &Path) -> Option<&Path> {
    container.to_str().and_then(container_id)?;
    container.parent().filter(|pod| is_pod(pod))
}

fn is_pod(shown: &Path) -> bool {
    let is_kubelets = |part: &std::ffi::OsStr| part.to_string_lossy().starts_with("kubepods");
    shown.iter().any(is_kubelets) && shown.to_str().and_then(pod_uid).is_some()
}

impl<F: Files, S: Store> Agent<F, S> {
    /// What the containers of the pod whose group this is ask for together; nothing for another group. The bursts of those that have a
    /// limit of their own add up, to what a group may ask for at most; where none has, the pod's limit is that of each.
    pub(crate) fn of_containers(&self, path: &Path) -> KnobValues {
        let mut values = KnobValues::default();
        if !is_pod(self.files.shown(path)) {
            return values;
        }
        let parts = self
            .below(path)
            .filter(|(other, _)| pod_of(self.files.shown(other)).is_some() && other.parent() == Some(path))
            .map(|(_, group)| Part::of(group))
            .filter(|part| part.burst_us > 0);
        let (limited, free): (Vec<Part>, Vec<Part>) = parts.partition(|part| part.is_limited);
        let burst_us = match limited.is_empty() {
            false => limited.iter().map(|part| part.burst_us).sum(),
            true => free.iter().map(|part| part.burst_us).max().unwrap_or(0),
        };
        if burst_us > 0 {
            values.burst_us = Some(burst_us.min(Knob::BurstUs.most()));
            values.onset_percent = limited
                .iter()
                .chain(&free)
                .filter_map(|part| part.onset_percent)
                .max();
        }
        values
    }

    /// The group of the pod whose container's group this is.
    pub(crate) fn pod_above(&self, container: &Path) -> Option<PathBuf> {
        pod_of(self.files.shown(container))?;
        container.parent().map(PathBuf::from)
    }

    /// Notes that a container's group was looked at: its pod's follows, if that asks for something else now.
    pub(crate) fn tell_pod(&mut self, path: &Path, group: &mut Group) {
        let part = Part::of(group);
        if part != group.told_pod {
            group.told_pod = part;
            self.pod_is_due(path);
        }
    }

    /// Notes that a container asks for something else, or has gone.
    pub(crate) fn pod_is_due(&mut self, path: &Path) {
        self.pods_due.extend(self.pod_above(path));
    }

    /// Brings the pods whose containers ask for something else to it.
    pub(crate) fn look_at_pods(&mut self, now_ns: u64) -> Result<()> {
        for pod in std::mem::take(&mut self.pods_due) {
            // The event of it may come after what its container asks for.
            if !self.groups.contains_key(&pod) && self.files.id(&pod).is_some() {
                self.find_groups(Some(&pod))?;
            }
            if self.read_knobs(&pod) {
                self.headroom.link(&mut self.groups, &mut self.due);
                self.look(&pod, now_ns)?;
            }
        }
        Ok(())
    }
}
