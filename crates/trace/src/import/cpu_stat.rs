// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A CSV series of cpu.stat, as a monitoring system or a shell loop makes it.
//!
//! The first line names the columns, in any order: a time (`ts_ns`, `ts_us`, `ts_ms` or `ts_s`), `group`,
//! and any of `usage_usec`, `nr_periods`, `nr_throttled`, `throttled_usec`, `nr_bursts`, `burst_usec`: the
//! cumulative counters of cpu.stat. `quota_us`, `period_us` and `burst_us` may give the group's limits.
use super::{bad, line_place, Trace};
use crate::error::{At, Place, TraceError};
use crate::model::{Clock, CpuStat, Event, Group, GroupIx, Header, What};
use std::fs::File;
use std::io::Read;
use std::path::Path;

const TIMES: [(&str, f64); 4] = [("ts_ns", 1.0), ("ts_us", 1e3), ("ts_ms", 1e6), ("ts_s", 1e9)];
const COUNTERS: [&str; 6] = [
    "usage_usec",
    "nr_periods",
    "nr_throttled",
    "throttled_usec",
    "nr_bursts",
    "burst_usec",
];
const LIMITS: [&str; 3] = ["quota_us", "period_us", "burst_us"];

/// Whether a line is the heading of such a file.
pub fn is_heading(line: &str) -> bool {
    let names: Vec<&str> = line.split(',').map(str::trim).collect();
    names.len() > 1 && names.iter().any(|n| COUNTERS.contains(n))
}

/// The largest series that is read, as it is held in memory: 10 million rows and more.
const BYTES_MAX: u64 = 1 << 30;

fn text(path: &Path) -> Result<String, TraceError> {
    let read_error = |e| TraceError::io(path, "read", e);
    let large = |bytes: u64| {
        let allowed = format!("at most {BYTES_MAX} bytes");
        bad(Place::whole(path), "size", bytes, allowed)
    };
    let file = File::open(path).map_err(|e| TraceError::io(path, "open", e))?;
    let bytes = file.metadata().map_err(read_error)?.len();
    if bytes > BYTES_MAX {
        return Err(large(bytes));
    }
    let mut bytes = Vec::new();
    // It may grow while it is read.
    file.take(BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(read_error)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(large(bytes.len() as u64));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let lines = error.as_bytes()[..good]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count();
        bad(
            line_place(path, lines as u64 + 1),
            "text",
            "not UTF-8",
            "text in UTF-8",
        )
    })
}

pub fn read(path: &Path) -> Result<Trace, TraceError> {
    let text = text(path)?;
    // The reader counts a line's end at \r, and would name the line before.
    let text = text.replace("\r\n", "\n");
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .comment(Some(b'#'))
        .from_reader(text.as_bytes());
    let columns = Columns::of(path, reader.headers().map_err(|e| damaged(path, e))?)?;
    let mut trace = Trace::default();
    for record in reader.records() {
        let record = record.map_err(|e| damaged(path, e))?;
        let line = record.position().map_or(0, |p| p.line());
        columns.row(&record, &mut trace, &|| line_place(path, line))?;
    }
    let (Some(first), Some(last)) = (trace.events.first(), trace.events.last()) else {
        return Err(TraceError::Empty {
            place: Place::whole(path),
            expected: "at least one row below the heading",
        });
    };
    trace.header = Header {
        source: "cpu-stat-csv".into(),
        clock: Clock {
            name: "unknown".into(),
            start_ns: first.ts_ns,
            end_ns: last.ts_ns,
            wall_start_ns: None,
        },
        groups: trace.header.groups,
        ..Default::default()
    };
    Ok(trace)
}

fn damaged(path: &Path, error: csv::Error) -> TraceError {
    let at = error.position().map_or(At::Whole, |p| At::Line(p.line()));
    bad(
        Place::new(path, at),
        "row",
        error,
        "CSV with as many fields in each row as in the heading",
    )
}

/// Where each column is.
struct Columns {
    time: (usize, f64),
    group: usize,
    counters: [Option<usize>; 6],
    limits: [Option<usize>; 3],
}

impl Columns {
    fn of(path: &Path, heading: &csv::StringRecord) -> Result<Columns, TraceError> {
        let place = || line_place(path, 1);
        let at = |name: &str| heading.iter().position(|h| h == name);
        let known = |name: &str| {
            name == "group"
                || TIMES.iter().any(|t| t.0 == name)
                || COUNTERS.contains(&name)
                || LIMITS.contains(&name)
        };
        let allowed = || {
            let times: Vec<&str> = TIMES.iter().map(|t| t.0).collect();
            format!(
                "one of {}; group; {}; {}",
                times.join(", "),
                COUNTERS.join(", "),
                LIMITS.join(", ")
            )
        };
        for (i, name) in heading.iter().enumerate() {
            if !known(name) {
                return Err(bad(place(), "column", format!("{name:?}"), allowed()));
            }
            if heading.iter().take(i).any(|other| other == name) {
                return Err(bad(
                    place(),
                    "column",
                    format!("{name:?} twice"),
                    "each name once",
                ));
            }
        }
        let times: Vec<(usize, f64)> = TIMES
            .iter()
            .filter_map(|&(name, ns)| at(name).map(|i| (i, ns)))
            .collect();
        let [time] = times[..] else {
            return Err(bad(
                place(),
                "columns",
                format!("{} columns of time", times.len()),
                allowed(),
            ));
        };
        let group = at("group").ok_or_else(|| bad(place(), "columns", "no column group", allowed()))?;
        Ok(Columns {
            time,
            group,
            counters: COUNTERS.map(at),
            limits: LIMITS.map(at),
        })
    }

