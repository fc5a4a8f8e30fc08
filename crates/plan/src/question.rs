// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a user asks of a plan, and the plan with all that has to be said of it: the same for the command line, for
//! sweeps and for Python.
use crate::figure::figure;
use crate::goal::{Goal, Subject};
use crate::paste::{paste, Paste};
use crate::quantities::SelfCheck;
use crate::recordings::Recordings;
use crate::search::{check, plan, Options, Other, Plan, PlanError, Verdict};
use crate::source::Source;
use crate::target::Target;
use plimsoll_replay::{Group, Program, Semantics, SettingsError};
use plimsoll_stats::percentile_ns;
use plimsoll_trace::DOUBTFUL_SHARE_MAX;
use std::ops::RangeInclusive;

/// What may be asked for as [`Question::max_cpus`].
pub const MAX_CPUS: RangeInclusive<f64> = 0.01..=4096.0;
/// And as [`Question::min_throughput_percent`].
pub const MIN_THROUGHPUT_PERCENT: RangeInclusive<f64> = 0.0..=100.0;

/// Replays behind each range, each with period boundaries elsewhere: nine of ten runs fall into it.
pub const REPLICATES: u32 = 8;

/// Targets that cannot express all that the kernel's files can, and are shown their own best; the most expressive first.
const OTHERS: [(&str, Target); 2] = [
    ("Docker, systemd", Target::Docker),
    ("Kubernetes", Target::Kubernetes),
];

#[derive(Clone, Debug)]
pub struct Question {
    /// At least one.
    pub goals: Vec<Goal>,
    /// CPUs that the group may be given, within [`MAX_CPUS`]; `None`: all of the machine.
    pub max_cpus: Option<f64>,
    /// See [`Options::min_throughput`].
    pub min_throughput_percent: f64,
    /// Where the limit will be set; `None`: the kernel's files or `plimsoll run`, by the semantics, and the best of the others
    /// where they cannot express the same.
    pub target: Option<Target>,
    /// Whose rules limits are under where no target says so.
    pub semantics: Semantics,
    pub seed: u64,
}

/// A plan, and how far it is to be believed.
pub struct Answer {
    /// One for each recording.
    pub checks: Vec<SelfCheck>,
    pub options: Options,
    /// The one that `plan` is for.
    pub target: Target,
    pub plan: Plan,
    /// The goal for throttling was added.
    pub throttled_goal_is_default: bool,
    asked: Option<Target>,
}

/// What has to be said before a plan is followed.
#[derive(Clone, Debug, Default)]
pub struct Warnings {
    /// Recordings without requests: no latency is shown.
    pub no_requests: Vec<String>,
    /// Recordings whose replays do not show what was recorded.
    pub not_shown: Vec<String>,
    /// Requests that are more than one.
    pub overlapping: Option<String>,
    /// Answers that did not leave as they were written.
    pub held: Option<String>,
    /// Limits of a pod's containers, which the plan leaves as they are.
    pub limits_below: Option<String>,
    /// Why no setting is safe.
    pub unsafe_anyway: Option<String>,
    /// Percentiles that rest on few requests.
    pub few_requests: Vec<String>,
}

impl Warnings {
    pub fn all(&self) -> Vec<String> {
        let others = [
            &self.overlapping,
            &self.held,
            &self.limits_below,
            &self.unsafe_anyway,
        ];
        let first = self.not_shown.iter().chain(&self.no_requests);
        let first = first.chain(others.into_iter().flatten());
        first.chain(&self.few_requests).cloned().collect()
    }
}

impl Question {
    /// With the defaults of the command line.
    pub fn about(goals: Vec<Goal>) -> Question {
        Question {
            goals,
            max_cpus: None,
            min_throughput_percent: 99.0,
            target: None,
            semantics: Semantics::Mainline,
            seed: 1,
        }
    }

    /// Refuses what [`Question::answer`] would, without a search.
    ///
    /// # Errors
    /// As for [`plan`].
    pub fn check(&self, recordings: &Recordings) -> Result<(), PlanError> {
        check(recordings, &self.goals)
    }

