// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is wrong with a container's limit, and why, in a sentence.
use crate::digest::Digest;
use crate::model::{Change, Demand, Estimate, SATURATED};
use schemars::JsonSchema;
use serde::Serialize;

/// What a container's limit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Throttled although on average much is left: burst or a longer period would help.
    ThrottledByBursts,
    /// Throttled, and burst is not enough, or not throttled and all but full on average: it needs more quota.
    TooSmall,
    /// Reserves more than it uses.
    TooLarge,
    /// Without a limit, and should have one.
    NoLimitNeedsOne,
    /// Without a limit, and needs none.
    NoLimitFine,
    Fine,
    /// Too little is known.
    Unknown,
}

impl Class {
    pub const ALL: [Class; 7] = [
        Class::ThrottledByBursts,
        Class::TooSmall,
        Class::TooLarge,
        Class::NoLimitNeedsOne,
        Class::NoLimitFine,
        Class::Fine,
        Class::Unknown,
    ];

    /// As tables show it.
    pub fn name(self) -> &'static str {
        match self {
            Class::ThrottledByBursts => "bursts",
            Class::TooSmall => "too small",
            Class::TooLarge => "too large",
            Class::NoLimitNeedsOne => "needs a limit",
            Class::NoLimitFine => "no limit, fine",
            Class::Fine => "fine",
            Class::Unknown => "unknown",
        }
    }
}

/// Where classes begin.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Share of periods from which on a container is throttled. Alerts in use ask for 25%; latency suffers long before.
    pub throttled_share: f64,
    /// Room above what is used in 99% of the time, as a share of it. VPA's default is 15%.
    pub margin: f64,
    /// CPUs below which nothing is called too large, over all pods of the workload.
    pub worth_cpus: f64,
    /// Share of the time asked for that has to be covered by samples.
    pub coverage: f64,
    /// Of a CPU for a month, in any currency; `None`: not asked for.
    pub price_per_core: Option<f64>,
    /// Whether the kernel's bound of burst, one quota, holds; `plimsoll run` and `agent` have none.
    pub burst_quotas: f64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            throttled_share: 0.01,
            margin: 0.15,
            worth_cpus: 0.1,
            coverage: 0.1,
            price_per_core: None,
            burst_quotas: 1.0,
        }
    }
}

/// What is set today, of one pod; `None`: not set, or not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Settings {
    /// CPUs.
    pub limit: Option<f64>,
    /// CPUs.
    pub request: Option<f64>,
    /// Seconds; the kernel's default where nothing says otherwise.
    pub period_s: f64,
    /// Whether series of the fleet name limits and requests, and all of them were had: if not, `None` says nothing.
    pub named: bool,
}

/// What is advised. Each is there only where it helps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Advice {
    /// CPUs of one pod.
    pub request: Option<f64>,
    /// CPUs of one pod.
    pub limit: Option<f64>,
    pub burst_ms: Option<f64>,
    pub period_ms: Option<f64>,
    /// CPUs of all pods that the request could give back.
    pub back_cpus: f64,
    /// What these cost in a month; `None`: no price was given.
    pub saved_a_month: Option<f64>,
}

impl Advice {
    /// In a few words; empty: nothing is to be changed.
    pub fn in_words(&self) -> String {
        let ms = |value: f64| format!("{value:.0} ms");
        let parts = [
            self.burst_ms.map(|value| format!("burst {}", ms(value))),
            self.period_ms.map(|value| format!("or period {}", ms(value))),
            self.request.map(|value| format!("request {}", cpus(value))),
            self.limit.map(|value| format!("limit {}", cpus(value))),
        ];
        parts
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(", ")
            .replace(", or", " or")
    }
}

#[derive(Clone, Debug)]
pub struct Verdict {
    pub class: Class,
    pub reason: String,
    pub advice: Advice,
    /// What some changes would do, each in words.
    pub estimates: Vec<(String, Change, Estimate)>,
}

/// Where classes begin, or a little beside it: where all agree, a digest of some of the samples has the class of all.
#[derive(Clone, Copy, Debug)]
struct Edges {
    throttled_share: f64,
    /// Of use: of the time, as a share.
    percentile: f64,
    helps: f64,
    saturated: f64,
    /// Of the limit, used on average.
    full: f64,
}

impl Edges {
    fn of(options: &Options) -> Edges {
        Edges {
            throttled_share: options.throttled_share,
            percentile: 0.99,
            helps: HELPS,
            saturated: SATURATED_HALF,
            full: SATURATED,
        }
    }

