// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One row held against its published figure.
use crate::index::{Class, Compare, Plan, Tolerance, ToleranceUnit};
use crate::published::Row;
use crate::run::Measured;
use crate::unmeasured::worse;
use crate::Index;
use plimsoll_stats::Spread;
use serde::Serialize;

/// What became of a published row.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    pub table: String,
    pub workload: String,
    pub parameters: String,
    pub metric: String,
    pub unit: String,
    pub class: Option<Class>,
    /// Machine models are fitted to it: not a prediction.
    pub training: bool,
    pub published_base: String,
    pub published_new: String,
    pub published_change_percent: Option<f64>,
    pub published_noise_percent: f64,
    /// Whether the direction is a target.
    pub directed: bool,
    pub simulated_base: Option<Spread>,
    pub simulated_new: Option<Spread>,
    pub simulated_change_percent: Option<Spread>,
    /// Compared by value, not by change.
    pub by_value: bool,
    /// Of the change in percentage points, or of the values in the tolerance's unit (the larger of both).
    pub error: Option<f64>,
    /// "points", "%", or the unit of the values.
    pub error_unit: String,
    pub tolerance: Option<Tolerance>,
    pub verdict: Verdict,
    /// Why it is not simulated, or no target, or what stands for it.
    pub remark: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Within,
    RightDirection,
    Wrong,
    NotSimulated,
}

impl Verdict {
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Within => "within tolerance",
            Verdict::RightDirection => "right direction",
            Verdict::Wrong => "wrong",
            Verdict::NotSimulated => "not simulated",
        }
    }
}

impl Outcome {
    pub fn of(row: &Row, index: &Index, measured: &Measured) -> Self {
        let mut outcome = Outcome {
            table: row.table.clone(),
            workload: row.workload.clone(),
            parameters: row.parameters.clone(),
            metric: row.metric.clone(),
            unit: row.unit.clone(),
            class: None,
            training: false,
            published_base: row.base_text.clone(),
            published_new: row.new_text.clone(),
            published_change_percent: row.change_percent,
            published_noise_percent: row.noise_percent(),
            directed: false,
            simulated_base: None,
            simulated_new: None,
            simulated_change_percent: None,
            by_value: false,
            error: None,
            error_unit: String::new(),
            tolerance: None,
            verdict: Verdict::NotSimulated,
            remark: row.no_target().map(str::to_string),
        };
        let recipe = match index.plan(row) {
            Ok(Plan::Run(recipe)) => recipe,
            Ok(Plan::Skip(reason)) => {
                outcome.remark = Some(reason.to_string());
                return outcome;
            }
            Err(message) => {
                outcome.remark = Some(message);
                return outcome;
            }
        };
        let tolerance = recipe.tolerance();
        outcome.class = Some(recipe.class());
        outcome.training = recipe.training;
        outcome.tolerance = Some(tolerance);
        outcome.by_value = recipe.table.compare == Compare::Values;
        outcome.directed = row.directed() && !outcome.by_value;
        outcome.error_unit = outcome.unit_of_error(tolerance);
        if outcome.remark.is_none() {
            outcome.remark = recipe.nearest().map(str::to_string);
        }
        let base = measured.values(row, &recipe, false);
        let new = measured.values(row, &recipe, true);
        outcome.simulated_base = base.as_deref().map(Spread::of);
        outcome.simulated_new = new.as_deref().map(Spread::of);
        if let (Some(base), Some(new)) = (&base, &new) {
            let time = row.metric == "time";
            let change = |b: f64, n: f64| if time { b / n - 1.0 } else { n / b - 1.0 } * 100.0;
            let changes: Vec<f64> = base.iter().zip(new).map(|(b, n)| change(*b, *n)).collect();
            // As in the sources: the change of the means. Its spread is that of single runs.
            let mean = change(Spread::of(base).mean, Spread::of(new).mean);
            if mean.is_finite() && changes.iter().all(|change| change.is_finite()) {
                let stdev = Spread::of(&changes).stdev;
                outcome.simulated_change_percent = Some(Spread { mean, stdev });
            }
        }
        if let (Some(other), None, Some(new)) = (recipe.relative(), &base, &new) {
            // Relative to its own case without the change: that is what it changed by.
            if std::ptr::eq(other.case, recipe.case) {
                let Spread { mean, stdev } = Spread::of(new);
                outcome.simulated_change_percent = Some(Spread {
                    mean: (mean - 1.0) * 100.0,
                    stdev: stdev.map(|stdev| stdev * 100.0),
                });
            }
        }
        if outcome.by_value {
            outcome.judge_values(row, tolerance);
        } else {
            outcome.judge_change(tolerance);
        }
        outcome
    }

