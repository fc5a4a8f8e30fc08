// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cgroup hierarchy that the cpu controller is on, version 1 or 2: groups, limits, statistics.
use crate::error::RecordError;
use plimsoll_trace::{CpuStat, Group};
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where the cpu controller is.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    pub version: u32,
    pub mount: PathBuf,
    /// Version 1 keeps the CPU time used in another controller, which may be mounted elsewhere.
    cpuacct: Option<PathBuf>,
    /// The kernel's number for it; 0 is version 2.
    pub id: i32,
}

/// Lowest weight, highest weight and default of `cpu.weight`.
const WEIGHT_MAX: u64 = 10_000;

impl Hierarchy {
    /// Finds it among the mounts.
    pub fn find() -> Result<Hierarchy, RecordError> {
        let read = |path: &str| {
            fs::read_to_string(path).map_err(|e| RecordError::Unsupported {
                what: "reading cgroups",
                missing: format!("{path}: {e}"),
            })
        };
        Hierarchy::from_mounts(&read("/proc/self/mounts")?, &read("/proc/cgroups")?)
    }

    fn from_mounts(mounts: &str, cgroups: &str) -> Result<Hierarchy, RecordError> {
        let v1 = |controller: &str| {
            mounts.lines().find_map(|line| {
                let words: Vec<&str> = line.split(' ').collect();
                let [_, mount, "cgroup", options, ..] = words[..] else {
                    return None;
                };
                options
                    .split(',')
                    .any(|o| o == controller)
                    .then(|| PathBuf::from(mount))
            })
        };
        let id = cgroups.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            (words.next()? == "cpu").then(|| words.next()?.parse().ok())?
        });
        if let Some(mount) = v1("cpu") {
            return Ok(Hierarchy {
                version: 1,
                mount,
                cpuacct: v1("cpuacct"),
                id: id.unwrap_or(0),
            });
        }
        match mount_of_v2(mounts) {
            Some(mount) => Ok(Hierarchy {
                version: 2,
                mount,
                cpuacct: None,
                id: 0,
            }),
            None => Err(RecordError::Unsupported {
                what: "reading cgroups",
                missing: "no cgroup hierarchy with the cpu controller is mounted".into(),
            }),
        }
    }

    /// A folder that stands for a hierarchy of version 2.
    #[cfg(test)]
    pub fn v2(mount: PathBuf) -> Hierarchy {
        Hierarchy {
            version: 2,
            mount,
            cpuacct: None,
            id: 0,
        }
    }

    /// The group that a user named: a path below the mount, or the whole path of the directory.
    /// Returns its path below the mount, with a leading `/`.
    pub fn resolve(&self, name: &str) -> Result<String, RecordError> {
        let below = Path::new(name)
            .strip_prefix(&self.mount)
            .unwrap_or(Path::new(name));
        let below = below.strip_prefix("/").unwrap_or(below);
        let plain = below
            .components()
            .all(|c| matches!(c, std::path::Component::Normal(_)));
        if plain && self.mount.join(below).join("cgroup.procs").exists() {
            return Ok(format!("/{}", below.display()));
        }
        let mount = self.mount.display();
        Err(RecordError::Input {
            field: "cgroup",
            value: match plain {
                true => format!("{name:?}: there is no {mount}/{}", below.display()),
                false => format!("{name:?}"),
            },
            allowed: format!("a group below {mount} (the cpu controller's hierarchy)"),
        })
    }

    /// Refuses a group of version 2 that the cpu controller is not on: to the scheduler its threads are in the nearest group
    /// above that has it, so that none is found in this one.
    pub fn require_cpu(&self, path: &str) -> Result<(), RecordError> {
        let dir = self.dir(path);
        // The root has neither limits nor cgroup.events, and the controller always.
        let has = |name: &str| dir.join(name).exists();
        if self.version == 1 || has("cpu.weight") || has("cpu.max") || !has("cgroup.events") {
            return Ok(());
        }
        Err(RecordError::Input {
            field: "cgroup",
            value: format!("{path:?} has no cpu controller"),
            allowed:
                "a group that has it: write +cpu into its parent's cgroup.subtree_control, and first into \
                      those above"
                    .into(),
        })
    }

    fn dir(&self, path: &str) -> PathBuf {
        self.mount.join(path.trim_start_matches('/'))
    }

    /// A folder of version 2, by whose groups the kernel hands out packets, that holds all groups at or below `path`; `None` where
    /// version 2 is not mounted.
    pub fn packets(&self, path: &str) -> Option<PathBuf> {
        match self.version {
            2 => Some(self.dir(path)),
            _ => mount_of_v2(&fs::read_to_string("/proc/self/mounts").ok()?),
        }
    }

    /// The kernel's id of a group, if it exists.
    pub fn id_of(&self, path: &str) -> Option<u64> {
        fs::metadata(self.dir(path)).ok().map(|m| m.ino())
    }

    /// All groups at or below `path`, parents before children and in order of name: id and path.
    pub fn walk(&self, path: &str) -> Vec<(u64, String)> {
        let mut found = Vec::new();
        let mut pending = vec![path.to_string()];
        while let Some(path) = pending.pop() {
            // A group may go away while we look.
            let Some(id) = self.id_of(&path) else { continue };
            let mut children: Vec<String> = fs::read_dir(self.dir(&path))
                .into_iter()
                .flatten()
                .flatten()
                .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
                .filter_map(|e| e.file_name().into_string().ok())
                .map(|name| format!("{}/{name}", path.trim_end_matches('/')))
                .collect();
            children.sort_by(|a, b| b.cmp(a));
            pending.extend(children);
            found.push((id, path));
        }
        found
    }

    /// All threads at or below `path`.
    pub fn threads(&self, path: &str) -> Vec<u32> {
        let list = if self.version == 1 {
            "tasks"
        } else {
            "cgroup.threads"
        };
        let of = |(_, path): (u64, String)| fs::read_to_string(self.dir(&path).join(list)).ok();
        let lists = self.walk(path).into_iter().filter_map(of);
        lists
            .flat_map(|list| {
                let tids = list.lines().filter_map(|tid| tid.trim().parse().ok());
                tids.collect::<Vec<u32>>()
            })
            .collect()
    }

    /// A group's limits and statistics as they are now. What cannot be read is absent.
    pub fn group(&self, path: &str) -> Group {
        let dir = self.dir(path);
        let read = |name: &str| fs::read_to_string(dir.join(name)).ok();
        let mut group = Group {
            path: path.into(),
            stat_start: self.stat(path),
            ..Default::default()
        };
        if self.version == 1 {
            let number = |name: &str| read(name).and_then(|t| t.trim().parse::<i64>().ok());
            group.quota_us = number("cpu.cfs_quota_us").and_then(|q| u64::try_from(q).ok());
            group.period_us = number("cpu.cfs_period_us").and_then(|p| u64::try_from(p).ok());
            group.burst_us = number("cpu.cfs_burst_us").and_then(|b| u64::try_from(b).ok());
            group.weight = number("cpu.shares")
                .and_then(|s| u64::try_from(s).ok())
                .map(weight_of_shares);
        } else {
            if let Some(max) = read("cpu.max") {
                let mut words = max.split_whitespace();
                group.quota_us = words.next().and_then(|q| q.parse().ok());
                group.period_us = words.next().and_then(|p| p.parse().ok());
            }
            group.burst_us = read("cpu.max.burst").and_then(|t| t.trim().parse().ok());
            group.weight = read("cpu.weight").and_then(|t| t.trim().parse().ok());
        }
        group
    }

    /// A group's statistics as they are now; `None` if it has none or is gone.
    pub fn stat(&self, path: &str) -> Option<CpuStat> {
        let text = fs::read_to_string(self.dir(path).join("cpu.stat")).ok();
        if self.version == 2 {
            return stat_v2(&text?);
        }
        let usage = self.cpuacct.as_ref().and_then(|mount| {
            fs::read_to_string(mount.join(path.trim_start_matches('/')).join("cpuacct.usage")).ok()
        });
        // The hierarchies of version 1 are apart: a group of cpu need not exist in cpuacct.
        Some(stat_v1(&text?, usage.as_deref()))
    }
}

