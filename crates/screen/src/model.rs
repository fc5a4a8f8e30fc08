// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What another limit, burst or period would do: a period model of demand.
//!
//! Problem: cpu.stat says how much was used and in how many periods the group was throttled, each 15 to 60 s. It does
//! not say what work came when.
//!
//! Mechanism: `queue` gives the share of throttled periods for work that comes independently in pieces of size s. u is the use of
//! a sample; s is what makes the sum over all samples the number of throttled periods that was counted. Limit and burst need no
//! more.
//!
//! Another period needs to know how the work of longer times varies. Of independent pieces it is the same s at any length. But
//! pieces that come evenly add up to less, and rare large ones, which hardly count within a period, to more. The samples
//! themselves tell, whose length is L: use u varies from one to the next by u * S / L. Of R = S / s:
//!
//! ```text
//! s(T') = s * R ^ (ln(T'/T) / ln(L/T))                                                                  (5)
//! ```
//!
//! Where R > 1, a part 1 - 1/R of the variance is not that of pieces of size s. If it is all of rare large ones, exponential with
//! mean G, that find nothing else waiting, each is throttled in 1 / (exp((q - u T) / G) - 1) periods on average, and two
//! sums give G: the counted a = (u S T / 2 G^2) / (exp(x) - 1), x = (q - u T) / G, or
//!
//! ```text
//! x^2 / (exp(x) - 1) = 2 a (q - u T)^2 / (u S T)           the smaller root: the largest such pieces    (6)
//! ```
//!
//! The share under T' is between the two, geometrically, by the parts of the variance.
//!
//! But the kernel counts only periods in which the group ran: of the share a of all today, 1 - (1 - a)^(T'/T) of those that
//! last T', if one says nothing of the next.
//!
//! Trade-offs: the pieces of work are independent of each other within a sample, and what a period's end cuts in two counts
//! in the first. Bounds for another limit or burst say how far that may be off (`BEND`); those for another period say how far R
//! may be off (`OFF`). Where pieces come evenly (`EVEN`), whatever holds one whole may end the throttling, and the lower bound is
//! zero. Limits: samples whose use is the limit hide how much was wanted; they get bounds only. Samples that are taken at other times
//! than they say seem to vary, so R is too large then, and bounds for another period reach too high.
use crate::digest::{Digest, Pairs};
use crate::queue::{throttled_by, SIZE};
use schemars::JsonSchema;
use serde::Serialize;

/// A setting to be asked about. CPUs and seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Change {
    pub limit: f64,
    pub period_s: f64,
    pub burst_s: f64,
}

/// Share of periods that end with the group throttled on a CPU. Nine of ten are expected between `low` and `high`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Estimate {
    pub share: f64,
    pub low: f64,
    pub high: f64,
}

/// A change of limit or burst by the factor r in the model is taken for one between r to the first and r to the second power. Fitted
/// on seeds 1 to 600 of `examples/known`; docs/src/lab/screen.md has what others give.
pub const BEND: (f64, f64) = (0.5, 3.0);

/// R of label (5) is known to this factor, up and down: it is drawn from some tens of samples, and between a period and a sample
/// the variance need not go as a power. Fitted likewise.
const OFF: f64 = 2.5;

/// Below this R pieces come evenly. Fitted likewise.
const EVEN: f64 = 0.25;

/// What is taken for R where too few samples tell: heavy-tailed work has this much.
const RS: (f64, f64) = (1e-4, 100.0);

/// Below this share of the quota something is left over, and burst may have saved all that is needed.
const ALL_USED: f64 = 0.995;

/// From this share of the quota on a sample hides how much was wanted.
pub const SATURATED: f64 = 0.93;

/// So does, whatever was used, throttling in this share of a sample's periods.
const STANDING: f64 = 0.7;

/// The demand behind a container's samples.
#[derive(Clone, Debug)]
pub struct Demand {
    today: Change,
    /// Use in CPUs, elapsed periods (of today's length), throttled ones.
    samples: Vec<(f64, f64, f64)>,
    /// Likewise, of those that used the limit.
    saturated: Vec<(f64, f64, f64)>,
    counted: f64,
    /// Periods that passed, counted or not.
    passed: f64,
    throttled: f64,
    /// CPU time of a piece of work, seconds.
    size_s: f64,
    /// R of label (5); `None`: too few samples tell.
    unevenness: Option<f64>,
    /// Of a sample, seconds: L of label (5).
    length_s: f64,
}

