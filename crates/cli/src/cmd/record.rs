// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plimsoll record`: what a real workload's threads do, into a trace file.
use crate::cmd::record_requests::Seen;
use crate::exit::{Failure, Outcome, Result};
use crate::output;
use crate::stream::is_stream;
use clap::builder::NonEmptyStringValueParser;
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_record::{record, sample, Options, RecordError, Report, SampleReport, Stage};
use plimsoll_trace::{RequestSpec, TraceError};
use serde_json::json;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Record what the threads of this machine do
///
/// Every switch and wake-up, through BPF tracepoints, on any kernel with BTF; the scheduler is not replaced. The trace
/// is a Parquet file (docs/src/reference/trace-format.md) for `plimsoll simulate --replay` and `plimsoll plan`.
/// A limit may be in force, and throttle: `plan` takes apart what piled up. What follows from nearly all of a quota in use
/// is least certain; a higher limit while recording is better, where it can be had.
///
/// The command prints when recording begins, and at the end how many events were lost, what share of the machine recording took, and how many
/// requests it saw and how long they took. Ctrl-C, or the end of the session, ends it early and keeps what was recorded.
#[derive(clap::Args)]
pub struct Args {
    /// Only threads of this cgroup and of those below it: a path in the cpu controller's hierarchy, v1 or v2
    #[arg(long, value_name = "PATH", value_parser = NonEmptyStringValueParser::new())]
    cgroup: Option<String>,

    /// How long to record
    #[arg(long, default_value = "30s", value_name = "TIME", allow_hyphen_values = true, value_parser = duration)]
    duration: Duration,

    /// The trace file to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Read the groups' cpu.stat this often, without BPF. Records use and throttling but no threads: it cannot be replayed
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = interval, conflicts_with_all = ["request", "buffer"])]
    sample: Option<Duration>,

    /// What a request is [default: as the service's sockets show it; without sockets each wake-up chain]:
    /// client:GLOB (from when such a thread asks another program until it runs with the answer),
    /// comm:GLOB or tid:NUMBER (wake-up to next block of such a thread),
    /// process:GLOB (from the start of such a process to its exit),
    /// uprobe:FILE:BEGIN_FUNCTION:END_FUNCTION or usdt:FILE:PROVIDER:BEGIN:END (from one probe to the other)
    #[arg(long, value_name = "SPEC")]
    request: Option<RequestSpec>,

    /// Size of the buffer between kernel and reader, MiB, a power of two. Larger if events are lost
    #[arg(long, default_value = "16", value_name = "MIB", allow_hyphen_values = true, value_parser = buffer)]
    buffer: u32,

    /// Write the result as JSON; without FILE, or with "-", to the standard output instead of the text
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
}

const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);
const INTERVAL_MIN: Duration = Duration::from_millis(1);

fn duration(text: &str) -> std::result::Result<Duration, String> {
    let allowed = "allowed: 10ms to 24h, such as 500ms, 30s, 5m";
    match humantime::parse_duration(text) {
        Ok(d) if d >= Duration::from_millis(10) && d <= DURATION_MAX => Ok(d),
        Ok(_) => Err(format!("out of range; {allowed}")),
        Err(error) => Err(format!("{error}; {allowed}")),
    }
}

fn interval(text: &str) -> std::result::Result<Duration, String> {
    let allowed = "allowed: 1ms to 1h, such as 10ms";
    match humantime::parse_duration(text) {
        Ok(d) if d >= INTERVAL_MIN && d <= Duration::from_secs(3600) => Ok(d),
        Ok(_) => Err(format!("out of range; {allowed}")),
        Err(error) => Err(format!("{error}; {allowed}")),
    }
}

fn buffer(text: &str) -> std::result::Result<u32, String> {
    match text.parse::<u32>() {
        Ok(mib) if mib.is_power_of_two() && mib <= 1024 => Ok(mib),
        _ => Err("allowed: a power of two from 1 to 1024 (MiB)".into()),
    }
}

