//! One setting, replayed several times with period boundaries elsewhere.
use crate::confidence::{percentile_range, resample, value_range, Range};
use crate::goal::Subject;
use crate::quantities::measure;
use crate::source::Source;
use plimsoll_replay::{replay, Outcome, Settings, SettingsError};
use rayon::prelude::*;

pub struct Replicates<'a> {
    source: &'a Source,
    outcomes: Vec<Outcome>,
    period_ns: u64,
    seed: u64,
}

impl Replicates<'_> {
    /// `count`: at least 1. The seeds are those of `settings` and the next ones.
    pub fn run<'a>(
        source: &'a Source,
        settings: &Settings,
        count: u32,
    ) -> Result<Replicates<'a>, SettingsError> {
        let program = &source.program;
        let seeds: Vec<u64> = (0..u64::from(count.max(1)))
            .map(|i| settings.seed.wrapping_add(i))
            .collect();
        let run = |&seed: &u64| {
            let settings = Settings {
                seed,
                ..settings.clone()
            };
            replay(program, &source.machine, &settings, None)
        };
        Ok(Replicates {
            source,
            outcomes: seeds.par_iter().map(run).collect::<Result<_, _>>()?,
            period_ns: settings.groups[program.target as usize].period_us * 1000,
            seed: settings.seed,
        })
    }

    /// The first, that of the settings' own seed.
    pub fn first(&self) -> &Outcome {
        &self.outcomes[0]
    }

    /// Latencies that so many other runs might have had, each ascending.
    pub fn resampled(&self, count: usize) -> Vec<Vec<u64>> {
        resample(&self.outcomes, count, self.period_ns, self.seed)
    }

    pub fn range(&self, subject: &Subject) -> Option<Range> {
        let program = &self.source.program;
        match subject {
            Subject::Percentile { percent, class: None } => self.percentile(*percent),
            Subject::Percentile {
                percent,
                class: Some(name),
            } => {
                let class = program.classes.iter().position(|c| c.name == *name)? as u32;
                self.of_class(*percent, |found| found == class)
            }
            _ => {
                let of = |outcome| measure(program, outcome, subject);
                value_range(&self.outcomes.iter().filter_map(of).collect::<Vec<_>>())
            }
        }
    }

    pub fn percentile(&self, percent: f64) -> Option<Range> {
        self.of_class(percent, |_| true)
    }

    fn of_class(&self, percent: f64, keep: impl Fn(u32) -> bool) -> Option<Range> {
        let known_error = self.source.known_error(percent, &keep);
        percentile_range(
            &self.outcomes,
            percent,
            keep,
            self.period_ns,
            known_error,
            self.seed,
        )
    }

    /// CPUs used.
    pub fn cpus(&self) -> Option<Range> {
        let target = self.source.program.target as usize;
        value_range(
            &self
                .outcomes
                .iter()
                .map(|o| o.groups[target].cpus)
                .collect::<Vec<_>>(),
        )
    }

    /// Requests that were done, in a second.
    pub fn rate(&self) -> Option<Range> {
        let of =
            |o: &Outcome| o.requests.iter().filter(|r| r.done).count() as f64 * 1e9 / o.busy_ns.max(1) as f64;
        value_range(&self.outcomes.iter().map(of).collect::<Vec<_>>())
    }
}
