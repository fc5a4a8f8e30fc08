// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fetches and unpacks Debian packages with a package list of our own; nothing is installed on the system.
//!
//! apt gets its state, cache and sources from folders of ours; everything else, a proxy for example, it takes from the
//! machine's own configuration.
use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::sources::{debian_mirror, parse_deb822, parse_one_line, Source};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// How the name of a folder with downloads begins.
const DOWNLOADS: &str = ".tmp";

/// The package lists of one suite, for this process alone until it is dropped: another that updates them meanwhile would
/// fail at apt's own lock, or change them between two questions.
pub struct Apt {
    folder: PathBuf,
    suite: String,
    _lock: File,
}

impl Apt {
    /// Reads the lists of `suite` from the mirror. Errors: no apt, no mirror known, or the mirror does not answer.
    pub fn read(cache: &Cache, suite: &str) -> Result<Self> {
        let folder = cache.folder(&format!("apt/{suite}"))?;
        let lock = locked(&folder)?;
        sweep(&folder);
        for name in ["state/lists/partial", "cache/archives/partial"] {
            let path = folder.join(name);
            std::fs::create_dir_all(&path).map_err(|error| Error::file("create it", &path, &error))?;
        }
        let signed_by = if Path::new(KEYRING).exists() {
            format!("[signed-by={KEYRING}] ")
        } else {
            String::new()
        };
        let mirror = mirror()?;
        let list = format!("deb {signed_by}{mirror} {suite} main\n");
        for (name, text) in [("sources.list", list.as_str()), ("status", "")] {
            let path = folder.join(name);
            std::fs::write(&path, text).map_err(|error| Error::file("write it", &path, &error))?;
        }
        let apt = Self {
            folder,
            suite: suite.to_string(),
            _lock: lock,
        };
        let at_mirror = |error| {
            Error::Machine(format!(
                "{error} (mirror: {mirror}; PLIMSOLL_MIRROR names another)"
            ))
        };
        apt.run("apt-get", &["update", "-qq"]).map_err(at_mirror)?;
        Ok(apt)
    }

    /// The field `name` of the newest version of `package`, or nothing when the suite has no such package.
    pub fn field(&self, package: &str, name: &str) -> Result<Option<String>> {
        let Ok(text) = self.run("apt-cache", &["show", "--no-all-versions", package]) else {
            return Ok(None);
        };
        let prefix = format!("{name}: ");
        Ok(text
            .lines()
            .find_map(|line| line.strip_prefix(&prefix))
            .map(str::to_string))
    }

    /// Packages that `package` depends on, in the order of its `Depends`; the first one of alternatives.
    pub fn depends(&self, package: &str) -> Result<Vec<String>> {
        let depends = self.field(package, "Depends")?.unwrap_or_default();
        Ok(depends
            .split(',')
            .filter_map(|entry| entry.split_whitespace().next())
            .map(str::to_string)
            .collect())
    }

    /// Names of packages that begin with `prefix`, real ones only.
    pub fn names(&self, prefix: &str) -> Result<Vec<String>> {
        Ok(self
            .run("apt-cache", &["pkgnames", prefix])?
            .lines()
            .map(str::to_string)
            .collect())
    }

    /// True when the suite has `package` itself, not only another package that mentions it.
    pub fn has(&self, package: &str) -> Result<bool> {
        Ok(self.field(package, "Version")?.is_some())
    }

    /// Downloads `packages` and unpacks them into `target`.
    pub fn unpack(&self, packages: &[String], target: &Path) -> Result<()> {
        let downloads = tempfile::Builder::new()
            .prefix(DOWNLOADS)
            .tempdir_in(&self.folder)
            .map_err(|error| Error::file("create a folder in it", &self.folder, &error))?;
        let mut arguments = vec!["download", "-qq"];
        arguments.extend(packages.iter().map(String::as_str));
        self.run_in("apt-get", &arguments, downloads.path())?;
        let entries = std::fs::read_dir(downloads.path())
            .map_err(|error| Error::file("read it", downloads.path(), &error))?;
        for entry in entries.flatten() {
            let output = Command::new("dpkg-deb")
                .arg("-x")
                .arg(entry.path())
                .arg(target)
                .output();
            checked(
                "dpkg-deb",
                &format!("dpkg-deb -x {}", entry.path().display()),
                output,
            )?;
        }
        Ok(())
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        self.run_in(program, arguments, &self.folder)
    }

