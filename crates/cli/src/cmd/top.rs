// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plimsoll top`: how much of its limit each cgroup uses now.
use crate::exit::{Failure, Outcome, Result};
use crate::rates::{Order, Rates};
use plimsoll_live::{ask, Request, Status};
use plimsoll_scenario::find::bounded;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};
use ratatui::Frame;
use std::io::{BufRead, BufReader, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Watch cgroups under the running scheduler: CPU use against limits, throttling, burst, waiting, steals
///
/// Keys: q quits; n, c, t, b, d, s sort by name, CPU use, throttling, burst, run delay, steals; r reverses; space
/// pauses; arrows and page keys scroll.
#[derive(clap::Args)]
pub struct Args {
    /// Seconds between two looks
    #[arg(
        long,
        short,
        default_value_t = 1.0,
        value_name = "S",
        allow_hyphen_values = true,
        value_parser = crate::number::within(0.1..=60.0)
    )]
    interval: f64,

    /// Show a feed that was recorded with `plimsoll status --json --watch`, instead of the running scheduler
    #[arg(long, value_name = "FILE")]
    feed: Option<PathBuf>,
}

/// Where the figures come from.
enum Source {
    Scheduler,
    Feed {
        path: PathBuf,
        feed: BufReader<std::fs::File>,
        line: usize,
    },
}

impl Source {
    /// `None`: the feed has ended.
    fn next(&mut self) -> std::result::Result<Option<Status>, Failure> {
        match self {
            Source::Scheduler => ask(&Request::Status { cgroup: None })?
                .map(Some)
                .ok_or_else(|| Failure::Machine("the scheduler sent no status".into())),
            Source::Feed { path, feed, line } => {
                *line += 1;
                let place = format!("{}:{line}", path.display());
                let text = next_line(feed)
                    .map_err(|error| Failure::Input(format!("{place}: cannot read it: {error}")))?;
                let Some(text) = text else { return Ok(None) };
                serde_json::from_str(&text).map(Some).map_err(|error| {
                    Failure::Input(format!(
                        "{place}: not a line of `plimsoll status --json --watch`: {error}"
                    ))
                })
            }
        }
    }
}

/// The next line of a feed, however many there are; `None`: there is none. A device that never ends has one that never
/// does.
fn next_line(feed: &mut impl BufRead) -> std::io::Result<Option<String>> {
    let mut text = String::new();
    bounded(feed, |feed| feed.read_line(&mut text))?;
    Ok((!text.is_empty()).then_some(text))
}

pub fn run(args: &Args) -> Result {
    if !std::io::stdout().is_terminal() {
        let instead = "`plimsoll status --watch` prints plain lines";
        return Err(Failure::Input(format!(
            "standard output is not a terminal; {instead}"
        )));
    }
    let mut source = match &args.feed {
        None => Source::Scheduler,
        Some(path) => {
            let file = std::fs::File::open(path).map_err(|error| Failure::file("read it", path, &error))?;
            Source::Feed {
                path: path.clone(),
                feed: BufReader::new(file),
                line: 0,
            }
        }
    };
    // Before the screen is taken: a scheduler that is not there is said in plain words.
    let first = source.next()?.ok_or_else(|| {
        let feed = args.feed.as_deref().unwrap_or(Path::new(""));
        Failure::Input(format!("{}: the feed is empty", feed.display()))
    })?;
    let mut terminal = ratatui::try_init().map_err(|error| {
        // Half of it may have been done.
        let _ = ratatui::try_restore();
        broken(error)
    })?;
    let result = follow(
        &mut terminal,
        &mut source,
        first,
        Duration::from_secs_f64(args.interval),
    );
    ratatui::restore();
    result
}

fn broken(error: std::io::Error) -> Failure {
    Failure::Machine(format!("the terminal: {error}"))
}

fn follow(
    terminal: &mut ratatui::DefaultTerminal,
    source: &mut Source,
    first: Status,
    interval: Duration,
) -> Result {
    let mut before = first;
    let mut screen = Screen::new(Rates::between(&before, &before));
    let mut next = Instant::now() + interval;
    loop {
        terminal.draw(|frame| screen.draw(frame)).map_err(broken)?;
        let wait = next.saturating_duration_since(Instant::now());
        if event::poll(wait).map_err(broken)? {
            if let Event::Key(key) = event::read().map_err(broken)? {
                let interrupted =
                    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                if interrupted || (key.kind == KeyEventKind::Press && screen.key(key.code)) {
                    return Ok(Outcome::Done);
                }
            }
            continue;
        }
        next = Instant::now() + interval;
        if screen.paused || screen.ended {
            continue;
        }
        match source.next()? {
            Some(status) => {
                screen.show(Rates::between(&before, &status));
                before = status;
            }
            None => screen.ended = true,
        }
    }
}

