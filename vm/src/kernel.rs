// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds, checks and keeps Debian kernels for the guest.
use crate::apt::Apt;
use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::image::{self, Failure};
use crate::modules;
use plimsoll_btf::{probe_sched_ext, Fault};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::str::FromStr;

/// Suites in which the newest kernel is looked for, in this order. After them comes 6.19 of trixie-backports, an old friend.
const NEWEST: [&str; 3] = ["sid", "testing", "trixie-backports"];
const FALLBACK: (&str, &str) = ("trixie-backports", "6.19");
/// Where a series lives that is not a suite's newest for long.
const HOMES: [(&str, &str); 3] = [("6.1", "bookworm"), ("6.12", "trixie"), (FALLBACK.1, FALLBACK.0)];
/// The release that brought sched_ext; older ones need no look at their type information.
const SCHED_EXT_SINCE: [u64; 2] = [6, 12];
/// Kernels that are tried in one suite: each is a download.
const CANDIDATES_MAX: usize = 2;

/// Which kernel a guest shall boot: the first of these wishes that can be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted(Vec<Wish>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Wish {
    /// The first suite's newest that a sched_ext scheduler can be loaded into.
    Newest,
    /// The newest of a series such as 6.19. It may be without sched_ext.
    Series(String),
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let wish = |text: &str| {
            let numbers: Vec<&str> = text.split('.').collect();
            if text == "newest" {
                Some(Wish::Newest)
            } else if numbers.len() == 2 && numbers.iter().all(|part| part.parse::<u16>().is_ok()) {
                Some(Wish::Series(text.to_string()))
            } else {
                None
            }
        };
        let wishes: Option<Vec<Wish>> = text.split(',').map(wish).collect();
        wishes.map(Wanted).ok_or_else(|| {
            "allowed: newest, a series such as 7.2, 6.19 or 6.1, or several of them with commas, the best first"
                .into()
        })
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

/// What a suite's package lists say of its cloud kernels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Offer {
    /// The release that the suite's meta package names.
    newest: Option<String>,
    /// All releases whose packages the suite still has, in any order.
    releases: Vec<String>,
}

impl Offer {
    /// Releases to try for a wish, the best first. A suite keeps superseded kernels for a while: where its newest does
    /// not take a scheduler, the one before may.
    fn candidates(&self, series: Option<&str>) -> Vec<String> {
        let mut releases = self.releases.clone();
        releases.sort_by_key(|release| std::cmp::Reverse(version(release)));
        match series {
            Some(series) => releases.retain(|release| is_of(release, series)),
            None => {
                // A release of the same series was built with the same tools.
                releases.dedup_by_key(|release| version(release)[..2].to_vec());
                if let Some(newest) = &self.newest {
                    releases.retain(|release| version(release)[..2] != version(newest)[..2]);
                    releases.insert(0, newest.clone());
                }
            }
        }
        releases.truncate(CANDIDATES_MAX);
        releases
    }
}

/// Where kernels come from: Debian's suites, and in tests package lists as data.
trait Archive {
    fn offer(&self, suite: &str) -> Result<Offer>;
    fn kernel(&self, suite: &str, release: &str) -> Result<Kernel>;
}

/// Gives a kernel as wanted, from the cache or else from Debian; `refresh` looks for a newer one first, and takes the
/// cache's where there is none. `say` is told what is going on, and which kernel is taken where another one was passed over.
/// Errors: no kernel is available, with the reason for every kernel that was tried.
pub fn obtain(cache: &Cache, wanted: &Wanted, refresh: bool, say: &dyn Fn(&str)) -> Result<Kernel> {
    let archive = Debian {
        cache,
        suites: RefCell::default(),
    };
    choose(cache, &archive, wanted, refresh, say)
}

