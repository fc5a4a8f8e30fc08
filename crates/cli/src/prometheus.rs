// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scheduler's counters as Prometheus metrics. Those that cAdvisor has too keep its names and labels, so that
//! dashboards and alerts made for it go on working; the others begin with plimsoll_.
use plimsoll_live::{GroupStatus, Status, CGROUP_ROOT};
use std::fmt::Write;

/// `None`: this group has none.
type Value = fn(&GroupStatus) -> Option<f64>;

fn seconds(usec: u64) -> f64 {
    usec as f64 / 1e6
}

/// Of groups without a limit, cAdvisor shows none of the limit's metrics.
fn limited(group: &GroupStatus, value: f64) -> Option<f64> {
    group.quota_us.map(|_| value)
}

/// What cAdvisor's usage is of: all CPUs. Dashboards choose by it.
const USAGE: &str = "container_cpu_usage_seconds_total";

const METRICS: [(&str, &str, &str, Value); 13] = [
    (USAGE, "counter", "CPU time used", |g| Some(seconds(g.usage_usec))),
    (
        "container_cpu_cfs_periods_total",
        "counter",
        "Elapsed enforcement periods",
        |g| limited(g, g.nr_periods as f64),
    ),
    (
        "container_cpu_cfs_throttled_periods_total",
        "counter",
        "Periods at whose end somebody was throttled",
        |g| limited(g, g.nr_throttled as f64),
    ),
    (
        "container_cpu_cfs_throttled_seconds_total",
        "counter",
        "Time throttled, summed over CPUs",
        |g| limited(g, seconds(g.throttled_usec)),
    ),
    (
        "container_spec_cpu_quota",
        "gauge",
        "CPU quota in microseconds",
        |g| g.quota_us.map(|quota| quota as f64),
    ),
    (
        "container_spec_cpu_period",
        "gauge",
        "CPU period in microseconds",
        |g| Some(g.period_us as f64),
    ),
    (
        "container_cpu_schedstat_runqueue_seconds_total",
        "counter",
        "Time that tasks waited, runnable",
        |g| Some(seconds(g.run_delay_usec)),
    ),
    (
        "container_cpu_schedstat_run_periods_total",
        "counter",
        "Times that tasks were picked",
        |g| Some(g.nr_runs as f64),
    ),
    (
        "container_cpu_cfs_burst_periods_total",
        "counter",
        "Periods that used more than the quota",
        |g| limited(g, g.nr_bursts as f64),
    ),
    (
        "container_cpu_cfs_burst_seconds_total",
        "counter",
        "Run time above the quota",
        |g| limited(g, seconds(g.burst_usec)),
    ),
    (
        "plimsoll_pool_seconds",
        "gauge",
        "Run time in the group's pool now",
        |g| g.current_bw_usec.map(seconds),
    ),
    (
        "plimsoll_steals_total",
        "counter",
        "Tasks that a CPU took over from another one's queue",
        |g| Some(g.nr_steals as f64),
    ),
    (
        "plimsoll_headroom_percent",
        "gauge",
        "Idle share asked for by this group",
        |g| (g.headroom_percent > 0).then(|| f64::from(g.headroom_percent)),
    ),
];

pub fn text(status: &Status) -> String {
    let mut text = String::new();
    for (name, kind, help, value) in METRICS {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        let cpu = if name == USAGE { "cpu=\"total\"," } else { "" };
        for group in &status.groups {
            if let Some(value) = value(group) {
                let _ = writeln!(text, "{name}{{{cpu}id=\"{}\"}} {value}", label(&group.cgroup));
            }
        }
    }
    let name = "plimsoll_merged_cgroups";
    let help = "Cgroups scheduled as part of one above them, too deep or too many for limits of their own";
    let _ = writeln!(
        text,
        "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {}",
        status.merged_cgroups
    );
    text
}

/// cAdvisor's `id`: the path below the mount, `/` for the root.
fn label(cgroup: &str) -> String {
    let path = cgroup.strip_prefix(CGROUP_ROOT).unwrap_or(cgroup);
    let path = if path.is_empty() { "/" } else { path };
    path.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::tests::two;

    #[test]
    fn metrics_have_cadvisors_names_and_labels() {
        let (_, mut after) = two();
        after.groups[0].cgroup = "/sys/fs/cgroup/system.slice/we\"b".into();
        after.groups[1].cgroup = "/sys/fs/cgroup".into();
        let text = text(&after);
        let id = r#"{id="/system.slice/we\"b"}"#;
        for line in [
            "container_cpu_usage_seconds_total{cpu=\"total\",id=\"/system.slice/we\\\"b\"} 0.4\n".into(),
            format!("container_cpu_cfs_burst_periods_total{id} 5\n"),
            format!("container_cpu_cfs_burst_seconds_total{id} 0\n"),
            format!("container_cpu_cfs_throttled_periods_total{id} 10\n"),
            format!("container_cpu_cfs_throttled_seconds_total{id} 0.6\n"),
            format!("container_spec_cpu_quota{id} 20000\n"),
            "container_cpu_usage_seconds_total{cpu=\"total\",id=\"/\"} 2.6\n".into(),
            "# TYPE container_cpu_cfs_periods_total counter\n".into(),
        ] {
            assert!(text.contains(&line), "{line}{text}");
        }
        assert!(!text.contains("container_spec_cpu_quota{id=\"/\"}"));
    }

    #[test]
    fn cpu_stat_is_the_kernels_with_what_stands_still_replaced() {
        let (_, after) = two();
        let kernels = "usage_usec 5\nuser_usec 3\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\nnr_bursts 0\nburst_usec 0\n";
        assert_eq!(
            after.groups[0].cpu_stat(kernels),
            "usage_usec 5\nuser_usec 3\nnr_periods 20\nnr_throttled 10\nthrottled_usec 600000\nnr_bursts 5\nburst_usec 0\n"
        );
        assert_eq!(after.groups[0].cpu_stat("usage_usec 5\n"), "usage_usec 5\n");
    }
}
