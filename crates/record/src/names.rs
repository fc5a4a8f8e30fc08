// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names: turns the kernel's ids into the header's threads and groups, and changes of group into
//! `move` events.
use crate::cgroup::Hierarchy;
use crate::wire;
use plimsoll_trace::{CpuStat, Event, Group, GroupIx, Thread, Tid, What};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

/// How often the limits of a group made while recording are read, once a round of the reader: the maker of a group sets
/// its limits at once, but not before the first look. With a round in 100 ms this is its first second.
const LOOKS: u32 = 10;

/// What a thread's entry takes at most in the header (JSON), without its name: five keys, and numbers of up to 19 digits.
const THREAD_BYTES: u64 = 150;
/// The same of a group: its limits, and two lots of statistics of five numbers each.
const GROUP_BYTES: u64 = 700;
/// A byte of a name takes at most six there: `\u0001`.
const ESCAPED: u64 = 6;

fn group_bytes(path: &str) -> u64 {
    GROUP_BYTES + ESCAPED * path.len() as u64
}

/// What the path of a session's group begins with. A cgroup that is gone has its number there.
const SESSION: &str = "/?session-";

/// The number of a session of which the kernel made a group (autogroup), by the id in place of a cgroup's (`RECORD_SESSION`).
fn session(id: u32) -> Option<u32> {
    (id >> 31 == 1).then_some(id & 0x7fff_ffff)
}

pub struct Names {
    threads: Vec<Thread>,
    /// The current entry of a thread id.
    current: HashMap<Tid, usize>,
    /// Group of each entry now, by the kernel's id; the entry itself keeps the first.
    first_group: Vec<u64>,
    now_group: Vec<u64>,
    moves: Vec<(i64, Tid, u64)>,
    /// By the kernel's id. A group that is removed and made again, as a restarted service's is, has another id.
    paths: HashMap<u64, String>,
    /// As recording began, by path.
    start: HashMap<String, Group>,
    /// Made while recording, as they were when last looked at, by path.
    made: HashMap<String, Group>,
    /// Statistics as recording ended, by path, of those that were read then.
    end: HashMap<String, CpuStat>,
    /// Those of them that are looked at again, and how often.
    young: Vec<(u64, u32)>,
    /// Lower halves of the ids of groups that took time from the recorded ones.
    others: BTreeSet<u32>,
    header_bytes: u64,
}

/// The header's tables, and the moves as events.
pub struct Tables {
    pub threads: Vec<Thread>,
    pub groups: Vec<Group>,
    pub moves: Vec<Event>,
    /// Groups that took time from the recorded ones, by the lower half of their id.
    pub others: HashMap<u32, GroupIx>,
    /// Groups that were gone before their limits could be read: they look as if they had none.
    pub limits_unknown: u64,
}

impl Names {
    /// Notes the groups that exist when recording starts, with their limits and statistics.
    pub fn new(hierarchy: &Hierarchy) -> Names {
        let mut names = Names {
            threads: Vec::new(),
            current: HashMap::new(),
            first_group: Vec::new(),
            now_group: Vec::new(),
            moves: Vec::new(),
            paths: HashMap::new(),
            start: HashMap::new(),
            made: HashMap::new(),
            end: HashMap::new(),
            young: Vec::new(),
            others: BTreeSet::new(),
            header_bytes: 0,
        };
        for (id, path) in hierarchy.walk("/") {
            names.header_bytes += group_bytes(&path);
            names.start.insert(path.clone(), hierarchy.group(&path));
            names.paths.insert(id, path);
        }
        names
    }

    /// Recording begins: statistics of the recorded tree count from here. They were read before the probes came, which takes a
    /// second beside work of the same weight, and a limit is charged with what they say.
    pub fn begins(&mut self, hierarchy: &Hierarchy, only_below: &str) {
        for (_, path) in hierarchy.walk(only_below) {
            if let Some(group) = self.start.get_mut(&path) {
                group.stat_start = hierarchy.stat(&path);
            }
        }
    }

    /// It ends: they count up to here.
    pub fn ends(&mut self, hierarchy: &Hierarchy, only_below: &str) {
        let paths = hierarchy.walk(only_below).into_iter().map(|(_, path)| path);
        let stats = paths.filter_map(|path| Some((hierarchy.stat(&path)?, path)));
        self.end.extend(stats.map(|(stat, path)| (path, stat)));
    }

