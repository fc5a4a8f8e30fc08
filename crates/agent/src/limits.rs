// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A group's limits as cpu.max and cpu.max.burst have them.
use crate::{File, Files};
use plimsoll_policy_sys::{BwLimits, BwPart};
use std::io;
use std::path::Path;
use std::sync::LazyLock;

/// Linux takes no quota below this.
pub(crate) static QUOTA_LEAST_US: LazyLock<u64> =
    LazyLock::new(|| *BwLimits::NONE.allowed(BwPart::Quota, true).start());

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// `None`: no limit.
    pub quota_us: Option<u64>,
    pub period_us: u64,
    /// `None`: this kernel has no burst (before Linux 5.14).
    pub burst_us: Option<u64>,
}

impl Limits {
    pub fn read(files: &impl Files, group: &Path) -> io::Result<Self> {
        let max = files.read(group, File::Max)?;
        let burst = match files.read(group, File::Burst) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Self::parse(&max, burst.as_deref())
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("cpu.max is `{max}`")))
    }

    pub fn parse(max: &str, burst: Option<&str>) -> Option<Self> {
        let (quota, period) = max.trim().split_once(' ')?;
        Some(Self {
            quota_us: match quota {
                "max" => None,
                number => Some(number.parse().ok()?),
            },
            period_us: period.parse().ok().filter(|period_us| *period_us > 0)?,
            burst_us: match burst {
                Some(text) => Some(text.trim().parse().ok()?),
                None => None,
            },
        })
    }

    /// As the kernel shows the file. `None`: it has no such file, or it is none of a limit.
    pub fn text(&self, file: File) -> Option<String> {
        match file {
            File::Max => Some(match self.quota_us {
                None => format!("max {}", self.period_us),
                Some(quota_us) => format!("{quota_us} {}", self.period_us),
            }),
            File::Burst => self.burst_us.map(|burst_us| burst_us.to_string()),
            File::Idle | File::Weight => None,
        }
    }

    /// The order in which the two files become `to`, such that at no time the burst exceeds the quota, which the kernel
    /// refuses.
    pub fn order(&self, to: &Limits) -> [File; 2] {
        let fits = to.burst_us <= self.quota_us || self.quota_us.is_none();
        match fits {
            true => [File::Burst, File::Max],
            false => [File::Max, File::Burst],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Linux does: a quota below the burst is EINVAL, either way.
    fn takes(limits: &Limits) -> bool {
        limits.quota_us.is_none() || limits.burst_us <= limits.quota_us
    }

    #[test]
    fn no_order_of_writes_meets_a_burst_above_the_quota() {
        let values = [1_000, 5_000, 30_000, 100_000];
        let quotas = values.map(Some).into_iter().chain([None]);
        let all: Vec<Limits> = quotas
            .flat_map(|quota_us| {
                values.into_iter().chain([0]).map(move |burst_us| Limits {
                    quota_us,
                    period_us: 100_000,
                    burst_us: Some(burst_us),
                })
            })
            .filter(takes)
            .collect();
        for from in &all {
            for to in &all {
                let mut now = *from;
                for file in from.order(to) {
                    match file {
                        File::Max => now.quota_us = to.quota_us,
                        _ => now.burst_us = to.burst_us,
                    }
                    assert!(takes(&now), "{from:?} to {to:?}: {now:?}");
                }
                assert_eq!(now, *to);
            }
        }
    }

    #[test]
    fn texts_are_the_kernels_and_what_is_none_is_refused() {
        for (max, burst) in [
            ("max 100000", Some("0")),
            ("30000 50000", Some("7")),
            ("1000 1000", None),
        ] {
            let limits = Limits::parse(max, burst).unwrap();
            assert_eq!(limits.text(File::Max).as_deref(), Some(max));
            assert_eq!(limits.text(File::Burst).as_deref(), burst);
        }
        for wrong in ["", "max", "x 1", "1 x", "1 0", "1 2 3"] {
            assert!(Limits::parse(wrong, None).is_none(), "{wrong}");
        }
    }
}
