// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which series is what: the names of cAdvisor and kube-state-metrics, and the labels that name a container.
use crate::answer::Labels;

/// A counter of a container. In the order in which they are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Metric {
    /// CPU time, seconds.
    Usage,
    /// Periods that the limit's timer counted.
    Periods,
    /// Periods at whose end the group was throttled on some CPU.
    ThrottledPeriods,
    /// Time throttled, seconds, summed over CPUs. Many installations drop it.
    ThrottledSeconds,
    /// Periods that used more than the quota.
    BurstPeriods,
    /// Time in which some thread waited for a CPU (PSI), seconds.
    Waiting,
}

impl Metric {
    pub const ALL: [Metric; 6] = [
        Metric::Usage,
        Metric::Periods,
        Metric::ThrottledPeriods,
        Metric::ThrottledSeconds,
        Metric::BurstPeriods,
        Metric::Waiting,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Metric::Usage => "container_cpu_usage_seconds_total",
            Metric::Periods => "container_cpu_cfs_periods_total",
            Metric::ThrottledPeriods => "container_cpu_cfs_throttled_periods_total",
            Metric::ThrottledSeconds => "container_cpu_cfs_throttled_seconds_total",
            Metric::BurstPeriods => "container_cpu_cfs_burst_periods_total",
            Metric::Waiting => "container_pressure_cpu_waiting_seconds_total",
        }
    }

    pub fn of(name: &str) -> Option<Metric> {
        Metric::ALL.into_iter().find(|metric| metric.name() == name)
    }
}

/// A setting of a container: the newest value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// CPUs.
    Limit,
    /// CPUs.
    Request,
    /// Microseconds, of cAdvisor; -1 or 0: none.
    Quota,
    /// Microseconds, of cAdvisor.
    Period,
}

impl Setting {
    /// Newer kube-state-metrics have one series for all resources, older ones a name for each.
    pub fn of(name: &str, labels: &Labels) -> Option<Setting> {
        let is_cpu = || labels.get("resource").is_some_and(|resource| resource == "cpu");
        match name {
            "kube_pod_container_resource_limits" if is_cpu() => Some(Setting::Limit),
            "kube_pod_container_resource_requests" if is_cpu() => Some(Setting::Request),
            "kube_pod_container_resource_limits_cpu_cores" => Some(Setting::Limit),
            "kube_pod_container_resource_requests_cpu_cores" => Some(Setting::Request),
            "container_spec_cpu_quota" => Some(Setting::Quota),
            "container_spec_cpu_period" => Some(Setting::Period),
            _ => None,
        }
    }
}

/// One container of one pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Container {
    pub namespace: String,
    pub pod: String,
    pub container: String,
}

impl Container {
    /// `None`: the pod as a whole, its sandbox, or a cgroup that is not a container.
    pub fn of(labels: &Labels) -> Option<Container> {
        // Kubernetes before 1.16 said pod_name and container_name.
        let label = |names: [&str; 2]| {
            names
                .iter()
                .find_map(|name| labels.get(*name))
                .filter(|value| !value.is_empty())
        };
        let container = label(["container", "container_name"]).filter(|name| *name != "POD")?;
        Some(Container {
            namespace: labels.get("namespace").cloned().unwrap_or_default(),
            pod: label(["pod", "pod_name"])?.clone(),
            container: container.clone(),
        })
    }
}