impl Demand {
    /// `None`: no sample has periods beside it.
    pub fn fit(digest: &Digest, today: Change) -> Option<Demand> {
        let mut samples = Vec::new();
        let mut saturated = Vec::new();
        let (mut counted, mut passed, mut throttled) = (0.0, 0.0, 0.0);
        let (mut pairs, mut nr, mut length_s) = (Pairs::default(), 0, 0.0);
        for bin in digest.bins.values().filter(|bin| bin.limited_ms > 0) {
            let elapsed = bin.limited_ms as f64 / 1e3 / today.period_s;
            counted += bin.periods;
            passed += elapsed;
            throttled += bin.throttled;
            let one = (bin.used(), elapsed, bin.throttled);
            // Work that waits at the end of most periods hides the demand as well as use of all of the limit does.
            let hidden = bin.used() >= SATURATED * today.limit || bin.throttled >= STANDING * elapsed;
            nr += bin.samples;
            length_s += bin.ms as f64 / 1e3;
            match hidden {
                false => {
                    samples.push(one);
                    pairs.add(&bin.pairs);
                }
                true => saturated.push(one),
            }
        }
        if counted <= 0.0 {
            return None;
        }
        let mut demand = Demand {
            today,
            samples,
            saturated,
            counted,
            passed,
            throttled,
            size_s: 0.0,
            unevenness: None,
            length_s: length_s / nr.max(1) as f64,
        };
        let seen: f64 = demand.samples.iter().map(|one| one.2).sum();
        // Where nothing was throttled, what would have been seen in one case of twenty: the size is that at most.
        let wanted = seen.max(3.0);
        let quota_s = today.limit * today.period_s;
        let (mut low, mut high) = ((quota_s / SIZE.1).ln(), (quota_s / SIZE.0).ln());
        for _ in 0..40 {
            demand.size_s = ((low + high) / 2.0).exp();
            match demand.unsaturated(&today, demand.size_s) < wanted {
                true => low = demand.size_s.ln(),
                false => high = demand.size_s.ln(),
            }
        }
        demand.unevenness = pairs
            .size_s()
            .map(|size_s| (size_s / demand.size_s).clamp(RS.0, RS.1));
        Some(demand)
    }

    /// CPU time of a piece of work; the largest that is possible where nothing was throttled. Seconds.
    pub fn size_s(&self) -> f64 {
        self.size_s
    }

    /// The share of throttled periods that fell into samples whose use was the limit.
    pub fn saturated_share(&self) -> f64 {
        match self.throttled > 0.0 {
            true => self.saturated.iter().map(|one| one.2).sum::<f64>() / self.throttled,
            false => 0.0,
        }
    }

    /// Throttled periods, in periods of the change's length, of samples that show their demand, for pieces of that size.
    fn unsaturated(&self, change: &Change, size_s: f64) -> f64 {
        let sum = self
            .samples
            .iter()
            .map(|&(used, elapsed, _)| elapsed * throttled_by(used, change, size_s));
        sum.sum::<f64>() * self.today.period_s / change.period_s
    }

    /// Of all periods, throttled or not, the throttled share under a change, in units of today's; if R is that.
    fn changed_by(&self, change: &Change, unevenness: f64) -> f64 {
        let ratio = change.period_s / self.today.period_s;
        let power = ratio.ln() / (self.length_s / self.today.period_s).max(2.0).ln();
        let size_s = self.size_s * unevenness.powf(power);
        let today = self.unsaturated(&self.today, self.size_s).max(1e-300);
        let independent = (self.unsaturated(change, size_s) * ratio / today).max(1e-12);
        if ratio == 1.0 || unevenness <= 1.0 {
            return independent;
        }
        independent.powf(1.0 / unevenness) * self.large_by(change, unevenness).powf(1.0 - 1.0 / unevenness)
    }

