// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's own files: cgroup v2 where it is mounted, and /proc/stat.
use crate::{Error, Events, File, Files, Result};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use plimsoll_cpus::CpuSet;
use plimsoll_live::KnobValues;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

pub struct Mounted {
    root: PathBuf,
    inotify: Inotify,
    watched: HashMap<WatchDescriptor, Watched>,
    /// Of a cgroup that was removed the kernel keeps the watch, and with it the memory (kernfs leaves its link count as it was):
    /// it has to be taken away.
    watches: HashMap<PathBuf, WatchDescriptor>,
    /// Some directory cannot be watched: there is a limit to watches.
    unwatched: bool,
    busy: Busy,
    online: Option<std::fs::File>,
    /// Groups that are looked at many times a second. By their bytes: to hash a path takes its parts one by one.
    often: RefCell<HashMap<OsString, Often>>,
}

/// Files that are read, or written, many times a second stay open.
struct Often {
    stat: std::fs::File,
    /// Since it was first read or written.
    max: Option<std::fs::File>,
}

/// With two files for each, fewer than the 1,024 descriptors that a process may have where nobody allowed it more.
const OFTEN_MAX: usize = 256;

struct Watched {
    path: PathBuf,
    /// Its children have limits: runtimes write cgroup.subtree_control for each container, and seldom change it.
    gives_limits: bool,
}

/// CPU time that the topmost groups have used since this began, of groups that are gone, too.
#[derive(Default)]
struct Busy {
    /// What each had used when it was last read.
    seen_us: Vec<(PathBuf, u64)>,
    /// One may have come or gone since they were looked for.
    stale: bool,
    used_us: u64,
}

const CONTROLLERS: &str = "cgroup.subtree_control";

impl Mounted {
    pub fn at(root: &Path) -> Result<Self> {
        if !root.join("cgroup.controllers").exists() {
            let message = "no cgroup v2 hierarchy is mounted there";
            return Err(Error::Machine(format!("{}: {message}", root.display())));
        }
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)
            .map_err(|error| Error::Machine(format!("inotify: {error}")))?;
        Ok(Self {
            root: root.into(),
            inotify,
            watched: HashMap::new(),
            watches: HashMap::new(),
            unwatched: false,
            busy: Busy {
                stale: true,
                ..Default::default()
            },
            online: None,
            often: RefCell::default(),
        })
    }

    /// True: its children have limits.
    fn watch(&mut self, path: &Path) -> bool {
        let flags = AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_ATTRIB
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_ONLYDIR;
        let watch = self.inotify.add_watch(path, flags);
        // Read after it is watched, so that no change is missed.
        let gives_limits = gives_limits(path);
        match watch {
            Ok(watch) => {
                let before = self.watches.insert(path.into(), watch);
                if let Some(before) = before.filter(|before| *before != watch) {
                    unwatch(&self.inotify, before);
                }
                let path = path.into();
                self.watched.insert(watch, Watched { path, gives_limits });
            }
            Err(nix::errno::Errno::ENOSPC) => self.unwatched = true,
            Err(_) => {} // it is gone
        }
        gives_limits
    }
}

/// An event says when it is gone, and if it is gone already, this does nothing.
fn unwatch(inotify: &Inotify, watch: WatchDescriptor) {
    let _ = inotify.rm_watch(watch);
}

fn gives_limits(path: &Path) -> bool {
    let controllers = std::fs::read_to_string(path.join(CONTROLLERS)).unwrap_or_default();
    controllers.split_ascii_whitespace().any(|name| name == "cpu")
}

/// Never made: of a group that has gone nothing is to come back.
fn open(path: &Path) -> io::Result<std::fs::File> {
    std::fs::OpenOptions::new().read(true).write(true).open(path)
}

/// What the file, which is open, begins with now.
fn start_of<'a>(file: &std::fs::File, start: &'a mut [u8]) -> Option<&'a str> {
    let length = file.read_at(start, 0).ok()?;
    std::str::from_utf8(&start[..length]).ok()
}

/// The CPU time in cpu.stat, as it is now: the first of some ten lines.
fn usage_of(stat: &std::fs::File) -> Option<u64> {
    let mut start = [0; 64];
    let line = start_of(stat, &mut start)?.lines().next()?;
    line.strip_prefix("usage_usec ")?.parse().ok()
}

/// How many CPUs a list such as `0-3,8` has. `None`: the text is not a list, or the list is empty.
fn nr_online(list: &str) -> Option<u32> {
    let cpus = CpuSet::parse(list)?;
    (!cpus.is_empty()).then(|| cpus.len())
}

