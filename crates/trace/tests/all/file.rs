// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Parquet file: what goes in comes out, and what is not a sound trace is refused by name.
use crate::common::{events, header, read, write};
use expect_test::{expect, Expect};
use plimsoll_trace::*;
use std::path::Path;
use std::sync::atomic::AtomicBool;

const EVERY_KIND: &str = "
    100 0 switch 0 R 7
    100 1 waking 8 7 task-softirq
    110 1 wakeup 8 7 1
    120 0 fork 7 9
    130 0 move 9 2
    140 0 sample 1 5000 3
    150 0 request 7 begin
    160 0 request 7 end
    170 0 exit 9
    180 0 switch 7 D 8
";

/// What version 2 brought.
const SOCKETS: &str = "
    190 0 socket 0 5 arrived 120
    200 0 socket 8 5 read 120
    210 0 socket 8 5 wrote 4000000000
    220 0 socket 8 9223372036854775807 opened 0
    230 0 socket 8 5 closed 0
    240 1 others 2 30 R
";

/// What version 3 brought.
const QUEUES: &str = "
    250 0 placed 8 1
    260 1 migrate 8 0
";

/// What version 4 brought.
const OWED: &str = "
    270 0 owed 8 0 1
    280 1 owed 8 -2147483648 2147483647
    290 1 owed 8 2147483647 -2147483648
";

fn connection(id: u64) -> Connection {
    Connection {
        id,
        protocol: Protocol::Tcp,
        side: Side::Accepted,
        before: true,
        local_port: Some(80),
        remote_port: Some(40_000),
        group: Some(1),
        peer: None,
        secured_ns: None,
    }
}

fn with_sockets() -> (Header, Vec<Event>) {
    let (mut header, mut all) = every_kind();
    header.sockets = Sockets {
        recorded: true,
        without: Some("UDP".into()),
        connections: vec![
            connection(5),
            Connection {
                protocol: Protocol::Unix,
                side: Side::Opened,
                local_port: None,
                remote_port: None,
                group: None,
                peer: Some(5),
                ..connection(i64::MAX as u64)
            },
        ],
        sealed: 0,
    };
    all.extend(events(SOCKETS));
    (header, all)
}

fn every_kind() -> (Header, Vec<Event>) {
    let mut header = header("7:a:1 8:b");
    header.losses.push(Loss {
        cpu: Some(1),
        from_ns: 5,
        to_ns: 9,
        count: None,
    });
    header.groups[1].quota_us = Some(20_000);
    header.groups[1].stat_end = Some(CpuStat {
        usage_ns: Some(1),
        ..Default::default()
    });
    (header, events(EVERY_KIND))
}

fn check_error(path: &Path, expected: Expect) {
    let error = read(path).expect_err("this file must be refused").to_string();
    expected.assert_eq(&error.replace(&path.display().to_string(), "FILE"));
}

#[test]
fn every_kind_of_event_and_the_header_survive_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    let (mut header, mut all) = with_sockets();
    header.migrations = true;
    all.extend(events(QUEUES));
    all.extend(events(OWED));
    let events = all;
    write(&path, &header, &events);
    assert_eq!(read(&path).unwrap(), (header, events));
}

#[test]
fn reading_ends_when_nobody_wants_it_any_more() {
    let path = Path::new("tests/data/version-1.parquet");
    let (wanted, given_up) = (AtomicBool::new(false), AtomicBool::new(true));
    assert!(Trace::read_until(path, &wanted).is_ok());
    for refused in [
        Trace::read_until(path, &given_up).map(drop),
        Timeline::open_until(path, &given_up).map(drop),
    ] {
        assert!(matches!(refused, Err(TraceError::GivenUp { .. })), "{refused:?}");
    }
}

/// Written by the last program of that version.
#[test]
fn a_file_of_version_1_is_read_as_it_was_and_says_nothing_of_sockets() {
    let (header, events) = read(Path::new("tests/data/version-1.parquet")).unwrap();
    assert_eq!((header.clone(), events.clone()), every_kind());
    let timeline = Timeline::build(&header, &events);
    assert!(!timeline.has_sockets && timeline.connections.is_empty() && timeline.others.is_empty());
}

/// Written by the last program of that version.
#[test]
fn a_file_of_version_2_is_read_as_it_was_and_says_nothing_of_queues() {
    let (header, events) = read(Path::new("tests/data/version-2.parquet")).unwrap();
    assert_eq!((header.clone(), events.clone()), with_sockets());
    let timeline = Timeline::build(&header, &events);
    let bursts = timeline.threads.iter().flat_map(|t| &t.bursts);
    assert!(!header.migrations && bursts.clone().count() > 0);
    assert!(bursts.clone().all(|b| b.queued.is_none()));
}

