// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file that is there whole or not at all.
use std::fs::{read_link, remove_file, rename, set_permissions, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{chown, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A file under another name until it is finished; removed if it never is.
pub struct Unfinished {
    /// Its name in the end. What stood there before stays until then.
    pub path: PathBuf,
    /// Its name until then.
    pub partial: PathBuf,
}

/// Those that are there now. A signal ends a process without a drop: see [`remove_unfinished`].
static PENDING: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn pending() -> MutexGuard<'static, Vec<PathBuf>> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes all that are not finished, and calls `end`; no new one is begun before it returns.
pub fn remove_unfinished(end: impl FnOnce()) {
    let pending = pending();
    for partial in pending.iter() {
        let _ = remove_file(partial);
    }
    end();
}

/// As many as the kernel follows.
const LINKS: usize = 40;

/// Where a file of this name is or would be: behind links, even if the last of them leads to nothing yet.
pub fn behind_links(path: &Path) -> PathBuf {
    let mut path = path.to_path_buf();
    for _ in 0..LINKS {
        if let Ok(there) = path.canonicalize() {
            return there;
        }
        let Ok(to) = read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new("")).join(to);
    }
    path
}

/// Whether a device or a pipe is there: read or written only once, and never replaced.
pub fn is_device(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|there| !there.is_file() && !there.is_dir())
}

impl Unfinished {
    /// The empty file, and its names, which are of this process alone: two runs that write to one file take turns. A
    /// link stays one. A folder that takes no new file may hold one whose content can be replaced: the new content
    /// then waits among the temporary files.
    pub fn create(path: &Path) -> io::Result<(Self, File)> {
        static ELSEWHERE: AtomicU64 = AtomicU64::new(0);
        let path = behind_links(path);
        let is_there = path.is_file();
        let me = std::process::id();
        let mut beside = path.clone().into_os_string();
        beside.push(format!(".{me}.partial"));
        let mut pending = pending();
        let (partial, file) = match new_file(beside.into(), is_there) {
            Err(error) if is_there && is_refusal(&error) => {
                let nth = ELSEWHERE.fetch_add(1, Ordering::Relaxed);
                let name = format!("plimsoll.{me}.{nth}.partial");
                new_file(std::env::temp_dir().join(name), true)
            }
            made => made,
        }?;
        pending.push(partial.clone());
        Ok((Unfinished { path, partial }, file))
    }

    /// Gives the file its name, and what is replaced by it leaves it its permissions.
    pub fn finish(&self) -> io::Result<()> {
        let mut content = File::open(&self.partial)?;
        if let Ok(there) = self.path.metadata() {
            // Best effort: only root gives files away.
            let _ = chown(&self.partial, Some(there.uid()), Some(there.gid()));
            set_permissions(&self.partial, Permissions::from_mode(there.mode() & 0o777))?;
        }
        match rename(&self.partial, &self.path) {
            // From another file system, or over a file that is mounted by itself.
            Err(error) if is_refusal(&error) && self.path.is_file() => {
                let mut file = OpenOptions::new().write(true).truncate(true).open(&self.path)?;
                io::copy(&mut content, &mut file).map(drop)
            }
            renamed => renamed,
        }
    }
}

/// Never through a link that another user has laid there. `hidden`: no other user may read it for now.
fn new_file(name: PathBuf, hidden: bool) -> io::Result<(PathBuf, File)> {
    let _ = remove_file(&name);
    let mode = if hidden { 0o600 } else { 0o666 };
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&name)?;
    Ok((name, file))
}

/// Whether a folder says no, as opposed to a disk that is full or broken: there what is left of the old file is all.
fn is_refusal(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::ResourceBusy
            | ErrorKind::CrossesDevices
    )
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Not there any more once it is finished. Best effort: the caller that dropped it reports why it is not.
        let _ = remove_file(&self.partial);
        pending().retain(|partial| *partial != self.partial);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_link_stays_one_even_if_it_leads_to_nothing_yet() {
        let dir = tempfile::tempdir().unwrap();
        let (link, file) = (dir.path().join("link"), dir.path().join("file"));
        symlink("second", &link).unwrap();
        symlink("file", dir.path().join("second")).unwrap();
        for _ in 0..2 {
            let (names, _) = Unfinished::create(&link).unwrap();
            names.finish().unwrap();
            assert!(link.is_symlink() && file.is_file() && !file.is_symlink());
        }
        symlink("ring", dir.path().join("ring")).unwrap();
        assert!(behind_links(&dir.path().join("ring")).ends_with("ring"));
    }

    #[test]
    fn a_file_that_is_replaced_hands_on_its_permissions_and_nobody_else_reads_the_new_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
        let path = dir.path().join("file");
        std::fs::write(&path, "old").unwrap();
        for wanted in [0o600, 0o664] {
            set_permissions(&path, Permissions::from_mode(wanted)).unwrap();
            let (names, mut file) = Unfinished::create(&path).unwrap();
            assert_eq!(mode(&names.partial), 0o600);
            file.write_all(b"new").unwrap();
            names.finish().unwrap();
            assert_eq!(mode(&path), wanted);
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
    }

    /// As where the folder of the old file takes no new one.
    #[test]
    fn content_from_another_file_system_replaces_what_the_file_held() {
        let (dir, other) = (
            tempfile::tempdir().unwrap(),
            tempfile::tempdir_in("/dev/shm").unwrap(),
        );
        let path = dir.path().join("file");
        std::fs::write(&path, "old and longer").unwrap();
        set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let (partial, mut file) = new_file(other.path().join("partial"), true).unwrap();
        file.write_all(b"new").unwrap();
        let names = Unfinished { path, partial };
        names.finish().unwrap();
        assert_eq!(std::fs::read_to_string(&names.path).unwrap(), "new");
        assert_eq!(names.path.metadata().unwrap().mode() & 0o777, 0o640);
        let partial = names.partial.clone();
        drop(names);
        assert!(!partial.exists());
    }
}
