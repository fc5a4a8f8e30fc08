// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measured values as people are shown them.

/// Decimals beyond which nothing is known: ns, in ms.
const DECIMALS_MAX: usize = 6;

/// Four significant digits, more where the number is whole.
pub fn figure(value: f64) -> String {
    if value == value.trunc() && value.abs() < 1e9 {
        return format!("{value:.0}");
    }
    // The exponent of what is shown: 9.9999 is 10.00.
    let rounded = format!("{value:.3e}");
    let exponent = rounded.rsplit_once('e').and_then(|(_, e)| e.parse().ok());
    let decimals = usize::try_from(3 - exponent.unwrap_or(0)).unwrap_or(0);
    format!("{value:.*}", decimals.min(DECIMALS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_four_digits_however_small_and_shows_ns_in_ms() {
        for (value, shown) in [
            (0.0, "0"),
            (7.0, "7"),
            (123_456.0, "123456"),
            (123_456.7, "123457"),
            (999.96, "1000"),
            (150.25, "150.2"),
            (12.3456, "12.35"),
            (9.9999, "10.00"),
            (1.0004, "1.000"),
            (0.301_94, "0.3019"),
            (0.042, "0.04200"),
            (0.001_234_5, "0.001234"),
            (0.000_021, "0.000021"),
            (-0.042, "-0.04200"),
        ] {
            assert_eq!(figure(value), shown);
        }
    }
}
