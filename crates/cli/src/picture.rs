// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A picture of part of a run, as SVG: what ran on each CPU, when groups were throttled, and what limited groups had left
//! to run.
//!
//! What a group has left is its pool as it was refilled, less what its tasks have run since. What CPUs keep of it from one
//! period to the next (1 ms each at most) is in neither.
use plimsoll_page::escape;
use plimsoll_sim::observer::{Observer, Stop};
use plimsoll_sim::{GroupId, TaskId};
use std::fmt::Write;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 110.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 34.0;
/// Height of all CPUs' rows together, and the most that one takes.
const ROWS: f64 = 240.0;
const ROW_MAX: f64 = 16.0;
/// Height of a limited group's panel, and the room above it.
const PANEL: f64 = 56.0;
const GAP: f64 = 26.0;
/// Stretches nearer to each other than this, in pixels, are drawn as one, so that a file stays small.
const NEAR: f64 = 0.3;
const COLOURS: [&str; 6] = ["#3366cc", "#e07b00", "#2e8b57", "#8e44ad", "#c0392b", "#17849b"];
const ROOT: &str = "#9aa0a6";
const THROTTLED: &str = "#c0392b";

/// A stretch of simulated time, in ns from the beginning of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub from_ns: u64,
    pub to_ns: u64,
    /// Where the axis has its zero: the end of the warm-up. At most `from_ns`.
    pub zero_ns: u64,
}

/// A stretch of it, with its group where it is a CPU's.
struct Span {
    group: usize,
    from_ns: u64,
    to_ns: u64,
}

struct Group {
    name: String,
    /// The group itself and those above it that may have limits.
    lineage: Vec<usize>,
    /// CPUs on which a task of it, or below it, runs.
    running: u32,
    left_ns: i64,
    since_ns: u64,
    has_limit: bool,
    /// What it had left, at times in the window.
    points: Vec<(u64, i64)>,
    throttled: Vec<Span>,
    throttled_cpus: u32,
    throttled_ns: u64,
}

pub struct Picture {
    window: Window,
    groups: Vec<Group>,
    cpus: Vec<Vec<Span>>,
    running: Vec<Option<(usize, u64)>>,
}

