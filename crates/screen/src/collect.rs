// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From series, in any order, to one row for each container of each workload.
use crate::answer::{Labels, Series};
use crate::class::{certain, classify, Class, Options, Settings};
use crate::clean::{growth, in_order, joined, summed, Faults, Growth};
use crate::digest::{Counters, Digest};
use crate::labels::{Container, Metric, Setting};
use crate::owners::{Owners, Workload};
use crate::table::Row;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// One series of a counter, and the samples that came since the last [`Collector::flush`].
struct Part {
    /// "": the whole container; else one CPU of it.
    cpu: String,
    points: Vec<(i64, f64)>,
    /// Of a first look: what is known already to have grown.
    grown: Vec<Growth>,
}

/// A first look at some of the samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thin {
    /// Between two looks.
    pub step_ms: i64,
    /// Between two samples.
    pub interval_ms: i64,
}

impl Thin {
    /// One sample of so many is looked at.
    fn one_in(self) -> f64 {
        self.step_ms as f64 / self.interval_ms as f64
    }
}

#[derive(Default)]
struct Entry {
    /// By what tells the series of one counter apart.
    parts: BTreeMap<(Metric, String), Part>,
    digest: Digest,
    faults: Faults,
    settings: [Option<(i64, f64)>; 4],
    /// Samples came since the last flush.
    fresh: bool,
    /// `None`: every sample.
    thin: Option<Thin>,
    /// Its first look was enough, or every sample was asked for.
    settled: bool,
    first_ms: Option<i64>,
    last_ms: Option<i64>,
}

/// Takes series in, whole or in stretches of time.
#[derive(Default)]
pub struct Collector {
    entries: HashMap<Container, Entry>,
    owners: Owners,
    metrics: BTreeSet<Metric>,
    /// Samples outside of it come from wrong clocks.
    range_ms: Option<(i64, i64)>,
    warnings: BTreeSet<String>,
    incomplete: bool,
    /// What belongs to no container.
    faults: Faults,
    /// Any limit, request, quota or period of a container.
    settings_seen: bool,
    settings_in_part: bool,
    other_series: BTreeMap<String, u64>,
    unnamed: u64,
    samples: u64,
}

/// The result.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Screening {
    /// Throttled ones first, then what gives most back.
    pub rows: Vec<Row>,
    /// What was damaged or missing.
    pub warnings: Vec<String>,
    pub faults: Faults,
    /// Something that was asked for could not be had.
    pub incomplete: bool,
    pub containers: usize,
    pub samples: u64,
    /// Ms since 1970: the first and last sample of use.
    pub from_ms: Option<i64>,
    pub to_ms: Option<i64>,
    /// Without these series less can be said.
    pub missing: Vec<&'static str>,
}

impl Screening {
    /// How much was looked at, as the table and the page begin with.
    pub fn extent(&self) -> String {
        let hours = self
            .from_ms
            .zip(self.to_ms)
            .map_or(0.0, |(from, to)| (to - from) as f64 / 3.6e6);
        let length = match hours {
            h if h >= 48.0 => format!("{:.1} days", h / 24.0),
            h => format!("{h:.1} hours"),
        };
        let thin = self.rows.iter().filter(|row| row.one_in > 1.0);
        let (nr, most) = thin.fold((0, 0.0), |(nr, most), row| (nr + 1, f64::max(most, row.one_in)));
        let looked = match nr {
            0 => String::new(),
            _ => format!(
                "; of {nr} rows, whose class leaves no doubt, one of {most:.0} samples was looked at, of the others every one"
            ),
        };
        format!(
            "{} containers in {} rows, {length} of samples{looked}",
            self.containers,
            self.rows.len()
        )
    }
}

impl Collector {
    /// `range_ms`: from when to when samples were asked for; `None`: whatever is there.
    pub fn new(range_ms: Option<(i64, i64)>) -> Self {
        Collector {
            range_ms,
            ..Self::default()
        }
    }

    /// Something that a reader of the result has to know.
    pub fn warn(&mut self, warning: impl Into<String>) {
        self.warnings.insert(warning.into());
    }

    /// A warning of something that was asked for and is not there.
    pub fn incomplete(&mut self, warning: impl Into<String>) {
        self.incomplete = true;
        self.warn(warning);
    }

    /// Limits and requests may be set that were not answered.
    pub fn settings_in_part(&mut self) {
        self.settings_in_part = true;
    }

