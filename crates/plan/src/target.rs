// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The systems that a limit can be given to, and the knobs of each: a plan tries only what its target can express.
use crate::candidates::Knobs;
use plimsoll_replay::Semantics;
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// `limits.cpu`: millicores in periods of 100 ms. The weight follows from `requests.cpu`.
    Kubernetes,
    /// The same on nodes where `plimsoll agent` runs, which writes a burst.
    KubernetesAgent,
    /// `--cpus`, or `--cpu-period` and `--cpu-quota`; no burst. What `--cpu-shares` becomes depends on the version of runc.
    Docker,
    /// `CPUQuota=`, `CPUQuotaPeriodSec=`, `CPUWeight=`; no burst.
    Systemd,
    /// `cpu.max`, `cpu.max.burst` up to the quota, `cpu.weight`; version 1's files say the same.
    Cgroup,
    /// All of it, burst above the quota and headroom, where `plimsoll run` schedules.
    Plimsoll,
}

impl Target {
    pub const ALL: [Target; 6] = [
        Target::Kubernetes,
        Target::KubernetesAgent,
        Target::Docker,
        Target::Systemd,
        Target::Cgroup,
        Target::Plimsoll,
    ];

    /// As `--for` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Target::Kubernetes => "kubernetes",
            Target::KubernetesAgent => "kubernetes+agent",
            Target::Docker => "docker",
            Target::Systemd => "systemd",
            Target::Cgroup => "cgroup",
            Target::Plimsoll => "plimsoll",
        }
    }

    /// What it can say.
    pub fn knobs(self) -> Knobs {
        let none = Knobs {
            period: false,
            burst: false,
            weight: false,
            headroom: false,
        };
        match self {
            Target::Kubernetes => none,
            Target::KubernetesAgent => Knobs { burst: true, ..none },
            Target::Docker => Knobs { period: true, ..none },
            Target::Systemd => Knobs {
                period: true,
                weight: true,
                ..none
            },
            Target::Cgroup => Knobs {
                headroom: false,
                ..Knobs::ALL
            },
            Target::Plimsoll => Knobs::ALL,
        }
    }

    /// Whose rules limits are under there.
    pub fn semantics(self) -> Semantics {
        match self {
            Target::Plimsoll => Semantics::Published,
            _ => Semantics::Mainline,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        let found = Target::ALL.into_iter().find(|target| target.name() == text);
        found.ok_or_else(|| {
            let names = Target::ALL.map(Target::name);
            format!("allowed: {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_read_by_its_name_and_others_are_refused_with_all_of_them() {
        for target in Target::ALL {
            assert_eq!(target.name().parse(), Ok(target));
        }
        let error = "mesos".parse::<Target>().unwrap_err();
        assert!(error.contains("kubernetes+agent, docker"), "{error}");
    }
}
