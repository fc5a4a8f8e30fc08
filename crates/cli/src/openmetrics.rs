// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is counted, as metrics. Those that cAdvisor has too keep its names and labels, so that dashboards and alerts made
//! for it go on working; the others begin with plimsoll_.
use plimsoll_agent::{Container, Containers};
use plimsoll_live::{GroupStatus, Status, CGROUP_ROOT};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

/// The two forms, by what the client reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    OpenMetrics,
    /// Prometheus' own, 0.0.4, which a textfile collector wants.
    Text,
}

impl Format {
    /// By the Accept header. OpenMetrics only for clients that name it: others may not read it.
    pub fn asked_for(accept: &str) -> Self {
        match accept.contains("application/openmetrics-text") {
            true => Self::OpenMetrics,
            false => Self::Text,
        }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// `None`: this one has none. Counters of waiting and stealing are the scheduler's: from the agent there are none.
type Value<T> = fn(&T) -> Option<f64>;

struct Metric<T> {
    /// Without the unit and `_total`, which the format adds.
    name: &'static str,
    unit: Option<Unit>,
    kind: MetricType,
    help: &'static str,
    value: Value<T>,
}

const fn counter<T>(
    name: &'static str,
    unit: Option<Unit>,
    help: &'static str,
    value: Value<T>,
) -> Metric<T> {
    let kind = MetricType::Counter;
    Metric {
        name,
        unit,
        kind,
        help,
        value,
    }
}

const fn gauge<T>(name: &'static str, unit: Option<Unit>, help: &'static str, value: Value<T>) -> Metric<T> {
    let kind = MetricType::Gauge;
    Metric {
        name,
        unit,
        kind,
        help,
        value,
    }
}

const SECONDS: Option<Unit> = Some(Unit::Seconds);

fn seconds(usec: u64) -> f64 {
    usec as f64 / 1e6
}

/// Of groups without a limit, cAdvisor shows none of the limit's metrics.
fn limited(group: &GroupStatus, value: f64) -> Option<f64> {
    group.quota_us.map(|_| value)
}

/// What cAdvisor's usage is of: all CPUs. Dashboards choose by it.
const USAGE: &str = "container_cpu_usage";

/// From any engine.
fn of_groups() -> Vec<Metric<GroupStatus>> {
    vec![
        counter(USAGE, SECONDS, "CPU time used", |g| Some(seconds(g.usage_usec))),
        counter(
            "container_cpu_cfs_periods",
            None,
            "Elapsed enforcement periods",
            |g| limited(g, g.nr_periods as f64),
        ),
        counter(
            "container_cpu_cfs_throttled_periods",
            None,
            "Periods at whose end the group was throttled on some CPU",
            |g| limited(g, g.nr_throttled as f64),
        ),
        counter(
            "container_cpu_cfs_throttled",
            SECONDS,
            "Time throttled, summed over CPUs",
            |g| limited(g, seconds(g.throttled_usec)),
        ),
        gauge(
            "container_spec_cpu_quota",
            None,
            "CPU quota in microseconds",
            |g| g.quota_us.map(|quota| quota as f64),
        ),
        gauge(
            "container_spec_cpu_period",
            None,
            "CPU period in microseconds",
            |g| Some(g.period_us as f64),
        ),
        counter(
            "container_cpu_cfs_burst_periods",
            None,
            "Periods that used more than the quota",
            |g| limited(g, g.nr_bursts as f64),
        ),
        counter(
            "container_cpu_cfs_burst",
            SECONDS,
            "Run time above the quota",
            |g| limited(g, seconds(g.burst_usec)),
        ),
        gauge(
            "plimsoll_burst_cap",
            SECONDS,
            "Most run time that may be saved",
            |g| (g.burst_us > 0).then(|| seconds(g.burst_us)),
        ),
        gauge(
            "plimsoll_pool",
            SECONDS,
            "Run time in the group's pool now",
            |g| g.current_bw_usec.map(seconds),
        ),
        gauge(
            "plimsoll_headroom_percent",
            None,
            "Idle share asked for by this group",
            |g| (g.headroom_percent > 0).then(|| f64::from(g.headroom_percent)),
        ),
    ]
}

/// From the scheduler alone.
fn of_scheduled_groups() -> Vec<Metric<GroupStatus>> {
    vec![
        counter(
            "container_cpu_schedstat_runqueue",
            SECONDS,
            "Time that tasks waited, runnable",
            |g| Some(seconds(g.run_delay_usec)),
        ),
        counter(
            "container_cpu_schedstat_run_periods",
            None,
            "Times that tasks were picked",
            |g| Some(g.nr_runs as f64),
        ),
        counter(
            "plimsoll_steals",
            None,
            "Tasks that a CPU took over from another one's queue",
            |g| Some(g.nr_steals as f64),
        ),
    ]
}

fn of_machine() -> Vec<Metric<Status>> {
    fn of_window(status: &Status, usec: u64) -> Option<f64> {
        status.side_budget_us.map(|_| seconds(usec))
    }
    vec![
        gauge(
            "plimsoll_merged_cgroups",
            None,
            "Cgroups scheduled as part of one above them, too deep or too many for limits of their own",
            |s| is_scheduler(s).then(|| f64::from(s.merged_cgroups)),
        ),
        gauge(
            "plimsoll_refused_cgroups",
            None,
            "Cgroups whose knobs the agent could not enforce",
            |s| s.refused_cgroups.map(f64::from),
        ),
        gauge(
            "plimsoll_headroom_wanted_percent",
            None,
            "Idle share that is left of the machine",
            |s| s.side_budget_us.map(|_| f64::from(s.headroom_percent)),
        ),
        gauge(
            "plimsoll_headroom_window",
            SECONDS,
            "Length of a window of headroom",
            |s| of_window(s, s.headroom_window_us),
        ),
        gauge(
            "plimsoll_headroom_idle",
            SECONDS,
            "CPU time that was idle in the last window",
            |s| of_window(s, s.idle_us),
        ),
        gauge(
            "plimsoll_side_used",
            SECONDS,
            "CPU time that the side groups used in the last window",
            |s| of_window(s, s.side_used_us),
        ),
        gauge(
            "plimsoll_side_budget",
            SECONDS,
            "CPU time that the side groups may use in this window",
            |s| s.side_budget_us.map(seconds),
        ),
    ]
}

/// The agent has no rows of CPUs.
fn is_scheduler(status: &Status) -> bool {
    !status.cpus.is_empty()
}

type Labels = Vec<(&'static str, String)>;

/// One reading, which is encoded once.
#[derive(Debug)]
struct Reading {
    status: Status,
    /// Of each group.
    labels: Vec<Labels>,
}

impl Collector for Reading {
    fn encode(&self, mut encoder: DescriptorEncoder) -> std::fmt::Result {
        let scheduled = of_scheduled_groups()
            .into_iter()
            .filter(|_| is_scheduler(&self.status));
        for metric in of_groups().into_iter().chain(scheduled) {
            let has_value = |group: &GroupStatus| (metric.value)(group).is_some();
            // A name without a sample says nothing.
            if !self.status.groups.iter().any(has_value) {
                continue;
            }
            let mut family =
                encoder.encode_descriptor(metric.name, metric.help, metric.unit.as_ref(), metric.kind)?;
            for (group, labels) in self.status.groups.iter().zip(&self.labels) {
                let Some(value) = (metric.value)(group) else {
                    continue;
                };
                let mut labels = labels.clone();
                if metric.name == USAGE {
                    labels.insert(0, ("cpu", "total".into()));
                }
                sample(metric.kind, value, family.encode_family(&labels)?)?;
            }
        }
        for metric in of_machine() {
            if let Some(value) = (metric.value)(&self.status) {
                let family =
                    encoder.encode_descriptor(metric.name, metric.help, metric.unit.as_ref(), metric.kind)?;
                sample(metric.kind, value, family)?;
            }
        }
        let version = [("version", crate::VERSION)];
        let mut family = encoder.encode_descriptor(
            "plimsoll_build_info",
            "Which plimsoll this is",
            None,
            MetricType::Gauge,
        )?;
        sample(MetricType::Gauge, 1.0, family.encode_family(&version)?)
    }
}

fn sample(kind: MetricType, value: f64, encoder: MetricEncoder<'_>) -> std::fmt::Result {
    match kind {
        MetricType::Counter => ConstCounter::new(value).encode(encoder),
        _ => ConstGauge::new(value).encode(encoder),
    }
}

/// The text of one scrape.
pub fn exposition(status: &Status, containers: &mut Containers, format: Format) -> String {
    let ids: Vec<&str> = status.groups.iter().map(|group| id(&group.cgroup)).collect();
    let found = containers.of(ids.iter().copied());
    let reading = Reading {
        labels: ids
            .iter()
            .zip(&found)
            .map(|(id, found)| labels(id, found))
            .collect(),
        status: status.clone(),
    };
    let mut registry = Registry::default();
    registry.register_collector(Box::new(reading));
    let mut text = String::new();
    encode(&mut text, &registry).expect("writing into memory");
    match format {
        Format::OpenMetrics => text,
        Format::Text => in_prometheus_format(&text),
    }
}

/// cAdvisor's `id`: the path below the mount, `/` for the root.
fn id(cgroup: &str) -> &str {
    match cgroup.strip_prefix(CGROUP_ROOT).unwrap_or(cgroup) {
        "" => "/",
        path => path,
    }
}

/// cAdvisor's labels; one that is empty is as good as none.
fn labels(id: &str, of: &Container) -> Labels {
    let all = [
        ("container", of.container.as_str()),
        ("id", id),
        ("image", &of.image),
        ("name", &of.name),
        ("namespace", &of.namespace),
        ("pod", &of.pod),
    ];
    let known = all.into_iter().filter(|(_, value)| !value.is_empty());
    known.map(|(name, value)| (name, escaped(value))).collect()
}

/// The crate writes values as they are.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// In Prometheus' older format a counter's name in HELP and TYPE is that of its samples, and there are no units.
fn in_prometheus_format(openmetrics: &str) -> String {
    let counters: Vec<&str> = openmetrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let mut text = String::new();
    for line in openmetrics
        .lines()
        .filter(|line| *line != "# EOF" && !line.starts_with("# UNIT "))
    {
        let mut words = line.splitn(4, ' ');
        match [words.next(), words.next(), words.next(), words.next()] {
            [Some("#"), Some(what), Some(name), Some(rest)] if counters.contains(&name) => {
                text.push_str(&format!("# {what} {name}_total {rest}\n"));
            }
            _ => text.extend([line, "\n"]),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::tests::two;
    use std::path::Path;

    fn exposed(status: &Status, format: Format) -> String {
        exposition(status, &mut Containers::under(Path::new("/nowhere")), format)
    }

    #[test]
    fn metrics_have_cadvisors_names_and_labels() {
        let (_, mut after) = two();
        after.groups[0].cgroup = "/sys/fs/cgroup/system.slice/we\"b".into();
        after.groups[1].cgroup = "/sys/fs/cgroup".into();
        let text = exposed(&after, Format::OpenMetrics);
        let id = r#"{id="/system.slice/we\"b"}"#;
        for line in [
            "container_cpu_usage_seconds_total{cpu=\"total\",id=\"/system.slice/we\\\"b\"} 0.4\n".into(),
            format!("container_cpu_cfs_burst_periods_total{id} 5.0\n"),
            format!("container_cpu_cfs_burst_seconds_total{id} 0.0\n"),
            format!("container_cpu_cfs_throttled_periods_total{id} 10.0\n"),
            format!("container_cpu_cfs_throttled_seconds_total{id} 0.6\n"),
            format!("container_spec_cpu_quota{id} 20000.0\n"),
            "container_cpu_usage_seconds_total{cpu=\"total\",id=\"/\"} 2.6\n".into(),
            "# TYPE container_cpu_cfs_periods counter\n".into(),
            "# UNIT container_cpu_cfs_throttled_seconds seconds\n".into(),
            "plimsoll_merged_cgroups 0.0\n".into(),
            "plimsoll_side_budget_seconds 0.03\n".into(),
        ] {
            assert!(text.contains(&line), "{line}{text}");
        }
        assert!(!text.contains("container_spec_cpu_quota{id=\"/\"}"));
        assert!(text.ends_with("# EOF\n"));
        let text = exposed(&after, Format::Text);
        assert!(
            text.contains("# TYPE container_cpu_cfs_throttled_seconds_total counter\n"),
            "{text}"
        );
        assert!(
            text.contains("# HELP container_spec_cpu_quota CPU quota in microseconds\n"),
            "{text}"
        );
        assert!(!text.contains("UNIT") && !text.contains("EOF"), "{text}");
    }

    #[test]
    fn what_the_agent_does_not_count_it_does_not_show_as_nothing() {
        let (_, mut after) = two();
        (after.cpus, after.refused_cgroups) = (Vec::new(), Some(1));
        let text = exposed(&after, Format::OpenMetrics);
        for name in ["schedstat", "steals", "merged"] {
            assert!(!text.contains(name), "{name}: {text}");
        }
        assert!(text.contains("plimsoll_refused_cgroups 1.0\n"), "{text}");
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
