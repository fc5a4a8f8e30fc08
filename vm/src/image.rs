// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Takes the type information out of a kernel image: bzImage (Documentation/arch/x86/boot.rst), in it a compressed
//! ELF file, in that the section `.BTF`.
use object::{Object, ObjectSection};
use std::io::Write;
use std::process::{Command, Stdio};

/// Sectors of the real-mode part; 0 stands for 4.
const SETUP_SECTORS: usize = 0x1f1;
const MAGIC: usize = 0x202;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;

/// Programs that unpack what a kernel may be packed with, by the first bytes of the payload.
const UNPACKERS: [(&[u8], &str); 3] = [
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\x1f\x8b", "gzip"),
];

/// Why an image gives no BTF.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// It has none, wherever it is read.
    Image(String),
    /// This machine cannot unpack it, which says nothing about the image.
    Machine(String),
}

impl<T: Into<String>> From<T> for Failure {
    fn from(why: T) -> Self {
        Failure::Image(why.into())
    }
}

/// The BTF of the kernel image in `data`, or why there is none.
pub fn btf(data: &[u8]) -> Result<Vec<u8>, Failure> {
    let elf = unpack(payload(data).ok_or("not an x86 kernel image")?)?;
    let file = object::File::parse(&*elf).map_err(|error| format!("its ELF file cannot be read: {error}"))?;
    let section = file
        .section_by_name(".BTF")
        .ok_or("it has no type information (BTF)")?;
    Ok(section
        .data()
        .map_err(|error| format!("its .BTF cannot be read: {error}"))?
        .to_vec())
}

fn payload(data: &[u8]) -> Option<&[u8]> {
    if data.get(MAGIC..MAGIC + 4)? != b"HdrS" {
        return None;
    }
    let word = |at: usize| Some(u32::from_le_bytes(data.get(at..at + 4)?.try_into().ok()?) as usize);
    let sectors = match data[SETUP_SECTORS] {
        0 => 4,
        sectors => sectors as usize,
    };
    let start = ((sectors + 1) * 512).checked_add(word(PAYLOAD_OFFSET)?)?;
    // The last four bytes are the unpacked size, which the unpackers take for rubbish.
    data.get(start..start.checked_add(word(PAYLOAD_LENGTH)?)?.checked_sub(4)?)
}

fn unpack(payload: &[u8]) -> Result<Vec<u8>, Failure> {
    let (_, program) = UNPACKERS
        .iter()
        .find(|(magic, _)| payload.starts_with(magic))
        .ok_or_else(|| {
            format!(
                "it is packed in an unknown way ({:02x?})",
                &payload[..payload.len().min(6)]
            )
        })?;
    let mut child = Command::new(program)
        .args(["-d", "-c"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| Failure::Machine(format!("{program} is needed to unpack it: {error}")))?;
    let mut input = child.stdin.take().expect("piped above");
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(move || input.write_all(payload));
        let output = child.wait_with_output();
        (writer.join().expect("writing does not panic"), output)
    });
    match written {
        (Ok(()), Ok(output)) if output.status.success() => Ok(output.stdout),
        _ => Err(Failure::Machine(format!("{program} cannot unpack it"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_kernel_image_is_refused() {
        assert!(btf(b"").is_err());
        assert!(btf(&[0; 4096]).is_err());
        let mut image = vec![0; 4096];
        image[MAGIC..MAGIC + 4].copy_from_slice(b"HdrS");
        image[PAYLOAD_OFFSET..PAYLOAD_OFFSET + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(btf(&image), Err("not an x86 kernel image".into()));
        image[PAYLOAD_OFFSET..PAYLOAD_OFFSET + 4].fill(0);
        image[PAYLOAD_LENGTH] = 100;
        let Err(Failure::Image(why)) = btf(&image) else {
            panic!("zeros are not a packed kernel")
        };
        assert!(why.contains("packed in an unknown way"), "{why}");
    }

    #[test]
    fn an_unpacker_that_is_missing_or_fails_is_no_fault_of_the_image() {
        let mut image = vec![0; 4096];
        image[MAGIC..MAGIC + 4].copy_from_slice(b"HdrS");
        image[PAYLOAD_LENGTH] = 100;
        // The payload: after the 4 sectors that a 0 stands for, and the boot sector.
        for (magic, program) in UNPACKERS {
            image[5 * 512..][..magic.len()].copy_from_slice(magic);
            let Err(Failure::Machine(why)) = btf(&image) else {
                panic!("zeros cannot be unpacked")
            };
            assert!(why.contains(program), "{why}");
        }
    }
}
