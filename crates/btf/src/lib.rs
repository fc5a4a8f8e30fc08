// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the type information of a kernel (BTF, Documentation/bpf/btf.rst) as far as a question needs: are the
//! prototypes of the functions that a scheduler calls what the kernel's verifier will compare them with?
//!
//! In kernels built with pahole 1.30, as Debian's 7.2.12 of trixie-backports is, some functions with an implicit last
//! argument (`struct bpf_prog_aux *aux`, which the verifier fills in) show that argument in their public prototype, so
//! no scheduler built against a correct one loads. libbpf then says no more than that the kfunc is incompatible.
//!
//! `plimsoll run` asks it of the running kernel, `plimsoll vm` of a kernel's image. Of the crates, btf-rs is LGPL-2.1, which a
//! binary that is linked statically had better not have in it, and libbpf's reader wants a file and prints.
use std::fmt;

const MAGIC: u16 = 0xeb9f;
const KIND_PTR: u32 = 2;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;

/// Functions whose number of arguments is checked too: those that a sched_ext scheduler calls. All releases so far have the
/// first three; the last is called scx_bpf_dispatch before 6.13.
const PARAMETERS: [(&str, usize); 4] = [
    ("scx_bpf_create_dsq", 2),
    ("scx_bpf_kick_cpu", 2),
    ("scx_bpf_destroy_dsq", 1),
    ("scx_bpf_dsq_insert", 4),
];
const IN_ALL_RELEASES: usize = 3;

/// Why a kernel's type information cannot serve a sched_ext scheduler.
#[derive(Debug, PartialEq, Eq)]
pub enum Fault {
    /// The data break the format, at this place.
    Broken(&'static str),
    /// No such function: the kernel has no sched_ext.
    Absent(&'static str),
    /// The prototype of this function is not the one to call.
    Prototype { function: String, why: String },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Broken(place) => write!(f, "its type information (BTF) is broken: {place}"),
            Fault::Absent(function) => write!(f, "it has no sched_ext (no function {function})"),
            Fault::Prototype { function, why } => {
                write!(
                    f,
                    "its type information (BTF) has a malformed prototype: {function} {why}"
                )
            }
        }
    }
}

struct Type<'a> {
    kind: u32,
    name: u32,
    /// Number of members, parameters or values.
    count: usize,
    /// `size` or `type`, as the kind has it.
    size_or_type: u32,
    /// What follows the fixed part.
    rest: &'a [u8],
}

struct Btf<'a> {
    types: Vec<Type<'a>>,
    strings: &'a [u8],
}

/// Checks every `scx_bpf_*` function of the little-endian BTF in `data`.
pub fn probe_sched_ext(data: &[u8]) -> Result<(), Fault> {
    let btf = Btf::read(data)?;
    for (function, _) in &PARAMETERS[..IN_ALL_RELEASES] {
        if !btf
            .types
            .iter()
            .any(|of| of.kind == KIND_FUNC && btf.name(of.name) == function.as_bytes())
        {
            return Err(Fault::Absent(function));
        }
    }
    for function in btf.types.iter().filter(|of| of.kind == KIND_FUNC) {
        let name = String::from_utf8_lossy(btf.name(function.name));
        // The variants that do take the argument in the open are named so.
        if name.starts_with("scx_bpf_") && !name.ends_with("_impl") {
            btf.check(&name, function).map_err(|why| Fault::Prototype {
                function: name.into_owned(),
                why,
            })?;
        }
    }
    Ok(())
}

impl<'a> Btf<'a> {
    fn read(data: &'a [u8]) -> Result<Self, Fault> {
        let magic = data
            .get(..2)
            .map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
        if magic != Some(MAGIC) {
            return Err(Fault::Broken("it does not begin with the magic number"));
        }
        let header = |at: usize| word(data, at).ok_or(Fault::Broken("the header is cut off"));
        let length = header(4)? as usize;
        let section = |offset: u32, size: u32| {
            let start = length.checked_add(offset as usize)?;
            data.get(start..start.checked_add(size as usize)?)
        };
        let mut rest =
            section(header(8)?, header(12)?).ok_or(Fault::Broken("the types lie outside the data"))?;
        let strings =
            section(header(16)?, header(20)?).ok_or(Fault::Broken("the strings lie outside the data"))?;
        // Type 0 is void.
        let mut types = vec![Type {
            kind: 0,
            name: 0,
            count: 0,
            size_or_type: 0,
            rest: &[],
        }];
        while !rest.is_empty() {
            let cut = Fault::Broken("a type is cut off");
            let (Some(name), Some(info), Some(size_or_type)) = (word(rest, 0), word(rest, 4), word(rest, 8))
            else {
                return Err(cut);
            };
            let (kind, count) = ((info >> 24) & 0x1f, (info & 0xffff) as usize);
            let size = match kind {
                1 | 14 | 17 => 4,      // integer, variable, declaration tag
                3 => 12,               // array
                4 | 5 => 12 * count,   // struct, union
                6 | 13 => 8 * count,   // enum, prototype
                15 | 19 => 12 * count, // data section, 64-bit enum
                2 | 7..=12 | 16 | 18 => 0,
                _ => return Err(Fault::Broken("a type of unknown kind")),
            };
            let end = 12 + size;
            if rest.len() < end {
                return Err(cut);
            }
            types.push(Type {
                kind,
                name,
                count,
                size_or_type,
                rest: &rest[12..end],
            });
            rest = &rest[end..];
        }
        Ok(Self { types, strings })
    }

