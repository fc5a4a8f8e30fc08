// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every kind of file that people have is read, or named with the command that makes one that is.
//! `UPDATE_EXPECT=1 cargo test` records the expectations again.
use crate::common::render;
use expect_test::{expect, Expect};
use plimsoll_trace::{Context, Timeline, Trace, What};
use std::io::Write;

fn read(bytes: impl AsRef<[u8]>) -> Result<Trace, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("input");
    std::fs::write(&path, bytes).unwrap();
    Trace::read(&path).map_err(|e| e.to_string().replace(&path.display().to_string(), "FILE"))
}

fn shown(bytes: impl AsRef<[u8]>) -> String {
    let trace = read(bytes).unwrap();
    render(&Timeline::build(&trace.header, &trace.events))
}

fn refused(bytes: impl AsRef<[u8]>, expected: Expect) {
    expected.assert_eq(&read(bytes).expect_err("this file must be refused"));
}

fn gzip(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes.as_ref()).unwrap();
    packer.finish().unwrap()
}

/// A thread that is woken, works 2 ms, sleeps, and is woken by another.
const PERF: &str = "\
         swapper     0 [000]    10.000100:       sched:sched_waking: comm=web pid=101 prio=120 target_cpu=000
         swapper     0 [000]    10.000200:       sched:sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=web next_pid=101 next_prio=120
             web   101 [000]    10.002200:       sched:sched_switch: prev_comm=web prev_pid=101 prev_prio=120 prev_state=S ==> next_comm=db next_pid=7 next_prio=120
              db     7 [000]    10.003000:       sched:sched_waking: comm=web pid=101 prio=120 target_cpu=001
         swapper     0 [001]    10.003100:       sched:sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=web next_pid=101 next_prio=120
             web   101 [001]    10.004100:       sched:sched_switch: prev_comm=web prev_pid=101 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120
";

/// The same as text of ftrace.
fn ftrace() -> String {
    let lines = PERF.lines().map(|line| {
        let (comm, rest) = line.trim().split_once(char::is_whitespace).unwrap();
        let (tid, rest) = rest.trim().split_once(' ').unwrap();
        let (cpu, rest) = rest.split_once(' ').unwrap();
        let comm = if comm == "swapper" { "<idle>" } else { comm };
        format!(
            "{comm:>16}-{tid:<7} {cpu} d..2. {}\n",
            rest.trim().replace("sched:sched", "sched")
        )
    });
    format!(
        "# tracer: nop\n#\n# entries-in-buffer/entries-written: 6/6   #P:2\n#\n#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION\n{}",
        lines.collect::<String>()
    )
}

