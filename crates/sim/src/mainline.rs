// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rules of mainline Linux by version, in one place for all that simulates a kernel: scenarios, recordings, measured runs.
use crate::switches::{CgroupMode, Fair, Policy};

/// The first releases with a rule.
const LAGS_SINCE: (u32, u32) = (6, 6);
const DELAYS_SINCE: (u32, u32) = (6, 12);
/// Stable releases took it in (6.12.77) and took it back (late in 6.18) by patches that the two numbers do not tell.
const DOUBLES_SINCE: (u32, u32) = (6, 12);
const DOUBLES_NO_MORE: (u32, u32) = (7, 1);
const SLICES_BY_TIMER_SINCE: (u32, u32) = (7, 1);
const CONCUR_SINCE: (u32, u32) = (7, 3);

/// A kernel's fair class, by its release.
///
/// ```
/// use plimsoll_sim::{CgroupMode, Mainline};
/// assert_eq!(Mainline::of("7.3.4+deb13-cloud-amd64").cgroup_mode(), CgroupMode::Concur);
/// assert!(!Mainline::of("6.1").has_lags() && Mainline::of("7.2").has_lags());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mainline {
    /// Major and minor number; `None`: not known.
    version: Option<(u32, u32)>,
}

impl Mainline {
    /// A kernel that is not known.
    pub const UNKNOWN: Self = Self { version: None };

    /// By what `uname -r` prints, or a version such as "6.1". Text that begins with no two numbers is a kernel not known.
    pub fn of(release: &str) -> Self {
        let mut numbers = release
            .split(|c: char| !c.is_ascii_digit())
            .map(str::parse::<u32>);
        let version = match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Some((major, minor)),
            _ => None,
        };
        Self { version }
    }

    /// Tasks take turns by lag and deadline (EEVDF): since 6.6. One that is not known is taken for such a kernel.
    pub fn has_lags(self) -> bool {
        self.version.is_none_or(|version| version >= LAGS_SINCE)
    }

    /// What goes to sleep while it owes time stays in its queue until that is paid (DELAY_DEQUEUE): since 6.12. One that is not known is
    /// taken for such a kernel.
    pub fn delays_dequeue(self) -> bool {
        self.version.is_none_or(|version| version >= DELAYS_SINCE)
    }

    /// Part of the lag of what runs counts twice as it is weighed anew (`pl_entity_doubled`): 6.12 to 7.0.
    pub fn doubles_lags(self) -> bool {
        let version = self.version;
        version.is_some_and(|version| (DOUBLES_SINCE..DOUBLES_NO_MORE).contains(&version))
    }

    /// A slice ends when it is over, by a timer, and not at the next tick (HRTICK, on by default): since 7.1. One that is not known is
    /// taken for an older one.
    pub fn ends_slices_by_timer(self) -> bool {
        self.version
            .is_some_and(|version| version >= SLICES_BY_TIMER_SINCE)
    }

    /// What a group's weight is for, where the kernel's cgroup_mode was not written: "concur" since 7.3. One that is
    /// not known is taken for an older one.
    pub fn cgroup_mode(self) -> CgroupMode {
        match self.version {
            Some(version) if version >= CONCUR_SINCE => CgroupMode::Concur,
            _ => CgroupMode::Smp,
        }
    }

    /// The slice of the fair class since 6.6 (sysctl_sched_base_slice), scaled by the logarithm of the CPUs, of 8 at most.
    pub fn base_slice_ns(nr_cpus: u32) -> u64 {
        700_000 * u64::from(1 + nr_cpus.clamp(1, 8).ilog2())
    }

    /// Turns by lag and deadline as this version takes them, on so many CPUs with `hz` ticks a second: one that [`Self::has_lags`].
    pub fn set_turns(self, policy: &mut Policy, nr_cpus: u32, hz: u32) {
        let slice_ns = Self::base_slice_ns(nr_cpus);
        policy.fair = Fair::Eevdf;
        policy.delay_dequeue = self.delays_dequeue();
        policy.slice_timer = self.ends_slices_by_timer();
        policy.core.fair.slice_ns = slice_ns;
        if self.doubles_lags() {
            policy.core.fair.doubled_ns = slice_ns + 1_000_000_000 / u64::from(hz);
        }
    }

    /// [`Policy::mainline`] with this version's meaning of weights.
    pub fn policy(self) -> Policy {
        Policy::mainline().with_cgroup_mode(self.cgroup_mode())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_begin_with_their_releases() {
        for (release, lags, mode) in [
            ("5.15", false, CgroupMode::Smp),
            ("6.1.0-50-cloud-amd64", false, CgroupMode::Smp),
            ("6.18.44-fc-v657", true, CgroupMode::Smp),
            ("5.10.0-28-amd64", false, CgroupMode::Smp),
            ("6.5.13", false, CgroupMode::Smp),
            ("6.6", true, CgroupMode::Smp),
            ("6.12.48+deb13-amd64", true, CgroupMode::Smp),
            ("7.2.13+deb14-cloud-amd64", true, CgroupMode::Smp),
            ("7.3-rc1", true, CgroupMode::Concur),
            ("7.3.4+deb13-cloud-amd64", true, CgroupMode::Concur),
            ("7.10.1", true, CgroupMode::Concur),
            ("10.0", true, CgroupMode::Concur),
            ("6", true, CgroupMode::Smp),
            ("", true, CgroupMode::Smp),
            ("unknown", true, CgroupMode::Smp),
        ] {
            let kernel = Mainline::of(release);
            assert_eq!(
                (kernel.has_lags(), kernel.cgroup_mode()),
                (lags, mode),
                "{release}"
            );
        }
        for (release, delays) in [
            ("6.8", false),
            ("6.11.9", false),
            ("6.12.48", true),
            ("7.2", true),
            ("", true),
        ] {
            assert_eq!(Mainline::of(release).delays_dequeue(), delays, "{release}");
        }
        for (release, doubles, by_timer) in [
            ("6.8", false, false),
            ("6.18.44", true, false),
            ("7.0.1", true, false),
            ("7.2", false, true),
            ("", false, false),
        ] {
            let kernel = Mainline::of(release);
            assert_eq!(
                (kernel.doubles_lags(), kernel.ends_slices_by_timer()),
                (doubles, by_timer),
                "{release}"
            );
        }
    }
}
