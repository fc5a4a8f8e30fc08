// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds the shared libraries of a program of the host, by the dynamic linker's rules (ld.so(8)), without running it.
use crate::error::{Error, Result};
use object::elf::{FileHeader64, DT_NEEDED, DT_RPATH, DT_RUNPATH, PT_DYNAMIC, PT_INTERP};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::Endianness;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The folders that Debian's dynamic linker searches by itself; in the guest every library lies in the first.
pub const DEFAULT_FOLDERS: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu",
    "/lib/x86_64-linux-gnu",
    "/usr/lib",
    "/lib",
];

/// What a program needs to run besides itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The dynamic linker, at the path where the program expects it.
    pub linker: Option<PathBuf>,
    /// File of each library, by the name the program asks for.
    pub libraries: BTreeMap<String, PathBuf>,
}

#[derive(Default)]
struct Dynamic {
    linker: Option<PathBuf>,
    needed: Vec<String>,
    /// Folders to search first, `$ORIGIN` resolved.
    folders: Vec<PathBuf>,
}

/// The libraries of the program at `path`, and theirs; nothing for a static program or a script.
/// `folders` are searched after those that a file names itself: `search_folders()`.
/// Errors: the file cannot be read, is for another machine, or a library is not found.
pub fn needs(path: &Path, content: &[u8], folders: &[PathBuf]) -> Result<Needs> {
    let mut needs = Needs::default();
    let own = read(path, content)?;
    needs.linker.clone_from(&own.linker);
    let mut open = vec![own];
    while let Some(file) = open.pop() {
        for name in &file.needed {
            if needs.libraries.contains_key(name) {
                continue;
            }
            let (found, dynamic) = find(name, file.folders.iter().chain(folders)).ok_or_else(|| {
                Error::Input(format!(
                    "{}: its shared library {name} is not on this machine",
                    path.display()
                ))
            })?;
            needs.libraries.insert(name.clone(), found);
            open.push(dynamic);
        }
    }
    Ok(needs)
}

/// The folders of `LD_LIBRARY_PATH`, of /etc/ld.so.conf, and the linker's own.
pub fn search_folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = std::env::var_os("LD_LIBRARY_PATH")
        .map(|value| {
            std::env::split_paths(&value)
                .filter(|path| path.is_absolute())
                .collect()
        })
        .unwrap_or_default();
    let mut files: Vec<PathBuf> = std::fs::read_dir("/etc/ld.so.conf.d")
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    files.sort();
    for file in files {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        folders.extend(
            text.lines()
                .map(str::trim)
                .filter(|line| line.starts_with('/'))
                .map(PathBuf::from),
        );
    }
    folders.extend(DEFAULT_FOLDERS.map(PathBuf::from));
    folders
}

/// The first file of that name that is a library for this machine.
fn find<'a>(name: &str, mut folders: impl Iterator<Item = &'a PathBuf>) -> Option<(PathBuf, Dynamic)> {
    folders.find_map(|folder| {
        let path = folder.join(name);
        let content = std::fs::read(&path).ok()?;
        let dynamic = read(&path, &content).ok()?;
        Some((path, dynamic))
    })
}