fn choose(
    cache: &Cache,
    archive: &dyn Archive,
    wanted: &Wanted,
    refresh: bool,
    say: &dyn Fn(&str),
) -> Result<Kernel> {
    let mut refused = Vec::new();
    let taken = |kernel: Kernel, from: &str, refused: &[String]| {
        if !refused.is_empty() {
            say(&format!("Linux {} {from} is taken", kernel.release));
        }
        Ok(kernel)
    };
    for wish in &wanted.0 {
        if !refresh {
            if let Some(kernel) = cached(cache, wish)? {
                return taken(kernel, "of the cache", &refused);
            }
        }
        if let Some(kernel) = fetched(archive, wish, &mut refused, say) {
            let from = format!("of Debian {}", kernel.suite);
            return taken(kernel, &from, &refused);
        }
        // What no suite has any more may still be here.
        if let Some(kernel) = cached(cache, wish)? {
            return taken(kernel, "of the cache", &refused);
        }
    }
    let names = wanted.0.iter().map(|wish| match wish {
        Wish::Newest => "for sched_ext".to_string(),
        Wish::Series(series) => format!("of the series {series}"),
    });
    Err(Error::Machine(format!(
        "Debian has no usable kernel {}:\n  {}",
        names.collect::<Vec<_>>().join(" or "),
        refused.join("\n  ")
    )))
}

/// The first kernel of Debian's suites that meets the wish. Why others do not is added to `refused`.
fn fetched(
    archive: &dyn Archive,
    wish: &Wish,
    refused: &mut Vec<String>,
    say: &dyn Fn(&str),
) -> Option<Kernel> {
    let mut pass_over = |what: String, why: &str| {
        say(&format!("{what} is passed over: {why}"));
        refused.push(format!("{what}: {why}"));
    };
    for (suite, series) in places(wish) {
        say(&format!("reading the package lists of Debian {suite}"));
        let offer = match archive.offer(suite) {
            Ok(offer) => offer,
            Err(error) => {
                pass_over(format!("Debian {suite}"), &error.to_string());
                continue;
            }
        };
        let releases = offer.candidates(series);
        if releases.is_empty() {
            pass_over(format!("Debian {suite}"), "it has no such kernel");
        }
        for release in releases {
            let what = format!("Linux {release} of Debian {suite}");
            say(&format!("fetching {what}"));
            let kernel = match archive.kernel(suite, &release) {
                Ok(kernel) => kernel,
                Err(error) => {
                    pass_over(what, &error.to_string());
                    continue;
                }
            };
            match &kernel.fault {
                None if usable(&kernel, wish) => return Some(kernel),
                fault => pass_over(what, fault.as_deref().unwrap_or("it has no sched_ext")),
            }
        }
    }
    None
}

/// Suites to look in, with the series to take there, or nothing for the suite's newest.
fn places(wish: &Wish) -> Vec<(&'static str, Option<&str>)> {
    match wish {
        Wish::Newest => {
            let newest = NEWEST.into_iter().map(|suite| (suite, None));
            newest.chain([(FALLBACK.0, Some(FALLBACK.1))]).collect()
        }
        Wish::Series(series) => {
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

/// Debian's archive by apt; the lists of a suite are read once.
struct Debian<'a> {
    cache: &'a Cache,
    suites: RefCell<BTreeMap<String, Rc<Apt>>>,
}

impl Debian<'_> {
    fn suite(&self, suite: &str) -> Result<Rc<Apt>> {
        if let Some(apt) = self.suites.borrow().get(suite) {
            return Ok(apt.clone());
        }
        let apt = Rc::new(Apt::read(self.cache, suite)?);
        self.suites.borrow_mut().insert(suite.into(), apt.clone());
        Ok(apt)
    }
}

impl Archive for Debian<'_> {
    fn offer(&self, suite: &str) -> Result<Offer> {
        offer(&*self.suite(suite)?)
    }

    fn kernel(&self, suite: &str, release: &str) -> Result<Kernel> {
        fetch(self.cache, &*self.suite(suite)?, suite, release)
    }
}

/// Releases of the cloud kernel in a suite.
fn offer(apt: &Apt) -> Result<Offer> {
    let release = |package: &String| -> Option<String> {
        let release = package.strip_prefix("linux-image-")?;
        (release.ends_with("-cloud-amd64") && release.starts_with(|c: char| c.is_ascii_digit()))
            .then(|| release.to_string())
    };
    let depends = apt.depends("linux-image-cloud-amd64")?;
    let names = apt.names("linux-image-")?;
    Ok(Offer {
        newest: depends.iter().find_map(release),
        releases: names.iter().filter_map(release).collect(),
    })
}

