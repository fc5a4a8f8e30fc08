// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's shape, as tables that searches walk, and which CPUs of it are idle or overloaded.
use super::policy as pl;
use crate::config::PerDistance;
use crate::topology::{CpuPlace, Topology};

/// Levels that balancing knows: core, last-level cache, socket, machine.
pub(super) const LEVELS: usize = 4;

pub(super) struct Topo {
    pub places: Vec<CpuPlace>,
    /// CPUs of each last-level cache, ascending.
    pub llcs: Vec<Vec<u32>>,
    /// A CPU's number within its cache.
    pub in_llc: Vec<u32>,
    /// The other hardware threads of a CPU's core.
    pub siblings: Vec<Vec<u32>>,
    /// Caches of a CPU's socket but its own, and those of other sockets, nearest number first.
    pub socket_llcs: Vec<Vec<u32>>,
    pub remote_llcs: Vec<Vec<u32>>,
    pub nr_nodes: u32,
    pub smt: bool,
}

impl Topo {
    pub fn new(topology: &Topology) -> Self {
        let places = topology.cpus.clone();
        let nr_llcs = topology.nr_llcs() as usize;
        let mut llcs = vec![Vec::new(); nr_llcs];
        let mut in_llc = Vec::with_capacity(places.len());
        let nr_cores = places.iter().map(|p| p.core + 1).max().unwrap_or(0) as usize;
        let mut cores = vec![Vec::new(); nr_cores];
        for (cpu, place) in places.iter().enumerate() {
            in_llc.push(llcs[place.llc as usize].len() as u32);
            llcs[place.llc as usize].push(cpu as u32);
            cores[place.core as usize].push(cpu as u32);
        }
        let siblings: Vec<Vec<u32>> = places
            .iter()
            .enumerate()
            .map(|(cpu, place)| {
                let core = &cores[place.core as usize];
                core.iter()
                    .copied()
                    .filter(|&other| other != cpu as u32)
                    .collect()
            })
            .collect();
        let socket_of = |llc: usize| places[llcs[llc][0] as usize].socket;
        let others = |llc: usize, same_socket: bool| -> Vec<u32> {
            (1..nr_llcs)
                .map(|step| (llc + step) % nr_llcs)
                .filter(|&other| (socket_of(other) == socket_of(llc)) == same_socket)
                .map(|other| other as u32)
                .collect()
        };
        Self {
            smt: siblings.iter().any(|s| !s.is_empty()),
            socket_llcs: (0..nr_llcs).map(|llc| others(llc, true)).collect(),
            remote_llcs: (0..nr_llcs).map(|llc| others(llc, false)).collect(),
            nr_nodes: topology.nr_nodes(),
            siblings,
            in_llc,
            llcs,
            places,
        }
    }

    #[inline]
    pub fn llc(&self, cpu: u32) -> u32 {
        self.places[cpu as usize].llc
    }

    /// The part of a cost table that is for these two CPUs.
    #[inline]
    pub fn cost(&self, table: &PerDistance, a: u32, b: u32) -> u64 {
        if a == b {
            return 0;
        }
        let (x, y) = (&self.places[a as usize], &self.places[b as usize]);
        if x.core == y.core {
            table.core_ns
        } else if x.llc == y.llc {
            table.llc_ns
        } else if x.socket == y.socket {
            table.socket_ns
        } else {
            table.remote_ns
        }
    }

    /// Whether two CPUs are of different sockets.
    #[inline]
    pub fn far(&self, a: u32, b: u32) -> bool {
        self.places[a as usize].socket != self.places[b as usize].socket
    }

    /// CPUs in the domain of this level around a CPU.
    pub fn span(&self, cpu: u32, level: usize) -> u32 {
        let llc = self.llc(cpu) as usize;
        let sizes = |list: &[u32]| {
            list.iter()
                .map(|&l| self.llcs[l as usize].len() as u32)
                .sum::<u32>()
        };
        match level {
            0 => self.siblings[cpu as usize].len() as u32 + 1,
            1 => self.llcs[llc].len() as u32,
            2 => self.llcs[llc].len() as u32 + sizes(&self.socket_llcs[llc]),
            _ => self.places.len() as u32,
        }
    }
}