    /// A thread was announced: it is new, or its group or its name changed.
    pub fn thread(&mut self, ts_ns: i64, tid: Tid, tgid: Tid, comm: String, group_id: u64) {
        if let Some(&entry) = self.current.get(&tid) {
            if self.threads[entry].tgid == Some(tgid) {
                self.threads[entry].comm = comm;
                if self.now_group[entry] != group_id {
                    self.now_group[entry] = group_id;
                    self.moves.push((ts_ns, tid, group_id));
                }
                return;
            }
        }
        self.header_bytes += THREAD_BYTES + ESCAPED * comm.len() as u64;
        self.current.insert(tid, self.threads.len());
        self.threads.push(Thread {
            tid,
            tgid: Some(tgid),
            comm,
            group: None,
            from_ns: ts_ns,
        });
        self.first_group.push(group_id);
        self.now_group.push(group_id);
    }

    /// A group took time from the recorded ones: by the lower half of its id.
    pub fn other(&mut self, id: u32) {
        self.others.insert(id);
    }

    /// A thread exited: its id may come again for another one.
    pub fn exit(&mut self, tid: Tid) {
        self.current.remove(&tid);
    }

    /// A group was made while recording.
    pub fn group(&mut self, id: u64, path: String, hierarchy: &Hierarchy) {
        let path = if path.len() < wire::PATH_MAX {
            path
        } else {
            // As much as the kernel's side could send: the rest is looked up while the group is there.
            let parent = &path[..path.rfind('/').unwrap_or(0)];
            let found = hierarchy.walk(parent).into_iter().find(|found| found.0 == id);
            found.map_or_else(|| format!("{parent}/?{id}"), |found| found.1)
        };
        self.header_bytes += group_bytes(&path);
        self.paths.insert(id, path);
        self.young.push((id, LOOKS));
    }

    /// Reads the limits of groups that were made a moment ago: when recording ends they may be gone.
    pub fn look(&mut self, hierarchy: &Hierarchy) {
        let (paths, made) = (&self.paths, &mut self.made);
        self.young.retain_mut(|(id, looks)| {
            let path = &paths[id];
            let group = hierarchy.group(path);
            // Asked afterwards: then all of it was read while the group was there.
            if hierarchy.id_of(path) != Some(*id) {
                return false;
            }
            made.insert(path.clone(), group);
            *looks -= 1;
            *looks > 0
        });
    }

    /// Changes of group so far.
    pub fn moves(&self) -> u64 {
        self.moves.len() as u64
    }

    /// What the header's tables take at most if recording ends now.
    pub fn header_bytes(&self) -> u64 {
        self.header_bytes
    }

