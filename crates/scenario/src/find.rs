// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds machine models and scenarios: a path, then ./machines, then beside the executable, then in the binary itself.
use crate::problem::nearest;
use std::fs::File;
use std::io::{Read, Take};
use std::path::{Path, PathBuf};

mod embedded {
    include!(concat!(env!("OUT_DIR"), "/embedded.rs"));
}

/// A file's text and the name that its errors carry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub name: String,
    pub text: String,
}

/// The machine models that the binary holds, by name.
pub fn machines() -> impl Iterator<Item = (&'static str, &'static str)> {
    embedded::MACHINES.iter().copied()
}

/// The example scenarios that the binary holds, by name.
pub fn scenarios() -> impl Iterator<Item = (&'static str, &'static str)> {
    embedded::SCENARIOS.iter().copied()
}

/// A machine model by name, or by a path relative to `base` (the scenario's directory). The error says where it was
/// looked for, or which name was probably meant.
pub fn machine(wanted: &str, base: &Path) -> Result<Found, String> {
    if let Some(path) = machine_file(wanted, base) {
        return read(&path).map_err(|error| format!("\"{wanted}\": cannot read {}: {error}", path.display()));
    }
    if let Some((_, text)) = machines().find(|(name, _)| *name == wanted) {
        return Ok(Found {
            name: in_binary(wanted),
            text: text.to_string(),
        });
    }
    let mut known: Vec<String> = machines().map(|(name, _)| name.to_string()).collect();
    for dir in directories("machines") {
        known.extend(names_in(&dir));
    }
    known.sort();
    known.dedup();
    let hint = match nearest(wanted, known.iter().map(String::as_str)) {
        Some(near) => format!("did you mean \"{near}\"? known: "),
        None => "known: ".to_string(),
    };
    Err(format!(
        "\"{wanted}\": no such machine; {hint}{}; or a path that ends in .toml",
        known.join(", ")
    ))
}

/// The file that [`machine`] reads; `None`: there is none of this name, the binary itself may hold one.
pub fn machine_file(wanted: &str, base: &Path) -> Option<PathBuf> {
    if wanted.contains('/') || wanted.ends_with(".toml") {
        return Some(base.join(wanted));
    }
    let mut paths = directories("machines")
        .into_iter()
        .map(|dir| dir.join(format!("{wanted}.toml")));
    // A file that is there is meant: another model of its name must not take its place unseen.
    paths.find(|path| path.exists())
}

/// What errors call a text that the binary holds: a path would name a file that was not read.
fn in_binary(name: &str) -> String {
    format!("{name} (in the binary)")
}

/// An example scenario by its name.
pub fn example(wanted: &str) -> Option<Found> {
    let (name, text) = scenarios().find(|(name, _)| *name == wanted)?;
    Some(Found {
        name: in_binary(name),
        text: text.to_string(),
    })
}

/// A scenario by path, or by the name of an example that the binary holds.
pub fn scenario(path: &Path) -> Result<Found, String> {
    match read(path) {
        Ok(found) => Ok(found),
        Err(error) => {
            let wanted = path.to_string_lossy();
            if let Some(found) = example(&wanted) {
                return Ok(found);
            }
            if error.kind() != std::io::ErrorKind::NotFound {
                return Err(format!("cannot read it: {error}"));
            }
            let known: Vec<&str> = scenarios().map(|(name, _)| name).collect();
            let hint = nearest(&wanted, known.iter().copied())
                .map_or(String::new(), |near| format!("; did you mean {near}?"));
            Err(format!(
                "cannot read it: {error}{hint}; examples that need no file: {}",
                known.join(", ")
            ))
        }
    }
}

/// No text that people write is larger; a device that never ends is.
const TEXT_BYTES_MAX: u64 = 64 << 20;

fn invalid(why: String) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, why)
}

/// Reads text with `read`, which is given no more than people write. There may be more: an error.
pub fn bounded<R: Read>(
    from: R,
    read: impl FnOnce(&mut Take<R>) -> std::io::Result<usize>,
) -> std::io::Result<()> {
    if read(&mut from.take(TEXT_BYTES_MAX + 1))? as u64 > TEXT_BYTES_MAX {
        return Err(invalid(format!("it is larger than {} MiB", TEXT_BYTES_MAX >> 20)));
    }
    Ok(())
}

/// A file's text. The error names the line where it is none.
pub fn text(path: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    bounded(File::open(path)?, |file| file.read_to_end(&mut bytes))?;
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes()[..good]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count();
        invalid(format!("line {line} is not UTF-8"))
    })
}

fn read(path: &Path) -> std::io::Result<Found> {
    let text = text(path)?;
    Ok(Found {
        name: path.display().to_string(),
        text,
    })
}

fn directories(name: &str) -> Vec<PathBuf> {
    let beside = std::env::current_exe()
        .ok()
        .and_then(|exe| exe.parent().map(|dir| dir.join(name)));
    std::iter::once(PathBuf::from(name)).chain(beside).collect()
}

fn names_in(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_string()))
        .collect()
}
