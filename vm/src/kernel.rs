// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds, checks and keeps Debian kernels for the guest.
use crate::apt::Apt;
use crate::btf::{self, Fault};
use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::image::{self, Failure};
use crate::modules;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Suites whose newest kernels are tried, in this order. After them comes 6.19 of trixie-backports, an old friend.
const NEWEST: [&str; 3] = ["sid", "testing", "trixie-backports"];
const FALLBACK: (&str, &str) = ("trixie-backports", "6.19");
/// Where a series lives that is no suite's newest for long.
const HOMES: [(&str, &str); 3] = [("6.1", "bookworm"), ("6.12", "trixie"), (FALLBACK.1, FALLBACK.0)];
/// The release that brought sched_ext; older ones need no look at their type information.
const SCHED_EXT_SINCE: [u64; 2] = [6, 12];
/// Kernels of a series that are tried in one suite, newest first.
const CANDIDATES_MAX: usize = 2;

/// Which kernel a guest shall boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// The newest that a sched_ext scheduler can be loaded into.
    Newest,
    /// The newest of a series such as 6.19. It may be without sched_ext.
    Series(String),
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let numbers: Vec<&str> = text.split('.').collect();
        if text == "newest" {
            Ok(Wanted::Newest)
        } else if numbers.len() == 2 && numbers.iter().all(|part| part.parse::<u16>().is_ok()) {
            Ok(Wanted::Series(text.to_string()))
        } else {
            Err("allowed: newest, or a series such as 7.2, 6.19 or 6.1".into())
        }
    }
}

/// A kernel in the cache, as its record says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// As `uname -r` prints it.
    pub release: String,
    /// Where it came from.
    pub suite: String,
    pub image: PathBuf,
    pub config: PathBuf,
    /// Release whose configuration `config` is: another one when the archive has dropped this kernel's.
    pub config_release: String,
    /// lib/modules/RELEASE; may hold nothing.
    pub modules: PathBuf,
    /// Whether a sched_ext scheduler can be loaded.
    pub sched_ext: bool,
    /// Why it must not be used.
    pub fault: Option<String>,
}

const RECORD: &str = "plimsoll.json";

/// Gives a kernel as wanted, from the cache or else from Debian; `refresh` looks for a newer one first.
/// `say` is told what is going on. Errors: no kernel is available, with the reason for every kernel that was tried.
pub fn obtain(cache: &Cache, wanted: &Wanted, refresh: bool, say: &dyn Fn(&str)) -> Result<Kernel> {
    if !refresh {
        if let Some(kernel) = cached(cache, wanted)? {
            return Ok(kernel);
        }
    }
    let mut refused = Vec::new();
    let mut pass_over = |what: String, why: &str| {
        say(&format!("{what} is passed over: {why}"));
        refused.push(format!("{what}: {why}"));
    };
    for (suite, series) in places(wanted) {
        say(&format!("reading the package lists of Debian {suite}"));
        let apt = match Apt::read(cache, suite) {
            Ok(apt) => apt,
            Err(error) => {
                pass_over(format!("Debian {suite}"), &error.to_string());
                continue;
            }
        };
        let releases = releases(&apt, series)?;
        if releases.is_empty() {
            pass_over(format!("Debian {suite}"), "it has no such kernel");
        }
        for release in releases {
            let what = format!("Linux {release} of Debian {suite}");
            say(&format!("fetching {what}"));
            let kernel = match fetch(cache, &apt, suite, &release) {
                Ok(kernel) => kernel,
                Err(error) => {
                    pass_over(what, &error.to_string());
                    continue;
                }
            };
            match &kernel.fault {
                None if usable(&kernel, wanted) => return Ok(kernel),
                fault => pass_over(what, fault.as_deref().unwrap_or("it has no sched_ext")),
            }
        }
    }
    let name = match wanted {
        Wanted::Newest => "for sched_ext".to_string(),
        Wanted::Series(series) => format!("of the series {series}"),
    };
    Err(Error::Machine(format!(
        "Debian has no usable kernel {name}:\n  {}",
        refused.join("\n  ")
    )))
}

