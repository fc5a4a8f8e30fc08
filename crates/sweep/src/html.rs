// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A sweep as one self-contained page: each figure over what varied, and in a table. Inline SVG, no scripts, nothing loaded
//! from elsewhere.
use crate::summary::{Measure, Quantiles, Summary};
use plimsoll_page::svg::{Axis, Chart};
use plimsoll_page::{begin, escape, END};
use std::collections::BTreeMap;
use std::fmt::Write;

const STYLE: &str = "td,th{padding:.2em 1em .2em 0;text-align:right;font-variant-numeric:tabular-nums}\
svg{width:100%;max-width:920px;height:auto}@media(max-width:900px){table{font-size:12px}}";

/// Of lines that can be told apart.
const COLOURS: [&str; 8] = [
    "#0b7a4b", "#3057b8", "#c2571a", "#8a2be2", "#b00020", "#00838f", "#6d4c41", "#555555",
];

/// Values that differ by more than this are drawn on a logarithmic scale.
const LOG_FROM: f64 = 20.0;

/// The page. `title`: what was swept.
pub fn html(summary: &Summary, title: &str) -> String {
    let mut page = begin(&format!("Sweep of {title}"), STYLE, false);
    write_page(&mut page, summary).expect("writing into memory");
    page
}

fn write_page(page: &mut String, summary: &Summary) -> std::fmt::Result {
    write!(
        page,
        "<p>{} runs of {} combinations. Dots are medians over the seeds; bars go from 5% to 95% of the runs.</p>",
        summary.points,
        summary.combinations.len(),
    )?;
    if summary.measures.is_empty() {
        write!(page, "<p>No figure differs between the runs.</p>")?;
    }
    for measure in &summary.measures {
        write!(page, "<h2>{}</h2>", escape(&measure.title))?;
        let drawn = numeric(summary);
        for x in &drawn {
            *page += &chart(summary, measure, *x);
        }
        if drawn.is_empty() {
            write!(
                page,
                "<p class=note>Nothing that varied is a number: no plot.</p>"
            )?;
        }
        write_table(page, summary, measure)?;
    }
    page.write_str(END)
}

/// Keys with two numbers or more.
fn numeric(summary: &Summary) -> Vec<usize> {
    let values = |key: usize| {
        let mut all: Vec<f64> = (0..summary.combinations.len())
            .filter_map(|at| value(summary, at, key))
            .collect();
        all.sort_by(f64::total_cmp);
        all.dedup();
        all.len()
    };
    (0..summary.keys.len()).filter(|key| values(*key) > 1).collect()
}

fn value(summary: &Summary, combination: usize, key: usize) -> Option<f64> {
    let text = summary.combinations[combination][key].as_ref()?;
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

fn axis(label: &str, values: &[f64], from_zero: bool) -> Axis {
    let (low, high) = values
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| {
            (low.min(*v), high.max(*v))
        });
    if low > 0.0 && high / low > LOG_FROM {
        return Axis::log(label, values.iter().copied());
    }
    let low = if from_zero { low.min(0.0) } else { low };
    Axis::linear(
        label,
        low,
        if high > low {
            high + (high - low) * 0.04
        } else {
            low + 1.0
        },
    )
}

/// One figure over one key: a line for each combination of the others, or dots where each has a line of its own.
fn chart(summary: &Summary, measure: &Measure, key: usize) -> String {
    let mut lines: BTreeMap<String, Vec<(f64, Quantiles, usize)>> = BTreeMap::new();
    for (at, quantiles) in measure.quantiles.iter().enumerate() {
        if let (Some(x), Some(quantiles)) = (value(summary, at, key), quantiles) {
            let name = others(summary, at, key);
            lines.entry(name).or_default().push((x, *quantiles, at));
        }
    }
    let all: Vec<&(f64, Quantiles, usize)> = lines.values().flatten().collect();
    if all.is_empty() {
        return String::new();
    }
    let xs: Vec<f64> = all.iter().map(|point| point.0).collect();
    let ys: Vec<f64> = all.iter().flat_map(|point| [point.1.p5, point.1.p95]).collect();
    let mut chart = Chart::new(
        axis(&summary.keys[key], &xs, true),
        axis(&measure.title, &ys, true),
    );
    // Of a random sample each point is alone.
    let joined = lines.values().any(|line| line.len() > 1);
    let told = joined && lines.len() <= COLOURS.len();
    let mut legend = Vec::new();
    for (number, (name, line)) in lines.iter_mut().enumerate() {
        line.sort_by(|a, b| a.0.total_cmp(&b.0));
        let colour = if told { COLOURS[number] } else { COLOURS[1] };
        if joined {
            let medians: Vec<(f64, f64)> = line.iter().map(|(x, q, _)| (*x, q.median)).collect();
            chart.line(&medians, colour);
        }
        for (x, q, at) in line.iter() {
            chart.line(&[(*x, q.p5), (*x, q.p95)], colour);
            let note = format!(
                "{}: {} ({} .. {})",
                settings(summary, *at),
                figure(q.median),
                figure(q.p5),
                figure(q.p95)
            );
            chart.dot((*x, q.median), 3.5, colour, true, &note);
        }
        if told && !name.is_empty() {
            legend.push((name.as_str(), colour));
        }
    }
    let text = legend.iter().fold(String::new(), |text, (name, colour)| {
        format!(
            "{text}<span style='color:{colour}'>&#9632; {}</span> &nbsp; ",
            escape(name)
        )
    });
    format!("{}<p class=note>{text}</p>", chart.finish())
}

/// A combination but for one key.
fn others(summary: &Summary, combination: usize, but: usize) -> String {
    let values = &summary.combinations[combination];
    let named = summary
        .keys
        .iter()
        .zip(values)
        .enumerate()
        .filter(|(at, _)| *at != but);
    let each = named.map(|(_, (key, value))| format!("{key} = {}", value.as_deref().unwrap_or("-")));
    each.collect::<Vec<_>>().join(", ")
}

fn settings(summary: &Summary, combination: usize) -> String {
    others(summary, combination, usize::MAX)
}

fn write_table(page: &mut String, summary: &Summary, measure: &Measure) -> std::fmt::Result {
    write!(
        page,
        "<details><summary>table</summary><div class=wide><table><tr>"
    )?;
    for key in &summary.keys {
        write!(page, "<th>{}", escape(key))?;
    }
    write!(page, "<th>runs<th>min<th>5%<th>median<th>95%<th>max</tr>")?;
    for (values, quantiles) in summary.combinations.iter().zip(&measure.quantiles) {
        write!(page, "<tr>")?;
        for value in values {
            write!(page, "<td>{}", escape(value.as_deref().unwrap_or("-")))?;
        }
        match quantiles {
            None => write!(page, "<td>0<td>-<td>-<td>-<td>-<td>-</tr>")?,
            Some(q) => {
                write!(page, "<td>{}", q.runs)?;
                for value in [q.min, q.p5, q.median, q.p95, q.max] {
                    write!(page, "<td>{}", figure(value))?;
                }
                write!(page, "</tr>")?;
            }
        }
    }
    write!(page, "</table></div></details>")
}

/// A figure with at least three digits that count.
pub fn figure(value: f64) -> String {
    let places = match value.abs() {
        v if v >= 100.0 || v == 0.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        v => (2.0 - v.log10().floor()).min(6.0) as usize,
    };
    format!("{value:.places$}")
}
