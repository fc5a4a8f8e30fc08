// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether what comes first in one order comes first in another.

/// Spearman's correlation of two orders: 1 the same, 0 unrelated.
pub fn correlation(pairs: &[(f64, f64)]) -> f64 {
    let (a, b): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let (a, b) = (ranks(&a), ranks(&b));
    let middle = (pairs.len() as f64 - 1.0) / 2.0;
    let sum =
        |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| (a - middle) * (b - middle)).sum() };
    sum(&a, &b) / (sum(&a, &a) * sum(&b, &b)).sqrt()
}

/// Equal values share the mean of their ranks.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut first = 0;
    for same in order.chunk_by(|&a, &b| values[a] == values[b]) {
        for &i in same {
            ranks[i] = first as f64 + (same.len() as f64 - 1.0) / 2.0;
        }
        first += same.len();
    }
    ranks
}

/// Of the sum of the second values, what those hold that come first by the first value, and what the largest hold.
pub fn first_hold(pairs: &[(f64, f64)], nr: usize) -> (f64, f64) {
    let sum = |pairs: &[(f64, f64)]| pairs.iter().map(|pair| pair.1).sum::<f64>();
    let all = sum(pairs);
    let best_by = |of: fn(&(f64, f64)) -> f64| {
        let mut sorted = pairs.to_vec();
        sorted.sort_by(|a, b| of(b).total_cmp(&of(a)));
        sorted.truncate(nr);
        sum(&sorted) / all
    };
    (best_by(|pair| pair.0), best_by(|pair| pair.1))
}
