// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's own files: cgroup v2 where it is mounted, and /proc/stat.
use crate::{Error, Events, File, Files, Result};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use plimsoll_live::KnobValues;
use std::collections::HashMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub struct Mounted {
    root: PathBuf,
    inotify: Inotify,
    watched: HashMap<WatchDescriptor, PathBuf>,
    /// Some directory cannot be watched: there is a limit to watches.
    unwatched: bool,
    busy: Busy,
}

/// CPU time that the topmost groups have used since this began, of groups that are gone, too.
#[derive(Default)]
struct Busy {
    seen_us: HashMap<PathBuf, u64>,
    used_us: u64,
}

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
            unwatched: false,
            busy: Busy::default(),
        })
    }

    fn watch(&mut self, path: &Path) {
        let flags = AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_ATTRIB
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_ONLYDIR;
        match self.inotify.add_watch(path, flags) {
            Ok(watch) => drop(self.watched.insert(watch, path.into())),
            Err(nix::errno::Errno::ENOSPC) => self.unwatched = true,
            Err(_) => {} // it is gone
        }
    }
}

impl Files for Mounted {
    fn groups(&mut self) -> Vec<PathBuf> {
        let (mut found, mut at) = (vec![self.root.clone()], 0);
        while at < found.len() {
            // Watched before it is read, so that no child is missed.
            let path = found[at].clone();
            self.watch(&path);
            let children = std::fs::read_dir(&path).into_iter().flatten().flatten();
            let is_folder = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
            found.extend(children.filter(is_folder).map(|entry| entry.path()));
            at += 1;
        }
        let has_limits = |path: &PathBuf| path.join(File::Max.name()).exists();
        found.into_iter().skip(1).filter(has_limits).collect()
    }

    fn id(&self, group: &Path) -> Option<u64> {
        std::fs::metadata(group).ok().map(|found| found.ino())
    }

    fn read(&self, group: &Path, file: File) -> io::Result<String> {
        let text = std::fs::read_to_string(group.join(file.name()))?;
        Ok(text.trim_end().to_string())
    }

    fn write(&mut self, group: &Path, file: File, value: &str) -> io::Result<()> {
        use std::io::Write;
        // Never made: of a group that has gone nothing is to come back.
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .open(group.join(file.name()))?;
        file.write_all(value.as_bytes())
    }

    fn usage_us(&self, group: &Path) -> Option<u64> {
        let text = std::fs::read_to_string(group.join("cpu.stat")).ok()?;
        text.lines()
            .find_map(|line| line.strip_prefix("usage_usec ")?.trim().parse().ok())
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
            all: self.unwatched,
            ..Default::default()
        };
        while let Ok(read) = self.inotify.read_events() {
            for event in read {
                if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
                    (events.all, events.tree) = (true, true);
                    continue;
                }
                if event.mask.contains(AddWatchFlags::IN_IGNORED) {
                    self.watched.remove(&event.wd);
                    continue;
                }
                let Some(path) = self.watched.get(&event.wd) else {
                    continue;
                };
                if event.mask.contains(AddWatchFlags::IN_ISDIR) {
                    let moved = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_DELETE;
                    events.tree |= event.mask.intersects(moved);
                    if event.mask.contains(AddWatchFlags::IN_ATTRIB) && event.name.is_none() {
                        events.touched.push(path.clone());
                    }
                    continue;
                }
                let name = event
                    .name
                    .as_deref()
                    .and_then(|name| name.to_str())
                    .unwrap_or_default();
                let is_limit = File::ALL.iter().any(|file| file.name() == name);
                if is_limit && event.mask.contains(AddWatchFlags::IN_MODIFY) {
                    events.touched.push(path.clone());
                }
                if name == File::Max.name() && event.mask.contains(AddWatchFlags::IN_CLOSE_WRITE) {
                    events.tried.push(path.clone());
                }
            }
        }
        events
    }

    fn busy(&mut self) -> Option<(u64, u32)> {
        let text = std::fs::read_to_string("/proc/stat").ok()?;
        let is_cpu = |line: &&str| line.starts_with("cpu") && !line.starts_with("cpu ");
        let nr_cpus = text.lines().filter(is_cpu).count() as u32;
        let mut seen_us = HashMap::new();
        for entry in std::fs::read_dir(&self.root).ok()?.flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let path = entry.path();
            let Some(now_us) = self.usage_us(&path) else {
                continue;
            };
            // One that was made anew counts from 0.
            let before_us = self.busy.seen_us.get(&path).filter(|&&us| us <= now_us);
            self.busy.used_us += now_us - before_us.copied().unwrap_or(0);
            seen_us.insert(path, now_us);
        }
        self.busy.seen_us = seen_us;
        Some((self.busy.used_us, nr_cpus.max(1)))
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