    /// Of `samples` drawn one by one a share is off by more than 2.5 standard errors once in 80 times. A sample of throttled
    /// periods is taken as wholly throttled or not at all, which is the most that it can vary.
    fn beside(self, samples: u64) -> [Edges; 2] {
        let off = |share: f64| 2.5 * (share * (1.0 - share) / samples.max(1) as f64).sqrt();
        [-1.0, 1.0].map(|sign| Edges {
            throttled_share: (self.throttled_share + sign * off(self.throttled_share)).clamp(1e-6, 1.0),
            percentile: (self.percentile + sign * off(self.percentile)).min(1.0),
            helps: self.helps - sign * NEAR,
            saturated: self.saturated - sign * NEAR,
            full: self.full - sign * NEAR_FULL,
        })
    }
}

/// Shares that the model gives from some of the samples are taken to be off by this much at most. Set by judgement: of
/// bench/screen_fleet.py's containers no class changed.
const NEAR: f64 = 0.1;

/// Likewise, the average use of some of the samples, as a share of the limit. Of bench/screen_fleet.py's containers it is off by 0.04% of itself.
const NEAR_FULL: f64 = 0.01;

/// Whether a digest of some samples, drawn evenly, leaves no doubt of its class.
pub fn certain(digest: &Digest, set: &Settings, pods: f64, asked_ms: i64, options: &Options) -> bool {
    let edges = Edges::of(options);
    let class = |edges: Edges| judge(digest, set, pods, asked_ms, options, &edges).class;
    let here = class(edges);
    let beside = edges.beside(digest.fine_samples());
    here != Class::Unknown && beside.into_iter().all(|edges| class(edges) == here)
}

fn unknown(reason: String) -> Verdict {
    Verdict {
        class: Class::Unknown,
        reason,
        advice: Advice::default(),
        estimates: Vec::new(),
    }
}

/// Samples below which nothing is said: a quarter of an hour at 30 s.
const SAMPLES_MIN: u64 = 30;

/// `pods`: how many reserve that much today. `asked_ms`: the time asked for, of all pods together.
pub fn classify(digest: &Digest, set: &Settings, pods: f64, asked_ms: i64, options: &Options) -> Verdict {
    judge(digest, set, pods, asked_ms, options, &Edges::of(options))
}

fn judge(
    digest: &Digest,
    set: &Settings,
    pods: f64,
    asked_ms: i64,
    options: &Options,
    edges: &Edges,
) -> Verdict {
    let fine = digest.fine_samples();
    if fine < SAMPLES_MIN {
        let coarse = digest.covered_ms > 3_600_000;
        return unknown(match coarse {
            true => "its samples are more than 2 minutes apart, which hides what a period needs".into(),
            false => format!("{fine} sound samples of use; {SAMPLES_MIN} are needed"),
        });
    }
    let covered = digest.covered_ms as f64 / asked_ms.max(1) as f64;
    if covered < options.coverage {
        return unknown(format!(
            "samples cover {:.0}% of the time it ran",
            covered * 100.0
        ));
    }
    let Some(limit) = set.limit else {
        // Only a limit's timer counts periods.
        if !set.named || digest.periods > 0.0 {
            return unknown("whether it has a limit, and which, no series says".into());
        }
        return without(digest, set, pods, options, edges);
    };
    if !digest.has_periods || digest.periods <= 0.0 {
        // A limit's timer counts no period while nothing runs.
        if digest.used_max > 0.001 * limit || !digest.has_periods {
            return unknown("it has a limit, but no sound samples say how often it was throttled".into());
        }
    }
    let matched: i64 = digest.bins.values().map(|bin| bin.limited_ms).sum();
    if digest.has_periods && (matched as f64) < 0.2 * digest.covered_ms as f64 && digest.periods > 0.0 {
        return unknown("most samples of throttling have none of use beside them".into());
    }
    let today = Change {
        limit,
        period_s: set.period_s,
        burst_s: 0.0,
    };
    let demand = Demand::fit(digest, today);
    let share = digest.throttled_share();
    match demand {
        Some(demand) if share >= edges.throttled_share => throttled(digest, &demand, today, options, edges),
        demand => quiet(digest, demand.as_ref(), set, today, pods, options, edges),
    }
}

/// CPUs that are enough in 99% of the time, and the margin.
fn needed(digest: &Digest, options: &Options, edges: &Edges) -> f64 {
    digest.used_percentile(edges.percentile) * (1.0 + options.margin)
}

/// A few digits, as many as tell it from others.
fn cpus(value: f64) -> String {
    match value {
        v if v >= 10.0 => format!("{v:.1}"),
        v if v >= 0.1 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    }
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        p if p > 0.0 && p < 0.1 => "less than 0.1%".into(),
        p if p < 10.0 => format!("{p:.1}%"),
        p => format!("{p:.0}%"),
    }
}