    /// Searches. `progress`: as for [`plan`].
    ///
    /// # Errors
    /// As for [`plan`].
    pub fn answer(
        &self,
        recordings: &Recordings,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<Answer, PlanError> {
        let mut goals = self.goals.clone();
        // A job takes whatever CPU there is, and a limit makes it longer: throttling is how.
        let throttled_goal_is_default =
            !recordings.median().program.is_job() && Goal::add_default(&mut goals);
        let checks = recordings.sources.iter().map(Source::self_check);
        let checks = checks.collect::<Result<Vec<SelfCheck>, SettingsError>>()?;
        let target = self.target.unwrap_or(match self.semantics {
            Semantics::Mainline => Target::Cgroup,
            Semantics::Published => Target::Plimsoll,
        });
        let others: &[(&str, Target)] = match (self.target, target) {
            (None, Target::Cgroup) => &OTHERS,
            _ => &[],
        };
        let options = Options {
            goals,
            max_cpus: self.max_cpus,
            knobs: target.knobs(),
            others: others.iter().map(|(_, other)| other.knobs()).collect(),
            semantics: target.semantics(),
            seed: self.seed,
            min_throughput: self.min_throughput_percent / 100.0,
            replicates: REPLICATES,
            searched: crate::SEARCHED,
        };
        let plan = plan(recordings, &options, progress)?;
        Ok(Answer {
            checks,
            options,
            target,
            plan,
            throttled_goal_is_default,
            asked: self.target,
        })
    }
}

impl Answer {
    /// Whether the replays show what was recorded.
    pub fn holds(&self) -> bool {
        self.checks.iter().all(SelfCheck::holds)
    }

    /// The best for those that cannot be told the recommendation.
    pub fn others(&self) -> impl Iterator<Item = (&'static str, &Other)> {
        let both = OTHERS.iter().zip(&self.plan.others);
        both.filter_map(|((name, _), other)| Some((*name, other.as_ref()?)))
    }

    /// CPUs that the group will use at most: what to reserve where there is no limit.
    pub fn request_cpus(&self) -> f64 {
        let own = &self.plan.recommended;
        own.cpus_range.map_or(own.cpus, |range| range.high)
    }

    /// Settings for every system that is meant: of those that cannot say what is recommended, their own best. None where the
    /// replay is off: what follows from that is not to be pasted.
    pub fn settings(&self, recordings: &Recordings) -> Vec<Paste> {
        if !self.holds() {
            return Vec::new();
        }
        let found = &self.plan;
        let source = recordings.median();
        let members: Vec<&str> = source.program.members().map(Group::name).collect();
        let of = |limits| {
            paste(
                &found.group,
                &members,
                &found.today.limits,
                limits,
                self.request_cpus(),
                self.options.semantics,
                source.recorded_on.cgroup_version,
            )
        };
        let all = of(&found.recommended.limits);
        let best = |paste: Paste| {
            let rank = match paste.system {
                "Docker" | "systemd" => 1,
                "Kubernetes" => found.others.len(),
                _ => 0,
            };
            let own = found.others.iter().take(rank).flatten().last();
            let Some(own) = own else { return paste };
            let mut other = of(&own.recommended.limits).into_iter();
            let Some(mut other) = other.find(|p| p.system == paste.system) else {
                return paste;
            };
            let c = &own.recommended;
            let p99 = c
                .p99_ns
                .map_or(String::new(), |ns| format!("p99 {} ms, ", figure(ns / 1e6)));
            let instead = format!(
                "what is recommended ({}); this is the best that it can say ({p99}throttled in {:.1}% of the periods)",
                found.recommended.limits,
                c.throttled * 100.0
            );
            other.lacks = Some(
                other
                    .lacks
                    .map_or(instead.clone(), |lacks| format!("{instead}; {lacks}")),
            );
            other
        };
        let meant = |paste: &Paste| self.asked.is_none_or(|target| paste.is_for(target));
        all.into_iter().filter(meant).map(best).collect()
    }

