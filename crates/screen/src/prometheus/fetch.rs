// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a server to a [`Collector`], in pieces: some namespaces, and a window of time whose length follows from how many
//! samples the last one had. A piece is taken whole or not at all.
use super::client::{FetchError, Kind, Problem, Server};
use super::query::Scope;
use crate::answer::{self, Labels, Said, Series};
use crate::collect::Thin;
use crate::labels::Container;
use crate::labels::Metric;
use crate::{Collector, Options};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

/// What of a server is screened.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Ms of samples before the end.
    pub length_ms: i64,
    /// The end, ms since 1970; `None`: now, by the server's clock.
    pub end_ms: Option<i64>,
    /// None: all.
    pub namespaces: Vec<String>,
    /// More matchers for every series, as PromQL has them: `cluster="a"`.
    pub selector: String,
    /// Samples of one counter that are asked for at once. Memory follows from it: some 16 bytes each for every counter,
    /// and 30 for the text of two.
    pub samples_most: u64,
    /// `None`: every sample of all.
    pub first_look: Option<FirstLook>,
}

/// A look at some of the samples, evenly over the time; every sample is asked for only of those containers whose class it
/// leaves in doubt.
#[derive(Clone, Copy, Debug)]
pub struct FirstLook {
    /// Where classes begin.
    pub options: Options,
    /// Looks at each container.
    pub looks: i64,
}

impl FirstLook {
    /// Of 1,500 samples drawn one by one, the 99th percentile is that of 98.4 to 99.6% (2.5 standard errors).
    pub fn new(options: Options) -> Self {
        FirstLook {
            options,
            looks: 1_500,
        }
    }
}

impl Wanted {
    pub fn new(length_ms: i64) -> Self {
        Wanted {
            length_ms,
            end_ms: None,
            namespaces: Vec::new(),
            selector: String::new(),
            samples_most: 2_000_000,
            first_look: None,
        }
    }
}

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    pub share: f64,
    pub containers: usize,
    pub samples: u64,
}

/// Windows of time. Below the shortest one something else is wrong than that it was too much.
const WINDOW_LEAST_MS: i64 = 10 * 60 * 1000;
const WINDOW_MOST_MS: i64 = 24 * 3600 * 1000;
/// Taken until a window has shown it: the shortest that is usual.
const INTERVAL_MS: i64 = 15_000;
/// Containers and namespaces of a piece. Names have 63 characters at most, and proxies allow some 8 KB of address.
const BATCH_CONTAINERS: u64 = 4_000;
const BATCH_NAMESPACES: usize = 40;
/// Limits rarely change, and one value for each pod is enough.
const SETTINGS_STEP_MS: i64 = 30 * 60 * 1000;
/// Requests at once: while one answer is read the server works on the next.
const AT_ONCE: usize = 2;
/// A first look is worth it from here on, in samples for each look: the server decodes every sample for both.
const THINNER: i64 = 5;
/// Before the end of the time, to see how far samples are apart.
const PROBE_MS: i64 = 10 * 60 * 1000;
/// Of names of pods in one question, in bytes: proxies allow some 8 KB of address, and signs are escaped.
const PODS_BYTES: usize = 3_000;
/// Clocks that differ more than this are said.
const SKEW_MS: i64 = 60_000;

