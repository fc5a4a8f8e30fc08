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