struct Screen {
    rates: Rates,
    order: Order,
    reversed: bool,
    paused: bool,
    /// The feed has ended: the last figures stay.
    ended: bool,
    table: TableState,
}

impl Screen {
    fn new(rates: Rates) -> Self {
        let mut screen = Self {
            rates,
            order: Order::Cpu,
            reversed: false,
            paused: false,
            ended: false,
            table: TableState::default(),
        };
        screen.sort();
        screen
    }

    fn show(&mut self, rates: Rates) {
        self.rates = rates;
        self.sort();
    }

    fn sort(&mut self) {
        self.rates.sort(self.order);
        if self.reversed {
            self.rates.groups.reverse();
        }
    }

    /// True: leave.
    fn key(&mut self, code: KeyCode) -> bool {
        let rows = self.rates.groups.len();
        let at = self.table.offset();
        let scroll = |to: usize| to.min(rows.saturating_sub(1));
        match code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Char('r') => self.reversed = !self.reversed,
            KeyCode::Down => *self.table.offset_mut() = scroll(at + 1),
            KeyCode::Up => *self.table.offset_mut() = at.saturating_sub(1),
            KeyCode::PageDown => *self.table.offset_mut() = scroll(at + 10),
            KeyCode::PageUp => *self.table.offset_mut() = at.saturating_sub(10),
            KeyCode::Home => *self.table.offset_mut() = 0,
            KeyCode::Char(letter) => {
                if let Some(order) = Order::ALL.into_iter().find(|order| order.key() == letter) {
                    self.order = order;
                    self.reversed = false;
                }
            }
            _ => {}
        }
        self.sort();
        false
    }

    fn draw(&mut self, frame: &mut Frame) {
        let [head, body, foot] =
            Layout::vertical([Constraint::Length(2), Constraint::Min(1), Constraint::Length(1)])
                .areas(frame.area());
        frame.render_widget(Paragraph::new(self.head()), head);
        let (columns, name_width) = columns_of(body.width, self.order);
        let titles = columns.iter().map(|&column| {
            let (title, width, order) = COLUMNS[column];
            let shown = if width == NAME {
                title.to_string()
            } else {
                format!("{title:>width$}", width = width as usize)
            };
            let cell = Cell::from(shown);
            if order == Some(self.order) {
                cell.style(Style::new().add_modifier(Modifier::UNDERLINED))
            } else {
                cell
            }
        });
        let titles = Row::new(titles).style(Style::new().bold().reversed());
        let widths = columns.iter().map(|&column| match COLUMNS[column].1 {
            NAME => Constraint::Length(name_width),
            width => Constraint::Length(width),
        });
        let rows = self.rates.groups.iter().map(|group| {
            let cells = cells(group, name_width as usize);
            Row::new(
                columns
                    .iter()
                    .map(|&column| cells[column].clone())
                    .collect::<Vec<_>>(),
            )
        });
        let table = Table::new(rows, widths).header(titles).column_spacing(1);
        frame.render_stateful_widget(table, body, &mut self.table);
        let state = match (self.ended, self.paused) {
            (true, _) => " the feed has ended ",
            (_, true) => " paused ",
            _ => "",
        };
        let fits = state.len() + KEYS.len() <= usize::from(foot.width);
        let keys = if fits { KEYS } else { KEYS_SHORT };
        let keys = Line::from(vec![Span::from(state).bold(), keys.reversed()]);
        frame.render_widget(keys, foot);
    }

    fn head(&self) -> Vec<Line<'static>> {
        let all = &self.rates;
        let busy = match all.span_s > 0.0 {
            true => format!(", {:.0}% busy", 100.0 - all.idle_percent),
            false => String::new(),
        };
        let mut first = format!(
            "plimsoll top  {} CPUs{busy}  {} groups  {:.0} switches/s  {:.0} steals/s  {:.0} pulls/s",
            all.nr_cpus,
            all.groups.len(),
            all.switches_per_s,
            all.steals_per_s,
            all.pulls_per_s
        );
        if all.span_s == 0.0 {
            first.push_str("  (counting)");
        }
        let second = match &all.headroom {
            None => "headroom: no group asks for it".to_string(),
            Some(headroom) => format!(
                "headroom {}%: machine idle {:.1}%, side used {:.1}%, may use {:.1}% of it",
                headroom.wanted_percent,
                headroom.idle_percent,
                headroom.used_percent,
                headroom.budget_percent
            ),
        };
        vec![Line::from(first).bold(), Line::from(second)]
    }
}

