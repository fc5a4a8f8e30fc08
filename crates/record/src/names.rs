//! Who is who: turns the kernel's ids into the header's threads and groups, and changes of group into
//! `move` events.
use crate::cgroup::Hierarchy;
use plimsoll_trace::{Event, Group, GroupIx, Thread, Tid, What};
use std::collections::{BTreeMap, BTreeSet, HashMap};

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
        };
        for (id, path) in hierarchy.walk("/") {
            names.start.insert(path.clone(), hierarchy.group(&path));
            names.paths.insert(id, path);
        }
        names
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

    /// A thread exited: its id may come again for another one.
    pub fn exit(&mut self, tid: Tid) {
        self.current.remove(&tid);
    }

    /// A group was made while recording.
    pub fn group(&mut self, id: u64, path: String) {
        self.paths.insert(id, path);
    }

    /// The header's tables, and the moves as events. Groups that no thread was in are left out, except
    /// the ancestors of those that are: their limits bind too. A path is one group, however often it was made.
    pub fn finish(self, hierarchy: &Hierarchy) -> (Vec<Thread>, Vec<Group>, Vec<Event>) {
        let mut ids_of: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
        let used = self
            .first_group
            .iter()
            .copied()
            .chain(self.moves.iter().map(|m| m.2));
        for id in used {
            let path = match self.paths.get(&id) {
                Some(path) => path.clone(),
                None => format!("/?{id}"), // made and removed before anybody could ask for its name
            };
            for (i, _) in path.match_indices('/') {
                let ancestor = if i == 0 { "/" } else { &path[..i] };
                ids_of.entry(ancestor.into()).or_default();
            }
            ids_of.entry(path).or_default().insert(id);
        }
        for (&id, path) in &self.paths {
            if let Some(ids) = ids_of.get_mut(path) {
                ids.insert(id);
            }
        }
        let mut index: HashMap<u64, GroupIx> = HashMap::new();
        let groups: Vec<Group> = ids_of
            .into_iter()
            .enumerate()
            .map(|(i, (path, ids))| {
                index.extend(ids.iter().map(|&id| (id, i as GroupIx)));
                let now = hierarchy.group(&path);
                let id_now = hierarchy.id_of(&path);
                // Statistics begin anew with each making: only those of one and the same group have a difference.
                let stat_end = now
                    .stat_start
                    .filter(|_| ids.iter().all(|&id| Some(id) == id_now));
                let mut group = self.start.get(&path).cloned().unwrap_or(Group {
                    stat_start: Some(Default::default()), // it was made while recording
                    ..now
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
        (threads, groups, moves)
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
        names.group(second, "/service".into());
        names.thread(4, 12, 12, "second".into(), second);
        fs::write(once.join("cpu.stat"), "usage_usec 4000\n").unwrap();

        let (threads, groups, moves) = names.finish(&hierarchy);
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
}
