// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lines of scheduling events as text: `perf script`, the kernel's own `trace`, `trace-cmd report`.
//!
//! ```text
//! COMM TID [CPU] SECONDS.FRACTION: sched:EVENT: ...              perf; columns may stand before the event
//! COMM-TID (TGID) [CPU] FLAGS SECONDS.FRACTION: EVENT: ...       ftrace; TGID and FLAGS may be missing
//! ```

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Perf,
    Ftrace,
}

pub struct Head<'a> {
    pub form: Form,
    pub tid: &'a str,
    pub comm: &'a str,
    pub cpu: &'a str,
    /// ftrace's `d..2.`, or another column; empty if there is none.
    pub flags: &'a str,
    pub time: &'a str,
    pub event: &'a str,
    pub rest: &'a str,
}

/// What perf prints for a thread that has been reaped while it still ran: most exits look like this.
pub const REAPED: &str = "-1";

fn digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Thread name, id and form of what stands before the CPU.
fn thread(before: &str) -> Option<(&str, &str, Form)> {
    let (comm, tid) = before.rsplit_once(char::is_whitespace).unwrap_or(("", before));
    let tid = tid.rsplit('/').next().unwrap_or(tid);
    if digits(tid) || tid == REAPED {
        return Some((comm.trim(), tid, Form::Perf));
    }
    // `(TGID)`, or `(-----)` where the kernel does not know it.
    let before = match before.strip_suffix(')').and_then(|b| b.rsplit_once('(')) {
        Some((left, tgid)) if digits(tgid.trim()) || tgid.trim().bytes().all(|b| b == b'-') => {
            left.trim_end()
        }
        _ => before,
    };
    let (comm, tid) = before.rsplit_once('-')?;
    digits(tid).then_some((comm.trim(), tid, Form::Ftrace))
}

/// Splits a line in front of its event's own text. `None`: not an event. `Err`: it looks like one, but
/// something is missing.
pub fn head(line: &str) -> Option<Result<Head<'_>, &'static str>> {
    // The name may hold anything, so look for ` TID [CPU] ` from the left.
    let mut from = 0;
    while let Some(open) = line[from..].find(" [").map(|i| from + i) {
        from = open + 2;
        let close = line[from..].find(']').map(|i| from + i)?;
        let cpu = &line[from..close];
        let Some((comm, tid, form)) = thread(line[..open].trim_end()).filter(|_| digits(cpu)) else {
            continue;
        };
        let after = &line[close + 1..];
        // perf names an event with its system, ftrace does not: this is perf's line without the thread's id.
        if form == Form::Ftrace && after.contains(": sched:") {
            continue;
        }
        let Some((time, rest)) = after.split_once(": ") else {
            return Some(Err("no time and event after the CPU"));
        };
        let (flags, time) = time
            .trim()
            .rsplit_once(char::is_whitespace)
            .unwrap_or(("", time.trim()));
        let mut rest = rest.trim_start();
        // A period, a difference of time: columns before the event.
        while let Some((word, others)) = rest.split_once(char::is_whitespace) {
            if !digits(word) && !word.starts_with("(+") {
                break;
            }
            rest = others.trim_start();
        }
        let split = rest
            .split_once(": ")
            .or_else(|| Some((rest.strip_suffix(':')?, "")));
        let Some((event, rest)) = split else {
            return Some(Err("no event's text after its name"));
        };
        return Some(Ok(Head {
            form,
            tid,
            comm,
            cpu,
            flags: flags.trim(),
            time,
            event: event.trim(),
            rest,
        }));
    }
    None
}

/// What a line of perf's scheduling events lacks, in words and as perf's name of the field.
pub fn missing_column(line: &str) -> Option<(&'static str, &'static str)> {
    let (before, _) = line.split_once("sched:sched_")?;
    let words: Vec<&str> = before.split_whitespace().collect();
    let cpu = |w: &&str| {
        w.strip_prefix('[')
            .and_then(|w| w.strip_suffix(']'))
            .is_some_and(digits)
    };
    let time = |w: &&str| w.strip_suffix(':').is_some_and(|w| time_ns(w).is_some());
    if !words.iter().any(cpu) {
        return Some(("CPU column", "cpu"));
    }
    if !words.iter().any(time) {
        return Some(("times", "time"));
    }
    match head(line) {
        None => Some(("column of thread ids", "tid")),
        _ => None,
    }
}

/// How many events a line says are lost: `CPU:3 [LOST 12 EVENTS]`, or 1 where the count is not known.
pub fn lost(line: &str) -> Option<u64> {
    let (cpu, after) = line.trim().strip_prefix("CPU:")?.split_once(" [")?;
    let told = after.strip_suffix(']').filter(|_| digits(cpu))?;
    match told.strip_prefix("LOST ").and_then(|t| t.strip_suffix(" EVENTS")) {
        Some(count) => count.parse().ok(),
        None => (told == "EVENTS DROPPED").then_some(1),
    }
}

/// What stands between events in text of ftrace and trace-cmd.
pub fn is_between(line: &str) -> bool {
    let text = line.trim();
    let cpu = || text.strip_prefix("CPU:").or(text.strip_prefix("CPU ")).is_some();
    ["version = ", "cpus=", "=> ", "<stack trace>"]
        .iter()
        .any(|told| text.starts_with(told))
        || cpu() && (text.ends_with("[SUBBUFFER START]") || text.ends_with(" is empty"))
}

/// `3416.748160285` in ns.
pub fn time_ns(text: &str) -> Option<i64> {
    let (seconds, fraction) = text.split_once('.')?;
    if fraction.is_empty() || fraction.len() > 9 || !digits(fraction) {
        return None;
    }
    let nanos: i64 = format!("{fraction:0<9}").parse().ok()?;
    let seconds: i64 = seconds.parse().ok().filter(|&s| s >= 0)?;
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
}