impl From<RecordError> for Failure {
    fn from(error: RecordError) -> Failure {
        match error {
            // That the trace could be written has been asked before.
            RecordError::Unsupported { .. }
            | RecordError::Trace(TraceError::Io { .. } | TraceError::Write { .. }) => {
                Failure::Machine(error.to_string())
            }
            RecordError::Input { .. } | RecordError::Trace(_) => Failure::Input(error.to_string()),
        }
    }
}

pub fn run(args: &Args) -> Result {
    if is_stream(&args.output) {
        let message = format!(
            "{}: a trace is read again when it is complete; allowed: a file, or a name that is free",
            args.output.display()
        );
        return Err(Failure::Input(message));
    }
    output::check([], args.json.as_deref(), [&args.output])?;
    let stop = crate::signals::stop()?;
    let bar = progress_bar();
    let stopped = || stop.load(Ordering::Relaxed);
    let position = |share: f64| bar.set_position((share * 1000.0) as u64);
    let progress = |stage| match stage {
        Stage::Begins => {
            let length = humantime::format_duration(args.duration);
            bar.suspend(|| errln!("recording begins: {length}; Ctrl-C ends it early and keeps it"));
            bar.reset_elapsed();
            bar.set_message("recording");
        }
        Stage::Recorded(share) => position(share),
        Stage::Writing(share) => {
            bar.set_message("writing");
            position(share);
        }
    };
    let (json, text) = match args.sample {
        Some(interval) => {
            let report = sample(
                args.cgroup.as_deref(),
                interval,
                args.duration,
                &args.output,
                stopped,
                position,
            )?;
            (sample_json(&report), sample_text(&report, args))
        }
        None => {
            let options = Options {
                cgroup: args.cgroup.clone(),
                duration: args.duration,
                output: args.output.clone(),
                request: args.request.clone(),
                ring_bytes: args.buffer << 20,
            };
            let report = record(&options, stopped, progress)?;
            if report.limits_unknown > 0 {
                bar.suspend(|| {
                    errln!(
                        "warning: {} groups were made and gone before their limits could be read; the trace shows them without",
                        report.limits_unknown
                    )
                });
            }
            bar.set_message("counting requests");
            let seen = Seen::of(&report, &args.output);
            (record_json(&report, &seen), record_text(&report, &seen, args))
        }
    };
    bar.finish_and_clear();
    if output::json(args.json.as_deref(), || format!("{json:#}\n"))? {
        out!("{text}");
    }
    Ok(Outcome::Done)
}

fn progress_bar() -> ProgressBar {
    // Hidden by indicatif itself where standard error is not a terminal.
    let bar = ProgressBar::new(1000);
    let style =
        ProgressStyle::with_template("{msg} {bar:40} {percent}% {elapsed}").expect("a fixed template");
    bar.set_style(style);
    bar.set_message("attaching");
    bar
}

fn record_json(r: &Report, seen: &Seen) -> serde_json::Value {
    json!({
        "format": 1,
        "duration_ns": r.duration_ns, "full": r.full, "cpus": r.cpus, "events": r.events, "switches": r.switches,
        "wakeups": r.wakeups, "threads": r.threads, "groups": r.groups,
        "limits_unknown": r.limits_unknown, "lost": r.lost, "missed": r.missed, "mended": r.mended,
        "file_bytes": r.file_bytes, "bpf_ns": r.bpf_ns, "bpf_runs": r.bpf_runs,
        "bpf_run_ns": r.bpf_run_ns, "measured_ns": r.measured_ns, "reader_ns": r.reader_ns,
        "encode_ns": r.encode_ns, "overhead": r.overhead(), "begin_ns": r.begin_ns, "detach_ns": r.detach_ns,
        "begin_unix_ns": r.begin_unix_ns,
        "requests": seen.json(), "connections": r.connections, "with_streams": r.with_streams,
        "sealed": r.sealed, "socket_events": r.socket_events,
        "without_sockets": r.without_sockets,
    })
}

