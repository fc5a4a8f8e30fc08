// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Times in a CSV file: numbers in a unit that the column's name says, dates, or seconds and their parts since 1970.
use chrono::{DateTime, NaiveDateTime};

/// What a column of times holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unit {
    /// A number; this many ns are its unit.
    Ns(f64),
    /// A date, or a number since 1970 whose size tells its unit.
    Any,
}

/// The unit of a column whose name is one of the usual ones for a time.
pub fn unit(name: &str) -> Option<Unit> {
    let name = name.to_lowercase();
    let rest = ["timestamp", "datetime", "elapsed", "date", "time", "ts", "t"]
        .iter()
        .find_map(|word| name.strip_prefix(word))?;
    Some(
        match rest
            .trim_start_matches(['_', '-', ' ', '('])
            .trim_end_matches(')')
        {
            "" | "utc" | "iso" | "rfc3339" if !name.starts_with("elapsed") => Unit::Any,
            "ns" | "nsec" | "nanos" => Unit::Ns(1.0),
            "us" | "usec" | "micros" => Unit::Ns(1e3),
            "ms" | "msec" | "millis" => Unit::Ns(1e6),
            "s" | "sec" | "secs" | "seconds" => Unit::Ns(1e9),
            _ => return None,
        },
    )
}

const NUMBER: &str = "a number of 0 or more, below 292 years";
const DATE: &str =
    "a date as RFC 3339 has it (2026-01-31T12:00:00.5Z), or seconds, ms, us or ns since 1970; of \
                    another time the column's name says the unit: ts_ms";

/// A time in ns. Err: what is allowed.
pub fn ns(text: &str, unit: Unit) -> Result<i64, &'static str> {
    let Unit::Ns(ns) = unit else {
        return date(text).filter(|&t| t >= 0).ok_or(DATE);
    };
    if ns == 1.0 {
        return text.parse::<i64>().ok().filter(|&t| t >= 0).ok_or(NUMBER);
    }
    scaled(text, ns).ok_or(NUMBER)
}

fn scaled(text: &str, ns: f64) -> Option<i64> {
    // Of a number of seconds since 1970 a double keeps a quarter of a microsecond: digits are exact.
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if !whole.is_empty() && digits(whole) && digits(fraction) && fraction.len() <= 9 {
        let parts = format!("{fraction:0<9}").parse::<i64>().ok()?;
        let ns = ns as i64;
        let below = (parts as i128 * ns as i128 + 500_000_000) / 1_000_000_000;
        return whole
            .parse::<i64>()
            .ok()?
            .checked_mul(ns)?
            .checked_add(below as i64);
    }
    let value = (text.parse::<f64>().ok()? * ns).round();
    (0.0..i64::MAX as f64).contains(&value).then_some(value as i64)
}

fn date(text: &str) -> Option<i64> {
    if let Ok(date) = DateTime::parse_from_rfc3339(text) {
        return date.timestamp_nanos_opt();
    }
    for format in ["%Y-%m-%d %H:%M:%S%.f%#z", "%Y-%m-%dT%H:%M:%S%.f%#z"] {
        if let Ok(date) = DateTime::parse_from_str(text, format) {
            return date.timestamp_nanos_opt();
        }
    }
    for format in ["%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f"] {
        if let Ok(date) = NaiveDateTime::parse_from_str(text, format) {
            return date.and_utc().timestamp_nanos_opt();
        }
    }
    // From 2001 to 2286 the units cannot be confused.
    let value: f64 = text.parse().ok()?;
    let unit = [1e9, 1e6, 1e3, 1.0]
        .into_iter()
        .find(|unit| (1e18..1e19).contains(&(value * unit)))?;
    scaled(text, unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_columns_say_the_unit() {
        for (name, expected) in [
            ("ts_ns", Some(Unit::Ns(1.0))),
            ("timestamp_ns", Some(Unit::Ns(1.0))),
            ("Time (ms)", Some(Unit::Ns(1e6))),
            ("elapsed_s", Some(Unit::Ns(1e9))),
            ("time_us", Some(Unit::Ns(1e3))),
            ("timestamp", Some(Unit::Any)),
            ("Time", Some(Unit::Any)),
            ("datetime", Some(Unit::Any)),
            ("elapsed", None),
            ("throttled_usec", None),
            ("total", None),
        ] {
            assert_eq!(unit(name), expected, "{name}");
        }
    }

    #[test]
    fn dates_and_numbers_since_1970_are_the_same_time() {
        let expected = Ok(1_795_608_000_250_000_000);
        for text in [
            "2026-11-25T12:00:00.25Z",
            "2026-11-25T14:00:00.250+02:00",
            "2026-11-25 12:00:00.25",
            "2026-11-25 12:00:00.25+0000",
            "2026-11-25T12:00:00.25",
            "1795608000.25",
            "1795608000250",
            "1795608000250000",
            "1795608000250000000",
        ] {
            assert_eq!(ns(text, Unit::Any), expected, "{text}");
        }
        for text in [
            "12",
            "yesterday",
            "",
            "1e300",
            "-1795608000",
            "1969-01-01T00:00:00Z",
        ] {
            assert_eq!(ns(text, Unit::Any), Err(DATE), "{text}");
        }
        assert_eq!(
            ns("1795608000.123456789", Unit::Ns(1e9)),
            Ok(1_795_608_000_123_456_789)
        );
        assert_eq!(ns("0.0015", Unit::Ns(1e6)), Ok(1500));
        assert_eq!(ns("1e3", Unit::Ns(1e6)), Ok(1_000_000_000));
        assert_eq!(ns("-1", Unit::Ns(1e6)), Err(NUMBER));
        assert_eq!(ns("9223372036854775807", Unit::Ns(1e9)), Err(NUMBER));
    }
}
