// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the tables of a plan say of its goals: a value and a range for each that the columns of every plan do not show.
use crate::confidence::Range;
use crate::goal::{Goal, Subject};
use crate::search::Candidate;

/// One goal's columns. Every table has p50 and the share of throttled periods without a range, and p99 with one.
struct Shown<'a> {
    subject: &'a Subject,
    value: bool,
    range: bool,
}

fn shown<'a>(goals: &'a [Goal], ranges: bool) -> impl Iterator<Item = (usize, Shown<'a>)> {
    let one = move |(ix, goal): (usize, &'a Goal)| {
        let subject = &goal.subject;
        let all_of = |wanted: f64| {
            let own = Subject::Percentile {
                percent: wanted,
                class: None,
            };
            *subject == own
        };
        let value = !(all_of(50.0) || all_of(99.0) || *subject == Subject::Throttled);
        let range = ranges && !all_of(99.0);
        let again = goals[..ix].iter().any(|earlier| earlier.subject == *subject);
        let shown = Shown {
            subject,
            value,
            range,
        };
        ((value || range) && !again).then_some((ix, shown))
    };
    goals.iter().enumerate().filter_map(one)
}

/// Heads of the columns, with their units. `ranges`: of those that were looked at closely.
pub fn goal_titles(goals: &[Goal], ranges: bool) -> Vec<String> {
    let mut titles = Vec::new();
    for (
        _,
        Shown {
            subject,
            value,
            range,
        },
    ) in shown(goals, ranges)
    {
        let unit = if *subject == Subject::Throttled { "%" } else { "ms" };
        if value {
            titles.push(format!("{subject} {unit}"));
        }
        if range {
            titles.push(format!("{subject} range {unit}"));
        }
    }
    titles
}

/// The cells below them. `figure` writes a number.
pub fn goal_cells(goals: &[Goal], c: &Candidate, ranges: bool, figure: fn(f64) -> String) -> Vec<String> {
    let mut cells = Vec::new();
    for (
        ix,
        Shown {
            subject,
            value,
            range,
        },
    ) in shown(goals, ranges)
    {
        let scale = if *subject == Subject::Throttled { 1e2 } else { 1e-6 };
        if value {
            let own = c.values.get(ix).copied().flatten();
            cells.push(own.map_or("-".into(), |v| figure(v * scale)));
        }
        if range {
            let own = c.ranges.as_ref().and_then(|all| all.get(ix).copied().flatten());
            cells.push(range_cell(own, scale, figure));
        }
    }
    cells
}

/// A latency in ms; "-": there are no requests.
pub fn latency_cell(ns: Option<f64>, figure: fn(f64) -> String) -> String {
    ns.map_or("-".into(), |ns| figure(ns / 1e6))
}

/// A range, its ends times `scale`.
pub fn range_cell(range: Option<Range>, scale: f64, figure: fn(f64) -> String) -> String {
    range.map_or("-".into(), |r| {
        format!("{} .. {}", figure(r.low * scale), figure(r.high * scale))
    })
}

impl Candidate {
    /// What it makes of the goals, as recorded and in costly runs.
    pub fn state(&self) -> &'static str {
        match (self.meets, self.meets_costly) {
            (true, true) => "met",
            (true, false) if self.too_little_cpu_costly => "met, too little CPU in costly runs",
            (true, false) if self.loses_throughput_costly => "met, fewer requests in costly runs",
            (true, false) => "met, not in costly runs",
            (false, _) if self.too_little_cpu => "too little CPU",
            (false, _) if self.loses_throughput => "fewer requests",
            (false, _) => "missed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_have_columns_of_their_own_unless_every_table_shows_them() {
        let titles = |texts: &[&str], ranges| {
            let goals: Vec<Goal> = texts.iter().map(|t| t.parse().unwrap()).collect();
            goal_titles(&goals, ranges)
        };
        assert!(titles(&["p99(request) < 5ms"], true).is_empty());
        assert_eq!(titles(&["p50(request) < 5ms"], true), ["p50(request) range ms"]);
        assert_eq!(
            titles(&["p99(web) < 5ms", "p99(web) < 4ms", "max(request) < 1s"], true),
            [
                "p99(web) ms",
                "p99(web) range ms",
                "max(request) ms",
                "max(request) range ms"
            ]
        );
        assert_eq!(
            titles(&["mean(request) < 5ms", "throttled < 1%"], false),
            ["mean(request) ms"]
        );
        assert_eq!(titles(&["throttled < 1%"], true), ["throttled range %"]);
    }
}
