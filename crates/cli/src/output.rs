// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that a command writes beside what it prints.
//!
//! They are tried before the work begins: minutes of simulation are not lost to a misspelt directory. They are there
//! whole or not at all: a full disk leaves no half of one, and what stood there before stays.
use crate::exit::Failure;
use crate::stream::{self, is_stream};
use plimsoll_trace::{behind_links, is_device, Unfinished};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Asks whether all of these could be written, each to a file of its own and none over one of `inputs`, which the command
/// reads. `json`: where `--json` says, `-` being the standard output.
pub fn check<'a>(
    inputs: impl IntoIterator<Item = &'a PathBuf>,
    json: Option<&'a Path>,
    files: impl IntoIterator<Item = &'a PathBuf>,
) -> Result<(), Failure> {
    let mut taken: Vec<(PathBuf, &str)> = inputs
        .into_iter()
        .filter_map(|path| Some((file(path)?, "this one is read")))
        .collect();
    let mut outputs: Vec<&Path> = json.into_iter().filter(|path| *path != Path::new("-")).collect();
    for path in files {
        if path == Path::new("-") {
            let message = "-: allowed: a file; only --json writes to the standard output";
            return Err(Failure::Input(message.into()));
        }
        outputs.push(path);
    }
    for path in &outputs {
        let Some(file) = file(path) else { continue };
        if let Some((_, why)) = taken.iter().find(|(other, _)| *other == file) {
            let message = format!(
                "{}: cannot write it: {why}; allowed: another file",
                path.display()
            );
            return Err(Failure::Input(message));
        }
        taken.push((file, "another result goes there"));
    }
    outputs.into_iter().try_for_each(check_one)
}

/// The one name of a file, or of one that could be made; `None`: a stream, which nothing is lost from.
fn file(path: &Path) -> Option<PathBuf> {
    match path.metadata() {
        Ok(metadata) if !metadata.is_file() || is_stream(path) => None,
        Ok(_) => path.canonicalize().ok(),
        Err(_) => {
            let path = behind_links(path);
            let parent = path.parent().filter(|parent| *parent != Path::new(""));
            let parent = parent.unwrap_or(Path::new(".")).canonicalize().ok()?;
            Some(parent.join(path.file_name()?))
        }
    }
}

fn check_one(path: &Path) -> Result<(), Failure> {
    // A pipe's reader would take the trial for the end of the data.
    if is_device(path) {
        return Ok(());
    }
    try_one(path).map_err(|error| Failure::file("write it", path, &error))
}

fn try_one(path: &Path) -> io::Result<()> {
    if is_stream(path) {
        // Nothing is enough to hear that it is open for reading only.
        return stream::open(path)?.write(&[]).map(drop);
    }
    if path.exists() {
        OpenOptions::new().write(true).open(path)?;
    }
    // As it will be made: where signals take half-written files away they take this one, too.
    Unfinished::create(path).map(drop)
}

/// Writes what `--json` asks for. Says whether the tables are wanted, too: a `-` prints the JSON in their place.
pub fn json(path: Option<&Path>, text: impl FnOnce() -> String) -> Result<bool, Failure> {
    match path {
        Some(path) if path == Path::new("-") => {
            out!("{}", text());
            Ok(false)
        }
        Some(path) => write(path, text()).map(|()| true),
        None => Ok(true),
    }
}

pub fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), Failure> {
    Whole::create(path)
        .and_then(|mut whole| {
            whole.file.write_all(content.as_ref())?;
            whole.finish()
        })
        .map_err(|error| lost(path, &error))
}

/// What was asked for was sound, or [`check`] would have said so: the disk is full.
pub fn lost(path: &Path, error: &io::Error) -> Failure {
    Failure::Machine(format!("{}: cannot write it: {error}", path.display()))
}

/// A file that is there whole or not at all; a stream is written as it is.
pub struct Whole {
    pub file: File,
    names: Option<Unfinished>,
}

impl Whole {
    pub fn create(path: &Path) -> io::Result<Self> {
        if is_stream(path) {
            let file = stream::open(path)?;
            return Ok(Whole { file, names: None });
        }
        crate::signals::leave_no_partials();
        let (names, file) = Unfinished::create(path)?;
        Ok(Whole {
            file,
            names: Some(names),
        })
    }

    pub fn finish(self) -> io::Result<()> {
        self.names.map_or(Ok(()), |names| names.finish())
    }
}
