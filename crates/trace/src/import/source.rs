// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bytes of an input file, unpacked where it is packed with gzip.
use crate::error::{Place, TraceError};
use flate2::bufread::MultiGzDecoder;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// The largest file that is held in memory as a whole, unpacked.
const BYTES_MAX: u64 = 8 << 30;

/// Whether bytes begin as a gzip file does: RFC 1952, with the one method there is.
pub fn is_gzip(head: &[u8]) -> bool {
    head.starts_with(&[0x1f, 0x8b, 8])
}

/// From the file's beginning.
pub fn open(path: &Path) -> Result<Box<dyn BufRead>, TraceError> {
    let file = File::open(path).map_err(|e| TraceError::io(path, "open", e))?;
    let mut reader = BufReader::new(file);
    let head = reader.fill_buf().map_err(|e| TraceError::io(path, "read", e))?;
    Ok(if is_gzip(head) {
        Box::new(BufReader::new(MultiGzDecoder::new(reader)))
    } else {
        Box::new(reader)
    })
}

/// All of it.
pub fn bytes(path: &Path) -> Result<Vec<u8>, TraceError> {
    let mut bytes = Vec::new();
    open(path)?
        .take(BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| TraceError::io(path, "read", e))?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(super::bad(
            Place::whole(path),
            "size",
            format!("more than {BYTES_MAX} bytes, unpacked"),
            format!("at most {BYTES_MAX} bytes"),
        ));
    }
    Ok(bytes)
}