/// Written by the last program of that version.
#[test]
fn a_file_of_version_3_is_read_as_it_was_and_says_nothing_of_what_is_owed() {
    let (header, read) = read(Path::new("tests/data/version-3.parquet")).unwrap();
    let (mut expected, mut all) = with_sockets();
    expected.migrations = true;
    all.extend(events(QUEUES));
    assert_eq!((header.clone(), read.clone()), (expected, all));
    let timeline = Timeline::build(&header, &read);
    let bursts = timeline.threads.iter().flat_map(|t| &t.bursts);
    assert!(bursts.clone().count() > 0 && bursts.clone().all(|b| b.owed.is_none()));
}

#[test]
fn events_of_sockets_say_which_thread_did_them_and_when_in_its_work() {
    let (header, events) = with_sockets();
    let timeline = Timeline::build(&header, &events);
    let by: Vec<_> = timeline.connections[0].events.iter().map(|e| e.by).collect();
    let thread = timeline.threads.iter().position(|t| t.tid == 8).unwrap() as ThreadIx;
    let at = |at_work_ns| {
        Some(Moment {
            thread,
            burst: 0,
            at_work_ns,
        })
    };
    assert_eq!(by, [None, at(20), at(30), at(50)]);
    assert_eq!(timeline.connections[1].events[0].op, SocketOp::Opened);
    let others = timeline.others[0];
    assert_eq!((others.end_ns, others.run_ns, others.cpu), (240, 30, 1));
    assert!(others.wants_more);
}

/// As root, a rename over /dev/null would take its place.
#[test]
fn a_trace_takes_the_place_of_no_device_or_pipe_and_a_link_stays_one() {
    let dir = tempfile::tempdir().unwrap();
    let (header, events) = every_kind();
    let socket = dir.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for taken in [socket.as_path(), dir.path()] {
        let error = TraceWriter::create(taken).err().expect("refused").to_string();
        assert!(
            error.ends_with("allowed: a file, or a name that is free"),
            "{error}"
        );
    }
    let (link, path) = (dir.path().join("link"), dir.path().join("t.parquet"));
    std::fs::write(&path, "").unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    write(&link, &header, &events);
    assert!(link.is_symlink());
    assert_eq!(read(&path).unwrap(), (header, events));
}

#[test]
fn a_trace_that_cannot_be_finished_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    std::fs::write(dir.path().join("t.parquet.partial"), "mine").unwrap();
    let writer = TraceWriter::create(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(writer.finish(&every_kind().0).is_err());
    assert_eq!(
        std::fs::read(dir.path().join("t.parquet.partial")).unwrap(),
        b"mine"
    );
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 2);
}

#[test]
fn a_trace_is_not_read_from_a_pipe() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let expected = expect!["FILE: trace: a device or pipe; allowed: a file: it is read more than once"];
    let error = Trace::read(&path).unwrap_err().to_string();
    expected.assert_eq(&error.replace(&path.display().to_string(), "FILE"));
}

#[test]
fn a_trace_of_several_row_groups_survives_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    let mut header = header("7:a");
    header.clock.end_ns = 1_000_000;
    let events: Vec<Event> = (0..200_000)
        .map(|i| Event {
            ts_ns: i,
            cpu: (i % 2) as u32,
            what: every_kind().1[i as usize % 10].what.clone(),
        })
        .collect();
    write(&path, &header, &events);
    assert_eq!(read(&path).unwrap().1, events);
}

#[test]
fn an_interrupted_recording_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    let mut writer = TraceWriter::create(&path).unwrap();
    writer.push(&every_kind().1[0]).unwrap();
    drop(writer);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn an_empty_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    std::fs::write(&path, "").unwrap();
    check_error(
        &path,
        expect!["FILE: the file is empty; expected a Parquet file written by `plimsoll record`"],
    );
}

#[test]
fn a_foreign_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    std::fs::write(&path, "hello, world").unwrap();
    check_error(
        &path,
        expect![[
            r#"FILE: not a trace: found a file that starts with "hello, w"; expected a Parquet file written by `plimsoll record`"#
        ]],
    );
}

#[test]
fn a_missing_file_is_refused() {
    check_error(
        Path::new("/nonexistent"),
        expect!["FILE: cannot open: No such file or directory (os error 2)"],
    );
}

#[test]
fn a_truncated_file_is_refused_at_every_length() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    let (header, events) = every_kind();
    write(&path, &header, &events);
    let whole = std::fs::read(&path).unwrap();
    for length in (1..whole.len()).step_by(7) {
        std::fs::write(&path, &whole[..length]).unwrap();
        assert!(
            read(&path).is_err(),
            "{length} of {} bytes were taken as a trace",
            whole.len()
        );
    }
    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    assert!(matches!(read(&path), Err(TraceError::Truncated { .. })));
}

