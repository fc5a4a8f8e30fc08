// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Just enough of a chart: axes with ticks, lines, dots, rows of spans.
use crate::escape;
use std::fmt::Write;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 110.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 48.0;
const ROW: f64 = 34.0;

pub struct Axis {
    label: String,
    low: f64,
    high: f64,
    log: bool,
}

impl Axis {
    pub fn linear(label: &str, low: f64, high: f64) -> Axis {
        Axis {
            label: label.into(),
            low,
            high: high.max(low + 1e-9),
            log: false,
        }
    }

    /// Whole decades around the values, which are above 0.
    pub fn log(label: &str, values: impl Iterator<Item = f64>) -> Axis {
        let (low, high) = values
            .filter(|v| v.is_finite() && *v > 0.0)
            .fold((f64::INFINITY, 0.0f64), |(low, high), v| {
                (low.min(v), high.max(v))
            });
        let (low, high) = if high > 0.0 { (low, high) } else { (0.1, 1.0) };
        let (low, high) = (low.log10().floor(), high.log10().ceil());
        Axis {
            label: label.into(),
            low,
            high: high.max(low + 1.0),
            log: true,
        }
    }

    /// Where a value lies, 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let value = if self.log { value.max(1e-12).log10() } else { value };
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    fn ticks(&self) -> Vec<(f64, String)> {
        if self.log {
            return (self.low as i32..=self.high as i32)
                .map(|e| 10f64.powi(e))
                .map(|v| (v, number(v)))
                .collect();
        }
        let rough = (self.high - self.low) / 6.0;
        let unit = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|m| m * unit)
            .into_iter()
            .find(|s| *s >= rough)
            .unwrap_or(unit);
        let first = (self.low / step).ceil() as i64;
        (first..)
            .map(|i| i as f64 * step)
            .take_while(|v| *v <= self.high)
            .map(|v| (v, number(v)))
            .collect()
    }
}

fn number(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

pub struct Chart {
    x: Axis,
    y: Option<Axis>,
    height: f64,
    body: String,
}

impl Chart {
    pub fn new(x: Axis, y: Axis) -> Chart {
        let mut chart = Chart {
            x,
            y: Some(y),
            height: 380.0,
            body: String::new(),
        };
        chart.axes();
        chart
    }

    /// Rows of spans under one another.
    pub fn rows(x: Axis, count: usize) -> Chart {
        let mut chart = Chart {
            x,
            y: None,
            height: TOP + BOTTOM + ROW * count as f64,
            body: String::new(),
        };
        chart.axes();
        chart
    }

    fn px(&self, value: f64) -> f64 {
        LEFT + self.x.place(value) * (WIDTH - LEFT - RIGHT)
    }

    fn py(&self, value: f64) -> f64 {
        let place = self.y.as_ref().map_or(0.0, |y| y.place(value));
        TOP + (1.0 - place) * (self.height - TOP - BOTTOM)
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, colour: &str, text: &str) {
        let _ = write!(
            self.body,
            "<text x='{x:.1}' y='{y:.1}' text-anchor='{anchor}' fill='{colour}' font-size='13'>{}</text>",
            escape(text)
        );
    }

    fn axes(&mut self) {
        let bottom = self.height - BOTTOM;
        for (value, label) in self.x.ticks() {
            let x = self.px(value);
            let _ = write!(
                self.body,
                "<path d='M{x:.1} {TOP}V{bottom:.1}' stroke='#e4e4e4'/>"
            );
            self.text(x, bottom + 17.0, "middle", "#555", &label);
        }
        let label = self.x.label.clone();
        self.text(
            (LEFT + WIDTH - RIGHT) / 2.0,
            self.height - 10.0,
            "middle",
            "#222",
            &label,
        );
        let ticks = self.y.as_ref().map(|y| (y.ticks(), y.label.clone()));
        if let Some((ticks, label)) = ticks {
            for (value, text) in ticks {
                let y = self.py(value);
                let _ = write!(
                    self.body,
                    "<path d='M{LEFT} {y:.1}H{:.1}' stroke='#e4e4e4'/>",
                    WIDTH - RIGHT
                );
                self.text(LEFT - 8.0, y + 4.0, "end", "#555", &text);
            }
            self.text(LEFT - 8.0, TOP - 16.0, "start", "#222", &label);
        }
    }

    pub fn line(&mut self, points: &[(f64, f64)], colour: &str) {
        let path: Vec<String> = points
            .iter()
            .map(|p| format!("{:.1} {:.1}", self.px(p.0), self.py(p.1)))
            .collect();
        let _ = write!(
            self.body,
            "<path d='M{}' fill='none' stroke='{colour}' stroke-width='2'/>",
            path.join("L")
        );
    }

    /// A line that keeps its height until the next point.
    pub fn steps(&mut self, points: &[(f64, f64)], colour: &str) {
        let mut corners = Vec::new();
        for pair in points.windows(2) {
            corners.extend([pair[0], (pair[1].0, pair[0].1)]);
        }
        corners.extend(points.last());
        if !corners.is_empty() {
            self.line(&corners, colour);
        }
    }

    pub fn dot(&mut self, at: (f64, f64), radius: f64, colour: &str, filled: bool, note: &str) {
        let fill = if filled { colour } else { "#fff" };
        let _ = write!(
            self.body,
            "<circle cx='{:.1}' cy='{:.1}' r='{radius}' fill='{fill}' stroke='{colour}' stroke-width='2'><title>{}</title></circle>",
            self.px(at.0),
            self.py(at.1),
            escape(note)
        );
    }

    pub fn row(&mut self, row: usize, name: &str, colour: &str, spans: impl Iterator<Item = (f64, f64)>) {
        let y = TOP + ROW * row as f64;
        self.text(LEFT - 8.0, y + ROW / 2.0 + 4.0, "end", "#222", name);
        let _ = write!(
            self.body,
            "<rect x='{LEFT}' y='{:.1}' width='{:.1}' height='{:.1}' fill='#f6f6f6'/>",
            y + 5.0,
            WIDTH - LEFT - RIGHT,
            ROW - 10.0
        );
        for (from, to) in spans {
            let (a, b) = (self.px(from), self.px(to));
            let _ = write!(
                self.body,
                "<rect x='{a:.1}' y='{:.1}' width='{:.1}' height='{:.1}' fill='{colour}' fill-opacity='.6'/>",
                y + 5.0,
                (b - a).max(0.5),
                ROW - 10.0
            );
        }
    }

    pub fn legend(&mut self, names: &[(&str, &str)]) {
        let mut x = WIDTH - RIGHT;
        for (name, colour) in names.iter().rev() {
            self.text(x, TOP - 16.0, "end", colour, name);
            x -= 9.0 * name.chars().count() as f64 + 14.0;
        }
    }

    pub fn finish(self) -> String {
        format!(
            "<svg viewBox='0 0 {WIDTH} {:.0}' role='img' font-family='system-ui,sans-serif'>{}</svg>",
            self.height, self.body
        )
    }
}
