// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A loan as it is in its group's cpu.max.
use crate::journal::Change;
use crate::lending::{Loan, Terms};
use crate::marks::marked;
use crate::{File, Files, Journal, Result, Store};
use std::path::Path;

/// A group's loan, apart from the groups: it is looked at many times a second, and nothing else of the group is.
pub(crate) struct Lent {
    pub loan: Loan,
    pub id: u64,
    /// The quota that it gives, and whether the files took what they were to hold.
    pub quota_us: u64,
    pub is_held: bool,
    /// Headroom has no part in its quota.
    pub is_alone: bool,
}

/// What a look at a loan alone came to.
pub(crate) enum Looked {
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
    pub fn look<S: Store>(
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