#[test]
fn every_damaged_byte_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    let (header, events) = every_kind();
    write(&path, &header, &events);
    let whole = std::fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= [0x01, 0x80, 0xff][at % 3];
        std::fs::write(&path, &damaged).unwrap();
        assert!(
            read(&path).is_err(),
            "byte {at} of {} was changed, and was not noticed",
            whole.len()
        );
    }
}

/// Its checksum is right, as a writer that is wrong would have it.
#[test]
fn a_whole_file_that_cannot_be_decoded_is_damaged_and_does_not_end_early() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    let (header, events) = every_kind();
    write(&path, &header, &events);
    let whole = std::fs::read(&path).unwrap();
    let length = u32::from_le_bytes(whole[whole.len() - 8..whole.len() - 4].try_into().unwrap());
    let footer_at = whole.len() - 8 - length as usize;
    let mut damaged = 0;
    for at in (4..footer_at).step_by(31) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0xff;
        std::fs::write(&path, &bytes).unwrap();
        let Err(TraceError::Value { value, allowed, .. }) = read(&path) else {
            continue;
        };
        let stored = allowed.split(',').next().unwrap().as_bytes();
        let Some(digits_at) = bytes.windows(stored.len()).position(|some| some == stored) else {
            continue;
        };
        bytes[digits_at..digits_at + stored.len()].copy_from_slice(value.as_bytes());
        std::fs::write(&path, &bytes).unwrap();
        match read(&path) {
            Err(TraceError::Damaged { .. }) => damaged += 1,
            Err(error @ TraceError::Truncated { .. }) => panic!("byte {at}: {error}"),
            _ => {}
        }
    }
    assert!(damaged > 0);
}

#[test]
fn a_parquet_file_of_another_program_is_refused() {
    use parquet::file::writer::SerializedFileWriter;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    let schema = parquet::schema::parser::parse_message_type("message m { required int64 x; }").unwrap();
    let file = std::fs::File::create(&path).unwrap();
    SerializedFileWriter::new(file, schema.into(), Default::default())
        .unwrap()
        .close()
        .unwrap();
    check_error(
        &path,
        expect!["FILE: not a trace: found a Parquet file without Plimsoll's metadata; expected a Parquet file written by `plimsoll record`"],
    );
}

#[test]
fn time_that_runs_backwards_is_refused_when_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = TraceWriter::create(&dir.path().join("t.parquet")).unwrap();
    let events = events("100 0 switch 0 R 7\n99 0 switch 7 R 0");
    writer.push(&events[0]).unwrap();
    assert!(matches!(
        writer.push(&events[1]),
        Err(TraceError::ClockBackwards { previous_ns: 100, .. })
    ));
}

fn check_refused(header: &Header, text: &str, expected: Expect) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    write(&path, header, &events(text));
    check_error(&path, expected);
}

#[test]
fn an_event_outside_of_the_recorded_window_is_refused() {
    check_refused(
        &header("7:a"),
        "100 0 switch 0 R 7\n1001 0 switch 7 R 0",
        expect!["FILE: row 1: ts_ns: 1001 ns; allowed: 0 to 1000 ns, the recorded window"],
    );
}

#[test]
fn values_out_of_range_are_refused() {
    check_refused(
        &header("7:a"),
        "100 9000 switch 0 R 7",
        expect!["FILE: row 0: cpu: 9000; allowed: 0 to 8191"],
    );
    check_refused(
        &header("7:a"),
        "100 0 move 7 3",
        expect!["FILE: row 0: group: 3; allowed: below 3, the number of groups in the header"],
    );
    check_refused(
        &header("7:a"),
        "100 0 exit 4000000000",
        expect!["FILE: row 0: tid: -294967296; allowed: 0 to 4194304"],
    );
}