    fn name(&self, offset: u32) -> &'a [u8] {
        let bytes = self.strings.get(offset as usize..).unwrap_or(&[]);
        bytes.split(|byte| *byte == 0).next().unwrap_or(&[])
    }

    fn check(&self, name: &str, function: &Type) -> Result<(), String> {
        let prototype = self
            .types
            .get(function.size_or_type as usize)
            .filter(|of| of.kind == KIND_FUNC_PROTO)
            .ok_or("has no prototype")?;
        for index in 0..prototype.count {
            let parameter = word(prototype.rest, 8 * index + 4).ok_or("is cut off")?;
            let of = self
                .types
                .get(parameter as usize)
                .ok_or("has an argument of no known type")?;
            let to = self.types.get(of.size_or_type as usize);
            if of.kind == KIND_PTR && to.is_some_and(|to| self.name(to.name) == b"bpf_prog_aux") {
                return Err("shows its implicit argument (built with pahole 1.30)".into());
            }
        }
        match PARAMETERS.iter().find(|(known, _)| *known == name) {
            Some((_, count)) if *count != prototype.count => {
                Err(format!("has {} arguments instead of {count}", prototype.count))
            }
            _ => Ok(()),
        }
    }
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    let bytes = data.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().expect("four bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND_INT: u32 = 1;
    const KIND_STRUCT: u32 = 4;

    /// A writer of BTF, just enough for functions.
    #[derive(Default)]
    struct Writer {
        types: Vec<u8>,
        strings: Vec<u8>,
        count: u32,
    }

    impl Writer {
        fn new() -> Self {
            Self {
                strings: vec![0],
                ..Self::default()
            }
        }

        fn add(&mut self, name: &str, kind: u32, count: u32, size_or_type: u32, rest: &[u32]) -> u32 {
            let mut offset = 0;
            if !name.is_empty() {
                offset = self.strings.len() as u32;
                self.strings.extend_from_slice(name.as_bytes());
                self.strings.push(0);
            }
            for word in [offset, kind << 24 | count, size_or_type].iter().chain(rest) {
                self.types.extend_from_slice(&word.to_le_bytes());
            }
            self.count += 1;
            self.count
        }

        fn function(&mut self, name: &str, parameters: &[u32]) {
            let pairs: Vec<u32> = parameters.iter().flat_map(|of| [0, *of]).collect();
            let prototype = self.add("", KIND_FUNC_PROTO, parameters.len() as u32, 0, &pairs);
            self.add(name, KIND_FUNC, 0, prototype, &[]);
        }

        fn finish(self) -> Vec<u8> {
            let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
            let mut data = MAGIC.to_le_bytes().to_vec();
            data.extend_from_slice(&[1, 0]);
            for word in [24, 0, types, types, strings] {
                data.extend_from_slice(&u32::to_le_bytes(word));
            }
            data.extend_from_slice(&self.types);
            data.extend_from_slice(&self.strings);
            data
        }
    }

    /// A kernel whose `scx_bpf_create_dsq` takes `parameters`: 1 is an integer, 3 a `struct bpf_prog_aux *`.
    fn kernel(parameters: &[u32]) -> Vec<u8> {
        let mut writer = Writer::new();
        let int = writer.add("int", KIND_INT, 0, 4, &[32]);
        let aux = writer.add("bpf_prog_aux", KIND_STRUCT, 0, 0, &[]);
        writer.add("", KIND_PTR, 0, aux, &[]);
        writer.function("scx_bpf_create_dsq", parameters);
        writer.function("scx_bpf_kick_cpu", &[int, int]);
        writer.function("scx_bpf_destroy_dsq", &[int]);
        writer.function("scx_bpf_destroy_dsq_impl", &[int, 3]);
        writer.finish()
    }

    #[test]
    fn a_sound_kernel_passes() {
        assert_eq!(probe_sched_ext(&kernel(&[1, 1])), Ok(()));
    }

    #[test]
    fn an_implicit_argument_in_the_open_is_refused_as_pahole_1_30_leaves_it() {
        let fault = probe_sched_ext(&kernel(&[1, 1, 3])).unwrap_err();
        assert_eq!(
            fault.to_string(),
            "its type information (BTF) has a malformed prototype: \
             scx_bpf_create_dsq shows its implicit argument (built with pahole 1.30)"
        );
    }

    #[test]
    fn wrong_counts_and_unknown_types_are_refused() {
        assert!(matches!(
            probe_sched_ext(&kernel(&[1])),
            Err(Fault::Prototype { .. })
        ));
        assert!(matches!(
            probe_sched_ext(&kernel(&[1, 999])),
            Err(Fault::Prototype { .. })
        ));
    }

    #[test]
    fn a_kernel_without_sched_ext_is_told_from_a_broken_one() {
        let mut writer = Writer::new();
        writer.function("schedule", &[]);
        assert_eq!(
            probe_sched_ext(&writer.finish()),
            Err(Fault::Absent("scx_bpf_create_dsq"))
        );
    }

    #[test]
    fn no_cut_and_no_flipped_byte_panics() {
        let whole = kernel(&[1, 1]);
        for end in 0..whole.len() {
            assert!(probe_sched_ext(&whole[..end]).is_err(), "cut at {end}");
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut changed = whole.clone();
                changed[at] ^= 1 << bit;
                let _ = probe_sched_ext(&changed);
            }
        }
    }
}
