// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What another limit, burst or period would do: a period model of demand.
//!
//! Problem: cpu.stat says how much was used and in how many periods the group was throttled, each 15 to 60 s. It does
//! not say what work came when.
//!
//! Mechanism. Let D be the work that comes in a period, q the quota, b the burst. What the pool lacks of being full,
//! Y = (q + b) - pool, after what was used of it and with the work that waits counted in, goes as a queue does (Lindley):
//!
//! ```text
//! Y' = max(Y + D - q, 0)               throttled as a period ends: Y > b                                (1)
//! ```
//!
//! That is the rule of the burst series, u_j + ... + u_k <= B_j + quota * N(j,k), read from the side of demand. Y does not
//! depend on b, so burst only moves the bound. As tails of such queues fall exponentially:
//!
//! ```text
//! P(throttled) = P(Y > 0) * exp(-theta * b),   theta > 0 with  E exp(theta * (D - q)) = 1               (2)
//! ```
//!
//! exactly so where what overshoots q has an exponential distribution. D is taken as Gamma distributed with mean u and scale
//! s, as work comes whose pieces are of size s: u is the use of a sample, s is fitted. Then with rho = u / q, y = theta * s:
//!
//! ```text
//! -rho * ln(1 - y) = y                                                                                  (3)
//! P(Y > 0) = 1 - exp(-sum over n of P(Gamma(n * u / s) > n * q / s) / n)       (Spitzer)                (4)
//! ```
//!
//! Both depend on rho and q / s only: (4) is tabulated once. Over all samples, s is what makes the sum of (4) the number of
//! throttled periods that was counted. A Gamma process divides as time does, so a period of another length needs no more.
//! But the kernel counts only periods in which the group ran: of the share a of all today, 1 - (1 - a)^(T'/T) of those that
//! last T', if one says nothing of the next.
//!
//! Trade-offs: the pieces of work are independent of each other within a sample, and what a period's end cuts in two counts
//! in the first. `BEND` says how far it may be off, and gives the bounds. Limits: samples whose use is the limit hide
//! how much was wanted; they get bounds only.
use crate::digest::Digest;
use schemars::JsonSchema;
use serde::Serialize;
use statrs::function::gamma::gamma_ur;
use std::sync::OnceLock;

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

/// A change by the factor r in the model is taken for one between r to the first and r to the second power. Set by judgement;
/// `examples/known.rs` counts how often that holds (docs/src/lab/screen.md has the figures).
pub const BEND: (f64, f64) = (0.35, 3.0);

/// The first power for another period: which work falls into one is less sure than what a limit or a burst holds.
const PERIOD_BEND: f64 = 0.25;

/// Below this share of the quota something is left over, and burst may have saved all that is needed.
const ALL_USED: f64 = 0.995;

/// From this share of the quota on a sample hides how much was wanted.
const SATURATED: f64 = 0.93;

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
}

