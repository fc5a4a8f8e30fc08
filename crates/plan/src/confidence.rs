// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How sure a figure is: what it would have been in other runs as long as the recording.
//!
//! Two things differ from run to run even if the service does the same: where the period's boundaries fall, and which
//! stretch of its life is seen. The first is drawn anew for each replicate of the replay. The second is had by block
//! bootstrap: each replicate is cut into blocks, and as many blocks are drawn with replacement as there were. Blocks are
//! long compared with a period, so that what a throttling does to the requests behind it stays together.
//!
//! Three more things keep such a range from being narrower than what runs do:
//! - A percentile beyond all but a few of the requests is one of the largest. No resample holds a larger one than the
//!   recording, though the next run may: for the range's upper end, each distribution goes on above its last few values
//!   as an exponential one with the mean excess of those values (peaks over a threshold).
//! - What the replay itself is off by is known from the self-check, and is part of the range. So is what a prediction is
//!   allowed to be off by, [`ALLOWED_ERROR`]: a range that is narrower would promise more than is kept.
//! - The share of requests that a limit stalls may be off by as much. Where it lies beside the goal's share, the percentile
//!   jumps by the length of a throttling: the ends of the range are taken at shares that are off by so much.
//!
//! This is about one recording. What differs between recordings: [`crate::Recordings`].
use crate::resample::{Replicate, Run};
use plimsoll_replay::Outcome;
use plimsoll_stats::{percentile_ns, rank_of};
use rand::Rng;
use rand_pcg::Pcg64;
use schemars::JsonSchema;
use serde::Serialize;

/// Nine of ten runs are expected between the two.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Range {
    pub low: f64,
    pub middle: f64,
    pub high: f64,
}

/// By how much predicted tails are allowed to differ from real ones, relatively (`make verify-plan`).
const ALLOWED_ERROR: f64 = 0.15;

/// The percentile that has to be looked at so that `percent` still holds with more slow requests than predicted.
pub fn stricter(percent: f64) -> f64 {
    100.0 - (100.0 - percent) / (1.0 + ALLOWED_ERROR)
}

/// The same with fewer.
fn looser(percent: f64) -> f64 {
    (100.0 - (100.0 - percent) * (1.0 + ALLOWED_ERROR)).max(0.0)
}

const RESAMPLES: usize = 200;

/// Names this use of the seed.
const STREAM: u128 = 0x0062_6f6f_7473_7472_6170;

/// Values from which a tail is estimated, at most; a percentile with as many requests beyond needs none.
const TAIL: usize = 10;
/// Of fewer values the upper half is taken, but no fewer than these: one alone says nothing of a mean excess.
const TAIL_MIN: usize = 2;

/// With fewer requests a tail is estimated from less than that, and a range is rough.
pub const FEW_REQUESTS: u64 = 2 * TAIL as u64;

/// Where the largest values of a distribution begin, and by how much they exceed that on average.
#[derive(Clone, Copy)]
struct Tail {
    from_ns: u64,
    excess_ns: f64,
}

impl Tail {
    /// `None`: enough values lie beyond the percentile, or there are too few to say anything.
    fn of(replicate: &Replicate, percent: f64) -> Option<Tail> {
        let ascending = replicate.ascending();
        let beyond = (1.0 - percent / 100.0) * ascending.len() as f64;
        if beyond >= TAIL as f64 {
            return None;
        }
        let count = (ascending.len() / 2).clamp(TAIL_MIN, TAIL);
        let (below, tail) = ascending.split_at(ascending.len().checked_sub(count)?);
        let from_ns = below.last()?.latency_ns;
        let excess_ns = tail
            .iter()
            .map(|one| (one.latency_ns - from_ns) as f64)
            .sum::<f64>()
            / count as f64;
        Some(Tail { from_ns, excess_ns })
    }

    /// The latency of that rank in a run of which all above `from_ns` are drawn anew.
    fn nth(&self, run: &Run, rank: usize, rng: &mut Pcg64) -> u64 {
        let above = run.count_above(self.from_ns);
        let mut drawn: Vec<u64> = (0..above).map(|_| self.draw(rng)).collect();
        match rank.checked_sub(run.len() - above) {
            Some(rank) => *drawn.select_nth_unstable(rank).1,
            None => run.nth(rank),
        }
    }

