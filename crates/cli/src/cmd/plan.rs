// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plimsoll plan`: the cheapest CPU limits under which a recorded workload meets its goals.
mod screen;

use crate::cmd::replay::{check_table, heading};
use crate::exit::{Failure, Outcome, Result};
use crate::{number, output};
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_plan::document::Planned;
use plimsoll_plan::{
    figure, goal_cells, goal_titles, latency_cell, range_cell, said_of_runtimes, Answer, Candidate, Goal,
    Paste, Plan, Question, Recordings, Target, Verdict, WaitingForOthers, MAX_CPUS, MIN_THROUGHPUT_PERCENT,
};
use plimsoll_replay::Semantics;
use plimsoll_report::Table;
use plimsoll_trace::RequestSpec;
use std::fmt::Write;
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  plimsoll plan web.trace --goal 'p99(request) < 50ms'
          the cheapest limits that do, and how to set them
  plimsoll plan mon.trace tue.trace wed.trace --goal 'p99(request) < 50ms'
          limits that hold although a request does not take the same CPU time every day
  plimsoll plan web.trace --goal 'p99(nginx) < 20ms' --goal 'throttled < 1%' --max-cpus 4 --html plan.html
          two goals, an upper bound, and a page to show
  plimsoll plan web.trace --goal 'p99(request) < 5ms' --semantics published
          for `plimsoll run`: burst beyond the quota, headroom, limits that hold between ticks";

/// Find the cheapest CPU limits under which a recorded workload meets its goals
///
/// Replays the trace under some two hundred settings of quota, period, burst, weight and headroom, and without limit.
/// Prints the recommendation with its margin, what today's setting gives, what the next cheaper one misses, and the
/// settings ready to be pasted. Ranges come from resampling: nine of ten runs are expected inside.
///
/// Several recordings of the same service show how much its runs differ. A setting is replayed in all of them, and in the
/// one with the median CPU time per request once more with all work made as cheap and as costly as it is in nine of ten
/// runs (Student's prediction interval for the logarithm of that time, or what blocks of 1 s and more take, if that reaches
/// further). Its range spans all of this, its middle is the median of the recordings' middles. From one recording, work
/// varies as CPU time per request does between its blocks. The recommendation meets the goals over its whole
/// range. Three recordings or more, from different times, are advised.
///
/// Exit code 1: no setting meets the goals (the nearest is printed), or the replay does not show what was recorded.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = EXAMPLES)]
pub struct Args {
    /// Traces of `plimsoll record`: one or more recordings of the same service, with the same limits, on the same machine.
    /// Traces of perf and Perfetto have no groups, and cannot be planned from
    #[arg(value_name = "TRACE", required = true)]
    traces: Vec<PathBuf>,

    /// What has to hold: pNUMBER(NAME), mean(NAME), max(NAME) or throttled, then < or <=, then a value with its unit.
    /// NAME: request for all of them, which no (NAME) is, too, or the program that answers. May be repeated. Without one for throttled, "throttled <
    /// 25%" is added (the share of periods above which Kubernetes' alert CPUThrottlingHigh fires), but not for jobs
    /// (process:); 'throttled <= 100%' takes that away
    #[arg(long = "goal", value_name = "GOAL", required = true)]
    goals: Vec<String>,

    /// The group to plan for; what is below it shares its limit, as the containers of a pod do [default: the lowest that
    /// holds all groups that were busy, other than the root; else the one with the most CPU time]
    #[arg(long, value_name = "PATH")]
    group: Option<String>,

    /// What a request is, as in `plimsoll record` [default: as recorded, else as the service's sockets
    /// show it, else each wake-up chain]
    #[arg(long, value_name = "SPEC")]
    request: Option<RequestSpec>,

    /// CPUs that the group may be given at most [default: all of the recorded machine]
    #[arg(long, value_name = "CPUS", allow_hyphen_values = true, value_parser = number::cpus(MAX_CPUS))]
    max_cpus: Option<f64>,