/// What is known of a last-level cache's CPUs at a glance; bits are numbers within the cache.
pub(super) struct LlcState {
    pub idle: Vec<u64>,
    /// CPUs of cores whose every thread is idle.
    pub idle_cores: Vec<u64>,
    /// What the fair class believes of `idle_cores`: it is told when a core falls idle, and forgets when a search
    /// finds none.
    pub believes_idle_cores: bool,
    /// Busy CPUs, averaged as the kernel averages utilisation: the machine was idle before the run.
    pub busy: pl::Pelt,
    pub nr_busy: u32,
    /// CPUs that others may take tasks from: the policy says when one becomes such. A sparsemask spreads them over
    /// cache lines for CPUs that write at once; here none do, and words are faster to walk.
    pub overloaded: Vec<u64>,
}

impl LlcState {
    pub fn new(nr_cpus: usize) -> Self {
        let words = nr_cpus.div_ceil(64);
        Self {
            idle: vec![0; words],
            idle_cores: vec![0; words],
            believes_idle_cores: true,
            busy: pl::zeroed(),
            nr_busy: 0,
            overloaded: vec![0; words],
        }
    }

    /// Counts the time until now with as many busy CPUs as before.
    pub fn count_busy(&mut self, now_ns: u64) {
        pl::pl_pelt_update(&mut self.busy, u64::from(self.nr_busy), now_ns);
    }
}

#[inline]
pub(super) fn set_bit(words: &mut [u64], bit: u32, on: bool) {
    let mask = 1u64 << (bit % 64);
    if on {
        words[bit as usize / 64] |= mask;
    } else {
        words[bit as usize / 64] &= !mask;
    }
}

#[inline]
pub(super) fn test_bit(words: &[u64], bit: u32) -> bool {
    words[bit as usize / 64] >> (bit % 64) & 1 == 1
}

/// Set bits from `from` on, wrapping around once; below `size`, which is at most 64 for each word.
#[inline]
pub(super) fn bits_from(words: &[u64], from: u32, size: u32) -> BitsFrom<'_> {
    let from = if from < size { from } else { 0 };
    let (index, below) = ((from / 64) as usize, (1 << (from % 64)) - 1);
    BitsFrom {
        rest: words.get(index).map_or(0, |word| word & !below),
        words,
        index,
        // The first word comes again at the end, for its bits below `from`.
        left: words.len(),
        below,
    }
}

/// See [`bits_from`].
pub(super) struct BitsFrom<'a> {
    words: &'a [u64],
    /// The word at hand, and those of its bits that are still to come.
    index: usize,
    rest: u64,
    /// Words to come.
    left: usize,
    below: u64,
}

impl Iterator for BitsFrom<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        while self.rest == 0 {
            if self.left == 0 {
                return None;
            }
            self.left -= 1;
            self.index = if self.index + 1 < self.words.len() {
                self.index + 1
            } else {
                0
            };
            self.rest = self.words[self.index];
            if self.left == 0 {
                self.rest &= self.below;
            }
        }
        let bit = self.rest.trailing_zeros();
        self.rest &= self.rest - 1;
        Some(self.index as u32 * 64 + bit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_over_bits_wraps_and_visits_each_once() {
        let words = [0b1001u64, 0b11, 1 << 63];
        let from = |f| bits_from(&words, f, 192).collect::<Vec<_>>();
        assert_eq!(from(0), [0, 3, 64, 65, 191]);
        assert_eq!(from(1), [3, 64, 65, 191, 0]);
        assert_eq!(from(65), [65, 191, 0, 3, 64]);
        assert_eq!(bits_from(&words[..1], 3, 64).collect::<Vec<_>>(), [3, 0]);
    }
}
