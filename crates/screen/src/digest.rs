// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is kept of a container's samples: sums, and how often it used how much, with the throttled periods of each. Its
//! size does not grow with time.
use crate::clean::Growth;
use std::collections::BTreeMap;

/// Stretches between two samples that show bursts: the usual 15 to 60 s, and a missed scrape.
pub(crate) const FINE_MS: std::ops::RangeInclusive<i64> = 1_000..=125_000;
/// Longer ones are gaps: what happened in them is not known well enough even for a sum.
pub(crate) const GAP_MS: i64 = 15 * 60 * 1000;
/// Use is counted in classes of this ratio; an error of 4% in use is below that of the scrape's time stamps.
const RATIO: f64 = 1.08;
/// Of fewer pairs the size is off by more than the factor that bounds allow for (`model::OFF`) about once in ten times.
const PAIRS_MIN: u64 = 8;
/// CPUs; less is nothing.
const LEAST: f64 = 1e-4;

/// Samples whose use falls into one class.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bin {
    pub samples: u64,
    pub ms: i64,
    pub used_s: f64,
    /// Of these samples, how long there were periods beside them, and what those say.
    pub limited_ms: i64,
    pub periods: f64,
    pub throttled: f64,
    /// Of two samples in a row, the larger of which falls into this class.
    pub pairs: Pairs,
}

impl Bin {
    /// CPUs.
    pub fn used(&self) -> f64 {
        self.used_s * 1e3 / self.ms.max(1) as f64
    }
}

/// By how much use differs from one sample to the next. Neighbours, since a load that changes over the day is not what is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pairs {
    pub nr: u64,
    /// Sum of the squares of the differences, CPUs squared.
    squares: f64,
    /// What pieces of 1 s of CPU time that come independently would make of that sum.
    of_seconds: f64,
}

impl Pairs {
    /// Of use u in a sample of L seconds pieces of size s make a variance of u s / L.
    fn of(a: (f64, f64), b: (f64, f64)) -> Pairs {
        let ((used, length_s), (other, other_s)) = (a, b);
        Pairs {
            nr: 1,
            squares: (used - other).powi(2),
            of_seconds: (used + other) / 2.0 * (1.0 / length_s + 1.0 / other_s),
        }
    }

    pub fn add(&mut self, other: &Pairs) {
        self.nr += other.nr;
        self.squares += other.squares;
        self.of_seconds += other.of_seconds;
    }

    /// The size of a piece of work that makes use differ so, seconds; `None`: they are too few, or nothing ran.
    pub fn size_s(&self) -> Option<f64> {
        (self.nr >= PAIRS_MIN && self.of_seconds > 0.0).then(|| self.squares / self.of_seconds)
    }
}

#[derive(Clone, Debug, Default)]
pub struct Digest {
    /// By class of use; the class's number is its logarithm.
    pub bins: BTreeMap<u16, Bin>,
    /// Time with samples of use, gaps of up to 15 minutes included.
    pub covered_ms: i64,
    pub used_s: f64,
    /// The highest use between two samples, CPUs.
    pub used_max: f64,
    pub periods: f64,
    pub throttled: f64,
    /// `None`: the series is missing.
    pub throttled_s: Option<f64>,
    pub burst_periods: Option<f64>,
    /// `None`: no pressure stall information.
    pub waiting_s: Option<f64>,
    /// Periods and throttled ones by hour of the day, UTC.
    pub hours: [(f64, f64); 24],
    /// Whether the counters of periods were there at all.
    pub has_periods: bool,
}

/// All counters of one container over the same time.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    pub usage: Vec<Growth>,
    pub periods: Vec<Growth>,
    pub throttled: Vec<Growth>,
    pub throttled_s: Option<Vec<Growth>>,
    pub burst_periods: Option<Vec<Growth>>,
    pub waiting_s: Option<Vec<Growth>>,
}

