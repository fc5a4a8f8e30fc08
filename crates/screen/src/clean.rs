// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a counter's samples to what it grew by between two of them. What cannot be trusted is left out and counted.
use crate::digest::{FINE_MS, GAP_MS};
use schemars::JsonSchema;
use serde::Serialize;

/// Growth over (`end_ms - length_ms`, `end_ms`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    pub end_ms: i64,
    pub length_ms: i64,
    pub by: f64,
}

/// What was left out, in samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Faults {
    /// NaN, infinite or negative.
    pub not_numbers: u64,
    /// A counter that fell: the container began anew, or two of them share a name.
    pub resets: u64,
    /// The same time twice, or time that another series of the same container has covered.
    pub duplicates: u64,
    /// Not in order of time.
    pub unordered: u64,
    /// Before the beginning or after the end that was asked for: a clock is wrong.
    pub outside: u64,
    /// More than any machine can do: CPUs, or periods, in that time.
    pub impossible: u64,
    /// Periods and use that were not sampled together.
    pub unmatched: u64,
}

impl Faults {
    pub fn add(&mut self, other: &Faults) {
        self.not_numbers += other.not_numbers;
        self.resets += other.resets;
        self.duplicates += other.duplicates;
        self.unordered += other.unordered;
        self.outside += other.outside;
        self.impossible += other.impossible;
        self.unmatched += other.unmatched;
    }

    /// In words, the kinds that occurred; empty: none.
    pub fn list(&self) -> Vec<String> {
        [
            (self.not_numbers, "samples are not numbers"),
            (self.resets, "counter resets"),
            (self.duplicates, "samples come twice"),
            (self.unordered, "samples are out of order"),
            (self.outside, "samples lie outside the time asked for"),
            (self.impossible, "samples grow more than a machine can"),
            (self.unmatched, "samples of periods have none of use beside them"),
        ]
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect()
    }
}

/// Puts points into order of time, without those of no value. Equal times with equal values are one; with different values
/// which one is right is not known, so neither stays.
pub fn in_order(points: &mut Vec<(i64, f64)>, faults: &mut Faults) {
    let before = points.len();
    points.retain(|(_, value)| value.is_finite() && *value >= 0.0);
    faults.not_numbers += (before - points.len()) as u64;
    if !points.is_sorted_by_key(|(at_ms, _)| *at_ms) {
        faults.unordered += points.windows(2).filter(|two| two[1].0 < two[0].0).count() as u64;
        points.sort_by_key(|(at_ms, _)| *at_ms);
    }
    if points.windows(2).all(|two| two[0].0 < two[1].0) {
        return;
    }
    let mut kept: Vec<(i64, f64)> = Vec::with_capacity(points.len());
    for same in points.chunk_by(|a, b| a.0 == b.0) {
        faults.duplicates += same.len() as u64 - 1;
        if same.iter().all(|point| point.1 == same[0].1) {
            kept.push(same[0]);
        } else {
            faults.duplicates += 1;
        }
    }
    *points = kept;
}

/// What the counter grew by from each point to the next. A fall is a reset: how much came before it is not known.
pub fn growth(points: &[(i64, f64)], faults: &mut Faults) -> Vec<Growth> {
    let mut grown = Vec::with_capacity(points.len());
    for two in points.windows(2) {
        let by = two[1].1 - two[0].1;
        if by < 0.0 {
            faults.resets += 1;
            continue;
        }
        grown.push(Growth {
            end_ms: two[1].0,
            length_ms: two[1].0 - two[0].0,
            by,
        });
    }
    grown
}

/// Several series of one counter of one container, each with what tells it from the others: a container that began anew
/// has another id, and two Prometheus servers may have scraped the same one. Time that is covered is not covered again.
pub fn joined(mut parts: Vec<(String, Vec<Growth>)>, faults: &mut Faults) -> Vec<Growth> {
    if parts.len() == 1 {
        return parts.pop().expect("one").1;
    }
    let covered_ms = |part: &[Growth]| {
        let known = part.iter().filter(|one| one.length_ms <= GAP_MS);
        known.map(|one| one.length_ms).sum::<i64>()
    };
    let longest_ms = parts
        .iter()
        .map(|(_, part)| covered_ms(part))
        .max()
        .unwrap_or(0)
        .max(1);
    // Of two that say the same the one with fewer gaps; where they differ little the same one for every counter, so that
    // their samples belong together.
    parts.sort_by_cached_key(|(name, part)| (-(covered_ms(part) * 4 / longest_ms), name.clone()));
    // What one of them missed another may have seen: what it grew by over such a gap comes last.
    let (fine, coarse): (Vec<_>, Vec<_>) = parts
        .into_iter()
        .map(|(_, part)| {
            part.into_iter()
                .partition::<Vec<_>, _>(|one| one.length_ms <= *FINE_MS.end())
        })
        .unzip();
    let mut all: Vec<Growth> = Vec::new();
    for part in fine.into_iter().chain(coarse) {
        let mut next = 0;
        let mut free = Vec::with_capacity(part.len());
        for one in part {
            while next < all.len() && all[next].end_ms <= one.end_ms - one.length_ms {
                next += 1;
            }
            let overlaps = all
                .get(next)
                .is_some_and(|other| other.end_ms - other.length_ms < one.end_ms);
            match overlaps {
                true => faults.duplicates += 1,
                false => free.push(one),
            }
        }
        all.extend(free);
        all.sort_by_key(|one| one.end_ms);
    }
    all
}

/// One counter that is split by CPU: the sum where all have a value for the same stretch.
pub fn summed(parts: Vec<Vec<Growth>>) -> Vec<Growth> {
    let nr = parts.len();
    let mut all: Vec<Growth> = parts.into_iter().flatten().collect();
    all.sort_by_key(|one| (one.end_ms, one.length_ms));
    all.chunk_by(|a, b| (a.end_ms, a.length_ms) == (b.end_ms, b.length_ms))
        .filter(|same| same.len() == nr)
        .map(|same| Growth {
            by: same.iter().map(|one| one.by).sum(),
            ..same[0]
        })
        .collect()
}