    fn draw(&self, rng: &mut Pcg64) -> u64 {
        self.from_ns + (-self.excess_ns * (1.0 - rng.random::<f64>()).ln()) as u64
    }
}

/// Range of a percentile of the latencies of `class`, or of all, over replicates of one setting. `known_error`: what was
/// recorded, over what the replay of the recorded settings shows. `None`: no requests.
pub fn percentile_range(
    replicates: &[Outcome],
    percent: f64,
    class: Option<u32>,
    period_ns: u64,
    known_error: f64,
    seed: u64,
) -> Option<Range> {
    let replicates = Replicate::all(replicates, period_ns, class);
    if replicates.is_empty() {
        return None;
    }
    let tails: Vec<Option<Tail>> = replicates
        .iter()
        .map(|own| Tail::of(own, stricter(percent)))
        .collect();
    let mut rng = Pcg64::new(u128::from(seed), STREAM);
    let [mut lowest, mut found, mut highest] = [(); 3].map(|()| Vec::with_capacity(RESAMPLES));
    let mut times = Vec::new();
    for _ in 0..RESAMPLES {
        let run = Run::draw(&replicates, &mut rng, &mut times);
        let rank = |percent| rank_of(percent, run.len());
        lowest.push(run.nth(rank(looser(percent))));
        found.push(run.nth(rank(percent)));
        highest.push(match &tails[run.number] {
            Some(tail) => tail.nth(&run, rank(stricter(percent)), &mut rng),
            None => run.nth(rank(stricter(percent))),
        });
    }
    for values in [&mut lowest, &mut found, &mut highest] {
        values.sort_unstable();
    }
    let middle = percentile_ns(&found, 50.0) as f64;
    let low = percentile_ns(&lowest, 5.0) as f64;
    let high = percentile_ns(&highest, 95.0).max(percentile_ns(&found, 95.0)) as f64;
    Some(allow(Range { low, middle, high }, known_error))
}

/// A range with what the replay is known to be off by in it, and what a prediction may be off by.
fn allow(range: Range, known_error: f64) -> Range {
    let Range { low, middle, high } = range;
    Range {
        low: (low * known_error.min(1.0)).min(middle / (1.0 + ALLOWED_ERROR)),
        middle,
        high: (high * known_error.max(1.0)).max(middle * (1.0 + ALLOWED_ERROR)),
    }
}

/// The mean of some latencies, ns; 0 of none.
pub fn mean(latencies_ns: &[u64]) -> f64 {
    latencies_ns.iter().sum::<u64>() as f64 / latencies_ns.len().max(1) as f64
}

/// Range of the mean latency of `class`, or of all, over replicates of one setting; `known_error` as above. A mean needs
/// no tail: few requests move it little. `None`: no requests.
pub fn mean_range(
    replicates: &[Outcome],
    class: Option<u32>,
    period_ns: u64,
    known_error: f64,
    seed: u64,
) -> Option<Range> {
    let replicates = Replicate::all(replicates, period_ns, class);
    if replicates.is_empty() {
        return None;
    }
    let mut rng = Pcg64::new(u128::from(seed), STREAM);
    let mut times = Vec::new();
    let mut means = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        means.push(Run::draw(&replicates, &mut rng, &mut times).mean());
    }
    means.sort_by(f64::total_cmp);
    let at = |percent| means[rank_of(percent, means.len())];
    let (low, middle, high) = (at(5.0), at(50.0), at(95.0));
    Some(allow(Range { low, middle, high }, known_error))
}

/// Latencies of as many other runs, ascending: block-bootstrap resamples of the replicates, for tools that make other
/// figures of them than percentiles. None where there are no requests.
pub fn resample(replicates: &[Outcome], count: usize, period_ns: u64, seed: u64) -> Vec<Vec<u64>> {
    let replicates = Replicate::all(replicates, period_ns, None);
    let mut rng = Pcg64::new(u128::from(seed), STREAM);
    let count = if replicates.is_empty() { 0 } else { count };
    let mut times = Vec::new();
    (0..count)
        .map(|_| Run::draw(&replicates, &mut rng, &mut times).ascending())
        .collect()
}