impl Demand {
    /// `None`: no sample has periods beside it.
    pub fn fit(digest: &Digest, today: Change) -> Option<Demand> {
        let mut samples = Vec::new();
        let mut saturated = Vec::new();
        let (mut counted, mut passed, mut throttled) = (0.0, 0.0, 0.0);
        for bin in digest.bins.values().filter(|bin| bin.limited_ms > 0) {
            let elapsed = bin.limited_ms as f64 / 1e3 / today.period_s;
            counted += bin.periods;
            passed += elapsed;
            throttled += bin.throttled;
            let one = (bin.used(), elapsed, bin.throttled);
            // Work that waits at the end of most periods hides the demand as well as use of all of the limit does.
            let hidden = bin.used() >= SATURATED * today.limit || bin.throttled >= STANDING * elapsed;
            match hidden {
                false => samples.push(one),
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
        };
        let seen: f64 = demand.samples.iter().map(|one| one.2).sum();
        // Where nothing was throttled, what would have been seen in one case of twenty: the size is that at most.
        let wanted = seen.max(3.0);
        let quota_s = today.limit * today.period_s;
        let (mut low, mut high) = ((quota_s / SIZES.1).ln(), (quota_s / SIZES.0).ln());
        for _ in 0..40 {
            demand.size_s = ((low + high) / 2.0).exp();
            match demand.unsaturated(&today) < wanted {
                true => low = demand.size_s.ln(),
                false => high = demand.size_s.ln(),
            }
        }
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

    /// Throttled periods, in periods of the change's length, of samples that show their demand.
    fn unsaturated(&self, change: &Change) -> f64 {
        let sum = self
            .samples
            .iter()
            .map(|&(used, elapsed, _)| elapsed * self.throttled_by(used, change));
        sum.sum::<f64>() * self.today.period_s / change.period_s
    }

    fn throttled_by(&self, used: f64, change: &Change) -> f64 {
        let rho = (used / change.limit).min(0.98);
        let waits = waiting(rho, change.limit * change.period_s / self.size_s);
        waits * (-decay(rho) * change.burst_s / self.size_s).exp()
    }

    /// What a change would do, and that between which bounds.
    pub fn estimate(&self, change: &Change) -> Estimate {
        // Shares are of the periods that are counted; where periods are longer there are fewer of them, throttled or not.
        let scale = self.today.period_s / change.period_s;
        let counts = (self.counted / self.passed).clamp(1e-6, 1.0);
        let counts_then = 1.0 - (1.0 - counts).powf(change.period_s / self.today.period_s);
        let seen: f64 = self.samples.iter().map(|one| one.2).sum();
        let today = self.unsaturated(&self.today).max(1e-300);
        let model = (self.unsaturated(change) / scale / today).max(1e-12);
        // What was counted is itself one draw of many: Poisson's spread, at least one that was not seen.
        let spread = 2.0 * (seen + 1.0).sqrt();
        let bend = match change.period_s == self.today.period_s {
            true => BEND.0,
            false => PERIOD_BEND,
        };
        let (soft, hard) = (model.powf(bend), model.powf(BEND.1));
        let mut low = (seen - spread).max(0.0) * soft.min(hard);
        let mut high = (seen + spread) * soft.max(hard);
        let mut share = seen * model;
        for &(used, elapsed, throttled) in &self.saturated {
            // As much as was used was wanted at least; how much more is not known.
            let least = elapsed * self.throttled_by(used, change);
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

/// Label (3): y of rho, between 0 and 1.
fn decay(rho: f64) -> f64 {
    let (mut low, mut high) = (1e-9, 1.0 - 1e-12);
    for _ in 0..60 {
        let y: f64 = (low + high) / 2.0;
        // Below the root the left side is smaller.
        match -rho * (-y).ln_1p() < y {
            true => low = y,
            false => high = y,
        }
    }
    low
}

/// Quota over size of a piece that the table spans: pieces of 50 quotas to fiftieths of one.
const SIZES: (f64, f64) = (0.02, 50.0);
const RHOS: usize = 33;
const KAPPAS: usize = 33;

/// Label (4) from a table, linear between its points: P(Y > 0) for rho = u / q and kappa = q / s.
fn waiting(rho: f64, kappa: f64) -> f64 {
    static TABLE: OnceLock<Vec<f64>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let points = (0..RHOS * KAPPAS).map(|i| {
            let (rho, kappa) = (rho_at(i / KAPPAS), kappa_at(i % KAPPAS));
            spitzer(rho, kappa).max(1e-15).ln()
        });
        points.collect()
    });
    let x = (rho / (1.0 - rho)).ln();
    let place = |value: f64, low: f64, high: f64, nr: usize| {
        ((value - low) / (high - low)).clamp(0.0, 1.0) * (nr - 1) as f64
    };
    let i = place(x, logit(0), logit(RHOS - 1), RHOS);
    let j = place(kappa.ln(), SIZES.0.ln(), SIZES.1.ln(), KAPPAS);
    let (i0, j0) = ((i as usize).min(RHOS - 2), (j as usize).min(KAPPAS - 2));
    let (fi, fj) = (i - i0 as f64, j - j0 as f64);
    let at = |i: usize, j: usize| table[i * KAPPAS + j];
    let low = at(i0, j0) * (1.0 - fj) + at(i0, j0 + 1) * fj;
    let high = at(i0 + 1, j0) * (1.0 - fj) + at(i0 + 1, j0 + 1) * fj;
    // Below the table what waits goes with what comes.
    let below = (rho / rho_at(0)).min(1.0);
    (low * (1.0 - fi) + high * fi).exp() * below
}

fn logit(i: usize) -> f64 {
    -4.0 + 8.0 * i as f64 / (RHOS - 1) as f64
}

fn rho_at(i: usize) -> f64 {
    1.0 / (1.0 + (-logit(i)).exp())
}

fn kappa_at(j: usize) -> f64 {
    (SIZES.0.ln() + (SIZES.1.ln() - SIZES.0.ln()) * j as f64 / (KAPPAS - 1) as f64).exp()
}

/// Label (4). The sum's terms change slowly: beyond the first ones it is taken in blocks that grow by a sixteenth.
fn spitzer(rho: f64, kappa: f64) -> f64 {
    let mut sum = 0.0;
    let mut n = 1.0_f64;
    let mut end = 2.0_f64;
    loop {
        let middle = (n + end - 1.0) / 2.0;
        let term = gamma_ur(middle * rho * kappa, middle * kappa) / middle * (end - n);
        sum += term;
        if term < 1e-10 * (end - n) && middle * kappa > 1.0 || n > 1e7 {
            break;
        }
        n = end;
        end = (n + (n / 16.0).floor().max(1.0)).floor();
    }
    1.0 - (-sum).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lindley's recursion itself, with pieces of work drawn from a Gamma distribution.
    fn drawn(rho: f64, kappa: f64, burst: f64) -> f64 {
        use rand::{Rng, SeedableRng};
        let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(7);
        let shape = rho * kappa;
        // Gamma of a small shape by Johnk's boost: Gamma(shape + 1) * U^(1 / shape), the former by Marsaglia and Tsang.
        let mut normal = || {
            let (a, b): (f64, f64) = (random.random(), random.random());
            (
                (-2.0 * (1.0 - a).ln()).sqrt() * (std::f64::consts::TAU * b).cos(),
                random.random::<f64>(),
                random.random::<f64>(),
            )
        };
        let mut gamma = || {
            let d = shape + 1.0 - 1.0 / 3.0;
            let c = 1.0 / (9.0 * d).sqrt();
            loop {
                let (x, u, boost) = normal();
                let v = (1.0 + c * x).powi(3);
                if v > 0.0 && u.ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                    return d * v * boost.powf(1.0 / shape);
                }
            }
        };
        let (mut y, mut over, nr) = (0.0_f64, 0, 400_000);
        for _ in 0..nr {
            y = (y + gamma() - kappa).max(0.0);
            over += u32::from(y > burst);
        }
        f64::from(over) / f64::from(nr)
    }

    #[test]
    fn table_and_decay_are_those_of_the_queue_itself() {
        for (rho, kappa, burst) in [
            (0.3, 1.0, 0.0),
            (0.5, 3.0, 0.0),
            (0.7, 0.4, 0.0),
            (0.8, 5.0, 0.0),
            (0.5, 1.0, 2.0),
            (0.7, 0.5, 3.0),
        ] {
            let model = waiting(rho, kappa) * (-decay(rho) * burst).exp();
            let drawn = drawn(rho, kappa, burst);
            // The decay is exact, its constant is not; the table's grid costs a few percent.
            assert!(
                (model / drawn - 1.0).abs() < 0.15,
                "rho {rho} kappa {kappa} burst {burst}: {model} {drawn}"
            );
        }
    }

    #[test]
    fn root_of_the_decay_solves_its_equation() {
        for rho in [0.05, 0.1, 0.5, 0.9, 0.98] {
            let y = decay(rho);
            assert!(
                y > 0.0 && y < 1.0 && (-rho * (-y).ln_1p() - y).abs() < 1e-6,
                "{rho}: {y}"
            );
        }
    }
}
