// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Headroom by quotas of the side groups. Which groups are main and side, the side's budget and its parts are policy's
//! (headroom.h, lend.h); here they get what was measured.
use crate::agent::Group;
use crate::Files;
use plimsoll_policy_sys as pl;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Several times a second. A window is seen a window late, so a shorter one reacts faster and reads more files.
pub(crate) const WINDOW_NS: u64 = 200_000_000;
/// While the machine's use stays as it is, the side groups are read this seldom: there may be hundreds of them.
const CALM_WINDOW_NS: u64 = 1_000_000_000;
/// A quota is rewritten when it changes by this part of the machine: the kernel refills it at each write.
const STEP_PER_CENT: u64 = 1;

#[derive(Default)]
pub(crate) struct Headroom {
    pub percent: u32,
    tolerance_ns: u64,
    /// The topmost groups of the side, and what they had used at the last window's end.
    side: BTreeMap<PathBuf, Option<u64>>,
    last: Option<(u64, u64)>,
    /// The machine's use at the last look, and, where the last window changed nothing, its part in thousandths then.
    glance: Option<(u64, u64)>,
    calm: Option<u64>,
    pub budget_us: u64,
    pub used_us: u64,
    pub idle_us: u64,
}

impl Headroom {
    pub fn is_due(&self, now_ns: u64) -> bool {
        self.due_ns().is_some_and(|due_ns| now_ns >= due_ns)
    }

    pub fn due_ns(&self) -> Option<u64> {
        // At multiples of it, when loans are looked at, too: half to one and a half of it later.
        let next_ns = |at_ns: u64| ((at_ns + WINDOW_NS / 2) / WINDOW_NS + 1) * WINDOW_NS;
        (self.percent > 0).then(|| self.glance.map_or(0, |(at_ns, _)| next_ns(at_ns)))
    }

    /// Finds main and side anew, and looks at all of them in the next window. `due` gets those whose limit is no longer headroom's.
    pub fn link(&mut self, groups: &mut BTreeMap<PathBuf, Group>, due: &mut BTreeSet<PathBuf>) {
        let wants = |group: &Group| group.knobs.headroom_percent.unwrap_or(0) > 0;
        if self.percent == 0 && !groups.values().any(wants) {
            return;
        }
        let mut root: Box<pl::Group> = Box::new(pl::zeroed());
        let mut levels: BTreeMap<&Path, Box<pl::Group>> = BTreeMap::new();
        let mut marked: pl::Headroom = pl::zeroed();
        // Parents come before children: a path is after its own beginning.
        for (path, group) in groups.iter() {
            let mut level: Box<pl::Group> = Box::new(pl::zeroed());
            let parent = path.parent().and_then(|parent| levels.get_mut(parent));
            level.parent = parent.map_or(&mut *root, |parent| &mut **parent);
            level.headroom_percent = group.knobs.headroom_percent.unwrap_or(0) as u32;
            level.headroom_tolerance_ns = group.knobs.tolerance_us.unwrap_or(0) * 1000;
            // SAFETY: every parent is in `levels` or the root, boxed, until the end of this function.
            unsafe {
                pl::pl_headroom_clear(&mut *level);
                pl::pl_headroom_mark(&mut marked, &mut *level);
            }
            levels.insert(path, level);
        }
        // SAFETY: as above.
        let is_side = |path: &Path| {
            levels
                .get(path)
                .is_some_and(|level| unsafe { pl::pl_headroom_is_side(&marked, &**level) })
        };
        let topmost = |path: &&PathBuf| is_side(path) && !path.parent().is_some_and(is_side);
        self.calm = None;
        let before = std::mem::take(&mut self.side);
        self.side = groups
            .keys()
            .filter(topmost)
            .map(|path| (path.clone(), before.get(path).copied().flatten()))
            .collect();
        self.percent = marked.percent;
        self.tolerance_ns = marked.tolerance_ns;
        if self.percent == 0 {
            (self.last, self.glance, self.calm) = (None, None, None);
        }
        for (path, group) in groups {
            if !self.side.contains_key(path) && group.side_us.take().is_some() {
                due.insert(path.clone());
            }
        }
    }