impl Files for Mounted {
    fn groups(&mut self, below: Option<&Path>) -> Vec<PathBuf> {
        let top = below.unwrap_or(&self.root).to_path_buf();
        let has_limits = top != self.root && top.join(File::Max.name()).exists();
        let (mut found, mut at) = (vec![(top, has_limits)], 0);
        while at < found.len() {
            // Watched before it is read, so that no child is missed.
            let path = found[at].0.clone();
            let has_limits = self.watch(&path);
            let children = std::fs::read_dir(&path).into_iter().flatten().flatten();
            let is_folder = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
            found.extend(children.filter(is_folder).map(|entry| (entry.path(), has_limits)));
            at += 1;
        }
        if below.is_none() {
            // Of those that no event told about.
            self.often.get_mut().retain(|path, _| Path::new(path).exists());
            let inotify = &self.inotify;
            self.watches.retain(|path, watch| {
                let is_there = path.exists();
                if !is_there {
                    unwatch(inotify, *watch);
                }
                is_there
            });
        }
        let found = found.into_iter().filter(|(_, has_limits)| *has_limits);
        found.map(|(path, _)| path).collect()
    }

    fn id(&self, group: &Path) -> Option<u64> {
        std::fs::metadata(group).ok().map(|found| found.ino())
    }

    fn read(&self, group: &Path, file: File) -> io::Result<String> {
        let path = group.join(file.name());
        let mut often = self.often.borrow_mut();
        let often = often.get_mut(group.as_os_str()).filter(|_| file == File::Max);
        if let Some(often) = often {
            // Of one that was removed it cannot be read any more; another may be there by now.
            let start = &mut [0; 64];
            if let Some(text) = often.max.as_ref().and_then(|max| start_of(max, start)) {
                return Ok(text.trim_end().to_string());
            }
            often.max = open(&path).ok();
        }
        Ok(std::fs::read_to_string(path)?.trim_end().to_string())
    }

    fn write(&mut self, group: &Path, file: File, value: &str) -> io::Result<()> {
        let path = group.join(file.name());
        let often = self.often.get_mut().get_mut(group.as_os_str());
        let Some(often) = often.filter(|_| file == File::Max) else {
            return open(&path)?.write_all_at(value.as_bytes(), 0);
        };
        if let Some(max) = &often.max {
            match max.write_all_at(value.as_bytes(), 0) {
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {} // as above
                done => return done,
            }
        }
        let max = often.max.insert(open(&path)?);
        max.write_all_at(value.as_bytes(), 0)
    }

    fn usage_us(&self, group: &Path) -> Option<u64> {
        let mut all = self.often.borrow_mut();
        // One that was removed cannot be read any more; another may be there by now.
        if let Some(usage_us) = all.get(group.as_os_str()).and_then(|often| usage_of(&often.stat)) {
            return Some(usage_us);
        }
        all.remove(group.as_os_str());
        let stat = std::fs::File::open(group.join("cpu.stat")).ok()?;
        let usage_us = usage_of(&stat)?;
        if all.len() < OFTEN_MAX {
            all.insert(group.into(), Often { stat, max: None });
        }
        Some(usage_us)
    }

    fn counted(&self, group: &Path) -> HashMap<String, u64> {
        let text = std::fs::read_to_string(group.join("cpu.stat")).unwrap_or_default();
        let line = |line: &str| {
            let (name, number) = line.split_once(' ')?;
            Some((name.to_string(), number.trim().parse().ok()?))
        };
        text.lines().filter_map(line).collect()
    }

    fn knobs(&self, group: &Path) -> Result<KnobValues> {
        KnobValues::read(group)
    }

