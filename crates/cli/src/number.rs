// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers of flags: a bad one is answered with what is allowed.
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Seeds go into scenarios, and TOML has no greater numbers.
pub const SEEDS: RangeInclusive<u64> = 0..=i64::MAX as u64;

/// A parser for clap of numbers in `allowed`.
pub fn within<T>(allowed: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Clone,
{
    move |text| match text.parse() {
        Ok(number) if allowed.contains(&number) => Ok(number),
        _ => Err(format!("allowed: {} .. {}", allowed.start(), allowed.end())),
    }
}

/// A parser for clap of CPUs, as `0.6` or, in the form of Kubernetes, `600m`.
pub fn cpus(allowed: RangeInclusive<f64>) -> impl Fn(&str) -> Result<f64, String> + Clone {
    move |text| {
        let cpus = match text.strip_suffix('m') {
            Some(milli) => milli.parse::<u32>().ok().map(|milli| f64::from(milli) / 1000.0),
            None => text.parse().ok(),
        };
        cpus.filter(|cpus| allowed.contains(cpus)).ok_or_else(|| {
            let (low, high) = (allowed.start(), allowed.end());
            format!("allowed: {low} .. {high} CPUs, or thousandths of one as in 600m")
        })
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn cpus_are_read_as_kubernetes_writes_them() {
        let read = super::cpus(0.01..=4096.0);
        assert_eq!(read("600m"), Ok(0.6));
        assert_eq!(read("0.6"), Ok(0.6));
        assert_eq!(read("2"), Ok(2.0));
        for wrong in [
            "9m", "0", "5000", "0.6m", "m", "-600m", "600 m", "NaN", "600M", "",
        ] {
            let message = read(wrong).expect_err(wrong);
            assert!(message.starts_with("allowed: 0.01 .. 4096 CPUs"), "{message}");
        }
    }
}
