// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The search: every candidate once, a closer look around the cheapest that do, ranges for those that are left.
use crate::candidates::{first_pass, limits, needed, used, Knobs};
use crate::choice::frontier;
use crate::confidence::{stricter, throttled_at_most, Range};
use crate::enough::{self, TooFewRequests};
use crate::excerpt;
use crate::goal::{Goal, Subject};
use crate::quantities::measure;
use crate::recordings::{Case, Recordings};
use crate::replicates::Replicates;
use crate::source::{NoRequests, Source};
use crate::variation::Variation;
use plimsoll_replay::{GroupSettings, Outcome, Semantics, Settings, SettingsError};
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::Serialize;

pub struct Options {
    pub goals: Vec<Goal>,
    /// CPUs that the group may be given; `None`: all of the machine.
    pub max_cpus: Option<f64>,
    pub knobs: Knobs,
    /// Those of others that cannot say as much, from the one that can say most to the one that can say least; the best
    /// for each is looked for as well, [`Plan::others`].
    pub others: Vec<Knobs>,
    pub semantics: Semantics,
    pub seed: u64,
    /// Of clients that wait for their answers, the share of today's requests a second that a setting must keep, 0..1: under
    /// less CPU such clients ask less often, and a goal for a percentile may be met by fewer requests.
    pub min_throughput: f64,
    /// Replays of a setting with other period boundaries, for ranges, see [`Replicates::run`]; at least 1.
    pub replicates: u32,
    /// Of a recording with more than twice as many requests the search looks at the beginning, with so many of them at least;
    /// ranges are of all ([`crate::SEARCHED`]).
    pub searched: u64,
}

/// One setting of the group and what it gives: in one replay of the median recording, of a long one of its beginning; of a
/// setting that was looked at closely, the middles of its ranges.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Candidate {
    #[serde(flatten)]
    pub limits: Limits,
    /// CPUs that are kept for the group: its limit, or the whole machine.
    pub reserved_cpus: f64,
    /// Of all requests; `None`: there are none.
    pub p50_ns: Option<f64>,
    pub p99_ns: Option<f64>,
    pub throttled: f64,
    pub cpus: f64,
    /// Requests that were done, in a second.
    pub rate: f64,
    /// One for each goal, ns or share.
    pub values: Vec<Option<f64>>,
    /// Whether every goal is met.
    pub meets: bool,
    /// Smallest room left to a goal, as a share of its bound; negative: missed by so much.
    pub margin: f64,
    /// No goal is missed but for this: it is less than arrivals take that do not wait, so that their queue grows for ever.
    /// The margin is then what it lacks of that.
    pub too_little_cpu: bool,
    /// No goal is missed but for this: clients that wait for their answers get fewer than `min_throughput` of the requests
    /// a second that they have today. The margin is then what lacks of these.
    pub loses_throughput: bool,
    /// Likewise where all work takes what the costliest of the runs to be expected takes.
    pub meets_costly: bool,
    pub margin_costly: f64,
    pub too_little_cpu_costly: bool,
    pub loses_throughput_costly: bool,
    /// One for each goal, of candidates that were looked at closely.
    pub ranges: Option<Vec<Option<Range>>>,
    /// Of p50 and p99 of all requests, of the share of throttled periods, and of CPUs used.
    pub p50_range: Option<Range>,
    pub p99_range: Option<Range>,
    pub throttled_range: Option<Range>,
    pub cpus_range: Option<Range>,
}

/// [`GroupSettings`] as they are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Limits {
    pub quota_us: Option<u64>,
    pub period_us: u64,
    pub burst_us: u64,
    pub weight: u32,
    pub headroom_percent: u32,
}

/// What is not at its default, in one line.
impl std::fmt::Display for Limits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.quota_us {
            Some(quota) => write!(f, "{quota} us / {} us", self.period_us)?,
            None => f.write_str("no limit")?,
        }
        if self.burst_us > 0 {
            write!(f, ", burst {} us", self.burst_us)?;
        }
        if self.weight != 100 {
            write!(f, ", weight {}", self.weight)?;
        }
        if self.headroom_percent > 0 {
            write!(f, ", headroom {}%", self.headroom_percent)?;
        }
        Ok(())
    }
}

