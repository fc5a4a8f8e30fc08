// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine as the kernel describes it.
use plimsoll_trace::{Cpu, Machine};
use std::fs;
use std::path::Path;

/// Reads topology and kernel. What the kernel does not tell is absent; `hz` and `cgroup_version` are
/// for the caller to fill in.
pub fn read() -> Machine {
    let sys = Path::new("/sys/devices/system/cpu");
    let online = fs::read_to_string(sys.join("online")).unwrap_or_default();
    Machine {
        cpus: cpu_list(&online)
            .into_iter()
            .map(|cpu| topology(sys, cpu))
            .collect(),
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
            .ok()
            .map(|t| t.trim().to_string()),
        hz: configured_hz(),
        model: fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
            let line = text.lines().find(|l| l.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_string())
        }),
        cgroup_version: None,
    }
}

fn topology(sys: &Path, cpu: u32) -> Cpu {
    let dir = sys.join(format!("cpu{cpu}"));
    // A set of CPUs is named by its lowest.
    let lowest = |path: &str| {
        cpu_list(&fs::read_to_string(dir.join(path)).unwrap_or_default())
            .first()
            .copied()
    };
    let level = |i: &u32| {
        fs::read_to_string(dir.join(format!("cache/index{i}/level")))
            .ok()?
            .trim()
            .parse::<u32>()
            .ok()
    };
    // Its caches in the order of levels: the highest is the last-level cache, whatever its index.
    let llc = (0..8)
        .filter(|i| level(i).is_some())
        .max_by_key(level)
        .and_then(|i| lowest(&format!("cache/index{i}/shared_cpu_list")));
    let node = fs::read_dir(&dir)
        .into_iter()
        .flatten()
        .flatten()
        .find_map(|entry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok());
    Cpu {
        cpu,
        core: lowest("topology/thread_siblings_list"),
        llc,
        node,
    }
}

/// `0-3,8` as numbers; what is not a number is left out.
pub fn cpu_list(text: &str) -> Vec<u32> {
    text.trim()
        .split(',')
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
        })
        .flatten()
        .collect()
}

fn configured_hz() -> Option<u32> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let config = fs::read_to_string(format!("/boot/config-{}", release.trim())).ok()?;
    config
        .lines()
        .find_map(|l| l.strip_prefix("CONFIG_HZ=")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(cpu_list("0-2,8,10-11\n"), [0, 1, 2, 8, 10, 11]);
        assert_eq!(cpu_list("0\n"), [0]);
        assert!(cpu_list("\n").is_empty());
    }
}
