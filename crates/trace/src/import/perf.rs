// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `perf sched record`, through the text that `perf script` makes of it; and the text of ftrace and trace-cmd, which has
//! the same events.
//!
//! What follows an event's name is either `key=value` pairs or the short form of libtraceevent's plugin, which trace-cmd
//! and older builds of perf print: `COMM:TID [PRIO] STATE ==> COMM:TID [PRIO]`.
use super::line::{self, head, time_ns, Form, Head, REAPED};
use super::{bad, line_place, source, Birth, Importer, Trace};
use crate::error::{Place, TraceError};
use crate::model::{Context, Event, Loss, State, Tid, What, CPU_MAX, TID_MAX};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

const EXPECTED: &str =
    "the events sched_switch, and sched_waking or sched_wakeup, as `perf sched record` records them";
const ARGS: [&str; 6] = [
    "script",
    "--ns",
    "--show-lost-events",
    "-F",
    "comm,tid,cpu,time,event,trace",
    "-i",
];

pub fn read_script(path: &Path, flag: &AtomicBool) -> Result<Trace, TraceError> {
    let mut script = Script::default();
    script.read(path, source::open(path)?, flag)?;
    script.finish(path)
}

/// Runs `perf script` on a perf.data file. The errors name lines of its output.
pub fn read_data(path: &Path, flag: &AtomicBool) -> Result<Trace, TraceError> {
    let tool = |detail: String| TraceError::Tool {
        place: Place::whole(path),
        command: format!("perf {}", ARGS.join(" ")),
        detail,
    };
    let mut child = Command::new("perf")
        .args(ARGS)
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| {
            tool(format!(
                "{e}; install perf, or run it where it is and give its output"
            ))
        })?;
    let stderr = child.stderr.take().expect("it is piped");
    // Both pipes must be read, or perf stops when one is full.
    let messages = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = BufReader::new(stderr).read_to_string(&mut text);
        text
    });
    let mut script = Script::default();
    let result = script.read(
        path,
        BufReader::new(child.stdout.take().expect("it is piped")),
        flag,
    );
    if result.is_err() {
        let _ = child.kill(); // it may still be writing; its exit code says nothing new
    }
    let status = child.wait().map_err(|e| tool(e.to_string()))?;
    let messages = messages.join().unwrap_or_default();
    result?;
    if !status.success() {
        return Err(tool(format!(
            "{status}: {}",
            messages.lines().last().unwrap_or("no message")
        )));
    }
    if let Some(count) = lost_chunks(&messages) {
        script.lose(count);
    }
    script.finish(path)
}

/// perf's own summary: `Processed 1000 events and lost 3 chunks!`
fn lost_chunks(messages: &str) -> Option<u64> {
    let (_, after) = messages.split_once("and lost ")?;
    after.split_whitespace().next()?.parse().ok()
}

/// Whether a line is a scheduling event, or any event of ftrace.
pub fn is_line(line: &str) -> bool {
    matches!(head(line), Some(Ok(head)) if head.event.starts_with("sched:") || head.event.starts_with("sched_")
        || head.form == Form::Ftrace && time_ns(head.time).is_some())
}

/// How much of a line that is refused is shown, in characters.
const SHOWN: usize = 60;

/// What perf prints between events, other than comments: records that are none, the frames of a call chain (an address,
/// a symbol, a file in parentheses), and what it tells its user. Any other line is an event that was damaged, and would
/// be missed without a word.
fn is_no_event(line: &str) -> bool {
    let text = line.trim();
    let frame = line.starts_with(char::is_whitespace)
        && text.ends_with(')')
        && text.split_once(' ').is_some_and(|(address, _)| {
            !address.is_empty() && address.bytes().all(|b| b.is_ascii_hexdigit())
        });
    let told = [
        "Warning:",
        "Processed ",
        "Check IO/CPU overload!",
        "[ perf record: ",
    ];
    text.contains("PERF_RECORD_")
        || line::is_between(text)
        || (frame || told.iter().any(|told| text.starts_with(told))) && !text.contains("sched:")
}