    /// A window is over: the side's budget for the next one, and each group's part of it. `due` gets those whose part changed.
    pub fn window(
        &mut self,
        files: &mut impl Files,
        groups: &mut BTreeMap<PathBuf, Group>,
        due: &mut BTreeSet<PathBuf>,
        now_ns: u64,
    ) {
        let Some((busy_us, nr_cpus)) = files.busy() else {
            return;
        };
        let glance = self.glance.replace((now_ns, busy_us));
        let part = glance.map(|(at_ns, before_us)| {
            let capacity_us = (now_ns - at_ns).max(1) / 1000 * u64::from(nr_cpus);
            busy_us.saturating_sub(before_us) * 1000 / capacity_us.max(1)
        });
        // Whether main rises or a side group falls, the machine's use shows it, but where both happen at once.
        let is_calm = self
            .calm
            .zip(part)
            .is_some_and(|(before, now)| before.abs_diff(now) < STEP_PER_CENT * 10);
        if is_calm
            && self
                .last
                .is_some_and(|(at_ns, _)| now_ns < at_ns + CALM_WINDOW_NS)
        {
            return;
        }
        let last = self.last.replace((now_ns, busy_us));
        let mut used = Vec::new();
        for (path, before) in &mut self.side {
            let usage_us = files.usage_us(path);
            used.push(
                before
                    .zip(usage_us)
                    .map_or(0, |(before, now)| now.saturating_sub(before)),
            );
            *before = usage_us;
        }
        let Some((at_ns, busy_before_us)) = last else {
            return;
        };
        let window_us = (now_ns - at_ns).max(1) / 1000;
        self.used_us = used.iter().sum();
        let tolerance_ns = match self.tolerance_ns {
            0 => pl::HEADROOM_TOLERANCE_NS,
            own => own,
        };
        let capacity_us = window_us * u64::from(nr_cpus);
        self.idle_us = capacity_us.saturating_sub(busy_us.saturating_sub(busy_before_us));
        // The tolerance is per window of policy's.
        let tolerance_ns = tolerance_ns * window_us * 1000 / pl::HEADROOM_WINDOW_NS;
        // SAFETY: numbers only.
        let budget_ns = unsafe {
            pl::pl_headroom_budget(
                self.used_us * 1000,
                self.idle_us * 1000,
                capacity_us * 1000,
                self.percent,
                tolerance_ns,
            )
        };
        self.budget_us = budget_ns / 1000;
        let per_period = |in_window_us: u64| in_window_us * 100_000 / window_us;
        let is_hungry = |path: &Path, used_us: u64| {
            groups[path]
                .side_us
                .is_some_and(|side_us| per_period(used_us) * 8 >= side_us * 7)
        };
        let hungry: Vec<bool> = self
            .side
            .keys()
            .zip(&used)
            .map(|(path, used_us)| is_hungry(path, *used_us))
            .collect();
        let mut changed = false;
        let nr_hungry = hungry.iter().filter(|hungry| **hungry).count() as u32;
        for ((path, used_us), hungry) in self.side.keys().zip(&used).zip(hungry) {
            let among = if hungry { nr_hungry } else { self.side.len() as u32 };
            // SAFETY: numbers only.
            let share_ns =
                unsafe { pl::pl_lend_share(budget_ns, used_us * 1000, self.used_us * 1000, among) };
            let side_us = per_period(share_ns / 1000);
            let Some(group) = groups.get_mut(path) else {
                continue;
            };
            let step_us = 100_000 * u64::from(nr_cpus) * STEP_PER_CENT / 100;
            if group
                .side_us
                .is_none_or(|before| before.abs_diff(side_us) >= step_us)
            {
                group.side_us = Some(side_us);
                due.insert(path.clone());
                changed = true;
            }
        }
        self.calm = part.filter(|_| !changed);
    }

    /// "main", "side" or "-".
    pub fn role(&self, path: &Path, group: &Group) -> &'static str {
        let under = |(side, _): (&PathBuf, _)| path.starts_with(side);
        match (self.percent, group.knobs.headroom_percent.unwrap_or(0)) {
            (0, _) => "-",
            (_, 1..) => "main",
            _ if self.side.iter().any(under) => "side",
            _ => "-",
        }
    }
}