fn record_text(r: &Report, seen: &Seen, args: &Args) -> String {
    let seconds = r.duration_ns as f64 / 1e9;
    let machine_ns = r.duration_ns as f64 * r.cpus as f64;
    let percent = |ns: u64| 100.0 * ns as f64 / machine_ns;
    let mut text = format!(
        "recorded   {seconds:.2} s, {} events ({} switches, {:.0}/s; {} wake-ups) of {} threads in {} groups\n",
        r.events,
        r.switches,
        r.switches as f64 / seconds,
        r.wakeups,
        r.threads,
        r.groups,
    );
    text += &seen.text();
    text += &match &r.without_sockets {
        None => {
            let streams = match r.with_streams {
                0 => String::new(),
                n => format!("\n           {n} of HTTP/2: each of their streams under way at a time is a connection here"),
            };
            let sealed = match r.sealed {
                0 => String::new(),
                n => format!("\n           {n} encrypted, maybe HTTP/2: what is under way at once on one of them is not told apart"),
            };
            format!(
                "sockets    {} connections, {} events{streams}{sealed}\n",
                r.connections, r.socket_events
            )
        }
        Some(why) => format!("sockets    not recorded: {why}\n"),
    };
    text += full(r.full);
    text += &match r.lost {
        0 => "lost       no events\n".to_string(),
        lost if lost == r.missed => {
            format!("lost       {lost} events, as the program for them was under way on their CPU\n")
        }
        lost => format!("lost       {lost} events; a larger --buffer or a --cgroup helps\n"),
    };
    if r.mended > 0 {
        text += &format!(
            "mended     {} switches that the kernel raised no event for: added at the time of the thread's own accounting\n",
            r.mended
        );
    }
    text += &match (r.overhead(), r.bpf_ns) {
        (Some(overhead), Some(bpf_ns)) => format!(
            "overhead   {:.2}% of {} CPUs: {:.2}% in BPF, {:.2}% in the reader\n           \
             (BPF measured in the first {:.1} s: {} runs of {} ns; entering a program is not in it, see docs/src/reference/record.md)\n",
            overhead * 100.0,
            r.cpus,
            percent(bpf_ns),
            percent(r.reader_ns),
            r.measured_ns as f64 / 1e9,
            r.bpf_runs,
            r.bpf_run_ns,
        ),
        _ => format!(
            "overhead   {:.2}% of {} CPUs in the reader; this kernel does not measure BPF programs\n",
            percent(r.reader_ns),
            r.cpus
        ),
    };
    text += &format!(
        "times      began {:.2} s after the start, detached in {:.2} s\n\
         written    {}, {:.1} MB, {:.0} ms of CPU time after recording ended\n",
        r.begin_ns as f64 / 1e9,
        r.detach_ns as f64 / 1e9,
        args.output.display(),
        r.file_bytes as f64 / 1e6,
        r.encode_ns as f64 / 1e6,
    );
    text
}

fn full(it_was: bool) -> &'static str {
    match it_was {
        true => "full       it ended early: a trace holds no more; a --cgroup helps\n",
        false => "",
    }
}

fn sample_json(r: &SampleReport) -> serde_json::Value {
    json!({
        "format": 1,
        "duration_ns": r.duration_ns, "full": r.full, "cpus": r.cpus, "samples": r.samples, "groups": r.groups,
        "late_rounds": r.late_rounds, "file_bytes": r.file_bytes, "reader_ns": r.reader_ns,
    })
}

fn sample_text(r: &SampleReport, args: &Args) -> String {
    format!(
        "sampled    {:.2} s, {} samples of {} groups, {} rounds late\n{}\
         overhead   {:.2}% of {} CPUs\n\
         written    {}, {:.1} MB\n",
        r.duration_ns as f64 / 1e9,
        r.samples,
        r.groups,
        r.late_rounds,
        full(r.full),
        100.0 * r.reader_ns as f64 / (r.duration_ns as f64 * r.cpus as f64),
        r.cpus,
        args.output.display(),
        r.file_bytes as f64 / 1e6,
    )
}
