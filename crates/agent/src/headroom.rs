// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Headroom by quotas of the side groups. Which groups are main and side, the side's budget and its parts are policy's
//! (headroom.h, lend.h); here they get what was measured.
use crate::group::Group;
use crate::limits::QUOTA_LEAST_US;
use crate::Files;
use plimsoll_policy_sys as pl;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Several times a second. A window is seen a window late, so a shorter one reacts faster and reads more files.
pub(crate) const WINDOW_NS: u64 = 200_000_000;
/// While the use of main and of the side stays as it is, the side groups are read this seldom: there may be hundreds of them.
const CALM_WINDOW_NS: u64 = 4_000_000_000;
/// While main has its headroom, no more side groups are read in a window, on average.
const READS_IN_A_WINDOW: u32 = 10;
/// A quota is rewritten when it changes by this part of the machine: the kernel refills it at each write.
const STEP_PER_CENT: u64 = 1;
/// A change of more steps than this is not chance within one window. Where the side is to have less by that, it is made at once.
const FAR_STEPS: u64 = 5;
/// Of many side groups each part is small: one that is used up is rewritten when it changes by this part of itself, and where main
/// lacks its headroom all are.
const STEP_OF_PART: u64 = 32;
/// What parts of the budget are in: microseconds of so many.
pub(crate) const PART_US: u64 = 100_000;
/// Less than this part of a CPU, in PART_US, is no change of the side's use: the agent's own is of that size.
const LEAST_SEEN_US: u64 = 100;

#[derive(Default)]
pub(crate) struct Headroom {
    pub percent: u32,
    tolerance_ns: u64,
    /// The topmost groups of the side.
    side: BTreeMap<PathBuf, Side>,
    /// Those that want headroom.
    main: Vec<PathBuf>,
    /// When the side was last read.
    last: Option<Glance>,
    /// When main was last read.
    glance: Option<Glance>,
    /// `None`: the last window changed a part.
    calm: Option<Calm>,
    /// Of a window.
    pub budget_us: u64,
    pub used_us: u64,
    pub idle_us: u64,
}

/// When it was, and what all groups and main had used by then.
#[derive(Clone, Copy)]
struct Glance {
    at_ns: u64,
    busy_us: u64,
    main_us: u64,
}

/// How the machine was used between two glances, and the side's budget after that, in microseconds of 100 ms.
struct Use {
    side_us: u64,
    main_us: u64,
    idle_us: u64,
    budget_us: u64,
}

/// What a side group had used when it was last read, and its part of the budget, of PART_US.
struct Side {
    seen_us: Option<u64>,
    part_us: Option<u64>,
    /// What its smallest quota gives it.
    least_us: u64,
}

/// How it was when the side was last read, in microseconds of 100 ms.
struct Calm {
    side_us: u64,
    main_us: u64,
    budget_us: u64,
    /// What a group that used nothing may use.
    left_us: u64,
}

/// In microseconds of 100 ms.
fn rate(used_us: u64, window_us: u64) -> u64 {
    used_us * PART_US / window_us.max(1)
}

impl Headroom {
    pub fn is_due(&self, now_ns: u64) -> bool {
        self.due_ns().is_some_and(|due_ns| now_ns >= due_ns)
    }

    pub fn due_ns(&self) -> Option<u64> {
        // At multiples of it, when loans are looked at, too: half to one and a half of it later.
        let next_ns = |at_ns: u64| ((at_ns + WINDOW_NS / 2) / WINDOW_NS + 1) * WINDOW_NS;
        (self.percent > 0).then(|| self.glance.map_or(0, |glance| next_ns(glance.at_ns)))
    }

