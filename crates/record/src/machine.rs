// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine as the kernel describes it.
use plimsoll_cpus::{sysfs, CpuSet};
use plimsoll_trace::{Cpu, Machine};
use std::fs;
use std::path::Path;

/// Reads topology and kernel. What the kernel does not tell is absent; `hz` and `cgroup_version` are
/// for the caller to fill in.
pub fn read() -> Machine {
    let sys = Path::new("/sys");
    let online = sysfs::list(&sys.join(sysfs::CPUS).join("online")).unwrap_or_default();
    Machine {
        cpus: online.iter().map(|cpu| topology(sys, cpu)).collect(),
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

fn topology(sysfs: &Path, cpu: u32) -> Cpu {
    let place = sysfs::place(sysfs, cpu);
    // A set of CPUs is named by its lowest.
    let lowest = |set: Option<CpuSet>| set.and_then(|set| set.first());
    Cpu {
        cpu,
        core: lowest(place.core),
        llc: lowest(place.llc),
        node: place.node,
    }
}

fn configured_hz() -> Option<u32> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let config = fs::read_to_string(format!("/boot/config-{}", release.trim())).ok()?;
    config
        .lines()
        .find_map(|l| l.strip_prefix("CONFIG_HZ=")?.parse().ok())
}
