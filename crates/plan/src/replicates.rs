// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One setting in every case of the recordings, several times each with period boundaries elsewhere.
use crate::confidence::{
    allow_cpus, allow_throttled, mean, mean_range, percentile_range, resample, value_range, Range,
};
use crate::goal::Subject;
use crate::quantities::measure;
use crate::recordings::{span, Case, Recordings};
use crate::search::rate;
use crate::source::Source;
use plimsoll_replay::{Outcome, Settings, SettingsError};
use plimsoll_stats::percentile_ns;
use rayon::prelude::*;

/// The golden section: any few of its multiples in a row lie about evenly between 0 and 1.
const SPREAD: f64 = 0.618_033_988_749_895;

pub struct Replicates<'a> {
    cases: Vec<Runs<'a>>,
    period_ns: u64,
    seed: u64,
}

/// One case.
struct Runs<'a> {
    case: Case,
    source: &'a Source,
    outcomes: Vec<Outcome>,
}

impl Runs<'_> {
    /// Which class has that name; `Some(None)`: all of them, where no name is given.
    fn class(&self, name: Option<&str>) -> Option<Option<u32>> {
        let classes = &self.source.program.classes;
        match name {
            None => Some(None),
            Some(name) => Some(Some(classes.iter().position(|c| c.name == name)? as u32)),
        }
    }
}

impl Replicates<'_> {
    /// `settings`: one for each recording, with the same limits of the planned group. `count` replays in all of the
    /// recordings as they are, at least one in each; half as many at each end of the variation. No two have their period
    /// boundaries at one place: what a limit of a few ticks does depends on where its periods lie between the ticks.
    pub fn run<'a>(
        recordings: &'a Recordings,
        settings: &[Settings],
        count: u32,
    ) -> Result<Replicates<'a>, SettingsError> {
        let cases = recordings.cases();
        let times = |case: &Case| match case.is_as_recorded() {
            true => (count as usize).div_ceil(recordings.sources.len()).max(1),
            false => (count as usize).div_ceil(2).max(1),
        };
        let runs: Vec<Case> = cases
            .iter()
            .flat_map(|case| std::iter::repeat_n(*case, times(case)))
            .collect();
        let run = |(turn, case): (usize, &Case)| {
            let source = &recordings.sources[case.recording];
            let mut settings = settings[case.recording].clone();
            settings.phase = (turn as f64 * SPREAD).fract();
            settings.work_scale *= case.work_scale;
            source.replay(&settings)
        };
        let outcomes: Vec<Outcome> = runs.par_iter().enumerate().map(run).collect::<Result<_, _>>()?;
        let mut outcomes = outcomes.into_iter();
        let cases = cases.into_iter().map(|case| Runs {
            case,
            source: &recordings.sources[case.recording],
            outcomes: outcomes.by_ref().take(times(&case)).collect(),
        });
        let cases = cases.collect();
        let target = recordings.sources[0].program.target as usize;
        Ok(Replicates {
            cases,
            period_ns: settings[0].groups[target].period_us * 1000,
            seed: settings[0].seed,
        })
    }

    /// Of a recording as it is: the first.
    pub fn first(&self, recording: usize) -> &Outcome {
        &self.cases[recording].outcomes[0]
    }

    /// For each case latencies that so many other runs might have had, each ascending.
    pub fn resampled(&self, count: usize) -> Vec<(Case, Vec<Vec<u64>>)> {
        let of = |runs: &Runs| {
            (
                runs.case,
                resample(&runs.outcomes, count, self.period_ns, self.seed),
            )
        };
        self.cases.iter().map(of).collect()
    }

    pub fn range(&self, subject: &Subject) -> Option<Range> {
        match subject {
            Subject::Percentile { percent, class } => self.percentile_of(*percent, class.as_deref()),
            Subject::Mean { class } => self.mean_of(class.as_deref()),
            Subject::Throttled => self
                .value(|runs, outcome| measure(&runs.source.program, outcome, subject))
                .map(allow_throttled),
        }
    }

    pub fn percentile(&self, percent: f64) -> Option<Range> {
        self.percentile_of(percent, None)
    }

    fn mean_of(&self, class: Option<&str>) -> Option<Range> {
        self.over_cases(|runs| {
            let class = runs.class(class)?;
            let known_error = runs.source.known_error(class, mean);
            mean_range(&runs.outcomes, class, self.period_ns, known_error, self.seed)
        })
    }

    fn percentile_of(&self, percent: f64, class: Option<&str>) -> Option<Range> {
        self.over_cases(|runs| {
            let class = runs.class(class)?;
            let figure = |latencies: &[u64]| percentile_ns(latencies, percent) as f64;
            let known_error = runs.source.known_error(class, figure);
            percentile_range(
                &runs.outcomes,
                percent,
                class,
                self.period_ns,
                known_error,
                self.seed,
            )
        })
    }

    /// CPUs used.
    pub fn cpus(&self) -> Option<Range> {
        self.value(|runs, outcome| Some(outcome.groups[runs.source.program.target as usize].cpus))
            .map(allow_cpus)
    }

    /// Requests that were done, in a second: of the replays alone.
    pub fn rate(&self) -> Option<Range> {
        self.value(|_, outcome| Some(rate(outcome)))
    }

    fn value(&self, of: impl Fn(&Runs, &Outcome) -> Option<f64>) -> Option<Range> {
        self.over_cases(|runs| {
            value_range(
                &runs
                    .outcomes
                    .iter()
                    .filter_map(|o| of(runs, o))
                    .collect::<Vec<_>>(),
            )
        })
    }

    fn over_cases(&self, of: impl Fn(&Runs) -> Option<Range>) -> Option<Range> {
        span(
            self.cases
                .iter()
                .map(|runs| (runs.case.is_as_recorded(), of(runs))),
        )
    }
}
