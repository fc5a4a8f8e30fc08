// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether a recording holds enough requests to answer a goal for a percentile.
//!
//! Of `n` independent requests all lie below the true percentile `p` (a share) with probability `p^n`. So the longest of
//! them exceeds it, and may stand as an upper bound, with 95% confidence from `n = ln 0.05 / ln p` on: the distribution-free
//! tolerance limit of S. S. Wilks, "Determination of sample sizes for setting tolerance limits" (1941). With fewer, every
//! figure for that percentile is a guess below what is true, however it is resampled.
//!
//! Several recordings count together: a range's upper end is that of the recording with the longest.
use crate::goal::{Goal, Subject};
use crate::recordings::Recordings;

/// How unlikely it has to be that all recorded requests were shorter than the true percentile.
const DOUBT: f64 = 0.05;

/// A goal for a percentile that the recordings hold too few requests for.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "goal {goal:?}: {recorded} requests were recorded, and p{percent} needs {needed} (then the longest is beyond the \
     true p{percent} with 95% confidence). {remedy}"
)]
pub struct TooFewRequests {
    pub goal: String,
    pub percent: f64,
    pub recorded: u64,
    pub needed: u64,
    pub remedy: String,
}

/// Requests that a goal for the percentile `percent`, above 0 and below 100, needs at least.
pub fn needed(percent: f64) -> u64 {
    (DOUBT.ln() / (percent / 100.0).ln()).ceil() as u64
}

/// The highest percentile that so many requests can answer, rounded down to what people ask for: whole ones, and from 99 on
/// tenths. `None`: not even the median.
pub fn answerable(requests: u64) -> Option<f64> {
    let exact = 100.0 * DOUBT.powf(1.0 / requests.max(1) as f64);
    let step = if exact >= 99.0 { 10.0 } else { 1.0 };
    let percent = (exact * step + 1e-9).floor() / step;
    (percent >= 50.0).then_some(percent)
}

/// Refuses a goal that the recordings cannot answer. The longest request (`max`) is what it is in so many requests, and
/// stands for no other number of them: it needs none.
pub fn check(recordings: &Recordings, goal: &Goal) -> Result<(), TooFewRequests> {
    let Subject::Percentile { percent, class } = &goal.subject else {
        return Ok(());
    };
    let recorded = recordings.requests(class.as_deref());
    if *percent >= 100.0 || recorded >= needed(*percent) {
        return Ok(());
    }
    let needed = needed(*percent);
    let duration_ns: u64 = recordings.sources.iter().map(|s| s.program.duration_ns).sum();
    let times = needed as f64 / recorded.max(1) as f64;
    let again = match recorded {
        0 => "Record such requests".into(),
        _ => format!(
            "Record {} times as long ({:.0} s in all, in one recording or several)",
            times.ceil(),
            (duration_ns as f64 / 1e9 * times).ceil()
        ),
    };
    let name = class.as_deref().unwrap_or("request");
    let other = match answerable(recorded) {
        Some(percent) => format!("p{percent}({name})"),
        None => format!("mean({name}) or max({name})"),
    };
    Err(TooFewRequests {
        goal: goal.text.clone(),
        percent: *percent,
        recorded,
        needed,
        remedy: format!("{again}, or give a goal that these can answer: {other}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_of_so_many_is_beyond_the_percentile_in_19_of_20_cases() {
        for (percent, count) in [(50.0, 5), (90.0, 29), (95.0, 59), (99.0, 299), (99.9, 2995)] {
            assert_eq!(needed(percent), count, "p{percent}");
            let share: f64 = percent / 100.0;
            assert!(share.powi(count as i32) <= 0.05 && share.powi(count as i32 - 1) > 0.05);
        }
    }

    #[test]
    fn what_is_offered_instead_can_be_answered() {
        for (requests, percent) in [
            (36, 92.0),
            (299, 99.0),
            (298, 98.0),
            (2995, 99.9),
            (5, 54.0),
            (4, f64::NAN),
        ] {
            match answerable(requests) {
                Some(found) => assert!(
                    found == percent && needed(found) <= requests,
                    "{requests}: {found}"
                ),
                None => assert!(percent.is_nan(), "{requests}"),
            }
        }
    }
}