/// Suites to look in, with the series to take there, or nothing for the suite's newest.
fn places(wanted: &Wanted) -> Vec<(&'static str, Option<&str>)> {
    match wanted {
        Wanted::Newest => {
            let newest = NEWEST.into_iter().map(|suite| (suite, None));
            newest.chain([(FALLBACK.0, Some(FALLBACK.1))]).collect()
        }
        Wanted::Series(series) => {
            let home = HOMES
                .iter()
                .find(|(known, _)| known == series)
                .map(|(_, suite)| *suite);
            let others = NEWEST.into_iter().filter(|suite| Some(*suite) != home);
            home.into_iter()
                .chain(others)
                .map(|suite| (suite, Some(series.as_str())))
                .collect()
        }
    }
}

/// Releases of the cloud kernel in a suite, newest first: of a series, or the one that the meta package names.
fn releases(apt: &Apt, series: Option<&str>) -> Result<Vec<String>> {
    let release = |package: &str| -> Option<String> {
        let release = package.strip_prefix("linux-image-")?;
        (release.ends_with("-cloud-amd64") && release.starts_with(|c: char| c.is_ascii_digit()))
            .then(|| release.to_string())
    };
    let Some(series) = series else {
        let depends = apt.depends("linux-image-cloud-amd64")?;
        return Ok(depends
            .iter()
            .find_map(|package| release(package))
            .into_iter()
            .collect());
    };
    let names = apt.names(&format!("linux-image-{series}."))?;
    let mut releases: Vec<String> = names.iter().filter_map(|name| release(name)).collect();
    releases.sort_by_key(|release| std::cmp::Reverse(version(release)));
    releases.truncate(CANDIDATES_MAX);
    Ok(releases)
}

/// The numbers of a release, for comparing: 6.19.14+deb13-cloud-amd64 is [6, 19, 14, 13, 64].
fn version(release: &str) -> Vec<u64> {
    release
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|part| part.parse().ok())
        .collect()
}

fn usable(kernel: &Kernel, wanted: &Wanted) -> bool {
    kernel.fault.is_none()
        && match wanted {
            Wanted::Newest => kernel.sched_ext,
            Wanted::Series(series) => kernel.release.starts_with(&format!("{series}.")),
        }
}

fn cached(cache: &Cache, wanted: &Wanted) -> Result<Option<Kernel>> {
    let folder = cache.folder("kernels")?;
    let entries = std::fs::read_dir(&folder).map_err(|error| Error::file("read it", &folder, &error))?;
    let kernels = entries.flatten().filter_map(|entry| record(&entry.path()));
    Ok(kernels
        .filter(|kernel| usable(kernel, wanted))
        .max_by_key(|kernel| version(&kernel.release)))
}

/// The kernel in `folder`, its paths made absolute; nothing when the folder holds none.
fn record(folder: &Path) -> Option<Kernel> {
    let text = std::fs::read_to_string(folder.join(RECORD)).ok()?;
    let mut kernel: Kernel = serde_json::from_str(&text).ok()?;
    // Records once took it for a fault of the kernel that the machine could not unpack it.
    let is_machines = |fault: &str| fault.contains("unpack it");
    if kernel.fault.as_deref().is_some_and(is_machines) {
        return None;
    }
    for path in [&mut kernel.image, &mut kernel.config, &mut kernel.modules] {
        *path = folder.join(&*path);
    }
    Some(kernel)
}

fn fetch(cache: &Cache, apt: &Apt, suite: &str, release: &str) -> Result<Kernel> {
    let name = format!("kernels/{release}");
    let known = cache.folder("kernels")?.join(release);
    if let Some(kernel) = record(&known) {
        return Ok(kernel);
    }
    // A folder without a record that can be used would stay, and what is fetched now be dropped.
    cache.remove(&name)?;
    let folder = cache.publish(&name, |folder| {
        let kernel = unpack(apt, suite, release, folder)?;
        let text = serde_json::to_string_pretty(&kernel).expect("a record has string keys");
        let path = folder.join(RECORD);
        std::fs::write(&path, text).map_err(|error| Error::file("write it", &path, &error))
    })?;
    record(&folder).ok_or_else(|| Error::Machine(format!("{}: no record of the kernel", folder.display())))
}