#[test]
fn the_base_of_these_tests_is_read() {
    expect![[r#"
        #0 101 web
          .0 10000100000..10002200000 interrupt; work 2000000 wait 100000; blocks; runs [10000200000..10002200000@0]
          .1 10003000000..10004100000 woken by #1.0; work 1000000 wait 100000; blocks; runs [10003100000..10004100000@1]
        #1 7 db
          .0 10000100000..10004100000 start; work 1900000 wait 2100000; cut; runs [10002200000..10004100000@0]; wakes #0.1 at 800000
    "#]].assert_eq(&shown(PERF));
}

#[test]
fn columns_of_perf_script_that_are_not_needed_are_passed_over() {
    let expected = shown(PERF);
    let in_front_of_the_event = |column: &str| PERF.replace(":       sched:", &format!(": {column}  sched:"));
    for column in ["1", "         1", "1 0", "4000000"] {
        assert_eq!(shown(in_front_of_the_event(column)), expected, "{column}");
    }
    // -F +misc, pid beside tid, no comm, --ns, a cgroup or an address behind.
    assert_eq!(shown(PERF.replace("] ", "] K  ")), expected);
    assert_eq!(shown(PERF.replace(" 101 [", " 99/101 [")), expected);
    assert_eq!(shown(PERF.replace(":       sched", "000:  sched")), expected);
    assert_eq!(shown(PERF.replace('\n', "\r\n")), expected);
    let frames = PERF.replace('\n', "\n\tffffffff81a3 __schedule+0x1 ([kernel.kallsyms])\n\n");
    assert_eq!(shown(frames), expected);
    let without_names: Vec<&str> = PERF
        .lines()
        .map(|l| l.trim().split_once(' ').unwrap().1)
        .collect();
    assert_eq!(shown(without_names.join("\n")), expected);
}

#[test]
fn records_of_tasks_between_events_are_read_or_passed_over() {
    let records = "\
            init     0 [000]     0.000000: PERF_RECORD_COMM: init:1/1
         swapper     0 [000]     0.000000: PERF_RECORD_FORK(1:1):(0:0)
             web     0 [000]     0.000000: PERF_RECORD_MMAP2 101/101: [0x55d0(0x1000) @ 0 fd:01 9 0]: r-xp /usr/bin/web
         swapper     0 [000]     0.000000: PERF_RECORD_NAMESPACES 101/101 - nr_namespaces: 7
         swapper     0 [000]     9.000000: PERF_RECORD_SWITCH_CPU_WIDE OUT preempt  next pid/tid:   101/101
             web   101 [000]     9.000000: PERF_RECORD_EXIT(9:9):(1:1)
";
    assert_eq!(shown(format!("{records}{PERF}")), shown(PERF));
    assert_eq!(shown(format!("{PERF}{records}")), shown(PERF));
    // A record of a name gives a thread its name.
    let named =
        format!("{PERF}             sh   101 [001]  10.005000: PERF_RECORD_COMM exec: worker pool:101/101\n");
    let trace = read(named).unwrap();
    assert!(trace
        .header
        .threads
        .iter()
        .any(|t| t.tid == 101 && t.comm == "worker pool"));
}

#[test]
fn perf_script_without_a_column_that_is_needed_says_which() {
    let no_cpu = PERF.replace("[000] ", "").replace("[001] ", "");
    refused(&no_cpu, expect!["FILE: not a trace that is read: this is text of `perf script` that has no CPU column; run perf script -F +cpu"]);
    refused(no_cpu.replace(":       sched", ":    1 sched"), expect!["FILE: not a trace that is read: this is text of `perf script` that has no CPU column; run perf script -F +cpu"]);
    let without = |column: usize| -> String {
        let lines = PERF.lines().map(|l| {
            let mut words: Vec<&str> = l.split_whitespace().collect();
            words.remove(column);
            words.join(" ") + "\n"
        });
        lines.collect()
    };
    refused(without(3), expect!["FILE: not a trace that is read: this is text of `perf script` that has no times; run perf script -F +time"]);
    refused(without(1), expect!["FILE: not a trace that is read: this is text of `perf script` that has no column of thread ids; run perf script -F +tid"]);
    let no_text: Vec<&str> = PERF
        .lines()
        .map(|l| l.split_inclusive("waking:").next().unwrap())
        .collect();
    refused(
        no_text[0],
        expect!["FILE:1: event's text: none; allowed: what perf script -F +trace prints"],
    );
}

#[test]
fn times_that_are_differences_are_named() {
    let mut times = [
        "0.000000", "0.000004", "0.000017", "0.000071", "0.000004", "0.000005",
    ]
    .iter();
    let lines = PERF.lines().map(|l| {
        let time = l.split_whitespace().nth(3).unwrap();
        l.replace(time, &format!("{}:", times.next().unwrap())) + "\n"
    });
    refused(lines.collect::<String>(), expect!["FILE:5: not a trace that is read: this is text whose times are differences (perf script --deltatime); run perf script without --deltatime"]);
    // Times that begin at 0 and rise (perf script --reltime) are times.
    let relative = PERF
        .replace("    10.00", "     0.00")
        .replace("0.000100", "0.000000");
    assert!(read(relative).is_ok());
}

#[test]
fn other_output_of_perf_is_named_with_the_command_to_run() {
    refused(
        "\n0x538@p.data [0x38]: event: 79\n.\n. ... raw event: size 56 bytes\n.  0000:  4f 00 00 00  O...\n",
        expect!["FILE: not a trace that is read: this is a dump of perf's records (perf script -D, perf report -D); run perf script without -D"],
    );
    let heading = "           time    cpu  task name                       wait time  sch delay   run time\n";
    let row = "      10.002200 [0000]  web[101]                            0.000      0.100      2.000 \n";
    refused(format!("{heading}{row}"), expect!["FILE: not a trace that is read: this is the table of `perf sched timehist`; run `perf script --ns -F comm,tid,cpu,time,event,trace` on the perf.data of `perf sched record`"]);
    refused(row, expect!["FILE: not a trace that is read: this is the table of `perf sched timehist`; run `perf script --ns -F comm,tid,cpu,time,event,trace` on the perf.data of `perf sched record`"]);
    refused(
        " -----\n  Task                  |   Runtime ms  |  Count   | Avg delay ms    |\n",
        expect!["FILE: not a trace that is read: this is the table of `perf sched latency`; run `perf script --ns -F comm,tid,cpu,time,event,trace` on the perf.data of `perf sched record`"],
    );
    refused("  *A0           10.000200 secs A0 => web:101\n   .  *B0       10.000300 secs\n", expect!["FILE: not a trace that is read: this is the map of `perf sched map`; run `perf script --ns -F comm,tid,cpu,time,event,trace` on the perf.data of `perf sched record`"]);
    refused("\n Performance counter stats for 'sleep 1':\n\n  1.2 msec task-clock\n", expect!["FILE: not a trace that is read: this is the table of `perf stat`; run `perf script --ns -F comm,tid,cpu,time,event,trace` on the perf.data of `perf sched record`"]);
}

#[test]
fn text_of_ftrace_is_the_same_trace_as_that_of_perf() {
    assert_eq!(shown(ftrace()), shown(PERF));
    let trace = read(ftrace()).unwrap();
    assert_eq!(trace.header.source, "ftrace-text");
    let contexts = |text: String| -> Vec<Context> {
        let events = read(text).unwrap().events;
        let wakes = events.iter().filter_map(|e| match e.what {
            What::Waking { context, .. } => Some(context),
            _ => None,
        });
        wakes.collect()
    };
    // The flags say where the wake-up came from.
    assert_eq!(contexts(ftrace()), [Context::Interrupt, Context::Task]);
    assert_eq!(
        contexts(ftrace().replace("d..2.", "d.h2.")),
        [Context::Interrupt, Context::Interrupt]
    );
    assert_eq!(
        contexts(ftrace().replace("d..2.", "d.s2.")),
        [Context::Interrupt, Context::TaskSoftirq]
    );
}

#[test]
fn variants_of_ftraces_text_are_read() {
    let expected = shown(ftrace());
    // Without the heading; with the column of processes; with lines that are not scheduling events.
    let bare = ftrace()
        .lines()
        .filter(|l| !l.starts_with('#'))
        .collect::<Vec<_>>()
        .join("\n");
    assert_eq!(shown(&bare), expected);
    assert_eq!(shown(bare.replace(" [00", " (    101) [00")), expected);
    assert_eq!(shown(bare.replace(" [00", " (-------) [00")), expected);
    let others = format!(
        "             web-101     [000] ..... 10.002100: sys_enter: NR 1 (1, 2, 3)\n\
         \x20            web-101     [000] ..... 10.002101: schedule <-worker_thread\n\
         ##### CPU 1 buffer started ####\n{bare}\n=> __schedule\n => schedule\n"
    );
    assert_eq!(shown(others), expected);
    // A name with blanks, dashes and brackets; one that ftrace has forgotten.
    assert_eq!(
        shown(bare.replace(" db-7 ", " my [0] db-x-7 ")),
        expected.replace(" db\n", " my [0] db-x\n")
    );
    assert_eq!(shown(bare.replace(" db-7 ", " <...>-7 ")), expected);
    // What was lost is kept.
    let lossy = bare.replacen('\n', "\nCPU:1 [LOST 12 EVENTS]\n", 1);
    assert_eq!(read(lossy).unwrap().header.losses[0].count, Some(12));
    // A damaged line is refused.
    refused(
        bare.replacen("-101     [000]", "-101     [0x0]", 1),
        expect![[
            r#"FILE:3: line: "web-101     [0x0] d..2. 10.002200:       sched_switch: prev_"; allowed: COMM TID [CPU] TIME: EVENT: ..., a frame of a call chain, a comment, or nothing"#
        ]],
    );
}

#[test]
fn text_of_trace_cmd_is_read_also_behind_an_empty_line() {
    let report = "\
version = 6
cpus=2
CPU 1 is empty
          <idle>-0     [000]    10.000100: sched_waking:         comm=web pid=101 prio=120 target_cpu=000
          <idle>-0     [000]    10.000200: sched_switch:         swapper/0:0 [120] R ==> web:101 [120]
             web-101   [000]    10.002200: sched_switch:         web:101 [120] S ==> swapper/0:0 [120]
";
    expect![[r#"
        #0 101 web
          .0 10000100000..10002200000 interrupt; work 2000000 wait 100000; blocks; runs [10000200000..10002200000@0]
    "#]].assert_eq(&shown(report));
    assert_eq!(shown(format!("\n{report}")), shown(report));
    assert_eq!(shown(report.replace("[000]   ", "[000] d..2.")), shown(report));
    assert_eq!(shown(report.replace(": sched", ": (+12) sched")), shown(report));
    assert_eq!(shown(report.replace("00: ", "00000: ")), shown(report));
    refused("version = 6\ncpus=2\n", expect!["FILE: not a trace that is read: this is text of ftrace without scheduling events; switch the events on: sched_switch and sched_waking, or `echo 1 > /sys/kernel/tracing/events/sched/enable`"]);
    refused(
        "\n\nsome text of another kind\n",
        expect![[
            r#"FILE: not a trace: found a file that starts with "\n\nsome text of a"; expected a trace of `plimsoll record` (Parquet), perf.data of `perf sched record`, text of `perf script`, of ftrace or of `trace-cmd report`, a Perfetto trace with scheduling events, or a CSV series of cpu.stat"#
        ]],
    );
}

#[test]
fn text_of_ftrace_that_cannot_be_used_says_what_to_switch() {
    refused("# tracer: function\n#\n#  TASK-PID  CPU#  TIMESTAMP  FUNCTION\n", expect!["FILE: not a trace that is read: this is text of ftrace without scheduling events; switch the events on: sched_switch and sched_waking, or `echo 1 > /sys/kernel/tracing/events/sched/enable`"]);
    refused(
        "# tracer: nop\n#\n# nop latency trace v1.1.5 on 6.1.0\n#  hog-1602    3d..2. 1234us : sched_switch\n",
        expect!["FILE: not a trace that is read: this is text of ftrace in its latency format; write 0 to /sys/kernel/tracing/options/latency-format and read `trace` again"],
    );
    refused(
        ftrace().replace("10.000100", "1694658826"),
        expect![[r#"FILE:6: time: "1694658826"; allowed: seconds with up to nine digits after the point"#]],
    );
}

#[test]
fn files_packed_with_gzip_are_read_and_others_named() {
    assert_eq!(shown(gzip(PERF)), shown(PERF));
    assert_eq!(shown(gzip(ftrace())), shown(ftrace()));
    let series = "ts_ms,group,usage_usec\n5,/a,1\n6,/a,2\n";
    assert_eq!(read(gzip(series)).unwrap(), read(series).unwrap());
    refused(
        gzip(gzip(PERF)),
        expect![
            "FILE: not a trace that is read: this is a file packed with gzip; unpack it first: gunzip FILE"
        ],
    );
    refused(
        gzip(b"PERFILE2 and more"),
        expect![
            "FILE: not a trace that is read: this is a file packed with gzip; unpack it first: gunzip FILE"
        ],
    );
    refused(
        gzip(b"PAR1 and more"),
        expect![
            "FILE: not a trace that is read: this is a file packed with gzip; unpack it first: gunzip FILE"
        ],
    );
    let whole = gzip(PERF.repeat(1000));
    assert!(read(&whole[..whole.len() / 2]).is_err(), "the end is missing");
    refused(
        b"\x28\xb5\x2f\xfd\x04\x00",
        expect![
            "FILE: not a trace that is read: this is a file packed with zstd; unpack it first: zstd -d FILE"
        ],
    );
    refused(b"\x17\x08\x44tracing6\0\0\0", expect!["FILE: not a trace that is read: this is trace.dat of trace-cmd; run `trace-cmd report FILE > FILE.txt` and give that text"]);
}

#[test]
fn traces_in_json_and_pages_are_named() {
    refused("{\"traceEvents\":[{\"ph\":\"X\"}]}", expect!["FILE: not a trace that is read: this is a trace in Chrome's JSON format; record a Perfetto trace with the ftrace events sched/sched_switch and sched/sched_waking"]);
    refused(gzip("[{\"ph\":\"B\",\"ts\":1}]"), expect!["FILE: not a trace that is read: this is a trace in Chrome's JSON format; record a Perfetto trace with the ftrace events sched/sched_switch and sched/sched_waking"]);
    refused("<!DOCTYPE html>\n<html>", expect!["FILE: not a trace that is read: this is an HTML page (as systrace makes); record a Perfetto trace with the ftrace events sched/sched_switch and sched/sched_waking"]);
}

#[test]
fn a_series_of_cpu_stat_may_have_its_other_fields_and_usual_names() {
    let plain =
        "ts_ns,group,usage_usec,nr_throttled\n1795608000000000000,/a,5,1\n1795608001000000000,/a,9,2\n";
    let expected = read(plain).unwrap();
    for (heading, first, second) in [
        (
            "timestamp_ns,cgroup",
            "1795608000000000000,/a",
            "1795608001000000000,/a",
        ),
        (
            "timestamp,group",
            "2026-11-25T12:00:00Z,/a",
            "2026-11-25T12:00:01Z,/a",
        ),
        (
            "time,path",
            "2026-11-25T13:00:00+01:00,/a",
            "2026-11-25T13:00:01+01:00,/a",
        ),
        ("Time,group", "2026-11-25 12:00:00,/a", "2026-11-25 12:00:01,/a"),
        ("timestamp_s,group", "1795608000,/a", "1795608001.0,/a"),
    ] {
        let text = format!("{heading},usage_usec,nr_throttled\n{first},5,1\n{second},9,2\n");
        assert_eq!(read(&text).unwrap(), expected, "{heading}");
        for delimiter in [";", "\t"] {
            assert_eq!(read(text.replace(',', delimiter)).unwrap(), expected, "{heading}");
        }
    }
    assert_eq!(read(format!("\u{feff}{plain}")).unwrap(), expected);
    // Fields that a replay does not need are named in the trace's source.
    let more = "ts_ns,group,usage_usec,user_usec,system_usec,nr_throttled\n1795608000000000000,/a,5,3,2,1\n1795608001000000000,/a,9,5,4,2\n";
    let read_more = read(more).unwrap();
    assert_eq!(read_more.events, expected.events);
    assert_eq!(
        read_more.header.source,
        "cpu-stat-csv, without its columns user_usec, system_usec"
    );
    // The first version of cgroups counts in ns.
    let v1 = "ts_ms,group,throttled_time,cpuacct.usage\n1,/a,5000,1000000\n2,/a,7000,2000000\n";
    let v2 = "ts_ms,group,throttled_usec,usage_usec\n1,/a,5,1000\n2,/a,7,2000\n";
    assert_eq!(read(v1).unwrap(), read(v2).unwrap());
}

#[test]
fn a_series_of_cpu_stat_that_is_not_clear_is_refused() {
    refused(
        "time,group,usage_usec\n12,/a,1\n",
        expect![[
            r#"FILE:2: time: "12"; allowed: a date as RFC 3339 has it (2026-01-31T12:00:00.5Z), or seconds, ms, us or ns since 1970; of another time the column's name says the unit: ts_ms"#
        ]],
    );
    refused("time,ts_ns,group,usage_usec\n12,1,/a,1\n", expect!["FILE:1: columns: 2 columns of time; allowed: one of ts_ns, ts_us, ts_ms, ts_s, time; group; usage_usec, nr_periods, nr_throttled, throttled_usec, nr_bursts, burst_usec; quota_us, period_us, burst_us; and fields of cpu.stat"]);
    refused("time,usage_usec\n12,1\n", expect!["FILE:1: columns: 0 columns of the group's path; allowed: one column `group`, with a path such as /docker/web in each row"]);
    refused(
        "ts_s,group,usage_usec,usage_ns\n12,/a,1,1000\n",
        expect![[r#"FILE:1: columns: "usage_usec" and "usage_ns"; allowed: one column for each counter"#]],
    );
    refused("usage_usec 5\nuser_usec 3\nsystem_usec 2\n", expect!["FILE: not a trace that is read: this is cpu.stat as the kernel prints it; make a CSV series: a heading `ts_ns,group,usage_usec,nr_periods,nr_throttled,throttled_usec`, then a row for each reading"]);
    refused("# HELP x y\n# TYPE x counter\nx 1\n", expect!["FILE: not a trace that is read: this is metrics in Prometheus' text format; make a CSV series: a heading `ts_ns,group,usage_usec,nr_periods,nr_throttled,throttled_usec`, then a row for each reading"]);
}
