// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was changed, written down before it is: a line of JSON for each change. A crash leaves what is needed to put
//! every file back.
//!
//! A line names the cgroup, the file, the owner's value and the agent's. A file may hold the value of its last line, or,
//! where the crash came between the line and the change, that of the line before it. Whatever else it holds is from its
//! owner.
use crate::{Error, File, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Where the lines are kept.
pub trait Store {
    /// Everything, empty where nothing was ever written.
    fn read(&mut self) -> io::Result<String>;
    /// Adds a line, and returns once it would survive a crash.
    fn append(&mut self, line: &str) -> io::Result<()>;
    /// Replaces everything, at once.
    fn replace(&mut self, text: &str) -> io::Result<()>;
    /// Where that is, for messages.
    fn place(&self) -> String;
}

/// One file that is not as its owner left it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub owner: String,
    pub ours: String,
    /// What it held before, if that was the agent's, too.
    before: Option<String>,
}

impl Change {
    /// Whether what the file holds is the agent's.
    pub fn is_ours(&self, text: &str) -> bool {
        text == self.ours || Some(text) == self.before.as_deref()
    }
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Changed {
    pub path: PathBuf,
    pub files: BTreeMap<File, Change>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    id: u64,
    cgroup: PathBuf,
    file: File,
    /// Both `None`: the file is as its owner wants it.
    owner: Option<String>,
    ours: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Header {
    plimsoll_agent_journal: u32,
    /// The kernel's numbers for cgroups are good for one boot.
    boot: String,
}

/// Lines after which the journal is written anew with what still counts.
const LINES_MAX: usize = 4096;
const VERSION: u32 = 1;

pub struct Journal<S> {
    store: S,
    boot: String,
    changed: BTreeMap<u64, Changed>,
    lines: usize,
}

impl<S: Store> Journal<S> {
    /// Reads what an earlier agent left. `boot`: what tells this boot of the machine from others.
    pub fn open(mut store: S, boot: &str) -> Result<Self> {
        let place = store.place();
        let text = store
            .read()
            .map_err(|error| Error::Machine(format!("{place}: cannot read the journal: {error}")))?;
        let mut journal = Self {
            store,
            boot: boot.into(),
            changed: BTreeMap::new(),
            lines: 0,
        };
        let damaged = |line: usize, error: &dyn std::fmt::Display| {
            Error::Machine(format!(
                "{place}:{line}: not a line of the agent's journal ({error}): restore the files that it names by hand, then remove it"
            ))
        };
        // A last line without its end was being written as the machine died: its change was not made.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for (at, line) in whole.lines().enumerate() {
            if at == 0 {
                let header: Header = serde_json::from_str(line).map_err(|error| damaged(1, &error))?;
                if header.plimsoll_agent_journal != VERSION {
                    return Err(damaged(1, &format!("version {}", header.plimsoll_agent_journal)));
                }
                if header.boot != boot {
                    break;
                }
                continue;
            }
            let line: Line = serde_json::from_str(line).map_err(|error| damaged(at + 1, &error))?;
            journal.take(line);
        }
        journal.compact()?;
        Ok(journal)
    }

    fn take(&mut self, line: Line) {
        let (Some(owner), Some(ours)) = (line.owner, line.ours) else {
            if let Some(changed) = self.changed.get_mut(&line.id) {
                changed.files.remove(&line.file);
                if changed.files.is_empty() {
                    self.changed.remove(&line.id);
                }
            }
            return;
        };
        let changed = self.changed.entry(line.id).or_default();
        changed.path = line.cgroup;
        let before = changed.files.get(&line.file).map(|change| change.ours.clone());
        changed.files.insert(line.file, Change { owner, ours, before });
    }

    /// Before `ours` is written into a file.
    pub fn record(&mut self, id: u64, cgroup: &Path, file: File, owner: &str, ours: &str) -> Result<()> {
        self.add(Line {
            id,
            cgroup: cgroup.into(),
            file,
            owner: Some(owner.into()),
            ours: Some(ours.into()),
        })
    }

    /// After a file is as its owner wants it.
    pub fn forget(&mut self, id: u64, cgroup: &Path, file: File) -> Result<()> {
        if !self
            .changed
            .get(&id)
            .is_some_and(|changed| changed.files.contains_key(&file))
        {
            return Ok(());
        }
        self.add(Line {
            id,
            cgroup: cgroup.into(),
            file,
            owner: None,
            ours: None,
        })
    }

    fn add(&mut self, line: Line) -> Result<()> {
        let mut text = text_of(&line)?;
        text.push('\n');
        let place = self.store.place();
        self.store
            .append(&text)
            .map_err(|error| Error::Failed(format!("{place}: cannot write the journal: {error}")))?;
        self.take(line);
        self.lines += 1;
        if self.lines > LINES_MAX.max(4 * self.changed.len()) {
            self.compact()?;
        }
        Ok(())
    }

    fn compact(&mut self) -> Result<()> {
        let header = Header {
            plimsoll_agent_journal: VERSION,
            boot: self.boot.clone(),
        };
        let mut text = format!("{}\n", text_of(&header)?);
        for (id, changed) in &self.changed {
            for (file, change) in &changed.files {
                let values = change.before.iter().chain([&change.ours]);
                for ours in values {
                    text += &text_of(&Line {
                        id: *id,
                        cgroup: changed.path.clone(),
                        file: *file,
                        owner: Some(change.owner.clone()),
                        ours: Some(ours.clone()),
                    })?;
                    text.push('\n');
                }
            }
        }
        let place = self.store.place();
        self.store
            .replace(&text)
            .map_err(|error| Error::Machine(format!("{place}: cannot write the journal: {error}")))?;
        self.lines = 0;
        Ok(())
    }

    /// The groups with files that are not as their owners left them, by the kernel's number.
    pub fn changed(&self) -> &BTreeMap<u64, Changed> {
        &self.changed
    }

    pub fn change(&self, id: u64, file: File) -> Option<&Change> {
        self.changed.get(&id)?.files.get(&file)
    }
}

fn text_of(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|error| Error::Failed(format!("the journal cannot name it: {error}")))
}

