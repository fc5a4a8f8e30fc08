// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Simulated against measured: which columns, how close, and what a row came to.
use crate::measured::{Measured, Row};
use crate::rebuild::{Model, Simulated};
use rayon::prelude::*;

/// A column that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Column {
    Periods,
    Throttled,
    Bursts,
    BurstTime,
    Cpu,
    P50,
    P99,
}

/// How close is close enough.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Tolerance {
    /// So many, either way.
    Count(f64),
    /// So many percent of what was measured.
    Percent(f64),
}

impl Column {
    pub const ALL: [Column; 7] = [
        Column::Periods,
        Column::Throttled,
        Column::Bursts,
        Column::BurstTime,
        Column::Cpu,
        Column::P50,
        Column::P99,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Column::Periods => "nr_periods",
            Column::Throttled => "nr_throttled",
            Column::Bursts => "nr_bursts",
            Column::BurstTime => "burst_time",
            Column::Cpu => "cpu",
            Column::P50 => "p50",
            Column::P99 => "p99",
        }
    }

    /// Counts within 1, burst time 5%, CPU time 1.5%, latencies 3%, or 15% on the edge of throttling.
    pub fn tolerance(self, edge: bool) -> Tolerance {
        match self {
            Column::Periods | Column::Throttled | Column::Bursts => Tolerance::Count(1.0),
            Column::BurstTime => Tolerance::Percent(5.0),
            Column::Cpu => Tolerance::Percent(1.5),
            Column::P50 | Column::P99 => Tolerance::Percent(if edge { 15.0 } else { 3.0 }),
        }
    }

    /// Microseconds, or a count.
    pub fn measured(self, measured: &Measured) -> Option<f64> {
        match self {
            Column::Periods => measured.nr_periods,
            Column::Throttled => measured.nr_throttled,
            Column::Bursts => measured.nr_bursts,
            Column::BurstTime => measured.burst_us,
            Column::Cpu => measured.cpu_us,
            Column::P50 => measured.p50_us,
            Column::P99 => measured.p99_us,
        }
    }

    pub fn simulated(self, simulated: &Simulated) -> f64 {
        match self {
            Column::Periods => simulated.nr_periods,
            Column::Throttled => simulated.nr_throttled,
            Column::Bursts => simulated.nr_bursts,
            Column::BurstTime => simulated.burst_us,
            Column::Cpu => simulated.cpu_us,
            Column::P50 => simulated.p50_us,
            Column::P99 => simulated.p99_us,
        }
    }
}

/// One figure, measured and simulated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure {
    pub column: Column,
    pub measured: f64,
    pub simulated: f64,
    pub tolerance: Tolerance,
}

impl Figure {
    /// How far off, in units of the tolerance: above 1 is a miss.
    pub fn miss(&self) -> f64 {
        let off = (self.simulated - self.measured).abs();
        let allowed = match self.tolerance {
            Tolerance::Count(count) => count,
            Tolerance::Percent(percent) => self.measured.abs() * percent / 100.0,
        };
        match (off == 0.0, allowed > 0.0) {
            (true, _) => 0.0,
            (_, true) => off / allowed,
            _ => f64::INFINITY,
        }
    }

    /// Difference as the tolerance counts it: a count, or percent.
    pub fn off(&self) -> f64 {
        match self.tolerance {
            Tolerance::Count(_) => self.simulated - self.measured,
            Tolerance::Percent(_) if self.measured == 0.0 => {
                if self.simulated == 0.0 {
                    0.0
                } else {
                    f64::INFINITY
                }
            }
            Tolerance::Percent(_) => (self.simulated / self.measured - 1.0) * 100.0,
        }
    }

    pub fn missed(&self) -> bool {
        self.miss() > 1.0
    }
}

/// A row and what its simulation came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    pub row: Row,
    pub figures: Vec<Figure>,
    pub simulated: Simulated,
    /// Runs whose place in the period was not measured are simulated at every millisecond of it; this is the nearest.
    pub start_assumed: bool,
    pub edge: bool,
    /// Columns that repetitions of this very run were measured in, and whether those lie further apart than twice the
    /// tolerance: no simulation can meet all of them.
    pub repetitions: Vec<(Column, bool)>,
    /// For columns that missed: least and most over the seeds after the run's own, where seeds make a difference. The
    /// kernel's dice fall differently in every run, so that one run of each does not say whether the model does what
    /// the kernel does.
    pub ranges: Vec<(Column, f64, f64)>,
}

impl Verdict {
    pub fn missed(&self) -> bool {
        self.figures.iter().any(Figure::missed)
    }