/// Asks for everything that is screened. `told` hears how far it is.
///
/// # Errors
/// Nothing can be said: the server cannot be reached, refuses, or has failed altogether. Windows that alone could not be had
/// are warnings of the [`Collector`], which then is incomplete.
pub fn fetch(
    server: &Server,
    wanted: &Wanted,
    told: &mut dyn FnMut(Progress),
) -> Result<Collector, FetchError> {
    let now_ms = clock(server)?;
    let to_ms = wanted.end_ms.unwrap_or(now_ms);
    let from_ms = to_ms - wanted.length_ms;
    let mut fetch = Fetch {
        server,
        wanted,
        collector: Collector::new(Some((from_ms, to_ms))),
        from_ms,
        to_ms,
        outside: 0,
        lost_ms: BTreeMap::new(),
    };
    let own_ms = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |t| t.as_millis() as i64);
    if (own_ms - now_ms).abs() > SKEW_MS && wanted.end_ms.is_none() {
        fetch.collector.warn(format!(
            "the server's clock is {} s {} this one; the server's counts",
            (own_ms - now_ms).abs() / 1000,
            if own_ms > now_ms { "behind" } else { "ahead of" }
        ));
    }
    let batches = fetch.batches()?;
    let total = batches.len() as f64;
    for (i, batch) in batches.iter().enumerate() {
        let scope = Scope::new(&batch.namespaces, &wanted.selector);
        fetch.owners(&scope)?;
        fetch.settings(&scope, batch.containers)?;
        let mut told = |share: f64, collector: &Collector| {
            told(Progress {
                share: (i as f64 + share) / total,
                containers: collector.containers(),
                samples: collector.samples(),
            });
        };
        match wanted
            .first_look
            .and_then(|look| Some((look.options, fetch.first_look(&scope, look.looks)?)))
        {
            None => fetch.counters(&scope, batch.containers, Way::Every, &mut told)?,
            Some((options, (thin, suspects))) => {
                fetch.counters(
                    &scope,
                    batch.containers,
                    Way::Some(thin),
                    &mut |share, collector| {
                        told(share / 2.0, collector);
                    },
                )?;
                fetch.in_doubt(&suspects, &options, &mut |share, collector| {
                    told(0.5 + share / 2.0, collector);
                })?;
            }
        }
    }
    fetch.say_what_is_lost();
    Ok(fetch.collector)
}

/// The server's time, ms since 1970. Shows that it is one, too.
fn clock(server: &Server) -> Result<i64, FetchError> {
    // VictoriaMetrics answers with a vector of one series without labels.
    let (said, vector) = server.get("/api/v1/query", &[("query", "time()".into())], |bytes| {
        let mut vector = None;
        answer::read(bytes, &mut |series| {
            vector = series.points.last().map(|point| point.1)
        })
        .map(|said| (said, vector))
        .map_err(|error| error.to_string())
    })?;
    match said.scalar.or(vector) {
        Some(seconds) if seconds > 0.0 && seconds < 1e11 => Ok((seconds * 1e3) as i64),
        other => Err(FetchError::Failed(format!(
            "{}: time() is {other:?}; allowed: seconds since 1970",
            server.name()
        ))),
    }
}

/// Namespaces that are asked for together.
struct Batch {
    namespaces: Vec<String>,
    containers: u64,
}

struct Fetch<'a> {
    server: &'a Server,
    wanted: &'a Wanted,
    collector: Collector,
    from_ms: i64,
    to_ms: i64,
    outside: u64,
    /// By what the server said: how much time of how many pieces, and the first of it.
    lost_ms: BTreeMap<String, (i64, u64)>,
}

/// Which samples are asked for.
#[derive(Clone, Copy)]
enum Way {
    Every,
    Some(Thin),
}

/// Series of one answer, and what it says beside them.
type Answer = (Vec<Series>, Said);

/// An answer that has names instead of samples.
#[derive(serde::Deserialize)]
struct Names<T> {
    data: Option<Vec<T>>,
    error: Option<String>,
    warnings: Option<Vec<String>>,
    #[serde(default, rename = "isPartial")]
    partial: bool,
}

fn names<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<(Vec<T>, Said), String> {
    let found: Names<T> = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let mut said = Said {
        warnings: found.warnings.unwrap_or_default(),
        ..Said::default()
    };
    if found.partial {
        said.warnings.push(answer::PARTIAL.into());
    }
    let without = || found.error.unwrap_or("an answer without data".into());
    Ok((found.data.ok_or_else(without)?, said))
}

fn whole(bytes: &[u8]) -> Result<Answer, String> {
    let mut all = Vec::new();
    let said = answer::read(bytes, &mut |series| all.push(series)).map_err(|error| error.to_string())?;
    Ok((all, said))
}

fn seconds(ms: i64) -> String {
    format!("{}.{:03}", ms.div_euclid(1000), ms.rem_euclid(1000))
}