/// A file on a disk, or better in /run: what it names ends with the boot.
pub struct Disk {
    path: PathBuf,
    file: Option<std::fs::File>,
}

impl Disk {
    pub fn at(path: &Path) -> Self {
        Self {
            path: path.into(),
            file: None,
        }
    }
}

impl Store for Disk {
    fn read(&mut self) -> io::Result<String> {
        match std::fs::read(&self.path) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(error),
        }
    }

    fn append(&mut self, line: &str) -> io::Result<()> {
        if self.file.is_none() {
            self.file = Some(std::fs::OpenOptions::new().append(true).open(&self.path)?);
        }
        let file = self.file.as_mut().expect("it was just opened");
        file.write_all(line.as_bytes())?;
        file.sync_data()
    }

    fn replace(&mut self, text: &str) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        std::fs::create_dir_all(folder)?;
        let new = self.path.with_extension("new");
        let mut file = std::fs::File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, &self.path)?;
        std::fs::File::open(folder)?.sync_all()?;
        self.file = None;
        Ok(())
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_read_as_it_was_left_and_a_torn_line_is_no_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/journal");
        let open = || Journal::open(Disk::at(&path), "boot").map_err(|error| error.to_string());
        let mut journal = open().unwrap();
        let web = Path::new("/cg/web");
        journal
            .record(7, web, File::Max, "30000 100000", "90001 100000")
            .unwrap();
        journal
            .record(7, web, File::Max, "30000 100000", "80001 100000")
            .unwrap();
        journal
            .record(8, Path::new("/cg/a"), File::Burst, "0", "5000")
            .unwrap();
        journal.forget(8, Path::new("/cg/a"), File::Burst).unwrap();
        let change = open().unwrap().change(7, File::Max).cloned().unwrap();
        assert_eq!(change.owner, "30000 100000");
        assert!(change.is_ours("90001 100000") && change.is_ours("80001 100000"));
        assert!(!change.is_ours("30000 100000"));
        assert_eq!(open().unwrap().changed().len(), 1);

        let whole = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{whole}{{\"id\":9,\"cgro")).unwrap();
        assert_eq!(open().unwrap().changed().len(), 1);
        std::fs::write(&path, whole.replacen("cpu.max", "cpu.mix", 1)).unwrap();
        assert!(open().err().unwrap().contains("journal:2: not a line"));
        std::fs::write(&path, &whole).unwrap();
        assert!(Journal::open(Disk::at(&path), "another")
            .unwrap()
            .changed()
            .is_empty());
    }

    /// A disk would be asked to sync thousands of times.
    #[derive(Default)]
    struct Memory(std::rc::Rc<std::cell::RefCell<String>>);

    impl Store for Memory {
        fn read(&mut self) -> io::Result<String> {
            Ok(self.0.borrow().clone())
        }

        fn append(&mut self, line: &str) -> io::Result<()> {
            self.0.borrow_mut().push_str(line);
            Ok(())
        }

        fn replace(&mut self, text: &str) -> io::Result<()> {
            *self.0.borrow_mut() = text.into();
            Ok(())
        }

        fn place(&self) -> String {
            "memory".into()
        }
    }

    #[test]
    fn a_journal_does_not_grow_without_bound() {
        let text = std::rc::Rc::default();
        let open = || Journal::open(Memory(std::rc::Rc::clone(&text)), "boot").unwrap();
        let mut journal = open();
        for number in 0..3 * LINES_MAX {
            let ours = format!("{number} 100000");
            let cgroup = Path::new("/cg");
            journal.record(1, cgroup, File::Max, "max 100000", &ours).unwrap();
        }
        assert!(text.borrow().lines().count() <= LINES_MAX + 4);
        let last = format!("{} 100000", 3 * LINES_MAX - 1);
        assert_eq!(open().change(1, File::Max).unwrap().ours, last);
    }
}