/// Burst is taken to halve what is throttled where the model leaves this share of it. The model takes pieces of work to come
/// independently; where they come more regularly, burst helps more. Of seeds 1 to 200 of `examples/known` 92% of those
/// named so profit, and 88% of those that profit are named; at a half it is 97% and 81%.
const HELPS: f64 = 0.65;

/// From this share of the throttling on, what happens at the limit itself decides.
const SATURATED_HALF: f64 = 0.5;

fn throttled(digest: &Digest, demand: &Demand, today: Change, options: &Options, edges: &Edges) -> Verdict {
    let share = digest.throttled_share();
    let wanted = options.throttled_share;
    let quota_s = today.limit * today.period_s;
    let most_s = quota_s * options.burst_quotas;
    let full = Change {
        burst_s: most_s,
        ..today
    };
    let with_burst = demand.estimate(&full);
    let mut estimates = vec![(format!("burst {:.0} ms", most_s * 1e3), full, with_burst)];
    let mut advice = Advice::default();
    let saturated = demand.saturated_share();
    let when = match digest.worst_hour() {
        Some((hour, worst)) if worst > 2.0 * share => {
            format!(
                ", {} from {hour:02}:00 to {:02}:00 UTC",
                percent(worst),
                (hour + 1) % 24
            )
        }
        _ => String::new(),
    };
    let head = format!(
        "throttled in {} of its periods{when} at {} of {} CPUs on average",
        percent(share),
        cpus(digest.used()),
        cpus(today.limit)
    );
    // Where a fair part of the throttling is at the limit itself, what is saved is never there when it is wanted.
    let helps = saturated < edges.saturated && with_burst.share <= share * edges.helps;
    if helps {
        let burst_s = demand.burst_for(wanted.min(share / 2.0), most_s);
        advice.burst_ms = Some((burst_s.unwrap_or(most_s) * 1e3).ceil());
        // A longer period is what a cluster can set by the kubelet where burst cannot be set.
        let longer = [0.2, 0.5, 1.0].map(|period_s| Change { period_s, ..today });
        let longer: Vec<_> = longer
            .into_iter()
            .filter(|change| change.period_s > today.period_s)
            .map(|change| (change, demand.estimate(&change)))
            .collect();
        let enough = longer
            .iter()
            .find(|(_, e)| e.share <= wanted.max(with_burst.share));
        if let Some((change, estimate)) = enough {
            advice.period_ms = Some(change.period_s * 1e3);
            estimates.push((
                format!("period {:.0} ms", change.period_s * 1e3),
                *change,
                *estimate,
            ));
        }
        let reason = format!(
            "{head}: work comes in pieces of {:.0} ms where a period has {:.0}; {:.0} ms of burst would leave {} ({} to {})",
            demand.size_s() * 1e3,
            quota_s * 1e3,
            most_s * 1e3,
            percent(with_burst.share),
            percent(with_burst.low),
            percent(with_burst.high),
        );
        return Verdict {
            class: Class::ThrottledByBursts,
            reason,
            advice,
            estimates,
        };
    }
    let limit = demand.limit_for(wanted, 8.0 * today.limit);
    let sentence = match limit {
        Some(limit) => {
            let change = Change { limit, ..today };
            let estimate = demand.estimate(&change);
            estimates.push((format!("limit {} CPUs", cpus(limit)), change, estimate));
            advice.limit = Some(round_up(limit));
            let hidden = match saturated > 0.2 {
                true => ", at least: samples at the limit hide how much was wanted",
                false => "",
            };
            format!("it needs about {} CPUs{hidden}", cpus(limit))
        }
        None => format!("even {} CPUs would not end it", cpus(8.0 * today.limit)),
    };
    let why = match saturated >= edges.saturated {
        true => format!("{} of that while it used all of its limit", percent(saturated)),
        false => format!(
            "{:.0} ms of burst would leave {}",
            most_s * 1e3,
            percent(with_burst.share)
        ),
    };
    Verdict {
        class: Class::TooSmall,
        reason: format!("{head}, {why}; {sentence}"),
        advice,
        estimates,
    }
}

/// Kubernetes counts in thousandths of a CPU.
fn round_up(value: f64) -> f64 {
    let step = match value {
        v if v >= 1.0 => 0.1,
        v if v >= 0.1 => 0.01,
        _ => 0.001,
    };
    ((value / step - 1e-9).ceil() * step * 1e3).round() / 1e3
}

