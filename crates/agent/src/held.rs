// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A burst that a limit above holds. The kernel charges what a group runs to all groups above it, so it can spend what it has
//! saved only where these let it. A pod's group is told to (pods.rs); for any other that is its owner's decision, and said.
use crate::group::Group;
use crate::{Agent, Files, Limits, Store};
use plimsoll_live::shown;
use std::path::{Path, PathBuf};

/// What a group may use within `window_us` at most, all of its burst saved. Of one without a quota: anything.
fn most_us(limits: &Limits, burst_us: u64, window_us: u64) -> u64 {
    limits.quota_us.map_or(u64::MAX, |quota_us| {
        let quotas = u128::from(quota_us) * u128::from(window_us) / u128::from(limits.period_us);
        u64::try_from(quotas).unwrap_or(u64::MAX).saturating_add(burst_us)
    })
}

impl<F: Files, S: Store> Agent<F, S> {
    /// The nearest limit above that holds part of the burst that a group asks for; empty: none does.
    fn held(&self, path: &Path, group: &Group) -> String {
        let Some(asked_us) = group.knobs.burst_us.filter(|burst_us| *burst_us > 0) else {
            return String::new();
        };
        if group.owner.quota_us.is_none() {
            return String::new();
        }
        let pod = self.pod_above(path);
        for above in path.ancestors().skip(1) {
            let Some(limit) = self.groups.get(above) else {
                continue;
            };
            let Some(quota_us) = limit.owner.quota_us.filter(|_| pod.as_deref() != Some(above)) else {
                continue;
            };
            let window_us = group.owner.period_us.max(limit.owner.period_us);
            let least_us = most_us(&limit.owner, limit.burst_us(), window_us);
            let over_us = most_us(&group.owner, asked_us, window_us).saturating_sub(least_us);
            if over_us > 0 {
                return format!(
                    "{}: {} us of its burst of {asked_us} us are held by a limit above it: {} has {quota_us} us in \
                     {} us and a burst of {} us; a burst there lets them through",
                    shown(path),
                    over_us.min(asked_us),
                    shown(above),
                    limit.owner.period_us,
                    limit.burst_us(),
                );
            }
        }
        String::new()
    }

    /// Says which limit holds the burst of a group, and of those below it, where that is another than before.
    pub(crate) fn look_what_holds(&mut self, path: &Path) {
        let asks = |group: &Group| group.knobs.burst_us.is_some() || !group.held.is_empty();
        let own = self.groups.get_key_value(path);
        let changed: Vec<(PathBuf, String)> = own
            .into_iter()
            .chain(self.below(path))
            .filter(|(_, group)| asks(group))
            .map(|(path, group)| (path.clone(), self.held(path, group)))
            .filter(|(path, held)| *held != self.groups[path].held)
            .collect();
        for (path, held) in changed {
            if !held.is_empty() {
                self.said.push(format!("warning: {held}"));
            }
            if let Some(group) = self.groups.get_mut(&path) {
                group.held = held;
            }
        }
    }
}
