// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Notices cgroups that come and go, and knobs that change, by any writer.
//!
//! inotify says whose attributes were written. A cgroup that it cannot watch (there is a limit to watches), or whose
//! knobs were refused, is looked at again and again: one system call for each that has no knobs.
use crate::intf::Group;
use crate::knobs::{cgroup_id, cpu_max, KnobValues};
use crate::{Error, Result, Scheduler, CGROUP_ROOT};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What is known of the scheduler's cgroups, by the kernel's number for them.
pub struct Watch {
    known: BTreeMap<u64, Known>,
    /// The scheduler's count of comings and goings at the last look that found every group's directory.
    groups_changed: Option<u64>,
    inotify: Option<Inotify>,
    ids: HashMap<WatchDescriptor, u64>,
}

struct Known {
    path: PathBuf,
    /// What the scheduler was last given.
    applied: KnobValues,
    /// What was wrong the last time, so that it is said once.
    complaint: String,
    /// Its attributes may have been written since they were last read.
    due: bool,
    /// inotify tells of it.
    watched: bool,
}

impl Default for Watch {
    fn default() -> Self {
        Self {
            known: BTreeMap::new(),
            groups_changed: None,
            inotify: Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).ok(),
            ids: HashMap::new(),
        }
    }
}

impl Watch {
    /// Looks at the cgroups that have come or changed, and hands the scheduler what is new. Returns what is newly wrong:
    /// such knobs are left as they were.
    pub fn look(&mut self, scheduler: &Scheduler) -> Vec<Error> {
        let changed = scheduler.groups_changed();
        if self.groups_changed != Some(changed) {
            self.groups_changed = self.find_groups(scheduler).then_some(changed);
        }
        self.read_events();
        let mut wrong = Vec::new();
        for (&id, known) in &mut self.known {
            if !known.due && known.watched && known.complaint.is_empty() {
                continue;
            }
            known.due = false;
            match known.apply(id, scheduler) {
                Ok(_) => known.complaint.clear(),
                Err(error) if error.to_string() == known.complaint => {}
                Err(error) => {
                    known.complaint = error.to_string();
                    wrong.push(error);
                }
            }
        }
        wrong
    }

    /// Takes up the groups that have come, and forgets those that have gone. False: a directory was not found, since the
    /// group has just gone, or is not there yet.
    fn find_groups(&mut self, scheduler: &Scheduler) -> bool {
        let mut groups = scheduler.groups();
        groups.sort_by_key(|group| group.g.depth);
        let alive: HashSet<u64> = groups.iter().map(|group| group.g.id).collect();
        self.known.retain(|id, _| alive.contains(id));
        self.ids.retain(|_, id| alive.contains(id));
        let mut found_all = true;
        for group in groups {
            let id = group.g.id;
            if let Some(known) = self.known.get_mut(&id) {
                // The controller was switched off and on again: the scheduler has it anew, the directory is the same.
                if !group.has(&known.applied.for_bpf(id)) {
                    known.applied = KnobValues::default();
                    known.due = true;
                }
                continue;
            }
            let Some(path) = self.path_of(group) else {
                found_all = false;
                continue;
            };
            // Watched before it is read, so that nothing is missed in between.
            let flags = AddWatchFlags::IN_ATTRIB | AddWatchFlags::IN_ONLYDIR;
            let inotify = self.inotify.as_ref();
            let watch = inotify.and_then(|inotify| inotify.add_watch(&path, flags).ok());
            self.ids.extend(watch.map(|watch| (watch, id)));
            let known = Known {
                path,
                applied: KnobValues::default(),
                complaint: String::new(),
                due: true,
                watched: watch.is_some(),
            };
            self.known.insert(id, known);
        }
        found_all
    }

    /// Notes whose attributes were written.
    fn read_events(&mut self) {
        let Some(inotify) = &self.inotify else { return };
        while let Ok(events) = inotify.read_events() {
            for event in events {
                if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
                    self.known.values_mut().for_each(|known| known.due = true);
                } else if let Some(id) = self.ids.get(&event.wd) {
                    self.known.entry(*id).and_modify(|known| known.due = true);
                }
            }
        }
    }

    /// One cgroup, now: `plimsoll set` has changed its knobs.
    pub fn reload(&mut self, scheduler: &Scheduler, cgroup: &Path) -> Result<()> {
        let id = cgroup_id(cgroup)?;
        if !self.known.contains_key(&id) {
            // Whatever else is wrong will be said by the next look.
            self.look(scheduler);
        }
        let applied = self.known.get_mut(&id).map(|known| known.apply(id, scheduler));
        match applied.transpose()? {
            Some(true) => Ok(()),
            Some(false) | None => Err(Error::Input(format!(
                "{}: the scheduler has no group for this cgroup: it has no cpu controller, or is scheduled as part of one above it",
                cgroup.display()
            ))),
        }
    }

    pub(crate) fn path(&self, id: u64) -> Option<&Path> {
        self.known.get(&id).map(|known| known.path.as_path())
    }

    /// The directory of a cgroup whose parent's is known.
    fn path_of(&self, group: &Group) -> Option<PathBuf> {
        // SAFETY: a group's parent outlives it; the arena stays mapped while the scheduler lives.
        let Some(parent) = (unsafe { group.g.parent.as_ref() }) else {
            // Of a group that is being made it is not there yet.
            return (group.g.id == cgroup_id(Path::new(CGROUP_ROOT)).ok()?).then(|| CGROUP_ROOT.into());
        };
        let parent = &self.known.get(&parent.id)?.path;
        let name = group.name();
        let is_it = |path: &Path| std::fs::metadata(path).is_ok_and(|found| found.ino() == group.g.id);
        let path = parent.join(&name);
        if is_it(&path) {
            return Some(path);
        }
        // Long names are cut off in the scheduler.
        if name.len() + 1 < group.name.len() {
            return None;
        }
        let mut children = std::fs::read_dir(parent)
            .ok()?
            .flatten()
            .map(|entry| entry.path());
        children.find(|path| is_it(path))
    }
}

impl Known {
    /// Hands the scheduler what is set now. False: it has no such group, which has just gone.
    fn apply(&mut self, id: u64, scheduler: &Scheduler) -> Result<bool> {
        let values = KnobValues::read(&self.path)?;
        if values == self.applied {
            return Ok(true);
        }
        let (quota_us, period_us) = cpu_max(&self.path);
        values.check(&self.path, quota_us, period_us)?;
        let known = scheduler.set_knobs(&values.for_bpf(id))?;
        if known {
            self.applied = values;
        }
        Ok(known)
    }
}
