//! Files that a command writes beside what it prints.
//!
//! They are tried before the work begins: minutes of simulation are not lost to a misspelt directory. They are there
//! whole or not at all: a full disk leaves no half of one, and what stood there before stays.
use crate::exit::Failure;
use std::fs::{remove_file, rename, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// Asks whether all of these could be written. `json`: where `--json` says, `-` being the standard output.
pub fn check<'a>(
    json: Option<&'a Path>,
    files: impl IntoIterator<Item = &'a PathBuf>,
) -> Result<(), Failure> {
    for path in json.into_iter().filter(|path| *path != Path::new("-")) {
        check_one(path)?;
    }
    for path in files {
        if path == Path::new("-") {
            let message = "-: allowed: a file; only --json writes to the standard output";
            return Err(Failure::Input(message.into()));
        }
        check_one(path)?;
    }
    Ok(())
}

fn check_one(path: &Path) -> Result<(), Failure> {
    let open = |new| OpenOptions::new().write(true).create_new(new).open(path);
    let tried = match path.metadata() {
        // Who reads a pipe would take the trial for its end.
        Ok(metadata) if !metadata.is_file() && !metadata.is_dir() => Ok(()),
        Ok(_) => open(false).map(drop),
        Err(_) => open(true).and_then(|_| remove_file(path)),
    };
    tried.map_err(|error| Failure::file("write it", path, &error))
}

/// Writes what `--json` asks for. Says whether the tables are wanted, too: a `-` prints the JSON in their place.
pub fn json(path: Option<&Path>, text: impl FnOnce() -> String) -> Result<bool, Failure> {
    match path {
        Some(path) if path == Path::new("-") => {
            out!("{}", text());
            Ok(false)
        }
        Some(path) => write(path, &text()).map(|()| true),
        None => Ok(true),
    }
}

pub fn write(path: &Path, text: &str) -> Result<(), Failure> {
    Whole::create(path)
        .and_then(|mut whole| {
            io::Write::write_all(&mut whole.file, text.as_bytes())?;
            whole.finish()
        })
        .map_err(|error| Failure::file("write it", path, &error))
}

/// A file under another name until it is finished; removed if it never is.
pub struct Whole {
    pub file: File,
    /// Its name until then and after; `None`: a device or a pipe, which is written as it is.
    names: Option<(PathBuf, PathBuf)>,
}

impl Whole {
    pub fn create(path: &Path) -> io::Result<Self> {
        if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
            let file = OpenOptions::new().write(true).open(path)?;
            return Ok(Whole { file, names: None });
        }
        // A link stays one.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let mut partial = path.clone().into_os_string();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        Ok(Whole {
            file: File::create(&partial)?,
            names: Some((partial, path)),
        })
    }

    pub fn finish(mut self) -> io::Result<()> {
        let Some((partial, path)) = self.names.take() else {
            return Ok(());
        };
        rename(&partial, path).inspect_err(|_| {
            let _ = remove_file(&partial);
        })
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        if let Some((partial, _)) = &self.names {
            let _ = remove_file(partial);
        }
    }
}