#[derive(Default)]
struct Script {
    importer: Importer,
    lost: u64,
    /// The form of its first event.
    form: Option<Form>,
    /// What runs on each CPU by the last switch there.
    running: HashMap<u32, Tid>,
}

impl Script {
    /// In a file that is none of perf's the counts may be anything.
    fn lose(&mut self, count: u64) {
        self.lost = self.lost.saturating_add(count);
    }

    fn read(&mut self, path: &Path, mut reader: impl BufRead, flag: &AtomicBool) -> Result<(), TraceError> {
        let mut bytes = Vec::new();
        let mut line = 0;
        loop {
            super::go_on(path, flag)?;
            bytes.clear();
            let n = reader
                .read_until(b'\n', &mut bytes)
                .map_err(|e| TraceError::io(path, "read", e))?;
            if n == 0 {
                return Ok(());
            }
            line += 1;
            // Names of threads need not be UTF-8.
            let text = String::from_utf8_lossy(&bytes);
            let text = text.trim_end();
            if text.trim().is_empty() || text.starts_with('#') {
                continue;
            }
            // What perf says of a recording goes to another stream, and into the file with `2>&1`.
            if let Some(count) = lost_chunks(text) {
                self.lose(count);
                continue;
            }
            if let Some((_, after)) = text.split_once("PERF_RECORD_LOST") {
                let count = after.split_whitespace().find_map(|w| w.parse::<u64>().ok());
                self.lose(count.unwrap_or(1));
                continue;
            }
            if let Some(count) = line::lost(text) {
                self.lose(count);
                continue;
            }
            if let Some((before, record)) = text.split_once("PERF_RECORD_") {
                if !before.contains("sched:") {
                    self.record(record);
                    continue;
                }
            }
            match head(text) {
                None if is_no_event(text) => {}
                // A line of the function tracer, a marker.
                Some(Err(_)) if !text.contains("sched_") && self.form == Some(Form::Ftrace) => {}
                None => {
                    let shown: String = text.trim_start().chars().take(SHOWN).collect();
                    return Err(bad(
                        line_place(path, line),
                        "line",
                        format!("{shown:?}"),
                        "COMM TID [CPU] TIME: EVENT: ..., a frame of a call chain, a comment, or nothing",
                    ));
                }
                Some(Ok(head)) => {
                    self.form.get_or_insert(head.form);
                    let result = self.event(&head, &|| line_place(path, line));
                    result.map_err(|error| self.as_differences(error))?
                }
                Some(Err(reason)) => {
                    return Err(bad(
                        line_place(path, line),
                        "line",
                        reason,
                        "COMM TID [CPU] TIME: EVENT: ...",
                    ))
                }
            }
        }
    }

    /// perf's record of a name, `COMM: init:1/1` or `COMM exec: init:1/1`, that `--show-task-events` prints. The other
    /// records say nothing that the events do not.
    fn record(&mut self, record: &str) {
        let name = record.strip_prefix("COMM").and_then(|r| r.split_once(": "));
        let thread = name.and_then(|(_, thread)| thread.rsplit_once(':'));
        if let Some((comm, ids)) = thread {
            let tid = ids.rsplit('/').next().and_then(|tid| tid.parse().ok());
            if let Some(tid) = tid.filter(|&tid| tid <= TID_MAX) {
                let ts_ns = self.importer.events.last().map_or(0, |e| e.ts_ns);
                self.importer.name(tid, comm, ts_ns);
            }
        }
    }

    /// The first of perf's differences is 0; as times they run backwards soon.
    fn as_differences(&self, error: TraceError) -> TraceError {
        match error {
            TraceError::ClockBackwards { place, .. }
                if self.form == Some(Form::Perf)
                    && self.importer.events.first().is_some_and(|e| e.ts_ns == 0) =>
            {
                TraceError::Unread {
                    place,
                    what: "text whose times are differences (perf script --deltatime)".into(),
                    cure: "run perf script without --deltatime".into(),
                }
            }
            error => error,
        }
    }

