// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The topology of this machine, as the kernel tells it below `/sys/devices/system/cpu`.
use crate::CpuSet;
use std::fs;
use std::path::Path;

/// Where CPUs are below the mount of sysfs.
pub const CPUS: &str = "devices/system/cpu";

/// What shares something with a CPU. `None`: the kernel does not say, as of a CPU that is off line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Hardware threads of its core, itself included.
    pub core: Option<CpuSet>,
    /// CPUs that share its data cache of the highest level.
    pub llc: Option<CpuSet>,
    /// Number of its NUMA node.
    pub node: Option<u32>,
}

/// The list in a file such as `online`, `possible` or `shared_cpu_list`. `None`: there is no such file, or no list in it.
pub fn list(path: &Path) -> Option<CpuSet> {
    CpuSet::parse(&fs::read_to_string(path).ok()?)
}

/// Where a CPU stands. `sysfs`: the mount, usually `/sys`.
pub fn place(sysfs: &Path, cpu: u32) -> Place {
    let folder = sysfs.join(CPUS).join(format!("cpu{cpu}"));
    let node = fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .flatten()
        .find_map(|entry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok());
    Place {
        core: list(&folder.join("topology/thread_siblings_list")),
        llc: last_level_cache(&folder.join("cache")),
        node,
    }
}

/// An index says nothing of a level: that is a file of its own.
fn last_level_cache(caches: &Path) -> Option<CpuSet> {
    let mut best = None;
    for entry in fs::read_dir(caches).ok()?.flatten() {
        let read = |name| fs::read_to_string(entry.path().join(name)).ok();
        let Some(level) = read("level").and_then(|level| level.trim().parse::<u32>().ok()) else {
            continue;
        };
        if read("type").is_some_and(|kind| kind.trim() == "Instruction") {
            continue;
        }
        if best.as_ref().is_none_or(|(highest, _)| level > *highest) {
            best = Some((level, list(&entry.path().join("shared_cpu_list"))?));
        }
    }
    best.map(|(_, cpus)| cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_level_counts_whatever_its_index() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join(CPUS).join("cpu1");
        let write = |path: &str, text: &str| {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("topology/thread_siblings_list", "1,3\n");
        fs::create_dir(folder.join("node2")).unwrap();
        for (index, level, kind, shared) in [
            (0, "3\n", "Unified", "0-3\n"),
            (1, "1\n", "Data", "1\n"),
            (2, "9\n", "Instruction", "1\n"),
        ] {
            write(&format!("cache/index{index}/level"), level);
            write(&format!("cache/index{index}/type"), kind);
            write(&format!("cache/index{index}/shared_cpu_list"), shared);
        }
        let set = |text: &str| CpuSet::parse(text);
        let expected = Place {
            core: set("1,3"),
            llc: set("0-3"),
            node: Some(2),
        };
        assert_eq!(place(root.path(), 1), expected);
        assert_eq!(place(root.path(), 0), Place::default(), "a CPU that is not there");
    }
}