    /// Whether a limit or request that no series names is not set.
    fn named(&self) -> bool {
        self.settings_seen && !self.settings_in_part
    }

    /// Samples that came although they lie outside of the time asked for.
    pub fn outside(&mut self, samples: u64) {
        self.faults.outside += samples;
    }

    pub fn has(&self, metric: Metric) -> bool {
        self.metrics.contains(&metric)
    }

    /// Samples of counters that were taken so far.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    pub fn containers(&self) -> usize {
        self.entries.len()
    }

    /// Takes growth per second at some times, each of one stretch between two samples.
    pub fn take_rates(&mut self, series: Series, metric: Metric, thin: Thin) {
        let Some(container) = Container::of(&series.labels) else {
            return;
        };
        self.metrics.insert(metric);
        self.samples += series.points.len() as u64;
        let entry = self.entries.entry(container).or_default();
        entry.fresh = true;
        entry.thin = Some(thin);
        let (cpu, id) = identity(&series.labels);
        let sound = series
            .points
            .iter()
            .filter(|(_, rate)| rate.is_finite() && *rate >= 0.0);
        let grown: Vec<Growth> = sound
            .map(|&(end_ms, rate)| Growth {
                end_ms,
                length_ms: thin.interval_ms,
                by: rate * thin.interval_ms as f64 / 1e3,
            })
            .collect();
        entry.faults.not_numbers += (series.points.len() - grown.len()) as u64;
        entry.part(metric, cpu, id).grown.extend(grown);
    }

    /// After a first look: forgets it for the pods of containers whose class it leaves in doubt, and gives these pods, each
    /// with its namespace. `suspects` are in doubt whatever it says.
    pub fn in_doubt(
        &mut self,
        suspects: &BTreeSet<Container>,
        options: &Options,
    ) -> BTreeSet<(String, String)> {
        let end_ms = self.range_ms.map_or(0, |(_, to_ms)| to_ms);
        let mut pods = BTreeSet::new();
        let new = self.entries.iter().filter(|(_, entry)| !entry.settled);
        for members in self.groups(new).into_values() {
            let suspect = members.iter().any(|(container, _)| suspects.contains(*container));
            let look = Look::at(&members, end_ms, true, self.named());
            if suspect
                || !certain(
                    &look.digest,
                    &look.set,
                    look.pods.max(1.0),
                    look.asked_ms,
                    options,
                )
            {
                let all = members.iter().map(|(container, _)| container);
                pods.extend(all.map(|container| (container.namespace.clone(), container.pod.clone())));
            }
        }
        for (container, entry) in &mut self.entries {
            entry.settled = true;
            if pods.contains(&(container.namespace.clone(), container.pod.clone())) {
                *entry = Entry {
                    settings: entry.settings,
                    settled: true,
                    ..Entry::default()
                };
            }
        }
        pods
    }

    /// By workload and name of the container.
    fn groups<'a>(
        &self,
        entries: impl Iterator<Item = (&'a Container, &'a Entry)>,
    ) -> BTreeMap<(Workload, String), Vec<(&'a Container, &'a Entry)>> {
        let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (container, entry) in entries {
            // Settings of a container that has no samples: a pod that has ended, or another cluster's.
            if entry.first_ms.is_some() {
                let key = (self.owners.workload(container), container.container.clone());
                groups.entry(key).or_default().push((container, entry));
            }
        }
        for members in groups.values_mut() {
            members.sort_by(|a, b| a.0.cmp(b.0));
        }
        groups
    }

    /// Takes one series. `asked`: its name where the answer leaves it out.
    pub fn take(&mut self, series: Series, asked: Option<&str>) {
        let name = series.labels.get("__name__").map(String::as_str).or(asked);
        let Some(name) = name.map(str::to_string) else {
            self.unnamed += 1;
            return;
        };
        if self.owners.take(&name, &series.labels) {
            return;
        }
        let setting = Setting::of(&name, &series.labels);
        let metric = Metric::of(&name);
        if setting.is_none() && metric.is_none() {
            if !name.starts_with("kube_pod_container_resource_") {
                *self.other_series.entry(name).or_default() += 1;
            }
            return;
        }
        let Some(container) = Container::of(&series.labels) else {
            // The pod as a whole, or a cgroup outside of Kubernetes.
            return;
        };
        if let Some(setting) = setting {
            self.settings_seen = true;
            let newest = series.points.iter().filter(|(_, value)| value.is_finite());
            if let Some(&(at_ms, value)) = newest.max_by_key(|point| point.0) {
                let entry = self.entries.entry(container).or_default();
                let slot = &mut entry.settings[setting as usize];
                if slot.is_none_or(|(before_ms, _)| before_ms <= at_ms) {
                    *slot = Some((at_ms, value));
                }
            }
            return;
        }
        let metric = metric.expect("one of both");
        self.metrics.insert(metric);
        self.samples += series.points.len() as u64;
        let entry = self.entries.entry(container).or_default();
        entry.fresh = true;
        let (cpu, id) = identity(&series.labels);
        let part = entry.part(metric, cpu, id);
        match part.points.is_empty() {
            true => part.points = series.points,
            false => part.points.extend(series.points),
        }
    }

    /// Makes sums of the samples that are there and forgets them. To be called between stretches of time, each asked for
    /// all counters.
    pub fn flush(&mut self) {
        for entry in self.entries.values_mut() {
            entry.flush(self.range_ms);
        }
    }

    /// Everything was taken.
    pub fn finish(mut self, options: &Options) -> Screening {
        self.flush();
        let missing: Vec<&'static str> = Metric::ALL
            .into_iter()
            .filter(|metric| !self.metrics.contains(metric))
            .map(Metric::name)
            .collect();
        let mut faults = self.faults;
        let (mut from_ms, mut to_ms) = (None::<i64>, None::<i64>);
        let entries = std::mem::take(&mut self.entries);
        for entry in entries.values() {
            faults.add(&entry.faults);
            from_ms = from_ms.into_iter().chain(entry.first_ms).min();
            to_ms = to_ms.into_iter().chain(entry.last_ms).max();
        }
        let containers = entries.values().filter(|entry| entry.first_ms.is_some()).count();
        let mut rows: Vec<Row> = self
            .groups(entries.iter())
            .into_iter()
            .map(|((workload, container), members)| {
                row(
                    workload,
                    container,
                    &members,
                    to_ms.unwrap_or(0),
                    self.range_ms.is_some(),
                    self.named(),
                    options,
                )
            })
            .collect();
        for row in &mut rows {
            let back_cpus = row.advice.back_cpus + 0.0;
            row.advice.saved_a_month = options.price_per_core.map(|price| back_cpus * price);
        }
        rows.sort_by(|a, b| {
            let rank = |row: &Row| (row.class, -row.throttled_share, -row.advice.back_cpus);
            let (a_rank, b_rank) = (rank(a), rank(b));
            (a_rank.0.cmp(&b_rank.0))
                .then(a_rank.1.total_cmp(&b_rank.1))
                .then(a_rank.2.total_cmp(&b_rank.2))
        });
        if self.unnamed > 0 {
            let text = "series without a name (rate() and other functions take it away); allowed: the counters themselves";
            self.warnings.insert(format!("{} {text}", self.unnamed));
        }
        for (name, count) in self.other_series.iter().take(5) {
            self.warnings
                .insert(format!("{name}: {count} series that say nothing here"));
        }
        if self.owners.is_empty() && !rows.is_empty() {
            let text = "kube_pod_owner is missing: each pod is a workload of its own";
            self.warnings.insert(text.into());
        }
        let list = faults.list();
        if !list.is_empty() {
            self.warnings.insert(format!("left out: {}", list.join(", ")));
        }
        Screening {
            rows,
            warnings: self.warnings.into_iter().collect(),
            faults,
            incomplete: self.incomplete,
            containers,
            samples: self.samples,
            from_ms,
            to_ms,
            missing,
        }
    }
}

