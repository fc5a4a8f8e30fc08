// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The recordings of a sweep.
//!
//! The same recordings are shared by the points that are run at one time, and are read again where none is.
use crate::grid::{Grid, Setting};
use crate::points::{Points, Runner};
use crate::shard::Shard;
use plimsoll_columns::{Cell, Row};
use plimsoll_plan::{Recordings, SourceError};
use plimsoll_scenario::Problems;
use plimsoll_trace::RequestSpec;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The column of which recording it is.
const RECORDING: &str = "recording";

/// What cannot be made of recordings.
#[derive(Debug, thiserror::Error)]
pub enum RecordingsError {
    #[error(transparent)]
    Problems(#[from] Problems),
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// Which recordings, and how they are read.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Which {
    pub files: Vec<usize>,
    pub group: Option<String>,
    /// As it is given: [`RequestSpec`] is of this text.
    pub request: Option<String>,
}

type Kept = Arc<Mutex<Weak<Recordings>>>;

pub(crate) struct Shelf {
    files: Vec<PathBuf>,
    digests: Vec<[u8; 32]>,
    read: Mutex<BTreeMap<Which, Kept>>,
}

impl Shelf {
    /// Reads the bytes of the recordings, which are part of every key.
    pub fn new(recordings: &[PathBuf]) -> Result<Self, Problems> {
        let digests = recordings.iter().map(|path| {
            digest(path).map_err(|error| {
                Problems::one(path.display().to_string(), format!("cannot read it: {error}"))
            })
        });
        Ok(Shelf {
            digests: digests.collect::<Result<_, _>>()?,
            files: recordings.to_vec(),
            read: Mutex::default(),
        })
    }

    /// Digests of these recordings.
    pub fn contents<'a>(&'a self, which: &'a Which) -> impl Iterator<Item = &'a [u8]> {
        which.files.iter().map(|file| &self.digests[*file][..])
    }

    /// What a combination does with these recordings: `each` is given a seed. What cannot be done is the row's `error`.
    pub fn runner<'a, E: Display>(
        &'a self,
        which: &Which,
        stop: &Arc<AtomicBool>,
        each: impl Fn(&Recordings, u64) -> Result<Row, E> + Sync + 'a,
    ) -> Runner<'a> {
        let recordings = self.read(which, stop);
        let failed = |text: String| Some(Row::from([("error".to_string(), Cell::Text(text))]));
        Box::new(move |seed, stop| {
            let recordings = match &recordings {
                Ok(recordings) => recordings,
                Err(error) => return failed(error.to_string()),
            };
            match each(recordings, seed) {
                _ if stop.load(Ordering::Relaxed) => None,
                Ok(row) => Some(row),
                Err(error) => failed(error.to_string()),
            }
        })
    }

    /// Recordings that others may use at the same time.
    pub fn read(&self, which: &Which, stop: &Arc<AtomicBool>) -> Result<Arc<Recordings>, SourceError> {
        // A reader that panicked has left nothing half-done.
        let own = {
            let mut all = self.read.lock().unwrap_or_else(PoisonError::into_inner);
            all.entry(which.clone()).or_default().clone()
        };
        let mut kept = own.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = kept.upgrade() {
            return Ok(there);
        }
        let paths: Vec<&Path> = which
            .files
            .iter()
            .map(|file| self.files[*file].as_path())
            .collect();
        let request = which.request.as_deref().map(|text| {
            text.parse::<RequestSpec>()
                .unwrap_or_else(|_| unreachable!("it was one when the points were made"))
        });
        let read = Recordings::read(&paths, which.group.as_deref(), request.as_ref())?;
        let read = Arc::new(read.cancelled_by(stop));
        *kept = Arc::downgrade(&read);
        Ok(read)
    }
}

fn digest(path: &Path) -> io::Result<[u8; 32]> {
    let mut digest = Sha256::new();
    io::copy(&mut File::open(path)?, &mut digest)?;
    Ok(digest.finalize().into())
}

/// The combinations of a shard by their recordings, so that each is read once.
pub(crate) fn by_recordings<'a>(
    points: &impl Points,
    shard: Shard,
    which: impl Fn(usize) -> &'a Which,
) -> BTreeMap<&'a Which, BTreeSet<usize>> {
    let own = (0..points.points()).filter(|point| shard.has(*point));
    let mut all: BTreeMap<&Which, BTreeSet<usize>> = BTreeMap::new();
    for combination in own.map(|point| points.combination(point)) {
        all.entry(which(combination)).or_default().insert(combination);
    }
    all
}

/// The same for each recording, by its name.
pub(crate) fn with_recording(grid: &Grid, recordings: &[PathBuf]) -> Grid {
    let name = |path: &PathBuf| Setting::Text(path.display().to_string());
    let mut keys = vec![RECORDING.to_string()];
    keys.extend(grid.keys.iter().cloned());
    let of = |path| {
        let own = name(path);
        grid.combinations.iter().map(move |combination| {
            let mut all = vec![own.clone()];
            all.extend(combination.iter().cloned());
            all
        })
    };
    Grid {
        keys,
        combinations: recordings.iter().flat_map(of).collect(),
        seeds: grid.seeds.clone(),
    }
}
