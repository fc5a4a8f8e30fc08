// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paths that stand for what is open or flows by: what is written there goes behind what others wrote, and replaces
//! nothing. `/dev/stdout` is one even where it leads to a file.
use plimsoll_trace::is_device;
use std::fs::{File, OpenOptions};
use std::io::{self, stderr, stdout};
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub fn is_stream(path: &Path) -> bool {
    is_device(path) || descriptors(path).is_some() || standard(path).is_some()
}

/// Opens it for writing. A file that we have open already is the same one again: the next write goes on behind.
pub fn open(path: &Path) -> io::Result<File> {
    if let Some(file) = standard(path) {
        return Ok(file);
    }
    match number(path) {
        // SAFETY: it is open, or there would be no such path, and no code closes it between these two lines: nothing
        // here owns it, as it came with the process.
        Some(number) => unsafe { BorrowedFd::borrow_raw(number) }
            .try_clone_to_owned()
            .map(File::from),
        None => OpenOptions::new().append(true).open(path),
    }
}

/// The standard output or error, where the path leads to what one of them does.
fn standard(path: &Path) -> Option<File> {
    let there = path.metadata().ok()?;
    let is_same = |file: &File| {
        file.metadata()
            .is_ok_and(|one| (one.dev(), one.ino()) == (there.dev(), there.ino()))
    };
    let ours = [
        stdout().as_fd().try_clone_to_owned(),
        stderr().as_fd().try_clone_to_owned(),
    ];
    ours.into_iter().flatten().map(File::from).find(is_same)
}

/// `/proc/PID/fd`, if the path is in there.
fn descriptors(path: &Path) -> Option<PathBuf> {
    let folder = path.parent()?.canonicalize().ok()?;
    (path.exists() && folder.starts_with("/proc") && folder.ends_with("fd")).then_some(folder)
}

/// Of an open file of this process.
fn number(path: &Path) -> Option<RawFd> {
    let ours = Path::new("/proc/self/fd").canonicalize().ok()?;
    let is_ours = descriptors(path)? == ours;
    path.file_name()?.to_str()?.parse().ok().filter(|_| is_ours)
}
