// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CPUs of this machine: how many, which share a last-level cache or a core, how many nodes.
use crate::{Error, Result};
use plimsoll_cpus::sysfs;
use std::collections::BTreeMap;
use std::path::Path;

/// LIVE_CPUS_MAX in bpf/intf.h.
pub const CPUS_MAX: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Highest possible CPU number plus one.
    pub nr_cpus: usize,
    pub nr_nodes: usize,
    /// For each CPU, the number of its last-level cache.
    pub llc: Vec<usize>,
    /// For each CPU, the next SMT sibling, round; itself where there is none.
    pub sibling: Vec<usize>,
}

impl Machine {
    /// Reads sysfs, usually at /sys.
    pub fn read(root: &Path) -> Result<Self> {
        let cpus = root.join(sysfs::CPUS);
        let possible = sysfs::list(&cpus.join("possible")).unwrap_or_default();
        let nr_cpus = possible.iter().last().map_or(0, |last| last as usize + 1);
        if nr_cpus == 0 {
            return Err(Error::Machine(format!(
                "{}: no CPUs listed; is sysfs mounted?",
                cpus.join("possible").display()
            )));
        }
        if nr_cpus > CPUS_MAX {
            return Err(Error::Machine(format!(
                "this machine may have up to {nr_cpus} CPUs; the scheduler can represent {CPUS_MAX}"
            )));
        }
        // A cache is known by the lowest of its CPUs.
        let mut by_cache: BTreeMap<u32, usize> = BTreeMap::new();
        let mut llc = Vec::with_capacity(nr_cpus);
        let mut sibling = Vec::with_capacity(nr_cpus);
        for cpu in 0..nr_cpus as u32 {
            let place = sysfs::place(root, cpu);
            // A CPU that is off line has no cache folder: it is taken to share the first cache.
            let shared = place.llc.and_then(|cpus| cpus.first());
            let shared = shared.unwrap_or_else(|| by_cache.keys().next().copied().unwrap_or(cpu));
            let next = by_cache.len();
            llc.push(*by_cache.entry(shared).or_insert(next));
            let threads = place.core.unwrap_or_default();
            let after = threads.iter().find(|&other| other > cpu).or(threads.first());
            sibling.push(after.unwrap_or(cpu) as usize);
        }
        // Of those that may be, some are for memory alone, or for memory that is not there yet.
        let nr_nodes = sysfs::list(&root.join("devices/system/node/has_cpu"))
            .map_or(1, |nodes| nodes.len().max(1) as usize);
        Ok(Self {
            nr_cpus,
            nr_nodes,
            llc,
            sibling,
        })
    }

    pub fn nr_llcs(&self) -> usize {
        self.llc.iter().max().map_or(0, |last| last + 1)
    }

    /// The CPUs of each last-level cache, in order.
    pub fn cpus_of_llcs(&self) -> Vec<Vec<usize>> {
        let mut cpus = vec![Vec::new(); self.nr_llcs()];
        for (cpu, &llc) in self.llc.iter().enumerate() {
            cpus[llc].push(cpu);
        }
        cpus
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn cpus_are_grouped_by_their_last_level_cache_and_core() {
        let root = std::env::temp_dir().join(format!("plimsoll-machine-{}", std::process::id()));
        let cpus = root.join("devices/system/cpu");
        let write = |path: &Path, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(&cpus.join("possible"), "0-3\n");
        for cpu in 0..4 {
            let folder = cpus.join(format!("cpu{cpu}"));
            write(
                &folder.join("topology/thread_siblings_list"),
                &format!("{},{}\n", cpu % 2, cpu % 2 + 2),
            );
            for (index, (level, shared)) in [("1", cpu.to_string()), ("3", ["0,2", "1,3"][cpu % 2].into())]
                .iter()
                .enumerate()
            {
                write(&folder.join(format!("cache/index{index}/level")), level);
                write(&folder.join(format!("cache/index{index}/type")), "Unified");
                write(
                    &folder.join(format!("cache/index{index}/shared_cpu_list")),
                    shared,
                );
            }
        }
        write(&root.join("devices/system/node/possible"), "0-15\n");
        write(&root.join("devices/system/node/has_cpu"), "0-1\n");
        let machine = Machine::read(&root).unwrap();
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(machine.nr_nodes, 2);
        assert_eq!(machine.cpus_of_llcs(), [[0, 2], [1, 3]]);
        assert_eq!(machine.sibling, [2, 3, 0, 1]);
    }
}