/// Unpacks the packages of a kernel into `folder` and checks it; paths in the result are relative to `folder`.
fn unpack(apt: &Apt, suite: &str, release: &str, folder: &Path) -> Result<Kernel> {
    let image = format!("linux-image-{release}");
    let mut packages = vec![image.clone()];
    for needed in apt.depends(&image)? {
        // Since 6.17 or so the image package is empty and these hold the files. The modules are large and seldom needed.
        let part = needed == format!("linux-base-{release}") || needed == format!("linux-binary-{release}");
        if part && apt.has(&needed)? {
            packages.push(needed);
        }
    }
    apt.unpack(&packages, folder)?;
    let image = locate(folder, "vmlinuz", release)
        .ok_or_else(|| Error::Machine(format!("its packages ({}) hold no image", packages.join(", "))))?;
    let modules = ["usr/lib/modules", "lib/modules"]
        .map(|parent| Path::new(parent).join(release))
        .into_iter()
        .find(|path| folder.join(path).is_dir())
        .unwrap_or_else(|| Path::new("lib/modules").join(release));
    let package = format!("linux-modules-{release}");
    if modules::to_load(&folder.join(&modules)).is_err() && apt.has(&package)? {
        apt.unpack(&[package], folder)?;
    }
    let (config, config_release) = match locate(folder, "config", release) {
        Some(config) => (config, release.to_string()),
        None => borrow_config(apt, folder)?,
    };
    let old = version(release) < SCHED_EXT_SINCE.to_vec();
    let (sched_ext, fault) = if old {
        (false, None)
    } else {
        check(&folder.join(&image))?
    };
    Ok(Kernel {
        release: release.into(),
        suite: suite.into(),
        image,
        config,
        config_release,
        modules,
        sched_ext,
        fault,
    })
}

/// The archive keeps a superseded kernel's image longer than its configuration. libbpf wants one for CONFIG_HZ and the
/// like, which Debian does not change between releases of one suite, so the suite's newest kernel lends its own.
fn borrow_config(apt: &Apt, folder: &Path) -> Result<(PathBuf, String)> {
    let lender = releases(apt, None)?.into_iter().next();
    let lender =
        lender.ok_or_else(|| Error::Machine("the archive no longer has its configuration".into()))?;
    apt.unpack(&[format!("linux-base-{lender}")], folder)?;
    let config = locate(folder, "config", &lender)
        .ok_or_else(|| Error::Machine(format!("linux-base-{lender} holds no configuration")))?;
    Ok((config, lender))
}

/// Debian's old and new places of a kernel's files.
fn locate(folder: &Path, file: &str, release: &str) -> Option<PathBuf> {
    [
        format!("boot/{file}-{release}"),
        format!("usr/lib/modules/{release}/{file}"),
    ]
    .into_iter()
    .map(PathBuf::from)
    .find(|path| folder.join(path).is_file())
}

