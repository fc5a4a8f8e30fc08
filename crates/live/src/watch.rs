//! Notices cgroups that come and go, and knobs that change, whoever writes them.
//!
//! The kernel tells nobody that an extended attribute of a cgroup has changed, so every cgroup is looked at again and
//! again: one system call for each that has no knobs.
use crate::intf::Group;
use crate::knobs::{cgroup_id, cpu_max, KnobValues};
use crate::{Error, Result, Scheduler, CGROUP_ROOT};
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What is known of the scheduler's cgroups, by the kernel's number for them.
#[derive(Default)]
pub struct Watch {
    known: HashMap<u64, Known>,
    looks: u64,
}

struct Known {
    path: PathBuf,
    /// What the scheduler was last given.
    applied: KnobValues,
    /// What was wrong the last time, so that it is said once.
    complaint: String,
    seen: u64,
}

impl Watch {
    /// Looks at every cgroup, and hands the scheduler what has changed. Returns what is newly wrong: such knobs are
    /// left as they were.
    pub fn look(&mut self, scheduler: &Scheduler) -> Vec<Error> {
        self.looks += 1;
        let mut groups = scheduler.groups();
        groups.sort_by_key(|group| group.g.depth);
        let mut wrong = Vec::new();
        for group in groups {
            let id = group.g.id;
            if !self.known.contains_key(&id) {
                // Gone again, or not there yet: the next look finds out.
                let Some(path) = self.path_of(group) else { continue };
                let known = Known {
                    path,
                    applied: KnobValues::default(),
                    complaint: String::new(),
                    seen: 0,
                };
                self.known.insert(id, known);
            }
            let known = self.known.get_mut(&id).expect("inserted above");
            known.seen = self.looks;
            match known.apply(id, scheduler) {
                Ok(()) => known.complaint.clear(),
                Err(error) if error.to_string() == known.complaint => {}
                Err(error) => {
                    known.complaint = error.to_string();
                    wrong.push(error);
                }
            }
        }
        let looks = self.looks;
        self.known.retain(|_, known| known.seen == looks);
        wrong
    }

    /// One cgroup, now: `plimsoll set` has changed its knobs.
    pub fn reload(&mut self, scheduler: &Scheduler, cgroup: &Path) -> Result<()> {
        let id = cgroup_id(cgroup)?;
        if !self.known.contains_key(&id) {
            // Whatever else is wrong will be said by the next look.
            self.look(scheduler);
        }
        match self.known.get_mut(&id) {
            Some(known) => known.apply(id, scheduler),
            None => Err(Error::Input(format!(
                "{}: the scheduler does not know this cgroup; has it the cpu controller?",
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
            return Some(CGROUP_ROOT.into());
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
    fn apply(&mut self, id: u64, scheduler: &Scheduler) -> Result<()> {
        let values = KnobValues::read(&self.path)?;
        if values == self.applied {
            return Ok(());
        }
        let (quota_us, period_us) = cpu_max(&self.path);
        values.check(&self.path, quota_us, period_us)?;
        // False: the cgroup has just gone.
        if scheduler.set_knobs(&values.for_bpf(id))? {
            self.applied = values;
        }
        Ok(())
    }
}