impl Fetch<'_> {
    /// Says what the server warned of. Warnings mean that an answer is not whole.
    fn heed(&mut self, said: &Said) {
        for warning in &said.warnings {
            self.collector.incomplete(format!("the server warned: {warning}"));
        }
    }

    fn batches(&mut self) -> Result<Vec<Batch>, FetchError> {
        let scope = Scope::new(&self.wanted.namespaces, &self.wanted.selector);
        let usage = scope.containers(Metric::Usage.name());
        let query = format!("count by (namespace) ({usage})");
        let parameters = [("query", query), ("time", seconds(self.to_ms))];
        let (counts, said) = self.server.get("/api/v1/query", &parameters, whole)?;
        self.heed(&said);
        let mut sizes: BTreeMap<String, u64> = BTreeMap::new();
        for series in counts {
            let name = series.labels.get("namespace").cloned().unwrap_or_default();
            let count = series.points.last().map_or(0.0, |point| point.1);
            sizes.insert(
                name,
                if count.is_finite() {
                    count.max(0.0) as u64
                } else {
                    0
                },
            );
        }
        // What has ended before the end is counted nowhere: namespaces of the whole time.
        for name in self.namespaces(&usage)? {
            sizes.entry(name).or_insert(0);
        }
        for name in &self.wanted.namespaces {
            if !sizes.contains_key(name) {
                self.collector
                    .warn(format!("namespace {name}: no container has samples in it"));
            }
        }
        let mut batches: Vec<Batch> = Vec::new();
        for (name, containers) in sizes {
            match batches.last_mut() {
                Some(last)
                    if last.containers + containers <= BATCH_CONTAINERS
                        && last.namespaces.len() < BATCH_NAMESPACES =>
                {
                    last.containers += containers;
                    last.namespaces.push(name);
                }
                _ => batches.push(Batch {
                    namespaces: vec![name],
                    containers,
                }),
            }
        }
        Ok(batches)
    }

    fn namespaces(&mut self, usage: &str) -> Result<Vec<String>, FetchError> {
        let parameters = self.over_all(usage);
        match self
            .server
            .get("/api/v1/label/namespace/values", &parameters, names)
        {
            Ok((found, said)) => {
                self.heed(&said);
                Ok(found)
            }
            // Some gateways let queries through and nothing else.
            Err(problem) if problem.kind == Kind::Unknown || problem.kind == Kind::TooMuch => {
                self.collector.incomplete(format!(
                    "{}; namespaces without a container at the end of the time are not seen",
                    problem.text
                ));
                Ok(Vec::new())
            }
            Err(problem) => Err(problem.into()),
        }
    }

    fn over_all(&self, selector: &str) -> [(&'static str, String); 3] {
        [
            ("match[]", selector.into()),
            ("start", seconds(self.from_ms)),
            ("end", seconds(self.to_ms)),
        ]
    }

    /// What belongs to what stands in the labels: samples are not asked for.
    fn owners(&mut self, scope: &Scope) -> Result<(), FetchError> {
        for metric in ["kube_pod_owner", "kube_replicaset_owner", "kube_job_owner"] {
            let parameters = self.over_all(&scope.owners(metric));
            match self.server.get("/api/v1/series", &parameters, names::<Labels>) {
                Ok((found, said)) => {
                    self.heed(&said);
                    for labels in found {
                        let points = Vec::new();
                        self.collector.take(Series { labels, points }, Some(metric));
                    }
                }
                Err(problem) => {
                    self.still_there()?;
                    self.collector.incomplete(format!(
                        "{}; pods whose {metric} is not known are rows of their own",
                        problem.text
                    ));
                }
            }
        }
        Ok(())
    }

    /// Limits and requests. Without them classes would be wrong, so a failure to read them is an error.
    fn settings(&mut self, scope: &Scope, containers: u64) -> Result<(), FetchError> {
        let series = 6 * containers.max(1) as i64;
        let steps = (self.wanted.samples_most as i64 / series).max(1);
        let mut window_ms = steps.saturating_mul(SETTINGS_STEP_MS).min(self.wanted.length_ms);
        let mut from_ms = self.from_ms;
        while from_ms < self.to_ms {
            let to_ms = (from_ms + window_ms).min(self.to_ms);
            let start_ms = to_ms - (to_ms - from_ms - 1) / SETTINGS_STEP_MS * SETTINGS_STEP_MS;
            let parameters = [
                ("query", scope.settings()),
                ("start", seconds(start_ms)),
                ("end", seconds(to_ms)),
                ("step", seconds(SETTINGS_STEP_MS)),
            ];
            match self.server.get("/api/v1/query_range", &parameters, whole) {
                Ok((found, said)) => {
                    self.heed(&said);
                    if !said.warnings.is_empty() {
                        self.collector.settings_in_part();
                    }
                    for series in found {
                        self.collector.take(series, None);
                    }
                    from_ms = to_ms;
                }
                Err(problem) if problem.kind == Kind::TooMuch && window_ms > SETTINGS_STEP_MS => {
                    window_ms /= 2
                }
                Err(problem) => return Err(problem.into()),
            }
        }
        Ok(())
    }

    /// How a first look at some of the samples is to be taken, and which containers it cannot tell enough of: their samples
    /// are further apart than those of most, or a counter fell. `None`: every sample is looked at.
    fn first_look(&mut self, scope: &Scope, looks: i64) -> Option<(Thin, BTreeSet<Container>)> {
        let usage = Metric::Usage.name();
        let probe = [
            ("query", scope.samples(usage, PROBE_MS)),
            ("time", seconds(self.to_ms)),
        ];
        let (found, said) = self.server.get("/api/v1/query", &probe, whole).ok()?;
        self.heed(&said);
        let apart: Vec<(Option<Container>, i64)> = found
            .iter()
            .filter_map(|series| {
                let (first, last) = series.points.first().zip(series.points.last())?;
                let gaps = series.points.len() as i64 - 1;
                (gaps > 0).then(|| (Container::of(&series.labels), (last.0 - first.0) / gaps))
            })
            .collect();
        let mut all: Vec<i64> = apart.iter().map(|(_, gap_ms)| *gap_ms).collect();
        all.sort_unstable();
        let interval_ms = *all.get(all.len() / 2)?;
        // Not in step with anything that comes each minute, five minutes or hour.
        let mut step_s = self.wanted.length_ms / looks.max(1) / 1000 + 1;
        while [2, 3, 5].iter().any(|divisor| step_s % divisor == 0) {
            step_s += 1;
        }
        let step_ms = step_s * 1000;
        if interval_ms <= 0 || step_ms < THINNER * interval_ms {
            return None;
        }
        let resets = [
            ("query", scope.resets(usage, self.wanted.length_ms)),
            ("time", seconds(self.to_ms)),
        ];
        let (fell, said) = self.server.get("/api/v1/query", &resets, whole).ok()?;
        self.heed(&said);
        let uneven = apart.into_iter().filter(|(_, gap_ms)| {
            let ratio = *gap_ms as f64 / interval_ms as f64;
            !(0.67..=1.5).contains(&ratio)
        });
        let fell = fell.iter().filter_map(|series| Container::of(&series.labels));
        let suspects = uneven
            .filter_map(|(container, _)| container)
            .chain(fell)
            .collect();
        Some((Thin { step_ms, interval_ms }, suspects))
    }

    /// Every sample of the containers that the first look leaves in doubt.
    fn in_doubt(
        &mut self,
        suspects: &BTreeSet<Container>,
        options: &Options,
        told: &mut dyn FnMut(f64, &Collector),
    ) -> Result<(), FetchError> {
        let pods: Vec<_> = self.collector.in_doubt(suspects, options).into_iter().collect();
        let mut rest = &pods[..];
        while let Some((namespace, _)) = rest.first() {
            let mut bytes = 0;
            let nr = rest
                .iter()
                .take_while(|(of, pod)| {
                    bytes += pod.len() + 1;
                    of == namespace && bytes <= PODS_BYTES
                })
                .count()
                .max(1);
            let names: Vec<&str> = rest[..nr].iter().map(|(_, pod)| pod.as_str()).collect();
            let scope = Scope::pods(namespace, &names, &self.wanted.selector);
            let done = (pods.len() - rest.len()) as f64;
            self.counters(&scope, nr as u64, Way::Every, &mut |share, collector| {
                told((done + share * nr as f64) / pods.len() as f64, collector);
            })?;
            rest = &rest[nr..];
        }
        Ok(())
    }

    fn counters(
        &mut self,
        scope: &Scope,
        containers: u64,
        way: Way,
        told: &mut dyn FnMut(f64, &Collector),
    ) -> Result<(), FetchError> {
        let most = self.wanted.samples_most.max(1) as i64;
        let (apart_ms, mut longest_ms) = match way {
            Way::Every => (INTERVAL_MS, WINDOW_MOST_MS),
            Way::Some(thin) => (thin.step_ms, self.wanted.length_ms.max(WINDOW_LEAST_MS)),
        };
        let mut window_ms = (most / containers.max(1) as i64).saturating_mul(apart_ms);
        let mut from_ms = self.from_ms;
        while from_ms < self.to_ms {
            // What was too much once is not tried again.
            window_ms = window_ms.clamp(WINDOW_LEAST_MS, longest_ms);
            let to_ms = (from_ms + window_ms).min(self.to_ms);
            match self.window(scope, way, from_ms, to_ms) {
                Ok(samples) => {
                    // Not by much more at once: what runs there may change.
                    let room = most as f64 / samples.max(1) as f64;
                    window_ms = ((to_ms - from_ms) as f64 * room.min(4.0)) as i64;
                    from_ms = to_ms;
                }
                Err(problem) if problem.kind == Kind::TooMuch && window_ms > WINDOW_LEAST_MS => {
                    longest_ms = (window_ms / 2).max(WINDOW_LEAST_MS);
                }
                Err(problem) => {
                    self.still_there()?;
                    let lost = self.lost_ms.entry(problem.text).or_default();
                    lost.0 += to_ms - from_ms;
                    lost.1 += 1;
                    from_ms = to_ms;
                }
            }
            let done_ms = from_ms - self.from_ms;
            told(done_ms as f64 / self.wanted.length_ms as f64, &self.collector);
        }
        Ok(())
    }

    /// The last moment of a first look within a window. They are the same for every window, the last at the end of all.
    fn last_look_ms(&self, thin: Thin, to_ms: i64) -> i64 {
        to_ms - (to_ms - self.to_ms).rem_euclid(thin.step_ms)
    }

    /// All counters over one window; gives the samples of the one that has most.
    fn window(&mut self, scope: &Scope, way: Way, from_ms: i64, to_ms: i64) -> Result<u64, Problem> {
        if matches!(way, Way::Some(thin) if self.last_look_ms(thin, to_ms) <= from_ms) {
            return Ok(0);
        }
        let ask = |metric: Metric| match way {
            Way::Every => {
                let parameters = [
                    ("query", scope.samples(metric.name(), to_ms - from_ms)),
                    ("time", seconds(to_ms)),
                ];
                self.server.get("/api/v1/query", &parameters, whole)
            }
            Way::Some(thin) => {
                let last_ms = self.last_look_ms(thin, to_ms);
                let first_ms = last_ms - (last_ms - from_ms - 1) / thin.step_ms * thin.step_ms;
                let parameters = [
                    // Two samples and half of a gap between them; cAdvisor's times waver.
                    ("query", scope.rates(metric.name(), thin.interval_ms * 5 / 2)),
                    ("start", seconds(first_ms)),
                    ("end", seconds(last_ms)),
                    ("step", seconds(thin.step_ms)),
                ];
                self.server.get("/api/v1/query_range", &parameters, whole)
            }
        };
        let next = AtomicUsize::new(0);
        let answers = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    while let Some(metric) = Metric::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let answer = ask(*metric);
                        answers.lock().expect("no panic").push((*metric, answer));
                    }
                });
            }
        });
        let mut answers = answers.into_inner().expect("no panic");
        answers.sort_by_key(|(metric, _)| *metric);
        let answers: Vec<(Metric, Answer)> = answers
            .into_iter()
            .map(|(metric, answer)| answer.map(|answer| (metric, answer)))
            .collect::<Result<_, _>>()?;
        let mut most = 0;
        for (metric, (found, said)) in answers {
            self.heed(&said);
            most = most.max(said.points);
            if let Way::Some(thin) = way {
                for series in found {
                    self.collector.take_rates(series, metric, thin);
                }
                continue;
            }
            for mut series in found {
                // Of the window before, see Scope::samples.
                series
                    .points
                    .retain(|(at_ms, _)| !(from_ms - 1..=from_ms).contains(at_ms));
                let before = series.points.len();
                series
                    .points
                    .retain(|(at_ms, _)| (from_ms..=to_ms).contains(at_ms));
                self.outside += (before - series.points.len()) as u64;
                self.collector.take(series, Some(metric.name()));
            }
        }
        self.collector.flush();
        Ok(most)
    }

    /// After a failure: one window that cannot be had is a gap, a server that is gone is the end.
    fn still_there(&self) -> Result<(), FetchError> {
        clock(self.server).map(drop)
    }

    fn say_what_is_lost(&mut self) {
        for (text, (lost_ms, pieces)) in std::mem::take(&mut self.lost_ms) {
            self.collector.incomplete(format!(
                "{:.1} hours are missing, in {pieces} pieces: {text}",
                lost_ms as f64 / 3.6e6
            ));
        }
        self.collector.outside(self.outside);
    }
}
