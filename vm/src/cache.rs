//! The folder, outside the repository, that keeps what was fetched.
use crate::error::{Error, Result};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

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
        Ok(Self { root })
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

    /// Fills a new folder by `build` and puts it at `name` in one step, so that nobody ever sees half of it.
    /// Two processes may build the same folder at once; the first one to finish wins, and the other's is dropped.
    pub fn publish(&self, name: &str, build: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let path = self.root.join(name);
        let parent = path.parent().expect("the root is above every name");
        std::fs::create_dir_all(parent).map_err(|error| Error::file("create it", parent, &error))?;
        let building = tempfile::Builder::new()
            .prefix(".building-")
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
