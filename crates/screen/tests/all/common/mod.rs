// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Containers made by hand: their counters as Prometheus would say them.
#![allow(dead_code)]
pub mod real;
pub mod server;

use plimsoll_screen::{answer, Collector, Options, Screening};
use rand::Rng;
use rand_pcg::Pcg64Mcg;
use std::fmt::Write;
use std::ops::Range;

pub const BEGIN_MS: i64 = 1_700_000_000_000;
const STEP_MS: i64 = 30_000;

#[derive(Clone)]
pub struct Made {
    namespace: String,
    pod: String,
    labels: String,
    limit: Option<f64>,
    request: Option<f64>,
    counters: Vec<(&'static str, Vec<(i64, f64)>)>,
}

/// A container that uses `share` of its limit, in use that swings by a tenth, and is throttled in so many of its periods.
pub fn limited(limit: f64, share: f64, throttled: f64) -> Made {
    let (mut used, mut periods, mut stood) = (1_000.0, 5_000.0, 300.0);
    let mut counters = [Vec::new(), Vec::new(), Vec::new()];
    for i in 0..401 {
        let at_ms = BEGIN_MS + i * STEP_MS;
        for (series, value) in counters.iter_mut().zip([used, periods, stood]) {
            series.push((at_ms, value));
        }
        let swing = 1.0 + 0.1 * (i as f64 * 0.7).sin();
        used += 30.0 * limit * (share * swing).min(0.999);
        periods += 300.0;
        stood += f64::round(300.0 * throttled);
    }
    let [usage, periods, stood] = counters;
    Made {
        namespace: "shop".into(),
        pod: "web".into(),
        labels: String::new(),
        limit: Some(limit),
        request: None,
        counters: vec![
            ("container_cpu_usage_seconds_total", usage),
            ("container_cpu_cfs_periods_total", periods),
            ("container_cpu_cfs_throttled_periods_total", stood),
        ],
    }
}

/// One of each class.
pub fn fleet() -> Vec<Made> {
    vec![
        limited(1.0, 0.2, 0.02),
        limited(1.0, 0.99, 0.95),
        limited(4.0, 0.1, 0.0).request(4.0),
        limited(1.0, 0.7, 0.0).request(1.0),
        limited(1.0, 0.7, 0.0).no_limit().request(1.0),
        limited(4.0, 0.7, 0.0).no_limit().request(0.5),
    ]
}

pub fn screen(documents: &[String]) -> Screening {
    let mut collector = Collector::new(None);
    for document in documents {
        answer::read(document.as_bytes(), &mut |series| collector.take(series, None)).expect("sound JSON");
    }
    collector.finish(&Options::default())
}

/// All of them as OpenMetrics text, name by name; limits each minute, as they are scraped. Each pod is a StatefulSet.
pub fn openmetrics(fleet: &[Made]) -> String {
    let mut text = String::new();
    let mut names: Vec<&str> = fleet
        .iter()
        .flat_map(|made| made.counters.iter().map(|(name, _)| *name))
        .collect();
    names.sort();
    names.dedup();
    for name in names {
        for made in fleet {
            let points = made
                .counters
                .iter()
                .filter(|(own, _)| *own == name)
                .flat_map(|(_, points)| points);
            for (at_ms, value) in points {
                let labels = format!(
                    r#"namespace="{}",pod="{}",container="app""#,
                    made.namespace, made.pod
                );
                writeln!(text, "{name}{{{labels}}} {value} {}", *at_ms as f64 / 1e3).expect("memory");
            }
        }
    }
    for name in ["limits", "requests", "owner"] {
        for made in fleet {
            let pod = format!(r#"namespace="{}",pod="{}""#, made.namespace, made.pod);
            let of_container = r#"container="app",resource="cpu",unit="core""#;
            let (series, value) = match name {
                "limits" => (
                    format!("kube_pod_container_resource_limits{{{pod},{of_container}}}"),
                    made.limit,
                ),
                "requests" => (
                    format!("kube_pod_container_resource_requests{{{pod},{of_container}}}"),
                    made.request,
                ),
                _ => (
                    format!(
                        r#"kube_pod_owner{{{pod},owner_kind="StatefulSet",owner_name="{}"}}"#,
                        made.pod
                    ),
                    Some(1.0),
                ),
            };
            for (i, value) in (0..=200).zip(std::iter::repeat(value)) {
                if let Some(value) = value {
                    let at_ms = BEGIN_MS + i * 2 * STEP_MS;
                    writeln!(text, "{series} {value} {}", at_ms as f64 / 1e3).expect("memory");
                }
            }
        }
    }
    text + "# EOF\n"
}

impl Made {
    pub fn request(mut self, cpus: f64) -> Self {
        self.request = Some(cpus);
        self
    }

    /// Nothing counts periods then.
    pub fn no_limit(mut self) -> Self {
        self.limit = None;
        self.counters.truncate(1);
        self
    }

    /// No series names it.
    pub fn unnamed_limit(mut self) -> Self {
        self.limit = None;
        self
    }

    /// No series names it.
    pub fn unnamed_request(mut self) -> Self {
        self.request = None;
        self
    }

    pub fn samples(mut self, nr: usize) -> Self {
        for (_, points) in &mut self.counters {
            points.truncate(nr);
        }
        self
    }

    pub fn pod(mut self, namespace: &str, pod: &str) -> Self {
        (self.namespace, self.pod) = (namespace.into(), pod.into());
        self
    }

    pub fn replica(mut self, name: &str) -> Self {
        self.labels = format!(r#","prometheus_replica":"{name}""#);
        self
    }

    /// Nothing was scraped meanwhile.
    pub fn without(mut self, ms: &Range<i64>) -> Self {
        for (_, points) in &mut self.counters {
            points.retain(|(at_ms, _)| !ms.contains(at_ms));
        }
        self
    }

    /// The same counters, read at other times.
    pub fn scraped_later(mut self, by_ms: i64) -> Self {
        for (_, points) in &mut self.counters {
            let between = points.windows(2).map(|two| {
                let share = by_ms as f64 / (two[1].0 - two[0].0) as f64;
                (two[0].0 + by_ms, two[0].1 + share * (two[1].1 - two[0].1))
            });
            *points = between.collect();
        }
        self
    }

    pub fn drop_series(&mut self, name: &str) {
        self.counters.retain(|(of, _)| *of != name);
    }

    /// One document for each series.
    pub fn documents(&self) -> Vec<String> {
        let mut documents: Vec<String> = self
            .counters
            .iter()
            .map(|(name, points)| self.document(name, "", points))
            .collect();
        let settings = [("limits", self.limit), ("requests", self.request)];
        for (what, cpus) in settings {
            let at_ms = BEGIN_MS + 400 * STEP_MS;
            let name = format!("kube_pod_container_resource_{what}");
            let labels = r#","resource":"cpu","unit":"core""#;
            documents.extend(cpus.map(|cpus| self.document(&name, labels, &[(at_ms, cpus)])));
        }
        // cAdvisor says it of each container, limited or not.
        documents.push(self.document("container_spec_cpu_period", "", &[(BEGIN_MS, 1e5)]));
        documents
    }

    pub fn json(&self) -> String {
        self.documents().concat()
    }

    /// The counters in so many stretches of time, and the settings in the first.
    pub fn stretches(&self, nr: usize) -> Vec<String> {
        let all = self.counters[0].1.len();
        (0..nr)
            .map(|i| {
                let mut own = self.clone();
                for (_, points) in &mut own.counters {
                    *points = points[all * i / nr..all * (i + 1) / nr].to_vec();
                }
                own.json()
            })
            .collect()
    }

    fn document(&self, name: &str, labels: &str, points: &[(i64, f64)]) -> String {
        let series = self.series(name, labels, points);
        format!(r#"{{"status":"success","data":{{"resultType":"matrix","result":[{series}]}}}}"#)
    }

    fn series(&self, name: &str, labels: &str, points: &[(i64, f64)]) -> String {
        let mut values = String::new();
        for (at_ms, value) in points {
            let value = match value {
                v if v.is_nan() => "NaN".into(),
                v if v.is_infinite() => "+Inf".into(),
                v => v.to_string(),
            };
            write!(values, r#",[{},"{value}"]"#, *at_ms as f64 / 1e3).expect("memory");
        }
        format!(
            r#"{{"metric":{{"__name__":"{name}","namespace":"{}","pod":"{}","container":"app"{}{labels}}},"values":[{}]}}"#,
            self.namespace,
            self.pod,
            self.labels,
            values.trim_start_matches(',')
        )
    }

    /// A mixture: kind `round % 6` surely, each other one by chance.
    pub fn damage(&mut self, round: usize, random: &mut Pcg64Mcg) {
        for kind in 0..6 {
            if kind == round % 6 || random.random::<f64>() < 0.2 {
                self.damage_one(kind, random);
            }
        }
    }

    /// In each series: 0 NaN, 1 resets, 2 duplicates, 3 disorder, 4 clocks that are wrong, 5 counters that jump.
    pub fn damage_one(&mut self, kind: usize, random: &mut Pcg64Mcg) {
        for (_, points) in &mut self.counters {
            let nr = points.len();
            let mut pick = || random.random_range(1..nr - 1);
            match kind {
                0 => (0..6).for_each(|i| points[pick()].1 = [f64::NAN, f64::INFINITY][i % 2]),
                1 => {
                    for _ in 0..3 {
                        let at = pick();
                        let less = points[at].1;
                        points[at..].iter_mut().for_each(|point| point.1 -= less);
                    }
                }
                2 => (0..8).for_each(|i| {
                    let mut again = points[pick()];
                    again.1 += f64::from(i % 2);
                    points.push(again);
                }),
                3 => points.reverse(),
                4 => (0..4).for_each(|i| points.push((BEGIN_MS + [-1, 1][i % 2] * 90_000_000_000, 1e6))),
                _ => {
                    let at = pick();
                    points[at..].iter_mut().for_each(|point| point.1 += 1e9);
                }
            }
        }
    }
}
