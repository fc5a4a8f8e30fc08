// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All rows together: the targets, and whether they are met.
use crate::index::{Class, Plan};
use crate::outcome::{Outcome, Verdict};
use crate::published::Row;
use crate::run::Measured;
use crate::unmeasured::{shown, worse};
use crate::Index;
use plimsoll_stats::median;
use serde::Serialize;

/// A figure that must be reached.
#[derive(Debug, Clone, Serialize)]
pub struct Target {
    pub name: String,
    /// What came out, in words, with its unit; over how many rows.
    pub result: String,
    pub wanted: String,
    pub met: bool,
}

#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    pub rows: usize,
    pub within: usize,
    pub right_direction: usize,
    pub wrong: usize,
    pub not_simulated: usize,
    pub targets: Vec<Target>,
}

impl Summary {
    /// Of the outcomes at hand; targets that none of them bears on are left out.
    pub fn of(outcomes: &[Outcome], rows: &[&Row], index: &Index, measured: &Measured) -> Self {
        let count = |verdict: Verdict| outcomes.iter().filter(|one| one.verdict == verdict).count();
        let mut targets = Vec::new();
        targets.extend(direction(outcomes));
        for (class, most, name) in [
            (Class::Hackbench, 5.0, "hackbench"),
            (Class::Tbench, 5.0, "tbench"),
            (Class::Sysbench, 10.0, "sysbench"),
            (Class::Netperf, 10.0, "netperf"),
            (Class::Database, 10.0, "databases"),
        ] {
            targets.extend(size(outcomes, class, most, name));
        }
        targets.extend(headroom(outcomes));
        targets.extend(burst(outcomes));
        targets.extend(columns(outcomes));
        targets.extend(checks(rows, index, measured));
        Summary {
            rows: outcomes.len(),
            within: count(Verdict::Within),
            right_direction: count(Verdict::RightDirection),
            wrong: count(Verdict::Wrong),
            not_simulated: count(Verdict::NotSimulated),
            targets,
        }
    }

    /// Where no target bears on the rows, each that is simulated has to be within its own tolerance: the right
    /// direction alone is a miss.
    pub fn met(&self) -> bool {
        match &self.targets[..] {
            [] => self.right_direction == 0 && self.wrong == 0,
            targets => targets.iter().all(|target| target.met),
        }
    }
}

fn direction(outcomes: &[Outcome]) -> Option<Target> {
    let rows: Vec<&Outcome> = outcomes.iter().filter(|one| one.directed).collect();
    if rows.is_empty() {
        return None;
    }
    let right = rows
        .iter()
        .filter(|one| one.same_direction() == Some(true))
        .count();
    let outside = rows.iter().filter(|one| !one.training);
    let right_outside = outside
        .clone()
        .filter(|one| one.same_direction() == Some(true))
        .count();
    let percent = right as f64 * 100.0 / rows.len() as f64;
    Some(Target {
        name: "direction".to_string(),
        result: format!(
            "{percent:.1}% ({right} of {}; outside the training set {right_outside} of {})",
            rows.len(),
            outside.count()
        ),
        wanted: "95% of rows whose change exceeds its noise".to_string(),
        met: percent >= 95.0,
    })
}

/// The median of the errors of a class, outside the training set.
fn size(outcomes: &[Outcome], class: Class, most: f64, name: &str) -> Option<Target> {
    let counts = |one: &&Outcome| {
        one.class == Some(class)
            && !one.training
            && !one.by_value
            && one.published_change_percent.is_some()
            && !one
                .remark
                .as_deref()
                .is_some_and(|remark| remark.contains("copying slip") || remark.contains("not a point"))
    };
    let errors: Vec<f64> = outcomes
        .iter()
        .filter(counts)
        // One that measured nothing is as far off as can be.
        .map(|one| one.error.unwrap_or(f64::INFINITY))
        .collect();
    let n = errors.len();
    let middle = median(errors)?;
    Some(Target {
        name: format!("size, {name}"),
        result: shown(middle, |middle| format!("{middle:.1} points ({n} rows)")),
        wanted: format!("median absolute error at most {most:.0} points"),
        met: middle <= most,
    })
}

