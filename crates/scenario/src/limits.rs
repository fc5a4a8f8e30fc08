// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A group's limits: units of the file into those of the policy, which alone decides what is allowed.
use crate::file::{Knobs, Quota};
use plimsoll_policy_sys::{BwLimits, BwPart, UNLIMITED};
use plimsoll_sim::Limits;
use std::ops::RangeInclusive;

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
        let ns = |us: u64| us.checked_mul(1000).unwrap_or(UNLIMITED - 1);
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
        let us = |ns: u64| (ns / 1000).to_string();
        let or_before =
            |given: Option<u64>, before_ns: u64| given.map_or_else(|| us(before_ns), |us| us.to_string());
        let refusal = |key, given: String, allowed: String| {
            Some(Refusal {
                key,
                message: format!("{given}: allowed {allowed}"),
            })
        };
        let asked = for_policy(limits);
        match asked.refused(mainline)? {
            BwPart::Quota => {
                let given = match &self.quota_us {
                    Some(Quota::Microseconds(us)) => us.to_string(),
                    _ => us(limits.quota_ns.unwrap_or(0)),
                };
                limits.quota_ns = None;
                let allowed = shown(BwLimits::NONE.allowed(BwPart::Quota, false));
                refusal("quota_us", given, format!("{allowed}, or \"max\""))
            }
            BwPart::Period => {
                let given = or_before(self.period_us, limits.period_ns);
                limits.period_ns = Limits::UNLIMITED.period_ns;
                let allowed = BwLimits::NONE.allowed(BwPart::Period, false);
                refusal("period_us", given, shown(allowed))
            }
            // Carried on from before the change, which a smaller quota makes too much.
            BwPart::Burst if self.burst_us.is_none() => {
                limits.burst_ns = 0;
                let given = us(asked.quota_ns);
                let allowed = shown(asked.allowed(BwPart::Quota, mainline));
                let burst = us(asked.burst_ns);
                let rule =
                    format!("mainline semantics: no less than burst_us, which is {burst} at that time");
                refusal("quota_us", given, format!("{allowed} ({rule})"))
            }
            BwPart::Burst => {
                let given = or_before(self.burst_us, limits.burst_ns);
                limits.burst_ns = 0;
                let allowed = shown(for_policy(limits).allowed(BwPart::Burst, mainline));
                let rule = if mainline {
                    " (mainline semantics: no more than the quota)"
                } else {
                    ""
                };
                refusal("burst_us", given, format!("{allowed}{rule}"))
            }
            BwPart::Onset => {
                let given = std::mem::replace(&mut limits.onset_percent, 0);
                let allowed = BwLimits::NONE.allowed(BwPart::Onset, false);
                refusal("onset_percent", given.to_string(), shown(allowed))
            }
        }
    }
}

fn for_policy(limits: &Limits) -> BwLimits {
    BwLimits {
        quota_ns: limits.quota_ns.unwrap_or(UNLIMITED),
        period_ns: limits.period_ns,
        burst_ns: limits.burst_ns,
        onset_percent: limits.onset_percent,
        reserved: 0,
    }
}

fn shown(range: RangeInclusive<u64>) -> String {
    format!("{} .. {}", range.start(), range.end())
}
