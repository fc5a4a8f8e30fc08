// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Room for what an owner writes. The kernel refuses a quota below a group's burst, and a weight of a group that is idle: what the agent
//! wrote of these is given back where an owner is about to write, or may have been refused.
use crate::group::Group;
use crate::{idle, Agent, File, Files, Limits, Result, Store};
use plimsoll_live::shown;
use std::path::{Path, PathBuf};

/// After a write that may have been refused: the kubelet tries again after 10 to 15 s. What gets through ends it.
const RETRY_NS: u64 = 30_000_000_000;
/// Before a write that is announced, and after one that may be followed by another.
pub(crate) const RETREAT_NS: u64 = 10_000_000_000;

impl<F: Files, S: Store> Agent<F, S> {
    /// The owner is about to write a weight, and `quota_us` if that is known: what is in the way is given back until `bring_now`, or for
    /// 10 s.
    pub fn make_room(&mut self, shown: &Path, quota_us: Option<u64>, now_ns: u64) -> Result<()> {
        let path = self.files.at(shown);
        let Some(&Group { id, owner, .. }) = self.groups.get(&path) else {
            return Ok(());
        };
        let is_burst_above = quota_us.is_some_and(|quota_us| self.is_burst_above(id, quota_us));
        if is_burst_above || self.journal.change(id, File::Idle).is_some() {
            self.retreat(&path, now_ns + RETREAT_NS);
            self.look(&path, now_ns)?;
        }
        match quota_us {
            Some(quota_us) => self.make_room_above(&path, owner, quota_us, now_ns),
            None => Ok(()),
        }
    }

    /// A container's quota was `own`, and is `quota_us`, or is about to be. The kubelet lowers its pod's by as much next, once, and tells of
    /// that to nobody: the pod's burst makes room until then, or for 30 s.
    pub(crate) fn make_room_above(
        &mut self,
        container: &Path,
        own: Limits,
        quota_us: u64,
        now_ns: u64,
    ) -> Result<()> {
        let Some(own_us) = own.quota_us.filter(|own_us| *own_us > quota_us) else {
            return Ok(());
        };
        let Some(path) = self.pod_above(container) else {
            return Ok(());
        };
        let Some(&Group { id, owner: pod, .. }) = self.groups.get(&path) else {
            return Ok(());
        };
        let less_us = (own_us - quota_us) * pod.period_us / own.period_us;
        let left_us = pod.quota_us.map(|pod_us| pod_us.saturating_sub(less_us));
        if left_us.is_some_and(|left_us| self.is_burst_above(id, left_us)) {
            self.retreat(&path, now_ns + RETRY_NS);
            self.look(&path, now_ns)?;
        }
        Ok(())
    }

    /// Whether a group has a burst of the agent's that the kernel would refuse this quota for.
    fn is_burst_above(&self, id: u64, quota_us: u64) -> bool {
        let burst = self.journal.change(id, File::Burst);
        let burst_us = burst.and_then(|change| change.ours.parse::<u64>().ok());
        burst_us.is_some_and(|burst_us| burst_us > quota_us)
    }

    /// Leaves a group's burst and weight to its owner until `bring_now`, or until then.
    fn retreat(&mut self, path: &Path, until_ns: u64) {
        if let Some(group) = self.groups.get_mut(path) {
            group.retreat_ns = until_ns;
            self.later.insert(path.into(), group.retreat_ns);
        }
    }

    /// An owner opened cpu.max or cpu.weight to write, and no event says that it was written.
    pub(crate) fn was_tried(&mut self, path: PathBuf, file: File, now_ns: u64) {
        // The event may be of the agent's own write.
        if self.wrote.contains(&path) || !self.groups.contains_key(&path) {
            return;
        }
        match file {
            File::Weight => self.was_weight_tried(&path),
            File::Max => self.was_quota_tried(&path, now_ns),
            _ => {}
        }
        // What was written, and not in vain, is an event of its own.
        self.due.insert(path);
    }

    fn was_weight_tried(&mut self, path: &Path) {
        let Some(group) = self.groups.get_mut(path) else {
            return;
        };
        let has_ours = self.journal.change(group.id, File::Idle).is_some();
        if has_ours && matches!(idle::is_idle(&self.files, path), Ok(Some(true))) {
            group.keeps_weight = true;
            let text = "a write to cpu.weight changed nothing: cpu.idle is given back, and stays its owner's";
            self.said.push(format!("{}: {text}", shown(path)));
        }
    }

    fn was_quota_tried(&mut self, path: &Path, now_ns: u64) {
        let Some(group) = self.groups.get(path) else {
            return;
        };
        let has_ours = self.journal.change(group.id, File::Burst).is_some();
        if !has_ours || now_ns < group.retreat_ns {
            return;
        }
        let own = (group.owner.quota_us, group.owner.period_us);
        if Limits::read(&self.files, path).is_ok_and(|limits| (limits.quota_us, limits.period_us) == own) {
            self.retreat(path, now_ns + RETRY_NS);
            // The kubelet tries to write a pod's limit once, after its container's.
            if let Some(pod) = self.pod_above(path) {
                self.retreat(&pod, now_ns + RETRY_NS);
                self.due.insert(pod);
            }
            let text = "a write to cpu.max changed nothing: cpu.max.burst is given back for 30 s, or until one does, should it be in the way";
            self.said.push(format!("{}: {text}", shown(path)));
        }
    }
}