const KEYS: &str = " q quit  n name  c CPU  t throttled  b burst  d delay  s steals  r reverse  space pause ";
/// Of 80 columns, beside the longest state.
const KEYS_SHORT: &str = " q quit  n c t b d s sort  r reverse  space pause ";

/// Marks the column that takes what is left, but no less than NAME_MIN.
const NAME: u16 = 0;
const NAME_MIN: u16 = 20;

const COLUMNS: [(&str, u16, Option<Order>); 10] = [
    ("cgroup", NAME, Some(Order::Name)),
    ("CPU %", 7, Some(Order::Cpu)),
    ("limit %", 8, None),
    ("of limit", 15, None),
    ("throttled %", 11, Some(Order::Throttled)),
    ("ms/s", 8, None),
    ("burst", 16, Some(Order::Burst)),
    ("delay ms/s", 10, Some(Order::Delay)),
    ("steals/s", 8, Some(Order::Steals)),
    ("headroom", 9, None),
];

/// Columns that a narrow terminal does without, the first ones first.
const DISPENSABLE: [usize; 8] = [9, 8, 6, 3, 5, 7, 2, 4];

/// The columns that fit into a width, and what is left for the name: no figure is cut. What is sorted by stays.
fn columns_of(width: u16, order: Order) -> (Vec<usize>, u16) {
    let mut shown: Vec<usize> = (0..COLUMNS.len()).collect();
    let left = |shown: &[usize]| {
        let others: u16 = shown.iter().map(|&column| COLUMNS[column].1 + 1).sum();
        // One space less than columns.
        (width + 1).saturating_sub(others)
    };
    for column in DISPENSABLE {
        if left(&shown) >= NAME_MIN {
            break;
        }
        if COLUMNS[column].2 != Some(order) {
            shown.retain(|&one| one != column);
        }
    }
    let left = left(&shown);
    (shown, left)
}

/// A cgroup's path below the root; of a long one the end, which tells it from its neighbours.
fn short(cgroup: &str, width: usize) -> String {
    let path = cgroup.strip_prefix(plimsoll_live::CGROUP_ROOT).unwrap_or(cgroup);
    let path = if path.is_empty() { "/" } else { path };
    let length = path.chars().count();
    match length > width && width > 0 {
        true => format!("…{}", path.chars().skip(length + 1 - width).collect::<String>()),
        false => path.to_string(),
    }
}

/// One for each column.
fn cells(group: &crate::rates::GroupRates, name_width: usize) -> [Cell<'static>; COLUMNS.len()] {
    let number = |value: f64, width: u16, decimals: usize| {
        Cell::from(format!("{value:>width$.decimals$}", width = width as usize))
    };
    let part = group.limit_percent.map(|limit| group.cpu_percent / limit);
    let colour = match part {
        _ if group.throttled_percent >= 50.0 => Color::Red,
        _ if group.throttled_percent > 0.0 => Color::Yellow,
        Some(_) => Color::Green,
        None => Color::Reset,
    };
    let limit = group
        .limit_percent
        .map_or("max".to_string(), |limit| format!("{limit:.1}"));
    [
        Cell::from(short(&group.cgroup, name_width)),
        number(group.cpu_percent, 7, 1),
        Cell::from(format!("{limit:>8}")),
        Cell::from(part.map_or(String::new(), bar)).style(colour),
        if group.limit_percent.is_some() {
            number(group.throttled_percent, 11, 0).style(colour)
        } else {
            Cell::from(format!("{:>11}", "-"))
        },
        number(group.throttled_ms_per_s, 8, 0),
        Cell::from(format!("{:>16}", group.burst())),
        number(group.delay_ms_per_s, 10, 1),
        number(group.steals_per_s, 8, 0),
        Cell::from(format!("{:>9}", group.headroom)),
    ]
}

