// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What one group's files are to hold, and how they come to hold it.
use crate::headroom::PART_US;
use crate::lending::{Loan, Terms};
use crate::lent::Lent;
use crate::limits::QUOTA_LEAST_US;
use crate::marks::{marked, marked_burst};
use crate::pods::Part;
use crate::restore::{is_gone, write};
use crate::room::RETREAT_NS;
use crate::{idle, Agent, File, Files, Limits, Result, Store};
use plimsoll_live::{shown, KnobValues};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};

/// The kernel refills a quota at each write, so a window that rewrites it grants one quota more: a tenth of what a period
/// of 100 ms would.
const SIDE_PERIOD_US: u64 = 10_000;

/// What was refused is tried again after this.
const AGAIN_NS: u64 = 5_000_000_000;

pub(crate) struct Group {
    pub id: u64,
    /// As the owner wants it.
    pub owner: Limits,
    pub knobs: KnobValues,
    /// What headroom leaves it, of PART_US.
    pub side_us: Option<u64>,
    /// Until then its owner can write what the agent's burst or cpu.idle would be in the way of.
    pub retreat_ns: u64,
    /// No event says that cpu.idle holds anything but what it is to hold.
    pub is_weighed: bool,
    /// Its owner wrote its weight, which the kernel refuses of a group that is idle.
    pub keeps_weight: bool,
    /// Why its knobs were refused.
    pub refused: String,
    pub complaint: String,
    /// Which limit above holds its burst.
    pub held: String,
    /// What a dry run has said already.
    announced: String,
    /// What its pod's group was told that it asks for.
    pub told_pod: Part,
}

impl Group {
    /// One that has just come, and whose files were not read yet.
    pub fn new(id: u64) -> Self {
        Self {
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
            held: String::new(),
            announced: String::new(),
            told_pod: Part::default(),
        }
    }
}

impl Group {
    /// The burst that it is to have.
    pub fn burst_us(&self) -> u64 {
        self.knobs.burst_us.or(self.owner.burst_us).unwrap_or(0)
    }
}

impl<F: Files, S: Store> Agent<F, S> {
    /// All that is known below a group, by path.
    pub(crate) fn below<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = (&'a PathBuf, &'a Group)> {
        let below = (Bound::Excluded(path), Bound::Unbounded);
        let below = self.groups.range::<Path, _>(below);
        below.take_while(move |(other, _)| other.starts_with(path))
    }

    /// Reads a group's files, and brings them to what they are to hold.
    pub(crate) fn look(&mut self, path: &Path, now_ns: u64) -> Result<()> {
        let Some(mut group) = self.groups.remove(path) else {
            return Ok(());
        };
        let mut loan = self.lent.remove(path).map(|lent| lent.loan);
        if self.files.id(path) != Some(group.id) {
            self.pod_is_due(path);
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
                self.pod_is_due(path);
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
        self.look_what_holds(path);
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
