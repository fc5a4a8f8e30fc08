//! A file that is there whole or not at all.
use std::fs::{read_link, remove_file, rename, File};
use std::io;
use std::path::{Path, PathBuf};
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
    /// A name of this process alone: two runs that write to one file take turns. A link stays one.
    pub fn new(path: &Path) -> Self {
        let path = behind_links(path);
        let mut partial = path.clone().into_os_string();
        partial.push(format!(".{}.partial", std::process::id()));
        Unfinished {
            path,
            partial: partial.into(),
        }
    }

    /// The empty file; never through a link that somebody else has laid there.
    pub fn create(&self) -> io::Result<File> {
        let mut pending = pending();
        let _ = remove_file(&self.partial);
        let file = File::create_new(&self.partial)?;
        pending.push(self.partial.clone());
        Ok(file)
    }

    /// Gives the file its name.
    pub fn finish(&self) -> io::Result<()> {
        rename(&self.partial, &self.path)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Not there any more once it is finished. Best effort: why it is not is reported by whoever dropped it.
        let _ = remove_file(&self.partial);
        pending().retain(|partial| *partial != self.partial);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_link_stays_one_even_if_it_leads_to_nothing_yet() {
        let dir = tempfile::tempdir().unwrap();
        let (link, file) = (dir.path().join("link"), dir.path().join("file"));
        symlink("second", &link).unwrap();
        symlink("file", dir.path().join("second")).unwrap();
        for _ in 0..2 {
            let names = Unfinished::new(&link);
            names.create().unwrap();
            names.finish().unwrap();
            assert!(link.is_symlink() && file.is_file() && !file.is_symlink());
        }
        symlink("ring", dir.path().join("ring")).unwrap();
        assert!(Unfinished::new(&dir.path().join("ring")).path.ends_with("ring"));
    }
}
