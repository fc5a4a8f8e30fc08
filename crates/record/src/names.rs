//! Who is who: turns the kernel's ids into the header's threads and groups, and changes of group into
//! `move` events.
use crate::cgroup::Hierarchy;
use plimsoll_trace::{Event, Group, GroupIx, Thread, Tid, What};
use std::collections::HashMap;

pub struct Names {
    threads: Vec<Thread>,
    /// The current entry of a thread id.
    current: HashMap<Tid, usize>,
    /// Group of each entry now, by the kernel's id; the entry itself keeps the first.
    first_group: Vec<u64>,
    now_group: Vec<u64>,
    moves: Vec<(i64, Tid, u64)>,
    paths: HashMap<u64, String>,
    start: HashMap<u64, Group>,
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
            names.start.insert(id, hierarchy.group(&path));
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
    /// the ancestors of those that are: their limits bind too.
    pub fn finish(self, hierarchy: &Hierarchy) -> (Vec<Thread>, Vec<Group>, Vec<Event>) {
        let mut by_path: std::collections::BTreeMap<String, u64> = Default::default();
        let path_of = |id: u64| match self.paths.get(&id) {
            Some(path) => path.clone(),
            None => format!("/?{id}"), // made and removed before anybody could ask for its name
        };
        let used = self
            .first_group
            .iter()
            .copied()
            .chain(self.moves.iter().map(|m| m.2));
        for id in used {
            let path = path_of(id);
            for (i, _) in path.match_indices('/') {
                let ancestor = if i == 0 { "/" } else { &path[..i] };
                let id = hierarchy.id_of(ancestor).unwrap_or(0);
                by_path.entry(ancestor.into()).or_insert(id);
            }
            by_path.insert(path, id);
        }
        let mut index: HashMap<u64, GroupIx> = HashMap::new();
        let groups: Vec<Group> = by_path
            .into_iter()
            .enumerate()
            .map(|(i, (path, id))| {
                index.insert(id, i as GroupIx);
                let mut group = self.start.get(&id).cloned().unwrap_or_else(|| {
                    let mut new = hierarchy.group(&path);
                    new.stat_start = Some(Default::default()); // it was made while recording
                    new
                });
                group.stat_end = hierarchy.stat(&path);
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
