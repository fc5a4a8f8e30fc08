// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Block bootstrap: other runs, made of blocks of time of a replicate that are drawn with replacement.
//!
//! A run is how many times it has each block. Its latencies are never laid out: a replicate's are sorted once, and a
//! percentile is found by counting down from the largest, which is near for those that are asked for.
use plimsoll_replay::{Outcome, Request};
use rand::Rng;
use rand_pcg::Pcg64;

const BLOCK_MIN_NS: u64 = 1_000_000_000;
/// Periods in a block, at least.
const BLOCK_PERIODS: u64 = 10;

/// A request of a replicate.
#[derive(Clone, Copy)]
pub(crate) struct Answered {
    pub latency_ns: u64,
    block: u32,
}

/// The latencies of a replicate, in blocks of time that are long beside a period. No block is empty.
pub(crate) struct Replicate {
    ascending: Vec<Answered>,
    /// Of each block: how many requests, and how long they took in all, ns.
    blocks: Vec<(usize, u64)>,
}

impl Replicate {
    /// Those of `class`, or all, of each replicate. None of one in which no request came: it says nothing of how long they
    /// take.
    pub fn all(replicates: &[Outcome], period_ns: u64, class: Option<u32>) -> Vec<Self> {
        let block_ns = BLOCK_MIN_NS.max(BLOCK_PERIODS * period_ns);
        let all = replicates.iter().map(|one| Self::new(one, block_ns, class));
        all.filter(|one| !one.blocks.is_empty()).collect()
    }

    fn new(outcome: &Outcome, block_ns: u64, class: Option<u32>) -> Self {
        // A short recording is cut into four at least: with one block there would be nothing to draw from.
        let block_ns = block_ns.min(outcome.busy_ns / 4 + 1);
        let last = outcome.busy_ns / block_ns;
        let mut blocks = vec![(0, 0); last as usize + 1];
        let kept = |request: &&Request| class.is_none_or(|class| class == request.class);
        let mut ascending: Vec<Answered> = (outcome.requests.iter().filter(kept))
            .map(|request| {
                let block = (request.begin_ns / block_ns).min(last);
                let (count, sum_ns) = &mut blocks[block as usize];
                *count += 1;
                *sum_ns += request.latency_ns;
                Answered {
                    latency_ns: request.latency_ns,
                    block: block as u32,
                }
            })
            .collect();
        ascending.sort_unstable_by_key(|one| one.latency_ns);
        let mut number = 0;
        let numbers: Vec<u32> = (blocks.iter())
            .map(|&(count, _)| {
                let own = number;
                number += u32::from(count > 0);
                own
            })
            .collect();
        for one in &mut ascending {
            one.block = numbers[one.block as usize];
        }
        blocks.retain(|&(count, _)| count > 0);
        Self { ascending, blocks }
    }

    pub fn ascending(&self) -> &[Answered] {
        &self.ascending
    }
}

/// One more run: as many blocks of one of the replicates as it has.
pub(crate) struct Run<'a> {
    /// Of the replicate.
    pub number: usize,
    replicate: &'a Replicate,
    /// Of each block, how often it was drawn.
    times: &'a [u32],
    len: usize,
}

impl<'a> Run<'a> {
    pub fn draw(replicates: &'a [Replicate], rng: &mut Pcg64, times: &'a mut Vec<u32>) -> Self {
        let number = rng.random_range(0..replicates.len());
        let replicate = &replicates[number];
        let count = replicate.blocks.len();
        times.clear();
        times.resize(count, 0);
        let mut len = 0;
        for _ in 0..count {
            let block = rng.random_range(0..count);
            times[block] += 1;
            len += replicate.blocks[block].0;
        }
        Self {
            number,
            replicate,
            times,
            len,
        }
    }

    /// Requests.
    pub fn len(&self) -> usize {
        self.len
    }

    fn times(&self, one: &Answered) -> usize {
        self.times[one.block as usize] as usize
    }

    /// The latency of that rank, from 0, of all in ascending order, ns.
    pub fn nth(&self, rank: usize) -> u64 {
        let mut left = self.len - rank;
        for one in self.replicate.ascending.iter().rev() {
            left = left.saturating_sub(self.times(one));
            if left == 0 {
                return one.latency_ns;
            }
        }
        unreachable!("a rank is below the number of requests")
    }

    pub fn count_above(&self, latency_ns: u64) -> usize {
        let largest = self.replicate.ascending.iter().rev();
        let above = largest.take_while(|one| one.latency_ns > latency_ns);
        above.map(|one| self.times(one)).sum()
    }

    /// The mean latency, ns.
    pub fn mean(&self) -> f64 {
        let drawn = self.times.iter().zip(&self.replicate.blocks);
        let sum_ns: u64 = drawn
            .map(|(&times, &(_, sum_ns))| u64::from(times) * sum_ns)
            .sum();
        sum_ns as f64 / self.len as f64
    }

    pub fn ascending(&self) -> Vec<u64> {
        let all = self.replicate.ascending.iter();
        all.flat_map(|one| std::iter::repeat_n(one.latency_ns, self.times(one)))
            .collect()
    }
}
