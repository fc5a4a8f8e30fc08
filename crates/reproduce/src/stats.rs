// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mean and spread over seeds.

/// Over the runs of one row.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct Spread {
    pub mean: f64,
    /// Standard deviation of one run; None for a single one, which says nothing of its spread.
    pub stdev: Option<f64>,
}

impl Spread {
    /// Of at least one value; summed in the order given, so that the bytes do not depend on threads.
    pub fn of(values: &[f64]) -> Self {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let square = values.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>();
        let stdev = (values.len() > 1).then(|| (square / (n - 1.0)).sqrt());
        Spread { mean, stdev }
    }

    /// A change in percent, as people read it: "+1.2% ±0.3".
    pub fn percent(&self) -> String {
        let stdev = self.stdev.map_or(String::new(), |stdev| format!(" ±{stdev:.1}"));
        format!("{:+.1}%{stdev}", self.mean)
    }
}

/// The larger one; where nothing was measured (no number), that.
pub fn worse(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else {
        a.max(b)
    }
}

/// What a figure is called, as `number` writes it; in words where there is none.
pub fn shown(value: f64, number: impl FnOnce(f64) -> String) -> String {
    if value.is_finite() {
        number(value)
    } else {
        "nothing measured".to_string()
    }
}

/// The middle of the values; None if there are none.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_the_worst_wherever_it_stands() {
        assert!(worse(f64::NAN, 1.0).is_nan() && worse(1.0, f64::NAN).is_nan());
        assert_eq!(worse(1.0, 2.0), 2.0);
        assert_eq!(shown(-f64::NAN, |value| value.to_string()), "nothing measured");
    }
}
