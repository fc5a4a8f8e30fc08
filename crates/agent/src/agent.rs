// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each group's files are to hold, and how they come to hold it.
use crate::annotations::left_out;
use crate::headroom::{Headroom, PART_US};
use crate::journal::Change;
use crate::lending::{Loan, Terms};
use crate::limits::QUOTA_LEAST_US;
use crate::marks::{marked, marked_burst};
use crate::pods::{pod_of, Part};
use crate::restore::{is_gone, restore, write};
use crate::{idle, Containers, Error, File, Files, Journal, Limits, Result, Settings, Store};
use plimsoll_live::{shown, KnobValues};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};

/// Everything is looked at again this often, though the kernel says when it has lost an event; and this often where not
/// everything can be watched.
const LOOK_AT_ALL_NS: u64 = 300_000_000_000;
const LOOK_BLIND_NS: u64 = 5_000_000_000;
/// What was refused is tried again after this.
const AGAIN_NS: u64 = 5_000_000_000;
/// For how long the kernel's burst is given up where it may have stood in the way of the owner's write: the kubelet tries again after
/// 10 to 15 s. What gets through ends it.
pub(crate) const RETRY_NS: u64 = 30_000_000_000;
/// For how long what may be in the way of an owner's next write is given up.
const RETREAT_NS: u64 = 10_000_000_000;

pub struct Agent<F, S> {
    pub(crate) files: F,
    pub(crate) journal: Journal<S>,
    settings: Settings,
    /// What containers ask for, by their cgroups' paths below the mount.
    wishes: BTreeMap<PathBuf, KnobValues>,
    /// Where it is read what containers ask for; nowhere where a runtime says it.
    containers: Option<Containers>,
    /// The cgroups below the mount that have come since it was asked; `None`: they are not asked for.
    came: Option<Vec<PathBuf>>,
    pub(crate) groups: BTreeMap<PathBuf, Group>,
    pub(crate) headroom: Headroom,
    dry_run: bool,
    /// When everything is looked at, at the latest.
    look_at_all_ns: u64,
    /// What is looked at in this step, those with loans and when each is due, and those in whose cpu.max the agent has written, or
    /// its owner and the agent knows, since events were read: the next event of it says nothing. A step takes time with these, not
    /// with all groups.
    pub(crate) due: BTreeSet<PathBuf>,
    pub(crate) lent: BTreeMap<PathBuf, Lent>,
    wrote: BTreeSet<PathBuf>,
    /// What is looked at again at a time: a burst was given back, or what was to be written was refused.
    later: BTreeMap<PathBuf, u64>,
    /// Groups of pods whose containers ask for something else than before.
    pub(crate) pods_due: BTreeSet<PathBuf>,
    /// Not everything is watched: an owner may write and no event says so.
    blind: bool,
    said: Vec<String>,
}

pub(crate) struct Group {
    pub id: u64,
    /// As the owner wants it.
    pub owner: Limits,
    pub knobs: KnobValues,
    /// What headroom leaves it, of PART_US.
    pub side_us: Option<u64>,
    /// Until then its owner can write what the agent's burst or cpu.idle would be in the way of.
    retreat_ns: u64,
    /// No event says that cpu.idle holds anything but what it is to hold.
    is_weighed: bool,
    /// Its owner wrote its weight, which the kernel refuses of a group that is idle.
    keeps_weight: bool,
    /// Why its knobs were refused.
    refused: String,
    complaint: String,
    /// What a dry run has said already.
    announced: String,
    /// What its pod's group was told that it asks for.
    pub told_pod: Part,
}

/// A group's loan, apart from the groups: it is looked at many times a second, and nothing else of the group is.
pub(crate) struct Lent {
    pub loan: Loan,
    id: u64,
    /// The quota that it gives, and whether the files took what they were to hold.
    quota_us: u64,
    is_held: bool,
    /// Headroom has no part in its quota.
    is_alone: bool,
}

/// What a look at a loan alone came to.
enum Looked {
    /// Its quota stays as it is.
    Same,
    /// It was written.
    Wrote,
    /// All files of the group have to be looked at.
    NotEnough,
}

