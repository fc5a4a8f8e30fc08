// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A kernel with one container's cgroup, a journal in memory, and protobuf to speak to the agent as a runtime does.
use plimsoll_agent::{Events, File, Files, Limits, Result, Store};
use plimsoll_live::KnobValues;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The number of the container is 64 times `a`.
pub const CGROUP: &str =
    "/kubepods.slice/kubepods-pod1.slice/cri-containerd-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.scope";

/// cpu.max and cpu.max.burst of the groups that are there, as Linux takes them.
#[derive(Clone, Default)]
pub struct Kernel(
    pub Rc<RefCell<BTreeMap<PathBuf, (String, String)>>>,
    pub Rc<RefCell<Events>>,
);

impl Kernel {
    pub fn add(&self, max: &str) {
        self.add_at(Path::new(CGROUP), max);
    }

    pub fn add_at(&self, group: &Path, max: &str) {
        let files = (max.to_string(), "0".to_string());
        self.0.borrow_mut().insert(group.into(), files);
        self.1.borrow_mut().tree.push(group.into());
    }

    pub fn remove(&self, group: &Path) {
        self.0.borrow_mut().remove(group);
        self.1.borrow_mut().tree.push(group.into());
    }

    pub fn set(&self, group: &Path, file: File, value: &str) -> io::Result<()> {
        let mut groups = self.0.borrow_mut();
        let (max, burst) = groups.get_mut(group).ok_or(io::ErrorKind::NotFound)?;
        let (new_max, new_burst) = match file {
            File::Max => (value, burst.as_str()),
            File::Burst => (max.as_str(), value),
            _ => return Err(io::ErrorKind::NotFound.into()),
        };
        let to = Limits::parse(new_max, Some(new_burst)).unwrap();
        if to
            .quota_us
            .is_some_and(|quota_us| quota_us < 1_000 || to.burst_us > Some(quota_us))
        {
            return Err(io::Error::from_raw_os_error(22));
        }
        (*max, *burst) = (new_max.to_string(), new_burst.to_string());
        if file == File::Max {
            self.1.borrow_mut().tried.push((group.into(), file));
        }
        Ok(())
    }

    pub fn burst(&self) -> String {
        self.0.borrow()[Path::new(CGROUP)].1.clone()
    }
}

impl Files for Kernel {
    fn groups(&mut self, below: Option<&Path>) -> Vec<PathBuf> {
        let is_asked = |path: &&PathBuf| below.is_none_or(|below| path.starts_with(below));
        self.0.borrow().keys().filter(is_asked).cloned().collect()
    }
    fn id(&self, group: &Path) -> Option<u64> {
        let mut hasher = DefaultHasher::new();
        group.hash(&mut hasher);
        self.0.borrow().contains_key(group).then_some(hasher.finish())
    }
    fn read(&self, group: &Path, file: File) -> io::Result<String> {
        let groups = self.0.borrow();
        let (max, burst) = groups.get(group).ok_or(io::ErrorKind::NotFound)?;
        Ok(match file {
            File::Max => max.clone(),
            File::Burst => burst.clone(),
            _ => return Err(io::ErrorKind::NotFound.into()),
        })
    }
    fn write(&mut self, group: &Path, file: File, value: &str) -> io::Result<()> {
        self.set(group, file, value)
    }
    fn counted(&self, _: &Path) -> HashMap<String, u64> {
        HashMap::new()
    }
    fn knobs(&self, _: &Path) -> Result<KnobValues> {
        Ok(KnobValues::default())
    }
    fn events(&mut self) -> Events {
        std::mem::take(&mut self.1.borrow_mut())
    }
    fn busy(&mut self) -> Option<(u64, u32)> {
        None
    }
    fn shown<'a>(&self, group: &'a Path) -> &'a Path {
        group
    }
    fn at(&self, shown: &Path) -> PathBuf {
        shown.into()
    }
}

#[derive(Default)]
pub struct Memory(String);

impl Store for Memory {
    fn read(&mut self) -> io::Result<String> {
        Ok(self.0.clone())
    }
    fn append(&mut self, line: &str) -> io::Result<()> {
        self.0.push_str(line);
        Ok(())
    }
    fn replace(&mut self, text: &str) -> io::Result<()> {
        self.0 = text.into();
        Ok(())
    }
    fn place(&self) -> String {
        "memory".into()
    }
}

// Protobuf, as its specification has it.
pub fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 128 {
        bytes.push(number as u8 | 128);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}
pub fn bytes(field: u64, inner: &[u8]) -> Vec<u8> {
    [varint(field << 3 | 2), varint(inner.len() as u64), inner.to_vec()].concat()
}
pub fn text(field: u64, text: &str) -> Vec<u8> {
    bytes(field, text.as_bytes())
}