    /// Rules of limits: mainline, those of the kernel; published, those of `plimsoll run`. Today's setting is always
    /// replayed under the kernel's
    #[arg(long, value_enum, default_value = "mainline")]
    semantics: Kind,

    /// Least requests a second of clients that wait for their answers, in percent of today's: with less CPU they ask less
    /// often, and a percentile looks good
    #[arg(long, default_value = "99", value_name = "PERCENT", allow_hyphen_values = true, value_parser = number::within(MIN_THROUGHPUT_PERCENT))]
    min_throughput: f64,

    /// Where the limit will be set: only settings that this target can express are tried. kubernetes: millicores in periods
    /// of 100 ms, no burst; kubernetes+agent: with burst, where `plimsoll agent` runs on the nodes; docker; systemd; cgroup:
    /// the kernel's files; plimsoll: `plimsoll run` schedules [default: cgroup, and the best of the others where they cannot
    /// express the same]
    #[arg(long = "for", value_name = "TARGET", conflicts_with = "semantics")]
    target: Option<Target>,

    /// What a CPU costs a month, in any currency: prices the recommendation, today's limit, and requests without a limit
    #[arg(long, value_name = "PRICE", allow_hyphen_values = true, value_parser = number::within(0.0..=1e6))]
    price_per_core: Option<f64>,

    /// After the screen: what was found in the traces, all ranges, the frontier, settings for every system
    #[arg(long)]
    verbose: bool,

    /// Seed of the random streams (period boundaries, resampling)
    #[arg(
        long,
        default_value = "1",
        value_name = "NUMBER",
        allow_hyphen_values = true,
        value_parser = number::within(number::SEEDS)
    )]
    seed: u64,

    /// Write the plan as JSON; without FILE, or with "-", to the standard output instead of the tables
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,

    /// Write a page with the frontier, the distributions of latencies and a timeline of throttling
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Kind {
    Mainline,
    Published,
}

/// All that is shown of a plan.
struct Shown<'a> {
    recordings: &'a Recordings,
    answer: &'a Answer,
    settings: &'a [Paste],
    warnings: Vec<String>,
    waiting: Option<WaitingForOthers>,
    price: Option<f64>,
    verbose: bool,
}

pub fn run(args: &Args) -> Result {
    let goals: Vec<Goal> = args
        .goals
        .iter()
        .map(|text| {
            text.parse()
                .map_err(|e: plimsoll_plan::GoalError| Failure::Input(e.to_string()))
        })
        .collect::<std::result::Result<_, _>>()?;
    crate::signals::leave_no_partials();
    output::check(&args.traces, args.json.as_deref(), &args.html)?;
    let recordings = Recordings::read(&args.traces, args.group.as_deref(), args.request.as_ref())?;
    let question = Question {
        goals,
        max_cpus: args.max_cpus,
        min_throughput_percent: args.min_throughput,
        target: args.target,
        semantics: match args.semantics {
            Kind::Mainline => Semantics::Mainline,
            Kind::Published => Semantics::Published,
        },
        seed: args.seed,
    };
    let bar = ProgressBar::new(1);
    let style =
        ProgressStyle::with_template("settings {bar:40} {pos}/{len} {elapsed}").expect("a fixed template");
    bar.set_style(style);
    let cpus = f64::from(recordings.median().machine.topology.nr_cpus());
    if let Some(most) = args.max_cpus.filter(|most| *most > cpus) {
        errln!("note: --max-cpus {most}: the recorded machine has {cpus}; no limit above that is tried");
    }
    let answer = question.answer(&recordings, &|done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    })?;
    bar.finish_and_clear();
    let found = &answer.plan;
    let settings = answer.settings(&recordings);
    let warnings = answer.warnings(&recordings);

    if let Some(path) = &args.html {
        let page = plimsoll_plan::html(&recordings, &answer.options, found, &settings, &warnings.all())?;
        output::write(path, &page)?;
    }
    let outcome = match found.verdict {
        Verdict::NotMet => Outcome::Missed,
        _ if !answer.holds() => Outcome::Missed,
        _ => Outcome::Done,
    };
    let waiting = WaitingForOthers::of(recordings.median(), &answer.options.goals)?;
    let files = args
        .traces
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let document = || {
        let document = Planned::of(
            &recordings,
            &answer,
            &settings,
            waiting.as_ref(),
            files,
            args.price_per_core,
        );
        plimsoll_report::text(&document)
    };
    if !output::json(args.json.as_deref(), document)? {
        return Ok(outcome);
    }
    let shown = Shown {
        recordings: &recordings,
        answer: &answer,
        settings: &settings,
        warnings: warnings
            .few_requests
            .into_iter()
            .chain(warnings.no_requests)
            .chain(warnings.overlapping)
            .chain(warnings.held)
            .chain(warnings.limits_below)
            .chain(warnings.unsafe_anyway)
            .collect(),
        waiting: waiting.clone(),
        price: args.price_per_core,
        verbose: args.verbose,
    };
    let mut text = screen::screen(&shown);
    if args.verbose {
        text += &details(&shown);
    }
    out!("{text}");
    Ok(outcome)
}