impl Lent {
    /// A look that reads what the group has used, and writes its quota where that changes and is the agent's before and after.
    /// What else may have happened to the group is an event. An error is the journal's.
    fn look<S: Store>(
        &mut self,
        files: &mut impl Files,
        journal: &mut Journal<S>,
        path: &Path,
        now_ns: u64,
    ) -> Result<Looked> {
        let Some(usage_us) = files.usage_us(path).filter(|_| self.is_held) else {
            return Ok(Looked::NotEnough);
        };
        let Terms {
            quota_us, period_us, ..
        } = self.loan.terms;
        let lent_us = marked(self.loan.look(usage_us, now_ns), quota_us);
        if lent_us == self.quota_us {
            return Ok(Looked::Same);
        }
        if lent_us == quota_us || !self.is_alone || files.id(path) != Some(self.id) {
            return Ok(Looked::NotEnough);
        }
        let is_ours = |change: &&Change| {
            files
                .read(path, File::Max)
                .is_ok_and(|holds| change.is_ours(&holds))
        };
        let change = journal.change(self.id, File::Max).filter(is_ours);
        let Some(owner) = change.map(|change| change.owner.clone()) else {
            return Ok(Looked::NotEnough);
        };
        let text = format!("{lent_us} {period_us}");
        journal.record(self.id, path, File::Max, &owner, &text)?;
        if files.write(path, File::Max, &text).is_err() {
            return Ok(Looked::NotEnough);
        }
        self.quota_us = lent_us;
        Ok(Looked::Wrote)
    }
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
        let refused = self.groups.values().filter(|group| !group.complaint.is_empty());
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

    /// The owner is about to write a weight, and `quota_us` if that is known. The kernel would refuse a quota below the agent's burst,
    /// and a weight where the agent made the group idle: both are given back until `bring_now`, or for 10 s.
    pub fn make_room(&mut self, shown: &Path, quota_us: Option<u64>, now_ns: u64) -> Result<()> {
        let path = self.files.at(shown);
        let Some(group) = self.groups.get_mut(&path) else {
            return Ok(());
        };
        let owner = group.owner;
        let burst = self.journal.change(group.id, File::Burst);
        let burst_us = burst.and_then(|change| change.ours.parse::<u64>().ok());
        let is_in_the_way = burst_us
            .zip(quota_us)
            .is_some_and(|(burst_us, quota_us)| burst_us > quota_us);
        if is_in_the_way || self.journal.change(group.id, File::Idle).is_some() {
            self.retreat(&path, now_ns + RETREAT_NS);
            self.look(&path, now_ns)?;
        }
        match quota_us {
            Some(quota_us) => self.make_room_above(&path, owner, quota_us, now_ns),
            None => Ok(()),
        }
    }