    fn row(
        &self,
        record: &csv::StringRecord,
        trace: &mut Trace,
        place: &dyn Fn() -> Place,
    ) -> Result<(), TraceError> {
        let ts_ns = self.time_ns(&record[self.time.0], place)?;
        if let Some(last) = trace.events.last().filter(|last| ts_ns < last.ts_ns) {
            return Err(TraceError::ClockBackwards {
                place: place(),
                ts_ns,
                previous_ns: last.ts_ns,
            });
        }
        let mut counters = [None; 6];
        for (value, (at, name)) in counters.iter_mut().zip(self.counters.iter().zip(COUNTERS)) {
            *value = number(record, *at, name, place)?;
        }
        let [usage, nr_periods, nr_throttled, throttled, nr_bursts, burst] = counters;
        let ns = |us: Option<u64>| us.map(|us| us.saturating_mul(1000));
        let stat = CpuStat {
            usage_ns: ns(usage),
            nr_periods,
            nr_throttled,
            throttled_ns: ns(throttled),
            nr_bursts,
            burst_ns: ns(burst),
        };
        let group = self.group(record, trace, place)?;
        let entry = &mut trace.header.groups[group as usize];
        if let Some(before) = entry.stat_end {
            never_smaller(&before, &stat, place)?;
        }
        entry.stat_start.get_or_insert(stat);
        entry.stat_end = Some(stat);
        trace.events.push(Event {
            ts_ns,
            cpu: 0,
            what: What::Sample {
                group,
                stat: Box::new(stat),
            },
        });
        Ok(())
    }

    fn time_ns(&self, text: &str, place: &dyn Fn() -> Place) -> Result<i64, TraceError> {
        let wrong = || {
            bad(
                place(),
                "time",
                format!("{text:?}"),
                "a number of 0 or more, below 292 years",
            )
        };
        if self.time.1 == 1.0 {
            return text.parse::<i64>().ok().filter(|&t| t >= 0).ok_or_else(wrong);
        }
        let value: f64 = text.parse().map_err(|_| wrong())?;
        let ns = (value * self.time.1).round();
        if (0.0..i64::MAX as f64).contains(&ns) {
            Ok(ns as i64)
        } else {
            Err(wrong())
        }
    }

    fn group(
        &self,
        record: &csv::StringRecord,
        trace: &mut Trace,
        place: &dyn Fn() -> Place,
    ) -> Result<GroupIx, TraceError> {
        let path = &record[self.group];
        if !path.starts_with('/') {
            return Err(bad(
                place(),
                "group",
                format!("{path:?}"),
                "a path that starts with /",
            ));
        }
        let mut limits = [None; 3];
        for (value, (at, name)) in limits.iter_mut().zip(self.limits.iter().zip(LIMITS)) {
            *value = match at.map(|i| &record[i]) {
                Some("max" | "-1") => None,
                _ => number(record, *at, name, place)?,
            };
        }
        let groups = &mut trace.header.groups;
        if let Some(ix) = groups.iter().position(|g| g.path == path) {
            return Ok(ix as GroupIx);
        }
        let [quota_us, period_us, burst_us] = limits;
        groups.push(Group {
            path: path.into(),
            quota_us,
            period_us,
            burst_us,
            ..Default::default()
        });
        Ok(groups.len() as GroupIx - 1)
    }
}

fn number(
    record: &csv::StringRecord,
    at: Option<usize>,
    name: &str,
    place: &dyn Fn() -> Place,
) -> Result<Option<u64>, TraceError> {
    match at.map(|i| &record[i]) {
        None | Some("") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| {
            bad(
                place(),
                name,
                format!("{text:?}"),
                "a whole number of 0 or more, or nothing",
            )
        }),
    }
}

fn never_smaller(before: &CpuStat, now: &CpuStat, place: &dyn Fn() -> Place) -> Result<(), TraceError> {
    let pairs = [
        ("usage_usec", before.usage_ns, now.usage_ns, 1000),
        ("nr_periods", before.nr_periods, now.nr_periods, 1),
        ("nr_throttled", before.nr_throttled, now.nr_throttled, 1),
        ("throttled_usec", before.throttled_ns, now.throttled_ns, 1000),
        ("nr_bursts", before.nr_bursts, now.nr_bursts, 1),
        ("burst_usec", before.burst_ns, now.burst_ns, 1000),
    ];
    for (name, before, now, unit) in pairs {
        if let (Some(before), Some(now)) = (before, now) {
            if now < before {
                let allowed = format!(
                    "{} or more: counters only rise while a group lives",
                    before / unit
                );
                return Err(bad(place(), name, now / unit, allowed));
            }
        }
    }
    Ok(())
}