/// What the screen leaves out.
fn details(shown: &Shown) -> String {
    let Shown {
        recordings, answer, ..
    } = shown;
    let found = &answer.plan;
    let mut text = String::from("\n");
    text.extend(recordings.sources.iter().map(heading));
    writeln!(text, "{}", recordings.describe()).expect("writing into memory");
    for (source, check) in recordings.sources.iter().zip(&answer.checks) {
        writeln!(text, "\nself-check of {}\n{}", source.file, check_table(check))
            .expect("writing into memory");
    }
    describe(&mut text, found, &answer.options.goals).expect("writing into memory");
    let machine = f64::from(recordings.median().machine.topology.nr_cpus());
    for line in said_of_runtimes(
        &recordings.median().program,
        found.recommended.reserved_cpus,
        machine,
    ) {
        writeln!(text, "\nruntime: {line}").expect("writing into memory");
    }
    for paste in shown.settings {
        writeln!(text, "\n# {}", paste.system).expect("writing into memory");
        writeln!(text, "{}", paste.text).expect("writing into memory");
        if let Some(lacks) = &paste.lacks {
            writeln!(text, "# cannot say: {lacks}").expect("writing into memory");
        }
    }
    text
}

fn describe(text: &mut String, found: &Plan, all: &[Goal]) -> std::fmt::Result {
    let goals = found.goals.join(", ");
    let c = &found.recommended;
    writeln!(text)?;
    match found.verdict {
        Verdict::NotMet => writeln!(
            text,
            "none of {} settings meets {goals}. Nearest ({}):",
            found.tried,
            room(c.margin, lack(c.too_little_cpu, c.loses_throughput))
        )?,
        Verdict::Met => writeln!(
            text,
            "{} settings tried; the cheapest that meets {goals} in nine of ten runs ({}):",
            found.tried,
            room(c.margin_costly, "")
        )?,
        Verdict::MetNarrowly => writeln!(
            text,
            "{} settings tried; meets {goals}, but not in nine of ten runs ({}; in costly runs {}):",
            found.tried,
            room(c.margin, ""),
            room(
                c.margin_costly,
                lack(c.too_little_cpu_costly, c.loses_throughput_costly)
            )
        )?,
    }
    let own = goal_titles(all, true);
    let mut head = vec![
        "",
        "limit",
        "CPUs reserved",
        "used",
        "requests/s",
        "p50 ms",
        "p99 ms",
        "p99 range ms",
    ];
    head.extend(own.iter().map(String::as_str));
    head.extend(["throttled", "goals"]);
    let mut table = Table::new(&head).words(2).words_last();
    let mut row = |name: &str, c: &Candidate| {
        let mut cells = vec![
            name.into(),
            c.limits.to_string(),
            figure(c.reserved_cpus),
            figure(c.cpus),
            figure(c.rate),
            latency_cell(c.p50_ns, figure),
            latency_cell(c.p99_ns, figure),
            range_cell(c.p99_range, 1e-6, figure),
        ];
        cells.extend(goal_cells(all, c, true, figure));
        cells.extend([format!("{:.1}%", c.throttled * 100.0), c.state().into()]);
        table.row(cells);
    };
    row(found.called(), &found.recommended);
    if let Some(cheaper) = &found.next_cheaper {
        row("next cheaper", cheaper);
    }
    row("today", &found.today);
    writeln!(text, "{table}\nfrontier: what each amount of CPU buys at best")?;
    let own = goal_titles(all, false);
    let mut head = vec!["", "CPUs reserved", "requests/s", "p50 ms", "p99 ms"];
    head.extend(own.iter().map(String::as_str));
    head.extend(["throttled", "goals"]);
    let mut table = Table::new(&head).words_last();
    for c in &found.frontier {
        let mut cells = vec![
            c.limits.to_string(),
            figure(c.reserved_cpus),
            figure(c.rate),
            latency_cell(c.p50_ns, figure),
            latency_cell(c.p99_ns, figure),
        ];
        cells.extend(goal_cells(all, c, false, figure));
        cells.extend([format!("{:.1}%", c.throttled * 100.0), c.state().into()]);
        table.row(cells);
    }
    writeln!(
        text,
        "{table}one replay each; the table above shows the middles of ranges"
    )
}

