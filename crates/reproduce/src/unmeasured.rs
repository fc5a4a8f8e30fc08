// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was not measured: no number, worse than any, and shown in words.

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