/// The CPU that a series is of, and what tells it from others of the same counter and container.
fn identity(labels: &Labels) -> (String, String) {
    let cpu = labels
        .get("cpu")
        .filter(|cpu| *cpu != "total")
        .cloned()
        .unwrap_or_default();
    let mut id = String::new();
    for (name, value) in labels {
        if !matches!(
            name.as_str(),
            "__name__" | "namespace" | "pod" | "container" | "pod_name" | "container_name"
        ) {
            // "total" is there for use only, and the counters of one scrape have to sort alike.
            if name == "cpu" && value == "total" {
                continue;
            }
            id += &format!("{name}={value};");
        }
    }
    (cpu, id)
}

impl Entry {
    fn part(&mut self, metric: Metric, cpu: String, id: String) -> &mut Part {
        self.parts.entry((metric, id)).or_insert_with(|| Part {
            cpu,
            points: Vec::new(),
            grown: Vec::new(),
        })
    }

    fn flush(&mut self, range_ms: Option<(i64, i64)>) {
        if !std::mem::take(&mut self.fresh) {
            return;
        }
        let mut found: BTreeMap<Metric, Vec<Growth>> = BTreeMap::new();
        for metric in Metric::ALL {
            // By CPU, then by series.
            let mut by_cpu: BTreeMap<String, Vec<(String, Vec<Growth>)>> = BTreeMap::new();
            for ((_, id), part) in self.parts.iter_mut().filter(|((of, _), _)| *of == metric) {
                if let Some((from_ms, to_ms)) = range_ms {
                    let before = part.points.len();
                    part.points.retain(|(at_ms, _)| (from_ms..=to_ms).contains(at_ms));
                    self.faults.outside += (before - part.points.len()) as u64;
                }
                in_order(&mut part.points, &mut self.faults);
                let mut grown = std::mem::take(&mut part.grown);
                grown.extend(growth(&part.points, &mut self.faults));
                if metric == Metric::Usage {
                    let points = [part.points.first(), part.points.last()];
                    let ends = points.into_iter().flatten().map(|point| point.0);
                    let looks = [grown.first(), grown.last()].into_iter().flatten();
                    for at_ms in ends.chain(looks.map(|one| one.end_ms)) {
                        self.first_ms = self.first_ms.into_iter().chain([at_ms]).min();
                        self.last_ms = self.last_ms.into_iter().chain([at_ms]).max();
                    }
                }
                // The next stretch goes on from the last sample.
                let last = part.points.pop();
                part.points.clear();
                part.points.extend(last);
                by_cpu
                    .entry(part.cpu.clone())
                    .or_default()
                    .push((id.clone(), grown));
            }
            if by_cpu.is_empty() {
                continue;
            }
            let series = match by_cpu.remove("") {
                Some(whole) => joined(whole, &mut self.faults),
                None => {
                    let faults = &mut self.faults;
                    summed(by_cpu.into_values().map(|parts| joined(parts, faults)).collect())
                }
            };
            found.insert(metric, series);
        }
        let counters = Counters {
            usage: found.remove(&Metric::Usage).unwrap_or_default(),
            periods: found.remove(&Metric::Periods).unwrap_or_default(),
            throttled: found.remove(&Metric::ThrottledPeriods).unwrap_or_default(),
            throttled_s: found.remove(&Metric::ThrottledSeconds),
            burst_periods: found.remove(&Metric::BurstPeriods),
            waiting_s: found.remove(&Metric::Waiting),
        };
        self.digest.take(&counters, &mut self.faults);
    }

