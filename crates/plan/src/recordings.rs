// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several recordings of one service, and what a setting gives in all of them.
//!
//! A setting is replayed in each recording as it is, and in the median one with all work scaled to both ends of what
//! another run may take ([`Variation`]). A range spans all of these: its ends are the outermost of theirs, its middle is
//! the median of the recordings' middles.
use crate::confidence::{Range, FEW_REQUESTS};
use crate::source::{Source, SourceError};
use crate::variation::{SeenIn, Variation};
use plimsoll_replay::SettingsError;
use plimsoll_trace::RequestSpec;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

pub struct Recordings {
    /// As they were given, at least one.
    pub sources: Vec<Source>,
    /// Which of them has the median CPU time per request; of an even number the costlier of the middle two.
    pub median: usize,
    pub variation: Variation,
}

/// One way in which another run may come out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    /// Into [`Recordings::sources`].
    pub recording: usize,
    /// Scale of all work; 1: as recorded.
    pub work_scale: f64,
}

impl Case {
    pub fn is_as_recorded(&self) -> bool {
        self.work_scale == 1.0
    }
}

/// From the first start to the last, by the wall clock: the clocks of two boots or hosts, by which events are dated,
/// say nothing about each other. 0 where one is not known.
fn apart_ns(wall_starts_ns: impl Iterator<Item = Option<i64>>) -> u64 {
    let starts_ns: Option<Vec<i64>> = wall_starts_ns.collect();
    let starts_ns = starts_ns.unwrap_or_default();
    match (starts_ns.iter().min(), starts_ns.iter().max()) {
        (Some(&first), Some(&last)) => last.abs_diff(first),
        _ => 0,
    }
}

impl Recordings {
    /// Reads traces as [`Source::read`] does. Those after the first are read with the first one's group and request.
    ///
    /// Refuses recordings of other machines, with another definition of a request, with other limits of the group, and
    /// the same recording given twice.
    pub fn read<P: AsRef<Path>>(
        paths: &[P],
        group: Option<&str>,
        request: Option<&RequestSpec>,
    ) -> Result<Recordings, SourceError> {
        Recordings::read_until(paths, group, request, &AtomicBool::new(false))
    }

    /// As [`Recordings::read`], which ends soon after the flag is set.
    pub fn read_until<P: AsRef<Path>>(
        paths: &[P],
        group: Option<&str>,
        request: Option<&RequestSpec>,
        flag: &AtomicBool,
    ) -> Result<Recordings, SourceError> {
        let mut sources: Vec<Source> = Vec::new();
        for path in paths {
            let path = path.as_ref();
            let group = group.or(sources.first().map(Source::target_path));
            let source = Source::read_until(path, group, request, flag)
                .map_err(|e| name_the_file(e, path, paths.len()))?;
            for other in &sources {
                fits(&source, other)?;
            }
            sources.push(source);
        }
        Ok(Recordings::new(sources))
    }

    fn new(sources: Vec<Source>) -> Recordings {
        let costs: Vec<f64> = sources.iter().map(|s| s.program.cost_ns()).collect();
        let mut order: Vec<usize> = (0..costs.len()).collect();
        order.sort_by(|&a, &b| costs[a].total_cmp(&costs[b]));
        let median = order[order.len() / 2];
        let programs: Vec<_> = sources.iter().map(|s| &*s.program).collect();
        let variation = match programs[..] {
            [one] => Variation::within(one),
            _ => {
                let median_ns = costs[median];
                Variation::between(costs, median).and_blocks(&programs, median_ns)
            }
        };
        let variation = variation
            .and_drift(apart_ns(programs.iter().map(|p| p.wall_start_ns)))
            .within_scales();
        Recordings {
            sources,
            median,
            variation,
        }
    }

    /// When this flag is set, replays are of no use any more: those under way end with an error.
    pub fn cancelled_by(mut self, flag: &Arc<AtomicBool>) -> Recordings {
        for source in &mut self.sources {
            source.cancel = Some(flag.clone());
        }
        self
    }

    /// The one with the median CPU time per request.
    pub fn median(&self) -> &Source {
        &self.sources[self.median]
    }

    /// What a range spans: each recording as it is, then the cheap and the costly end.
    pub fn cases(&self) -> Vec<Case> {
        let as_recorded = (0..self.sources.len()).map(|recording| Case {
            recording,
            work_scale: 1.0,
        });
        as_recorded.chain(self.cheap()).chain(self.costly()).collect()
    }

