// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds a QEMU. For figures it has to be version 10: 7.2 does not share virtual time evenly between virtual CPUs.
use crate::apt::{host_codename, Apt};
use crate::cache::Cache;
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAM: &str = "qemu-system-x86_64";
/// The first version whose icount mode is good enough for figures, and whose q35 takes more than 288 CPUs.
const RECENT_MAJOR: u32 = 10;
const BIOS: &str = "/usr/share/seabios/bios-256k.bin";
/// Libraries that must be the system's own, as the dynamic linker is.
const SYSTEM_LIBRARIES: [&str; 3] = ["libc6", "libgcc-s1", "libstdc++6"];

#[derive(Debug)]
pub struct Qemu {
    program: PathBuf,
    /// Where firmware is looked for, besides the program's own place.
    firmware: Vec<PathBuf>,
    /// Folders of shared libraries that the system lacks.
    libraries: Vec<PathBuf>,
    pub version: (u32, u32),
}

impl Qemu {
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        for folder in &self.firmware {
            command.arg("-L").arg(folder);
        }
        if !self.libraries.is_empty() {
            let paths = std::env::join_paths(&self.libraries).expect("paths of the cache hold no colon");
            command.env("LD_LIBRARY_PATH", paths);
        }
        command
    }

    /// Whether virtual time is shared evenly, and a machine may have more than 288 CPUs.
    pub fn is_recent(&self) -> bool {
        self.version.0 >= RECENT_MAJOR
    }

    /// Runs it for its version; an error says why it does not start.
    fn start(
        program: PathBuf,
        firmware: Vec<PathBuf>,
        libraries: Vec<PathBuf>,
    ) -> std::result::Result<Self, String> {
        let mut qemu = Self {
            program,
            firmware,
            libraries,
            version: (0, 0),
        };
        let output = qemu
            .command()
            .arg("--version")
            .output()
            .map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        qemu.version = version(&text).ok_or_else(|| {
            String::from_utf8_lossy(&output.stderr)
                .lines()
                .next()
                .unwrap_or("it fails")
                .to_string()
        })?;
        Ok(qemu)
    }
}

/// `QEMU emulator version 10.0.2 (Debian ...)` is (10, 0).
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text
        .split("version ")
        .nth(1)?
        .split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The installed QEMU; where a `recent` one is needed, or none is installed, version 10 of Debian's backports, kept
/// in the cache. When only an older one is available, that is returned, and `say` is told why.
pub fn find(cache: &Cache, recent: bool, say: &dyn Fn(&str)) -> Result<Qemu> {
    let installed = Qemu::start(PROGRAM.into(), Vec::new(), Vec::new());
    if let Ok(qemu) = installed {
        if !recent || qemu.is_recent() {
            return Ok(qemu);
        }
        return Ok(from_backports(cache, say).unwrap_or_else(|error| {
            let (major, minor) = qemu.version;
            say(&format!("warning: QEMU {major}.{minor} shares virtual time unevenly between CPUs; version 10 cannot be fetched: {error}"));
            qemu
        }));
    }
    from_backports(cache, say).map_err(|error| {
        Error::Machine(format!(
            "no {PROGRAM} here: install the package qemu-system-x86 (fetching one failed: {error})"
        ))
    })
}