impl Picture {
    /// `groups`: names in the order of their numbers, the root first.
    pub fn new(window: Window, nr_cpus: usize, mut groups: Vec<String>) -> Self {
        // The simulator has a side of headroom in any case; it is drawn where it is throttled.
        groups.push("headroom's side".to_string());
        let above = |name: &str| {
            let mut lineage = Vec::new();
            for (number, other) in groups.iter().enumerate() {
                let below = name.strip_prefix(other.as_str());
                if below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
                    lineage.push(number);
                }
            }
            lineage
        };
        let group = |name: &String| Group {
            name: name.clone(),
            lineage: above(name),
            running: 0,
            left_ns: 0,
            since_ns: 0,
            has_limit: false,
            points: Vec::new(),
            throttled: Vec::new(),
            throttled_cpus: 0,
            throttled_ns: 0,
        };
        Picture {
            window,
            groups: groups.iter().map(group).collect(),
            cpus: (0..nr_cpus).map(|_| Vec::new()).collect(),
            running: vec![None; nr_cpus],
        }
    }

    fn per_ns(&self) -> f64 {
        (WIDTH - LEFT - RIGHT) / (self.window.to_ns - self.window.from_ns) as f64
    }

    fn x(&self, at_ns: u64) -> f64 {
        let at_ns = at_ns.clamp(self.window.from_ns, self.window.to_ns);
        LEFT + (at_ns - self.window.from_ns) as f64 * self.per_ns()
    }

    /// The part of a stretch that lies in the window.
    fn seen(&self, group: usize, from_ns: u64, to_ns: u64) -> Option<Span> {
        let (from_ns, to_ns) = (from_ns.max(self.window.from_ns), to_ns.min(self.window.to_ns));
        (from_ns < to_ns).then_some(Span {
            group,
            from_ns,
            to_ns,
        })
    }

    fn end_run(&mut self, cpu: usize, now_ns: u64) {
        let Some((group, since_ns)) = self.running[cpu].take() else {
            return;
        };
        self.count(group, now_ns, -1);
        let Some(span) = self.seen(group, since_ns, now_ns) else {
            return;
        };
        let near_ns = (NEAR / self.per_ns()) as u64;
        match self.cpus[cpu].last_mut() {
            Some(last) if last.group == group && span.from_ns - last.to_ns <= near_ns => {
                last.to_ns = span.to_ns
            }
            _ => self.cpus[cpu].push(span),
        }
    }

    /// A CPU begins (1) or ends (-1) to run a task of `group`.
    fn count(&mut self, group: usize, now_ns: u64, by: i32) {
        for at in self.groups[group].lineage.clone() {
            self.advance(at, now_ns);
            let group = &mut self.groups[at];
            group.running = group.running.saturating_add_signed(by);
        }
    }

    /// Brings what a group has left up to `now_ns`.
    fn advance(&mut self, group: usize, now_ns: u64) {
        let window = self.window;
        // What it has left at the window's edges is drawn, and nothing that comes after.
        for edge_ns in [window.from_ns, window.to_ns] {
            if self.groups[group].since_ns < edge_ns && edge_ns < now_ns {
                self.advance(group, edge_ns);
            }
        }
        let near_ns = (NEAR / self.per_ns()) as u64;
        let group = &mut self.groups[group];
        let ran_ns = now_ns.saturating_sub(group.since_ns) * u64::from(group.running);
        group.left_ns = (group.left_ns - i64::try_from(ran_ns).unwrap_or(i64::MAX)).max(0);
        group.since_ns = group.since_ns.max(now_ns);
        let last_ns = group.points.last().map_or(0, |point| point.0);
        let inside = (window.from_ns..=window.to_ns).contains(&now_ns);
        if inside && (group.points.is_empty() || now_ns > last_ns + near_ns) {
            group.points.push((now_ns, group.left_ns));
        }
    }

    /// The picture, once the run is over. `title` says what was run, `end_ns` when it ended: nothing is drawn after that.
    pub fn svg(mut self, title: &str, end_ns: u64) -> String {
        let end_ns = end_ns.min(self.window.to_ns);
        for cpu in 0..self.running.len() {
            self.end_run(cpu, end_ns);
        }
        for at in 0..self.groups.len() {
            self.advance(at, end_ns);
            if self.groups[at].throttled_cpus > 0 {
                self.end_throttle(at, end_ns);
            }
        }
        let nr_cpus = self.cpus.len().max(1);
        let row = (ROWS / nr_cpus as f64).min(ROW_MAX);
        let panels: Vec<usize> = (0..self.groups.len())
            .filter(|&at| self.groups[at].has_limit || !self.groups[at].throttled.is_empty())
            .collect();
        let cpus_end = TOP + row * nr_cpus as f64;
        let bottom = cpus_end + panels.len() as f64 * (PANEL + GAP);
        let mut svg = format!(
            "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {:.0}' role='img' \
             font-family='system-ui,sans-serif' font-size='12'><title>{}</title>\n\
             <rect width='100%' height='100%' fill='#fff'/>\n",
            bottom + 40.0,
            escape(title)
        );
        self.legend(&mut svg);
        self.rows(&mut svg, row);
        for (number, &at) in panels.iter().enumerate() {
            let top = cpus_end + GAP + number as f64 * (PANEL + GAP);
            self.panel(&mut svg, at, top);
        }
        self.axis(&mut svg, bottom);
        svg.push_str("</svg>\n");
        svg
    }

    fn colour(&self, group: usize) -> &'static str {
        match group {
            0 => ROOT,
            other => COLOURS[(other - 1) % COLOURS.len()],
        }
    }

    fn ran(&self, group: usize) -> bool {
        self.cpus.iter().flatten().any(|span| span.group == group)
    }

    fn legend(&self, svg: &mut String) {
        let mut x = LEFT;
        for at in (0..self.groups.len()).filter(|&at| self.ran(at)) {
            let (name, colour) = (escape(&self.groups[at].name), self.colour(at));
            put(
                svg,
                format_args!("<rect x='{x:.1}' y='10' width='11' height='11' fill='{colour}'/>"),
            );
            put(
                svg,
                format_args!("<text x='{:.1}' y='20'>{name}</text>\n", x + 16.0),
            );
            x += 34.0 + 7.0 * self.groups[at].name.chars().count() as f64;
        }
    }

    fn rows(&self, svg: &mut String, row: f64) {
        for (cpu, spans) in self.cpus.iter().enumerate() {
            let y = TOP + row * cpu as f64;
            let end = WIDTH - RIGHT;
            if row >= 10.0 || cpu == 0 || cpu + 1 == self.cpus.len() {
                let base = y + row / 2.0 + 4.0;
                put(
                    svg,
                    format_args!(
                        "<text x='{:.0}' y='{base:.1}' text-anchor='end'>CPU {cpu}</text>",
                        LEFT - 8.0
                    ),
                );
            }
            put(
                svg,
                format_args!("<path d='M{LEFT} {:.1}H{end}' stroke='#eee'/>\n", y + row),
            );
            let mut paths: Vec<(usize, String)> = Vec::new();
            for span in spans {
                let from = self.x(span.from_ns);
                let width = (self.x(span.to_ns) - from).max(NEAR);
                let (top, height) = (y + row * 0.1, row * 0.8);
                let path = format!("M{from:.1} {top:.1}h{width:.1}v{height:.1}h-{width:.1}z");
                match paths.iter_mut().find(|(group, _)| *group == span.group) {
                    Some((_, all)) => all.push_str(&path),
                    None => paths.push((span.group, path)),
                }
            }
            for (group, path) in paths {
                put(
                    svg,
                    format_args!("<path d='{path}' fill='{}'/>\n", self.colour(group)),
                );
            }
        }
    }

    /// A group's row: bands where it was throttled, and a line of what it had left.
    fn panel(&self, svg: &mut String, at: usize, top: f64) {
        let group = &self.groups[at];
        let bottom = top + PANEL;
        let what = if group.has_limit {
            "left to run, and throttled"
        } else {
            "throttled"
        };
        put(
            svg,
            format_args!(
                "<text x='{LEFT}' y='{:.1}'>{}: {what}</text>\n",
                top - 6.0,
                escape(&group.name)
            ),
        );
        let mut bands = String::new();
        for span in &group.throttled {
            let from = self.x(span.from_ns);
            let width = (self.x(span.to_ns) - from).max(NEAR);
            put(
                &mut bands,
                format_args!("M{from:.1} {top:.1}h{width:.1}v{PANEL}h-{width:.1}z"),
            );
        }
        if !bands.is_empty() {
            put(
                svg,
                format_args!("<path d='{bands}' fill='{THROTTLED}' fill-opacity='.25'/>\n"),
            );
        }
        put(
            svg,
            format_args!(
                "<path d='M{LEFT} {bottom:.1}H{}' stroke='#888'/>\n",
                WIDTH - RIGHT
            ),
        );
        let most_ns = group.points.iter().map(|point| point.1).max().unwrap_or(0);
        if !group.has_limit || most_ns <= 0 {
            return;
        }
        let label = most_ns as f64 / 1e6;
        for (text, y) in [(format!("{label:.0} ms"), top + 8.0), ("0".to_string(), bottom)] {
            put(
                svg,
                format_args!(
                    "<text x='{:.0}' y='{y:.1}' text-anchor='end'>{text}</text>",
                    LEFT - 8.0
                ),
            );
        }
        let mut line = String::new();
        for (number, (at_ns, left_ns)) in group.points.iter().enumerate() {
            let y = bottom - *left_ns as f64 / most_ns as f64 * (PANEL - 2.0);
            let step = if number == 0 { 'M' } else { 'L' };
            put(&mut line, format_args!("{step}{:.1} {y:.1}", self.x(*at_ns)));
        }
        put(
            svg,
            format_args!(
                "<path d='{line}' fill='none' stroke='{}' stroke-width='1.5'/>\n",
                self.colour(at)
            ),
        );
    }

    fn axis(&self, svg: &mut String, bottom: f64) {
        let length_ms = (self.window.to_ns - self.window.from_ns) as f64 / 1e6;
        let rough = length_ms / 8.0;
        let unit = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|m| m * unit)
            .into_iter()
            .find(|s| *s >= rough);
        let step_ns = (step.unwrap_or(unit) * 1e6).max(1.0) as u64;
        let zero_ns = self.window.zero_ns;
        let first = (self.window.from_ns - zero_ns).div_ceil(step_ns);
        let decimals = if step_ns < 1_000_000 { 3 } else { 0 };
        for tick in first..=(self.window.to_ns - zero_ns) / step_ns {
            let (x, ms) = (self.x(zero_ns + tick * step_ns), (tick * step_ns) as f64 / 1e6);
            put(
                svg,
                format_args!(
                    "<path d='M{x:.1} {TOP}V{:.1}' stroke='#000' stroke-opacity='.12'/>",
                    bottom + 4.0
                ),
            );
            put(
                svg,
                format_args!(
                    "<text x='{x:.1}' y='{:.1}' text-anchor='middle'>{ms:.decimals$}</text>\n",
                    bottom + 18.0
                ),
            );
        }
        let middle = (LEFT + WIDTH - RIGHT) / 2.0;
        put(
            svg,
            format_args!(
                "<text x='{middle:.0}' y='{:.1}' text-anchor='middle'>{}</text>\n",
                bottom + 34.0,
                match zero_ns {
                    0 => "ms of simulated time",
                    _ => "ms from the end of the warm-up",
                }
            ),
        );
    }

    fn end_throttle(&mut self, group: usize, now_ns: u64) {
        let span = self.seen(group, self.groups[group].throttled_ns, now_ns);
        self.groups[group].throttled.extend(span);
    }
}

