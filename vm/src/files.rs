// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files through which a guest and we talk. A file never makes the guest wait: a full pipe would stop its virtual
//! clock at a moment that no two runs share.
use crate::error::{Error, Result};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// A file in the temporary folder without a name there: nothing is left of it, whatever ends us.
pub fn nameless() -> Result<File> {
    tempfile::tempfile().map_err(|error| Error::file("create a file in it", &std::env::temp_dir(), &error))
}

/// What a file without a name is called in a QEMU that inherits it.
pub fn inherited(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// All that is in a file.
pub fn all_of(file: &File) -> Vec<u8> {
    let size = file.metadata().map_or(0, |metadata| metadata.len());
    let mut bytes = vec![0; size as usize];
    match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => bytes,
        Err(_) => Vec::new(),
    }
}

/// Whether a block can still be written to a file of the temporary folder. Where none can, QEMU tries for ever, and the
/// guest waits without a word. Tried, and not asked for, because quotas and what is kept for root count too.
pub fn has_room(trial: &File) -> bool {
    let written = trial.write_all_at(&[1; 4096], 0);
    let _ = trial.set_len(0);
    let kind = written.err().map(|error| error.kind());
    !matches!(kind, Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded))
}

/// What the guest wrote to one port, read as it grows.
pub struct Port {
    file: File,
    /// Bytes read so far.
    position: u64,
    /// Until the reader of what is passed on has gone (`plimsoll vm ... | head`): that ends the printing, not the command.
    is_wanted: bool,
}

impl Port {
    pub fn of(file: File) -> Self {
        Self {
            file,
            position: 0,
            is_wanted: true,
        }
    }

    fn read(&mut self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file
            .read_to_end(&mut bytes)
            .map_err(|error| Error::Machine(format!("cannot read what the guest wrote: {error}")))?;
        if !bytes.is_empty() {
            self.position += bytes.len() as u64;
            self.make_room();
        }
        Ok(bytes)
    }

    /// Gives the disk back what has been read, so that a guest may print more than there is room for.
    fn make_room(&self) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: the descriptor is open. A file system that cannot do so keeps it.
        unsafe { libc::fallocate(self.file.as_raw_fd(), mode, 0, self.position as libc::off_t) };
    }

    /// Says whether there was anything.
    pub fn pass_on(&mut self, to: &mut dyn Write) -> Result<bool> {
        let bytes = self.read()?;
        if bytes.is_empty() || !self.is_wanted {
            return Ok(!bytes.is_empty());
        }
        match to.write_all(&bytes).and_then(|()| to.flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.is_wanted = false;
                Ok(true)
            }
            Err(error) => Err(Error::Machine(format!(
                "cannot pass on the guest's output: {error}"
            ))),
            Ok(()) => Ok(true),
        }
    }
}

pub struct Boot {
    pub at: Duration,
    pub guest_s: String,
}

/// What the guest's first process says: `ready SECONDS`, then `exit CODE`.
pub struct Control {
    port: Port,
    text: Vec<u8>,
    pub booted: Option<Boot>,
    pub code: Option<u8>,
}

impl Control {
    pub fn of(file: File) -> Self {
        Self {
            port: Port::of(file),
            text: Vec::new(),
            booted: None,
            code: None,
        }
    }

    pub fn read(&mut self, started: Instant) -> Result<()> {
        self.text.extend(self.port.read()?);
        while let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.text.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            match line.trim_end().split_once(' ') {
                Some(("ready", seconds)) => {
                    self.booted = Some(Boot {
                        at: started.elapsed(),
                        guest_s: seconds.to_string(),
                    });
                }
                Some(("exit", code)) => self.code = code.parse().ok(),
                _ => {
                    return Err(Error::Guest {
                        message: format!("the guest says '{}'", line.trim_end()),
                        console: Vec::new(),
                    });
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_from_one_with_room() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        assert!(!has_room(&full));
        assert!(has_room(&nameless().unwrap()));
    }

    #[test]
    fn what_has_been_passed_on_takes_no_room() {
        use std::os::unix::fs::MetadataExt;
        let file = nameless().unwrap();
        let mut port = Port::of(file.try_clone().unwrap());
        file.write_all_at(&[7; 1 << 20], 0).unwrap();
        let mut out = Vec::new();
        assert!(port.pass_on(&mut out).unwrap());
        file.write_all_at(b"more", 1 << 20).unwrap();
        assert!(port.pass_on(&mut out).unwrap());
        assert_eq!((out.len(), &out[1 << 20..]), ((1 << 20) + 4, &b"more"[..]));
        assert!(file.metadata().unwrap().blocks() * 512 < 1 << 20);
    }
}
