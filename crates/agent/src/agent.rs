// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which groups there are, what has happened to them, and when each is looked at.
use crate::annotations::left_out;
use crate::group::Group;
use crate::headroom::Headroom;
use crate::lent::{Lent, Looked};
use crate::restore::restore;
use crate::{Containers, Error, File, Files, Journal, Result, Settings, Store};
use plimsoll_live::{shown, KnobValues};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::{Path, PathBuf};

/// Everything is looked at again this often, though the kernel says when it has lost an event; and this often where not
/// everything can be watched.
const LOOK_AT_ALL_NS: u64 = 300_000_000_000;
const LOOK_BLIND_NS: u64 = 5_000_000_000;

pub struct Agent<F, S> {
    pub(crate) files: F,
    pub(crate) journal: Journal<S>,
    pub(crate) settings: Settings,
    /// What containers ask for, by their cgroups' paths below the mount.
    pub(crate) wishes: BTreeMap<PathBuf, KnobValues>,
    /// Where it is read what containers ask for; nowhere where a runtime says it.
    containers: Option<Containers>,
    /// The cgroups below the mount that have come since it was asked; `None`: they are not asked for.
    came: Option<Vec<PathBuf>>,
    pub(crate) groups: BTreeMap<PathBuf, Group>,
    pub(crate) headroom: Headroom,
    pub(crate) dry_run: bool,
    /// When everything is looked at, at the latest.
    look_at_all_ns: u64,
    /// What is looked at in this step, those with loans and when each is due, and those in whose cpu.max the agent has written, or
    /// its owner and the agent knows, since events were read: the next event of it says nothing. A step takes time with these, not
    /// with all groups.
    pub(crate) due: BTreeSet<PathBuf>,
    pub(crate) lent: BTreeMap<PathBuf, Lent>,
    pub(crate) wrote: BTreeSet<PathBuf>,
    /// What is looked at again at a time: a burst was given back, or what was to be written was refused.
    pub(crate) later: BTreeMap<PathBuf, u64>,
    /// Groups of pods whose containers ask for something else than before.
    pub(crate) pods_due: BTreeSet<PathBuf>,
    /// Not everything is watched: an owner may write and no event says so.
    pub(crate) blind: bool,
    pub(crate) said: Vec<String>,
}

impl<F: Files, S: Store> Agent<F, S> {
    /// `journal`: one whose files were restored.
    pub fn new(files: F, journal: Journal<S>, settings: Settings, dry_run: bool) -> Self {
        Self {
            files,
            journal,
            settings,
            wishes: BTreeMap::new(),
            containers: None,
            came: None,
            groups: BTreeMap::new(),
            headroom: Headroom::default(),
            dry_run,
            look_at_all_ns: 0,
            due: BTreeSet::new(),
            lent: BTreeMap::new(),
            wrote: BTreeSet::new(),
            later: BTreeMap::new(),
            pods_due: BTreeSet::new(),
            blind: false,
            said: Vec::new(),
        }
    }

    /// Holds from now on what the containers that come ask for in the files that their runtimes leave.
    pub fn read_labels(&mut self, containers: Containers) {
        self.containers = Some(containers);
    }

    /// Keeps from now on which cgroups come, for `came`. What a container asks for is then said by `wish`, and forgotten with its
    /// cgroup.
    pub fn tell_what_comes(&mut self) {
        self.came.get_or_insert_default();
    }

