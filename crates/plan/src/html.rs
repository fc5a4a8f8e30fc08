// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A plan as one self-contained page: the frontier, the distributions of latencies, a timeline of throttling. Inline
//! SVG, no scripts, nothing loaded from elsewhere.
use crate::columns::{goal_cells, goal_titles, latency_cell, range_cell};
use crate::goal::Goal;
use crate::paste::Paste;
use crate::recordings::Recordings;
use crate::search::{Candidate, Options, Plan, PlanError, TODAYS};
use plimsoll_page::svg::{Axis, Chart};
use plimsoll_page::{begin, escape, END};
use plimsoll_replay::{recorded, replay, Outcome, Settings};
use plimsoll_sim::{GroupId, Observer};
use plimsoll_stats::percentile_ns;
use std::fmt::Write;

const TODAY: &str = "today";

/// Throttling is drawn for this long.
const TIMELINE_NS: u64 = 2_000_000_000;

const STYLE: &str = "table{width:100%}td,th{padding:.2em .6em .2em 0;text-align:right}\
td:first-child,th:first-child,td:nth-child(2),th:nth-child(2){text-align:left}.n{white-space:nowrap}\
svg{width:100%;max-width:920px;height:auto}@media(max-width:900px){table{font-size:12px}}";

/// The page. Replays the settings it shows once more in the median recording, to have their distributions. `warnings`:
/// why the plan is not to be relied on.
pub fn html(
    recordings: &Recordings,
    options: &Options,
    plan: &Plan,
    settings: &[Paste],
    warnings: &[String],
) -> Result<String, PlanError> {
    let source = recordings.median();
    let program = &source.program;
    let target = GroupId(program.target);
    let mut shown: Vec<(&str, &str, &Candidate)> = vec![(plan.called(), "#0b7a4b", &plan.recommended)];
    if let Some(cheaper) = &plan.next_cheaper {
        shown.push(("next cheaper", "#c2571a", cheaper));
    }
    shown.push((TODAY, "#3057b8", &plan.today));
    let mut outcomes: Vec<(&str, &str, Outcome, Throttles)> = Vec::new();
    for (name, colour, candidate) in &shown {
        let mut own = Settings::unrecorded(program);
        own.groups[program.target as usize] = candidate.limits.into();
        own.semantics = match *name {
            TODAY => TODAYS,
            _ => options.semantics,
        };
        own.seed = options.seed;
        let mut throttles = Throttles {
            group: target,
            open: Vec::new(),
            closed: Vec::new(),
        };
        let outcome = replay(program, &source.machine, &own, Some(&mut throttles))?;
        throttles.end(TIMELINE_NS);
        outcomes.push((name, colour, outcome, throttles));
    }

    let mut page = begin(&format!("CPU limits for {}", plan.group), STYLE, false);
    let goals = plan.goals.join(", ");
    let verdict = match plan.verdict {
        crate::search::Verdict::Met => "The recommendation meets the goals in nine of ten runs.",
        crate::search::Verdict::MetNarrowly => {
            "The recommendation meets the goals, but not in nine of ten runs."
        }
        crate::search::Verdict::NotMet => "No setting meets the goals; the nearest is shown.",
    };
    let _ = write!(
        page,
        "<p>Goals: <b>{}</b>. {verdict} {} settings tried.</p><p class=note>{}.</p>",
        escape(&goals),
        plan.tried,
        escape(&recordings.describe()),
    );
    for warning in warnings {
        let _ = write!(page, "<p class=warning>{}</p>", escape(warning));
    }
    page += &table(&shown, &options.goals);
    page += "<h2>Frontier</h2><p class=note>What each amount of CPU buys at best. Filled: all goals met.</p>";
    page += &frontier(plan);
    if program.nr_requests() > 0 {
        page +=
            "<h2>Latencies</h2><p class=note>Share of requests that took longer; both axes logarithmic.</p>";
        page += &latencies(&recorded(program), &outcomes);
    }
    page += "<h2>Throttling</h2><p class=note>When some CPU of the group was throttled, the first 2 s.</p>";
    page += &timeline(&outcomes);
    page += "<h2>Settings</h2>";
    for paste in settings {
        let _ = write!(
            page,
            "<p><b>{}</b></p><pre>{}</pre>",
            paste.system,
            escape(&paste.text)
        );
        if let Some(lacks) = &paste.lacks {
            let _ = write!(page, "<p class=note>cannot say: {}</p>", escape(lacks));
        }
    }
    Ok(page + END)
}

fn table(shown: &[(&str, &str, &Candidate)], goals: &[Goal]) -> String {
    let mut text = String::from(
        "<div class=wide><table><tr><th><th>limit<th>CPUs reserved<th>CPUs used<th>p50 ms<th>p99 ms<th>p99 range ms",
    );
    for title in goal_titles(goals, true) {
        let _ = write!(text, "<th>{}", escape(&title));
    }
    text += "<th>throttled<th>goals</tr>";
    for (name, colour, c) in shown {
        let mut cells = vec![
            format!("{:.2}", c.reserved_cpus),
            format!("{:.2}", c.cpus),
            latency_cell(c.p50_ns, digits),
            latency_cell(c.p99_ns, digits),
            range_cell(c.p99_range, 1e-6, digits),
        ];
        cells.extend(goal_cells(goals, c, true, digits));
        cells.push(format!("{:.1}%", c.throttled * 100.0));
        // Words may be broken into lines, figures not: so the table fits a narrow window.
        let _ = write!(
            text,
            "<tr><td style='color:{colour}'>{name}<td>{}<td class=n>{}<td>{}</tr>",
            c.limits,
            cells.join("<td class=n>"),
            c.state()
        );
    }
    text + "</table></div>"
}

