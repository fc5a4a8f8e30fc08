// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page of plots: published against simulated, one plot for each table, drawn as SVG. Nothing is loaded from elsewhere.
use crate::made::Made;
use crate::outcome::{Outcome, Verdict};
use crate::summary::Summary;
use crate::unmeasured::shown;
use plimsoll_page::{begin, escape, END};
use std::fmt::Write;

const STYLE: &str = "body{line-height:1.45;max-width:60rem}h2{margin:2.2rem 0 .3rem}p{margin:.3rem 0}
table{font-size:13px;width:100%}td,th{padding:.15rem .5rem;text-align:left;border-bottom:1px solid #ddd}
.met{color:#14703a}.missed{color:#b00020;font-weight:600}.train{background:#f2f2f2}
svg{width:100%;height:auto;display:block;margin:.5rem 0}svg text{font:12px system-ui,sans-serif;fill:#333}
.key span{margin-right:1.5rem}details{margin:.3rem 0}";

/// The whole page. `tables`: name and what it shows, in order.
pub fn page(outcomes: &[Outcome], summary: &Summary, tables: &[(String, String)], made: &Made) -> String {
    let mut out = begin("Published tables in the simulator", STYLE, false);
    let _ = write!(
        out,
        "<p>{} published rows: {} within tolerance, {} in the right direction, {} wrong, {} not simulated. Simulated \
         values are means over {} seeds, their bars one standard deviation. A published change has its noise \
         as bars: the source's spreads without and with the change added up, 0.5% where it states none, and \
         no less than the last digits of its figures leave open. Published values compared as such have none. \
         Made by plimsoll {}: <code>{} --html FILE</code>.{}</p>\
         <p class=\"key\"><span>{} published</span><span>{} simulated</span>\
         <span>grey background: machine models are fitted to these rows (training); all others are predictions</span></p>",
        summary.rows,
        summary.within,
        summary.right_direction,
        summary.wrong,
        summary.not_simulated,
        made.seeds,
        made.plimsoll,
        escape(&made.command()),
        match made.warning() {
            none if none.is_empty() => none,
            warning => format!(" <b class=\"missed\">{}</b>", escape(&warning)),
        },
        mark(false, "published"),
        mark(true, "simulated"),
    );
    out.push_str("<h2>Targets</h2><table><tr><th>target</th><th>result</th><th>wanted</th><th></th></tr>");
    for target in &summary.targets {
        let (class, word) = if target.met {
            ("met", "met")
        } else {
            ("missed", "missed")
        };
        let _ = write!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"{class}\">{word}</td></tr>",
            escape(&target.name),
            escape(&target.result),
            escape(&target.wanted)
        );
    }
    out.push_str("</table>");
    for (name, about) in tables {
        let rows: Vec<&Outcome> = outcomes.iter().filter(|one| one.table == *name).collect();
        if rows.is_empty() {
            continue;
        }
        let _ = write!(out, "<h2>{}</h2><p>{}</p>", escape(name), escape(about));
        out.push_str(&plots(&rows));
        out.push_str(&figures(&rows));
    }
    out + END
}

fn mark(simulated: bool, title: &str) -> String {
    let shape = shape(6.0, 6.0, simulated);
    format!("<svg viewBox=\"0 0 12 12\" style=\"display:inline;width:12px;margin:0\" role=\"img\" aria-label=\"{title}\">{shape}</svg>")
}

fn shape(x: f64, y: f64, simulated: bool) -> String {
    if simulated {
        format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"#c2410c\"/>")
    } else {
        let (left, top) = (x - 4.0, y - 4.0);
        format!("<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"8\" height=\"8\" fill=\"none\" stroke=\"#1d4ed8\" stroke-width=\"2\"/>")
    }
}

/// A line of a plot.
struct Line<'a> {
    label: String,
    published: Option<f64>,
    published_spread: f64,
    simulated: Option<f64>,
    simulated_spread: f64,
    outcome: &'a Outcome,
}

/// Rows by change in one plot; rows by value in one for each metric, for they differ in scale.
fn plots(rows: &[&Outcome]) -> String {
    let mut out = String::new();
    let by_change: Vec<Line> = rows
        .iter()
        .filter(|one| !one.by_value)
        .map(|one| change(one))
        .collect();
    out.push_str(&plot(&by_change, "change, %"));
    let mut metrics: Vec<&str> = rows
        .iter()
        .filter(|one| one.by_value)
        .map(|one| one.metric.as_str())
        .collect();
    metrics.dedup();
    metrics.sort_unstable();
    metrics.dedup();
    for metric in metrics {
        let mut lines = Vec::new();
        for one in rows.iter().filter(|one| one.by_value && one.metric == metric) {
            lines.extend(values(one));
        }
        let unit = rows
            .iter()
            .find(|one| one.metric == metric)
            .map_or("", |one| one.unit.as_str());
        out.push_str(&plot(&lines, &format!("{metric}, {unit}")));
    }
    out
}

fn label(one: &Outcome) -> String {
    let first = one.parameters.split(';').next().unwrap_or("").trim();
    let mut label = match one.parameters.is_empty() {
        true => one.workload.clone(),
        false
            if one.workload.contains("hackbench")
                || first.starts_with("load=")
                || first.starts_with("clients=") =>
        {
            first.to_string()
        }
        false => format!("{} {first}", one.workload),
    };
    if one.table == "000-schbench" {
        label = one.metric.clone();
    }
    // As much as fits beside the plot.
    if label.chars().count() > 48 {
        label = label.chars().take(47).collect::<String>() + "…";
    }
    label
}