    /// The median recording at the cheap end of what runs take; `None` where that does not vary.
    fn cheap(&self) -> Option<Case> {
        self.scaled(self.variation.low)
    }

    /// Likewise at the costly end.
    pub fn costly(&self) -> Option<Case> {
        self.scaled(self.variation.high)
    }

    fn scaled(&self, work_scale: f64) -> Option<Case> {
        (work_scale != 1.0).then_some(Case {
            recording: self.median,
            work_scale,
        })
    }

    /// Requests of `class`, or of all, in all recordings.
    pub fn requests(&self, class: Option<&str>) -> u64 {
        self.sources.iter().map(|s| requests(s, class)).sum()
    }

    /// What has to be said of `what`, a percentile of the requests of `class`, or of all, where it rests on few of them.
    pub fn few_requests(&self, what: &str, class: Option<&str>) -> Option<String> {
        let counts = self.sources.iter().map(|s| (requests(s, class), &s.file));
        let few: Vec<String> = counts
            .filter(|(count, _)| *count < FEW_REQUESTS)
            .map(|(count, file)| format!("{count} in {file}"))
            .collect();
        (!few.is_empty()).then(|| {
            format!(
                "{what} rests on few requests ({}): with fewer than {FEW_REQUESTS} its range is rough. Record for longer",
                few.join(", ")
            )
        })
    }

    /// What CPU time is counted by: "request", or "second" where there are none.
    pub fn cost_per(&self) -> &'static str {
        match self.median().no_requests {
            None => "request",
            Some(_) => "second",
        }
    }

    /// The variation in words.
    pub fn describe(&self) -> String {
        let v = &self.variation;
        let figures: Vec<String> = v.cost_ns.iter().map(|ns| format!("{:.4}", ns / 1e6)).collect();
        let another = format!(
            "{:+.1}% to {:+.1}%{}",
            (v.low - 1.0) * 100.0,
            (v.high - 1.0) * 100.0,
            match v.cut {
                true => " (cut there: a replay takes work of 1% to 10000%)",
                false => "",
            }
        );
        let median = &self.median().file;
        let per = self.cost_per();
        match (v.seen_in, v.block_ns) {
            (SeenIn::Recordings, _) => format!(
                "CPU per {per} differs by {:.1}% between the recordings ({} ms); by this, their blocks and the \
                 machine's drift nine of ten other runs are expected to take {another} of that of the median one \
                 ({median})",
                v.difference() * 100.0,
                figures.join(", "),
            ),
            (SeenIn::Blocks, block) => format!(
                "CPU per {per} differs by {:.1}% between the {} blocks of this recording, {:.1} s each on average; by this and what \
                 runs differ by otherwise another run is taken to need {another}. How much runs of this service differ is not \
                 known: give several recordings",
                v.difference() * 100.0,
                v.cost_ns.len(),
                block.unwrap_or(0) as f64 / 1e9,
            ),
            (SeenIn::Nothing, _) => format!(
                "how CPU per {per} varies cannot be seen in this recording (too short, or too few requests). What \
                 runs differ by otherwise is covered ({another}), and what this service's do is not known: give several recordings"
            ),
        }
    }
}

/// Requests of `class`, or of all.
fn requests(source: &Source, class: Option<&str>) -> u64 {
    let classes = source.program.classes.iter();
    let own = classes.filter(|c| class.is_none_or(|name| name == c.name));
    own.map(|c| c.open + c.closed).sum()
}

/// A name that only one of several recordings lacks needs that one's.
fn name_the_file(error: SourceError, path: &Path, count: usize) -> SourceError {
    match error {
        SourceError::Settings(e) if count > 1 => SourceError::Settings(SettingsError {
            what: format!("{}: {}", path.display(), e.what),
            ..e
        }),
        _ => error,
    }
}