    /// The same where all that is throttled is rare large pieces: label (6).
    fn large_by(&self, change: &Change, unevenness: f64) -> f64 {
        let elapsed: f64 = self.samples.iter().map(|one| one.1).sum();
        if elapsed <= 0.0 {
            return 1.0;
        }
        let sum = |of: &dyn Fn(&(f64, f64, f64)) -> f64| self.samples.iter().map(of).sum::<f64>();
        let used = sum(&|one| one.0 * one.1) / elapsed;
        let share = sum(&|one| one.2).max(1.0) / elapsed;
        let left_s = (self.today.limit - used) * self.today.period_s;
        let wanted = 2.0 * share * left_s * left_s / (used * self.size_s * unevenness * self.today.period_s);
        // The left side's largest value is there.
        let (mut low, mut high) = (0.0, 1.593_624_260_040_04_f64);
        for _ in 0..50 {
            let x: f64 = (low + high) / 2.0;
            match x * x / x.exp_m1() < wanted {
                true => low = x,
                false => high = x,
            }
        }
        let size_s = left_s / high;
        let throttled = |change: &Change| {
            let left_s = (change.limit - used).max(1e-3 * change.limit) * change.period_s;
            change.period_s * (-change.burst_s / size_s).exp() / (left_s / size_s).min(600.0).exp_m1()
        };
        (throttled(change) / throttled(&self.today)).max(1e-12)
    }

    /// What a change would do, and that between which bounds.
    pub fn estimate(&self, change: &Change) -> Estimate {
        // Shares are of the periods that are counted; where periods are longer there are fewer of them, throttled or not.
        let counts = (self.counted / self.passed).clamp(1e-6, 1.0);
        let counts_then = 1.0 - (1.0 - counts).powf(change.period_s / self.today.period_s);
        let seen: f64 = self.samples.iter().map(|one| one.2).sum();
        // What was counted is itself one draw of many: Poisson's spread, at least one that was not seen.
        let spread = 2.0 * (seen + 1.0).sqrt();
        let model = self.changed_by(change, self.unevenness.unwrap_or(1.0));
        let (least, most) = match change.period_s == self.today.period_s {
            true => {
                let (soft, hard) = (model.powf(BEND.0), model.powf(BEND.1));
                (soft.min(hard), soft.max(hard))
            }
            false => {
                let off = self.unevenness.map_or(RS, |r| (r / OFF, (r * OFF).max(1.0)));
                let (a, b) = (self.changed_by(change, off.0), self.changed_by(change, off.1));
                (a.min(model), b.max(model))
            }
        };
        let even = model < 1.0 && self.unevenness.is_none_or(|r| r < EVEN);
        let mut low = match even {
            true => 0.0,
            false => (seen - spread).max(0.0) * least,
        };
        let mut high = (seen + spread) * most;
        let mut share = seen * model;
        for &(used, elapsed, throttled) in &self.saturated {
            // As much as was used was wanted at least; how much more is not known.
            let least = elapsed * throttled_by(used, change, self.size_s);
            if change.limit > self.today.limit {
                high += elapsed.max(throttled);
                share += least.min(throttled);
            } else {
                let nothing_left =
                    used >= ALL_USED * self.today.limit || change.burst_s <= self.today.burst_s;
                low += if nothing_left {
                    least.min(throttled) * 0.5
                } else {
                    0.0
                };
                high += elapsed.max(throttled);
                share += throttled;
            }
        }
        let of = |periods: f64| (periods / self.counted * counts / counts_then).clamp(0.0, 1.0);
        Estimate {
            share: of(share),
            low: of(low.min(share)),
            high: of(high.max(share)),
        }
    }

    /// The smallest burst, in seconds, up to `most_s`, under which the share is at most `share` as modelled; `None`: none is.
    pub fn burst_for(&self, share: f64, most_s: f64) -> Option<f64> {
        let ok = |burst_s: f64| {
            self.estimate(&Change {
                burst_s,
                ..self.today
            })
            .share
                <= share
        };
        least(most_s, ok)
    }

    /// Likewise, the smallest limit in CPUs.
    pub fn limit_for(&self, share: f64, most: f64) -> Option<f64> {
        least(most, |limit| {
            self.estimate(&Change { limit, ..self.today }).share <= share
        })
    }
}

