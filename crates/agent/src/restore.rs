// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The way back: what a journal names is put back where it still holds what the agent wrote.
use crate::{idle, File, Files, Journal, Limits, Result, Store};
use plimsoll_live::shown;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

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
            let idle = idle::give_back(files, journal, id, path);
            let put = put_back(files, path, &changed.files);
            // Whatever the journal says, what can be put back is.
            let put = match idle {
                Ok(idle) => idle.and(put),
                Err(error) => {
                    wrong = wrong.and(Err(error));
                    put
                }
            };
            match put {
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
    // An owner could lower the quota below the burst only since the agent had taken the burst away.
    if let (Some(quota_us), Some(burst_us)) = (to.quota_us, to.burst_us) {
        to.burst_us = Some(burst_us.min(quota_us));
    }
    for file in now.order(&to) {
        if let (Some(holds), Some(text)) = (now.text(file), to.text(file)) {
            if holds != text {
                write(files, path, file, &text)?;
            }
        }
    }
    Ok(said)
}

/// An error names file and value, but where the group has gone.
pub(crate) fn write(files: &mut impl Files, path: &Path, file: File, text: &str) -> io::Result<()> {
    files
        .write(path, file, text)
        .map_err(|error| match is_gone(&error) {
            true => error,
            false => io::Error::new(
                error.kind(),
                format!("{}: cannot write `{text}`: {error}", file.name()),
            ),
        })
}

/// The group has gone.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}