/// What nine of ten measured shares of throttled periods and CPU uses lay inside of, beyond the smallest and the largest
/// that replays gave. Of 165 measured runs (`bench/ranges_held.py`, docs/src/lab/plan.md, "Ranges")
/// 128 and 87 lay between those two, 152 and 154 inside with this.
const THROTTLED_POINTS: f64 = 0.005;
/// Further, as a share of how far the end is from none or all of the periods: what is decided in every period is predicted
/// better than what is decided in some.
const THROTTLED_SHARE: f64 = 0.05;
const CPUS_OFF: f64 = 0.02;

/// By how much a share of throttled periods may be off in another run.
fn throttled_off(share: f64) -> f64 {
    THROTTLED_POINTS + THROTTLED_SHARE * share.min(1.0 - share)
}

/// The share of throttled periods that has to do so that `share` in one replay still does in nine of ten runs. What is
/// never throttled stays so: of 29 measured runs of which no replay had a throttled period, 26 had none either.
pub fn throttled_at_most(share: f64) -> f64 {
    match share > 0.0 {
        true => (share + throttled_off(share)).min(1.0),
        false => 0.0,
    }
}

/// What nine of ten runs do where replays lie in this range: shares of throttled periods.
pub fn allow_throttled(range: Range) -> Range {
    Range {
        low: (range.low - throttled_off(range.low)).max(0.0),
        high: throttled_at_most(range.high),
        ..range
    }
}

/// Likewise of the CPUs that are used.
pub fn allow_cpus(range: Range) -> Range {
    Range {
        low: range.low * (1.0 - CPUS_OFF),
        high: range.high * (1.0 + CPUS_OFF),
        ..range
    }
}

