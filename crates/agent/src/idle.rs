// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The side beside main: a group with cpu.idle (Linux 5.15) gives way at once where a task of main wakes up, and a CPU on which
//! only such groups run counts as idle to it.
//!
//! The kernel forgets the weight of a group that becomes idle, shows 0 in its place, takes no other one, and gives the group 100
//! as it is idle no longer. So the weight is in the journal, too, though nobody writes it.
use crate::restore::write;
use crate::{File, Files, Journal, Result, Store};
use std::io;
use std::path::Path;

pub(crate) const IDLE: &str = "1";
const NOT_IDLE: &str = "0";
const FORGOTTEN: &str = "0";
const ANEW: &str = "100";

/// `None`: this kernel has no such file.
pub(crate) fn is_idle(files: &impl Files, path: &Path) -> io::Result<Option<bool>> {
    match files.read(path, File::Idle) {
        Ok(text) => Ok(Some(text == IDLE)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes a group idle. The outer error is the journal's, the inner the group's.
pub(crate) fn take<S: Store>(
    files: &mut impl Files,
    journal: &mut Journal<S>,
    id: u64,
    path: &Path,
) -> Result<io::Result<()>> {
    let weight = match files.read(path, File::Weight) {
        Ok(weight) => weight,
        Err(error) => return Ok(Err(error)),
    };
    journal.record(id, path, File::Weight, &weight, FORGOTTEN)?;
    journal.record(id, path, File::Idle, NOT_IDLE, IDLE)?;
    let wrote = write(files, path, File::Idle, IDLE);
    if wrote.is_err() && !matches!(is_idle(files, path), Ok(Some(true))) {
        leave(journal, id, path)?;
    }
    Ok(wrote)
}

/// Puts back what `take` changed, where its owner has not written since.
pub(crate) fn give_back<S: Store>(
    files: &mut impl Files,
    journal: &mut Journal<S>,
    id: u64,
    path: &Path,
) -> Result<io::Result<()>> {
    let is_taken = journal.change(id, File::Idle).is_some();
    let Some(weight) = journal.change(id, File::Weight).cloned() else {
        return leave(journal, id, path).map(Ok);
    };
    let mut wrong = Ok(());
    let mut back = || {
        match is_idle(files, path)? {
            Some(true) if is_taken => {
                // Until the weight is written, 100 is not its owner's. A journal that fails keeps nothing from being put back.
                wrong = journal.record(id, path, File::Weight, &weight.owner, ANEW);
                write(files, path, File::Idle, NOT_IDLE)?;
            }
            // An agent died before it wrote the weight.
            Some(false) if weight.is_ours(ANEW) => {}
            _ => return Ok(()),
        }
        match files.read(path, File::Weight)? == ANEW && weight.owner != ANEW {
            true => write(files, path, File::Weight, &weight.owner),
            false => Ok(()),
        }
    };
    let done = back();
    if done.is_ok() {
        wrong = wrong.and(leave(journal, id, path));
    }
    wrong.map(|()| done)
}

/// From now on both files are their owner's.
pub(crate) fn leave<S: Store>(journal: &mut Journal<S>, id: u64, path: &Path) -> Result<()> {
    journal.forget(id, path, File::Weight)?;
    journal.forget(id, path, File::Idle)
}