/// Whether both are recordings of one service on one machine.
fn fits(source: &Source, other: &Source) -> Result<(), SourceError> {
    let refuse = |what: &str, value: String, allowed: String| {
        Err(SourceError::Settings(SettingsError {
            what: format!("{}: {what}", source.file),
            value,
            allowed: format!("{allowed}, as in {}", other.file),
        }))
    };
    let (own, its) = (&source.recorded_on, &other.recorded_on);
    if own.cpus != its.cpus {
        let describe = |m: &plimsoll_trace::Machine| {
            let topology: Vec<String> = m
                .cpus
                .iter()
                .map(|c| {
                    let place = |at: Option<u32>| at.map_or("-".into(), |n| n.to_string());
                    format!(
                        "{} (core {}, cache {}, node {})",
                        c.cpu,
                        place(c.core),
                        place(c.llc),
                        place(c.node)
                    )
                })
                .collect();
            topology.join(", ")
        };
        return match own.cpus.len() == its.cpus.len() {
            true => refuse("CPUs", describe(own), describe(its)),
            false => refuse(
                "number of CPUs",
                own.cpus.len().to_string(),
                its.cpus.len().to_string(),
            ),
        };
    }
    let text = |model: &Option<String>| model.clone().unwrap_or("not known".into());
    if own.model != its.model {
        return refuse("model of the CPU", text(&own.model), text(&its.model));
    }
    if source.machine.hz != other.machine.hz {
        return refuse(
            "ticks in a second",
            source.machine.hz.to_string(),
            other.machine.hz.to_string(),
        );
    }
    let words = |s: &Source| {
        s.request
            .as_ref()
            .map_or("wake-up chains".into(), |r| r.to_string())
    };
    if source.request != other.request {
        return refuse("request", words(source), words(other));
    }
    let found = |s: &Source| if s.no_requests.is_some() { "none" } else { "found" };
    if found(source) != found(other) {
        return refuse("requests", found(source).into(), found(other).into());
    }
    let [a, b] = [source, other].map(|s| &s.program.groups[s.program.target as usize]);
    for (what, a, b) in [
        ("quota_us when recorded", a.quota_us, b.quota_us),
        ("burst_us when recorded", Some(a.burst_us), Some(b.burst_us)),
        (
            "cpu.weight when recorded",
            Some(u64::from(a.weight)),
            Some(u64::from(b.weight)),
        ),
        (
            "period_us when recorded",
            a.quota_us.map(|_| a.period_us),
            b.quota_us.map(|_| b.period_us),
        ),
    ] {
        if a != b {
            let text = |v: Option<u64>| v.map_or("none".into(), |v| v.to_string());
            return refuse(what, text(a), text(b));
        }
    }
    let [a, b] = [source, other].map(|s| &s.program);
    let identity =
        |p: &plimsoll_replay::Program| (p.clock_start_ns, p.duration_ns, p.switches, p.cost_ns().to_bits());
    if identity(a) == identity(b) {
        return refuse(
            "recording",
            "the same one again".into(),
            "another run of what was recorded".into(),
        );
    }
    Ok(())
}

/// A range that spans those of several cases; `as_recorded`: whether the case counts for the middle. `None`: some case has
/// none. In a run in which no request gets through nothing is met, and what others take says nothing about it.
pub fn span(ranges: impl Iterator<Item = (bool, Option<Range>)>) -> Option<Range> {
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    let mut middles = Vec::new();
    for (as_recorded, range) in ranges {
        let range = range?;
        low = low.min(range.low);
        high = high.max(range.high);
        if as_recorded {
            middles.push(range.middle);
        }
    }
    Some(Range {
        low,
        middle: plimsoll_stats::median(middles)?,
        high,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_compared_by_the_wall_clock_and_only_where_all_are_known() {
        assert_eq!(apart_ns([Some(-5), Some(10), Some(3)].into_iter()), 15);
        assert_eq!(apart_ns([Some(7)].into_iter()), 0);
        assert_eq!(apart_ns([Some(0), None, Some(i64::MAX)].into_iter()), 0);
        assert_eq!(apart_ns([Some(i64::MIN), Some(i64::MAX)].into_iter()), u64::MAX);
    }

    #[test]
    fn range_spans_all_cases_and_its_middle_is_the_median_of_the_recordings() {
        let range = |low, middle, high| Some(Range { low, middle, high });
        let cases = [
            (true, range(3.0, 4.0, 5.0)),
            (true, range(4.0, 9.0, 10.0)),
            (true, range(2.0, 5.0, 6.0)),
            (false, range(1.0, 1.5, 2.0)),
            (false, range(20.0, 30.0, 40.0)),
        ];
        assert_eq!(span(cases.into_iter()), range(1.0, 5.0, 40.0));
        assert_eq!(span(cases.into_iter().take(2)), range(3.0, 6.5, 10.0));
        assert_eq!(span(std::iter::empty()), None);
        // A recording in which nothing gets through, or a costly end.
        assert_eq!(span(cases.into_iter().chain([(true, None)])), None);
        assert_eq!(span(cases.into_iter().chain([(false, None)])), None);
    }
}