    pub fn warnings(&self, recordings: &Recordings) -> Warnings {
        let failed = recordings.sources.iter().zip(&self.checks);
        let failed = failed.filter(|(_, check)| !check.holds());
        let few = |goal: &Goal| match &goal.subject {
            Subject::Percentile { class, .. } => recordings.few_requests(&goal.text, class.as_deref()),
            Subject::Mean { .. } | Subject::Throttled => None,
        };
        Warnings {
            not_shown: failed.map(|(source, _)| not_shown(source)).collect(),
            no_requests: no_requests(recordings),
            overlapping: overlapping(recordings),
            held: held(recordings),
            limits_below: limits_below(&recordings.median().program),
            unsafe_anyway: unsafe_anyway(recordings, &self.plan),
            few_requests: self.options.goals.iter().filter_map(few).collect(),
        }
    }
}

/// Says it where what is called a request is more than one, in more than 1 of 100.
fn no_requests(recordings: &Recordings) -> Vec<String> {
    let why = recordings.sources.iter().filter_map(|s| s.no_requests.as_ref());
    why.map(|why| format!("no latency is shown: {why}")).collect()
}

fn overlapping(recordings: &Recordings) -> Option<String> {
    let sockets = recordings.sources.iter().filter_map(|s| s.program.sockets);
    let count: u64 = sockets.map(|seen| seen.overlapping).sum();
    let all = recordings.requests(None);
    let overlapping = count as f64 > DOUBTFUL_SHARE_MAX * all as f64;
    let said = overlapping.then(|| {
        format!(
            "{count} of {all} requests overlapped with others on their connection (pipelining, or HTTP/2 that is encrypted): their latency is \
             the time in which it was busy, and more than a request's own"
        )
    });
    let mut in_doubt = recordings
        .sources
        .iter()
        .filter_map(|s| s.streams_in_doubt.clone());
    said.or_else(|| in_doubt.next())
}

fn held(recordings: &Recordings) -> Option<String> {
    let all = recordings.requests(None);
    let mut held: Vec<u64> = recordings
        .sources
        .iter()
        .flat_map(|s| s.program.held_ns())
        .collect();
    held.sort_unstable();
    said_of_held(all, &held)
}

/// Says that answers were held, and what to do about it, where more than 1 of 100 were; `ns`: each for how long, ascending.
pub fn said_of_held(all: u64, ns: &[u64]) -> Option<String> {
    (ns.len() as f64 > DOUBTFUL_SHARE_MAX * all as f64).then(|| {
        format!(
            "{} of {all} answers left {} ms (median) after they were written, which no CPU limit changes: the kernel holds the second \
             small part of an answer until the client acknowledges the first (Nagle's algorithm; one write for both, or TCP_NODELAY, \
             avoids that), or the client reads slowly",
            ns.len(),
            figure(percentile_ns(ns, 50.0) as f64 / 1e6)
        )
    })
}

fn limits_below(program: &Program) -> Option<String> {
    let limited: Vec<String> = program
        .members()
        .filter_map(|group| {
            let cpus = group.quota_us? as f64 / group.period_us as f64;
            Some(format!("{} {} CPUs", group.name(), figure(cpus)))
        })
        .collect();
    (!limited.is_empty()).then(|| {
        format!(
            "groups below have limits of their own, which stay as recorded here: {}",
            limited.join(", ")
        )
    })
}

/// What is said of a recording that fails its self-check.
fn not_shown(source: &Source) -> String {
    let reason =
        "the replay under the recorded settings does not show what was recorded. Do not rely on this plan.";
    format!("{}: {reason}", source.file)
}

/// Where the runs differ so much that no setting is safe.
fn unsafe_anyway(recordings: &Recordings, found: &Plan) -> Option<String> {
    let high = recordings.variation.high;
    (found.verdict == Verdict::MetNarrowly && high > 1.0).then(|| {
        format!(
            "no setting is safe: none meets the goals both as recorded and in a run that takes {:.0}% more CPU time per \
             request, which these recordings let expect. Shown is the one with the most room",
            (high - 1.0) * 100.0
        )
    })
}
