// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a limit may be: each range is asked of `pl_bw_check`, which alone knows it.
use crate::{
    pl_bw_check, BwLimits, BW_ERR_BURST, BW_ERR_ONSET, BW_ERR_PERIOD, BW_ERR_QUOTA, BW_ERR_ROOT, BW_OK,
    UNLIMITED,
};
use std::ops::RangeInclusive;

/// One number of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BwPart {
    Quota,
    Period,
    Burst,
    /// Percent of the burst with which a limit begins.
    Onset,
}

impl BwLimits {
    /// No limit, in the kernel's usual period.
    pub const NONE: BwLimits = BwLimits {
        quota_ns: UNLIMITED,
        period_ns: 100_000_000,
        burst_ns: 0,
        onset_percent: 0,
        reserved: 0,
    };

    fn code(&self, is_root: bool, mainline: bool) -> u32 {
        // SAFETY: reads one valid struct.
        unsafe { pl_bw_check(self, is_root, mainline) }
    }

    /// The first part that the policy refuses; `None`: it takes all of them.
    pub fn refused(&self, mainline: bool) -> Option<BwPart> {
        match self.code(false, mainline) {
            BW_OK => None,
            BW_ERR_QUOTA => Some(BwPart::Quota),
            BW_ERR_PERIOD => Some(BwPart::Period),
            BW_ERR_BURST => Some(BwPart::Burst),
            BW_ERR_ONSET => Some(BwPart::Onset),
            code => unreachable!("pl_bw_check says {code}"),
        }
    }

    /// Whether the root group, too, may have these.
    pub fn fits_root(&self) -> bool {
        self.code(true, false) != BW_ERR_ROOT
    }

    /// What the policy allows for a part, beside the other ones, which must be allowed themselves: whole microseconds, or
    /// percent. Empty: nothing fits them.
    pub fn allowed(&self, part: BwPart, mainline: bool) -> RangeInclusive<u64> {
        let with = |value: u64| {
            let mut limits = *self;
            match part {
                BwPart::Quota => limits.quota_ns = value,
                BwPart::Period => limits.period_ns = value,
                BwPart::Burst => limits.burst_ns = value,
                BwPart::Onset => limits.onset_percent = u32::try_from(value).unwrap_or(u32::MAX),
            }
            limits
        };
        let valid = |value: u64| match part {
            // Too small a quota is refused by the name of the burst that it does not hold.
            BwPart::Quota => with(value).refused(mainline).is_none(),
            part => with(value).refused(mainline) != Some(part),
        };
        let unit = if part == BwPart::Onset { 1 } else { 1000 };
        // Allowed whatever the policy's bounds are, so that they lie on both sides of it.
        let known = match part {
            BwPart::Quota => self.burst_ns.max(Self::NONE.period_ns),
            BwPart::Period => Self::NONE.period_ns,
            BwPart::Burst | BwPart::Onset => 0,
        };
        if !valid(known) {
            return RangeInclusive::new(1, 0); // empty
        }
        lowest(known, valid).div_ceil(unit)..=highest(known, valid) / unit
    }
}

fn lowest(known: u64, valid: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, known);
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

fn highest(known: u64, valid: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (known, UNLIMITED - 1);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_the_kernel_and_of_the_other_parts() {
        let most_us = (1 << 44) - 1;
        let none = BwLimits::NONE;
        for mainline in [false, true] {
            assert_eq!(none.allowed(BwPart::Quota, mainline), 1000..=most_us);
            assert_eq!(none.allowed(BwPart::Period, mainline), 1000..=1_000_000);
            assert_eq!(none.allowed(BwPart::Burst, mainline), 0..=most_us);
            assert_eq!(none.allowed(BwPart::Onset, mainline), 0..=100);
        }
        let quota = BwLimits {
            quota_ns: 20_000_000,
            ..none
        };
        assert_eq!(quota.allowed(BwPart::Burst, true), 0..=20_000);
        assert_eq!(quota.allowed(BwPart::Burst, false), 0..=most_us);
        let burst = BwLimits {
            burst_ns: 300_000_000,
            ..none
        };
        assert_eq!(burst.allowed(BwPart::Quota, true), 300_000..=most_us - 300_000);
        // No quota is as large, and small enough beside it.
        let most = BwLimits {
            burst_ns: most_us * 1000,
            ..none
        };
        assert!(most.allowed(BwPart::Quota, true).is_empty());
        assert_eq!(quota.refused(true), None);
        assert!(none.fits_root() && !quota.fits_root());
    }
}
