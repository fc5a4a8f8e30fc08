// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A CSV series of cpu.stat, as a monitoring system or a shell loop makes it.
//!
//! The first line names the columns, in any order, between commas, semicolons or tabs: a time (`ts_ns`, `ts_us`, `ts_ms`
//! or `ts_s`, and the usual names for it; see `time.rs`), `group`, and any of `usage_usec`, `nr_periods`,
//! `nr_throttled`, `throttled_usec`, `nr_bursts`, `burst_usec`: the cumulative counters of cpu.stat, or those of the
//! first cgroup version, in ns: `throttled_time`, `burst_time`, `cpuacct.usage`. `quota_us`, `period_us` and `burst_us`
//! may give the group's limits. The other fields of cpu.stat, which a replay does not need, may be there; the trace's
//! source names them.
use super::time::{self, Unit};
use super::{bad, line_place, source, Trace};
use crate::error::{At, Place, TraceError};
use crate::model::{Clock, CpuStat, Event, Group, GroupIx, Header, What};
use std::io::Read;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Counters in the order of their fields: name, ns (or 1) for each unit.
const COUNTERS: [&str; 6] = [
    "usage_usec",
    "nr_periods",
    "nr_throttled",
    "throttled_usec",
    "nr_bursts",
    "burst_usec",
];
/// Other names: which counter, and what its values are divided by.
const ALIASES: [(&str, usize, u64); 4] = [
    ("cpuacct.usage", 0, 1000),
    ("usage_ns", 0, 1000),
    ("throttled_time", 3, 1000),
    ("burst_time", 5, 1000),
];
const LIMITS: [&str; 3] = ["quota_us", "period_us", "burst_us"];
const GROUPS: [&str; 3] = ["group", "cgroup", "path"];
/// Fields of cpu.stat that are not needed.
const SKIPPED: [&str; 5] = [
    "user_usec",
    "system_usec",
    "nice_usec",
    "wait_sum",
    "core_sched.force_idle_usec",
];

fn is_counter(name: &str) -> bool {
    COUNTERS.contains(&name) || ALIASES.iter().any(|alias| alias.0 == name)
}

fn delimiter(heading: &str) -> char {
    [',', ';', '\t']
        .into_iter()
        .max_by_key(|&d| (heading.matches(d).count(), d == ','))
        .expect("three")
}

/// Whether a line is the heading of such a file.
pub fn is_heading(line: &str) -> bool {
    let names: Vec<&str> = line.split(delimiter(line)).map(unquoted).collect();
    names.len() > 1 && names.iter().any(|n| is_counter(n))
}

fn unquoted(name: &str) -> &str {
    name.trim_start_matches('\u{feff}').trim().trim_matches('"')
}

/// The largest series that is read, as it is held in memory: 10 million rows and more.
const BYTES_MAX: u64 = 1 << 30;

fn text(path: &Path) -> Result<String, TraceError> {
    let read_error = |e| TraceError::io(path, "read", e);
    let large = |bytes: u64| {
        let allowed = format!("at most {BYTES_MAX} bytes");
        bad(Place::whole(path), "size", bytes, allowed)
    };
    // Before a gigabyte of it is read.
    let on_disk = std::fs::metadata(path).map_err(read_error)?.len();
    if on_disk > BYTES_MAX {
        return Err(large(on_disk));
    }
    let mut bytes = Vec::new();
    // It may be packed, and grow while it is read.
    source::open(path)?
        .take(BYTES_MAX + 1)
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

pub fn read(path: &Path, flag: &AtomicBool) -> Result<Trace, TraceError> {
    let text = text(path)?;
    // The reader counts a line's end at \r, and would name the line before.
    let text = text.replace("\r\n", "\n");
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let heading = text.lines().find(|l| !l.trim().is_empty() && !l.starts_with('#'));
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .delimiter(delimiter(heading.unwrap_or("")) as u8)
        .comment(Some(b'#'))
        .from_reader(text.as_bytes());
    let columns = Columns::of(path, reader.headers().map_err(|e| damaged(path, e))?)?;
    let mut trace = Trace::default();
    for record in reader.records() {
        super::go_on(path, flag)?;
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
        source: columns.source(),
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
    time: (usize, Unit),
    group: usize,
    /// Column, and what its values are divided by.
    counters: [Option<(usize, u64)>; 6],
    limits: [Option<usize>; 3],
    skipped: Vec<String>,
}

impl Columns {
    fn of(path: &Path, heading: &csv::StringRecord) -> Result<Columns, TraceError> {
        let place = || line_place(path, 1);
        let at = |name: &str| heading.iter().position(|h| h == name);
        let known = |name: &str| {
            GROUPS.contains(&name)
                || time::unit(name).is_some()
                || is_counter(name)
                || LIMITS.contains(&name)
                || SKIPPED.contains(&name)
        };
        let allowed = || {
            format!(
                "one of ts_ns, ts_us, ts_ms, ts_s, time; group; {}; {}; and fields of cpu.stat",
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
        let times: Vec<(usize, Unit)> = heading
            .iter()
            .enumerate()
            .filter_map(|(i, name)| time::unit(name).map(|unit| (i, unit)))
            .collect();
        let [time] = times[..] else {
            return Err(bad(
                place(),
                "columns",
                format!("{} columns of time", times.len()),
                allowed(),
            ));
        };
        let groups: Vec<usize> = GROUPS.into_iter().filter_map(at).collect();
        let [group] = groups[..] else {
            return Err(bad(
                place(),
                "columns",
                format!("{} columns of the group's path", groups.len()),
                "one column `group`, with a path such as /docker/web in each row",
            ));
        };
        let mut counters = [None; 6];
        let names = COUNTERS.iter().enumerate().map(|(i, name)| (*name, i, 1));
        for (name, counter, divisor) in names.chain(ALIASES) {
            if let Some(column) = at(name) {
                if counters[counter].replace((column, divisor)).is_some() {
                    let value = format!("{:?} and {name:?}", COUNTERS[counter]);
                    return Err(bad(place(), "columns", value, "one column for each counter"));
                }
            }
        }
        Ok(Columns {
            time,
            group,
            counters,
            limits: LIMITS.map(at),
            skipped: heading
                .iter()
                .filter(|n| SKIPPED.contains(n))
                .map(String::from)
                .collect(),
        })
    }

    /// What the trace says that it is made of.
    fn source(&self) -> String {
        match &self.skipped[..] {
            [] => "cpu-stat-csv".into(),
            skipped => format!("cpu-stat-csv, without its columns {}", skipped.join(", ")),
        }
    }

    fn row(
        &self,
        record: &csv::StringRecord,
        trace: &mut Trace,
        place: &dyn Fn() -> Place,
    ) -> Result<(), TraceError> {
        let text = &record[self.time.0];
        let ts_ns = time::ns(text, self.time.1)
            .map_err(|allowed| bad(place(), "time", format!("{text:?}"), allowed))?;
        if let Some(last) = trace.events.last().filter(|last| ts_ns < last.ts_ns) {
            return Err(TraceError::ClockBackwards {
                place: place(),
                ts_ns,
                previous_ns: last.ts_ns,
            });
        }
        let mut counters = [None; 6];
        for (value, (at, name)) in counters.iter_mut().zip(self.counters.iter().zip(COUNTERS)) {
            if let Some((column, divisor)) = *at {
                *value = number(record, Some(column), name, place)?.map(|n| n / divisor);
            }
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
