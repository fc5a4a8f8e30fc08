// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `plimsoll record` says of the requests in what it has just written: as `plimsoll plan` will find them.
use plimsoll_plan::{figure, said_of_held, Source};
use plimsoll_record::Report;
use plimsoll_replay::recorded;
use plimsoll_stats::percentile_ns;
use serde::Serialize;
use serde_json::json;
use std::path::Path;

/// Beyond these a look takes minutes, and memory that a machine with a service to run may not have.
const EVENTS_MAX: u64 = 20_000_000;

pub enum Seen {
    Requests(Requests),
    /// None could be told, and why.
    None(String),
}

/// As the JSON has them.
#[derive(Serialize)]
pub struct Requests {
    group: String,
    /// What a request is.
    definition: String,
    /// Whose clients wait for the answer, and those whose arrivals keep their times.
    closed: u64,
    open: u64,
    /// Of these, how many were not alone on their connection.
    overlapping: u64,
    /// Answers that left a millisecond or more after they were written.
    held: u64,
    #[serde(skip)]
    said_of_held: Option<String>,
    p50_ns: u64,
    p99_ns: u64,
}

impl Seen {
    pub fn of(report: &Report, trace: &Path) -> Seen {
        if report.events > EVENTS_MAX {
            let why = format!("not looked for in more than {EVENTS_MAX} events; plimsoll plan counts them");
            return Seen::None(why);
        }
        let source = match Source::read(trace, None, None) {
            Ok(source) => source,
            Err(error) => return Seen::None(error.to_string()),
        };
        if let Some(why) = &source.no_requests {
            return Seen::None(why.to_string());
        }
        let latencies = recorded(&source.program).latencies(None);
        let classes = &source.program.classes;
        let held_ns = source.program.held_ns();
        Seen::Requests(Requests {
            group: source.target_path().into(),
            definition: source.definition(),
            closed: classes.iter().map(|c| c.closed).sum(),
            open: classes.iter().map(|c| c.open).sum(),
            overlapping: source.program.sockets.map_or(0, |seen| seen.overlapping),
            held: held_ns.len() as u64,
            said_of_held: said_of_held(latencies.len() as u64, &held_ns),
            p50_ns: percentile_ns(&latencies, 50.0),
            p99_ns: percentile_ns(&latencies, 99.0),
        })
    }

    pub fn json(&self) -> serde_json::Value {
        match self {
            Seen::Requests(found) => json!(found),
            Seen::None(why) => json!({ "none": why }),
        }
    }

    pub fn text(&self) -> String {
        match self {
            Seen::Requests(found) => format!(
                "requests   {} ({}) of group {}: p50 {} ms, p99 {} ms; {}\n{}{}",
                found.closed + found.open,
                found.definition,
                found.group,
                figure(found.p50_ns as f64 / 1e6),
                figure(found.p99_ns as f64 / 1e6),
                pacing(found.closed, found.open),
                match found.overlapping {
                    0 => String::new(),
                    n => format!(
                        "           {n} overlapped on their connection (pipelining): their latency is the time in which it was busy\n"
                    ),
                },
                match &found.said_of_held {
                    None => String::new(),
                    Some(text) => format!("           {text}\n"),
                },
            ),
            Seen::None(why) => format!("requests   none: {why}\n"),
        }
    }
}

fn pacing(closed: u64, open: u64) -> String {
    match (closed, open) {
        (_, 0) => "closed loop (the client waits)".into(),
        (0, _) => "open loop (arrivals keep their times)".into(),
        _ => {
            let share = 100.0 * closed as f64 / (closed + open) as f64;
            format!("{share:.0}% closed loop (the client waits), the others open (arrivals keep their times)")
        }
    }
}