/// The least of so many steps up to `most` that holds.
fn least(most: f64, holds: impl Fn(f64) -> bool) -> Option<f64> {
    const STEPS: u32 = 40;
    if !holds(most) {
        return None;
    }
    let (mut no, mut yes) = (0, STEPS);
    while yes - no > 1 {
        let middle = (no + yes) / 2;
        match holds(most * f64::from(middle) / f64::from(STEPS)) {
            true => yes = middle,
            false => no = middle,
        }
    }
    Some(most * f64::from(yes) / f64::from(STEPS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clean::Growth;
    use crate::digest::Counters;
    use rand::{Rng, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    const SAMPLES: usize = 60;
    const PERIODS: usize = 300;
    const TODAY: Change = Change {
        limit: 1.0,
        period_s: 0.1,
        burst_s: 0.0,
    };

    /// What ran in each period of a limit of so many quotas, of work in quotas, and whether some was left at its end.
    fn queued(work: &[f64], quota: f64) -> Vec<(f64, bool)> {
        let mut left = 0.0;
        let run = work.iter().map(|work| {
            left += work;
            let ran = quota.min(left);
            left -= ran;
            (ran, left > 0.0)
        });
        run.collect()
    }

    /// The demand behind such work, as samples of 30 s show it, and what share of periods of 500 ms is throttled.
    fn demand(work: &[f64]) -> (Demand, f64) {
        let mut counters = Counters::default();
        for (i, periods) in queued(work, 1.0).chunks(PERIODS).enumerate() {
            let growth = |by: f64| Growth {
                end_ms: 30_000 * (i as i64 + 1),
                length_ms: 30_000,
                by,
            };
            let ran: f64 = periods.iter().map(|one| one.0).sum();
            counters.usage.push(growth(ran * 0.1));
            counters.periods.push(growth(PERIODS as f64));
            let throttled = periods.iter().filter(|one| one.1).count();
            counters.throttled.push(growth(throttled as f64));
        }
        let mut digest = Digest::default();
        digest.take(&counters, &mut crate::Faults::default());
        let longer: Vec<f64> = work.chunks(5).map(|five| five.iter().sum()).collect();
        let longer = queued(&longer, 5.0);
        let throttled = longer.iter().filter(|one| one.1).count() as f64 / longer.len() as f64;
        (Demand::fit(&digest, TODAY).expect("it has periods"), throttled)
    }

    fn longer(demand: &Demand) -> Estimate {
        demand.estimate(&Change {
            period_s: 0.5,
            ..TODAY
        })
    }

    /// The bounds contain what is throttled, and the estimate is within half of it.
    fn assert_holds(found: Estimate, throttled: f64) {
        assert!(
            found.low < throttled && throttled < found.high,
            "{found:?} {throttled}"
        );
        assert!(
            (found.share / throttled - 1.0).abs() < 0.5,
            "{found:?} {throttled}"
        );
    }

    #[test]
    fn a_longer_period_may_hold_each_of_pieces_that_come_evenly() {
        let work: Vec<f64> = (0..SAMPLES * PERIODS)
            .map(|i| if i % 3 == 0 { 1.2 } else { 0.0 })
            .collect();
        let (demand, throttled) = demand(&work);
        assert_eq!(throttled, 0.0);
        assert_eq!(longer(&demand).low, 0.0);
        assert!(longer(&demand).share < 0.01, "{:?}", longer(&demand));
    }

    /// Exponential pieces that come independently, so many in a period.
    fn pieces(rate: f64, size: f64, random: &mut Pcg64Mcg) -> Vec<f64> {
        let mut work = vec![0.0; SAMPLES * PERIODS];
        let mut at = 0.0;
        loop {
            at -= (1.0 - random.random::<f64>()).ln() / rate;
            match work.get_mut(at as usize) {
                Some(here) => *here -= size * (1.0 - random.random::<f64>()).ln(),
                None => return work,
            }
        }
    }

    #[test]
    fn a_longer_period_does_to_independent_pieces_what_the_queue_says() {
        let work = pieces(0.5, 1.0, &mut Pcg64Mcg::seed_from_u64(5));
        let (demand, throttled) = demand(&work);
        assert!(0.02 < throttled && throttled < 0.3, "{throttled}");
        assert_holds(longer(&demand), throttled);
    }

    #[test]
    fn a_longer_period_hardly_helps_against_pieces_of_many_quotas() {
        let mut random = Pcg64Mcg::seed_from_u64(5);
        let small = pieces(10.0, 0.03, &mut random);
        let large = pieces(0.02, 8.0, &mut random);
        let work: Vec<f64> = small.iter().zip(&large).map(|(a, b)| a + b).collect();
        let (demand, throttled) = demand(&work);
        assert!(throttled > 0.1, "{throttled}");
        assert_holds(longer(&demand), throttled);
    }
}