/// A share in whole percent, without the sign of a nothing.
fn percent(share: f64) -> f64 {
    let percent = (share * 100.0).round();
    if percent == 0.0 {
        0.0
    } else {
        percent
    }
}

/// What a setting lacks that misses no goal by itself; empty: nothing.
fn lack(too_little_cpu: bool, loses_throughput: bool) -> &'static str {
    match (too_little_cpu, loses_throughput) {
        (true, _) => "the CPU time that arrivals take",
        (_, true) => "the requests a second that clients must keep",
        _ => "",
    }
}

/// A margin in words.
fn room(margin: f64, lack: &str) -> String {
    match margin {
        m if m == f64::NEG_INFINITY => "in some replay no request gets through".into(),
        m if !lack.is_empty() => format!("lacks {}% of {lack}", percent(-m)),
        m if m < 0.0 => format!("misses by {}% of the bound", percent(-m)),
        m => format!("margin {}% of the bound", percent(m)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_plan::{paste, Limits};

    #[test]
    fn a_margin_of_nothing_has_no_sign() {
        let shown = [-0.0, -0.004, 0.004, -0.02, 1.0].map(percent);
        assert_eq!(shown.map(|one| one.to_string()), ["0", "0", "0", "-2", "100"]);
    }

    #[test]
    fn a_margin_says_what_it_is_short_of() {
        assert_eq!(room(0.253, ""), "margin 25% of the bound");
        assert_eq!(room(-0.06, ""), "misses by 6% of the bound");
        assert_eq!(
            room(-0.06, lack(true, false)),
            "lacks 6% of the CPU time that arrivals take"
        );
        assert_eq!(
            room(-0.03, lack(false, true)),
            "lacks 3% of the requests a second that clients must keep"
        );
        assert!(room(f64::NEG_INFINITY, "").contains("no request"));
    }

    #[test]
    fn knobs_that_are_pasted_are_knobs_that_plimsoll_set_takes() {
        let limits = Limits {
            quota_us: Some(20_000),
            period_us: 100_000,
            burst_us: 50_000,
            weight: 200,
            headroom_percent: 30,
        };
        let found = paste("/web", &[], &limits, &limits, 0.3, Semantics::Published, Some(2));
        let text = &found.last().expect("Plimsoll is the last").text;
        let knobs = text
            .lines()
            .find_map(|line| line.strip_prefix("plimsoll set /sys/fs/cgroup/web "));
        let knobs: Vec<&str> = knobs.expect("a line for our own knobs").split(' ').collect();
        assert_eq!(knobs.len(), 2, "{text}");
        for knob in knobs {
            plimsoll_live::Knob::parse(knob).expect(knob);
        }
    }
}
