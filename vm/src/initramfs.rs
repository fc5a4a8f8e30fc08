// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest's file system: busybox, the programs asked for with their shared libraries, and what `guest/init.sh` reads.
use crate::cpio::Archive;
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::libraries::{needs, search_folders, DEFAULT_FOLDERS};
use crate::madt;
use crate::modules;
use std::path::{Path, PathBuf};
use std::process::Command;

const INIT: &str = include_str!("../guest/init.sh");
/// Debian's static busybox; the plain package's is dynamic and does not run before its libraries are there.
const BUSYBOX: &str = "/bin/busybox";

/// A program of the host that the guest finds on its PATH.
#[derive(Debug, Clone)]
pub struct Program {
    pub path: PathBuf,
    /// What the guest calls it.
    pub name: String,
}

impl Program {
    /// The file at `path`, under its own name.
    pub fn of(path: PathBuf) -> Result<Self> {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .map(str::to_string);
        let name = name.ok_or_else(|| Error::Input(format!("{}: not the name of a file", path.display())))?;
        Ok(Self { path, name })
    }
}

/// What goes into a guest besides the kernel.
pub struct Content<'a> {
    pub programs: &'a [Program],
    /// The command and its arguments.
    pub command: &'a [String],
    /// Whether `plimsoll run` is started before the command.
    pub scheduler: bool,
    /// The kernel is told of this many CPUs; `None`: of those that there are.
    pub possible_cpus: Option<u32>,
    /// CPUs that there are, where `possible_cpus` says more.
    pub cpus: u32,
    /// Whether it has a network card.
    pub network: bool,
    /// Drivers that are loaded besides.
    pub drivers: &'a [String],
}

/// The archive that the kernel unpacks. Not compressed: unpacking would cost the guest more than reading it.
pub fn build(kernel: &Kernel, content: &Content) -> Result<Vec<u8>> {
    let mut archive = Archive::new();
    if let Some(possible) = content.possible_cpus {
        // First in the archive: the kernel looks for it before it unpacks anything.
        archive.file(madt::PATH, 0o644, &madt::table(content.cpus, possible));
        let last: String = (possible - content.cpus + 1..possible)
            .map(|cpu| format!("{cpu}\n"))
            .collect();
        archive.file("plimsoll/online", 0o644, last.as_bytes());
    }
    for folder in ["dev", "proc", "sys", "run", "root", "sbin", "usr/bin", "var"] {
        archive.folder(folder, 0o755);
    }
    archive.folder("tmp", 0o1777);
    archive.file("init", 0o755, INIT.as_bytes());
    add_busybox(&mut archive)?;
    archive.file(
        "etc/passwd",
        0o644,
        b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    );
    archive.file("etc/group", 0o644, b"root:x:0:\nnogroup:x:65534:\n");
    archive.file("etc/hosts", 0o644, b"127.0.0.1 localhost plimsoll\n");
    let config = read(&kernel.config)?;
    archive.file(&format!("boot/config-{}", kernel.release), 0o644, &config);

    let mut drivers = modules::NEEDED.to_vec();
    drivers.extend(content.drivers.iter().map(String::as_str));
    if content.network {
        drivers.push(modules::NETWORK);
        archive.file("plimsoll/network", 0o644, b"");
    }
    let loaded = modules::to_load(&kernel.modules, &drivers)?;
    for module in &loaded {
        archive.file(&format!("plimsoll/{}", module.name), 0o644, &module.content);
    }
    let names: String = loaded.iter().map(|module| format!("{}\n", module.name)).collect();
    archive.file("plimsoll/modules", 0o644, names.as_bytes());

    let folders = search_folders();
    for program in content.programs {
        add_program(&mut archive, program, &folders)?;
    }
    let mut command = content.command.to_vec();
    if content
        .programs
        .iter()
        .any(|program| Some(&program.name) == command.first())
    {
        // busybox's shell takes its own commands before those on the PATH.
        command[0].insert_str(0, "/usr/local/bin/");
    }
    archive.file("plimsoll/command", 0o755, script(&command).as_bytes());
    if content.scheduler {
        archive.file("plimsoll/scheduler", 0o644, b"");
    }
    // Last: where the guest's memory ends, the kernel leaves out the rest and boots all the same.
    archive.file("plimsoll/end", 0o644, b"");
    Ok(archive.finish())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| Error::file("read it", path, &error))
}

fn add_busybox(archive: &mut Archive) -> Result<()> {
    let missing =
        |why: String| Error::Machine(format!("{BUSYBOX}: {why}; install the package busybox-static"));
    let content = std::fs::read(BUSYBOX).map_err(|error| missing(error.to_string()))?;
    if needs(Path::new(BUSYBOX), &content, &[]).map_or(true, |needs| needs.linker.is_some()) {
        return Err(missing("it is not a static program".into()));
    }
    archive.file("bin/busybox", 0o755, &content);
    let list = Command::new(BUSYBOX)
        .arg("--list")
        .output()
        .map_err(|error| missing(error.to_string()))?;
    for applet in String::from_utf8_lossy(&list.stdout)
        .lines()
        .filter(|name| *name != "busybox")
    {
        archive.link(&format!("bin/{applet}"), "busybox");
    }
    archive.link("usr/bin/env", "/bin/busybox");
    Ok(())
}

fn add_program(archive: &mut Archive, program: &Program, folders: &[PathBuf]) -> Result<()> {
    let file = |error| Error::Input(format!("{}: cannot read it: {error}", program.path.display()));
    let content = std::fs::read(&program.path).map_err(file)?;
    let place = format!("usr/local/bin/{}", program.name);
    if archive.has(&place) {
        return Err(Error::Input(format!(
            "two programs are called {}; the guest's PATH has room for one",
            program.name
        )));
    }
    archive.file(&place, 0o755, &content);
    let needs = needs(&program.path, &content, folders)?;
    if let Some(linker) = &needs.linker {
        add_once(archive, &linker.to_string_lossy(), linker)?;
    }
    for (name, path) in &needs.libraries {
        add_once(archive, &format!("{}/{name}", DEFAULT_FOLDERS[0]), path)?;
    }
    Ok(())
}

fn add_once(archive: &mut Archive, place: &str, path: &Path) -> Result<()> {
    if !archive.has(place) {
        archive.file(place, 0o755, &read(path)?);
    }
    Ok(())
}

/// A shell script that becomes the command, each argument exactly as it was given.
fn script(command: &[String]) -> String {
    let words: Vec<String> = command
        .iter()
        .map(|word| format!("'{}'", word.replace('\'', r"'\''")))
        .collect();
    format!("exec {}\n", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_reach_the_command_unchanged_by_the_shell() {
        let words = ["printf", "%s|", "it's", "$HOME `x`", "", "a\nb", "\"\\", "-- *"];
        let script = script(&words.map(String::from));
        let output = Command::new("sh").arg("-c").arg(script).output().unwrap();
        assert_eq!(
            String::from_utf8(output.stdout).unwrap(),
            "it's|$HOME `x`||a\nb|\"\\|-- *|"
        );
    }
}
