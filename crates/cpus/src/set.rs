// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A set of CPUs, written like the kernel's lists: "0-3,8".
use std::fmt::{self, Display, Formatter};

/// No CPU of any machine has this number or a higher one. The kernel's own CONFIG_NR_CPUS ends at 8192.
pub const CPUS_MAX: u32 = 1 << 16;

/// CPUs numbered from 0.
#[derive(Clone, Debug, Default)]
pub struct CpuSet {
    words: Vec<u64>,
}

impl CpuSet {
    /// CPUs 0 .. nr_cpus - 1.
    pub fn all(nr_cpus: u32) -> Self {
        (0..nr_cpus).collect()
    }

    /// Adds a CPU.
    pub fn insert(&mut self, cpu: u32) {
        let word = cpu as usize / 64;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (cpu % 64);
    }

    /// Takes a CPU out, if it is in.
    pub fn remove(&mut self, cpu: u32) {
        if let Some(word) = self.words.get_mut(cpu as usize / 64) {
            *word &= !(1 << (cpu % 64));
        }
    }

    /// Whether a CPU is in.
    #[inline]
    pub fn contains(&self, cpu: u32) -> bool {
        self.words
            .get(cpu as usize / 64)
            .is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    /// CPUs that are in both.
    pub fn intersection(&self, other: &Self) -> Self {
        let words = self.words.iter().zip(&other.words).map(|(a, b)| a & b).collect();
        Self { words }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// How many there are.
    pub fn len(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// The 64 CPUs from `64 * index` on, one per bit.
    #[inline]
    pub fn word(&self, index: usize) -> u64 {
        self.words.get(index).copied().unwrap_or(0)
    }

    /// In ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().enumerate().flat_map(|(index, &word)| {
            std::iter::successors((word != 0).then_some(word), |rest| {
                let next = rest & (rest - 1);
                (next != 0).then_some(next)
            })
            .map(move |rest| index as u32 * 64 + rest.trailing_zeros())
        })
    }

    /// The lowest, by which a core or a cache is named.
    pub fn first(&self) -> Option<u32> {
        self.iter().next()
    }

    /// Reads a list as the kernel writes it: numbers and ranges, "0-3,8"; "" or "\n" is the empty set. Spaces around numbers
    /// and commas too many are passed over, as the kernel does. `None`: it is not a list, a range ends before it begins, or a
    /// CPU is [`CPUS_MAX`] or more.
    pub fn parse(list: &str) -> Option<Self> {
        let number = |text: &str| {
            let text = text.trim();
            // A sign is a number's for `parse`, not for the kernel.
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|cpu| is_number && *cpu < CPUS_MAX)
        };
        let mut set = Self::default();
        for part in list.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (number(first)?, number(last)?);
            if first > last {
                return None;
            }
            (first..=last).for_each(|cpu| set.insert(cpu));
        }
        Some(set)
    }
}

/// As a cpuset file has it: "0,1,4-7".
impl Display for CpuSet {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for cpu in self.iter() {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => runs.push((cpu, cpu)),
            }
        }
        for (at, (first, last)) in runs.into_iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

/// By what is in them; words that hold nothing do not count.
impl PartialEq for CpuSet {
    fn eq(&self, other: &Self) -> bool {
        let words = self.words.len().max(other.words.len());
        (0..words).all(|index| self.word(index) == other.word(index))
    }
}

impl Eq for CpuSet {}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        let mut set = Self::default();
        cpus.into_iter().for_each(|cpu| set.insert(cpu));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        for (list, cpus) in [
            ("0-2, 64,130-131", &[0, 1, 2, 64, 130, 131][..]),
            ("0-3,8,10-11\n", &[0, 1, 2, 3, 8, 10, 11]),
            ("0\n", &[0]),
            (" 1 - 2 ,,5,", &[1, 2, 5]),
            ("65535", &[65535]),
            ("", &[]),
            ("\n", &[]),
        ] {
            let set = CpuSet::parse(list).unwrap_or_else(|| panic!("{list:?}"));
            assert_eq!(set.iter().collect::<Vec<_>>(), cpus, "{list:?}");
            assert_eq!(set.len() as usize, cpus.len());
            assert_eq!(set.first(), cpus.first().copied());
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for list in [
            "x",
            "0-x",
            "3-1",
            "+1",
            "-1",
            "1-",
            "0-65536",
            "65536",
            "0-4294967296",
            "1 2",
            "0-3:1/2",
        ] {
            assert_eq!(CpuSet::parse(list), None, "{list:?}");
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for list in ["", "0", "0,1", "0-2", "0,1,4-7,63-65,130"] {
            assert_eq!(CpuSet::parse(list).unwrap().to_string(), list);
        }
    }

    #[test]
    fn sets_are_equal_by_what_is_in_them() {
        let mut set = CpuSet::parse("0,200").unwrap();
        set.remove(200);
        assert_eq!(set, CpuSet::all(1));
    }
}