    /// Whether repetitions of the run differ in a column; `None`: there is only one.
    pub fn repetitions_differ(&self, column: Column) -> Option<bool> {
        let of_column = self.repetitions.iter().find(|(one, _)| *one == column);
        of_column.map(|&(_, differ)| differ)
    }

    pub fn worst(&self) -> f64 {
        self.figures.iter().map(Figure::miss).fold(0.0, f64::max)
    }
}

/// Whether a run sits on the edge of throttling: releases come at least once a period and fit into the quota, but not
/// when one more than the average falls into the same period. Which period that is, and how the threads lie in it,
/// decides microseconds that no model holds.
pub fn on_the_edge(row: &Row) -> bool {
    let Some(quota_us) = row.quota_us else {
        return false;
    };
    if row.nth == 0 || row.interval_us > row.period_us {
        return false;
    }
    let release_us = u64::from(row.nth) * row.work_us;
    let fewest = row.period_us / row.interval_us;
    release_us * fewest <= quota_us && quota_us < release_us * (fewest + 1)
}

/// Simulates every row, on all cores. `done` is called after each. The order of rows is kept.
pub fn compare(model: &Model, rows: &[Row], seed: u64, done: impl Fn() + Sync) -> Vec<Verdict> {
    rows.par_iter()
        .map(|row| {
            let mut verdict = judge(row, &model.runs(row, seed), rows);
            verdict.ranges = ranges(model, &verdict, seed);
            done();
            verdict
        })
        .collect()
}

/// Seeds that a missed row is simulated with to see how far apart its runs lie.
const RANGE_SEEDS: u64 = 20;

fn ranges(model: &Model, verdict: &Verdict, seed: u64) -> Vec<(Column, f64, f64)> {
    let Some(phase_us) = verdict.row.phase_us.filter(|_| verdict.missed()) else {
        return Vec::new();
    };
    let runs: Vec<Simulated> = (1..=RANGE_SEEDS)
        .map(|more| model.run(&verdict.row, phase_us, verdict.simulated.start_us, seed + more))
        .collect();
    let figures = verdict.figures.iter().filter(|figure| figure.missed());
    figures
        .filter_map(|figure| {
            let values = || runs.iter().map(|run| figure.column.simulated(run));
            let least = values().fold(figure.simulated, f64::min);
            let most = values().fold(figure.simulated, f64::max);
            (least < most).then_some((figure.column, least, most))
        })
        .collect()
}

fn judge(row: &Row, runs: &[Simulated], rows: &[Row]) -> Verdict {
    let edge = on_the_edge(row);
    let figures = |simulated: &Simulated| -> Vec<Figure> {
        Column::ALL
            .iter()
            .filter_map(|&column| {
                let figure = Figure {
                    column,
                    measured: column.measured(&row.measured)?,
                    simulated: column.simulated(simulated),
                    tolerance: column.tolerance(edge),
                };
                Some(figure)
            })
            .collect()
    };
    let distance =
        |simulated: &Simulated| -> f64 { figures(simulated).iter().map(Figure::miss).fold(0.0, f64::max) };
    let simulated = runs
        .iter()
        .min_by(|a, b| distance(a).total_cmp(&distance(b)))
        .copied()
        .unwrap_or_default();
    let repetitions = Column::ALL
        .into_iter()
        .filter_map(|column| Some((column, scatters(row, column, edge, rows)?)))
        .collect();
    Verdict {
        row: row.clone(),
        figures: figures(&simulated),
        simulated,
        start_assumed: row.phase_us.is_none(),
        edge,
        repetitions,
        ranges: Vec::new(),
    }
}

/// Whether repetitions of the row lie so far apart that one value cannot be within the tolerance of all. `None`: one
/// measurement agrees with nothing.
fn scatters(row: &Row, column: Column, edge: bool, rows: &[Row]) -> Option<bool> {
    let parameters = |row: &Row| Row {
        line: 0,
        rep: 0,
        // Repetitions of one boot fall into different periods; what the phase does to a run is part of the run.
        phase_us: None,
        measured: Measured::default(),
        ..row.clone()
    };
    let mine = parameters(row);
    let values: Vec<f64> = rows
        .iter()
        .filter(|other| parameters(other) == mine && other.phase_us.is_some() == row.phase_us.is_some())
        .filter_map(|other| column.measured(&other.measured))
        .collect();
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let reach = |value: f64| match column.tolerance(edge) {
        Tolerance::Count(count) => count,
        Tolerance::Percent(percent) => value * percent / 100.0,
    };
    (values.len() > 1).then(|| low + reach(low) < high - reach(high))
}
