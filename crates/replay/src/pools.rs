// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads among which a runtime moves its work, as Go, Tokio and executors do.
use plimsoll_trace::Timeline;
use std::collections::{BTreeMap, BTreeSet};

/// So many threads work at once that do so for this share of the time in which any does: one takes over from another before that sleeps.
const SHARE_MIN: f64 = 0.01;

/// Which threads do each other's work.
#[derive(Clone, Debug)]
pub(crate) struct Pools {
    /// Of each thread: its pool; `None`: it is alone.
    of: Vec<Option<u32>>,
    /// Of each pool: how many of its threads work at once.
    at_once: Vec<usize>,
}

impl Pools {
    pub fn none_of(nr_threads: usize) -> Pools {
        Pools {
            of: vec![None; nr_threads],
            at_once: Vec::new(),
        }
    }

    /// `moved`: threads among which work was moved. Those of one process are a pool if their names differ by their numbers alone.
    pub fn find(timeline: &Timeline, moved: &BTreeSet<u32>) -> Pools {
        let mut members: BTreeMap<(Option<u32>, &str), Vec<u32>> = BTreeMap::new();
        for &thread in moved {
            let known = &timeline.threads[thread as usize];
            let kind = known.comm.trim_end_matches(|c: char| !c.is_alphabetic());
            members.entry((known.tgid, kind)).or_default().push(thread);
        }
        let mut pools = Pools::none_of(timeline.threads.len());
        for own in members.into_values().filter(|own| own.len() > 1) {
            let pool = pools.at_once.len() as u32;
            own.iter()
                .for_each(|&thread| pools.of[thread as usize] = Some(pool));
            pools.at_once.push(at_once(timeline, &own));
        }
        pools
    }

    pub fn of(&self, thread: u32) -> Option<u32> {
        self.of[thread as usize]
    }

    /// How many threads of each pool work at once.
    pub fn at_once(&self) -> &[usize] {
        &self.at_once
    }

    pub fn is_empty(&self) -> bool {
        self.at_once.is_empty()
    }
}

/// How many of these threads had something to do at once.
fn at_once(timeline: &Timeline, threads: &[u32]) -> usize {
    let bursts = threads
        .iter()
        .flat_map(|&thread| &timeline.threads[thread as usize].bursts);
    let mut changes: Vec<(i64, bool)> = bursts
        .flat_map(|burst| [(burst.woken_ns, true), (burst.end_ns, false)])
        .collect();
    changes.sort_unstable();
    // For how long there were as many, and no more.
    let mut time_ns = vec![0; threads.len() + 1];
    let mut count = 0usize;
    for pair in changes.windows(2) {
        match pair[0].1 {
            true => count += 1,
            false => count = count.saturating_sub(1),
        }
        time_ns[count.min(threads.len())] += pair[1].0 - pair[0].0;
    }
    let all_ns: i64 = time_ns[1..].iter().sum();
    let at_least_ns = |count: usize| time_ns[count..].iter().sum::<i64>() as f64;
    let often = |count: &usize| at_least_ns(*count) >= SHARE_MIN * all_ns as f64;
    (1..time_ns.len()).rev().find(often).unwrap_or(1)
}