fn read(path: &Path, content: &[u8]) -> Result<Dynamic> {
    if !content.starts_with(b"\x7fELF") {
        return Ok(Dynamic::default());
    }
    let broken = |what: String| Error::Input(format!("{}: {what}", path.display()));
    let header = FileHeader64::<Endianness>::parse(content)
        .map_err(|error| broken(format!("not a 64-bit ELF program: {error}")))?;
    let endian = header.endian().map_err(|error| broken(error.to_string()))?;
    if header.e_machine(endian) != object::elf::EM_X86_64 {
        return Err(broken(
            "a program for another machine; the guest is x86-64".into(),
        ));
    }
    let mut dynamic = Dynamic::default();
    let segments = header
        .program_headers(endian, content)
        .map_err(|error| broken(error.to_string()))?;
    for segment in segments {
        if segment.p_type(endian) == PT_INTERP {
            let bytes = segment
                .data(endian, content)
                .map_err(|()| broken("a cut-off segment".into()))?;
            let text = String::from_utf8_lossy(bytes);
            dynamic.linker = Some(PathBuf::from(text.trim_end_matches('\0')));
        }
        if segment.p_type(endian) == PT_DYNAMIC {
            let entries = segment
                .dynamic(endian, content)
                .map_err(|error| broken(error.to_string()))?;
            let strings = strings(header, endian, content).map_err(|error| broken(error.to_string()))?;
            for entry in entries.unwrap_or(&[]) {
                let text = || -> Option<String> {
                    let bytes = entry.string(endian, strings).ok()?;
                    Some(String::from_utf8_lossy(bytes).into_owned())
                };
                match entry.tag32(endian) {
                    Some(DT_NEEDED) => dynamic.needed.extend(text()),
                    Some(DT_RPATH | DT_RUNPATH) => {
                        let origin = path
                            .canonicalize()
                            .ok()
                            .and_then(|path| Some(path.parent()?.to_path_buf()));
                        let origin = origin.unwrap_or_default().display().to_string();
                        let text = text()
                            .unwrap_or_default()
                            .replace("${ORIGIN}", "$ORIGIN")
                            .replace("$ORIGIN", &origin);
                        dynamic.folders.extend(
                            text.split(':')
                                .filter(|part| part.starts_with('/'))
                                .map(PathBuf::from),
                        );
                    }
                    _ => {}
                }
            }
        }
    }
    Ok(dynamic)
}

/// The string table that the dynamic section refers to.
fn strings<'a>(
    header: &FileHeader64<Endianness>,
    endian: Endianness,
    content: &'a [u8],
) -> object::Result<object::StringTable<'a>> {
    let sections = header.sections(endian, content)?;
    match sections.dynamic(endian, content)? {
        Some((_, link)) => sections.strings(endian, content, link),
        None => Ok(object::StringTable::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs_of(path: &Path) -> Result<Needs> {
        needs(path, &std::fs::read(path).unwrap(), &search_folders())
    }

    #[test]
    fn a_dynamic_program_gets_its_linker_and_the_libraries_of_its_libraries() {
        let needs = needs_of(&std::env::current_exe().unwrap()).unwrap();
        assert!(needs.linker.unwrap().to_string_lossy().contains("ld-linux"));
        assert!(needs.libraries.contains_key("libc.so.6"), "{:?}", needs.libraries);
        assert!(needs.libraries.values().all(|path| path.is_file()));
    }

    #[test]
    fn a_script_needs_nothing() {
        assert_eq!(
            needs(Path::new("x.sh"), b"#!/bin/sh\n", &[]).unwrap(),
            Needs::default()
        );
    }

    #[test]
    fn a_missing_library_is_named() {
        let path = std::env::current_exe().unwrap();
        let error = needs(&path, &std::fs::read(&path).unwrap(), &[])
            .unwrap_err()
            .to_string();
        assert!(error.contains("is not on this machine"), "{error}");
    }

    #[test]
    fn cut_off_programs_are_an_error_or_need_less_but_never_panic() {
        let path = std::env::current_exe().unwrap();
        let content = std::fs::read(&path).unwrap();
        for length in (0..1024).chain([content.len() / 2, content.len() - 1]) {
            let _ = needs(&path, &content[..length], &search_folders());
        }
    }

    #[test]
    fn a_program_for_another_machine_is_refused() {
        let path = std::env::current_exe().unwrap();
        let mut content = std::fs::read(&path).unwrap();
        content[18] = 183; // e_machine: AArch64
        let error = needs(&path, &content, &search_folders()).unwrap_err().to_string();
        assert!(error.contains("another machine"), "{error}");
    }
}