    fn event(&mut self, head: &Head, place: &dyn Fn() -> Place) -> Result<(), TraceError> {
        let name = head.event.strip_prefix("sched:").unwrap_or(head.event);
        let name = name.strip_prefix("sched_").unwrap_or("");
        if !matches!(
            name,
            "switch" | "waking" | "wakeup" | "wakeup_new" | "process_fork" | "process_exit"
        ) {
            return Ok(());
        }
        let ts_ns = time_ns(head.time).ok_or_else(|| {
            bad(
                place(),
                "time",
                format!("{:?}", head.time),
                "seconds with up to nine digits after the point",
            )
        })?;
        let cpu: u32 = head.cpu.parse().ok().filter(|&c| c < CPU_MAX).ok_or_else(|| {
            bad(
                place(),
                "cpu",
                format!("{:?}", head.cpu),
                format!("0 to {}", CPU_MAX - 1),
            )
        })?;
        let current = match head.tid {
            // The event itself names the thread that leaves. The waker is known if its switch to this CPU was
            // seen; if not, no waker is named, as with a wake-up that comes from an interrupt.
            REAPED => self.running.get(&cpu).copied().unwrap_or(0),
            tid => {
                let tid = tid_of(tid, "tid", place)?;
                // perf need not print names; ftrace forgets those of threads that it has not seen for long.
                if !matches!(head.comm, "" | "<...>") {
                    self.importer.name(tid, head.comm, ts_ns);
                }
                tid
            }
        };
        let rest = head.rest.trim();
        if rest.is_empty() {
            return Err(bad(
                place(),
                "event's text",
                "none",
                "what perf script -F +trace prints",
            ));
        }
        let what = match name {
            "switch" => self.switch(rest, ts_ns, cpu, place)?,
            "waking" => {
                let context = context(current, head);
                let tid = self.woken(rest, ts_ns, place)?;
                What::Waking {
                    tid,
                    waker: current,
                    context,
                }
            }
            "wakeup" => {
                let tid = self.woken(rest, ts_ns, place)?;
                What::Wakeup {
                    tid,
                    waker: current,
                    target_cpu: cpu,
                }
            }
            "wakeup_new" => {
                let child = self.woken(rest, ts_ns, place)?;
                match self.importer.birth(Birth::Woken, current, child) {
                    Some(fork) => fork,
                    None => return Ok(()),
                }
            }
            "process_fork" => {
                let child = tid_of(needed(rest, "child_pid=", place)?, "child_pid", place)?;
                if let Some(comm) = between(rest, "child_comm=", " child_pid=") {
                    self.importer.name(child, comm, ts_ns);
                }
                let parent = tid_of(needed(rest, " pid=", place)?, "pid", place)?;
                match self.importer.birth(Birth::Made, parent, child) {
                    Some(fork) => fork,
                    None => return Ok(()),
                }
            }
            _ => What::Exit {
                tid: tid_of(needed(rest, " pid=", place)?, "pid", place)?,
            },
        };
        self.importer.push(Event { ts_ns, cpu, what }, place)
    }