/// The numbers of a release, for comparing: 6.19.14+deb13-cloud-amd64 is [6, 19, 14, 13, 64].
fn version(release: &str) -> Vec<u64> {
    release
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|part| part.parse().ok())
        .collect()
}

fn is_of(release: &str, series: &str) -> bool {
    release
        .strip_prefix(series)
        .is_some_and(|rest| rest.starts_with('.'))
}

fn usable(kernel: &Kernel, wish: &Wish) -> bool {
    kernel.fault.is_none()
        && match wish {
            Wish::Newest => kernel.sched_ext,
            Wish::Series(series) => is_of(&kernel.release, series),
        }
}

/// The cache's kernel for a wish. The newest is that of the first suite, as without a cache: a kernel of another suite that
/// was asked for once does not become the default.
fn cached(cache: &Cache, wish: &Wish) -> Result<Option<Kernel>> {
    let folder = cache.folder("kernels")?;
    let entries = std::fs::read_dir(&folder).map_err(|error| Error::file("read it", &folder, &error))?;
    let kernels = entries.flatten().filter_map(|entry| record(&entry.path()));
    let last = NEWEST.len();
    let place = |kernel: &Kernel| match wish {
        Wish::Newest => NEWEST
            .iter()
            .position(|suite| *suite == kernel.suite)
            .unwrap_or(last),
        Wish::Series(_) => 0,
    };
    Ok(kernels
        .filter(|kernel| usable(kernel, wish))
        .max_by_key(|kernel| (std::cmp::Reverse(place(kernel)), version(&kernel.release))))
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
    let modules = modules_in(folder, release);
    let package = modules_package(release);
    if modules::to_load(&folder.join(&modules), &modules::NEEDED).is_err() && apt.has(&package)? {
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

/// The package that holds the modules, since 6.17 or so.
fn modules_package(release: &str) -> String {
    format!("linux-modules-{release}")
}

/// Where below `folder` the modules of an unpacked kernel are.
fn modules_in(folder: &Path, release: &str) -> PathBuf {
    ["usr/lib/modules", "lib/modules"]
        .map(|parent| Path::new(parent).join(release))
        .into_iter()
        .find(|path| folder.join(path).is_dir())
        .unwrap_or_else(|| Path::new("lib/modules").join(release))
}

/// The kernel with `drivers` besides those that every guest needs. They are in a package of its own, which few guests need:
/// from the cache or else from the suite that the kernel came from. `say` is told what is going on.
/// Errors: `Machine` where the package cannot be had; a driver that it lacks is named as the guest is made.
pub fn with_drivers(cache: &Cache, kernel: Kernel, drivers: &[&str], say: &dyn Fn(&str)) -> Result<Kernel> {
    let needed = [&modules::NEEDED[..], drivers].concat();
    if modules::to_load(&kernel.modules, &needed).is_ok() {
        return Ok(kernel);
    }
    let release = &kernel.release;
    let known = cache.folder("modules")?.join(release);
    let folder = match known.is_dir() {
        true => known,
        false => {
            say(&format!("fetching the drivers of Linux {release}"));
            let apt = Apt::read(cache, &kernel.suite)?;
            cache.publish(&format!("modules/{release}"), |folder| {
                apt.unpack(&[modules_package(release)], folder)?;
                // The package lacks it.
                let list = kernel.modules.join(modules::BUILT_IN);
                std::fs::copy(
                    &list,
                    folder.join(modules_in(folder, release)).join(modules::BUILT_IN),
                )
                .map_err(|error| Error::file("copy it", &list, &error))?;
                Ok(())
            })?
        }
    };
    let modules = folder.join(modules_in(&folder, release));
    Ok(Kernel { modules, ..kernel })
}

/// The archive keeps a superseded kernel's image longer than its configuration. libbpf wants one for CONFIG_HZ and the
/// like, which Debian does not change between releases of one suite, so the suite's newest kernel lends its own.
fn borrow_config(apt: &Apt, folder: &Path) -> Result<(PathBuf, String)> {
    let lender = offer(apt)?.newest;
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
    Ok(match image::btf(&data).map(|btf| probe_sched_ext(&btf)) {
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
            // Asked for once from another suite: not a reason to run it from then on.
            Kernel {
                suite: "trixie-backports".into(),
                ..kernel("7.3.4-cloud-amd64", true, None)
            },
            kernel("7.3.9-cloud-amd64", true, Some("malformed")),
            kernel("6.1.0-50-cloud-amd64", false, None),
        ] {
            let place = cache.folder(&format!("kernels/{}", kernel.release)).unwrap();
            std::fs::write(place.join(RECORD), serde_json::to_string(&kernel).unwrap()).unwrap();
        }
        cache.folder("kernels/.building-left-over").unwrap();
        let release = |wanted: &str| {
            cached(&cache, &wish(wanted))
                .unwrap()
                .map(|kernel| kernel.release)
        };
        assert_eq!(release("newest").as_deref(), Some("7.2.13-cloud-amd64"));
        assert_eq!(release("7.2").as_deref(), Some("7.2.13-cloud-amd64"));
        assert_eq!(release("6.1").as_deref(), Some("6.1.0-50-cloud-amd64"));
        assert_eq!(release("7.3").as_deref(), Some("7.3.4-cloud-amd64"));
        assert_eq!(release("7.4"), None);
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
        let error = obtain(&cache, &"newest".parse().unwrap(), false, &say)
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
    fn a_series_is_two_numbers_and_a_list_is_tried_in_turn() {
        assert_eq!("6.19".parse(), Ok(Wanted(vec![Wish::Series("6.19".into())])));
        let list = Wanted(vec![Wish::Series("7.3".into()), Wish::Newest]);
        assert_eq!("7.3,newest".parse(), Ok(list));
        for wrong in ["", "7", "7.2.13", "7.x", "latest", "-1.2", "7.2,", "7.2;6.19"] {
            assert!(wrong.parse::<Wanted>().is_err(), "{wrong}");
        }
    }

    fn wish(text: &str) -> Wish {
        text.parse::<Wanted>().unwrap().0.remove(0)
    }

    #[test]
    fn a_series_is_looked_for_at_home_first_and_newest_falls_back_to_619() {
        assert_eq!(places(&wish("6.1"))[0], ("bookworm", Some("6.1")));
        assert_eq!(
            places(&wish("newest")).last(),
            Some(&("trixie-backports", Some("6.19")))
        );
    }

    /// An archive of package lists: a line a suite, its meta package's release first; what ends in `!` has prototypes that
    /// the probe refuses, what ends in `-` no sched_ext. A suite without a line does not answer.
    struct Lists(&'static str);

    impl Lists {
        fn of(&self, suite: &str) -> Option<Vec<&'static str>> {
            let line = self.0.lines().map(str::split_whitespace);
            line.map(|mut words| (words.next(), words.collect()))
                .find_map(|(name, words)| (name == Some(suite)).then_some(words))
        }
    }

    impl Archive for Lists {
        fn offer(&self, suite: &str) -> Result<Offer> {
            let words = self.of(suite).ok_or_else(|| Error::Machine("no answer".into()))?;
            let releases: Vec<String> = words
                .iter()
                .map(|word| word.trim_end_matches(['!', '-']).to_string())
                .collect();
            Ok(Offer {
                newest: releases.first().cloned(),
                releases,
            })
        }

        fn kernel(&self, suite: &str, release: &str) -> Result<Kernel> {
            let words = self.of(suite).unwrap();
            let has = |mark: &str| words.contains(&format!("{release}{mark}").as_str());
            let mut kernel = kernel(release, !has("-"), has("!").then_some("malformed"));
            kernel.suite = suite.into();
            Ok(kernel)
        }
    }

    /// What is taken, and what was said of it: without a cache, or beside one that holds `kept`.
    fn taken(lists: &'static str, kept: &[&str], refresh: bool, wanted: &str) -> (String, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().into()).unwrap();
        for release in kept {
            let place = cache.folder(&format!("kernels/{release}")).unwrap();
            let text = serde_json::to_string(&kernel(release, true, None)).unwrap();
            std::fs::write(place.join(RECORD), text).unwrap();
        }
        let said = RefCell::new(Vec::new());
        let say = |text: &str| said.borrow_mut().push(text.to_string());
        let choice = choose(&cache, &Lists(lists), &wanted.parse().unwrap(), refresh, &say);
        let choice = match choice {
            Ok(kernel) => kernel.release,
            Err(error) => error.to_string(),
        };
        (choice, said.into_inner())
    }

    #[test]
    fn kernels_are_taken_by_what_can_be_had_on_the_day_that_sid_leaves_a_series() {
        // Debian on 2026-11-26.
        let today = "sid 7.2.13\ntesting 7.2.12\n\
                     trixie-backports 7.3.4 7.2.12! 7.2.11! 7.1.13! 6.19.13 6.19.14\nbookworm 6.1.1-\ntrixie 6.12.9-";
        let bad = "sid 7.3.1!\ntesting 7.2.12\ntrixie-backports 7.3.4! 7.2.12! 6.19.14";
        let cases: [(&'static str, &[&str], &str, &str); 16] = [
            (today, &[], "newest", "7.2.13"),
            (today, &[], "7.3", "7.3.4"),
            (today, &[], "6.1", "6.1.1"),
            (today, &["7.2.9"], "newest", "7.2.9"),
            // sid has moved: its newest is taken where the probe lets it, else its own older one, else the next suite's.
            ("sid 7.3.1 7.2.13\ntesting 7.2.12", &[], "newest", "7.3.1"),
            ("sid 7.3.1! 7.2.13\ntesting 7.2.12", &[], "newest", "7.2.13"),
            (bad, &[], "newest", "7.2.12"),
            (
                "sid 7.3.1!\ntesting 7.3.1!\ntrixie-backports 7.3.4! 7.2.12! 6.19.14",
                &[],
                "newest",
                "6.19.14",
            ),
            (
                "sid 7.3.1\ntesting 7.3.1\ntrixie-backports 7.3.4 7.2.12! 7.2.11!",
                &["7.2.13"],
                "7.2",
                "7.2.13",
            ),
            ("sid 7.3.1\ntesting 7.3.1", &[], "7.2,7.3", "7.3.1"),
            ("sid 7.3.1\ntesting 7.3.1", &[], "7.2,newest", "7.3.1"),
            // A mirror that does not answer, wholly or in part.
            ("", &["7.2.13", "6.19.14"], "newest", "7.2.13"),
            ("testing 7.2.12", &[], "newest", "7.2.12"),
            // 6.19 has left: the tests of an older kernel take the next one.
            (
                "trixie-backports 7.3.4 7.0.13!\nsid 7.3.1 7.1.9",
                &[],
                "6.19,7.0,7.1",
                "7.1.9",
            ),
            ("sid 7.20.1", &[], "7.2,newest", "7.20.1"),
            ("sid 6.6.1-\ntesting 7.2.12", &[], "newest", "7.2.12"),
        ];
        for (lists, kept, wanted, due) in cases {
            let (choice, _) = taken(lists, kept, false, wanted);
            assert_eq!(choice, due, "{wanted} of {lists:?} beside {kept:?}");
        }
    }

    #[test]
    fn a_kernel_that_is_taken_instead_is_named_and_so_is_each_that_was_passed_over() {
        let (choice, said) = taken("sid 7.3.1! 7.2.14\ntesting 7.3.1!", &[], false, "newest");
        assert_eq!(choice, "7.2.14");
        assert!(
            said.iter()
                .any(|text| text == "Linux 7.3.1 of Debian sid is passed over: malformed"),
            "{said:?}"
        );
        assert_eq!(said.last().unwrap(), "Linux 7.2.14 of Debian sid is taken");

        // Looking for a newer one without an answer takes the cache's, aloud.
        let (choice, said) = taken("", &["7.2.13"], true, "newest");
        assert_eq!(choice, "7.2.13");
        assert_eq!(said.last().unwrap(), "Linux 7.2.13 of the cache is taken");

        let (error, _) = taken("sid 7.3.1!\ntesting 7.3.1", &[], false, "7.2,6.19");
        assert!(
            error.starts_with("Debian has no usable kernel of the series 7.2 or of the series 6.19:\n"),
            "{error}"
        );
        assert!(error.contains("Debian trixie-backports: no answer"), "{error}");
    }
}