    /// Finds main and side anew, and looks at all of them in the next window. `due` gets those that have come to the side or left it.
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
        let topmost = |path: &PathBuf| is_side(path) && !path.parent().is_some_and(is_side);
        self.calm = None;
        let before = std::mem::take(&mut self.side);
        self.side = groups
            .iter()
            .filter(|(path, _)| topmost(path))
            .map(|(path, group)| {
                let seen_us = before.get(path).and_then(|side| side.seen_us);
                let side = Side {
                    seen_us,
                    part_us: group.side_us,
                    least_us: (*QUOTA_LEAST_US + 1) * PART_US / group.owner.period_us.max(1),
                };
                (path.clone(), side)
            })
            .collect();
        let mains = groups.iter().filter(|(_, group)| wants(group));
        self.main.clear();
        for (path, _) in mains {
            // What one below another main group uses is counted with that one.
            if !self.main.last().is_some_and(|above| path.starts_with(above)) {
                self.main.push(path.clone());
            }
        }
        self.percent = marked.percent;
        self.tolerance_ns = marked.tolerance_ns;
        if self.percent == 0 {
            (self.last, self.glance, self.calm) = (None, None, None);
        }
        for (path, group) in groups {
            let is_side = self.side.contains_key(path);
            if !is_side {
                group.side_us = None;
            }
            if is_side != before.contains_key(path) {
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
        let main_us = self.main.iter().filter_map(|path| files.usage_us(path)).sum();
        let now = Glance {
            at_ns: now_ns,
            busy_us,
            main_us,
        };
        let Some(before) = self.glance.replace(now) else {
            self.read_side(files);
            self.last = Some(now);
            return;
        };
        let capacity_us = PART_US * u64::from(nr_cpus);
        let step_us = capacity_us * STEP_PER_CENT / 100;
        let Use {
            side_us,
            main_us,
            idle_us,
            budget_us,
        } = self.used(before, now, capacity_us);
        let of_window = |rate_us: u64| rate_us * WINDOW_NS / (PART_US * 1000);
        (self.budget_us, self.used_us, self.idle_us) =
            (of_window(budget_us), of_window(side_us), of_window(idle_us));

        let moved = self.calm.as_ref().is_none_or(|calm| {
            // One that begins is held to what was left for one more.
            let seen_us = (calm.left_us / 4).clamp(LEAST_SEEN_US, step_us.max(LEAST_SEEN_US));
            // Where the side uses little of what it has, what main does changes nothing yet.
            let is_slack = side_us * 2 < budget_us.min(calm.budget_us);
            side_us.abs_diff(calm.side_us) >= seen_us
                || !is_slack && main_us.abs_diff(calm.main_us) >= step_us
        });
        let last = self.last.unwrap_or(before);
        let nr_side = self.side.len() as u32;
        // At once where main lacks its headroom, or a group that has come has no part yet.
        let has_come = self.side.values().any(|side| side.part_us.is_none());
        let bound_us = budget_us + step_us;
        // Where the parts allow no more, it is chance, or quotas that are the smallest there are: nothing to make anew.
        let allowed_us: u64 = self.side.values().filter_map(|side| side.part_us).sum();
        let least_us: u64 = self.side.values().map(|side| side.least_us).sum();
        let is_short = side_us > bound_us && allowed_us > bound_us.max(least_us);
        // Each of many parts is as small as a tick, and a write forgives its group what that owes. So they are written at once only
        // where the side is to have far less than its parts, and otherwise as seldom as they are read. What it uses beyond them is
        // no reason: after a write it is what that forgave, and the next write would forgive it again.
        let is_far = nr_side <= READS_IN_A_WINDOW || allowed_us > budget_us + FAR_STEPS * step_us;
        let wait_ns = match moved {
            true if is_short && is_far || has_come => 0,
            true => u64::from(nr_side / READS_IN_A_WINDOW) * WINDOW_NS,
            false => CALM_WINDOW_NS,
        };
        if now_ns < last.at_ns + wait_ns {
            return;
        }
        let since_us = (now_ns - last.at_ns).max(1) / 1000;
        // By all that was seen since the side was last read, as a window is short beside so many parts; unless much has changed since.
        let long_us = self.used(last, now, capacity_us).budget_us;
        let budget_us = match long_us.abs_diff(budget_us) > FAR_STEPS * step_us {
            true => budget_us,
            false => long_us,
        };
        let used = self.read_side(files);
        self.last = Some(now);
        let used: Vec<u64> = used.into_iter().map(|used_us| rate(used_us, since_us)).collect();
        let used_us: u64 = used.iter().sum();
        let is_hungry =
            |(side, used_us): (&Side, &u64)| side.part_us.is_some_and(|part_us| used_us * 8 >= part_us * 7);
        let hungry: Vec<bool> = self.side.values().zip(&used).map(is_hungry).collect();
        // Nothing to give or to take, as a whole: what each has used since it was last read is chance then, where parts are of the
        // size of a tick, and each write would forgive a group what it owes.
        let in_effect = |(side, hungry): (&Side, &bool)| match (side.part_us, hungry) {
            (Some(part_us), true) => part_us.max(side.least_us),
            (part_us, _) => part_us.unwrap_or(0),
        };
        let allowed_us: u64 = self.side.values().zip(&hungry).map(in_effect).sum();
        let fits = allowed_us.abs_diff(budget_us) <= step_us;
        let is_settled = fits && used_us + step_us > allowed_us && !has_come;
        let mut changed = false;
        let shares = self.shares(budget_us, &used, &hungry);
        let parts = self.side.iter_mut().zip(shares).zip(hungry);
        for (((path, side), part_us), hungry) in parts.filter(|_| !is_settled) {
            let least_us = |before_us: u64| match (is_short, hungry) {
                (true, _) => 1,
                (_, true) => step_us.min(before_us / STEP_OF_PART),
                _ => step_us,
            };
            let stays = |before_us: u64| before_us.abs_diff(part_us) < least_us(before_us).max(1);
            if side.part_us.is_some_and(stays) {
                continue;
            }
            if let Some(group) = groups.get_mut(path) {
                side.part_us = Some(part_us);
                group.side_us = Some(part_us);
                due.insert(path.clone());
                changed = true;
            }
        }
        // What moved was seen in one window, and in the parts since the last reading only in part, unless it had moved by then.
        let is_seen = !moved || self.calm.is_none() || since_us < WINDOW_NS * 2 / 1000;
        self.calm = (!changed && is_seen).then(|| Calm {
            side_us,
            main_us,
            budget_us,
            left_us: budget_us.saturating_sub(used_us) / u64::from(nr_side).max(1),
        });
    }

    /// What each side group may use, of a budget and of what each has used.
    fn shares(&self, budget_us: u64, used_us: &[u64], hungry: &[bool]) -> Vec<u64> {
        let mut rest_ns = budget_us * 1000;
        let mut used_ns = used_us.iter().sum::<u64>() * 1000;
        let mut shares: Vec<Option<u64>> = vec![None; used_us.len()];
        loop {
            let mut found = false;
            let sides = self.side.values().zip(used_us).zip(hungry);
            for (share, ((side, used_us), hungry)) in shares.iter_mut().zip(sides) {
                // Below that its quota keeps nothing from it.
                let least_us = match hungry {
                    true => side.least_us,
                    false => side.least_us.min(*used_us),
                };
                // SAFETY: numbers, and two of this function's own.
                let mut has_least = || unsafe {
                    pl::pl_lend_least(&mut rest_ns, &mut used_ns, used_us * 1000, least_us * 1000)
                };
                if share.is_none() && has_least() {
                    *share = Some(least_us);
                    found = true;
                }
            }
            if !found {
                break;
            }
        }
        let nr_hungry = hungry.iter().filter(|hungry| **hungry).count();
        let each = shares.into_iter().zip(used_us).zip(hungry);
        let of_rest = |((share, used_us), hungry): ((Option<u64>, &u64), &bool)| {
            let among = if *hungry { nr_hungry } else { self.side.len() };
            // SAFETY: numbers only.
            share.unwrap_or_else(|| unsafe {
                pl::pl_lend_share(rest_ns, used_us * 1000, used_ns, among as u32) / 1000
            })
        };
        each.map(of_rest).collect()
    }

    fn budget(&self, side_us: u64, idle_us: u64, capacity_us: u64) -> u64 {
        let tolerance_ns = match self.tolerance_ns {
            0 => pl::HEADROOM_TOLERANCE_NS,
            own => own,
        };
        // The tolerance is per window of policy's.
        let tolerance_ns = tolerance_ns * PART_US * 1000 / pl::HEADROOM_WINDOW_NS;
        let [side_ns, idle_ns, capacity_ns] = [side_us, idle_us, capacity_us].map(|us| us * 1000);
        // SAFETY: numbers only.
        let budget_ns =
            unsafe { pl::pl_headroom_budget(side_ns, idle_ns, capacity_ns, self.percent, tolerance_ns) };
        budget_ns / 1000
    }

    /// What happened between two glances.
    fn used(&self, from: Glance, to: Glance, capacity_us: u64) -> Use {
        let window_us = (to.at_ns - from.at_ns).max(1) / 1000;
        let busy_us = rate(to.busy_us.saturating_sub(from.busy_us), window_us);
        let main_us = rate(to.main_us.saturating_sub(from.main_us), window_us);
        // What is neither main's nor the side's is above main, where a group has no tasks of its own.
        let side_us = busy_us.saturating_sub(main_us);
        let idle_us = capacity_us.saturating_sub(busy_us);
        let budget_us = self.budget(side_us, idle_us, capacity_us);
        Use {
            side_us,
            main_us,
            idle_us,
            budget_us,
        }
    }

    /// What each side group has used since it was last read; 0 of one that was never read.
    fn read_side(&mut self, files: &impl Files) -> Vec<u64> {
        let read = |(path, side): (&PathBuf, &mut Side)| {
            let usage_us = files.usage_us(path);
            let before = std::mem::replace(&mut side.seen_us, usage_us);
            let both = before.zip(usage_us);
            both.map_or(0, |(before, now)| now.saturating_sub(before))
        };
        self.side.iter_mut().map(read).collect()
    }

    /// Whether it is one of those that have a part of the budget.
    pub fn has_part(&self, path: &Path) -> bool {
        self.side.contains_key(path)
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
