// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ACPI table of processors (MADT) of a machine in which most CPUs are only said to be there.
//!
//! A kernel with 1,024 emulated CPUs takes more than nine minutes to boot here, nearly all of it in the emulator.
//! What a scheduler must bear on such a machine is its numbers: arrays, masks and loops of 1,024, and CPUs at their
//! end. So the kernel gets a table that lists as many CPUs as wanted, and takes it in place of the emulator's
//! (CONFIG_ACPI_TABLE_UPGRADE: a file of the initial file system). Only CPU 0 is started at boot (`maxcpus=1`); the
//! other CPUs that exist stand last in the table, so they have the highest numbers, and the guest's first process
//! brings them on line.
//!
//! Structures are those of the ACPI specification 6.5, section 5.2.12; addresses and interrupts those of QEMU's `q35`.

/// Where the kernel looks for tables in its initial file system
/// (Documentation/admin-guide/acpi/initrd_table_override.rst).
pub const PATH: &str = "kernel/firmware/acpi/madt.aml";

const HEADER_BYTES: usize = 36;
const CHECKSUM_AT: usize = 9;
/// Above QEMU's own, which is 1: the kernel takes only a newer table.
const REVISION: u32 = 2;

const LOCAL_APIC: u32 = 0xfee0_0000;
const IO_APIC: u32 = 0xfec0_0000;
const ENABLED: u32 = 1;
/// Interrupts of q35's PCI links: active high, level triggered.
const LEVEL: [u8; 4] = [5, 9, 10, 11];
const LEVEL_HIGH: u16 = 0xd;

/// The table of `possible` CPUs, of which 0 and the last `cpus` - 1 exist; their APIC identifiers are the first ones.
pub fn table(cpus: u32, possible: u32) -> Vec<u8> {
    assert!(0 < cpus && cpus <= possible, "{cpus} of {possible} CPUs");
    let mut body = Vec::new();
    body.extend(LOCAL_APIC.to_le_bytes());
    body.extend(1u32.to_le_bytes()); // there are 8259s, too
    processor(&mut body, 0);
    (cpus..possible).for_each(|id| processor(&mut body, id));
    (1..cpus).for_each(|id| processor(&mut body, id));
    io_apic(&mut body);
    interrupt(&mut body, 0, 2, 0); // the timer
    LEVEL
        .iter()
        .for_each(|&irq| interrupt(&mut body, irq, irq, LEVEL_HIGH));

    let mut table = Vec::with_capacity(HEADER_BYTES + body.len());
    let length = (HEADER_BYTES + body.len()) as u32;
    table.extend(b"APIC");
    table.extend(length.to_le_bytes());
    table.extend([3, 0]); // version of the structures, and the checksum's place
    table.extend(b"BOCHS BXPC    "); // as QEMU calls its own: the kernel compares them
    table.extend(REVISION.to_le_bytes());
    table.extend(b"BXPC");
    table.extend(1u32.to_le_bytes());
    table.extend(body);
    let sum = table.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    table[CHECKSUM_AT] = sum.wrapping_neg();
    table
}

/// A local x2APIC; the kernel wants the older form for identifiers below 255.
fn processor(body: &mut Vec<u8>, id: u32) {
    match u8::try_from(id) {
        Ok(id) if id < 255 => {
            body.extend([0, 8, id, id]);
            body.extend(ENABLED.to_le_bytes());
        }
        _ => {
            body.extend([9, 16, 0, 0]);
            body.extend(id.to_le_bytes());
            body.extend(ENABLED.to_le_bytes());
            body.extend(id.to_le_bytes());
        }
    }
}

fn io_apic(body: &mut Vec<u8>) {
    body.extend([1, 12, 0, 0]);
    body.extend(IO_APIC.to_le_bytes());
    body.extend(0u32.to_le_bytes());
}

fn interrupt(body: &mut Vec<u8>, irq: u8, to: u8, flags: u16) {
    body.extend([2, 10, 0, irq]);
    body.extend(u32::from(to).to_le_bytes());
    body.extend(flags.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_sums_up_to_nothing_and_lists_every_cpu_once_those_that_exist_last() {
        let table = table(4, 1024);
        assert_eq!(table.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)), 0);
        assert_eq!(
            table.len(),
            u32::from_le_bytes(table[4..8].try_into().unwrap()) as usize
        );
        let (mut at, mut ids) = (HEADER_BYTES + 8, Vec::new());
        while at < table.len() {
            match table[at] {
                0 => ids.push(u32::from(table[at + 3])),
                9 => ids.push(u32::from_le_bytes(table[at + 4..at + 8].try_into().unwrap())),
                _ => {}
            }
            at += usize::from(table[at + 1]);
        }
        assert_eq!(at, table.len());
        assert_eq!(ids[0], 0);
        assert_eq!(ids[1021..], [1, 2, 3]);
        ids.sort_unstable();
        assert_eq!(ids, (0..1024).collect::<Vec<u32>>());
    }
}
