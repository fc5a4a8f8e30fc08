// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each group's files are to hold, and how they come to hold it.
use crate::headroom::Headroom;
use crate::lending::{Loan, Terms};
use crate::{Error, File, Files, Journal, Limits, Result, Settings, Store};
use plimsoll_live::{shown, KnobValues};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Everything is looked at again this often, should an event have been missed.
const LOOK_AT_ALL_NS: u64 = 5_000_000_000;
/// For how long the kernel's burst is given up where it may have stood in the way of the owner's write.
const RETREAT_NS: u64 = 10_000_000_000;

pub struct Agent<F, S> {
    pub(crate) files: F,
    journal: Journal<S>,
    settings: Settings,
    pub(crate) groups: BTreeMap<PathBuf, Group>,
    pub(crate) headroom: Headroom,
    dry_run: bool,
    look_at_all_ns: u64,
    said: Vec<String>,
}

pub(crate) struct Group {
    pub id: u64,
    /// As the owner wants it.
    pub owner: Limits,
    pub knobs: KnobValues,
    pub loan: Option<Loan>,
    /// What the loan or the owner grants, and what headroom leaves of it.
    lent_us: Option<u64>,
    pub side_us: Option<u64>,
    due: bool,
    retreat_ns: u64,
    /// The agent itself has written cpu.max since events were last read: the next one of it says nothing.
    wrote: bool,
    /// Why its knobs were refused.
    refused: String,
    complaint: String,
    /// What a dry run has said already.
    announced: String,
}

impl Group {
    /// It is looked at in this step.
    pub fn set_due(&mut self) {
        self.due = true;
    }
}

impl<F: Files, S: Store> Agent<F, S> {
    /// `journal`: one whose files were restored.
    pub fn new(files: F, journal: Journal<S>, settings: Settings, dry_run: bool) -> Self {
        Self {
            files,
            journal,
            settings,
            groups: BTreeMap::new(),
            headroom: Headroom::default(),
            dry_run,
            look_at_all_ns: 0,
            said: Vec::new(),
        }
    }

    /// Looks at what has happened and at what is due, and changes what has to be. Returns what there is to say; an error
    /// is one of the journal's, after which nothing may be changed any more.
    pub fn step(&mut self, now_ns: u64) -> Result<Vec<String>> {
        let events = self.files.events();
        let all = events.all || now_ns >= self.look_at_all_ns;
        if all {
            self.look_at_all_ns = now_ns + LOOK_AT_ALL_NS;
        }
        if events.tree || all {
            self.find_groups(now_ns)?;
        }
        for (path, group) in &mut self.groups {
            group.due |= all || events.touched.contains(path);
        }
        for path in &events.tried {
            self.was_tried(path, now_ns);
        }
        for group in self.groups.values_mut() {
            group.wrote = false;
        }
        // All knobs before any file: who is main may have changed.
        let is_touched = |(path, group): (&PathBuf, &Group)| group.due.then(|| path.clone());
        let touched: Vec<PathBuf> = self.groups.iter().filter_map(is_touched).collect();
        let mut knobs_changed = false;
        for path in &touched {
            knobs_changed |= self.read_knobs(path);
        }
        if knobs_changed {
            self.headroom.link(&mut self.groups);
        }
        if self.headroom.is_due(now_ns) {
            self.headroom.window(&mut self.files, &mut self.groups, now_ns);
        }
        let is_due = |(path, group): (&PathBuf, &Group)| {
            let is_loans = group.loan.as_ref().is_some_and(|loan| now_ns >= loan.due_ns);
            (group.due || is_loans).then(|| path.clone())
        };
        let due: Vec<PathBuf> = self.groups.iter().filter_map(is_due).collect();
        for path in due {
            self.look(&path, now_ns)?;
        }
        Ok(std::mem::take(&mut self.said))
    }