fn headroom(outcomes: &[Outcome]) -> Option<Target> {
    let cells: Vec<&Outcome> = outcomes
        .iter()
        .filter(|one| one.class == Some(Class::Headroom) && one.metric.contains("latency") && !one.training)
        .collect();
    if cells.is_empty() {
        return None;
    }
    let within = cells.iter().filter(|one| one.verdict == Verdict::Within).count();
    let percent = within as f64 * 100.0 / cells.len() as f64;
    Some(Target {
        name: "headroom latencies".to_string(),
        result: format!(
            "{percent:.0}% ({within} of {} cells outside the training set)",
            cells.len()
        ),
        wanted: "80% of cells within 0.1 of the normalised value".to_string(),
        met: percent >= 80.0,
    })
}

fn burst(outcomes: &[Outcome]) -> Option<Target> {
    let row = outcomes
        .iter()
        .find(|one| one.table == "000-schbench" && one.metric == "latency_p99")?;
    let ratio = row.simulated_base?.mean / row.simulated_new?.mean;
    Some(Target {
        name: "burst, p99".to_string(),
        result: shown(ratio, |ratio| format!("{ratio:.0} times lower (published: 78)")),
        wanted: "at least 50 times lower".to_string(),
        met: ratio.is_finite() && ratio >= 50.0,
    })
}

/// Columns of the schedstat table, with and without the change.
fn columns(outcomes: &[Outcome]) -> Option<Target> {
    let cells: Vec<&Outcome> = outcomes
        .iter()
        .filter(|one| one.by_value && one.class == Some(Class::Hackbench) && one.error.is_some())
        .collect();
    if cells.is_empty() {
        return None;
    }
    let within = cells.iter().filter(|one| one.verdict == Verdict::Within).count();
    let worst = cells
        .iter()
        .filter_map(|one| Some((one.error?, *one)))
        .max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()))?;
    Some(Target {
        name: "schedstat columns".to_string(),
        result: format!(
            "{within} of {} (worst: {} of {}, {})",
            cells.len(),
            worst.1.metric,
            worst.1.parameters.split(';').next().unwrap_or(""),
            shown(worst.0, |worst| format!("{worst:.0}%"))
        ),
        wanted: "all within 15% in the training table".to_string(),
        met: within == cells.len(),
    })
}

/// The checks of the tables that have rows here.
fn checks(rows: &[&Row], index: &Index, measured: &Measured) -> Vec<Target> {
    let mut targets = Vec::new();
    for table in &index.table {
        for check in &table.check {
            let mut worst: Option<f64> = None;
            for row in rows.iter().filter(|row| row.table == table.name) {
                if let Ok(Plan::Run(recipe)) = index.plan(row) {
                    let value = measured.check(table, &recipe, check);
                    worst = Some(worst.map_or(value, |before| worse(before, value)));
                }
            }
            if let Some(worst) = worst {
                targets.push(Target {
                    name: format!("{}: {}", table.name, check.name),
                    result: shown(worst, |worst| format!("{worst:.3}")),
                    wanted: format!("at most {}", check.at_most),
                    met: worst <= check.at_most,
                });
            }
        }
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(right_direction: usize, targets: Vec<Target>) -> Summary {
        Summary {
            rows: 3,
            within: 2 - right_direction,
            right_direction,
            wrong: 0,
            not_simulated: 1,
            targets,
        }
    }

    #[test]
    fn a_row_outside_its_tolerance_is_a_miss_where_no_target_decides() {
        let target = |met| Target {
            name: "direction".to_string(),
            result: String::new(),
            wanted: String::new(),
            met,
        };
        assert!(summary(0, vec![]).met() && !summary(1, vec![]).met());
        assert!(summary(1, vec![target(true)]).met() && !summary(0, vec![target(false)]).met());
    }
}
