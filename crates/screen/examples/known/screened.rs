// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `screen` says of sampled counters.
use crate::sampler::{Sample, SAMPLE_NS};
use plimsoll_screen::answer::{Labels, Series};
use plimsoll_screen::{Class, Collector, Metric, Options, Row, Thin};
use std::collections::BTreeSet;

/// The row of a container of which every `every`-th sample was taken.
pub fn screened(samples: &[Sample], every: usize, limit: f64) -> Row {
    let mut collector = Collector::new(None);
    let label = |name: &str| -> Labels {
        let pairs = [
            ("__name__", name),
            ("namespace", "known"),
            ("pod", "app"),
            ("container", "app"),
            ("resource", "cpu"),
        ];
        pairs
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .into()
    };
    let at_ms = |ns: u64| 1_700_000_000_000 + (ns / 1_000_000) as i64;
    let mut take = |name: &str, value: &dyn Fn(&Sample) -> f64| {
        let points = samples.iter().step_by(every).map(|s| (at_ms(s.0), value(s)));
        let series = Series {
            labels: label(name),
            points: points.collect(),
        };
        collector.take(series, None);
    };
    take("container_cpu_usage_seconds_total", &|s| s.1 as f64 / 1e9);
    take("container_cpu_cfs_periods_total", &|s| s.2 as f64);
    take("container_cpu_cfs_throttled_periods_total", &|s| s.3 as f64);
    take("kube_pod_container_resource_limits", &|_| limit);
    collector.finish(&Options::default()).rows.remove(0)
}

/// The class of a container of which a first look sees every `every`-th stretch between two samples; `None`: it leaves a doubt.
pub fn at_first_look(samples: &[Sample], every: usize, limit: f64) -> Option<Class> {
    let end_ms = 1_700_000_000_000 + (samples.last()?.0 / 1_000_000) as i64;
    let mut collector = Collector::new(Some((1_700_000_000_000, end_ms)));
    let interval_ms = (SAMPLE_NS / 1_000_000) as i64;
    let thin = Thin {
        step_ms: interval_ms * every as i64,
        interval_ms,
    };
    let at_ms = |ns: u64| 1_700_000_000_000 + (ns / 1_000_000) as i64;
    let labels = || -> Labels {
        [("namespace", "known"), ("pod", "app"), ("container", "app")]
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .into()
    };
    let mut take = |metric: Metric, value: &dyn Fn(&Sample) -> f64| {
        let pairs: Vec<_> = samples.windows(2).collect();
        let looks = pairs.iter().rev().step_by(every).rev();
        let points = looks.map(|two| {
            (
                at_ms(two[1].0),
                (value(&two[1]) - value(&two[0])) * 1e9 / SAMPLE_NS as f64,
            )
        });
        let series = Series {
            labels: labels(),
            points: points.collect(),
        };
        collector.take_rates(series, metric, thin);
    };
    take(Metric::Usage, &|s| s.1 as f64 / 1e9);
    take(Metric::Periods, &|s| s.2 as f64);
    take(Metric::ThrottledPeriods, &|s| s.3 as f64);
    let mut labels = labels();
    labels.insert("resource".into(), "cpu".into());
    let points = vec![(end_ms, limit)];
    collector.take(
        Series { labels, points },
        Some("kube_pod_container_resource_limits"),
    );
    collector.flush();
    let options = Options::default();
    let sure = collector.in_doubt(&BTreeSet::new(), &options).is_empty();
    sure.then(|| collector.finish(&options).rows.remove(0).class)
}
