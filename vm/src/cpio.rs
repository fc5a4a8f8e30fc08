// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes the archive that the kernel unpacks as its first file system: cpio, format "newc"
//! (Documentation/driver-api/early-userspace/buffer-format.rst of the kernel).
use std::collections::BTreeSet;

const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
/// The kernel's limit on a name, with its closing zero (PATH_MAX).
const NAME_LENGTH_MAX: usize = 4096;

/// An archive in memory. Parents of a name are added by themselves; a second entry of one name replaces the first
/// one's content when the kernel unpacks it, so callers ask `has` first.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    names: BTreeSet<String>,
    inode: u32,
}

impl Archive {
    pub fn new() -> Self {
        Self::default()
    }

    /// True when `path` is in the archive.
    pub fn has(&self, path: &str) -> bool {
        self.names.contains(path.trim_matches('/'))
    }

    pub fn folder(&mut self, path: &str, permissions: u32) {
        self.entry(path, FOLDER | permissions, &[]);
    }

    pub fn file(&mut self, path: &str, permissions: u32, content: &[u8]) {
        self.entry(path, FILE | permissions, content);
    }

    pub fn link(&mut self, path: &str, to: &str) {
        self.entry(path, LINK | 0o777, to.as_bytes());
    }

    /// Closes the archive and gives its bytes.
    pub fn finish(mut self) -> Vec<u8> {
        self.inode = 0;
        self.header("TRAILER!!!", 0, 0);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        let path = path.trim_matches('/');
        assert!(
            !path.is_empty() && path.len() < NAME_LENGTH_MAX,
            "a name of an archive entry: '{path}'"
        );
        if let Some((parent, _)) = path.rsplit_once('/') {
            if !self.has(parent) {
                self.folder(parent, 0o755);
            }
        }
        self.names.insert(path.to_string());
        self.inode += 1;
        self.header(path, mode, content.len());
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn header(&mut self, name: &str, mode: u32, size: usize) {
        let size = u32::try_from(size).expect("an archive entry is smaller than 4 GiB");
        let links = if mode & FOLDER != 0 { 2 } else { 1 };
        // inode, mode, user, group, links, modification time, size, device major and minor (ours, of the node),
        // length of the name with its zero, checksum (unused in this format)
        let fields = [
            self.inode,
            mode,
            0,
            0,
            links,
            0,
            size,
            0,
            0,
            0,
            0,
            name.len() as u32 + 1,
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, mode and content of each entry, read by the rules of the format and not by the writer's code.
    fn read(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let whole = bytes.len();
        let mut entries = Vec::new();
        loop {
            assert_eq!(&bytes[..6], b"070701");
            let field = |index: usize| {
                let text = std::str::from_utf8(&bytes[6 + 8 * index..14 + 8 * index]).unwrap();
                u32::from_str_radix(text, 16).unwrap()
            };
            let (mode, size, name_size) = (field(1), field(6) as usize, field(11) as usize);
            assert_eq!(bytes[110 + name_size - 1], 0);
            let name = String::from_utf8(bytes[110..110 + name_size - 1].to_vec()).unwrap();
            let start = (whole - bytes.len() + 110 + name_size).next_multiple_of(4) - (whole - bytes.len());
            let content = bytes[start..start + size].to_vec();
            bytes = &bytes[(start + size).next_multiple_of(4)..];
            if name == "TRAILER!!!" {
                assert!(bytes.is_empty());
                return entries;
            }
            entries.push((name, mode, content));
        }
    }

    #[test]
    fn what_was_written_is_read_back_with_parents_first() {
        let mut archive = Archive::new();
        archive.file("/usr/local/bin/odd", 0o755, b"12345");
        archive.link("bin/sh", "busybox");
        archive.file("etc/empty", 0o644, b"");
        archive.folder("/tmp", 0o1777);
        let entries = read(&archive.finish());
        let names: Vec<&str> = entries.iter().map(|(name, _, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "usr",
                "usr/local",
                "usr/local/bin",
                "usr/local/bin/odd",
                "bin",
                "bin/sh",
                "etc",
                "etc/empty",
                "tmp"
            ]
        );
        assert_eq!(
            entries[3],
            ("usr/local/bin/odd".into(), 0o100755, b"12345".to_vec())
        );
        assert_eq!(entries[5], ("bin/sh".into(), 0o120777, b"busybox".to_vec()));
        assert_eq!(entries[8].1, 0o041777);
    }
}