    /// Groups that no thread was in are left out, except the ancestors of those that are: their limits bind
    /// too. A path is one group, however often it was made.
    pub fn finish(mut self, hierarchy: &Hierarchy) -> Tables {
        let mut ids_of: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
        let used = self
            .first_group
            .iter()
            .copied()
            .chain(self.moves.iter().map(|m| m.2))
            .chain(
                self.paths
                    .keys()
                    .copied()
                    .filter(|&id| self.others.contains(&(id as u32))),
            );
        for id in used {
            let path = match self.paths.get(&id) {
                Some(path) => path.clone(),
                None => format!("/?{id}"), // made and removed before its name could be asked for
            };
            for (i, _) in path.match_indices('/') {
                let ancestor = if i == 0 { "/" } else { &path[..i] };
                ids_of.entry(ancestor.into()).or_default();
            }
            ids_of.entry(path).or_default().insert(id);
        }
        let known: BTreeSet<u32> = self.paths.keys().map(|&id| id as u32).collect();
        let mut sessions: HashMap<String, u32> = HashMap::new();
        for &id in self.others.difference(&known) {
            if let Some(number) = session(id) {
                let path = format!("{SESSION}{number}");
                ids_of.entry("/".into()).or_default();
                ids_of.entry(path.clone()).or_default().insert(id.into());
                sessions.insert(path, number);
            }
        }
        let weights = match sessions.is_empty() {
            true => HashMap::new(),
            false => crate::sessions::weights(Path::new("/proc")),
        };
        for (&id, path) in &self.paths {
            if let Some(ids) = ids_of.get_mut(path) {
                ids.insert(id);
            }
        }
        let mut index: HashMap<u64, GroupIx> = HashMap::new();
        let mut limits_unknown = 0;
        let groups: Vec<Group> = ids_of
            .into_iter()
            .enumerate()
            .map(|(i, (path, ids))| {
                index.extend(ids.iter().map(|&id| (id, i as GroupIx)));
                let now = hierarchy.group(&path);
                let id_now = hierarchy.id_of(&path);
                // Statistics begin anew with each making: only those of one and the same group have a difference.
                let stat_end = self.end.get(&path).copied().or(now.stat_start);
                let stat_end = stat_end.filter(|_| ids.iter().all(|&id| Some(id) == id_now));
                if let Some(number) = sessions.get(&path) {
                    return Group {
                        weight: weights.get(number).copied(),
                        path,
                        ..Default::default()
                    };
                }
                let mut group = self.start.remove(&path).unwrap_or_else(|| {
                    let seen = id_now.map(|_| now).or_else(|| self.made.remove(&path));
                    limits_unknown += seen.is_none() as u64;
                    Group {
                        stat_start: Some(Default::default()), // it was made while recording
                        ..seen.unwrap_or_default()
                    }
                });
                group.stat_end = stat_end;
                group.path = path;
                group
            })
            .collect();
        let mut threads = self.threads;
        for (thread, id) in threads.iter_mut().zip(&self.first_group) {
            thread.group = index.get(id).copied();
        }
        let moves = self
            .moves
            .iter()
            .filter_map(|&(ts_ns, tid, id)| {
                Some(Event {
                    ts_ns,
                    cpu: 0,
                    what: What::Move {
                        tid,
                        group: *index.get(&id)?,
                    },
                })
            })
            .collect();
        let others = index.iter().map(|(&id, &ix)| (id as u32, ix)).collect();
        Tables {
            threads,
            groups,
            moves,
            others,
            limits_unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_trace::CpuStat;
    use std::fs;
    use std::path::Path;

    /// A group in a folder that stands for a hierarchy of version 2.
    fn make(dir: &Path, quota_us: u64, usage_us: u64) {
        fs::create_dir(dir).unwrap();
        fs::write(dir.join("cpu.max"), format!("{quota_us} 100000\n")).unwrap();
        fs::write(dir.join("cpu.stat"), format!("usage_usec {usage_us}\n")).unwrap();
    }

    /// Out of the hierarchy, but not removed: a file system may give a free inode's number again, the kernel does not.
    fn remove(dir: &Path, elsewhere: &Path) {
        let n = fs::read_dir(elsewhere).unwrap().count();
        fs::rename(dir, elsewhere.join(n.to_string())).unwrap();
    }

    fn usage(us: u64) -> Option<CpuStat> {
        Some(CpuStat {
            usage_ns: Some(us * 1000),
            ..Default::default()
        })
    }

    #[test]
    fn a_group_that_is_made_again_keeps_the_threads_of_its_first_life() {
        let (root, gone) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let hierarchy = Hierarchy::v2(root.path().into());
        let (service, once) = (root.path().join("service"), root.path().join("once"));
        make(&service, 50_000, 7_000_000);
        make(&once, 10_000, 1_000);
        let mut names = Names::new(&hierarchy);
        let root_id = hierarchy.id_of("/").unwrap();
        let [first, once_id] = ["/service", "/once"].map(|path| hierarchy.id_of(path).unwrap());
        names.thread(1, 10, 10, "first".into(), first);
        names.thread(1, 11, 11, "moved".into(), root_id);
        names.thread(2, 11, 11, "moved".into(), first);
        names.thread(3, 13, 13, "once".into(), once_id);
        remove(&service, gone.path());
        make(&service, 60_000, 2_000);
        let second = hierarchy.id_of("/service").unwrap();
        assert_ne!(first, second);
        names.group(second, "/service".into(), &hierarchy);
        names.thread(4, 12, 12, "second".into(), second);
        fs::write(once.join("cpu.stat"), "usage_usec 4000\n").unwrap();

        let Tables {
            threads,
            groups,
            moves,
            ..
        } = names.finish(&hierarchy);
        let paths: Vec<_> = groups.iter().map(|g| g.path.as_str()).collect();
        assert_eq!(paths, ["/", "/once", "/service"]);
        let of: Vec<_> = threads.iter().map(|t| (t.tid, t.group)).collect();
        assert_eq!(of, [(10, Some(2)), (11, Some(0)), (13, Some(1)), (12, Some(2))]);
        assert_eq!(moves.len(), 1);
        assert_eq!(moves[0].what, What::Move { tid: 11, group: 2 });
        // Limits and statistics as recording began; what the second life used does not continue the first.
        assert_eq!(groups[2].quota_us, Some(50_000));
        assert_eq!(
            (groups[2].stat_start, groups[2].stat_end),
            (usage(7_000_000), None)
        );
        assert_eq!(
            (groups[1].stat_start, groups[1].stat_end),
            (usage(1_000), usage(4_000))
        );
    }

    #[test]
    fn groups_whose_paths_came_cut_are_told_apart() {
        let (root, gone) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let hierarchy = Hierarchy::v2(root.path().into());
        let pod = root.path().join("p".repeat(150));
        make(&pod, 90_000, 0);
        let mut names = Names::new(&hierarchy);
        let whole = ["a", "b", "c"].map(|end| format!("/{}/{}{end}", "p".repeat(150), "c".repeat(120)));
        let ids = whole.each_ref().map(|path| {
            let dir = root.path().join(&path[1..]);
            make(&dir, 10_000, 0);
            let id = hierarchy.id_of(path).unwrap();
            if path.ends_with('c') {
                remove(&dir, gone.path());
            }
            names.group(id, path[..wire::PATH_MAX].into(), &hierarchy);
            id
        });
        for (tid, id) in (1..).zip(ids) {
            names.thread(1, tid, tid, "worker".into(), id);
        }
        names.look(&hierarchy);
        let tables = names.finish(&hierarchy);
        let gone = format!("/{}/?{}", "p".repeat(150), ids[2]);
        let limit_of = |tid: usize| {
            let group = &tables.groups[tables.threads[tid].group.unwrap() as usize];
            (group.path.as_str(), group.quota_us)
        };
        assert_eq!(limit_of(0), (whole[0].as_str(), Some(10_000)));
        assert_eq!(limit_of(1), (whole[1].as_str(), Some(10_000)));
        assert_eq!(limit_of(2), (gone.as_str(), None));
        assert_eq!(tables.limits_unknown, 1);
    }

    #[test]
    fn session_that_takes_time_is_a_group_beside_the_cgroups_with_nothing_unknown() {
        let root = tempfile::tempdir().unwrap();
        let hierarchy = Hierarchy::v2(root.path().into());
        make(&root.path().join("web"), 50_000, 0);
        let web = hierarchy.id_of("/web").unwrap();
        let mut names = Names::new(&hierarchy);
        names.thread(1, 10, 10, "web".into(), web);
        names.other(0x8000_0007);
        let tables = names.finish(&hierarchy);
        let paths: Vec<_> = tables.groups.iter().map(|g| g.path.as_str()).collect();
        assert_eq!(paths, ["/", "/?session-7", "/web"]);
        assert_eq!(tables.others[&0x8000_0007], 1);
        assert_eq!(tables.limits_unknown, 0);
    }

    #[test]
    fn limits_of_a_group_that_is_gone_when_recording_ends_are_those_last_seen() {
        let (root, gone) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let hierarchy = Hierarchy::v2(root.path().into());
        let mut names = Names::new(&hierarchy);
        let slice = root.path().join("slice");
        make(&slice, 90_000, 0);
        names.group(hierarchy.id_of("/slice").unwrap(), "/slice".into(), &hierarchy);
        let job = slice.join("job");
        make(&job, 50_000, 0);
        let id = hierarchy.id_of("/slice/job").unwrap();
        names.group(id, "/slice/job".into(), &hierarchy);
        names.thread(1, 10, 10, "job".into(), id);
        names.look(&hierarchy);
        fs::write(job.join("cpu.max"), "20000 100000\n").unwrap();
        names.look(&hierarchy);
        remove(&slice, gone.path());
        names.look(&hierarchy);
        // These two were never looked at; no thread was in the other one.
        names.group(1, "/brief".into(), &hierarchy);
        names.group(2, "/empty".into(), &hierarchy);
        names.look(&hierarchy);
        names.thread(2, 11, 11, "brief".into(), 1);

        let tables = names.finish(&hierarchy);
        let limits: Vec<_> = tables
            .groups
            .iter()
            .map(|g| (g.path.as_str(), g.quota_us))
            .collect();
        let expected = [
            ("/", None),
            ("/brief", None),
            ("/slice", Some(90_000)),
            ("/slice/job", Some(20_000)),
        ];
        assert_eq!(limits, expected);
        assert_eq!(tables.limits_unknown, 1);
        assert_eq!(tables.groups[3].stat_start, Some(CpuStat::default()));
        assert_eq!(tables.groups[3].stat_end, None);
    }
}