#[test]
fn sockets_that_cannot_be_are_refused() {
    let with = |change: fn(&mut Header)| {
        let mut header = with_sockets().0;
        change(&mut header);
        header
    };
    let of = |header: &Header, text: &str, expected: Expect| check_refused(header, text, expected);
    of(
        &with(|_| {}),
        "100 0 socket 7 6 read 1",
        expect!["FILE: row 0: connection: 6; allowed: the id of one of the 2 connections in the header"],
    );
    of(
        &with(|_| {}),
        "100 0 others 3 1 R",
        expect!["FILE: row 0: group: 3; allowed: below 3, the number of groups in the header"],
    );
    of(
        &with(|h| h.sockets.recorded = false),
        "",
        expect!["FILE: header: sockets.connections: 2; allowed: none where sockets.recorded is false"],
    );
    fn process(tgid: u32, go: &str) -> Process {
        Process { tgid, go: go.into() }
    }
    of(
        &with(|h| h.processes = vec![process(4, "go1.25"), process(5, "")]),
        "",
        expect!["FILE: header: processes.go of process 5: 0 bytes; allowed: 1 to 64 bytes"],
    );
    of(
        &with(|h| h.processes = vec![process(1 << 23, "go1.25")]),
        "",
        expect!["FILE: header: processes.tgid: 8388608; allowed: 0 to 4194304"],
    );
    of(
        &with(|h| h.recorder_event_ns = 1_000_001),
        "",
        expect!["FILE: header: recorder_event_ns: 1000001; allowed: 0 to 1000000"],
    );
    of(
        &with(|h| h.sockets.connections.push(connection(5))),
        "",
        expect!["FILE: header: sockets.connections.id: 5, a second time; allowed: each id once"],
    );
    of(
        &with(|h| h.sockets.connections[0].id = 1 << 63),
        "",
        expect![
            "FILE: header: sockets.connections.id: 9223372036854775808; allowed: 0 to 9223372036854775807"
        ],
    );
    of(
        &with(|h| h.sockets.connections[0].peer = Some(5)),
        "",
        expect!["FILE: header: sockets.connections.peer of connection 5: 5; allowed: the id of another connection of the header, or null"],
    );
    of(
        &with(|h| h.sockets.connections[0].group = Some(3)),
        "",
        expect!["FILE: header: sockets.connections.group of connection 5: 3; allowed: below 3, the number of groups, or null"],
    );
}

#[test]
fn values_of_the_header_out_of_range_are_refused() {
    let with = |change: fn(&mut Header)| {
        let mut header = header("7:a:1");
        change(&mut header);
        header
    };
    check_refused(
        &with(|h| h.machine.hz = Some(0)),
        "",
        expect!["FILE: header: machine.hz: 0; allowed: 24 to 10000, or null"],
    );
    check_refused(
        &with(|h| h.groups[1].quota_us = Some(999)),
        "",
        expect!["FILE: header: groups.quota_us of /a: 999; allowed: 1000 to 17592186044415, or null"],
    );
    check_refused(
        &with(|h| h.groups[1].period_us = Some(0)),
        "",
        expect!["FILE: header: groups.period_us of /a: 0; allowed: 1000 to 1000000, or null"],
    );
    check_refused(
        &with(|h| h.groups[1].burst_us = Some(1 << 44)),
        "",
        expect!["FILE: header: groups.burst_us of /a: 17592186044416; allowed: 0 to 17592186044415, or null"],
    );
    check_refused(
        &with(|h| h.groups[1].weight = Some(10_001)),
        "",
        expect!["FILE: header: groups.weight of /a: 10001; allowed: 0 to 10000, or null"],
    );
    check_refused(
        &with(|h| h.request = Some("thread:web".into())),
        "",
        expect![[
            r#"FILE: header: request: "thread:web"; allowed: comm:GLOB, tid:NUMBER, client:GLOB, process:GLOB, uprobe:FILE:BEGIN_FUNCTION:END_FUNCTION or usdt:FILE:PROVIDER:BEGIN_PROBE:END_PROBE"#
        ]],
    );
}

#[test]
fn values_of_the_header_that_kernels_show_are_taken() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    let mut header = header("7:a:1");
    // Of groups with and without a limit; the last one with cpu.idle 1.
    for (quota_us, period_us, burst_us, weight) in [
        (None, None, None, None),
        (None, Some(100_000), Some(0), Some(1)),
        (None, Some(1_000_000), Some(50_000), Some(10_000)),
        (Some(1_000), Some(1_000), Some(1_000), Some(100)),
        (Some((1 << 44) - 1), Some(1_000_000), None, Some(0)),
    ] {
        header.groups.push(Group {
            path: format!("/{}", header.groups.len()),
            quota_us,
            period_us,
            burst_us,
            weight,
            ..Default::default()
        });
    }
    for hz in [None, Some(24), Some(1000), Some(1024)] {
        header.machine.hz = hz;
        header.request = hz.map(|hz| format!("tid:{hz}"));
        write(&path, &header, &[]);
        assert_eq!(read(&path).unwrap().0, header);
    }
}

#[test]
fn a_header_that_contradicts_itself_is_refused() {
    let mut bad = header("7:a:9");
    check_refused(
        &bad,
        "",
        expect!["FILE: header: threads.group of thread 7: 9; allowed: below 3, the number of groups"],
    );
    bad = header("7:a");
    bad.clock.start_ns = 2000;
    check_refused(
        &bad,
        "",
        expect!["FILE: header: clock.end_ns: 1000; allowed: at least clock.start_ns, 2000"],
    );
    bad = header("7:a");
    bad.clock.end_ns = i64::MAX;
    check_refused(
        &bad,
        "",
        expect!["FILE: header: clock.end_ns: 9223372036854775807; allowed: at most 90000000000000 after clock.start_ns, 0"],
    );
}