    /// The cgroups below the mount that have come since this was last asked.
    pub fn came(&mut self) -> Vec<PathBuf> {
        self.came.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Looks at what has happened and at what is due, and changes what has to be. Returns what there is to say; an error
    /// is one of the journal's, after which nothing may be changed any more.
    pub fn step(&mut self, now_ns: u64) -> Result<Vec<String>> {
        let events = self.files.events();
        self.blind = events.blind;
        if events.blind {
            self.look_at_all_ns = self.look_at_all_ns.min(self.looked_at_all_ns() + LOOK_BLIND_NS);
        }
        if events.all || now_ns >= self.look_at_all_ns {
            self.look_at_all_ns = now_ns + LOOK_AT_ALL_NS;
            self.find_groups(None)?;
            self.due.extend(self.groups.keys().cloned());
            self.groups
                .values_mut()
                .for_each(|group| group.is_weighed = false);
        } else {
            for path in &events.tree {
                self.find_groups(Some(path))?;
            }
        }
        let is_known = |path: &PathBuf| self.groups.contains_key(path);
        self.due.extend(events.marked.into_iter().filter(is_known));
        for (path, file) in events.tried {
            self.was_tried(path, file, now_ns);
        }
        self.wrote.clear();
        let again = self.later.iter().filter(|(_, at_ns)| now_ns >= **at_ns);
        self.due.extend(again.map(|(path, _)| path.clone()));
        self.later.retain(|_, at_ns| now_ns < *at_ns);
        // All knobs before any file: the main group may be another one now.
        let mut knobs_changed = false;
        for path in self.due.clone() {
            knobs_changed |= self.read_knobs(&path);
        }
        if knobs_changed {
            self.headroom.link(&mut self.groups, &mut self.due);
        }
        for (path, file) in events.written {
            let id = self.groups.get(&path).map(|group| group.id);
            if id.is_none_or(|id| self.is_as_written(&path, id, file)) {
                continue;
            }
            if let Some(group) = self.groups.get_mut(&path) {
                group.is_weighed = false;
            }
            self.due.insert(path);
        }
        if self.headroom.is_due(now_ns) {
            self.headroom
                .window(&mut self.files, &mut self.groups, &mut self.due, now_ns);
        }
        for (path, lent) in &mut self.lent {
            if now_ns < lent.loan.due_ns || self.due.contains(path) {
                continue;
            }
            let looked = match self.blind {
                true => Looked::NotEnough,
                false => lent.look(&mut self.files, &mut self.journal, path, now_ns)?,
            };
            match looked {
                Looked::Same => {}
                Looked::Wrote => {
                    self.wrote.insert(path.clone());
                }
                Looked::NotEnough => {
                    self.due.insert(path.clone());
                }
            }
        }
        for path in std::mem::take(&mut self.due) {
            self.look(&path, now_ns)?;
        }
        self.look_at_pods(now_ns)?;
        Ok(std::mem::take(&mut self.said))
    }

    /// Whether a file holds what the agent wrote last: an event of it says nothing then.
    fn is_as_written(&self, path: &Path, id: u64, file: File) -> bool {
        let change = self.journal.change(id, file);
        change.is_some_and(|change| {
            self.files
                .read(path, file)
                .is_ok_and(|holds| holds == change.ours)
        })
    }

    fn looked_at_all_ns(&self) -> u64 {
        self.look_at_all_ns.saturating_sub(LOOK_AT_ALL_NS)
    }

    /// When the next step is due though nothing happens.
    pub fn due_ns(&self) -> u64 {
        let loans = self.lent.values();
        loans
            .map(|lent| lent.loan.due_ns)
            .chain(self.later.values().copied())
            .chain([self.look_at_all_ns])
            .chain(self.headroom.due_ns())
            .min()
            .unwrap_or(0)
    }

    pub fn nr_groups(&self) -> usize {
        self.groups.len()
    }

    /// Groups that are not as they are asked to be.
    pub(crate) fn nr_refused(&self) -> u32 {
        let refused = self
            .groups
            .values()
            .filter(|group| !group.complaint.is_empty() || !group.held.is_empty());
        refused.count() as u32
    }

    /// One group, now: its knobs were set. An error says why they are refused.
    pub fn reload(&mut self, group: &Path, now_ns: u64) -> Result<()> {
        if !self.groups.contains_key(group) {
            self.find_groups(None)?;
        }
        if !self.groups.contains_key(group) {
            let message = "the agent does not know this cgroup; does it have the cpu controller?";
            return Err(Error::Input(format!("{}: {message}", shown(group))));
        }
        if self.read_knobs(group) {
            self.headroom.link(&mut self.groups, &mut self.due);
        }
        self.look(group, now_ns)?;
        self.look_at_pods(now_ns)?;
        match self.groups.get(group).map(|group| group.complaint.as_str()) {
            Some("") | None => Ok(()),
            Some(complaint) => Err(Error::Input(complaint.into())),
        }
    }

    /// What a container asks for, for the cgroup at `shown` below the mount: it comes after the rules and before the cgroup's
    /// own attributes. `None`: nothing any more.
    pub fn wish(&mut self, shown: &Path, knobs: Option<KnobValues>) {
        match knobs.filter(|knobs| *knobs != KnobValues::default()) {
            Some(knobs) => self.wishes.insert(shown.into(), knobs),
            None => self.wishes.remove(shown),
        };
        let path = self.files.at(shown);
        if self.groups.contains_key(&path) {
            self.due.insert(path);
        }
    }

    /// Brings one cgroup to what is wanted of it before this returns. False: it is not there, or has no limits.
    pub fn bring_now(&mut self, shown: &Path, now_ns: u64) -> Result<bool> {
        let path = self.files.at(shown);
        let id = self.files.id(&path);
        if id.is_some() && self.groups.get(&path).map(|group| group.id) != id {
            self.find_groups(Some(&path))?;
        }
        if !self.groups.contains_key(&path) {
            return Ok(false);
        }
        if self.read_knobs(&path) {
            self.headroom.link(&mut self.groups, &mut self.due);
        }
        if let Some(group) = self.groups.get_mut(&path) {
            group.retreat_ns = 0;
        }
        self.later.remove(&path);
        self.look(&path, now_ns)?;
        self.look_at_pods(now_ns)?;
        self.due.remove(&path);
        // What its owner has written was read just now: the event of it, which comes after, is of no write in vain.
        self.wrote.insert(path);
        Ok(true)
    }

    /// Puts every file back, and ends. Returns what there is to say.
    pub fn end(mut self) -> Result<Vec<String>> {
        restore(&mut self.files, &mut self.journal)
    }

    /// Finds all groups anew, or those at `below` and below it.
    pub(crate) fn find_groups(&mut self, below: Option<&Path>) -> Result<()> {
        let found = self.files.groups(below);
        let mut before = match below {
            None => std::mem::take(&mut self.groups),
            Some(below) => {
                // Paths are ordered by their components: what is below one comes right after it.
                let from = self
                    .groups
                    .range::<Path, _>((Bound::Included(below), Bound::Unbounded));
                let under = from
                    .map(|(path, _)| path)
                    .take_while(|path| path.starts_with(below));
                let under: Vec<PathBuf> = under.cloned().collect();
                let taken = under
                    .into_iter()
                    .filter_map(|path| self.groups.remove_entry(&path));
                taken.collect()
            }
        };
        let mut changed = false;
        // Those whose directory was removed or made anew.
        let mut left: Vec<(u64, PathBuf)> = Vec::new();
        for path in found {
            let Some(id) = self.files.id(&path) else { continue };
            let mut known = before.remove(&path);
            if let Some(other) = known.take_if(|group| group.id != id) {
                left.push((other.id, path.clone()));
            }
            if known.is_none() {
                self.read_label(&path);
            }
            let group = known.unwrap_or_else(|| {
                changed = true;
                self.due.insert(path.clone());
                self.lent.remove(&path);
                Group::new(id)
            });
            self.groups.insert(path, group);
        }
        changed |= !before.is_empty();
        for path in before.keys() {
            self.due.remove(path);
            self.lent.remove(path);
            self.later.remove(path);
            self.pod_is_due(path);
            if self.containers.is_some() || self.came.is_some() {
                self.wishes.remove(self.files.shown(path));
            }
        }
        match below {
            // What the journal names and the agent knows nothing of is looked for among all: the journal is long.
            None => {
                let is_there =
                    |id: u64, path: &Path| self.groups.get(path).is_some_and(|group| group.id == id);
                let changed = self.journal.changed().iter();
                let gone = changed.filter(|(id, changed)| !is_there(**id, &changed.path));
                left = gone.map(|(id, changed)| (*id, changed.path.clone())).collect();
            }
            Some(_) => left.extend(before.into_iter().map(|(path, group)| (group.id, path))),
        }
        for (id, path) in left {
            // A directory that is only moved out of sight would be put back by no one.
            if self.files.id(&path) != Some(id) {
                self.forget(id, &path)?;
            }
        }
        if changed {
            self.headroom.link(&mut self.groups, &mut self.due);
        }
        Ok(())
    }

    /// What the container of a cgroup that has just come asks for.
    fn read_label(&mut self, path: &Path) {
        let shown = self.files.shown(path);
        if let Some(came) = &mut self.came {
            self.wishes.remove(shown);
            came.push(shown.into());
        }
        let Some(containers) = &self.containers else {
            return;
        };
        self.wishes.remove(shown);
        let Some(container) = shown.to_str().and_then(|shown| containers.one(shown)) else {
            return;
        };
        let (knobs, wrong) = container.written().knobs_of_what_runs(self.settings.most());
        if knobs != KnobValues::default() {
            self.wishes.insert(shown.into(), knobs);
        }
        let who = container.who();
        self.said.extend(wrong.iter().map(|wrong| left_out(&who, wrong)));
    }

    pub(crate) fn forget(&mut self, id: u64, path: &Path) -> Result<()> {
        for file in File::ALL {
            self.journal.forget(id, path, file)?;
        }
        Ok(())
    }

    /// True: they have changed.
    pub(crate) fn read_knobs(&mut self, path: &Path) -> bool {
        let of_containers = self.of_containers(path);
        let Some(group) = self.groups.get_mut(path) else {
            return false;
        };
        let before = group.knobs;
        group.refused = String::new();
        match self.files.knobs(path) {
            Ok(own) => {
                let shown = self.files.shown(path);
                let wishes = self.wishes.get(shown).copied().unwrap_or_default();
                group.knobs = self.settings.of(shown, &[wishes, own]);
                if group.knobs.burst_us.is_none() {
                    group.knobs.burst_us = of_containers.burst_us;
                    group.knobs.onset_percent = group.knobs.onset_percent.or(of_containers.onset_percent);
                }
            }
            Err(error) => group.refused = format!("{error}; the knobs of this cgroup are left as they were"),
        }
        group.knobs != before
    }
}
