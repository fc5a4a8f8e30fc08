// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How often each value came: 3 significant digits, like HdrHistogram, and small while few values came.
use serde::{de::Error, Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;

/// Longer latencies are recorded as this.
pub(crate) const LATENCY_MAX_NS: u64 = 2 * 86_400_000_000_000;

/// As many different values, 4 KiB of them, are kept as a list. HdrHistogram has room for every value up to the largest:
/// 100 KiB for 15 ms, and a machine may have thousands of workloads that each wait a few times.
const LIST_MAX: usize = 256;

/// Significant bits of 3 decimal digits: HdrHistogram's 2048 steps.
const DIGIT_BITS: u32 = 11;

/// Nanoseconds and how often each came, to 3 significant digits. Those above two days count as two days.
#[derive(Clone, Debug)]
pub struct Histogram(Kept);

#[derive(Clone, Debug)]
enum Kept {
    /// The lowest of the values that are not told apart, and their number, in order.
    List(Vec<(u64, u64)>),
    Whole(Box<hdrhistogram::Histogram<u64>>),
}

impl Default for Histogram {
    fn default() -> Self {
        Self(Kept::List(Vec::new()))
    }
}

impl Histogram {
    /// Adds a value, ns.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.record_n(ns, 1);
    }

    /// Adds a value `count` times.
    #[inline]
    pub fn record_n(&mut self, ns: u64, count: u64) {
        let ns = ns.min(LATENCY_MAX_NS);
        match &mut self.0 {
            Kept::Whole(whole) => add(whole, ns, count),
            Kept::List(_) => self.record_in_list(ns, count),
        }
    }

    fn record_in_list(&mut self, ns: u64, count: u64) {
        let Kept::List(list) = &mut self.0 else { return };
        let bits = u64::BITS - ns.leading_zeros();
        let cut = bits.saturating_sub(DIGIT_BITS);
        let value = ns >> cut << cut;
        match list.binary_search_by_key(&value, |&(value, _)| value) {
            Ok(at) => list[at].1 += count,
            Err(_) if count == 0 => {}
            Err(at) if list.len() < LIST_MAX => list.insert(at, (value, count)),
            Err(_) => {
                let mut whole = of_list(list);
                add(&mut whole, ns, count);
                self.0 = Kept::Whole(Box::new(whole));
            }
        }
    }

    /// Takes out every value.
    pub(crate) fn reset(&mut self) {
        match &mut self.0 {
            Kept::List(list) => list.clear(),
            Kept::Whole(whole) => whole.reset(),
        }
    }

    /// All of it as HdrHistogram has it. A caller that wants several quantiles asks this once.
    pub fn whole(&self) -> Cow<'_, hdrhistogram::Histogram<u64>> {
        match &self.0 {
            Kept::List(list) => Cow::Owned(of_list(list)),
            Kept::Whole(whole) => Cow::Borrowed(whole),
        }
    }

    /// How many values came.
    pub fn len(&self) -> u64 {
        match &self.0 {
            Kept::List(list) => list.iter().map(|(_, count)| count).sum(),
            Kept::Whole(whole) => whole.len(),
        }
    }

    /// Whether none came.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value, ns, that this share of all values (0 to 1) does not exceed; 0 if none came.
    pub fn value_at_quantile(&self, quantile: f64) -> u64 {
        self.whole().value_at_quantile(quantile)
    }

    /// ns; 0 if none came.
    pub fn mean(&self) -> f64 {
        self.whole().mean()
    }

    /// ns; 0 if none came.
    pub fn min(&self) -> u64 {
        match self.is_empty() {
            true => 0,
            false => self.whole().min(),
        }
    }

    /// ns; 0 if none came.
    pub fn max(&self) -> u64 {
        self.whole().max()
    }

    /// Each value that came, ns, the largest of those that are not told apart, and how often.
    fn counts(&self) -> Vec<(u64, u64)> {
        let whole = self.whole();
        let steps = whole.iter_recorded();
        steps
            .map(|step| (step.value_iterated_to(), step.count_at_value()))
            .collect()
    }
}

fn add(whole: &mut hdrhistogram::Histogram<u64>, ns: u64, count: u64) {
    whole
        .record_n(ns, count)
        .expect("a histogram that grows takes every value");
}

fn of_list(list: &[(u64, u64)]) -> hdrhistogram::Histogram<u64> {
    let mut whole = hdrhistogram::Histogram::new(3).expect("3 digits are in range");
    list.iter()
        .for_each(|&(value, count)| add(&mut whole, value, count));
    whole
}

/// The same values, however they are kept.
impl PartialEq for Histogram {
    fn eq(&self, other: &Self) -> bool {
        self.counts() == other.counts()
    }
}

/// As the list of its values and counts.
impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.counts())
    }
}

impl<'d> Deserialize<'d> for Histogram {
    fn deserialize<D: Deserializer<'d>>(from: D) -> Result<Self, D::Error> {
        let mut histogram = Self::default();
        for (value, count) in Vec::<(u64, u64)>::deserialize(from)? {
            // HdrHistogram names a value by the largest that it is not told apart from.
            if value > 2 * LATENCY_MAX_NS {
                return Err(D::Error::custom(format!(
                    "{value}: allowed are ns up to {LATENCY_MAX_NS}"
                )));
            }
            histogram.record_n(value, count);
        }
        Ok(histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever came, and however often the list was outgrown, everything that is asked is as HdrHistogram has it.
    #[test]
    fn a_list_answers_as_the_whole_does() {
        for (values, step) in [
            (0, 1),
            (1, 7),
            (100, 33_331),
            (256, 999_983),
            (257, 999_983),
            (3000, 77_777),
        ] {
            let (mut small, mut whole) = (Histogram::default(), of_list(&[]));
            for n in 0..values {
                let ns = n * n * step % 3_000_000_000;
                small.record(ns);
                add(&mut whole, ns, 1);
            }
            assert_eq!(small.len(), whole.len());
            assert_eq!(small.max(), whole.max());
            assert_eq!(small.mean().to_bits(), whole.mean().to_bits());
            assert_eq!(small.min(), if values == 0 { 0 } else { whole.min() });
            for percent in 0..=1000 {
                let quantile = percent as f64 / 1000.0;
                assert_eq!(
                    small.value_at_quantile(quantile),
                    whole.value_at_quantile(quantile)
                );
            }
            let text = serde_json::to_string(&small).unwrap();
            assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), small);
        }
    }

    #[test]
    fn few_values_take_little_room() {
        let mut histogram = Histogram::default();
        (0..10_000_000)
            .step_by(100_000)
            .for_each(|ns| histogram.record(ns));
        assert!(matches!(&histogram.0, Kept::List(list) if list.len() == 100));
    }
}
