// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plimsoll explain`: why a recorded container is throttled, and what would have kept it from that.
use crate::exit::{Failure, Outcome, Result};
use crate::{number, output};
use plimsoll_plan::document::Explained;
use plimsoll_plan::{explain, figure, Explanation, Limits, Replayed, SelfCheck, Source};
use plimsoll_replay::Settings;
use plimsoll_report::Table;
use plimsoll_trace::RequestSpec;
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  plimsoll explain web.trace
          recorded under its limit: what that does
  plimsoll explain web.trace --limit 0.5
          what a limit of half a CPU would do";

/// Explain why a recorded container is throttled, and what would have prevented it
///
/// Replays the trace under the limit that it was recorded under, or another. Shows the threads that ran at once as a
/// period's quota ended, the requests that were under way while the group was throttled, and which burst, period or quota
/// would have prevented it. Exit code 1: the replay does not show what was recorded, which is said first.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = EXAMPLES)]
pub struct Args {
    /// A trace of `plimsoll record`
    #[arg(value_name = "TRACE")]
    trace: PathBuf,

    /// A limit in CPUs, as in 0.6 or 600m, in periods of 100 ms without burst [default: the recorded one]
    #[arg(long, value_name = "CPUS", allow_hyphen_values = true, value_parser = number::cpus(0.01..=4096.0))]
    limit: Option<f64>,

    /// The group that is throttled [default: the lowest that holds all busy groups, else the one with the most CPU
    /// time]
    #[arg(long, value_name = "PATH")]
    group: Option<String>,

    /// What a request is, as in `plimsoll record` [default: as recorded, else as the service's sockets
    /// show it, else each wake-up chain]
    #[arg(long, value_name = "SPEC")]
    request: Option<RequestSpec>,

    /// Write the figures as JSON; without FILE, or with "-", to the standard output instead of the text
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result {
    crate::signals::leave_no_partials();
    output::check(std::slice::from_ref(&args.trace), args.json.as_deref(), &None)?;
    let source = Source::read(&args.trace, args.group.as_deref(), args.request.as_ref())?;
    let recorded: Limits = Settings::recorded(&source.program).groups[source.program.target as usize].into();
    let limits = match (args.limit, recorded.quota_us) {
        (Some(cpus), _) => Limits {
            quota_us: Some((cpus * 100_000.0).round() as u64),
            period_us: 100_000,
            burst_us: 0,
            ..recorded
        },
        (None, Some(_)) => recorded,
        (None, None) => {
            return Err(Failure::Input(format!(
                "{}: {} was recorded without a limit, and was not throttled; allowed: --limit CPUS, to see what one would do",
                source.file,
                source.target_path()
            )))
        }
    };
    if source.target_path() == "/" {
        let what = "group / takes no limit; allowed: --group with one below it";
        return Err(Failure::Input(format!("{}: {what}", source.file)));
    }
    let found = explain(&source, limits)?;
    let check = Replayed::of(&source, &[], None)?.check;
    if output::json(args.json.as_deref(), || {
        plimsoll_report::text(&Explained::of(&source, &check, &found))
    })? {
        out!("{}", text(&source, &check, &found, args.limit.is_none()));
    }
    Ok(match check.holds() {
        true => Outcome::Done,
        false => Outcome::Missed,
    })
}

fn text(source: &Source, check: &SelfCheck, found: &Explanation, as_recorded: bool) -> String {
    let cpus = found.limits.quota_us.unwrap_or(0) as f64 / found.limits.period_us as f64;
    let whose = if as_recorded { "as recorded" } else { "as given" };
    let ms = |ns: f64| figure(ns / 1e6);
    let mut text = format!(
        "{}: {} CPUs ({}), {whose}; {} CPUs used in the recording\n",
        source.target_path(),
        figure(cpus),
        found.limits,
        figure(found.recorded_cpus)
    );
    if !check.holds() {
        text += &format!(
            "The replay does not show what was recorded: {}. Do not rely on what follows.\n",
            check.missed()
        );
    }
    if found.throttled_periods == 0 {
        text += "The replay under this limit throttles it in no period.\n";
        return text;
    }
    text += &format!(
        "throttled in {} of {} periods ({:.1}%), {} ms in all\n\nwhy\n",
        found.throttled_periods,
        found.periods,
        100.0 * found.throttled_periods as f64 / found.periods.max(1) as f64,
        ms(found.throttled_ns as f64)
    );
    // 3%: what predicted CPU use is held to.
    text += &match found.recorded_cpus > cpus * 0.97 {
        true => format!(
            "  The limit is below what the work takes, or at it: {} CPUs of {}. No burst and no period cures that.\n",
            figure(found.recorded_cpus),
            figure(cpus)
        ),
        false => format!(
            "  On average it uses {:.0}% of the limit. It is throttled because its work comes at once.\n",
            100.0 * found.recorded_cpus / cpus
        ),
    };
    let quota_ms = found.limits.quota_us.unwrap_or(0) as f64 / 1e3;
    text += &format!(
        "  As the quota ended it ran on {:.1} CPUs on average, {} at most: on {} of them {} ms last {} ms.\n",
        found.at_once,
        found.at_once_most,
        found.at_once_most,
        figure(quota_ms),
        figure(quota_ms / found.at_once_most.max(1) as f64)
    );
    let names: Vec<String> = found
        .threads
        .iter()
        .take(5)
        .map(|(name, share)| format!("{name} ({:.0}%)", share * 100.0))
        .collect();
    text += &format!(
        "  Threads that ran then, and in how many of the cases: {}\n",
        names.join(", ")
    );
    if found.requests > 0 {
        text += &requests(found);
    }
    text += "\ninstead\n";
    let latency = |ns: u64| match found.requests {
        0 => "-".into(),
        _ => ms(ns as f64),
    };
    let mut table = Table::new(&["limit", "CPUs", "throttled", "p99 ms"]);
    for other in &found.instead {
        table.row(vec![
            other.limits.to_string(),
            figure(other.limits.quota_us.unwrap_or(0) as f64 / other.limits.period_us as f64),
            format!("{:.1}%", other.throttled * 100.0),
            latency(other.p99_ns),
        ]);
    }
    text + &table.to_string()
}

/// How the group's throttling met its requests.
fn requests(found: &Explanation) -> String {
    let ms = |ns: f64| figure(ns / 1e6);
    format!(
        "\nrequests\n  {} of {} were under way while it was throttled, {} ms of it on average, {} at most\n  \
         p99 is {} ms, and {} without a limit\n",
        found.waited,
        found.requests,
        ms(found.wait_ns),
        ms(found.wait_most_ns as f64),
        ms(found.p99_ns as f64),
        ms(found.free_p99_ns as f64)
    )
}
