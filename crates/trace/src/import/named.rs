// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that are known and not read: what they are, and the command that makes one that is.
use super::line;

/// A kind of file, and what to do instead of giving it.
#[derive(Debug, PartialEq, Eq)]
pub struct Named {
    pub what: String,
    pub cure: String,
}

const SCRIPT: &str =
    "run `perf script --ns -F comm,tid,cpu,time,event,trace` on the perf.data of `perf sched record`";
const SCHED_EVENTS: &str =
    "switch the events on: sched_switch and sched_waking, or `echo 1 > /sys/kernel/tracing/events/sched/enable`";
const PERFETTO: &str =
    "record a Perfetto trace with the ftrace events sched/sched_switch and sched/sched_waking";
const SERIES: &str =
    "make a CSV series: a heading `ts_ns,group,usage_usec,nr_periods,nr_throttled,throttled_usec`, \
                      then a row for each reading";

fn named(what: &str, cure: &str) -> Option<Named> {
    Some(Named {
        what: what.into(),
        cure: cure.into(),
    })
}

/// By the first bytes of a binary file.
pub fn binary(head: &[u8]) -> Option<Named> {
    let packed = [
        (&b"\x28\xb5\x2f\xfd"[..], "zstd", "zstd -d"),
        (b"\xfd7zXZ", "xz", "xz -d"),
        (b"BZh", "bzip2", "bunzip2"),
        (b"\x04\x22\x4d\x18", "lz4", "lz4 -d"),
        (b"PK\x03\x04", "zip", "unzip"),
        (b"\x1f\x8b", "gzip", "gunzip"),
    ];
    if let Some((_, name, command)) = packed.iter().find(|(magic, ..)| head.starts_with(magic)) {
        return named(
            &format!("a file packed with {name}"),
            &format!("unpack it first: {command} FILE"),
        );
    }
    if head.starts_with(b"\x17\x08\x44tracing") {
        return named(
            "trace.dat of trace-cmd",
            "run `trace-cmd report FILE > FILE.txt` and give that text",
        );
    }
    if head.starts_with(b"\xc1\x1f\xfc\xc1") || head.starts_with(b"\xc1\xfc\x1f\xc1") {
        return named("a trace in the Common Trace Format (LTTng)", PERFETTO);
    }
    None
}

/// By the first lines of a text.
pub fn text(head: &str) -> Option<Named> {
    let lines = || head.lines().take(500);
    let first = lines().find(|l| !l.trim().is_empty()).unwrap_or("").trim();
    let any = |test: &dyn Fn(&str) -> bool| lines().any(test);
    if any(&|l| l.contains("... raw event: size") || l.starts_with("0x") && l.contains("]: event: ")) {
        return named(
            "a dump of perf's records (perf script -D, perf report -D)",
            "run perf script without -D",
        );
    }
    if any(&is_timehist) {
        return named("the table of `perf sched timehist`", SCRIPT);
    }
    for (word, what) in [
        ("Runtime ms", "the table of `perf sched latency`"),
        ("Performance counter stats for", "the table of `perf stat`"),
        ("# Overhead", "the table of `perf report`"),
    ] {
        if any(&|l| l.contains(word)) {
            return named(what, SCRIPT);
        }
    }
    if any(&is_map) {
        return named("the map of `perf sched map`", SCRIPT);
    }
    if let Some(column) = lines().find_map(line::missing_column) {
        let (what, field) = column;
        return named(
            &format!("text of `perf script` that has no {what}"),
            &format!("run perf script -F +{field}"),
        );
    }
    if any(&|l| l.starts_with('#') && l.contains(" latency trace v")) {
        return named(
            "text of ftrace in its latency format",
            "write 0 to /sys/kernel/tracing/options/latency-format and read `trace` again",
        );
    }
    if first.starts_with("# tracer:") || first.starts_with("version = ") || first.starts_with("cpus=") {
        return named("text of ftrace without scheduling events", SCHED_EVENTS);
    }
    if first.starts_with(['{', '[']) {
        return if head.contains("\"traceEvents\"") || head.contains("\"ph\"") {
            named("a trace in Chrome's JSON format", PERFETTO)
        } else {
            named("a JSON file", PERFETTO)
        };
    }
    if first.starts_with("<!") || first.starts_with("<html") {
        return named("an HTML page (as systrace makes)", PERFETTO);
    }
    let mut words = first.split_whitespace();
    if let (Some(key), Some(value), None) = (words.next(), words.next(), words.next()) {
        if matches!(key, "usage_usec" | "nr_periods" | "user_usec") && value.parse::<u64>().is_ok() {
            return named("cpu.stat as the kernel prints it", SERIES);
        }
    }
    if any(&|l| l.starts_with("container_cpu_") || l.starts_with("# TYPE ")) {
        return named("metrics in Prometheus' text format", SERIES);
    }
    None
}

/// The heading, or a row where it was left out: `6.328102 [0000]  perf[147]   0.000  0.000  0.000`.
fn is_timehist(line: &str) -> bool {
    if line.contains("task name") && (line.contains("wait time") || line.contains("sch delay")) {
        return true;
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    let [time, cpu, .., a, b, c] = words[..] else {
        return false;
    };
    let cpu = cpu.strip_prefix('[').and_then(|c| c.strip_suffix(']'));
    line::time_ns(time).is_some()
        && cpu.is_some_and(|c| c.len() == 4 && c.parse::<u32>().is_ok())
        && [a, b, c].iter().all(|n| n.parse::<f64>().is_ok())
}

/// `  *A0           6.328102 secs A0 => perf:147`
fn is_map(line: &str) -> bool {
    line.contains('*')
        && line.split_once(" secs").is_some_and(|(before, _)| {
            before
                .split_whitespace()
                .last()
                .is_some_and(|t| line::time_ns(t).is_some())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_files_and_trace_dat_are_named() {
        for (head, what) in [
            (&b"\x28\xb5\x2f\xfd rest"[..], "zstd"),
            (b"\xfd7zXZ\0", "xz"),
            (b"BZh91AY", "bzip2"),
            (b"PK\x03\x04..", "zip"),
            (b"\x17\x08\x44tracing6\0", "trace.dat"),
            (b"\xc1\x1f\xfc\xc1", "Common Trace Format"),
        ] {
            assert!(binary(head).unwrap().what.contains(what), "{what}");
        }
        assert_eq!(binary(b"hello"), None);
        assert_eq!(text("hello\nworld"), None);
    }
}
