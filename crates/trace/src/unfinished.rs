//! A file that is there whole or not at all.
use std::fs::{remove_file, rename, File};
use std::io;
use std::path::{Path, PathBuf};

/// A file under another name until it is finished; removed if it never is.
pub struct Unfinished {
    /// Its name in the end. What stood there before stays until then.
    pub path: PathBuf,
    /// Its name until then.
    pub partial: PathBuf,
}

impl Unfinished {
    /// A name of this process alone: two runs that write to one file take turns. A link stays one.
    pub fn new(path: &Path) -> Self {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let mut partial = path.clone().into_os_string();
        partial.push(format!(".{}.partial", std::process::id()));
        Unfinished {
            path,
            partial: partial.into(),
        }
    }

    /// The empty file; never through a link that somebody else has laid there.
    pub fn create(&self) -> io::Result<File> {
        let _ = remove_file(&self.partial);
        File::create_new(&self.partial)
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
    }
}