    /// When the next step is due though nothing happens.
    pub fn due_ns(&self) -> u64 {
        let loans = self
            .groups
            .values()
            .filter_map(|group| Some(group.loan.as_ref()?.due_ns));
        loans
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
            self.find_groups(now_ns)?;
        }
        if !self.groups.contains_key(group) {
            let message = "the agent does not know this cgroup; does it have the cpu controller?";
            return Err(Error::Input(format!("{}: {message}", shown(group))));
        }
        if self.read_knobs(group) {
            self.headroom.link(&mut self.groups);
        }
        self.look(group, now_ns)?;
        match self.groups.get(group).map(|group| group.complaint.as_str()) {
            Some("") | None => Ok(()),
            Some(complaint) => Err(Error::Input(complaint.into())),
        }
    }

    /// Puts every file back, and ends. Returns what there is to say.
    pub fn end(mut self) -> Result<Vec<String>> {
        restore(&mut self.files, &mut self.journal)
    }

    fn find_groups(&mut self, _now_ns: u64) -> Result<()> {
        let found = self.files.groups();
        let mut before = std::mem::take(&mut self.groups);
        for path in found {
            let Some(id) = self.files.id(&path) else { continue };
            let known = before.remove(&path).filter(|group| group.id == id);
            let group = known.unwrap_or_else(|| Group {
                id,
                owner: Limits {
                    quota_us: None,
                    period_us: 100_000,
                    burst_us: None,
                },
                knobs: KnobValues::default(),
                loan: None,
                lent_us: None,
                side_us: None,
                due: true,
                retreat_ns: 0,
                wrote: false,
                refused: String::new(),
                complaint: String::new(),
                announced: String::new(),
            });
            self.groups.insert(path, group);
        }
        let alive: std::collections::BTreeSet<u64> = self.groups.values().map(|group| group.id).collect();
        let gone: Vec<(u64, PathBuf)> = self
            .journal
            .changed()
            .iter()
            .filter(|(id, _)| !alive.contains(id))
            .map(|(id, changed)| (*id, changed.path.clone()))
            .collect();
        for (id, path) in gone {
            // A directory that is only moved out of sight would be put back by no one.
            if self.files.id(&path) != Some(id) {
                self.forget(id, &path)?;
            }
        }
        self.headroom.link(&mut self.groups);
        Ok(())
    }

    fn forget(&mut self, id: u64, path: &Path) -> Result<()> {
        for file in File::ALL {
            self.journal.forget(id, path, file)?;
        }
        Ok(())
    }

    /// Somebody opened cpu.max to write, and may have been refused since the burst is above his quota.
    fn was_tried(&mut self, path: &Path, now_ns: u64) {
        let Some(group) = self.groups.get_mut(path) else {
            return;
        };
        let has_ours = |file| self.journal.change(group.id, file).is_some();
        if has_ours(File::Burst) && !group.wrote {
            let unchanged = Limits::read(&self.files, path).is_ok_and(|limits| {
                (limits.quota_us, limits.period_us) == (group.owner.quota_us, group.owner.period_us)
            });
            if unchanged && now_ns >= group.retreat_ns {
                group.retreat_ns = now_ns + RETREAT_NS;
                let text = "a write to cpu.max changed nothing: cpu.max.burst is given back for 10 s, should it be in the way";
                self.said.push(format!("{}: {text}", shown(path)));
            }
        }
        group.due = true;
    }

    /// True: they have changed.
    fn read_knobs(&mut self, path: &Path) -> bool {
        let Some(group) = self.groups.get_mut(path) else {
            return false;
        };
        let before = group.knobs;
        group.refused = String::new();
        match self.files.knobs(path) {
            Ok(own) => group.knobs = self.settings.of(self.files.shown(path), &own),
            Err(error) => group.refused = format!("{error}; the knobs of this cgroup are left as they were"),
        }
        group.knobs != before
    }

    /// Reads a group's files, and brings them to what they are to hold.
    fn look(&mut self, path: &Path, now_ns: u64) -> Result<()> {
        let Some(mut group) = self.groups.remove(path) else {
            return Ok(());
        };
        if self.files.id(path) != Some(group.id) {
            return self.forget(group.id, path);
        }
        group.due = false;
        let mut complaint = group.refused.clone();
        match self.bring(path, &mut group, now_ns)? {
            Ok(()) => {}
            Err(error) if is_gone(&error) => return self.forget(group.id, path),
            Err(error) => complaint = format!("{}: {error}", shown(path)),
        }
        if complaint != group.complaint && !complaint.is_empty() {
            self.said.push(format!("warning: {complaint}"));
        }
        group.complaint = complaint;
        self.groups.insert(path.into(), group);
        Ok(())
    }

    /// The outer error is the journal's, the inner the group's.
    fn bring(&mut self, path: &Path, group: &mut Group, now_ns: u64) -> Result<io::Result<()>> {
        let now = match Limits::read(&self.files, path) {
            Ok(limits) => limits,
            Err(error) => return Ok(Err(error)),
        };
        let mut texts = [None, None];
        for (file, text) in File::ALL.into_iter().zip(&mut texts) {
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
        group.owner = owner;
        let to = self.wanted(path, group, now_ns);
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
                group.wrote |= file == File::Max;
                if let Err(error) = self.files.write(path, file, &text) {
                    let name = file.name();
                    return Ok(Err(match is_gone(&error) {
                        true => error,
                        false => {
                            io::Error::new(error.kind(), format!("{name}: cannot write `{text}`: {error}"))
                        }
                    }));
                }
            }
            if text == owners {
                self.journal.forget(group.id, path, file)?;
            }
        }
        Ok(Ok(()))
    }

    /// What the files are to hold: the owner's limits, the burst, and what headroom leaves.
    fn wanted(&mut self, path: &Path, group: &mut Group, now_ns: u64) -> Limits {
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
                group.loan = None;
            }
            (Some(terms), None) => {
                // The kernel's burst would come on top of what is lent.
                to.burst_us = to.burst_us.map(|_| marked_burst(0, group.owner.burst_us));
                let usage_us = self.files.usage_us(path).unwrap_or(0);
                if group.loan.as_ref().is_none_or(|loan| loan.terms != terms) {
                    group.loan = Some(Loan::new(terms, usage_us, now_ns));
                }
                let loan = group.loan.as_mut().expect("it was just made");
                let lent_us = loan.look(usage_us, now_ns);
                to.quota_us = Some(marked(lent_us, terms.quota_us));
            }
            (None, None) => group.loan = None,
        }
        group.lent_us = to.quota_us;
        if let Some(side_us) = group.side_us {
            // The owner's period stays where a limit of his goes with it.
            if to.quota_us.is_none() && side_us * SIDE_PERIOD_US / 100_000 > QUOTA_MIN_US {
                to.period_us = SIDE_PERIOD_US;
            }
            let side_us = marked(side_us * to.period_us / 100_000, 0).max(QUOTA_MIN_US + 1);
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
        for file in File::ALL {
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
/// The kernel takes no quota below this.
const QUOTA_MIN_US: u64 = 1_000;

/// Quotas of the agent's are odd numbers, which an owner hardly writes: so his own are told from them.
fn marked(quota_us: u64, owners_us: u64) -> u64 {
    match quota_us.saturating_sub(1) | 1 {
        odd if odd <= quota_us && odd > owners_us => odd,
        _ if quota_us % 2 == 1 => quota_us,
        _ => owners_us.max(quota_us.saturating_sub(1)),
    }
}

/// Likewise a burst: at most 1 us less, or 1 us where the owner has one and is to have none.
fn marked_burst(burst_us: u64, owners_us: Option<u64>) -> u64 {
    match owners_us {
        Some(owners_us) if owners_us == burst_us => burst_us,
        _ if burst_us == 0 => 1,
        _ => burst_us.saturating_sub(1) | 1,
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}

/// Puts back every file that the journal names and that still holds what the agent wrote. Returns what there is to say.
pub fn restore<S: Store>(files: &mut impl Files, journal: &mut Journal<S>) -> Result<Vec<String>> {
    let (mut said, mut wrong) = (Vec::new(), Ok(()));
    let changed: Vec<_> = journal
        .changed()
        .iter()
        .map(|(id, changed)| (*id, changed.clone()))
        .collect();
    for (id, changed) in changed {
        let path = &changed.path;
        if files.id(path) == Some(id) {
            match put_back(files, path, &changed.files) {
                Ok(lines) => said.extend(lines),
                Err(error) if is_gone(&error) => {}
                Err(error) => {
                    said.push(format!("warning: {}: cannot be put back: {error}", shown(path)));
                    continue;
                }
            }
        }
        // All are put back first, should the journal be what has failed.
        for file in File::ALL {
            wrong = wrong.and(journal.forget(id, path, file));
        }
    }
    wrong.map(|()| said)
}

fn put_back(
    files: &mut impl Files,
    path: &Path,
    changes: &BTreeMap<File, crate::journal::Change>,
) -> io::Result<Vec<String>> {
    let now = Limits::read(files, path)?;
    let mut said = Vec::new();
    let mut text = |file| {
        let holds = now.text(file)?;
        Some(match changes.get(&file) {
            Some(change) if change.is_ours(&holds) => change.owner.clone(),
            Some(change) if holds != change.owner => {
                let name = file.name();
                said.push(format!(
                    "{}: {name} is `{holds}`, its owner's, and stays",
                    shown(path)
                ));
                holds
            }
            _ => holds,
        })
    };
    let (max, burst) = (text(File::Max).unwrap_or_default(), text(File::Burst));
    let Some(mut to) = Limits::parse(&max, burst.as_deref()) else {
        return Err(io::Error::other(format!("cpu.max is to be `{max}`")));
    };
    // An owner who lowered his quota below his burst could do so only since the agent had taken the burst away.
    if let (Some(quota_us), Some(burst_us)) = (to.quota_us, to.burst_us) {
        to.burst_us = Some(burst_us.min(quota_us));
    }
    for file in now.order(&to) {
        if let (Some(holds), Some(text)) = (now.text(file), to.text(file)) {
            if holds != text {
                files.write(path, file, &text)?;
            }
        }
    }
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marked_quota_is_odd_and_neither_looser_nor_tighter_than_the_owners() {
        for quota_us in 1_001..1_200 {
            let marked = marked(quota_us, 1_000);
            assert!(
                marked % 2 == 1 && marked <= quota_us && marked > quota_us - 2,
                "{quota_us}: {marked}"
            );
        }
        assert_eq!(marked(30_000, 30_000), 30_000);
        assert_eq!(marked(30_001, 30_000), 30_001);
        assert_eq!(marked(30_001, 30_001), 30_001);
    }
}