/// As many digits as tell a figure from others of its size: three at least.
fn digits(value: f64) -> String {
    let places = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        // Latencies are whole nanoseconds.
        v if v > 0.0 => (2.0 - v.log10().floor()).min(6.0) as usize,
        _ => 0,
    };
    format!("{value:.places$}")
}

fn frontier(plan: &Plan) -> String {
    let has_requests = plan.today.p99_ns.is_some();
    let height = |c: &Candidate| match has_requests {
        true => c.p99_ns.unwrap_or(0.0) / 1e6,
        false => c.throttled * 100.0,
    };
    let place = |c: &Candidate| (c.reserved_cpus, height(c));
    let points: Vec<(f64, f64)> = plan.frontier.iter().map(place).collect();
    let (today, recommended) = (place(&plan.today), place(&plan.recommended));
    let all = || points.iter().chain([&today, &recommended]);
    let x = Axis::linear(
        "CPUs reserved",
        0.0,
        all().map(|p| p.0).fold(0.1, f64::max) * 1.05,
    );
    let y = match has_requests {
        true => Axis::log("p99, ms", all().map(|p| p.1)),
        false => Axis::linear("throttled periods, %", 0.0, 100.0),
    };
    let mut chart = Chart::new(x, y);
    chart.steps(&points, "#888");
    for (c, point) in plan.frontier.iter().zip(&points) {
        let what = match has_requests {
            true => format!("p99 {} ms", digits(height(c))),
            false => format!("throttled in {:.1}% of the periods", height(c)),
        };
        let note = format!("{}: {what}, {}", c.limits, c.state());
        chart.dot(*point, 4.5, "#888", c.meets, &note);
    }
    chart.dot(today, 6.0, "#3057b8", true, "today");
    // Beside the frontier where its whole range meets the goals and that of the point on it does not.
    let note = format!("{}: {}", plan.called(), plan.recommended.limits);
    chart.dot(recommended, 7.0, "#0b7a4b", plan.recommended.meets, &note);
    chart.legend(&[
        (plan.called(), "#0b7a4b"),
        ("today", "#3057b8"),
        ("frontier", "#888"),
    ]);
    chart.finish()
}

fn latencies(recorded: &Outcome, outcomes: &[(&str, &str, Outcome, Throttles)]) -> String {
    let recorded = ("recorded", "#999", recorded.latencies(None));
    let others = outcomes
        .iter()
        .map(|(name, colour, outcome, _)| (*name, *colour, outcome.latencies(None)));
    let curves: Vec<(&str, &str, Vec<u64>)> = std::iter::once(recorded).chain(others).collect();
    let ends = curves
        .iter()
        .flat_map(|c| [percentile_ns(&c.2, 0.5), percentile_ns(&c.2, 100.0)]);
    let x = Axis::log("latency, ms", ends.map(|ns| ns.max(1000) as f64 / 1e6));
    let y = Axis::log("share that took longer", [1.0, 0.0005].into_iter());
    let mut chart = Chart::new(x, y);
    for (_, colour, sorted) in &curves {
        // Evenly spaced in the logarithm of the share that took longer.
        let points: Vec<(f64, f64)> = (0..=120)
            .map(|i| 10f64.powf(-f64::from(i) * 3.3 / 120.0))
            .map(|longer| {
                (
                    percentile_ns(sorted, (1.0 - longer) * 100.0).max(1000) as f64 / 1e6,
                    longer,
                )
            })
            .collect();
        chart.line(&points, colour);
    }
    let legend: Vec<(&str, &str)> = curves.iter().map(|c| (c.0, c.1)).collect();
    chart.legend(&legend);
    chart.finish()
}

fn timeline(outcomes: &[(&str, &str, Outcome, Throttles)]) -> String {
    let mut chart = Chart::rows(Axis::linear("s", 0.0, TIMELINE_NS as f64 / 1e9), outcomes.len());
    for (row, (name, colour, _, throttles)) in outcomes.iter().enumerate() {
        let spans = throttles
            .closed
            .iter()
            .map(|&(from, to)| (from as f64 / 1e9, to as f64 / 1e9));
        chart.row(row, name, colour, spans);
    }
    chart.finish()
}

/// When the target was throttled on some CPU.
struct Throttles {
    group: GroupId,
    /// CPU and since when.
    open: Vec<(u32, u64)>,
    closed: Vec<(u64, u64)>,
}

impl Throttles {
    fn end(&mut self, now_ns: u64) {
        let open = std::mem::take(&mut self.open);
        self.closed.extend(
            open.into_iter()
                .filter(|(_, since)| *since < now_ns)
                .map(|(_, since)| (since, now_ns)),
        );
    }
}

impl Observer for Throttles {
    fn throttle(&mut self, now_ns: u64, group: GroupId, cpu: u32) {
        if group == self.group && now_ns < TIMELINE_NS {
            self.open.push((cpu, now_ns));
        }
    }

    fn unthrottle(&mut self, now_ns: u64, group: GroupId, cpu: u32) {
        if group == self.group {
            if let Some(at) = self.open.iter().position(|(on, _)| *on == cpu) {
                let (_, since) = self.open.swap_remove(at);
                self.closed.push((since, now_ns.min(TIMELINE_NS)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_any_size_can_be_told_apart() {
        let shown = [1234.5, 56.78, 5.678, 0.9, 0.0312, 0.0015, 0.000_002, 0.0].map(digits);
        assert_eq!(
            shown,
            ["1234", "56.8", "5.68", "0.900", "0.0312", "0.00150", "0.000002", "0"]
        );
    }
}