fn quiet(
    digest: &Digest,
    demand: Option<&Demand>,
    set: &Settings,
    today: Change,
    pods: f64,
    options: &Options,
    edges: &Edges,
) -> Verdict {
    let share = digest.throttled_share();
    let need = needed(digest, options, edges);
    // Each period holds what comes in it, as if by a timer: with the next that takes a little more it is throttled for good.
    if digest.used() >= edges.full * today.limit {
        let limit = round_up(need);
        return Verdict {
            class: Class::TooSmall,
            reason: format!(
                "uses {} of {} CPUs on average, throttled in {} of its periods as it happens: a little more work would be throttled \
                 throughout; it needs about {} CPUs",
                cpus(digest.used()),
                cpus(today.limit),
                percent(share),
                cpus(limit)
            ),
            advice: Advice {
                limit: Some(limit),
                ..Advice::default()
            },
            estimates: Vec::new(),
        };
    }
    // Without a request Kubernetes takes the limit for it.
    let reserved = set.request.unwrap_or(today.limit);
    let request = round_up(need.max(0.01));
    let back = (reserved - request) * pods;
    let mut advice = Advice::default();
    let mut estimates = Vec::new();
    if request < 0.75 * reserved && back >= options.worth_cpus {
        if set.request.is_none() && !set.named {
            return unknown("whether it has a request below its limit, and which, no series says".into());
        }
        advice.request = Some(request);
        advice.back_cpus = back;
        let mut below = String::new();
        let lowest = demand.and_then(|demand| {
            // Of the upper bounds, since what never happened says little about how near it was.
            let candidates = (1..40).map(|i| request.max(today.limit * f64::from(i) / 40.0));
            candidates
                .filter(|limit| *limit < today.limit)
                .map(|limit| Change { limit, ..today })
                .map(|change| (change, demand.estimate(&change)))
                .find(|(_, estimate)| estimate.high <= options.throttled_share)
        });
        if let Some((change, estimate)) = lowest {
            let limit = round_up(change.limit);
            if limit < 0.9 * today.limit {
                advice.limit = Some(limit);
                below = format!(
                    "; a limit of {} would throttle it in {} of periods at most",
                    cpus(limit),
                    percent(estimate.high)
                );
                estimates.push((format!("limit {} CPUs", cpus(limit)), change, estimate));
            }
        }
        return Verdict {
            class: Class::TooLarge,
            reason: format!(
                "reserves {} CPUs and uses {} or less in 99% of the time: a request of {} gives {} CPUs back{below}",
                cpus(reserved),
                cpus(digest.used_percentile(0.99)),
                cpus(request),
                cpus(back)
            ),
            advice,
            estimates,
        };
    }
    Verdict {
        class: Class::Fine,
        reason: format!(
            "throttled in {} of its periods, uses {} of {} CPUs in 99% of the time",
            percent(share),
            cpus(digest.used_percentile(0.99)),
            cpus(today.limit)
        ),
        advice,
        estimates,
    }
}

/// Without a limit the request alone decides each container's share once the node is full.
fn without(digest: &Digest, set: &Settings, pods: f64, options: &Options, edges: &Edges) -> Verdict {
    let p99 = digest.used_percentile(edges.percentile);
    let need = needed(digest, options, edges);
    let advised = round_up(need.max(0.01));
    let verdict = |class, reason, advice| Verdict {
        class,
        reason,
        advice,
        estimates: Vec::new(),
    };
    let request = |back_cpus| Advice {
        request: Some(advised),
        back_cpus,
        ..Advice::default()
    };
    match set.request {
        None => verdict(
            Class::NoLimitNeedsOne,
            format!(
                "has neither limit nor request and uses up to {} CPUs that nothing reserves: give it a request of {}, or a limit",
                cpus(digest.used_max),
                cpus(advised)
            ),
            Advice {
                // A limit below what it has used would throttle it at once.
                limit: Some(round_up(digest.used_max.max(need) * 1.5)),
                ..request(0.0)
            },
        ),
        Some(reserved) if p99 > 2.0 * reserved && (p99 - reserved) * pods >= options.worth_cpus => verdict(
            Class::NoLimitNeedsOne,
            format!(
                "uses {} CPUs at times where {} are reserved, and takes the rest from its neighbours: raise the request to {}, \
                 or set a limit",
                cpus(p99),
                cpus(reserved),
                cpus(advised)
            ),
            Advice {
                limit: Some(round_up(digest.used_max.max(need) * 1.5)),
                ..request(0.0)
            },
        ),
        Some(reserved) if advised < 0.75 * reserved && (reserved - advised) * pods >= options.worth_cpus => verdict(
            Class::TooLarge,
            format!(
                "reserves {} CPUs and uses {} or less in 99% of the time: a request of {} gives {} CPUs back; it needs no limit",
                cpus(reserved),
                cpus(p99),
                cpus(advised),
                cpus((reserved - advised) * pods)
            ),
            request((reserved - advised) * pods),
        ),
        Some(reserved) => verdict(
            Class::NoLimitFine,
            format!(
                "uses {} CPUs or less in 99% of the time, {} are reserved: it needs no limit",
                cpus(p99),
                cpus(reserved)
            ),
            Advice::default(),
        ),
    }
}