fn from_backports(cache: &Cache, say: &dyn Fn(&str)) -> Result<Qemu> {
    let codename = host_codename().ok_or_else(|| Error::Machine("this is not a Debian system".into()))?;
    let place = format!("qemu/{codename}");
    let folder = cache.folder("qemu")?.join(&codename);
    if let Ok(qemu) = start_in(&folder) {
        return Ok(qemu);
    }
    say("fetching QEMU from Debian's backports");
    let suite = format!("{codename}-backports");
    let apt = Apt::read(cache, &suite)?;
    // Another process may have fetched it while this one waited for the lists.
    if let Ok(qemu) = start_in(&folder) {
        return Ok(qemu);
    }
    let packages = ["qemu-system-x86", "qemu-system-common", "qemu-system-data"].map(String::from);
    replace(cache, &place, |folder| {
        apt.unpack(&packages, folder)?;
        if !Path::new(BIOS).exists() {
            Apt::read(cache, &codename)?.unpack(&["seabios".into()], folder)?;
        }
        if let Err(why) = start_in(folder) {
            say(&format!("fetching libraries for QEMU ({why})"));
            let release = Apt::read(cache, &codename)?;
            release.unpack(&libraries_of(&apt, &release)?, folder)?;
        }
        Ok(())
    })
}

/// Puts what `build` makes in the place of what is there and does not start. What does not start either is not kept: it
/// would never be fetched again.
fn replace(cache: &Cache, place: &str, build: impl FnOnce(&Path) -> Result<()>) -> Result<Qemu> {
    let start = |folder: &Path| {
        start_in(folder).map_err(|why| Error::Machine(format!("{}: {why}", folder.display())))
    };
    cache.remove(place)?;
    let folder = cache.publish(place, |folder| {
        build(folder)?;
        start(folder).map(drop)
    })?;
    start(&folder)
}

fn start_in(folder: &Path) -> std::result::Result<Qemu, String> {
    let firmware = ["usr/share/qemu", "usr/share/seabios"].map(|path| folder.join(path));
    let firmware = firmware
        .into_iter()
        .chain([Path::new(BIOS).parent().expect("an absolute path").to_path_buf()]);
    let libraries = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"].map(|path| folder.join(path));
    Qemu::start(
        folder.join("usr/bin").join(PROGRAM),
        firmware.filter(|path| path.is_dir()).collect(),
        libraries.into_iter().filter(|path| path.is_dir()).collect(),
    )
}

/// Packages of the libraries that QEMU needs, and that those need, as `release` has them.
fn libraries_of(backports: &Apt, release: &Apt) -> Result<Vec<String>> {
    let is_library = |name: &String| name.starts_with("lib") && !SYSTEM_LIBRARIES.contains(&name.as_str());
    let mut found: Vec<String> = backports
        .depends("qemu-system-x86")?
        .into_iter()
        .filter(is_library)
        .collect();
    let mut next = 0;
    while next < found.len() {
        for name in release.depends(&found[next])?.into_iter().filter(is_library) {
            if !found.contains(&name) {
                found.push(name);
            }
        }
        next += 1;
    }
    let mut available = Vec::new();
    for name in found {
        if release.has(&name)? {
            available.push(name);
        }
    }
    Ok(available)
}

#[cfg(test)]
impl Qemu {
    /// A program that is taken for one.
    pub fn at(program: PathBuf) -> Self {
        Self {
            program,
            firmware: Vec::new(),
            libraries: Vec::new(),
            version: (RECENT_MAJOR, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_what_qemu_prints() {
        assert_eq!(
            version("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)\nCopyright"),
            Some((10, 0))
        );
        assert_eq!(version("QEMU emulator version 7.2.22"), Some((7, 2)));
        assert_eq!(version("something else"), None);
    }

    #[test]
    fn a_qemu_that_does_not_start_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().into()).unwrap();
        let half = cache.folder("qemu/bookworm").unwrap();
        assert!(replace(&cache, "qemu/bookworm", |_| Ok(())).is_err());
        assert!(!half.exists());
        let whole = |folder: &Path| {
            let programs = folder.join("usr/bin");
            std::fs::create_dir_all(&programs).unwrap();
            let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/qemu.sh");
            std::os::unix::fs::symlink(program, programs.join(PROGRAM)).unwrap();
            Ok(())
        };
        cache.folder("qemu/bookworm/usr/bin").unwrap();
        assert_eq!(replace(&cache, "qemu/bookworm", whole).unwrap().version, (10, 0));
    }
}
