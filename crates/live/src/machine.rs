// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CPUs of this machine: how many, which share a last-level cache or a core, how many nodes.
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::fs;
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
    pub fn read(sysfs: &Path) -> Result<Self> {
        let cpus = sysfs.join("devices/system/cpu");
        let possible = list(&cpus.join("possible")).unwrap_or_default();
        let nr_cpus = possible.last().map_or(0, |last| last + 1);
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
        let mut by_cache: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
        let mut llc = Vec::with_capacity(nr_cpus);
        let mut sibling = Vec::with_capacity(nr_cpus);
        for cpu in 0..nr_cpus {
            let folder = cpus.join(format!("cpu{cpu}"));
            // A CPU that is off line has no cache folder: it is taken to share the first cache.
            let shared = last_level_cache(&folder)
                .unwrap_or_else(|| by_cache.keys().next().cloned().unwrap_or(vec![cpu]));
            let next = by_cache.len();
            llc.push(*by_cache.entry(shared).or_insert(next));
            let threads = list(&folder.join("topology/thread_siblings_list")).unwrap_or_else(|| vec![cpu]);
            let place = threads.iter().position(|&other| other == cpu).unwrap_or(0);
            sibling.push(
                threads
                    .get((place + 1) % threads.len().max(1))
                    .copied()
                    .unwrap_or(cpu),
            );
        }
        // Of those that may be, some are for memory alone, or for memory that is not there yet.
        let nr_nodes = list(&sysfs.join("devices/system/node/has_cpu")).map_or(1, |nodes| nodes.len().max(1));
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

/// CPUs that share the cache of the highest level.
fn last_level_cache(cpu: &Path) -> Option<Vec<usize>> {
    let mut best: Option<(u32, Vec<usize>)> = None;
    for entry in fs::read_dir(cpu.join("cache")).ok()?.flatten() {
        let read = |name| fs::read_to_string(entry.path().join(name)).ok();
        let Some(level) = read("level").and_then(|level| level.trim().parse().ok()) else {
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

/// Reads a list like `0-3,8`.
fn list(path: &Path) -> Option<Vec<usize>> {
    parse_list(&fs::read_to_string(path).ok()?)
}

fn parse_list(text: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        numbers.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_list("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(parse_list("\n"), Some(vec![]));
        assert_eq!(parse_list("0-x"), None);
    }

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