    fn settings(&self, named: bool) -> Settings {
        let of = |setting: Setting| self.settings[setting as usize].map(|(_, value)| value);
        let period_us = of(Setting::Period)
            .filter(|us| (1e3..=1e6).contains(us))
            .unwrap_or(100_000.0);
        let quota = of(Setting::Quota).filter(|us| *us > 0.0).map(|us| us / period_us);
        let positive = |value: Option<f64>| value.filter(|value| *value > 0.0);
        Settings {
            // What the kernel has comes before what was asked for.
            limit: quota.or(positive(of(Setting::Limit))),
            request: positive(of(Setting::Request)),
            period_s: period_us / 1e6,
            named,
        }
    }
}

/// How long before the end a pod may have been seen last and still run.
const STILL_RUNS_MS: i64 = 10 * 60 * 1000;

/// All pods of one container of one workload.
struct Look {
    /// Of those pods whose limit is that of most.
    digest: Digest,
    set: Settings,
    faults: Faults,
    /// That run today.
    pods: f64,
    /// The newest pod.
    pod: String,
    /// Pods with another limit.
    others: usize,
    asked_ms: i64,
    one_in: f64,
}

impl Look {
    fn at(members: &[(&Container, &Entry)], end_ms: i64, range_known: bool, named: bool) -> Look {
        // Pods of one workload may differ: an update is under way, or limits were changed. What runs today counts, then
        // what most have.
        let runs = |entry: &Entry| {
            entry
                .last_ms
                .is_some_and(|last_ms| end_ms - last_ms <= STILL_RUNS_MS)
        };
        let newest = members
            .iter()
            .max_by_key(|(_, entry)| (runs(entry), entry.last_ms, entry.first_ms))
            .expect("a group has members");
        let mut look = Look {
            digest: Digest::default(),
            set: newest.1.settings(named),
            faults: Faults::default(),
            pods: 0.0,
            pod: newest.0.pod.clone(),
            others: 0,
            asked_ms: 0,
            one_in: newest.1.thin.map_or(1.0, Thin::one_in),
        };
        for (_, entry) in members {
            look.faults.add(&entry.faults);
            look.pods += f64::from(u8::from(runs(entry)));
            let own = entry.settings(named);
            if own.limit != look.set.limit || own.period_s != look.set.period_s {
                look.others += 1;
                continue;
            }
            look.digest.add(&entry.digest);
            // For files it is not known what was asked for, and one wrong clock would make a long time of it.
            if range_known {
                let there_ms = entry
                    .last_ms
                    .zip(entry.first_ms)
                    .map_or(0, |(last, first)| last - first);
                look.asked_ms += (there_ms as f64 / entry.thin.map_or(1.0, Thin::one_in)) as i64;
            }
        }
        look
    }
}