fn mount_of_v2(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        (words.get(2) == Some(&"cgroup2")).then(|| PathBuf::from(words[1]))
    })
}

fn fields(text: &str) -> HashMap<&str, u64> {
    text.lines()
        .filter_map(|l| l.split_once(' '))
        .filter_map(|(k, v)| Some((k, v.trim().parse().ok()?)))
        .collect()
}

fn stat_v2(text: &str) -> Option<CpuStat> {
    let fields = fields(text);
    let get = |name: &str| fields.get(name).copied();
    let ns = |name: &str| get(name).map(|us| us * 1000);
    Some(CpuStat {
        usage_ns: Some(ns("usage_usec")?),
        nr_periods: get("nr_periods"),
        nr_throttled: get("nr_throttled"),
        throttled_ns: ns("throttled_usec"),
        nr_bursts: get("nr_bursts"),
        burst_ns: ns("burst_usec"),
    })
}

fn stat_v1(stat: &str, usage: Option<&str>) -> CpuStat {
    let fields = fields(stat);
    let get = |name: &str| fields.get(name).copied();
    CpuStat {
        usage_ns: usage.and_then(|u| u.trim().parse().ok()),
        nr_periods: get("nr_periods"),
        nr_throttled: get("nr_throttled"),
        throttled_ns: get("throttled_time"),
        nr_bursts: get("nr_bursts"),
        burst_ns: get("burst_time"),
    }
}