/// A part of a limit, as ten places and a percentage; burst may take it beyond the whole.
fn bar(part: f64) -> String {
    let places = (part * 10.0).round().clamp(0.0, 10.0) as usize;
    format!(
        "{}{} {:>3.0}%",
        "#".repeat(places),
        ".".repeat(10 - places),
        part * 100.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::tests::two;
    use ratatui::backend::TestBackend;
    use ratatui::Terminal;

    #[test]
    fn a_line_of_a_feed_ends_or_is_refused() {
        let mut feed = &b"one\ntwo"[..];
        let mut next = || next_line(&mut feed).unwrap();
        assert_eq!(next().as_deref(), Some("one\n"));
        assert_eq!(next().as_deref(), Some("two"));
        assert_eq!(next(), None);
        let error = next_line(&mut BufReader::new(std::io::repeat(0))).unwrap_err();
        assert_eq!(error.to_string(), "it is larger than 64 MiB");
    }

    fn text(screen: &mut Screen) -> Vec<String> {
        text_of_width(screen, 120)
    }

    fn text_of_width(screen: &mut Screen, width: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, 8)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..8).map(|y| line(y).trim_end().to_string()).collect()
    }

    #[test]
    fn the_screen_shows_use_against_the_limit_and_what_was_throttled() {
        let (before, after) = two();
        let lines = text(&mut Screen::new(Rates::between(&before, &after)));
        assert!(
            lines[0].starts_with("plimsoll top  2 CPUs, 75% busy  2 groups"),
            "{}",
            lines[0]
        );
        assert!(
            lines[1].starts_with("headroom 30%: machine idle 25.0%, side used 10.0%"),
            "{}",
            lines[1]
        );
        assert!(
            lines[3].contains("batch") && lines[3].contains("130.0"),
            "{}",
            lines[3]
        );
        assert!(
            lines[4].contains("##########") && lines[4].contains("100%"),
            "{}",
            lines[4]
        );
        assert!(
            lines[4].contains(" 50 "),
            "half of its periods were throttled: {}",
            lines[4]
        );
        assert!(lines[7].contains("q quit"));
    }

    #[test]
    fn a_narrow_terminal_shows_fewer_columns_and_cuts_no_figure() {
        let (before, after) = two();
        for width in [40, 60, 80, 100] {
            let lines = text_of_width(&mut Screen::new(Rates::between(&before, &after)), width);
            assert!(
                lines[2].starts_with("cgroup") && lines[2].contains(" CPU %"),
                "{}",
                lines[2]
            );
            assert!(
                lines[3].starts_with("batch") && lines[3].contains(" 130.0"),
                "{}",
                lines[3]
            );
            for title in lines[2]
                .split("  ")
                .map(str::trim)
                .filter(|title| !title.is_empty())
            {
                let whole = COLUMNS.iter().any(|(name, _, _)| title.ends_with(name));
                assert!(whole, "{width}: {title:?} of {}", lines[2]);
            }
            let keys = lines.last().expect("a screen");
            assert!(width < 60 || keys.contains("space pause"), "{width}: {keys}");
            let mut sorted = Screen::new(Rates::between(&before, &after));
            sorted.key(KeyCode::Char('s'));
            assert!(
                text_of_width(&mut sorted, width)[2].contains("steals/s"),
                "{width}"
            );
        }
        assert_eq!(short("/sys/fs/cgroup", 20), "/");
        assert_eq!(short("/sys/fs/cgroup/web/api", 20), "/web/api");
        assert_eq!(short("/sys/fs/cgroup/kubepods/pod1/api", 9), "…pod1/api");
    }

    #[test]
    fn keys_sort_reverse_pause_and_leave() {
        let (before, after) = two();
        let mut screen = Screen::new(Rates::between(&before, &after));
        let first = |screen: &Screen| screen.rates.groups[0].cgroup.clone();
        assert_eq!(first(&screen), "batch");
        assert!(!screen.key(KeyCode::Char('t')));
        assert_eq!(first(&screen), "web");
        assert!(!screen.key(KeyCode::Char('r')));
        assert_eq!(first(&screen), "batch");
        assert!(!screen.key(KeyCode::Char(' ')) && screen.paused);
        assert!(screen.key(KeyCode::Char('q')));
    }
}