    fn unit_of_error(&self, tolerance: Tolerance) -> String {
        let unit = short(&self.unit);
        match tolerance.unit {
            _ if !self.by_value => "points",
            ToleranceUnit::Percent => "%",
            // The difference of two percentages.
            _ if unit.starts_with('%') => "points",
            _ => unit,
        }
        .to_string()
    }

    /// The metric and what its figures are in: a unit, or the change of them.
    pub fn metric_in(&self) -> String {
        let unit = match self.by_value || self.verdict == Verdict::NotSimulated {
            true => short(&self.unit),
            false => "change",
        };
        match unit.is_empty() || unit == self.metric {
            true => self.metric.clone(),
            false => format!("{}, {unit}", self.metric),
        }
    }

    /// The error with its unit; empty where there is none.
    pub fn error_shown(&self) -> String {
        match self.error.filter(|error| error.is_finite()) {
            None => String::new(),
            Some(error) if self.error_unit == "%" => format!("{error:.1}%"),
            Some(error) if self.error_unit == "points" => format!("{error:.1} points"),
            Some(error) => format!("{error:.3} {}", self.error_unit),
        }
    }

    fn judge_values(&mut self, row: &Row, tolerance: Tolerance) {
        let error = |published: Option<f64>, simulated: Option<Spread>| {
            let (published, simulated) = (published?, simulated?.mean);
            let off = (simulated - published).abs();
            Some(match tolerance.unit {
                ToleranceUnit::Percent if off == 0.0 => 0.0,
                ToleranceUnit::Percent => off / published.abs() * 100.0,
                _ => off,
            })
        };
        let errors = [
            error(row.base, self.simulated_base),
            error(row.new, self.simulated_new),
        ];
        let worst = errors.into_iter().flatten().reduce(worse);
        self.error = worst;
        // Where the source states no change, its two figures do.
        if let (None, Some(base), Some(new)) = (self.published_change_percent, row.base, row.new) {
            if base != 0.0 {
                self.published_change_percent = Some((new / base - 1.0) * 100.0);
            }
        }
        self.verdict = match (worst, self.same_direction()) {
            (Some(worst), _) if worst <= tolerance.most => Verdict::Within,
            (_, Some(true)) => Verdict::RightDirection,
            _ => Verdict::Wrong,
        };
    }

    fn judge_change(&mut self, tolerance: Tolerance) {
        let (Some(published), Some(simulated)) =
            (self.published_change_percent, self.simulated_change_percent)
        else {
            self.verdict = Verdict::Wrong;
            return;
        };
        let error = (simulated.mean - published).abs();
        self.error = Some(error);
        // A change within the source's own noise is met by anything within that noise.
        let noise = if self.directed {
            0.0
        } else {
            self.published_noise_percent
        };
        let within = error <= tolerance.most.max(noise);
        self.verdict = match self.same_direction() {
            // Close to a published change and on the other side of nothing is still wrong.
            Some(false) if self.directed => Verdict::Wrong,
            _ if within => Verdict::Within,
            Some(true) => Verdict::RightDirection,
            _ => Verdict::Wrong,
        };
    }

    /// Whether the simulated change has the published one's sign. None: one of the two is not there.
    pub fn same_direction(&self) -> Option<bool> {
        let published = self.published_change_percent?;
        let simulated = self.simulated_change_percent?.mean;
        // Nothing has no direction: it is the right one only for nothing.
        let sign = |value: f64| value.partial_cmp(&0.0);
        Some(sign(published) == sign(simulated))
    }
}

/// A unit without what the published file remarks of it, as in "Mbit/s per client (inferred)".
fn short(unit: &str) -> &str {
    match unit.split(" (").next().unwrap_or(unit) {
        // Published as "minimal": what the side gets at least, of the CPU.
        "tolerance" => "% of CPU",
        unit => unit,
    }
}
