// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The folder, outside the repository, that keeps what was fetched.
use crate::error::{Error, Result};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How the name of a folder begins that is not finished yet.
const BUILDING: &str = ".building-";
/// Longer than any build takes: one of this age is what a killed process has left.
const BUILDING_MAX: Duration = Duration::from_secs(24 * 3600);

pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// `PLIMSOLL_CACHE`, or `plimsoll` in the user's cache folder (XDG Base Directory Specification).
    pub fn open() -> Result<Self> {
        let folder = |name: &str| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let root = folder("PLIMSOLL_CACHE")
            .or_else(|| folder("XDG_CACHE_HOME").map(|path| path.join("plimsoll")))
            .or_else(|| folder("HOME").map(|path| path.join(".cache/plimsoll")))
            .ok_or_else(|| Error::Machine("no cache folder: set PLIMSOLL_CACHE or HOME".into()))?;
        Self::at(root)
    }

    pub fn at(root: PathBuf) -> Result<Self> {
        std::fs::create_dir_all(&root).map_err(|error| Error::file("create it", &root, &error))?;
        let root = root
            .canonicalize()
            .map_err(|error| Error::file("resolve it", &root, &error))?;
        let cache = Self { root };
        cache.sweep();
        Ok(cache)
    }

    /// Removes what killed processes have left.
    fn sweep(&self) {
        let entries = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
        for entry in entries(&self.root).flat_map(|kind| entries(&kind.path())) {
            let changed = entry.metadata().and_then(|metadata| metadata.modified());
            let is_old = changed.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > BUILDING_MAX));
            if is_old && entry.file_name().to_string_lossy().starts_with(BUILDING) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }

    /// A folder of the cache, made when it is not there.
    pub fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.root.join(name);
        std::fs::create_dir_all(&path).map_err(|error| Error::file("create it", &path, &error))?;
        Ok(path)
    }

    /// Takes away what is at `name`, if anything: it has turned out to be no good.
    pub fn remove(&self, name: &str) -> Result<()> {
        let path = self.root.join(name);
        match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::file("remove it", &path, &error)),
            _ => Ok(()),
        }
    }

    /// Fills a new folder by `build` and puts it at `name` in one step, so that no other process ever sees half of it.
    /// Two processes may build the same folder at once; the first one to finish wins, and the other's is dropped.
    pub fn publish(&self, name: &str, build: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let path = self.root.join(name);
        let parent = path.parent().expect("the root is above every name");
        std::fs::create_dir_all(parent).map_err(|error| Error::file("create it", parent, &error))?;
        let building = tempfile::Builder::new()
            .prefix(BUILDING)
            .tempdir_in(parent)
            .map_err(|error| Error::file("create a folder in it", parent, &error))?;
        build(building.path())?;
        let built = building.keep();
        if let Err(error) = std::fs::rename(&built, &path) {
            let _ = std::fs::remove_dir_all(&built);
            if !path.is_dir() {
                return Err(Error::file("put it in place", &path, &error));
            }
        }
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_left_is_removed_after_a_day() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().into()).unwrap();
        let names = [
            "kernels/.building-old",
            "kernels/.building-new",
            "kernels/7.2.9-cloud-amd64",
        ];
        let [old, new, kernel] = names.map(|name| cache.folder(name).unwrap());
        for folder in [&old, &kernel] {
            std::fs::write(folder.join("file"), "").unwrap();
            let folder = std::fs::File::open(folder).unwrap();
            folder
                .set_modified(std::time::SystemTime::now() - 2 * BUILDING_MAX)
                .unwrap();
        }
        Cache::at(folder.path().into()).unwrap();
        assert_eq!(
            [&old, &new, &kernel].map(|folder| folder.exists()),
            [false, true, true]
        );
    }
}
