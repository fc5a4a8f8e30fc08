// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One checksum over the whole file, because the Parquet library panics on some damaged bytes (a page
//! header that says "dictionary" where there is none) and users need an error message.
//!
//! The file's metadata holds `plimsoll.crc32=XXXXXXXX`. The CRC-32 is taken over all bytes of the file
//! with the eight digits as `00000000`, so it covers the metadata that it stands in.
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};

pub const KEY: &str = "plimsoll.checksum";
const MARK: &[u8] = b"plimsoll.crc32=";
const ZEROS: &[u8; 8] = b"00000000";
/// The mark stands in the footer, which Parquet puts last; headers with many threads are long. Parquet counts its bytes
/// in 31 bits.
const FOOTER_MAX: u64 = i32::MAX as u64;

/// The metadata value before the checksum is known.
pub fn placeholder() -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(MARK),
        String::from_utf8_lossy(ZEROS)
    )
}

/// What a file's checksum says about it.
pub enum Verdict {
    Intact,
    /// The file carries no checksum: another program wrote it, or its end is missing.
    None,
    Damaged {
        stored: String,
        computed: String,
    },
}

/// Puts the checksum into a finished file.
pub fn stamp(file: &mut File) -> io::Result<()> {
    let at = find(file)?.ok_or_else(|| {
        io::Error::other("the metadata that was just written has no place for the checksum")
    })?;
    let crc = compute(file, at)?;
    file.seek(SeekFrom::Start(at))?;
    file.write_all(format!("{crc:08x}").as_bytes())
}

/// Compares the checksum with the file's bytes, and leaves the file at its start.
pub fn verify(file: &mut File) -> io::Result<Verdict> {
    let Some(at) = find(file)? else {
        return Ok(Verdict::None);
    };
    let mut stored = [0; 8];
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(&mut stored)?;
    let computed = format!("{:08x}", compute(file, at)?);
    file.rewind()?;
    Ok(if computed.as_bytes() == stored {
        Verdict::Intact
    } else {
        Verdict::Damaged {
            stored: String::from_utf8_lossy(&stored).into_owned(),
            computed,
        }
    })
}

/// Offset of the eight digits.
fn find(file: &mut File) -> io::Result<Option<u64>> {
    let size = file.metadata()?.len();
    let mut tail = [0; 8];
    if size < 12 {
        return Ok(None);
    }
    file.seek(SeekFrom::End(-8))?;
    file.read_exact(&mut tail)?;
    // A Parquet file ends with the length of its footer and the magic word.
    let footer = u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]) as u64;
    if &tail[4..] != b"PAR1" || footer > FOOTER_MAX || footer + 8 > size {
        return Ok(None);
    }
    let start = size - 8 - footer;
    let mut bytes = vec![0; footer as usize];
    file.seek(SeekFrom::Start(start))?;
    file.read_exact(&mut bytes)?;
    let mark = bytes
        .windows(MARK.len() + ZEROS.len())
        .rposition(|window| window.starts_with(MARK));
    Ok(mark.map(|i| start + (i + MARK.len()) as u64))
}

fn compute(file: &mut File, digits_at: u64) -> io::Result<u32> {
    file.rewind()?;
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let mut crc = crc32fast::Hasher::new();
    feed(&mut reader.by_ref().take(digits_at), &mut crc)?;
    let mut digits = [0; 8];
    reader.read_exact(&mut digits)?;
    crc.update(ZEROS);
    feed(&mut reader, &mut crc)?;
    Ok(crc.finalize())
}

fn feed(reader: &mut impl Read, crc: &mut crc32fast::Hasher) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok(()),
            n => crc.update(&buffer[..n]),
        }
    }
}