    fn run_in(&self, program: &str, arguments: &[&str], folder: &Path) -> Result<String> {
        let ours = self.folder.display();
        let options = [
            format!("Dir::State={ours}/state"),
            format!("Dir::State::status={ours}/status"),
            format!("Dir::Cache={ours}/cache"),
            format!("Dir::Etc::sourcelist={ours}/sources.list"),
            "Dir::Etc::sourceparts=-".into(),
            // The guest is x86-64 whatever the host is.
            "APT::Architecture=amd64".into(),
            "APT::Architectures::=amd64".into(),
            "Acquire::Languages=none".into(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".into(),
            "Acquire::Retries=3".into(),
            // Without it an update that fetched nothing is a success, and the suite seems to have no packages.
            "APT::Update::Error-Mode=any".into(),
            // Root's files need not be readable for the user _apt.
            "APT::Sandbox::User=root".into(),
        ];
        let mut command = Command::new(program);
        for option in &options {
            command.arg("-o").arg(option);
        }
        let output = command
            .args(arguments)
            .env("LC_ALL", "C")
            .current_dir(folder)
            .output();
        checked(
            program,
            &format!("{program} {} ({})", arguments.join(" "), self.suite),
            output,
        )
    }
}

/// Removes the downloads in a suite's folder that is locked: killed processes have left them.
fn sweep(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(DOWNLOADS) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Waits until no other process holds `folder`; the kernel lets go of it when the file is closed, whatever ends us.
fn locked(folder: &Path) -> Result<File> {
    let path = folder.join("lock");
    let file = File::create(&path).map_err(|error| Error::file("write it", &path, &error))?;
    // SAFETY: the descriptor is open.
    match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } {
        0 => Ok(file),
        _ => Err(Error::file("lock it", &path, &std::io::Error::last_os_error())),
    }
}

fn checked(program: &str, what: &str, output: std::io::Result<std::process::Output>) -> Result<String> {
    let output = output.map_err(|error| {
        Error::Machine(format!(
            "cannot run {program}: {error}; kernels come from Debian's packages, by apt-get and dpkg-deb"
        ))
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let complaint = complaint
        .lines()
        .find(|line| line.starts_with("E:"))
        .or(complaint.lines().next());
    Err(Error::Machine(format!(
        "{what}: {}",
        complaint.unwrap_or("failed")
    )))
}

/// The value of VERSION_CODENAME of this machine's system, or nothing outside Debian-like systems.
pub fn host_codename() -> Option<String> {
    let text = std::fs::read_to_string("/etc/os-release").ok()?;
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    Some(value.trim_matches('"').to_string())
}

/// `PLIMSOLL_MIRROR`, or the mirror in the machine's own apt configuration.
fn mirror() -> Result<String> {
    if let Some(mirror) = std::env::var("PLIMSOLL_MIRROR")
        .ok()
        .filter(|value| !value.is_empty())
    {
        return Ok(mirror);
    }
    debian_mirror(&host_sources(), &host_codename().unwrap_or_default()).ok_or_else(|| {
        Error::Machine(
            "no mirror of Debian found in /etc/apt/sources.list and /etc/apt/sources.list.d; \
             set PLIMSOLL_MIRROR to the address of one"
                .into(),
        )
    })
}

fn host_sources() -> Vec<Source> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir("/etc/apt/sources.list.d")
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    paths.push("/etc/apt/sources.list".into());
    paths.sort();
    let mut sources = Vec::new();
    for path in paths {
        let Ok(text) = std::fs::read_to_string(&path) else {
            continue;
        };
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("sources") => sources.extend(parse_deb822(&text)),
            Some("list") => sources.extend(parse_one_line(&text)),
            _ => {}
        }
    }
    sources
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mirror_out_of_reach_is_an_error_and_no_empty_suite() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["state/lists/partial", "cache/archives/partial"] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        // No process listens at the port of discard.
        let list = "deb http://127.0.0.1:9/debian sid main\n";
        for (name, text) in [("sources.list", list), ("status", "")] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let apt = Apt {
            folder: folder.path().into(),
            suite: "sid".into(),
            _lock: locked(folder.path()).unwrap(),
        };
        // apt waits between its tries.
        let update = apt.run("apt-get", &["update", "-qq", "-o", "Acquire::Retries=0"]);
        assert!(update.is_err(), "{update:?}");
    }

    #[test]
    fn one_process_at_a_time_has_the_lists_of_a_suite() {
        let folder = tempfile::tempdir().unwrap();
        let is_free = || {
            let other = File::create(folder.path().join("lock")).unwrap();
            // SAFETY: the descriptor is open.
            unsafe { libc::flock(other.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
        };
        let lock = locked(folder.path()).unwrap();
        assert!(!is_free());
        drop(lock);
        // A process that another test makes just now has the descriptor, too, until it runs its program.
        let mut tries = 0;
        while !is_free() {
            tries += 1;
            assert!(tries < 500, "it is still locked");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    #[test]
    fn downloads_of_a_killed_process_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        for name in [".tmpAbC123", "state"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        sweep(folder.path());
        assert!(!folder.path().join(".tmpAbC123").exists() && folder.path().join("state").exists());
    }
}
