// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The queue behind a limit: what share of periods is throttled, of how much is used in pieces of what size.
//!
//! Let D be the work that comes in a period, q the quota, b the burst. What the pool lacks of being full,
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
//! s, as work comes whose pieces are of size s. Then with rho = u / q, y = theta * s:
//!
//! ```text
//! -rho * ln(1 - y) = y                                                                                  (3)
//! P(Y > 0) = 1 - exp(-sum over n of P(Gamma(n * u / s) > n * q / s) / n)       (Spitzer)                (4)
//! ```
//!
//! Both depend on rho and q / s only: (4) is tabulated once. A Gamma process divides as time does, so the length of a period is
//! in q alone.
use crate::model::Change;
use statrs::function::gamma::gamma_ur;
use std::sync::OnceLock;

/// The share of periods at whose end somebody is throttled, where `used` CPUs are used in pieces of that size.
pub fn throttled_by(used: f64, change: &Change, size_s: f64) -> f64 {
    let rho = (used / change.limit).min(0.98);
    let waits = waiting(rho, change.limit * change.period_s / size_s);
    waits * (-decay(rho) * change.burst_s / size_s).exp()
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

/// Quota over size of a piece that is fitted: pieces of 50 quotas to fiftieths of one.
pub const SIZE: (f64, f64) = (0.02, 50.0);
/// What the table spans: a period of 1 s has ten of today's quotas, and holds even pieces as if they were smaller.
const SIZES: (f64, f64) = (0.02, 2000.0);
const RHOS: usize = 33;
const KAPPAS: usize = 97;

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
