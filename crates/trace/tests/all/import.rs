// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Traces of other tools. `UPDATE_EXPECT=1 cargo test` records the expectations again.
use crate::common::render;
use expect_test::{expect, Expect};
use plimsoll_trace::{Context, Timeline, Trace, TraceError, What};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

struct File {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

fn file(bytes: impl AsRef<[u8]>) -> File {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("input");
    std::fs::write(&path, bytes).unwrap();
    File { _dir: dir, path }
}

fn check(bytes: impl AsRef<[u8]>, expected: Expect) -> Trace {
    let file = file(bytes);
    let trace = Trace::read(&file.path).unwrap();
    let timeline = Timeline::build(&trace.header, &trace.events);
    assert_eq!(Timeline::open(&file.path).unwrap().1, timeline);
    let given_up = AtomicBool::new(true);
    assert!(matches!(
        Timeline::open_until(&file.path, &given_up),
        Err(TraceError::GivenUp { .. })
    ));
    let losses: Vec<String> = trace
        .header
        .losses
        .iter()
        .map(|l| format!("lost {:?}\n", l.count))
        .collect();
    expected.assert_eq(&format!("{}{}", render(&timeline), losses.concat()));
    trace
}

fn check_error(bytes: impl AsRef<[u8]>, expected: Expect) {
    let file = file(bytes);
    let error = Trace::read(&file.path)
        .expect_err("this file must be refused")
        .to_string();
    expected.assert_eq(&error.replace(&file.path.display().to_string(), "FILE"));
}

// perf script

const PERF: &str = "\
# a comment
          swapper     0 [000]     1.000000100:       sched:sched_waking: comm=my app pid=7 prio=120 target_cpu=000
          swapper     0 [000]     1.000000150:       sched:sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=my app next_pid=7 next_prio=120
           my app     7 [000]     1.000000160: sched:sched_stat_runtime: comm=my app pid=7 runtime=10 [ns] vruntime=5 [ns]
           my app     7 [000]     1.000000200: sched:sched_process_fork: comm=my app pid=7 child_comm=my app child_pid=8
           my app     7 [000]     1.000000210:   sched:sched_wakeup_new: comm=my app pid=8 prio=120 target_cpu=001
          swapper     0 [001]     1.000000220:       sched:sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=my app next_pid=8 next_prio=120
           my app     7 [000]     1.000000300:       sched:sched_switch: prev_comm=my app prev_pid=7 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
            child     8 [001]     1.000000400:       sched:sched_waking: comm=my app pid=7 prio=120 target_cpu=000
          swapper     0 [000]     1.000000410:       sched:sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=my app next_pid=7 next_prio=120
            child     8 [001]     1.000000500:       sched:sched_switch: prev_comm=child prev_pid=8 prev_prio=120 prev_state=X ==> next_comm=swapper/1 next_pid=0 next_prio=120
";

#[test]
fn perf_script_is_read_with_forks_names_and_wakers() {
    let trace = check(
        PERF,
        expect![[r#"
        #0 7 my app
          .0 1000000100..1000000300 interrupt; work 150 wait 50; blocks; runs [1000000150..1000000300@0]; wakes #1.0 at 50
          .1 1000000400..1000000500 woken by #1.0; work 90 wait 10; cut; runs [1000000410..1000000500@0]
        #1 8 child
          .0 1000000200..1000000500 forked by #0.0; work 280 wait 20; exits; runs [1000000220..1000000500@1]; wakes #0.1 at 180
    "#]],
    );
    assert_eq!(trace.header.machine.cpus.len(), 2);
}

#[test]
fn a_birth_is_seen_in_each_of_its_events() {
    let all = Trace::read(&file(PERF).path).unwrap();
    let without = |event: &str| {
        let text: Vec<&str> = PERF.lines().filter(|l| !l.contains(event)).collect();
        Trace::read(&file(text.join("\n")).path).unwrap()
    };
    assert_eq!(without("sched_wakeup_new"), all);
    let woken = without("sched_process_fork");
    let forks = |trace: &Trace| {
        let forks = trace.events.iter().filter_map(|e| match e.what {
            What::Fork { parent, child } => Some((e.ts_ns, parent, child)),
            _ => None,
        });
        forks.collect::<Vec<_>>()
    };
    assert_eq!(forks(&all), [(1_000_000_200, 7, 8)]);
    assert_eq!(forks(&woken), [(1_000_000_210, 7, 8)]);

    // Perfetto: 7 makes 8, which exits; then another thread gets the id.
    let about =
        |ts: u64, kind: u64, inner: Message| message().number(1, ts).number(2, 7).bytes(kind, &inner.0);
    let new_task = |ts| about(ts, 235, message().number(1, 8).bytes(2, b"child"));
    let fork = |ts| about(ts, 239, message().number(2, 7).bytes(3, b"child").number(4, 8));
    let woken_new = |ts| about(ts, 114, message().bytes(1, b"child").number(2, 8));
    for (recorded, at) in [(0..3, 0), (0..1, 0), (1..2, 1), (2..3, 2)] {
        let life = |ts: u64| {
            let made = [new_task(ts), fork(ts + 1), woken_new(ts + 2)][recorded.clone()].to_vec();
            [
                made,
                vec![switch(ts + 10, 7, 7, 0, 8), switch(ts + 20, 8, 8, 0x20, 7)],
            ]
            .concat()
        };
        let events = [vec![switch(50, 0, 0, 0, 7)], life(100), life(200)].concat();
        let trace = Trace::read(&file(packet(1, bundle(0, &events))).path).unwrap();
        assert_eq!(forks(&trace), [(100 + at, 7, 8), (200 + at, 7, 8)]);
        assert_eq!(Timeline::build(&trace.header, &trace.events).quality.warnings, []);
    }
}

#[test]
fn exits_of_threads_that_perf_cannot_name_any_more_are_read() {
    // 8 wakes its parent and is reaped by it while it still runs.
    let reaped = PERF.replace("child     8 [001]", "  :-1    -1 [001]");
    assert_eq!(reaped.matches(" -1 [001]").count(), 2);
    check(
        &reaped,
        expect![[r#"
        #0 7 my app
          .0 1000000100..1000000300 interrupt; work 150 wait 50; blocks; runs [1000000150..1000000300@0]; wakes #1.0 at 50
          .1 1000000400..1000000500 woken by #1.0; work 90 wait 10; cut; runs [1000000410..1000000500@0]
        #1 8 child
          .0 1000000200..1000000500 forked by #0.0; work 280 wait 20; exits; runs [1000000220..1000000500@1]; wakes #0.1 at 180
    "#]],
    );
    // The same without a switch to it: what woke 7 is not known.
    let from = reaped.find("              :-1").unwrap();
    check(
        &reaped[from..],
        expect![[r#"
        #0 7 my app
          .0 1000000400..1000000500 interrupt; work 90 wait 10; cut; runs [1000000410..1000000500@0]
        #1 8 child
          .0 1000000400..1000000500 start; work 100 wait 0; exits; runs [1000000400..1000000500@1]
    "#]],
    );
}

#[test]
fn a_jump_of_the_clock_beyond_any_recording_is_refused_with_its_line() {
    let jump = |seconds: &str| PERF.replace("1.000000500:       sched:", &format!("{seconds}: sched:"));
    check_error(jump("9000000000.000000000"), expect!["FILE:11: time: 9000000000000000000 ns; allowed: at most 90000000000000 ns after the first event, 1000000100 ns"]);
    assert!(Trace::read(&file(jump("86401.000000000")).path).is_ok());
}

#[test]
fn a_header_of_perf_may_be_longer_than_what_is_looked_at() {
    let header = "# event : name = sched:sched_switch, id = { 1, 2, 3, 4 }, type = 2\n\n".repeat(1 << 10);
    assert!(header.len() > 1 << 16);
    let trace = Trace::read(&file(header + PERF).path).unwrap();
    assert_eq!(trace, Trace::read(&file(PERF).path).unwrap());
}

#[test]
fn the_short_form_of_older_perf_is_read() {
    check(
        "
  swapper     0 [001]  10.000100: sched:sched_wakeup: a:b:7 [120] success=1 CPU:001
  swapper     0 [001]  10.000110: sched:sched_switch: swapper/1:0 [120] R ==> a:b:7 [120]
  a:b         7 [001]  10.000250: sched:sched_switch: a:b:7 [120] D ==> swapper/1:0 [120]
",
        expect![[r#"
            #0 7 a:b
              .0 10000100000..10000250000 interrupt; work 140000 wait 10000; blocks (D); runs [10000110000..10000250000@1]
        "#]],
    );
}

#[test]
fn lost_events_of_perf_are_kept_as_losses() {
    let text = PERF.replace(
        "# a comment",
        "          swapper     0 [000]     1.000000090: PERF_RECORD_LOST lost 31",
    );
    let trace = check(
        text,
        expect![[r#"
        #0 7 my app
          .0 1000000100..1000000300 interrupt; work 150 wait 50; blocks; runs [1000000150..1000000300@0]; wakes #1.0 at 50
          .1 1000000400..1000000500 woken by #1.0; work 90 wait 10; cut; runs [1000000410..1000000500@0]
        #1 8 child
          .0 1000000200..1000000500 forked by #0.0; work 280 wait 20; exits; runs [1000000220..1000000500@1]; wakes #0.1 at 180
        ! events that the recorder lost: 31 (first at 1000000100 ns: 31 on an unknown CPU between 1000000100 and 1000000500 ns)
        lost Some(31)
    "#]],
    );
    assert_eq!(trace.header.losses[0].count, Some(31));
}

#[test]
fn counts_of_lost_events_beyond_all_sense_are_not_added_up_to_little() {
    let lost = format!(
        "swapper 0 [000] 1.000000090: PERF_RECORD_LOST lost {}\n",
        u64::MAX
    );
    let file = file(PERF.replace("# a comment\n", &lost.repeat(2)));
    let trace = Trace::read(&file.path).unwrap();
    assert_eq!(trace.header.losses[0].count, Some(u64::MAX));
}

#[test]
fn bad_lines_of_perf_are_refused_with_their_number() {
    check_error(
        PERF.replace("pid=8 prio=120 target_cpu=001", "prio=120 target_cpu=001"),
        expect![[r#"FILE:6: thread: "comm=my app prio=120 target_cpu=001"; allowed: COMM:TID [PRIO]"#]],
    );
    check_error(
        PERF.replace("prev_state=S", "prev_state=?"),
        expect![[
            r#"FILE:8: prev_state: "?"; allowed: one of R, S, D, T, t, X, Z, I, P, W, K, N, first letter"#
        ]],
    );
    check_error(PERF.replace("1.000000300", "0.9"), expect!["FILE:8: time runs backwards: 900000000 ns after 1000000220 ns; events must be in order of time (was the clock set, or were files joined?)"]);
    check_error(
        PERF.replace("1.000000300", "1.0000003000"),
        expect![[r#"FILE:8: time: "1.0000003000"; allowed: seconds with up to nine digits after the point"#]],
    );
    check_error(
        PERF.replace("1.000000410:       sched:sched_switch: prev_comm", "1.00"),
        expect!["FILE:10: line: no time and event after the CPU; allowed: COMM TID [CPU] TIME: EVENT: ..."],
    );
    check_error(
        PERF.replace("next_pid=7", "next_pid=77777777"),
        expect![[r#"FILE:3: next_pid: "77777777"; allowed: 0 to 4194304"#]],
    );
}

/// An event that is missed is a task that runs for ever, or wakes from nothing.
#[test]
fn a_damaged_line_of_perf_is_refused_and_what_perf_says_beside_events_is_not() {
    let damaged = |from: &str, to: &str| PERF.replacen(from, to, 1);
    check_error(
        damaged(
            "my app     7 [000]     1.000000300:",
            "my app     7 [0x0]     1.000000300:",
        ),
        expect![[
            r#"FILE:8: line: "my app     7 [0x0]     1.000000300:       sched:sched_switch"; allowed: COMM TID [CPU] TIME: EVENT: ..., a frame of a call chain, a comment, or nothing"#
        ]],
    );
    check_error(
        damaged(
            "           my app     7 [000]     1.000000200: sched:sched_process_fork",
            "\0\0\0",
        ),
        expect![[
            r#"FILE:5: line: "\0\0\0: comm=my app pid=7 child_comm=my app child_pid=8"; allowed: COMM TID [CPU] TIME: EVENT: ..., a frame of a call chain, a comment, or nothing"#
        ]],
    );
    check_error(
        &PERF[..PERF.rfind("8 [001]").unwrap()],
        expect![[
            r#"FILE:11: line: "child"; allowed: COMM TID [CPU] TIME: EVENT: ..., a frame of a call chain, a comment, or nothing"#
        ]],
    );
    // Not the frame of a call chain, though it begins and ends like one.
    check_error(
        damaged(
            "           my app     7 [000]     1.000000200:",
            "    deadbeef 7 000] sched:sched_waking: (x)\n my app     7 [000]     1.000000200:",
        ),
        expect![[
            r#"FILE:5: line: "deadbeef 7 000] sched:sched_waking: (x)"; allowed: COMM TID [CPU] TIME: EVENT: ..., a frame of a call chain, a comment, or nothing"#
        ]],
    );
    let frames = "\tffffffff810b8c0e try_to_wake_up+0x3e ([kernel.kallsyms])\n\t    7f12a0 [unknown] (/usr/lib/libc.so.6)\n\n";
    let beside = [
        frames,
        "  my app  7 PERF_RECORD_COMM: my app:7/7\n",
        "Warning:\nProcessed 1000 events and lost 3 chunks!\n\nCheck IO/CPU overload!\n\n",
        "[ perf record: Woken up 1 times to write data ]\n",
    ];
    let text = damaged(
        "           my app",
        &format!("{}           my app", beside.concat()),
    );
    let trace = Trace::read(&file(text).path).unwrap();
    assert_eq!(trace.events, Trace::read(&file(PERF).path).unwrap().events);
    assert_eq!(trace.header.losses[0].count, Some(3));
}

#[test]
fn foreign_and_empty_files_are_refused() {
    check_error("", expect!["FILE: the file is empty; expected a trace of `plimsoll record` (Parquet), perf.data of `perf sched record`, text of `perf script`, of ftrace or of `trace-cmd report`, a Perfetto trace with scheduling events, or a CSV series of cpu.stat"]);
    check_error(
        "hello\n",
        expect![[
            r#"FILE: not a trace: found a file that starts with "hello\n"; expected a trace of `plimsoll record` (Parquet), perf.data of `perf sched record`, text of `perf script`, of ftrace or of `trace-cmd report`, a Perfetto trace with scheduling events, or a CSV series of cpu.stat"#
        ]],
    );
    check_error(
        "a,b\n1,2\n",
        expect![[
            r#"FILE: not a trace: found a file that starts with "a,b\n1,2\n"; expected a trace of `plimsoll record` (Parquet), perf.data of `perf sched record`, text of `perf script`, of ftrace or of `trace-cmd report`, a Perfetto trace with scheduling events, or a CSV series of cpu.stat"#
        ]],
    );
    check_error(
        [0u8; 100],
        expect![[
            r#"FILE: not a trace: found a file that starts with "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"; expected a trace of `plimsoll record` (Parquet), perf.data of `perf sched record`, text of `perf script`, of ftrace or of `trace-cmd report`, a Perfetto trace with scheduling events, or a CSV series of cpu.stat"#
        ]],
    );
    check_error("PAR1 but no more", expect!["FILE: the file ends early: no Parquet footer at the end of its 16 bytes; record or copy it again"]);
}

#[test]
fn a_perf_data_file_that_perf_cannot_read_is_refused() {
    let file = file(b"PERFILE2 and then nothing of use");
    // With perf installed it fails, without it there is no perf: both are the tool's error.
    assert!(matches!(Trace::read(&file.path), Err(TraceError::Tool { .. })));
}

// Perfetto

/// Builds protobuf messages for the tests.
#[derive(Default, Clone)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    fn packed(self, field: u64, values: &[u64]) -> Self {
        let mut packed = Message::default();
        values.iter().for_each(|&v| packed.varint(v));
        self.bytes(field, &packed.0)
    }
}

fn message() -> Message {
    Message::default()
}

fn packet(field: u64, inner: Message) -> Vec<u8> {
    message()
        .bytes(1, &message().number(8, 5).bytes(field, &inner.0).0)
        .0
}

fn switch(ts: u64, pid: u64, prev: u64, state: u64, next: u64) -> Message {
    let inner = message()
        .bytes(1, format!("t{prev}").as_bytes())
        .number(2, prev)
        .number(4, state)
        .bytes(5, format!("t{next}").as_bytes())
        .number(6, next);
    message().number(1, ts).number(2, pid).bytes(4, &inner.0)
}

fn waking(ts: u64, pid: u64, tid: u64, flags: u64) -> Message {
    let inner = message()
        .bytes(1, format!("t{tid}").as_bytes())
        .number(2, tid)
        .number(5, 0);
    message()
        .number(1, ts)
        .number(2, pid)
        .bytes(20, &inner.0)
        .number(5, flags)
}

fn bundle(cpu: u64, events: &[Message]) -> Message {
    events.iter().fold(message().number(1, cpu), |bundle, event| {
        bundle.bytes(2, &event.0)
    })
}

/// Two CPUs, in bundles that are not in order of time between each other.
fn perfetto() -> Vec<u8> {
    [
        packet(
            1,
            bundle(
                1,
                &[
                    switch(220, 0, 0, 0, 8),
                    waking(400, 8, 7, 0),
                    switch(500, 8, 8, 1, 0),
                ],
            ),
        ),
        packet(
            1,
            bundle(
                0,
                &[
                    waking(100, 0, 7, 0x08),
                    switch(150, 0, 0, 0, 7),
                    waking(200, 7, 8, 0),
                    switch(300, 7, 7, 1, 0),
                    switch(410, 0, 0, 0, 7),
                    switch(420, 7, 7, 0x100, 0),
                ],
            ),
        ),
        packet(
            2,
            message().bytes(2, &message().number(1, 8).bytes(2, b"server").number(3, 6).0),
        ),
    ]
    .concat()
}

#[test]
fn perfetto_events_of_all_cpus_are_put_into_order() {
    let trace = check(
        perfetto(),
        expect![[r#"
        #0 7 t7
          .0 100..300 interrupt; work 150 wait 50; blocks; runs [150..300@0]; wakes #1.0 at 50
          .1 400..500 woken by #1.0; work 10 wait 90; cut; runs [410..420@0]
        #1 8 server
          .0 200..500 woken by #0.0; work 280 wait 20; blocks; runs [220..500@1]; wakes #0.1 at 180
    "#]],
    );
    assert_eq!(
        trace.header.threads.iter().find(|t| t.tid == 8).unwrap().tgid,
        Some(6)
    );
}

/// As a BPF program writes it (scxtop), with the woken thread where ftrace has the one that runs.
#[test]
fn a_thread_that_wakes_itself_was_woken_by_what_runs_on_that_cpu() {
    let events = |said: fn(u64, u64) -> u64| {
        let events = [
            switch(50, 0, 0, 0, 7),
            waking(100, said(7, 8), 8, 0),
            switch(150, 7, 7, 1, 8),
            waking(200, said(8, 7), 7, 0),
            switch(250, 8, 8, 1, 7),
            switch(300, 7, 7, 1, 0),
            waking(400, said(0, 8), 8, 0),
            switch(410, 0, 0, 0, 8),
        ];
        Trace::read(&file(packet(1, bundle(0, &events))).path).unwrap()
    };
    let right = events(|runs, _| runs);
    assert_eq!(events(|_, woken| woken), right);
    let timeline = Timeline::build(&right.header, &right.events);
    assert_eq!(timeline.quality.warnings, []);
}

#[test]
fn perfettos_compact_form_is_read_with_differences_of_time_and_shared_names() {
    let compact = message()
        .bytes(5, b"swapper")
        .bytes(5, b"app")
        .packed(1, &[150, 150, 110])
        .packed(2, &[0, 1, 0])
        .packed(3, &[7, 0, 7])
        .packed(6, &[1, 0, 1])
        .packed(7, &[100, 300])
        .packed(8, &[7, 7])
        .packed(9, &[0, 0])
        .packed(11, &[1, 1])
        .packed(12, &[0x08, 0x10]);
    let trace = check(
        packet(1, message().number(1, 0).bytes(4, &compact.0)),
        expect![[r#"
            #0 7 app
              .0 100..300 interrupt; work 150 wait 50; blocks; runs [150..300@0]
              .1 400..410 interrupt; work 0 wait 10; cut; runs [410..410@0]
        "#]],
    );
    let contexts: Vec<Context> = trace
        .events
        .iter()
        .filter_map(|e| match e.what {
            What::Waking { context, .. } => Some(context),
            _ => None,
        })
        .collect();
    // The second wake-up happened while the CPU was idle.
    assert_eq!(contexts, [Context::Interrupt, Context::Interrupt]);
}

#[test]
fn lost_events_of_perfetto_are_kept_as_losses() {
    let stats = |phase, lost| {
        packet(
            34,
            message()
                .number(1, phase)
                .bytes(2, &message().number(1, 1).number(3, lost).0),
        )
    };
    let bytes = [perfetto(), stats(1, 10), stats(2, 52)].concat();
    let trace = Trace::read(&file(bytes).path).unwrap();
    assert_eq!(
        trace
            .header
            .losses
            .iter()
            .map(|l| (l.cpu, l.count))
            .collect::<Vec<_>>(),
        [(Some(1), Some(42))]
    );

    let lossy = packet(1, bundle(0, &[switch(600, 0, 0, 0, 7)]).number(3, 1));
    let trace = Trace::read(&file([perfetto(), lossy].concat()).path).unwrap();
    assert_eq!(
        trace
            .header
            .losses
            .iter()
            .map(|l| (l.cpu, l.count))
            .collect::<Vec<_>>(),
        [(Some(0), None)]
    );
}

#[test]
fn bad_perfetto_traces_are_refused() {
    check_error(
        packet(2, message().bytes(2, &message().number(1, 8).0)),
        expect!["FILE: not a trace: found no scheduling event; expected a Perfetto trace with the ftrace events sched/sched_switch and sched/sched_waking"],
    );
    check_error(packet(50, message().number(1, 1)), expect!["FILE: byte 0: packet: compressed; allowed: plain packets: record without compression_type, or convert the trace with traceconv"]);
    check_error(
        packet(1, bundle(9000, &[])),
        expect!["FILE: byte 0: cpu: 9000; allowed: 0 to 8191"],
    );
    check_error(
        packet(1, bundle(0, &[switch(1, 0, 0, 0, u64::MAX)])),
        expect!["FILE: byte 0: pid: -1; allowed: 0 to 4194304"],
    );
    check_error(
        packet(
            1,
            message().bytes(4, &message().packed(1, &[1, 2]).packed(2, &[0]).0),
        ),
        expect!["FILE: byte 0: compact_sched: columns of [2, 1, 0, 0] and 0 values; allowed: columns of equal length"],
    );
}

#[test]
fn damaged_perfetto_traces_never_panic() {
    let whole = perfetto();
    for length in 0..whole.len() {
        let _ = Trace::read(&file(&whole[..length]).path);
    }
    for at in 0..whole.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut damaged = whole.clone();
            damaged[at] ^= flip;
            if let Ok(trace) = Trace::read(&file(damaged).path) {
                Timeline::build(&trace.header, &trace.events);
            }
        }
    }
}

#[test]
fn a_truncated_perfetto_trace_is_refused() {
    let whole = perfetto();
    check_error(&whole[..whole.len() - 3], expect!["FILE: byte 216: the file ends early: the packet here: Unexpected end of buffer; record or copy it again"]);
}

/// The file is whole: what a packet says of itself is wrong.
#[test]
fn a_perfetto_trace_with_nonsense_in_a_packet_is_damaged_and_does_not_end_early() {
    let whole = perfetto();
    let with = |packet: Vec<u8>| [whole.clone(), packet].concat();
    let mut longer = message();
    longer.varint(2 << 3 | 2);
    longer.varint(1000);
    check_error(with(packet(1, longer)), expect!["FILE: byte 236: the file is damaged: the packet here: Unexpected end of buffer; record or copy it again"]);
    let column = message().bytes(1, &[0xff]);
    check_error(with(packet(1, message().bytes(4, &column.0))), expect!["FILE: byte 236: the file is damaged: the packed field 1 here: Unexpected end of buffer; record or copy it again"]);
    check_error(with(vec![0xff; 20]), expect!["FILE: byte 236: the file is damaged: the packet here: Cannot decode varint; record or copy it again"]);
}

// cpu.stat

#[test]
fn a_series_of_cpu_stat_is_read_in_any_order_of_columns() {
    let text = "group,ts_s,usage_usec,nr_periods,nr_throttled,throttled_usec,quota_us,period_us
/a,1.5,1000,10,2,300,20000,100000
/b,1.5,50,,,,max,100000
/a,1.6,2000,11,3,400,20000,100000
";
    let trace = Trace::read(&file(text).path).unwrap();
    let header = &trace.header;
    assert_eq!(
        header
            .groups
            .iter()
            .map(|g| (g.path.as_str(), g.quota_us))
            .collect::<Vec<_>>(),
        [("/a", Some(20_000)), ("/b", None)]
    );
    assert_eq!(header.groups[0].stat_end.unwrap().usage_ns, Some(2_000_000));
    assert_eq!(header.groups[0].stat_start.unwrap().nr_throttled, Some(2));
    assert_eq!(
        (header.clock.start_ns, header.clock.end_ns),
        (1_500_000_000, 1_600_000_000)
    );
    assert_eq!(trace.events.len(), 3);
}

#[test]
fn a_series_that_is_no_text_or_has_no_end_is_refused() {
    let mut text = b"ts_ms,group,usage_usec\n5,/a,1\n6,/gr".to_vec();
    text.extend(b"\xfc\xdfe,2\n");
    check_error(&text, expect!["FILE:3: text: not UTF-8; allowed: text in UTF-8"]);
    let series = file("ts_ms,group,usage_usec\n5,/a,1\n");
    let grown = std::fs::OpenOptions::new()
        .write(true)
        .open(&series.path)
        .unwrap();
    grown.set_len((1 << 30) + 1).unwrap(); // sparse: takes no room
    let error = Trace::read(&series.path).unwrap_err().to_string();
    assert!(
        error.ends_with("input: size: 1073741825; allowed: at most 1073741824 bytes"),
        "{error}"
    );
}

#[test]
fn bad_series_of_cpu_stat_are_refused_with_their_line() {
    let head = "ts_ms,group,usage_usec\n";
    check_error(
        head,
        expect!["FILE: the file is empty; expected at least one row below the heading"],
    );
    check_error(format!("{head}5,/a,1\n4,/a,2\n"), expect!["FILE:3: time runs backwards: 4000000 ns after 5000000 ns; events must be in order of time (was the clock set, or were files joined?)"]);
    check_error(
        format!("{head}5,/a,10\n6,/a,9\n"),
        expect!["FILE:3: usage_usec: 9; allowed: 10 or more: counters only rise while a group lives"],
    );
    check_error(
        format!("{head}5,/a,-1\n"),
        expect![[r#"FILE:2: usage_usec: "-1"; allowed: a whole number of 0 or more, or nothing"#]],
    );
    check_error(
        format!("{head}x,/a,1\n"),
        expect![[r#"FILE:2: time: "x"; allowed: a number of 0 or more, below 292 years"#]],
    );
    check_error(
        format!("{head}5,a,1\n"),
        expect![[r#"FILE:2: group: "a"; allowed: a path that starts with /"#]],
    );
    // Lines of other systems end in two characters.
    check_error(
        format!("{head}5,a,1\n").replace('\n', "\r\n"),
        expect![[r#"FILE:2: group: "a"; allowed: a path that starts with /"#]],
    );
    check_error(format!("{head}5,/a\n"), expect!["FILE:2: row: CSV error: record 1 (line: 2, byte: 23): found record with 2 fields, but the previous record has 3 fields; allowed: CSV with as many fields in each row as in the heading"]);
    check_error(
        "ts_ms,group,usage_usec,color\n1,/a,1,red\n",
        expect![[
            r#"FILE:1: column: "color"; allowed: one of ts_ns, ts_us, ts_ms, ts_s, time; group; usage_usec, nr_periods, nr_throttled, throttled_usec, nr_bursts, burst_usec; quota_us, period_us, burst_us; and fields of cpu.stat"#
        ]],
    );
    check_error("group,usage_usec\n/a,1\n", expect!["FILE:1: columns: 0 columns of time; allowed: one of ts_ns, ts_us, ts_ms, ts_s, time; group; usage_usec, nr_periods, nr_throttled, throttled_usec, nr_bursts, burst_usec; quota_us, period_us, burst_us; and fields of cpu.stat"]);
}