impl From<GroupSettings> for Limits {
    fn from(s: GroupSettings) -> Limits {
        Limits {
            quota_us: s.quota_us,
            period_us: s.period_us,
            burst_us: s.burst_us,
            weight: s.weight,
            headroom_percent: s.headroom_percent,
        }
    }
}

impl From<Limits> for GroupSettings {
    fn from(s: Limits) -> GroupSettings {
        GroupSettings {
            quota_us: s.quota_us,
            period_us: s.period_us,
            burst_us: s.burst_us,
            weight: s.weight,
            headroom_percent: s.headroom_percent,
        }
    }
}

/// What came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The recommendation meets every goal, its whole range included.
    Met,
    /// It meets every goal, but in some runs it may not.
    MetNarrowly,
    /// Nothing does.
    NotMet,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Plan {
    pub verdict: Verdict,
    pub group: String,
    pub goals: Vec<String>,
    /// Settings that were replayed.
    pub tried: usize,
    /// How much the recordings, or the blocks of one, differ.
    pub variation: Variation,
    /// Under the kernel's own rules, as it runs now, whatever the others are under.
    pub today: Candidate,
    /// The cheapest that meets the goals over its whole range. Where none does: of those that meet them otherwise the one
    /// with most room at the costly end of the range, else the nearest.
    pub recommended: Candidate,
    /// The most that can be had for less than the recommendation, which misses a goal.
    pub next_cheaper: Option<Candidate>,
    /// For each of [`Options::others`]; `None`: the recommendation, or the one before, is the best for it, too.
    pub others: Vec<Option<Other>>,
    /// From cheap to dear, each better than all cheaper ones.
    pub frontier: Vec<Candidate>,
}

/// The best for a target that cannot express the recommendation.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Other {
    pub verdict: Verdict,
    pub recommended: Candidate,
}

impl Plan {
    /// What `recommended` is called: what misses a goal is not recommended.
    pub fn called(&self) -> &'static str {
        match self.verdict {
            Verdict::NotMet => "nearest",
            Verdict::Met | Verdict::MetNarrowly => "recommended",
        }
    }
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    TooFewRequests(#[from] TooFewRequests),
    #[error("goal {goal:?}: {why}; or ask for throttled alone")]
    NoRequests { goal: String, why: NoRequests },
}

/// How often the search goes back between what is too little and what is enough, and the step below which it does not:
/// what a service uses differs by more from run to run.
const CLOSER_LOOKS: usize = 2;
const STEP_MIN: f64 = 0.05;

/// Whose rules today's setting is under: what was recorded ran under the kernel's own, whatever is planned for.
pub(crate) const TODAYS: Semantics = Semantics::Mainline;

#[derive(Clone, Copy)]
pub(crate) struct Search<'a> {
    recordings: &'a Recordings,
    options: &'a Options,
    semantics: Semantics,
    machine_cpus: f64,
    /// What is in force where it was recorded.
    pub(crate) today: GroupSettings,
    /// See [`needed`]; of the median recording.
    needed_cpus: f64,
    /// CPUs that clients which wait need to keep their requests: what was used, less what they may lose. 0: no client waits.
    kept_cpus: f64,
    /// Requests a second that a setting must keep: of the median recording, and of its costly case. `None`: no client waits.
    rate_least: Option<[f64; 2]>,
    /// Where each replay of the search ends, see `excerpt.rs`.
    until_ns: Option<u64>,
    progress: &'a (dyn Fn(usize, usize) + Sync),
}