impl Observer for Picture {
    fn run(&mut self, now_ns: u64, cpu: u32, _task: TaskId, group: GroupId) {
        let group = group.0 as usize;
        self.running[cpu as usize] = Some((group, now_ns));
        self.count(group, now_ns, 1);
    }

    fn stop(&mut self, now_ns: u64, cpu: u32, _task: TaskId, _why: Stop) {
        self.end_run(cpu as usize, now_ns);
    }

    fn throttle(&mut self, now_ns: u64, group: GroupId, _cpu: u32) {
        let group = &mut self.groups[group.0 as usize];
        group.throttled_cpus += 1;
        if group.throttled_cpus == 1 {
            group.throttled_ns = now_ns;
        }
    }

    fn unthrottle(&mut self, now_ns: u64, group: GroupId, _cpu: u32) {
        let at = group.0 as usize;
        // A release of a CPU where nothing had to stop was not begun here.
        match self.groups[at].throttled_cpus {
            0 => return,
            1 => self.end_throttle(at, now_ns),
            _ => {}
        }
        self.groups[at].throttled_cpus -= 1;
    }

    fn pool(&mut self, now_ns: u64, group: GroupId, runtime_ns: i64) {
        let at = group.0 as usize;
        self.advance(at, now_ns);
        let window = self.window;
        let group = &mut self.groups[at];
        if (window.from_ns..=window.to_ns).contains(&now_ns) {
            group.points.push((now_ns, group.left_ns));
            group.points.push((now_ns, runtime_ns.max(0)));
        }
        group.left_ns = runtime_ns.max(0);
        group.has_limit = true;
    }
}

fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what).expect("writing into memory");
}
