// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How far a trace can be believed: every doubt is counted, too many are an error.
use crate::error::{Place, TraceError};
use crate::model::{Header, Loss};
use std::fmt;

/// Share of a trace's switches that may be in doubt before it is refused. A percentile of 99 looks at
/// one event in a hundred, so a trace with more doubtful ones cannot support it.
pub const DOUBTFUL_SHARE_MAX: f64 = 0.01;

/// A way in which a trace contradicts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doubt {
    /// The recorder says that it lost events.
    LostEvents,
    /// A thread that no fork made and no table lists.
    ThreadFromNowhere,
    /// A blocked thread runs, and no wake-up was recorded.
    MissedWakeup,
    /// A thread leaves a CPU on which it was not running, or runs on two.
    MissedSwitch,
    /// An event of a thread that had exited.
    AfterExit,
    /// No event at all for longer than [`GAP_NS_MAX`].
    ClockGap,
}

/// A machine with a tick or a recorder that polls switches more often than this on every CPU.
pub const GAP_NS_MAX: i64 = 5_000_000_000;

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Doubt::LostEvents => "events that the recorder lost",
            Doubt::ThreadFromNowhere => "threads that appear from nowhere",
            Doubt::MissedWakeup => "blocked threads that run without a wake-up",
            Doubt::MissedSwitch => "switches that contradict the ones before",
            Doubt::AfterExit => "events of threads that had exited",
            Doubt::ClockGap => "gaps without any event, or jumps of the clock",
        })
    }
}

/// One kind of doubt, how often, and its first case.
#[derive(Clone, Debug, PartialEq)]
pub struct Warning {
    pub doubt: Doubt,
    pub count: u64,
    /// Time of the first case on the trace's clock.
    pub first_ns: i64,
    /// The first case in words.
    pub first: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} (first at {} ns: {})",
            self.doubt, self.count, self.first_ns, self.first
        )
    }
}

/// All doubts about one trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quality {
    pub switches: u64,
    /// In the order of [`Doubt`], one entry a kind.
    pub warnings: Vec<Warning>,
}

impl Quality {
    /// Starts from what the recorder itself says it lost.
    pub fn of(header: &Header) -> Quality {
        let mut quality = Quality::default();
        for loss in &header.losses {
            quality.note_count(Doubt::LostEvents, loss.count.unwrap_or(1), loss.from_ns, || {
                describe(loss)
            });
        }
        quality
    }

    pub fn note(&mut self, doubt: Doubt, ts_ns: i64, first: impl FnOnce() -> String) {
        self.note_count(doubt, 1, ts_ns, first);
    }

    fn note_count(&mut self, doubt: Doubt, count: u64, ts_ns: i64, first: impl FnOnce() -> String) {
        match self.warnings.binary_search_by_key(&doubt, |w| w.doubt) {
            Ok(i) => self.warnings[i].count = self.warnings[i].count.saturating_add(count),
            Err(i) => self.warnings.insert(
                i,
                Warning {
                    doubt,
                    count,
                    first_ns: ts_ns,
                    first: first(),
                },
            ),
        }
    }

    pub fn count(&self, doubt: Doubt) -> u64 {
        self.warnings
            .iter()
            .find(|w| w.doubt == doubt)
            .map_or(0, |w| w.count)
    }

    /// Doubts for each switch of the trace.
    pub fn doubtful_share(&self) -> f64 {
        let doubts: u64 = self.warnings.iter().fold(0, |sum, w| sum.saturating_add(w.count));
        doubts as f64 / self.switches.max(1) as f64
    }

    /// Refuses a trace with too many doubts. `allowed` is a share, normally [`DOUBTFUL_SHARE_MAX`].
    pub fn check(&self, place: &Place, allowed: f64) -> Result<(), TraceError> {
        if self.doubtful_share() <= allowed {
            return Ok(());
        }
        let reasons: Vec<String> = self.warnings.iter().map(Warning::to_string).collect();
        Err(TraceError::Untrustworthy {
            place: place.clone(),
            reason: format!("{} (out of {} switches)", reasons.join("; "), self.switches),
            allowed: format!("at most {}% of the switches", allowed * 100.0),
        })
    }
}

fn describe(loss: &Loss) -> String {
    let count = loss.count.map_or("an unknown number".into(), |n| n.to_string());
    let cpu = loss
        .cpu
        .map_or("an unknown CPU".into(), |cpu| format!("CPU {cpu}"));
    format!("{count} on {cpu} between {} and {} ns", loss.from_ns, loss.to_ns)
}