fn row(
    workload: Workload,
    container: String,
    members: &[(&Container, &Entry)],
    end_ms: i64,
    range_known: bool,
    named: bool,
    options: &Options,
) -> Row {
    let look = Look::at(members, end_ms, range_known, named);
    let (digest, set, pods) = (&look.digest, look.set, look.pods);
    let verdict = classify(digest, &set, f64::max(pods, 1.0), look.asked_ms, options);
    let mut notes = Vec::new();
    if look.others > 0 {
        notes.push(format!(
            "{} of {} pods had another limit and are left out",
            look.others,
            members.len()
        ));
    }
    if look.one_in > 1.0 {
        notes.push(format!("one of {:.0} samples was looked at", look.one_in));
    }
    if digest.burst_periods.is_some_and(|periods| periods > 0.0) {
        notes.push(
            "it has burst today, whose size no series names: bounds count from what that leaves".into(),
        );
    }
    let damaged = look.faults.list();
    if !damaged.is_empty() {
        notes.push(format!("left out: {}", damaged.join(", ")));
    }
    Row {
        class: verdict.class,
        reason: verdict.reason,
        pods: pods as u64,
        pod: look.pod,
        container,
        used: digest.used(),
        used_p99: digest.used_percentile(0.99),
        used_max: digest.used_max,
        limit: set.limit,
        request: set.request,
        period_ms: set.period_s * 1e3,
        // What is counted of some samples stands for all.
        periods: digest.periods * look.one_in,
        throttled_share: digest.throttled_share(),
        throttled_s: digest.throttled_s.map(|s| s * look.one_in),
        waiting_share: digest
            .waiting_s
            .map(|s| s * 1e3 / digest.covered_ms.max(1) as f64),
        worst_hour: digest.worst_hour(),
        samples: digest.fine_samples(),
        one_in: look.one_in,
        advice: verdict.advice,
        estimates: verdict.estimates,
        notes,
        workload,
    }
}

impl Screening {
    pub fn count(&self, class: Class) -> usize {
        self.of(class).count()
    }

    pub fn of(&self, class: Class) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.class == class)
    }

    /// Whether a price was given.
    pub fn priced(&self) -> bool {
        self.rows.iter().any(|row| row.advice.saved_a_month.is_some())
    }

    /// CPUs that requests of a class could give back.
    pub fn back_cpus_of(&self, class: Class) -> f64 {
        // The sum of nothing is -0.
        self.of(class).map(|row| row.advice.back_cpus).sum::<f64>() + 0.0
    }

    /// What these cost in a month; `None`: no price was given.
    pub fn saved_a_month(&self, class: Class) -> Option<f64> {
        let saved = self.of(class).filter_map(|row| row.advice.saved_a_month);
        self.priced().then(|| saved.sum::<f64>() + 0.0)
    }

    /// CPUs that requests could give back.
    pub fn back_cpus(&self) -> f64 {
        self.rows.iter().map(|row| row.advice.back_cpus).sum::<f64>() + 0.0
    }

    /// The ones most worth recording: metrics show no latency, and of these it may suffer most.
    pub fn worth_recording(&self, most: usize) -> Vec<&Row> {
        let mut rows: Vec<&Row> = self
            .rows
            .iter()
            .filter(|row| row.worth_recording() > 0.0)
            .collect();
        rows.sort_by(|a, b| b.worth_recording().total_cmp(&a.worth_recording()));
        rows.truncate(most);
        rows
    }
}