fn change(one: &Outcome) -> Line<'_> {
    Line {
        label: label(one),
        published: one.published_change_percent,
        published_spread: one.published_noise_percent,
        simulated: one.simulated_change_percent.map(|spread| spread.mean),
        simulated_spread: one
            .simulated_change_percent
            .and_then(|spread| spread.stdev)
            .unwrap_or(0.0),
        outcome: one,
    }
}

fn values(one: &Outcome) -> Vec<Line<'_>> {
    let sides = [
        ("", &one.published_base, one.simulated_base),
        (" changed", &one.published_new, one.simulated_new),
    ];
    let mut lines = Vec::new();
    for (suffix, published, simulated) in sides {
        let Some(simulated) = simulated else { continue };
        let number = published.trim_start_matches(['~', '>']).parse().ok();
        lines.push(Line {
            label: label(one) + suffix,
            published: number,
            published_spread: 0.0,
            simulated: Some(simulated.mean).filter(|mean| mean.is_finite()),
            simulated_spread: simulated.stdev.unwrap_or(0.0),
            outcome: one,
        });
    }
    lines
}

fn plot(lines: &[Line], axis: &str) -> String {
    let lines: Vec<&Line> = lines
        .iter()
        .filter(|line| line.published.is_some() || line.simulated.is_some())
        .collect();
    if lines.is_empty() {
        return String::new();
    }
    const LEFT: f64 = 380.0;
    const WIDTH: f64 = 900.0;
    const ROW: f64 = 20.0;
    let (mut low, mut high) = (0.0_f64, 0.0_f64);
    for line in &lines {
        for (value, spread) in [
            (line.published, line.published_spread),
            (line.simulated, line.simulated_spread),
        ] {
            if let Some(value) = value.filter(|value| value.is_finite()) {
                low = low.min(value - spread);
                high = high.max(value + spread);
            }
        }
    }
    let span = (high - low).max(1e-9);
    let step = tick(span / 6.0);
    let (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
    let x = |value: f64| LEFT + (value - low) / (high - low).max(1e-9) * (WIDTH - LEFT - 20.0);
    let height = ROW * lines.len() as f64 + 40.0;
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">",
        escape(axis)
    );
    let mut at = low;
    while at <= high + step / 2.0 {
        let zero = at.abs() < step / 2.0;
        let _ = write!(
            out,
            "<line x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"4\" y2=\"{1:.1}\" stroke=\"{2}\"/><text x=\"{0:.1}\" y=\"{3:.1}\" text-anchor=\"middle\">{4}</text>",
            x(at),
            height - 34.0,
            if zero { "#777" } else { "#e5e5e5" },
            height - 20.0,
            short(if zero { 0.0 } else { at })
        );
        at += step;
    }
    let _ = write!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        (LEFT + WIDTH - 20.0) / 2.0,
        height - 4.0,
        escape(axis)
    );
    for (i, line) in lines.iter().enumerate() {
        let y = 14.0 + ROW * i as f64;
        if line.outcome.training {
            let _ = write!(out, "<rect x=\"0\" y=\"{:.1}\" width=\"{WIDTH}\" height=\"{ROW}\" fill=\"#f0f0f0\" opacity=\".6\"/>", y - 10.0);
        }
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 12.0,
            y + 4.0,
            escape(&line.label)
        );
        for (value, spread, simulated, dy) in [
            (line.published, line.published_spread, false, -3.0),
            (line.simulated, line.simulated_spread, true, 3.0),
        ] {
            let Some(value) = value.filter(|value| value.is_finite()) else {
                continue;
            };
            let colour = if simulated { "#c2410c" } else { "#1d4ed8" };
            if spread > 0.0 {
                let _ = write!(
                    out,
                    "<line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{2:.1}\" y2=\"{2:.1}\" stroke=\"{colour}\"/>",
                    x(value - spread),
                    x(value + spread),
                    y + dy
                );
            }
            out.push_str(&shape(x(value), y + dy, simulated));
        }
    }
    out.push_str("</svg>");
    out
}

/// 1, 2 or 5 times a power of ten, at least `least`.
fn tick(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= least)
        .unwrap_or(10.0 * power)
}

fn short(value: f64) -> String {
    match value.abs() {
        a if a >= 1e6 => format!("{}M", value / 1e6),
        a if a >= 1e4 => format!("{}k", value / 1e3),
        _ => format!("{}", (value * 1000.0).round() / 1000.0),
    }
}

fn figures(rows: &[&Outcome]) -> String {
    let mut out = String::from("<details><summary>figures</summary><table><tr><th>row</th><th>metric</th><th>published</th><th>simulated</th><th>error</th><th>verdict</th></tr>");
    for one in rows {
        let published = match (one.by_value, one.published_change_percent) {
            (false, Some(change)) => format!("{change:+.1}%"),
            _ => format!("{} → {}", one.published_base, one.published_new),
        };
        let simulated = match (one.by_value, one.simulated_change_percent) {
            (false, Some(change)) => change.percent(),
            _ => [one.simulated_base, one.simulated_new]
                .iter()
                .flatten()
                .map(|spread| shown(spread.mean, |mean| format!("{mean:.4}")))
                .collect::<Vec<_>>()
                .join(" → "),
        };
        let _ =
            write!(
            out,
            "<tr{}><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"{}\">{}{}</td></tr>",
            if one.training { " class=\"train\"" } else { "" },
            escape(&format!("{} {}", one.workload, one.parameters)),
            escape(&one.metric_in()),
            escape(&published),
            escape(&simulated),
            escape(&one.error_shown()),
            match one.verdict {
                Verdict::Within => "met",
                Verdict::Wrong => "missed",
                _ => "",
            },
            one.verdict.words(),
            one.remark.as_deref().map_or(String::new(), |remark| format!(" ({})", escape(remark))),
        );
    }
    out + "</table></details>"
}