/// Whether the image's type information serves a scheduler, and what is wrong with it. Errors: this machine cannot read
/// it; that would be wrong in a record, which outlives the machine's fault.
fn check(image: &Path) -> Result<(bool, Option<String>)> {
    let data = std::fs::read(image).map_err(|error| Error::file("read it", image, &error))?;
    Ok(match image::btf(&data).map(|btf| btf::probe_sched_ext(&btf)) {
        Ok(Ok(())) => (true, None),
        Ok(Err(Fault::Absent(_))) => (false, None),
        Ok(Err(fault)) => (false, Some(fault.to_string())),
        Err(Failure::Image(why)) => (false, Some(why)),
        Err(Failure::Machine(why)) => return Err(Error::Machine(why)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(release: &str, sched_ext: bool, fault: Option<&str>) -> Kernel {
        Kernel {
            release: release.into(),
            suite: "sid".into(),
            image: "boot/vmlinuz".into(),
            config: "boot/config".into(),
            config_release: release.into(),
            modules: "lib/modules".into(),
            sched_ext,
            fault: fault.map(str::to_string),
        }
    }

    #[test]
    fn the_newest_sound_kernel_of_the_cache_is_taken_without_the_network() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().into()).unwrap();
        for kernel in [
            kernel("7.2.9-cloud-amd64", true, None),
            kernel("7.2.13-cloud-amd64", true, None),
            kernel("7.3.1-cloud-amd64", true, Some("malformed")),
            kernel("6.1.0-50-cloud-amd64", false, None),
        ] {
            let place = cache.folder(&format!("kernels/{}", kernel.release)).unwrap();
            std::fs::write(place.join(RECORD), serde_json::to_string(&kernel).unwrap()).unwrap();
        }
        cache.folder("kernels/.building-left-over").unwrap();
        let release = |wanted: &str| {
            cached(&cache, &wanted.parse().unwrap())
                .unwrap()
                .map(|kernel| kernel.release)
        };
        assert_eq!(release("newest").as_deref(), Some("7.2.13-cloud-amd64"));
        assert_eq!(release("7.2").as_deref(), Some("7.2.13-cloud-amd64"));
        assert_eq!(release("6.1").as_deref(), Some("6.1.0-50-cloud-amd64"));
        assert_eq!(release("7.3"), None);
        assert_eq!(release("6.19"), None);
    }

    #[test]
    fn a_suite_that_cannot_be_read_is_passed_over_aloud() {
        let folder = tempfile::tempdir().unwrap();
        // Where the suites' folders would be.
        std::fs::write(folder.path().join("apt"), "").unwrap();
        let cache = Cache::at(folder.path().into()).unwrap();
        let said = std::cell::RefCell::new(Vec::new());
        let say = |text: &str| said.borrow_mut().push(text.to_string());
        let error = obtain(&cache, &Wanted::Newest, false, &say)
            .unwrap_err()
            .to_string();
        for suite in NEWEST {
            let start = format!("Debian {suite} is passed over: ");
            let why = said
                .borrow()
                .iter()
                .find_map(|text| text.strip_prefix(&start).map(str::to_string));
            let why = why.unwrap_or_else(|| panic!("{suite}: not a word in {:?}", said.borrow()));
            assert!(error.contains(&format!("Debian {suite}: {why}")), "{error}");
        }
    }

    #[test]
    fn a_fault_of_the_machine_is_no_kernels_record() {
        let folder = tempfile::tempdir().unwrap();
        for (fault, stays) in [
            ("it has no type information (BTF)", true),
            (
                "zstd is needed to unpack it: No such file or directory (os error 2)",
                false,
            ),
            ("zstd cannot unpack it", false),
        ] {
            let kernel = kernel("7.2.9-cloud-amd64", false, Some(fault));
            std::fs::write(
                folder.path().join(RECORD),
                serde_json::to_string(&kernel).unwrap(),
            )
            .unwrap();
            assert_eq!(record(folder.path()).is_some(), stays, "{fault}");
        }
    }

    #[test]
    fn a_series_is_two_numbers() {
        assert_eq!("6.19".parse(), Ok(Wanted::Series("6.19".into())));
        for wrong in ["", "7", "7.2.13", "7.x", "latest", "-1.2"] {
            assert!(wrong.parse::<Wanted>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_series_is_looked_for_at_home_first_and_newest_falls_back_to_619() {
        let series = Wanted::Series("6.1".into());
        assert_eq!(places(&series)[0], ("bookworm", Some("6.1")));
        assert_eq!(
            places(&Wanted::Newest).last(),
            Some(&("trixie-backports", Some("6.19")))
        );
    }
}
