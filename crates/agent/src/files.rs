// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files that the agent reads and writes, so that the same code runs on a machine and on a model of one.
use crate::Result;
use plimsoll_live::KnobValues;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};

/// A file that the agent may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum File {
    #[serde(rename = "cpu.max")]
    Max,
    #[serde(rename = "cpu.max.burst")]
    Burst,
    #[serde(rename = "cpu.idle")]
    Idle,
    /// The kernel's doing: it forgets a group's weight as the group becomes idle.
    #[serde(rename = "cpu.weight")]
    Weight,
}

impl File {
    pub const ALL: [File; 4] = [File::Max, File::Burst, File::Idle, File::Weight];
    /// Those that are a group's limits.
    pub const LIMITS: [File; 2] = [File::Max, File::Burst];

    pub fn name(self) -> &'static str {
        match self {
            File::Max => "cpu.max",
            File::Burst => "cpu.max.burst",
            File::Idle => "cpu.idle",
            File::Weight => "cpu.weight",
        }
    }
}

/// What happened since it was last asked.
#[derive(Debug, Default)]
pub struct Events {
    /// Directories that came or went, or below which limits did; none of them below another one.
    pub tree: Vec<PathBuf>,
    /// Directories whose attributes were written.
    pub marked: Vec<PathBuf>,
    /// Files that were written, by the agent, too.
    pub written: BTreeSet<(PathBuf, File)>,
    /// Limits and weights that an owner may have tried to write, perhaps in vain.
    pub tried: Vec<(PathBuf, File)>,
    /// Too much happened to be told one by one.
    pub all: bool,
    /// Not everything is watched: the caller has to look for itself from time to time.
    pub blind: bool,
}

pub trait Files {
    /// The directories that have limits, parents before children: all of them, or that at `below` and those below it. The
    /// root is none of them.
    fn groups(&mut self, below: Option<&Path>) -> Vec<PathBuf>;
    /// The kernel's number for a group: another one where a directory was removed and made again. `None`: it is gone.
    fn id(&self, group: &Path) -> Option<u64>;
    /// The text without its last line feed.
    fn read(&self, group: &Path, file: File) -> io::Result<String>;
    fn write(&mut self, group: &Path, file: File, value: &str) -> io::Result<()>;
    /// CPU time that the group has used.
    fn usage_us(&self, group: &Path) -> Option<u64> {
        self.counted(group).get("usage_usec").copied()
    }
    /// cpu.stat, empty where the group is gone.
    fn counted(&self, group: &Path) -> HashMap<String, u64>;
    /// The knobs that are set on the group itself.
    fn knobs(&self, group: &Path) -> Result<KnobValues>;
    fn events(&mut self) -> Events;
    /// CPU time that all groups have used, summed, since some moment, and how many CPUs are online. Not idle time of
    /// /proc/stat: Linux 7.2 counts that in ticks, and says 82% where a load that sleeps between two ticks leaves 70%.
    fn busy(&mut self) -> Option<(u64, u32)>;
    /// What settings match: the path below the mount.
    fn shown<'a>(&self, group: &'a Path) -> &'a Path;
    /// The group of a path below the mount.
    fn at(&self, shown: &Path) -> PathBuf;
}