/// Version 1's `cpu.shares` (2..262144, default 1024) as a weight (1..10000, default 100), the way the
/// kernel itself shows one as the other: in proportion to the defaults.
pub(crate) fn weight_of_shares(shares: u64) -> u32 {
    ((shares * 100 + 512) / 1024).clamp(1, WEIGHT_MAX) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_hierarchy_is_found_in_both_versions() {
        let v1 = "cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0\n\
                  cgroup /sys/fs/cgroup/cpuacct cgroup rw,relatime,cpuacct 0 0\n\
                  cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n";
        let found = Hierarchy::from_mounts(v1, "#subsys_name hierarchy\ncpuset 3 1 1\ncpu 5 1 1\n").unwrap();
        assert_eq!((found.version, found.id), (1, 5));
        assert_eq!(found.mount, Path::new("/sys/fs/cgroup/cpu"));
        assert_eq!(
            found.cpuacct.as_deref(),
            Some(Path::new("/sys/fs/cgroup/cpuacct"))
        );

        let v2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        let found = Hierarchy::from_mounts(v2, "cpu 0 90 1\n").unwrap();
        assert_eq!((found.version, found.id), (2, 0));

        assert!(Hierarchy::from_mounts("proc /proc proc rw 0 0\n", "").is_err());
    }

    #[test]
    fn statistics_are_read_in_both_versions() {
        let v2 = "usage_usec 5\nuser_usec 3\nnr_periods 4\nnr_throttled 2\nthrottled_usec 7\n";
        let expected = CpuStat {
            usage_ns: Some(5000),
            nr_periods: Some(4),
            nr_throttled: Some(2),
            throttled_ns: Some(7000),
            nr_bursts: None,
            burst_ns: None,
        };
        assert_eq!(stat_v2(v2), Some(expected));
        let v1 = "nr_periods 4\nnr_throttled 2\nthrottled_time 7000\n";
        assert_eq!(stat_v1(v1, Some("5000\n")), expected);
        assert_eq!(
            stat_v1(v1, None),
            CpuStat {
                usage_ns: None,
                ..expected
            }
        );
    }

    #[test]
    fn a_group_without_the_cpu_controller_is_refused_and_what_gives_it_is_said() {
        let root = tempfile::tempdir().unwrap();
        let hierarchy = Hierarchy::v2(root.path().into());
        let inner = root.path().join("outer/inner");
        fs::create_dir_all(&inner).unwrap();
        for dir in [inner.parent().unwrap(), &inner] {
            fs::write(dir.join("cgroup.events"), "").unwrap();
        }
        fs::write(root.path().join("outer/cpu.weight"), "100\n").unwrap();
        hierarchy.require_cpu("/").unwrap();
        hierarchy.require_cpu("/outer").unwrap();
        let error = hierarchy.require_cpu("/outer/inner").unwrap_err();
        assert!(matches!(error, RecordError::Input { field: "cgroup", .. }));
        let message = error.to_string();
        assert!(
            message.contains("\"/outer/inner\" has no cpu controller"),
            "{message}"
        );
        assert!(
            message.contains("+cpu into its parent's cgroup.subtree_control"),
            "{message}"
        );
        fs::write(inner.join("cpu.max"), "max 100000\n").unwrap();
        hierarchy.require_cpu("/outer/inner").unwrap();
        let v1 = Hierarchy {
            version: 1,
            ..hierarchy
        };
        fs::remove_file(inner.join("cpu.max")).unwrap();
        v1.require_cpu("/outer/inner").unwrap();
    }

    #[test]
    fn default_shares_are_the_default_weight() {
        assert_eq!(weight_of_shares(1024), 100);
        assert_eq!(weight_of_shares(2), 1);
        assert_eq!(weight_of_shares(262_144), 10_000);
    }
}