/// Searches. `progress` is told how many replays are done, of how many that are planned so far.
///
/// Refuses goals for latencies where there are no requests, and for percentiles of fewer than they need ([`TooFewRequests`]);
/// and to plan for the root group: no limit can be set there, so every setting would seem to do as well as none.
pub fn plan(
    recordings: &Recordings,
    options: &Options,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Plan, PlanError> {
    check(recordings, &options.goals)?;
    let source = recordings.median();
    let program = &source.program;
    let machine_cpus = f64::from(source.machine.topology.nr_cpus());
    let max_cpus = options.max_cpus.unwrap_or(machine_cpus).min(machine_cpus);
    let today = Settings::recorded(program).groups[program.target as usize];
    let mut search = Search {
        recordings,
        options,
        semantics: TODAYS,
        machine_cpus,
        today,
        needed_cpus: needed(program, options.min_throughput),
        kept_cpus: 0.0,
        rate_least: None,
        until_ns: excerpt::until_ns(program, &options.goals, options.searched),
        progress,
    };
    if program.is_closed_loop() && !program.is_job() {
        let today_rate = |case| search.run(today, case).map(|o| rate(&o) * options.min_throughput);
        let least = today_rate(search.median_case())?;
        let costly = recordings.costly().map_or(Ok(least), today_rate)?;
        search.rate_least = Some([least, costly]);
        search.kept_cpus = used(program) * options.min_throughput;
    }
    search.semantics = options.semantics;

    let mut tried = search.try_all(first_pass(
        program,
        today,
        max_cpus,
        machine_cpus,
        options.knobs,
        options.semantics,
    ))?;
    // Between the dearest amount of CPU at which nothing does and the cheapest at which something does: as recorded, and
    // in the costliest runs to be expected.
    for _ in 0..CLOSER_LOOKS {
        let mut settings = Vec::new();
        for knobs in std::iter::once(&options.knobs).chain(&options.others) {
            let own: Vec<Candidate> = of(&tried, knobs, &today);
            let mut amounts = closer(&own, |c| c.meets);
            amounts.extend(closer(&own, |c| c.meets && c.meets_costly));
            let more = amounts.iter();
            settings.extend(more.flat_map(|&cpus| limits(cpus, max_cpus, today, *knobs, options.semantics)));
        }
        settings.retain(|s| !tried.iter().any(|c| GroupSettings::from(c.limits) == *s));
        if settings.is_empty() {
            break;
        }
        tried.extend(search.try_all(settings)?);
    }
    // Cheapest first; of equal ones the one with less burst, the longer period (fewer timers), today's weight without
    // headroom, more room.
    tried.sort_by(|a, b| {
        let key = |c: &Candidate| (c.reserved_cpus * 1e3).round() as u64;
        key(a)
            .cmp(&key(b))
            .then(a.limits.burst_us.cmp(&b.limits.burst_us))
            .then(b.limits.period_us.cmp(&a.limits.period_us))
            .then(search.turns_a_knob(a).cmp(&search.turns_a_knob(b)))
            .then(b.margin.total_cmp(&a.margin))
            .then(a.limits.weight.cmp(&b.limits.weight))
            .then(a.limits.headroom_percent.cmp(&b.limits.headroom_percent))
    });
    let frontier = frontier(&tried, options);
    let today_is = today;
    let now = Search {
        semantics: TODAYS,
        ..search
    };
    let today = now.closely(&now.evaluate(today)?)?;
    let (verdict, recommended) = search.recommend(&tried)?;
    let mut others: Vec<Option<Other>> = Vec::new();
    for knobs in &options.others {
        let mut known = std::iter::once(&recommended).chain(others.iter().flatten().map(|o| &o.recommended));
        if known.any(|c| knobs.can_say(&c.limits, &today_is)) {
            others.push(None);
            continue;
        }
        let (verdict, recommended) = search.recommend(&of(&tried, knobs, &today_is))?;
        others.push(Some(Other { verdict, recommended }));
    }
    let next_cheaper = match verdict {
        Verdict::NotMet => None,
        _ => search.next_cheaper(&frontier, &recommended)?,
    };
    Ok(Plan {
        verdict,
        group: source.target_path().into(),
        goals: options.goals.iter().map(|g| g.to_string()).collect(),
        tried: tried.len(),
        variation: recordings.variation.clone(),
        today,
        recommended,
        next_cheaper,
        others,
        frontier,
    })
}

/// What [`plan`] refuses.
pub fn check(recordings: &Recordings, goals: &[Goal]) -> Result<(), PlanError> {
    let target = recordings.median().target_path();
    if target == "/" {
        let error = SettingsError {
            what: "group".into(),
            value: target.into(),
            allowed:
                "a group below the root, which takes no limit; record the service in a cgroup of its own"
                    .into(),
        };
        return Err(error.into());
    }
    for goal in goals {
        let mut none = recordings
            .sources
            .iter()
            .filter_map(|source| source.no_requests.clone());
        if let (false, Some(why)) = (goal.subject == Subject::Throttled, none.next()) {
            let goal = goal.text.clone();
            return Err(PlanError::NoRequests { goal, why });
        }
        recordings
            .sources
            .iter()
            .try_for_each(|source| check_class(source, goal))?;
        enough::check(recordings, goal)?;
    }
    Ok(())
}

/// Those of the candidates that can be said with such knobs.
fn of(tried: &[Candidate], knobs: &Knobs, today: &GroupSettings) -> Vec<Candidate> {
    let can = |c: &&Candidate| knobs.can_say(&c.limits, today);
    tried.iter().filter(can).cloned().collect()
}

/// Amounts of CPU between the dearest at which nothing `does` and the cheapest at which something does.
fn closer(tried: &[Candidate], does: impl Fn(&Candidate) -> bool) -> Vec<f64> {
    let enough = tried
        .iter()
        .filter(|c| does(c))
        .map(|c| c.reserved_cpus)
        .fold(f64::INFINITY, f64::min);
    let too_little = tried
        .iter()
        .filter(|c| c.reserved_cpus < enough - 1e-3)
        .map(|c| c.reserved_cpus)
        .fold(0.0, f64::max);
    if !enough.is_finite() || too_little * (1.0 + STEP_MIN) > enough || too_little == 0.0 {
        return Vec::new();
    }
    [0.25, 0.5, 0.75]
        .map(|share| too_little + share * (enough - too_little))
        .into()
}

fn check_class(source: &Source, goal: &Goal) -> Result<(), SettingsError> {
    let (Subject::Percentile {
        class: Some(class), ..
    }
    | Subject::Mean { class: Some(class) }) = &goal.subject
    else {
        return Ok(());
    };
    let known: Vec<&str> = source.program.classes.iter().map(|c| c.name.as_str()).collect();
    if known.contains(&class.as_str()) {
        return Ok(());
    }
    Err(SettingsError {
        what: format!("goal {:?}: request", goal.text),
        value: class.clone(),
        allowed: format!("request (all of them), {}", known.join(", ")),
    })
}

/// By how much predicted CPU use is allowed to differ from real use, relatively (`make verify-plan`): what lacks less is not
/// known to lack it.
const CPUS_ERROR: f64 = 0.03;

impl Search<'_> {
    /// As recorded, with other limits of the planned group.
    fn settings(&self, source: &Source, own: GroupSettings) -> Settings {
        let mut settings = Settings::unrecorded(&source.program);
        settings.groups[source.program.target as usize] = own;
        settings.semantics = self.semantics;
        settings.seed = self.options.seed;
        settings
    }

    fn run(&self, own: GroupSettings, case: Case) -> Result<Outcome, PlanError> {
        let source = &self.recordings.sources[case.recording];
        let mut settings = self.settings(source, own);
        settings.work_scale = case.work_scale;
        settings.until_ns = self.until_ns;
        Ok(source.replay(&settings)?)
    }

    fn try_all(&self, mut settings: Vec<GroupSettings>) -> Result<Vec<Candidate>, PlanError> {
        // Rounding makes some of them the same.
        let mut seen: Vec<GroupSettings> = Vec::new();
        settings.retain(|s| {
            !seen.contains(s) && {
                seen.push(*s);
                true
            }
        });
        let count = settings.len();
        let done = std::sync::atomic::AtomicUsize::new(0);
        // rayon keeps the order, so that the number of threads decides nothing.
        settings
            .par_iter()
            .map(|own| {
                let found = self.evaluate(*own);
                let done = done.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
                (self.progress)(done, count);
                found
            })
            .collect()
    }

    fn evaluate(&self, own: GroupSettings) -> Result<Candidate, PlanError> {
        let mut found = self.judge(own, &self.run(own, self.median_case())?);
        // What misses a goal as recorded is not looked at again.
        if let Some(costly) = self.recordings.costly().filter(|_| found.meets) {
            let outcome = self.run(own, costly)?;
            let values = self.costly_values(&outcome);
            (
                found.meets_costly,
                found.margin_costly,
                found.too_little_cpu_costly,
            ) = self.with_enough_cpus(found.reserved_cpus, costly.work_scale, self.meets(&values));
            (
                found.meets_costly,
                found.margin_costly,
                found.loses_throughput_costly,
            ) = self.with_throughput(
                rate(&outcome),
                f64::INFINITY,
                1,
                (found.meets_costly, found.margin_costly),
            );
        }
        Ok(found)
    }

    fn median_case(&self) -> Case {
        Case {
            recording: self.recordings.median,
            work_scale: 1.0,
        }
    }

    /// Likewise only where clients that wait keep their requests a second, and are left the CPUs that these took. `case`: an
    /// index of `rate_least`.
    fn with_throughput(
        &self,
        rate: f64,
        reserved_cpus: f64,
        case: usize,
        (meets, margin): (bool, f64),
    ) -> (bool, f64, bool) {
        let Some(least) = self.rate_least else {
            return (meets, margin, false);
        };
        // Where none are to be kept both are infinite, or no number, and nothing lacks.
        let left = (rate / least[case]).min(reserved_cpus / self.kept_cpus) - 1.0;
        match left < 0.0 {
            true => (false, margin.min(left), meets),
            false => (meets, margin, false),
        }
    }

    /// One for each goal, percentiles taken at `at` of the goal's.
    fn values(&self, outcome: &Outcome, at: impl Fn(f64) -> f64) -> Vec<Option<f64>> {
        let program = &self.recordings.median().program;
        let of = |goal: &Goal| match &goal.subject {
            Subject::Percentile { percent, class } => {
                let (percent, class) = (at(*percent), class.clone());
                measure(program, outcome, &Subject::Percentile { percent, class })
            }
            other => measure(program, outcome, other),
        };
        self.options.goals.iter().map(of).collect()
    }

    /// The same, where runs may come out somewhat worse than this one.
    fn costly_values(&self, outcome: &Outcome) -> Vec<Option<f64>> {
        let mut values = self.values(outcome, stricter);
        for (goal, value) in self.options.goals.iter().zip(&mut values) {
            if goal.subject == Subject::Throttled {
                *value = value.map(throttled_at_most);
            }
        }
        values
    }

    fn judge(&self, own: GroupSettings, outcome: &Outcome) -> Candidate {
        let program = &self.recordings.median().program;
        let of = |subject: &Subject| measure(program, outcome, subject);
        let percentile = |percent| of(&Subject::Percentile { percent, class: None });
        let values = self.values(outcome, |percent| percent);
        let reserved_cpus = own
            .cpus()
            .map_or(self.machine_cpus, |cpus| cpus.min(self.machine_cpus));
        let (meets, margin, too_little_cpu) = self.with_enough_cpus(reserved_cpus, 1.0, self.meets(&values));
        let rate = rate(outcome);
        let (meets, margin, loses_throughput) = self.with_throughput(rate, reserved_cpus, 0, (meets, margin));
        Candidate {
            limits: own.into(),
            reserved_cpus,
            p50_ns: percentile(50.0),
            p99_ns: percentile(99.0),
            throttled: of(&Subject::Throttled).unwrap_or(0.0),
            cpus: outcome.groups[program.target as usize].cpus,
            rate,
            values,
            meets,
            margin,
            too_little_cpu,
            loses_throughput,
            meets_costly: meets,
            margin_costly: margin,
            too_little_cpu_costly: too_little_cpu,
            loses_throughput_costly: loses_throughput,
            ranges: None,
            p50_range: None,
            p99_range: None,
            throttled_range: None,
            cpus_range: None,
        }
    }

    /// Goals are met in the long run only where the service needs no more CPUs than these, all work taking `work_scale`
    /// times as long. Where it does not, it is the goals' margin that counts. Then whether it is only CPUs that lack.
    fn with_enough_cpus(
        &self,
        reserved_cpus: f64,
        work_scale: f64,
        (meets, margin): (bool, f64),
    ) -> (bool, f64, bool) {
        // As a share of those needed; where none are it is infinite, or no number, and neither lacks any. What was used as
        // recorded is known; what another run needs is not known to 3%.
        let left = reserved_cpus / (self.needed_cpus * work_scale) - 1.0;
        let error = if work_scale > 1.0 { CPUS_ERROR } else { 0.0 };
        match left < -error {
            true => (false, margin.min(left), meets),
            false => (meets, margin, false),
        }
    }

    fn meets(&self, values: &[Option<f64>]) -> (bool, f64) {
        let goals = self.options.goals.iter().zip(values);
        let mut meets = true;
        let mut margin = f64::INFINITY;
        for (goal, value) in goals {
            let Some(value) = value else {
                return (false, f64::NEG_INFINITY);
            };
            meets &= goal.is_met_by(*value);
            margin = margin.min(goal.margin(*value));
        }
        (meets, margin)
    }

    /// Whether the goals are met at one point of the ranges of a candidate that was looked at closely.
    fn meets_at(&self, close: &Candidate, point: impl Fn(Range) -> f64) -> (bool, f64) {
        self.meets(&values_at(close, point))
    }

    /// The same candidate with ranges, and their middles for figures.
    pub(crate) fn closely(&self, candidate: &Candidate) -> Result<Candidate, PlanError> {
        let own: GroupSettings = candidate.limits.into();
        let sources = self.recordings.sources.iter();
        let settings: Vec<Settings> = sources.map(|source| self.settings(source, own)).collect();
        let count = excerpt::replicates(&self.recordings.median().program, self.options.replicates);
        let replicates = Replicates::run(self.recordings, &settings, count)?;
        let goals = self.options.goals.iter();
        let mut close = Candidate {
            ranges: Some(goals.map(|g| replicates.range(&g.subject)).collect()),
            p50_range: replicates.percentile(50.0),
            p99_range: replicates.percentile(99.0),
            throttled_range: replicates.range(&Subject::Throttled),
            cpus_range: replicates.cpus(),
            ..candidate.clone()
        };
        let or = |range: Option<Range>, value: f64| range.map_or(value, |r| r.middle);
        close.p50_ns = close.p50_range.map(|r| r.middle).or(close.p50_ns);
        close.p99_ns = close.p99_range.map(|r| r.middle).or(close.p99_ns);
        close.throttled = or(close.throttled_range, close.throttled);
        close.cpus = or(close.cpus_range, close.cpus);
        // The share of today's that is kept is one replay's beside another's: runs differ in what clients ask for.
        let none_missed = (true, f64::INFINITY);
        let (kept, lack, _) = self.with_throughput(candidate.rate, candidate.reserved_cpus, 0, none_missed);
        close.values = values_at(&close, |r| r.middle);
        let cpus = close.reserved_cpus;
        let costly = self.recordings.costly().map_or(1.0, |case| case.work_scale);
        (close.meets, close.margin, close.too_little_cpu) =
            self.with_enough_cpus(cpus, 1.0, self.meets_at(&close, |r| r.middle));
        (
            close.meets_costly,
            close.margin_costly,
            close.too_little_cpu_costly,
        ) = self.with_enough_cpus(cpus, costly, self.meets_at(&close, |r| r.high));
        close.loses_throughput = close.meets && !kept;
        if !kept {
            (close.meets, close.margin) = (false, close.margin.min(lack));
            (close.meets_costly, close.margin_costly) = (false, close.margin_costly.min(lack));
        }
        if candidate.loses_throughput_costly {
            (close.meets_costly, close.margin_costly) =
                (false, close.margin_costly.min(candidate.margin_costly));
        }
        // Costly runs are beside those as recorded: what does not do here does not do there, whatever is forgiven there.
        if close.too_little_cpu {
            close.meets_costly = false;
        }
        Ok(close)
    }
}

/// Requests that were done, in a second.
pub(crate) fn rate(outcome: &Outcome) -> f64 {
    let done = outcome.requests.iter().filter(|r| r.done).count();
    done as f64 * 1e9 / outcome.busy_ns.max(1) as f64
}

/// For each goal, one point of its range.
fn values_at(close: &Candidate, point: impl Fn(Range) -> f64) -> Vec<Option<f64>> {
    let ranges = close.ranges.iter().flatten();
    ranges.map(|range| range.map(&point)).collect()
}