impl Digest {
    /// Takes a stretch of time in. `unmatched` and `impossible` count what could not be used.
    pub fn take(&mut self, counters: &Counters, faults: &mut crate::Faults) {
        let mut periods = at(&counters.periods);
        let mut throttled = at(&counters.throttled);
        self.has_periods |= !counters.periods.is_empty() && !counters.throttled.is_empty();
        // Of the fine sample before: its end, use and length.
        let mut before: Option<(i64, (f64, f64))> = None;
        for growth in &counters.usage {
            let key = (growth.end_ms, growth.length_ms);
            let (periods, throttled) = (periods.next(key), throttled.next(key));
            let seconds = growth.length_ms as f64 / 1e3;
            let used = growth.by / seconds;
            if growth.length_ms <= 0 || growth.length_ms > GAP_MS {
                continue;
            }
            // The largest machines have some thousand CPUs.
            if used > 16_384.0 {
                faults.impossible += 1;
                continue;
            }
            self.covered_ms += growth.length_ms;
            self.used_s += growth.by;
            let fine = FINE_MS.contains(&growth.length_ms);
            let mut bin = Bin {
                samples: 1,
                ms: growth.length_ms,
                used_s: growth.by,
                ..Bin::default()
            };
            if fine {
                let own = (used, seconds);
                let near = |end_ms: i64| growth.end_ms - growth.length_ms - end_ms <= GAP_MS;
                if let Some((_, other)) = before.filter(|(end_ms, _)| near(*end_ms)) {
                    let larger = self.bins.entry(class(used.max(other.0))).or_default();
                    larger.pairs.add(&Pairs::of(own, other));
                }
                before = Some((growth.end_ms, own));
            }
            match (periods, throttled) {
                // Periods last 1 ms or more; two samples are not taken at the same moment of one.
                (Some(n), Some(t)) if n <= seconds * 1e3 + 2.0 && t <= n + 2.0 => {
                    self.periods += n;
                    self.throttled += t;
                    let hour = (growth.end_ms - growth.length_ms / 2).rem_euclid(86_400_000) / 3_600_000;
                    self.hours[hour as usize].0 += n;
                    self.hours[hour as usize].1 += t;
                    bin.limited_ms = growth.length_ms;
                    bin.periods = n;
                    bin.throttled = t;
                }
                (Some(_), Some(_)) => faults.impossible += 1,
                (None, None) => {}
                _ => faults.unmatched += 1,
            }
            if fine {
                self.used_max = self.used_max.max(used);
                self.bins.entry(class(used)).or_default().add(&bin);
            }
        }
        faults.unmatched += periods.missed + throttled.missed;
        for (sum, series) in [
            (&mut self.throttled_s, &counters.throttled_s),
            (&mut self.burst_periods, &counters.burst_periods),
            (&mut self.waiting_s, &counters.waiting_s),
        ] {
            if let Some(series) = series {
                let short = series.iter().filter(|growth| growth.length_ms <= GAP_MS);
                *sum.get_or_insert(0.0) += short.map(|growth| growth.by).sum::<f64>();
            }
        }
    }

    /// Another container of the same workload.
    pub fn add(&mut self, other: &Digest) {
        for (class, bin) in &other.bins {
            self.bins.entry(*class).or_default().add(bin);
        }
        self.covered_ms += other.covered_ms;
        self.used_s += other.used_s;
        self.used_max = self.used_max.max(other.used_max);
        self.periods += other.periods;
        self.throttled += other.throttled;
        for (sum, more) in [
            (&mut self.throttled_s, other.throttled_s),
            (&mut self.burst_periods, other.burst_periods),
            (&mut self.waiting_s, other.waiting_s),
        ] {
            if let Some(more) = more {
                *sum.get_or_insert(0.0) += more;
            }
        }
        for (hour, more) in self.hours.iter_mut().zip(other.hours) {
            hour.0 += more.0;
            hour.1 += more.1;
        }
        self.has_periods |= other.has_periods;
    }

    /// Samples at 1 to 125 s.
    pub fn fine_samples(&self) -> u64 {
        self.bins.values().map(|bin| bin.samples).sum()
    }

    /// CPUs, on average.
    pub fn used(&self) -> f64 {
        self.used_s * 1e3 / self.covered_ms.max(1) as f64
    }

    /// CPUs that are not exceeded in this share of the time, to the upper end of a class (8%).
    pub fn used_percentile(&self, share: f64) -> f64 {
        let all: i64 = self.bins.values().map(|bin| bin.ms).sum();
        let mut left = share * all as f64;
        for (class, bin) in &self.bins {
            left -= bin.ms as f64;
            if left <= 0.0 {
                return (LEAST * RATIO.powi(i32::from(*class))).min(self.used_max);
            }
        }
        self.used_max
    }

    /// Of the periods that were counted.
    pub fn throttled_share(&self) -> f64 {
        match self.periods > 0.0 {
            true => (self.throttled / self.periods).min(1.0),
            false => 0.0,
        }
    }

    /// The hour of the day (UTC) with the largest share of throttled periods, and that share.
    pub fn worst_hour(&self) -> Option<(usize, f64)> {
        let shares = self
            .hours
            .iter()
            .enumerate()
            .filter(|(_, (n, t))| *n > 0.0 && *t > 0.0);
        shares
            .map(|(hour, (n, t))| (hour, (t / n).min(1.0)))
            .max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

impl Bin {
    fn add(&mut self, other: &Bin) {
        self.samples += other.samples;
        self.ms += other.ms;
        self.used_s += other.used_s;
        self.limited_ms += other.limited_ms;
        self.periods += other.periods;
        self.throttled += other.throttled;
        self.pairs.add(&other.pairs);
    }
}

fn class(used: f64) -> u16 {
    match used > LEAST {
        true => ((used / LEAST).ln() / RATIO.ln()).ceil() as u16,
        false => 0,
    }
}

/// Values by their stretch of time, both in order.
struct At<'a> {
    series: &'a [Growth],
    missed: u64,
}

fn at(series: &[Growth]) -> At<'_> {
    At { series, missed: 0 }
}

impl At<'_> {
    fn next(&mut self, key: (i64, i64)) -> Option<f64> {
        while let Some(first) = self.series.first() {
            if first.end_ms > key.0 {
                return None;
            }
            let by = first.by;
            let same = (first.end_ms, first.length_ms) == key;
            self.series = &self.series[1..];
            if same {
                return Some(by);
            }
            self.missed += 1;
        }
        None
    }
}