    /// Leaves a group's burst and weight to its owner until `bring_now`, or until then.
    pub(crate) fn retreat(&mut self, path: &Path, until_ns: u64) {
        if let Some(group) = self.groups.get_mut(path) {
            group.retreat_ns = until_ns;
            self.later.insert(path.into(), group.retreat_ns);
        }
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
                Group {
                    id,
                    owner: Limits {
                        quota_us: None,
                        period_us: 100_000,
                        burst_us: None,
                    },
                    knobs: KnobValues::default(),
                    side_us: None,
                    retreat_ns: 0,
                    is_weighed: false,
                    keeps_weight: false,
                    refused: String::new(),
                    complaint: String::new(),
                    announced: String::new(),
                    told_pod: Part::default(),
                }
            });
            self.groups.insert(path, group);
        }
        changed |= !before.is_empty();
        for path in before.keys() {
            self.due.remove(path);
            self.lent.remove(path);
            self.later.remove(path);
            self.left_pod(path);
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

    fn forget(&mut self, id: u64, path: &Path) -> Result<()> {
        for file in File::ALL {
            self.journal.forget(id, path, file)?;
        }
        Ok(())
    }

    /// An owner opened cpu.max to write, and may have been refused since the burst is above the new quota, or cpu.weight, since the
    /// group is idle.
    fn was_tried(&mut self, path: PathBuf, file: File, now_ns: u64) {
        let Some(group) = self.groups.get_mut(&path) else {
            return;
        };
        let has_ours = |file| self.journal.change(group.id, file).is_some();
        // Its event may be of the agent's own write.
        let may_be_ours = self.wrote.contains(&path);
        if file == File::Weight && !may_be_ours {
            if has_ours(File::Idle) && matches!(idle::is_idle(&self.files, &path), Ok(Some(true))) {
                group.keeps_weight = true;
                let text =
                    "a write to cpu.weight changed nothing: cpu.idle is given back, and stays its owner's";
                self.said.push(format!("{}: {text}", shown(&path)));
            }
        } else if file == File::Max && has_ours(File::Burst) && !may_be_ours {
            let unchanged = Limits::read(&self.files, &path).is_ok_and(|limits| {
                (limits.quota_us, limits.period_us) == (group.owner.quota_us, group.owner.period_us)
            });
            if unchanged && now_ns >= group.retreat_ns {
                self.retreat(&path, now_ns + RETRY_NS);
                // The kubelet tries to write a pod's limit once, after its container's.
                if pod_of(self.files.shown(&path)).is_some() {
                    if let Some(pod) = path.parent() {
                        self.retreat(pod, now_ns + RETRY_NS);
                        self.due.insert(pod.into());
                    }
                }
                let text = "a write to cpu.max changed nothing: cpu.max.burst is given back for 30 s, or until one does, should it be in the way";
                self.said.push(format!("{}: {text}", shown(&path)));
            }
        }
        // What was written, and not in vain, is an event of its own.
        if !may_be_ours {
            self.due.insert(path);
        }
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

    /// Reads a group's files, and brings them to what they are to hold.
    pub(crate) fn look(&mut self, path: &Path, now_ns: u64) -> Result<()> {
        let Some(mut group) = self.groups.remove(path) else {
            return Ok(());
        };
        let mut loan = self.lent.remove(path).map(|lent| lent.loan);
        if self.files.id(path) != Some(group.id) {
            self.left_pod(path);
            return self.forget(group.id, path);
        }
        let mut complaint = group.refused.clone();
        let brought = match self.bring(path, &mut group, &mut loan, now_ns)? {
            Ok(()) => self.weigh(path, &mut group, now_ns)?,
            error => error,
        };
        match brought {
            Ok(()) => {}
            Err(error) if is_gone(&error) => {
                self.left_pod(path);
                return self.forget(group.id, path);
            }
            Err(error) => complaint = format!("{}: {error}", shown(path)),
        }
        if complaint != group.complaint && !complaint.is_empty() {
            self.said.push(format!("warning: {complaint}"));
        }
        if !complaint.is_empty() {
            self.later.entry(path.into()).or_insert(now_ns + AGAIN_NS);
        }
        group.complaint = complaint;
        self.tell_pod(path, &mut group);
        if let Some(loan) = loan {
            let lent = Lent {
                id: group.id,
                is_alone: group.side_us.is_none(),
                quota_us: marked(loan.lent_us(), loan.terms.quota_us),
                is_held: group.complaint.is_empty(),
                loan,
            };
            self.lent.insert(path.into(), lent);
        }
        self.groups.insert(path.into(), group);
        Ok(())
    }

    /// The outer error is the journal's, the inner the group's.
    fn bring(
        &mut self,
        path: &Path,
        group: &mut Group,
        loan: &mut Option<Loan>,
        now_ns: u64,
    ) -> Result<io::Result<()>> {
        let now = match Limits::read(&self.files, path) {
            Ok(limits) => limits,
            Err(error) => return Ok(Err(error)),
        };
        let mut texts = [None, None];
        for (file, text) in File::LIMITS.into_iter().zip(&mut texts) {
            *text = now.text(file);
            let Some(holds) = text.clone() else { continue };
            let Some(change) = self.journal.change(group.id, file) else {
                continue;
            };
            if change.is_ours(&holds) {
                *text = Some(change.owner.clone());
            } else {
                let (name, before) = (file.name(), &change.ours);
                let line = format!(
                    "{}: {name} is `{holds}`, no longer `{before}`: its owner's, and stays",
                    shown(path)
                );
                self.said.push(line);
                self.journal.forget(group.id, path, file)?;
            }
        }
        let [Some(max), burst] = texts else {
            return Ok(Ok(()));
        };
        let Some(owner) = Limits::parse(&max, burst.as_deref()) else {
            return Ok(Err(io::Error::other(format!("cpu.max is `{max}`"))));
        };
        // What room was made for has come.
        if owner.quota_us != group.owner.quota_us && self.journal.change(group.id, File::Idle).is_none() {
            group.retreat_ns = 0;
        }
        let before = std::mem::replace(&mut group.owner, owner);
        if let Some(quota_us) = owner.quota_us {
            self.make_room_above(path, before, quota_us, now_ns)?;
        }
        let to = self.wanted(path, group, loan, now_ns);
        if self.dry_run {
            self.announce(path, group, &to);
            return Ok(Ok(()));
        }
        for file in now.order(&to) {
            let (Some(holds), Some(text), Some(owners)) = (now.text(file), to.text(file), owner.text(file))
            else {
                continue;
            };
            if text != holds {
                if text != owners {
                    self.journal.record(group.id, path, file, &owners, &text)?;
                }
                if file == File::Max {
                    self.wrote.insert(path.into());
                }
                if let Err(error) = write(&mut self.files, path, file, &text) {
                    return Ok(Err(error));
                }
            }
            if text == owners {
                self.journal.forget(group.id, path, file)?;
            }
        }
        Ok(Ok(()))
    }

    /// Makes a group of the side idle, and lets it be as its owner wants it where it is none any more. Errors as of `bring`.
    fn weigh(&mut self, path: &Path, group: &mut Group, now_ns: u64) -> Result<io::Result<()>> {
        let mut has_ours = self.journal.change(group.id, File::Idle).is_some();
        let mut is_wanted = self.headroom.has_part(path)
            && !self.settings.keeps_weights()
            && !group.keeps_weight
            && now_ns >= group.retreat_ns;
        if !has_ours && !is_wanted || has_ours && is_wanted && group.is_weighed && !self.blind {
            return Ok(Ok(()));
        }
        let is_idle = match idle::is_idle(&self.files, path) {
            Ok(Some(is_idle)) => is_idle,
            Ok(None) => return Ok(Ok(())),
            Err(error) => return Ok(Err(error)),
        };
        if has_ours && !is_idle {
            idle::leave(&mut self.journal, group.id, path)?;
            let text = "cpu.idle is `0`, no longer `1`: its owner's, and stays for 10 s";
            self.said.push(format!("{}: {text}", shown(path)));
            // One that writes both writes its weight next.
            group.retreat_ns = now_ns + RETREAT_NS;
            self.later.insert(path.into(), group.retreat_ns);
            (has_ours, is_wanted) = (false, false);
        }
        let (files, journal) = (&mut self.files, &mut self.journal);
        match (has_ours, is_wanted) {
            (false, true) if is_idle => Ok(Ok(())),
            (false, true) if self.dry_run => {
                let line = format!("{}: cpu.idle would become `{}`, now `0`", shown(path), idle::IDLE);
                self.said.push(line);
                Ok(Ok(()))
            }
            (false, true) => idle::take(files, journal, group.id, path),
            (true, false) => {
                self.wrote.insert(path.into());
                idle::give_back(files, journal, group.id, path)
            }
            (has_ours, _) => {
                group.is_weighed = has_ours;
                Ok(Ok(()))
            }
        }
    }

    /// What the files are to hold: the owner's limits, the burst, and what headroom leaves.
    fn wanted(&self, path: &Path, group: &Group, loan: &mut Option<Loan>, now_ns: u64) -> Limits {
        let mut to = group.owner;
        let terms = group
            .owner
            .quota_us
            .zip(group.knobs.burst_us)
            .map(|(quota_us, burst_us)| Terms {
                quota_us,
                period_us: group.owner.period_us,
                burst_us,
                onset_percent: group.knobs.onset_percent.unwrap_or(0) as u32,
            });
        let kernels = terms.filter(|terms| terms.burst_us <= terms.quota_us && to.burst_us.is_some());
        match (terms, kernels) {
            (_, Some(terms)) => {
                if now_ns >= group.retreat_ns {
                    to.burst_us = Some(marked_burst(terms.burst_us, group.owner.burst_us));
                }
                *loan = None;
            }
            (Some(terms), None) => {
                // The kernel's burst would come on top of what is lent.
                to.burst_us = to.burst_us.map(|_| marked_burst(0, group.owner.burst_us));
                let usage_us = self.files.usage_us(path).unwrap_or(0);
                let kept = loan.take().filter(|loan| loan.terms == terms);
                let loan = loan.insert(kept.unwrap_or_else(|| Loan::new(terms, usage_us, now_ns)));
                to.quota_us = Some(marked(loan.look(usage_us, now_ns), terms.quota_us));
            }
            (None, None) => *loan = None,
        }
        if let Some(side_us) = group.side_us {
            // The owner's period stays where the owner's limit goes with it.
            if to.quota_us.is_none() && side_us * SIDE_PERIOD_US / PART_US > *QUOTA_LEAST_US {
                to.period_us = SIDE_PERIOD_US;
            }
            let side_us = marked(side_us * to.period_us / PART_US, 0).max(*QUOTA_LEAST_US + 1);
            if to.quota_us.is_none_or(|quota_us| side_us < quota_us) {
                to.quota_us = Some(side_us);
                // The kernel takes no burst above a quota.
                to.burst_us = to.burst_us.map(|burst_us| burst_us.min(side_us));
            }
        }
        to
    }

    fn announce(&mut self, path: &Path, group: &mut Group, to: &Limits) {
        let mut line = String::new();
        for file in File::LIMITS {
            if let (Some(owners), Some(text)) = (group.owner.text(file), to.text(file)) {
                if text != owners {
                    line += &format!(
                        "{}: {} would become `{text}`, now `{owners}`\n",
                        shown(path),
                        file.name()
                    );
                }
            }
        }
        if line != group.announced {
            self.said.extend(line.lines().map(str::to_string));
            group.announced = line;
        }
    }
}

/// The kernel refills a quota at each write, so a window that rewrites it grants one quota more: a tenth of what a period
/// of 100 ms would.
const SIDE_PERIOD_US: u64 = 10_000;
