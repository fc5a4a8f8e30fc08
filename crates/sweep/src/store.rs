// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The folder of a sweep: rows by their keys, in files that are there whole or not at all.
//!
//! A run of points adds files and changes none, so machines that share the folder need not know of each other. A file's
//! name follows from the keys in it: the same batch written twice is one file.
use crate::key::hex;
use plimsoll_columns::{Cell, Columns, Row, TableError};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The column that holds the key.
pub const KEY: &str = "key";

/// What cannot be read or written, and where.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{}: cannot {what}: {error}", .path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        error: io::Error,
    },
    /// Files are there whole or not at all, so another program wrote it, or the disk is broken.
    #[error("{}: {error}; what is in it is run again once it is removed", .path.display())]
    Table { path: PathBuf, error: TableError },
}

/// Where the rows of a sweep are kept.
#[derive(Debug, Clone)]
pub struct Store {
    dir: PathBuf,
}

impl Store {
    /// The folder; made if it is not there.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let parts = dir.join("parts");
        fs::create_dir_all(&parts).map_err(|error| failed("make it", &parts, error))?;
        Ok(Store { dir: parts })
    }

    /// The folder of a sweep that has been run; nothing is made.
    pub fn at(dir: &Path) -> Result<Self, StoreError> {
        let parts = dir.join("parts");
        match fs::metadata(&parts) {
            Ok(_) => Ok(Store { dir: parts }),
            Err(error) => Err(failed("read it", &parts, error)),
        }
    }

    /// The files of rows, by name.
    fn files(&self) -> Result<Vec<PathBuf>, StoreError> {
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|error| failed("read it", &self.dir, error))?,
        };
        let mut files = Vec::new();
        for entry in entries {
            let path = entry.map_err(|error| failed("read it", &self.dir, error))?.path();
            if path.extension().is_some_and(|extension| extension == "parquet") {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }

    fn read(path: &Path, only: Option<&[&str]>) -> Result<Columns, StoreError> {
        let bytes = fs::read(path).map_err(|error| failed("read it", path, error))?;
        Columns::read(bytes, only).map_err(|error| StoreError::Table {
            path: path.to_path_buf(),
            error,
        })
    }

    /// The keys whose rows are there.
    pub fn keys(&self) -> Result<BTreeSet<String>, StoreError> {
        let mut keys = BTreeSet::new();
        for path in self.files()? {
            let columns = Self::read(&path, Some(&[KEY]))?;
            keys.extend((0..columns.rows()).filter_map(|row| Some(columns.get(KEY)?.cell(row)?.text())));
        }
        Ok(keys)
    }

    /// The rows of these keys that are there.
    pub fn rows(&self, wanted: &BTreeSet<&str>) -> Result<BTreeMap<String, Row>, StoreError> {
        let mut rows = BTreeMap::new();
        for path in self.files()? {
            let columns = Self::read(&path, None)?;
            let keys = columns.get(KEY);
            for number in 0..columns.rows() {
                // The rest of a row, hundreds of columns, only where it is wanted.
                match keys.and_then(|keys| keys.cell(number)) {
                    Some(Cell::Text(key)) if wanted.contains(key.as_str()) => {
                        let mut row = columns.row(number);
                        row.remove(KEY);
                        rows.insert(key, row);
                    }
                    _ => {}
                }
            }
        }
        Ok(rows)
    }

    /// Adds rows with their keys. When it returns they are on the disk.
    pub fn add(&self, rows: &[(String, Row)]) -> Result<(), StoreError> {
        let mut digest = Sha256::new();
        let mut table = Vec::new();
        for (key, row) in rows {
            digest.update(key);
            let mut row = row.clone();
            row.insert(KEY.to_string(), Cell::Text(key.clone()));
            table.push(row);
        }
        let path = self.dir.join(format!("{}.parquet", hex(digest)));
        let bytes = Columns::of(&table, &[KEY.to_string()])
            .parquet()
            .map_err(|error| StoreError::Table {
                path: path.clone(),
                error,
            })?;
        whole(&path, &bytes).map_err(|error| failed("write it", &path, error))
    }
}

fn failed(what: &'static str, path: &Path, error: io::Error) -> StoreError {
    StoreError::Io {
        what,
        path: path.to_path_buf(),
        error,
    }
}

/// Under a name that is unique, to the disk, and only then under its own: containers that share the folder all have the
/// same process ID.
fn whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().expect("a file in the folder");
    let mut file = tempfile::Builder::new()
        .prefix(".")
        .suffix(".partial")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(dir)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    // The name, too.
    File::open(dir)?.sync_all()
}