    fn switch(
        &mut self,
        rest: &str,
        ts_ns: i64,
        cpu: u32,
        place: &dyn Fn() -> Place,
    ) -> Result<What, TraceError> {
        let Some((left, right)) = rest.split_once(" ==> ") else {
            return Err(bad(
                place(),
                "sched_switch",
                format!("{rest:?}"),
                "PREVIOUS ==> NEXT",
            ));
        };
        let (prev, state, next);
        if left.contains("prev_pid=") {
            prev = tid_of(needed(left, "prev_pid=", place)?, "prev_pid", place)?;
            next = tid_of(needed(right, "next_pid=", place)?, "next_pid", place)?;
            state = needed(left, "prev_state=", place)?;
            for (tid, comm) in [
                (prev, between(left, "prev_comm=", " prev_pid=")),
                (next, between(right, "next_comm=", " next_pid=")),
            ] {
                if let Some(comm) = comm {
                    self.importer.name(tid, comm, ts_ns);
                }
            }
        } else {
            prev = self.short(left, ts_ns, place)?;
            next = self.short(right, ts_ns, place)?;
            state = left.rsplit(' ').next().unwrap_or("");
        }
        let prev_state = State::from_letter(state).ok_or_else(|| {
            bad(
                place(),
                "prev_state",
                format!("{state:?}"),
                "one of R, S, D, T, t, X, Z, I, P, W, K, N, first letter",
            )
        })?;
        self.running.insert(cpu, next);
        Ok(What::Switch {
            prev,
            prev_state,
            next,
        })
    }

    fn woken(&mut self, rest: &str, ts_ns: i64, place: &dyn Fn() -> Place) -> Result<Tid, TraceError> {
        if !rest.contains("pid=") {
            return self.short(rest, ts_ns, place);
        }
        let tid = tid_of(needed(rest, " pid=", place)?, "pid", place)?;
        if let Some(comm) = between(rest, "comm=", " pid=") {
            self.importer.name(tid, comm, ts_ns);
        }
        Ok(tid)
    }

    /// `COMM:TID [PRIO] ...`
    fn short(&mut self, text: &str, ts_ns: i64, place: &dyn Fn() -> Place) -> Result<Tid, TraceError> {
        let thread = text.split(" [").next().unwrap_or(text);
        let (comm, tid) = thread
            .rsplit_once(':')
            .ok_or_else(|| bad(place(), "thread", format!("{text:?}"), "COMM:TID [PRIO]"))?;
        let tid = tid_of(tid, "tid", place)?;
        self.importer.name(tid, comm, ts_ns);
        Ok(tid)
    }

    fn finish(self, path: &Path) -> Result<Trace, TraceError> {
        let source = match self.form {
            Some(Form::Ftrace) => "ftrace-text",
            _ => "perf-script",
        };
        let mut trace = self.importer.finish(path, source, "unknown", EXPECTED)?;
        if self.lost > 0 {
            let clock = &trace.header.clock;
            let loss = Loss {
                cpu: None,
                from_ns: clock.start_ns,
                to_ns: clock.end_ns,
                count: Some(self.lost),
            };
            trace.header.losses.push(loss);
        }
        Ok(trace)
    }
}

/// ftrace's third flag tells where its CPU was: in an interrupt, in a softirq, or in the thread itself.
fn context(waker: Tid, head: &Head) -> Context {
    let flag = match head.form {
        Form::Ftrace => head.flags.as_bytes().get(2),
        Form::Perf => None,
    };
    match flag {
        _ if waker == 0 => Context::Interrupt,
        Some(b'h' | b'H' | b'z' | b'Z') => Context::Interrupt,
        Some(b's') => Context::TaskSoftirq,
        Some(b'.') => Context::Task,
        _ => Context::Unknown,
    }
}

fn tid_of(text: &str, field: &str, place: &dyn Fn() -> Place) -> Result<Tid, TraceError> {
    text.parse()
        .ok()
        .filter(|&tid| tid <= TID_MAX)
        .ok_or_else(|| bad(place(), field, format!("{text:?}"), format!("0 to {TID_MAX}")))
}

/// The word behind `key`.
fn needed<'a>(text: &'a str, key: &str, place: &dyn Fn() -> Place) -> Result<&'a str, TraceError> {
    text.split_once(key)
        .and_then(|(_, after)| after.split_whitespace().next())
        .ok_or_else(|| bad(place(), key.trim(), "none", "a value: this event needs one"))
}

fn between<'a>(text: &'a str, from: &str, to: &str) -> Option<&'a str> {
    let (_, after) = text.split_once(from)?;
    after.split_once(to).map(|(value, _)| value)
}
