// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A set of CPUs, written like the kernel's lists: "0-3,8".

/// CPUs numbered from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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

    /// Reads a list of numbers and ranges: "0-3,8". `None`: it is not one.
    pub fn parse(list: &str) -> Option<Self> {
        let mut set = Self::default();
        for part in list.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            if first > last || last >= 1 << 16 {
                return None;
            }
            (first..=last).for_each(|cpu| set.insert(cpu));
        }
        Some(set)
    }
}

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
    fn list_is_read_like_the_kernels() {
        let set = CpuSet::parse("0-2, 64,130-131").unwrap();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 1, 2, 64, 130, 131]);
        assert_eq!(set.len(), 6);
        assert!(CpuSet::parse("3-1").is_none());
        assert!(CpuSet::parse("x").is_none());
    }
}
