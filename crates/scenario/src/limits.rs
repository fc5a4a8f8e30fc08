// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A group's limits: units of the file into those of the policy, which alone decides what is allowed.
use crate::file::{Knobs, Quota};
use plimsoll_policy_sys as pl;
use plimsoll_sim::Limits;

/// A knob that the policy refuses: its key, and what was given and is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub key: &'static str,
    pub message: String,
}

impl Knobs {
    /// Whether one of those that make up a limit is given.
    pub fn limits_given(&self) -> bool {
        self.quota_us.is_some()
            || self.period_us.is_some()
            || self.burst_us.is_some()
            || self.onset_percent.is_some()
    }

    /// `before` with these knobs changed, and every knob that the policy refuses. Knobs in microseconds become
    /// nanoseconds; what no 64 bits hold stays too large for the policy.
    pub fn apply(&self, before: Limits, mainline: bool) -> Result<Limits, Vec<Refusal>> {
        let ns = |us: u64| us.checked_mul(1000).unwrap_or(pl::UNLIMITED - 1);
        let mut limits = before;
        match &self.quota_us {
            None => {}
            Some(Quota::Unlimited(_)) => limits.quota_ns = None,
            Some(Quota::Microseconds(us)) => limits.quota_ns = u64::try_from(*us).ok().map(ns),
        }
        limits.period_ns = self.period_us.map_or(limits.period_ns, ns);
        limits.burst_ns = self.burst_us.map_or(limits.burst_ns, ns);
        limits.onset_percent = self.onset_percent.unwrap_or(limits.onset_percent);

        let mut refusals = Vec::new();
        let mut left = limits;
        // Each turn takes one refused knob out, so there are at most as many as knobs.
        while let Some(refusal) = self.refusal(&mut left, mainline) {
            refusals.push(refusal);
        }
        if refusals.is_empty() {
            Ok(limits)
        } else {
            Err(refusals)
        }
    }

    /// The first knob that the policy refuses, with the range found by asking the policy; replaces it in `limits`.
    fn refusal(&self, limits: &mut Limits, mainline: bool) -> Option<Refusal> {
        let ok = Limits::UNLIMITED;
        let us = |ns: u64| (ns / 1000).to_string();
        let refusal = |key, given: String, allowed: String| {
            Some(Refusal {
                key,
                message: format!("{given}: allowed {allowed}"),
            })
        };
        match error_of(limits, mainline) {
            pl::BW_OK => None,
            pl::BW_ERR_QUOTA => {
                let given = self.quota_us.as_ref().and_then(|quota| match quota {
                    Quota::Microseconds(us) => Some(us.to_string()),
                    Quota::Unlimited(_) => None,
                });
                let given = given.unwrap_or_else(|| us(limits.quota_ns.unwrap_or(0)));
                limits.quota_ns = None;
                let allowed = range_us(ok.period_ns, |quota_ns| {
                    error_of(&Limits::quota(quota_ns, ok.period_ns), false) == pl::BW_OK
                });
                refusal("quota_us", given, format!("{allowed}, or \"max\""))
            }
            pl::BW_ERR_PERIOD => {
                let given = self
                    .period_us
                    .map_or_else(|| us(limits.period_ns), |given| given.to_string());
                limits.period_ns = ok.period_ns;
                let allowed = range_us(ok.period_ns, |period_ns| {
                    error_of(&Limits { period_ns, ..ok }, false) == pl::BW_OK
                });
                refusal("period_us", given, allowed)
            }
            // Carried on from before the change, which a smaller quota makes too much.
            pl::BW_ERR_BURST if self.burst_us.is_none() => {
                let with = *limits;
                limits.burst_ns = 0;
                let given = us(with.quota_ns.unwrap_or(0));
                let allowed = range_us(with.burst_ns.max(ok.period_ns), |quota_ns| {
                    let quota_ns = Some(quota_ns);
                    error_of(&Limits { quota_ns, ..with }, mainline) == pl::BW_OK
                });
                let burst = us(with.burst_ns);
                let rule =
                    format!("mainline semantics: no less than burst_us, which is {burst} at that time");
                refusal("quota_us", given, format!("{allowed} ({rule})"))
            }
            pl::BW_ERR_BURST => {
                let given = self
                    .burst_us
                    .map_or_else(|| us(limits.burst_ns), |given| given.to_string());
                limits.burst_ns = 0;
                let with = *limits;
                let allowed = range_us(0, |burst_ns| {
                    error_of(&Limits { burst_ns, ..with }, mainline) != pl::BW_ERR_BURST
                });
                let rule = if mainline {
                    " (mainline semantics: no more than the quota)"
                } else {
                    ""
                };
                refusal("burst_us", given, format!("{allowed}{rule}"))
            }
            _ => {
                let given = std::mem::replace(&mut limits.onset_percent, 0);
                let valid = |percent: u64| {
                    let onset_percent = u32::try_from(percent).unwrap_or(u32::MAX);
                    error_of(&Limits { onset_percent, ..ok }, false) == pl::BW_OK
                };
                refusal(
                    "onset_percent",
                    given.to_string(),
                    format!("0 .. {}", highest(0, valid)),
                )
            }
        }
    }
}

fn error_of(limits: &Limits, mainline: bool) -> u32 {
    let limits = pl::BwLimits {
        quota_ns: limits.quota_ns.unwrap_or(pl::UNLIMITED),
        period_ns: limits.period_ns,
        burst_ns: limits.burst_ns,
        onset_percent: limits.onset_percent,
        reserved: 0,
    };
    // SAFETY: reads one valid struct.
    unsafe { pl::pl_bw_check(&limits, false, mainline) }
}

/// The range around a valid value in which everything is valid, in whole microseconds.
fn range_us(valid_ns: u64, valid: impl Fn(u64) -> bool) -> String {
    let low_ns = lowest(valid_ns, &valid);
    let high_ns = highest(valid_ns, &valid);
    format!("{} .. {}", low_ns.div_ceil(1000), high_ns / 1000)
}

fn lowest(good: u64, valid: &impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, good);
    while low < high {
        let middle = low + (high - low) / 2;
        if valid(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

fn highest(good: u64, valid: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (good, pl::UNLIMITED - 1);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if valid(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}