    fn events(&mut self) -> Events {
        let mut events = Events {
            blind: self.unwatched,
            ..Default::default()
        };
        let mut tree = BTreeSet::new();
        while let Ok(read) = self.inotify.read_events() {
            for event in read {
                if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
                    events.all = true;
                    self.busy.stale = true;
                    continue;
                }
                if event.mask.contains(AddWatchFlags::IN_IGNORED) {
                    self.watched.remove(&event.wd);
                    continue;
                }
                let Some(watched) = self.watched.get_mut(&event.wd) else {
                    continue;
                };
                let (path, name) = (&watched.path, event.name.as_deref());
                if event.mask.contains(AddWatchFlags::IN_ISDIR) {
                    let moved = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_DELETE;
                    match name {
                        Some(name) if event.mask.intersects(moved) => {
                            self.busy.stale |= *path == self.root;
                            let path = path.join(name);
                            // One that was made anew meanwhile has a watch of its own.
                            if event.mask.contains(AddWatchFlags::IN_DELETE) && !path.exists() {
                                self.often.get_mut().remove(path.as_os_str());
                                if let Some(watch) = self.watches.remove(&path) {
                                    unwatch(&self.inotify, watch);
                                }
                            }
                            tree.insert(path);
                        }
                        None if event.mask.contains(AddWatchFlags::IN_ATTRIB) => {
                            events.marked.push(path.clone());
                        }
                        _ => {}
                    }
                    continue;
                }
                let name = name.and_then(|name| name.to_str()).unwrap_or_default();
                let file = File::ALL.into_iter().find(|file| file.name() == name);
                if let Some(file) = file.filter(|_| event.mask.contains(AddWatchFlags::IN_MODIFY)) {
                    events.written.insert((path.clone(), file));
                }
                let refusable = file.filter(|file| matches!(file, File::Max | File::Weight));
                if let Some(file) = refusable.filter(|_| event.mask.contains(AddWatchFlags::IN_CLOSE_WRITE)) {
                    events.tried.push((path.clone(), file));
                }
                if name == CONTROLLERS && event.mask.contains(AddWatchFlags::IN_MODIFY) {
                    let now = gives_limits(path);
                    if std::mem::replace(&mut watched.gives_limits, now) != now {
                        tree.insert(watched.path.clone());
                    }
                }
            }
        }
        // What is below another one is found with it.
        for path in tree {
            if !events
                .tree
                .last()
                .is_some_and(|above: &PathBuf| path.starts_with(above))
            {
                events.tree.push(path);
            }
        }
        events
    }

    fn busy(&mut self) -> Option<(u64, u32)> {
        if self.online.is_none() {
            self.online = std::fs::File::open("/sys/devices/system/cpu/online").ok();
        }
        let nr_cpus = nr_online(start_of(self.online.as_ref()?, &mut [0; 4096])?)?;
        if std::mem::take(&mut self.busy.stale) || self.unwatched {
            let before: HashMap<PathBuf, u64> = std::mem::take(&mut self.busy.seen_us).into_iter().collect();
            for entry in std::fs::read_dir(&self.root).ok()?.flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    let path = entry.path();
                    // One that has come counts from 0.
                    let seen_us = before.get(&path).copied().unwrap_or(0);
                    self.busy.seen_us.push((path, seen_us));
                }
            }
        }
        let mut busy = std::mem::take(&mut self.busy);
        for (path, seen_us) in &mut busy.seen_us {
            let Some(now_us) = self.usage_us(path) else {
                continue;
            };
            // As does one that was made anew.
            busy.used_us += if now_us >= *seen_us {
                now_us - *seen_us
            } else {
                now_us
            };
            *seen_us = now_us;
        }
        self.busy = busy;
        Some((self.busy.used_us, nr_cpus))
    }

    fn shown<'a>(&self, group: &'a Path) -> &'a Path {
        // `/a/b` of `/sys/fs/cgroup/a/b`, without a copy.
        let whole = group.as_os_str().as_encoded_bytes();
        match group.starts_with(&self.root) {
            // SAFETY: cut before a slash.
            true => Path::new(unsafe {
                std::ffi::OsStr::from_encoded_bytes_unchecked(&whole[self.root.as_os_str().len()..])
            }),
            false => group,
        }
    }

    fn at(&self, shown: &Path) -> PathBuf {
        self.root.join(shown.strip_prefix("/").unwrap_or(shown))
    }
}

/// One writer at a time. Held until it is dropped, or the process ends.
pub fn lock(path: &Path) -> Result<Flock<std::fs::File>> {
    let failed = |error: io::Error| Error::Machine(format!("{}: {error}", path.display()));
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map_err(failed)?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| match error {
        nix::errno::Errno::EWOULDBLOCK => {
            let message = "another agent holds it: one at a time writes limits";
            Error::Machine(format!("{}: {message}", path.display()))
        }
        error => failed(error.into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_group_has_used_is_that_of_the_group_that_is_there_now() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::write(root.join("cgroup.controllers"), "cpu").unwrap();
        let files = Mounted::at(root).unwrap();
        let group = root.join("a");
        std::fs::create_dir(&group).unwrap();
        assert_eq!(files.usage_us(&group), None);
        let stat = group.join("cpu.stat");
        std::fs::write(&stat, "usage_usec 5\nuser_usec 4\n").unwrap();
        assert_eq!(files.usage_us(&group), Some(5));
        std::fs::write(&stat, "usage_usec 1234567890123\n").unwrap();
        assert_eq!(files.usage_us(&group), Some(1_234_567_890_123));
        // A file on a disk that is open can be read when it is gone; of a cgroup it cannot.
        std::fs::write(&stat, "").unwrap();
        std::fs::remove_file(&stat).unwrap();
        std::fs::write(&stat, "usage_usec 7\n").unwrap();
        assert_eq!(files.usage_us(&group), Some(7));
    }

    #[test]
    fn cpus_on_line_are_counted_in_their_list() {
        for (list, count) in [("0\n", 1), ("0-3\n", 4), ("0-1,4,6-127\n", 125)] {
            assert_eq!(nr_online(list), Some(count), "{list}");
        }
        for wrong in ["", "3-1", "x"] {
            assert_eq!(nr_online(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_removed_is_watched_no_more_and_what_is_made_anew_is() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::write(root.join("cgroup.controllers"), "cpu").unwrap();
        let mut files = Mounted::at(root).unwrap();
        files.groups(None);
        let group = root.join("a/b");
        for _ in 0..3 {
            std::fs::create_dir_all(&group).unwrap();
            for path in files.events().tree {
                files.groups(Some(&path));
            }
            assert_eq!((files.watches.len(), files.watched.len()), (3, 3));
            std::fs::remove_dir_all(root.join("a")).unwrap();
            files.events();
            // That the kernel has let go of them is the next event.
            files.events();
            assert_eq!((files.watches.len(), files.watched.len()), (1, 1));
        }
    }
}