/// From the smallest to the largest of a figure of which each replicate gives one value: no more than replays show.
pub fn value_range(values: &[f64]) -> Option<Range> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(Range {
        low: *sorted.first()?,
        middle: sorted[sorted.len() / 2],
        high: *sorted.last()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_replay::Request;

    fn outcome(latencies: impl Iterator<Item = u64>) -> Outcome {
        let request = |(i, latency_ns): (usize, u64)| Request {
            begin_ns: i as u64 * 10_000_000,
            latency_ns,
            class: 0,
            done: true,
        };
        let requests: Vec<Request> = latencies.enumerate().map(request).collect();
        let end_ns = requests.len() as u64 * 10_000_000;
        Outcome {
            requests,
            groups: Vec::new(),
            end_ns,
            busy_ns: end_ns,
            work_done: 1.0,
            events: 0,
        }
    }

    fn p99(outcome: Outcome, known_error: f64) -> Range {
        percentile_range(&[outcome], 99.0, None, 100_000_000, known_error, 1).expect("there are requests")
    }

    #[test]
    fn largest_of_few_requests_may_be_exceeded_and_the_range_says_so() {
        // The 99th percentile of 50 is the largest.
        let found = p99(outcome((0..50).map(|i| 1_000 + i * 7 % 50 * 10)), 1.0);
        assert!(found.high > 1_490.0, "{found:?}");
        assert!(found.high < 3_000.0, "{found:?}");
    }

    /// The largest of twelve is exceeded by that of the next twelve in half of all cases, by as much as they differ.
    #[test]
    fn very_few_requests_make_the_range_wider_not_narrower() {
        let of = |count: u64| {
            p99(
                outcome((0..count).map(|i| 1_000 + i * 7 % count * 1_000 / count)),
                1.0,
            )
        };
        for count in [3, 4, 12, 19] {
            let (few, more) = (of(count), of(24));
            assert!(few.high > 1_950.0 * 1.15, "{count}: {few:?}");
            assert!(few.high > 0.9 * more.high, "{count}: {few:?}, of 24 {more:?}");
        }
        // Nothing can be said of how two differ from a third.
        let two = Replicate::all(&[outcome([1_000, 2_000].into_iter())], 100_000_000, None);
        assert!(Tail::of(&two[0], 99.0).is_none());
    }

    #[test]
    fn replicate_without_requests_leaves_the_range_to_those_that_have_some() {
        let some = || outcome((0..100).map(|i| 1_000 + i));
        let with = [outcome(std::iter::empty()), some(), some()];
        let of = |replicates: &[Outcome]| percentile_range(replicates, 99.0, None, 1, 1.0, 1);
        let middle = of(&with).expect("two have some").middle;
        assert!((1_095.0..1_100.0).contains(&middle), "{middle}");
        assert!(mean_range(&with, None, 1, 1.0, 1).is_some());
        assert_eq!(of(&with[..1]), None);
        assert!(resample(&with[..1], 5, 1, 1).is_empty());
    }

    #[test]
    fn share_of_throttled_periods_is_less_sure_than_a_few_replays_make_it_look_unless_it_is_none() {
        let of = |low: f64, high: f64| {
            let middle = (low + high) / 2.0;
            allow_throttled(Range { low, middle, high })
        };
        let near = |value: f64, wanted: f64| (value - wanted).abs() < 1e-9;
        let some = of(0.2, 0.6);
        assert!(
            near(some.low, 0.185) && near(some.high, 0.625) && near(some.middle, 0.4),
            "{some:?}"
        );
        let rarely = of(0.0, 0.002);
        assert!(rarely.low == 0.0 && near(rarely.high, 0.0071), "{rarely:?}");
        let mostly = of(0.99, 1.0);
        assert!(near(mostly.low, 0.9845) && mostly.high == 1.0, "{mostly:?}");
        assert_eq!((of(0.0, 0.0).low, of(0.0, 0.0).high), (0.0, 0.0));
    }

    #[test]
    fn percentile_with_many_requests_beyond_stays_near_what_was_seen() {
        let found = p99(outcome((0..5_000).map(|i| 1_000 + i * 2_741 % 5_000)), 1.0);
        assert!((5_900.0..=5_999.0).contains(&found.middle), "{found:?}");
        assert!(
            found.low >= 5_900.0 / 1.15 && found.high <= 5_999.0 * 1.15,
            "{found:?}"
        );
    }

    #[test]
    fn share_of_stalled_requests_beside_that_of_the_goal_is_no_certainty() {
        // One of so many takes 100 times as long, evenly spread.
        let stalled = |one_of: usize| {
            let latencies = (0..10_000).map(|i| 1_000 + 99_000 * u64::from(i % one_of == 0));
            p99(outcome(latencies), 1.0)
        };
        let fewer = stalled(111);
        assert!(fewer.middle == 1_000.0 && fewer.high == 100_000.0, "{fewer:?}");
        let more = stalled(91);
        assert!(more.middle == 100_000.0 && more.low == 1_000.0, "{more:?}");
        let few = stalled(150);
        assert!(few.high < 2_000.0, "{few:?}");
    }

    #[test]
    fn the_range_of_a_mean_allows_what_that_of_a_percentile_does() {
        let of = |latencies: Vec<u64>, known_error| {
            mean_range(
                &[outcome(latencies.into_iter())],
                None,
                100_000_000,
                known_error,
                1,
            )
            .unwrap()
        };
        let same = of(vec![1_000; 5_000], 1.0);
        assert_eq!(
            (same.low, same.middle, same.high),
            (1_000.0 / 1.15, 1_000.0, 1_000.0 * 1.15)
        );
        let off = of(vec![1_000; 5_000], 1.3);
        assert_eq!((off.low, off.high), (1_000.0 / 1.15, 1_300.0));
        // Half of the run takes ten times as long: which half is seen decides.
        let uneven = of(
            (0..5_000)
                .map(|i| if i < 2_500 { 1_000 } else { 10_000 })
                .collect(),
            1.0,
        );
        let allowed = allow(
            Range {
                low: 5_500.0,
                middle: 5_500.0,
                high: 5_500.0,
            },
            1.0,
        );
        assert!(
            uneven.low < allowed.low && uneven.high > allowed.high,
            "{uneven:?}"
        );
        assert!((5_000.0..6_000.0).contains(&uneven.middle), "{uneven:?}");
        assert_eq!(mean_range(&[outcome(std::iter::empty())], None, 1, 1.0, 1), None);
    }

    #[test]
    fn what_the_replay_is_known_to_be_off_by_is_in_the_range_and_so_is_what_it_may_be() {
        let same = |factor| p99(outcome((0..5_000).map(|_| 1_000)), factor);
        let (low, high) = (1_000.0 / 1.15, 1_000.0 * 1.15);
        assert_eq!((same(1.0).low, same(1.0).high), (low, high));
        assert_eq!(
            (same(0.8).low, same(0.8).middle, same(0.8).high),
            (800.0, 1_000.0, high)
        );
        assert_eq!((same(1.3).low, same(1.3).high), (low, 1_300.0));
    }
}
