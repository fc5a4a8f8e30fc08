// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Middle and spread of some values. Sums are taken in the order given, so that the bytes of results do not depend on threads.
//!
//! There are three kinds of percentile, each for what it is asked of: [`percentile_ns`] is one of the values (latencies: what a
//! request really took), [`quantile`] lies between two of them (the same figure of several runs), and the simulator's histograms
//! have HdrHistogram's.
#![warn(missing_docs)]

/// The mean; no number where there are no values.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Squared distance from the mean, of which one degree of freedom is used up; `None`: fewer than two values.
pub fn variance(values: &[f64]) -> Option<f64> {
    let middle = mean(values);
    let square = values.iter().map(|x| (x - middle) * (x - middle)).sum::<f64>();
    (values.len() > 1).then(|| square / (values.len() as f64 - 1.0))
}

/// The middle of the values, or halfway between the two in the middle; `None`: there are none.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = values.get(values.len() / 2)?;
    let lower = values[(values.len() - 1) / 2];
    Some((lower + upper) / 2.0)
}

/// The value in the middle, the larger one of two. Of at least one value; quicker than [`median`] where there are many.
pub fn upper_median(mut values: Vec<f64>) -> f64 {
    let middle = values.len() / 2;
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}

/// Which of so many ascending values is the nearest-rank percentile, from 0.
pub fn rank_of(percent: f64, count: usize) -> usize {
    // 99.9% of 1,000 come to a little more than 999 in binary fractions, and would be the largest.
    let rank = (percent * count as f64 / 100.0 - 1e-6).ceil() as usize;
    rank.clamp(1, count.max(1)) - 1
}

/// The nearest-rank percentile of ascending values; 0 of none.
pub fn percentile_ns(ascending: &[u64], percent: f64) -> u64 {
    ascending
        .get(rank_of(percent, ascending.len()))
        .copied()
        .unwrap_or(0)
}

/// What lies at a share (0 to 1) of the way from the first to the last of ascending values; `None`: there are none.
pub fn quantile(ascending: &[f64], share: f64) -> Option<f64> {
    let place = share * ascending.len().checked_sub(1)? as f64;
    let (low, high) = (
        ascending[place.floor() as usize],
        ascending[place.ceil() as usize],
    );
    Some(low + (high - low) * place.fract())
}

/// Student's t that 95% of values are below, by degrees of freedom; 0 of none.
pub fn student_95(degrees: usize) -> f64 {
    const TABLE: [f64; 10] = [
        6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812,
    ];
    match degrees {
        0 => 0.0,
        1..=10 => TABLE[degrees - 1],
        // Cornish and Fisher's expansion, within 0.002 from there on.
        _ => {
            let (z, v) = (1.644_854f64, degrees as f64);
            z + (z.powi(3) + z) / (4.0 * v) + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * v * v)
        }
    }
}

/// Of one figure over several runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct Spread {
    /// Of the runs.
    pub mean: f64,
    /// Standard deviation of one run; None for a single one, which says nothing of its spread.
    pub stdev: Option<f64>,
}

impl Spread {
    /// Of at least one value.
    pub fn of(values: &[f64]) -> Self {
        Spread {
            mean: mean(values),
            stdev: variance(values).map(f64::sqrt),
        }
    }

    /// A change in percent, as people read it: "+1.2% ±0.3".
    pub fn percent(&self) -> String {
        let stdev = self.stdev.map_or(String::new(), |stdev| format!(" ±{stdev:.1}"));
        format!("{:+.1}%{stdev}", self.mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_smallest_value_that_so_many_do_not_exceed() {
        for (percent, count, rank) in [
            (99.9, 1_000, 998),
            (99.9, 20_000, 19_979),
            (99.9, 1_001, 999),
            (99.0, 100, 98),
            (50.0, 3, 1),
            (100.0, 7, 6),
            (0.0, 7, 0),
            (50.0, 0, 0),
        ] {
            assert_eq!(rank_of(percent, count), rank, "{percent}% of {count}");
        }
        assert_eq!(percentile_ns(&[], 50.0), 0);
    }

    #[test]
    fn a_median_is_halfway_and_an_upper_one_is_a_value() {
        let values = vec![4.0, 1.0, 3.0, 2.0];
        assert_eq!((median(values.clone()), upper_median(values)), (Some(2.5), 3.0));
        assert_eq!((median(vec![7.0]), median(Vec::new())), (Some(7.0), None));
    }

    #[test]
    fn quantiles_lie_between_neighbours() {
        let ascending = [1.0, 2.0, 3.0, 4.0, 5.0];
        for (share, wanted) in [(0.0, 1.0), (0.05, 1.2), (0.5, 3.0), (0.95, 4.8), (1.0, 5.0)] {
            let found = quantile(&ascending, share).unwrap();
            assert!((found - wanted).abs() < 1e-12, "{share}: {found}");
        }
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn one_run_has_no_spread_and_two_have_that_of_one_degree() {
        assert_eq!(Spread::of(&[3.0]).stdev, None);
        let two = Spread::of(&[1.0, 3.0]);
        assert_eq!((two.mean, two.stdev), (2.0, Some(2f64.sqrt())));
        assert_eq!(two.percent(), "+2.0% ±1.4");
    }

    #[test]
    fn students_t_is_that_of_the_tables() {
        for (degrees, wanted) in [(1, 6.314), (10, 1.812), (11, 1.796), (20, 1.725), (120, 1.658)] {
            assert!((student_95(degrees) - wanted).abs() < 0.002, "{degrees}");
        }
    }
}
