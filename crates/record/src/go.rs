// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The version of Go that a program was built with, as its linker notes it: `go version FILE` prints the same.
//!
//! Source of the layout: debug/buildinfo of Go's library. The section `.go.buildinfo` begins with 14 bytes of magic, the size of
//! a pointer and flags; with flag 2 (all of Go 1.18 and later) the version follows at byte 32, behind its length as a varint.
use object::{Object, ObjectSection, ReadCache};
use std::fs::File;
use std::path::Path;

const MAGIC: &[u8] = b"\xff Go buildinf:";
const FLAGS: usize = 15;
const INLINE: u8 = 2;
const VERSION: usize = 32;

/// `None`: not readable, no ELF file, not built by Go, or by one before 1.18.
pub(crate) fn version(program: &Path) -> Option<String> {
    let cache = ReadCache::new(File::open(program).ok()?);
    let elf = object::File::parse(&cache).ok()?;
    version_of(elf.section_by_name(".go.buildinfo")?.data().ok()?)
}

fn version_of(section: &[u8]) -> Option<String> {
    if !section.starts_with(MAGIC) || section.get(FLAGS)? & INLINE == 0 {
        return None;
    }
    let (&length, text) = section.get(VERSION..)?.split_first()?;
    // A length of one byte: the trace format takes no longer version.
    let length = usize::from(length);
    let text = text
        .get(..length)
        .filter(|_| (1..=plimsoll_trace::GO_VERSION_MAX).contains(&length))?;
    String::from_utf8(text.into()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(flags: u8, version: &[u8]) -> Vec<u8> {
        let mut section = [MAGIC, &[8, flags], &[0; 16], &[version.len() as u8], version].concat();
        section.extend([0; 8]);
        section
    }

    #[test]
    fn a_version_is_read_and_what_is_none_is_not() {
        assert_eq!(version_of(&section(2, b"go1.25.1")).as_deref(), Some("go1.25.1"));
        let short = section(2, b"go1.25.1");
        for bad in [
            &section(0, b"go1.17")[..],
            &section(2, b""),
            &section(2, &[b'x'; 90]),
            &short[..36],
            b"",
            b"\xff Go",
        ] {
            assert_eq!(version_of(bad), None);
        }
        assert_eq!(version(Path::new("/proc/self/exe")), None);
        assert_eq!(version(Path::new("/nonexistent")), None);
    }
}
