// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records a known load on the kernel at hand. Where BPF is not permitted, the tests say so and do nothing.
#[macro_use]
mod common;

use common::{named, read, record_into, recorded, TestGroup};
use plimsoll_record::{record, sample, Options, RecordError};
use plimsoll_trace::{Cause, End, ThreadTimeline, Timeline, TraceError, TraceReader, What};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn thread<'a>(timeline: &'a Timeline, comm: &str) -> &'a ThreadTimeline {
    timeline
        .threads
        .iter()
        .find(|t| t.comm == comm)
        .unwrap_or_else(|| panic!("no thread {comm}"))
}

fn burn(time: Duration) {
    let start = thread_time();
    while thread_time() - start < time {
        std::hint::black_box(0);
    }
}

fn thread_time() -> Duration {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes to `t`.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

#[test]
fn a_duty_cycle_is_seen_as_timer_woken_bursts_of_its_work() {
    let load = || {
        named("plim-duty", || {
            for _ in 0..20 {
                burn(Duration::from_millis(3));
                std::thread::sleep(Duration::from_millis(10));
            }
        })
        .join()
        .unwrap()
    };
    // Some kernels raise no tracepoint while certain threads run. Of few switches that may be too many: the trace is refused, and
    // recorded once more.
    let trusted = |timeline: &Timeline| {
        timeline
            .quality
            .check(&plimsoll_trace::Place::whole("t".as_ref()), 0.01)
    };
    let mut last = None;
    for _ in 0..3 {
        let Some(found) = recorded(None, None, load) else {
            return;
        };
        let refused = trusted(&found.2).is_err();
        last = Some(found);
        if !refused {
            break;
        }
    }
    let (report, header, timeline) = last.expect("it is recorded at least once");
    trusted(&timeline).unwrap();
    assert_eq!(header.source, "bpf");
    assert_eq!(report.lost, 0);
    let duty = thread(&timeline, "plim-duty");
    let timer: Vec<_> = duty.bursts.iter().filter(|b| b.cause == Cause::Timer).collect();
    let unseen = duty.bursts.iter().filter(|b| b.cause == Cause::Unseen).count();
    // Now and then a kernel calls no probe for an event, as `Report::mended` says of switches.
    assert!(
        timer.len() + unseen == 20 && unseen <= 1,
        "20 sleeps end in 20 wake-ups by a timer: {:?}",
        duty.bursts
    );
    let mut work: Vec<i64> = timer[..18].iter().map(|b| b.work_ns).collect();
    work.sort();
    assert!(
        (3_000_000..3_500_000).contains(&work[9]),
        "median work of a 3 ms burst: {} ns",
        work[9]
    );
    assert_eq!(duty.bursts.last().unwrap().end, End::Exit);
}

/// Each request of 100 wakes the server; a few may find it running.
fn assert_wakes(timeline: &Timeline, client: &str, server: &str, at_least: usize) {
    let by = timeline.threads.iter().position(|t| t.comm == client).unwrap() as u32;
    let server = thread(timeline, server);
    let caused = server
        .bursts
        .iter()
        .filter(|b| matches!(b.cause, Cause::Thread { thread, .. } if thread == by));
    assert!(caused.count() >= at_least, "{:?}", server.bursts);
}

#[test]
fn a_ping_pong_is_seen_as_a_chain_of_cause_and_effect() {
    let load = || {
        let (mut a, mut b) = UnixStream::pair().unwrap();
        let server = named("plim-pong", move || {
            let mut byte = [0];
            while b.read(&mut byte).unwrap() == 1 {
                burn(Duration::from_micros(200));
                b.write_all(&byte).unwrap();
            }
        });
        named("plim-ping", move || {
            for _ in 0..100 {
                // Without a pause the next request is there before the server asks for it, and no thread blocks.
                std::thread::sleep(Duration::from_millis(1));
                a.write_all(&[1]).unwrap();
                a.read_exact(&mut [0]).unwrap();
            }
        })
        .join()
        .unwrap();
        server.join().unwrap();
    };
    let Some((_, _, timeline)) = recorded(None, None, load) else {
        return;
    };
    assert_wakes(&timeline, "plim-ping", "plim-pong", 95);
}

/// A timer whose beginning was seen, but not its end, once made every later soft interrupt of that CPU a timer's. Whether
/// one runs as the program is attached is chance: hence several recordings.
#[test]
fn answers_over_loopback_are_the_servers_and_not_a_timers() {
    let load = || {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = named("plim-server", move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut byte = [0];
            while stream.read(&mut byte).unwrap() == 1 {
                stream.write_all(&byte).unwrap();
            }
        });
        named("plim-client", move || {
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            stream.set_nodelay(true).unwrap();
            for _ in 0..100 {
                std::thread::sleep(Duration::from_millis(1));
                stream.write_all(&[1]).unwrap();
                stream.read_exact(&mut [0]).unwrap();
            }
        })
        .join()
        .unwrap();
        server.join().unwrap();
    };
    for _ in 0..8 {
        let Some((_, _, timeline)) = recorded(None, None, load) else {
            return;
        };
        assert_wakes(&timeline, "plim-client", "plim-server", 90);
    }
}

/// Shells that make and wait for one process after the other, on all CPUs at once, as a compilation does.
const STORM: usize = 960;

fn storm_of_processes() {
    let shells: Vec<_> = (0..4)
        .map(|_| {
            let each = STORM / 4;
            std::process::Command::new("sh")
                .args([
                    "-c",
                    &format!("i=0; while [ $i -lt {each} ]; do /bin/true; i=$((i+1)); done"),
                ])
                .spawn()
                .unwrap()
        })
        .collect();
    for mut shell in shells {
        assert!(shell.wait().unwrap().success());
    }
}

#[test]
fn every_switch_of_a_storm_of_processes_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("t.parquet");
    let Some(report) = record_into(&output, None, None, storm_of_processes) else {
        return;
    };
    assert_eq!(report.lost, 0);
    assert!(
        report.bpf_ns.is_some_and(|ns| ns > 0),
        "the kernel measures BPF since 5.8"
    );
    let mut reader = TraceReader::open(&output).unwrap();
    let mut running = std::collections::HashMap::new();
    let (mut forks, mut exits) = (0, 0);
    let mut events = Vec::new();
    while reader.read_group(&mut events).unwrap() {
        for event in events.drain(..) {
            match event.what {
                What::Switch { prev, next, .. } => {
                    if let Some(last) = running.insert(event.cpu, next) {
                        assert_eq!(last, prev, "what leaves CPU {} is what ran there", event.cpu);
                    }
                }
                What::Fork { .. } => forks += 1,
                What::Exit { .. } => exits += 1,
                _ => {}
            }
        }
    }
    assert!(
        forks >= STORM && exits >= STORM,
        "{forks} forks and {exits} exits of {STORM} processes"
    );
    let (_, timeline) = read(&output);
    // Wake-ups by threads for which this kernel raises no events are all that may be missing.
    assert!(
        timeline.quality.doubtful_share() < 0.002,
        "{:?}",
        timeline.quality
    );
    let short = timeline.threads.iter().filter(|t| t.comm == "true");
    let (whole, rest): (Vec<_>, Vec<_>) = short.partition(|t| {
        t.bursts.last().is_some_and(|b| b.end == End::Exit)
            && t.bursts
                .first()
                .is_some_and(|b| matches!(b.cause, Cause::Fork { .. }))
    });
    assert!(
        whole.len() >= STORM,
        "{} of {STORM} processes from fork to exit; not {rest:?}",
        whole.len()
    );
}

#[test]
fn a_probe_marks_the_start_and_end_of_each_request() {
    let program = std::env::current_exe().unwrap();
    let spec = format!(
        "uprobe:{}:plimsoll_test_begin:plimsoll_test_end",
        program.display()
    );
    let load = || {
        for _ in 0..7 {
            plimsoll_test_begin();
            burn(Duration::from_micros(100));
            plimsoll_test_end();
        }
    };
    let Some((_, header, timeline)) = recorded(Some(spec.parse().unwrap()), None, load) else {
        return;
    };
    assert_eq!(header.request.as_deref(), Some(spec.as_str()));
    let marks: Vec<bool> = timeline
        .threads
        .iter()
        .flat_map(|t| &t.requests)
        .map(|r| r.1)
        .collect();
    assert_eq!(marks, [true, false].repeat(7));
}

#[no_mangle]
#[inline(never)]
extern "C" fn plimsoll_test_begin() {
    std::hint::black_box(1);
}

#[no_mangle]
#[inline(never)]
extern "C" fn plimsoll_test_end() {
    std::hint::black_box(2);
}

#[test]
fn a_group_is_recorded_alone_with_its_limits_and_moves_are_seen() {
    let Some(group) = TestGroup::new(&format!("plimsoll-test-{}", std::process::id())) else {
        return;
    };
    let procs = group.0.join("cgroup.procs");
    let load = move || {
        let start = Instant::now();
        let mut child = std::process::Command::new("sh")
            .args([
                "-c",
                "sleep 0.1; i=0; while [ $i -lt 20 ]; do sleep 0.005; i=$((i+1)); done",
            ])
            .spawn()
            .unwrap();
        std::fs::write(&procs, child.id().to_string()).unwrap();
        child.wait().unwrap();
        assert!(start.elapsed() < Duration::from_secs(20));
    };
    let Some((report, header, timeline)) = recorded(None, Some(group.1.clone()), load) else {
        return;
    };
    assert_eq!(
        header.only_below.as_deref(),
        Some(format!("/{}", group.1).as_str())
    );
    assert_eq!(report.lost, 0);
    let ix = header
        .groups
        .iter()
        .position(|g| g.path == format!("/{}", group.1))
        .unwrap() as u32;
    assert!(header.groups[ix as usize].period_us.is_some());
    assert!(
        header.threads.iter().all(|t| t.group == Some(ix)),
        "{:?}",
        header.threads
    );
    // The shell and its twenty sleeps, all made inside the group.
    let sleeps = timeline.threads.iter().filter(|t| t.comm == "sleep").count();
    assert!(sleeps >= 20, "{sleeps}");
    assert!(timeline.threads.iter().any(|t| t.comm == "sh"));
}

/// As a service that is restarted: the same path, another group.
#[test]
fn a_group_that_is_made_again_while_recording_keeps_both_its_lives() {
    let name = format!("plimsoll-again-{}", std::process::id());
    let Some(group) = TestGroup::new(&name) else {
        return;
    };
    let dir = group.0.clone();
    let load = move || {
        for life in 0..2 {
            if life > 0 {
                std::fs::remove_dir(&dir).unwrap();
                std::fs::create_dir(&dir).unwrap();
            }
            // The `sleep` is born in the group.
            let script = format!("echo $$ > {}/cgroup.procs; sleep 0.05; exit 0", dir.display());
            let mut shell = std::process::Command::new("sh");
            assert!(shell.args(["-c", &script]).status().unwrap().success());
        }
    };
    let Some((_, header, _)) = recorded(None, None, load) else {
        return;
    };
    let path = format!("/{name}");
    let ix = header.groups.iter().position(|g| g.path == path).unwrap() as u32;
    let born = header
        .threads
        .iter()
        .filter(|t| t.comm == "sleep" && t.group == Some(ix));
    assert_eq!(born.count(), 2, "{:?}", header.threads);
}

#[test]
fn a_group_that_is_made_and_removed_while_recording_has_its_limits() {
    let name = format!("plimsoll-job-{}", std::process::id());
    let job = name.clone();
    let load = move || {
        let Some(group) = TestGroup::new(&job) else { return };
        let (v1, v2) = (group.0.join("cpu.cfs_quota_us"), group.0.join("cpu.max"));
        if v1.exists() {
            std::fs::write(v1, "50000").unwrap();
        } else {
            std::fs::write(v2, "50000 100000").unwrap();
        }
        // Some rounds of the reader.
        let script = format!("echo $$ > {}/cgroup.procs; sleep 0.5; exit 0", group.0.display());
        let mut shell = std::process::Command::new("sh");
        assert!(shell.args(["-c", &script]).status().unwrap().success());
    };
    let Some((_, header, _)) = recorded(None, None, load) else {
        return;
    };
    let path = format!("/{name}");
    let Some(group) = header.groups.iter().find(|g| g.path == path) else {
        skipped!("no group was made");
        return;
    };
    assert_eq!((group.quota_us, group.period_us), (Some(50_000), Some(100_000)));
}

#[test]
fn statistics_are_sampled_without_bpf() {
    let Some(group) = TestGroup::new(&format!("plimsoll-sample-{}", std::process::id())) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("t.parquet");
    let report = sample(
        Some(&group.1),
        Duration::from_millis(10),
        Duration::from_millis(200),
        &output,
        || false,
        |_| (),
    )
    .unwrap();
    assert_eq!(report.groups, 1);
    assert!((2..=21).contains(&report.samples), "{report:?}");
    let mut reader = TraceReader::open(&output).unwrap();
    let mut events = Vec::new();
    while reader.read_group(&mut events).unwrap() {}
    assert_eq!(events.len() as u64, report.samples);
    assert_eq!(reader.header().source, "cgroup-stat");
}

#[test]
fn a_group_that_is_made_again_is_sampled_as_another_one() {
    let Some(top) = TestGroup::new(&format!("plimsoll-sampled-again-{}", std::process::id())) else {
        return;
    };
    let path = top.0.join("service");
    std::fs::create_dir(&path).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("t.parquet");
    // Asked once a round.
    let mut rounds = 0;
    let report = sample(
        Some(&top.1),
        Duration::from_millis(10),
        Duration::from_secs(60),
        &output,
        || {
            rounds += 1;
            if rounds == 5 {
                std::fs::remove_dir(&path).unwrap();
                std::fs::create_dir(&path).unwrap();
            }
            rounds == 12
        },
        |_| (),
    )
    .unwrap();
    std::fs::remove_dir(&path).unwrap();
    assert_eq!(report.groups, 3);
    let mut reader = TraceReader::open(&output).unwrap();
    let mut samples = [0; 3];
    let mut events = Vec::new();
    while reader.read_group(&mut events).unwrap() {
        for event in events.drain(..) {
            if let What::Sample { group, .. } = event.what {
                samples[group as usize] += 1;
            }
        }
    }
    let service = format!("/{}/service", top.1);
    assert_eq!(reader.header().groups[1].path, service);
    assert_eq!(reader.header().groups[2].path, service);
    // A round finds that the first is gone, the next one finds the second.
    assert_eq!(samples, [12, 5, 6]);
}

#[test]
fn lost_events_are_counted_placed_and_make_the_trace_untrustworthy() {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("t.parquet");
    // One page: no batch fits, so that every event is lost.
    let options = Options {
        cgroup: None,
        duration: Duration::from_millis(300),
        output: output.clone(),
        request: None,
        ring_bytes: 4096,
    };
    // Until recording has ended: on a busy machine it takes a while to begin.
    let ended = Arc::new(AtomicBool::new(false));
    let until = ended.clone();
    let load = named("plim-loss", move || {
        let (mut a, mut b) = UnixStream::pair().unwrap();
        let echo = std::thread::spawn(move || {
            let mut byte = [0];
            while b.read(&mut byte).unwrap() == 1 {
                b.write_all(&byte).unwrap();
            }
        });
        while !until.load(Relaxed) {
            a.write_all(&[1]).unwrap();
            a.read_exact(&mut [0]).unwrap();
        }
        drop(a);
        echo.join().unwrap();
    });
    let done = record(&options, || false, |_| ());
    ended.store(true, Relaxed);
    load.join().unwrap();
    let report = match done {
        Ok(report) => report,
        Err(RecordError::Unsupported { missing, .. }) => {
            skipped!("{missing}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    assert!(report.lost >= 512, "{report:?}");
    let (header, timeline) = read(&output);
    let counted: u64 = header.losses.iter().map(|l| l.count.unwrap()).sum();
    assert_eq!(counted, report.lost);
    for loss in header.losses.iter() {
        assert!(
            loss.from_ns <= loss.to_ns && loss.to_ns <= header.clock.end_ns,
            "{loss:?}"
        );
    }
    let place = plimsoll_trace::Place::whole("t".as_ref());
    assert!(timeline
        .quality
        .check(&place, plimsoll_trace::DOUBTFUL_SHARE_MAX)
        .is_err());
}

#[test]
fn a_recording_that_cannot_be_kept_ends_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("folder");
    std::fs::create_dir(&folder).unwrap();
    let options = Options {
        cgroup: None,
        duration: Duration::from_secs(60),
        output: folder.join("t"),
        request: None,
        ring_bytes: 1 << 20,
    };
    let mut load: Option<std::thread::JoinHandle<()>> = None;
    let mut rounds_after = 0;
    let stopped = || match &load {
        None => {
            // In place of a full disk: no file can be made for the events.
            std::fs::remove_dir_all(&folder).unwrap();
            load = Some(named("plim-full", storm_of_processes));
            false
        }
        Some(load) => {
            rounds_after += load.is_finished() as u32;
            rounds_after > 10
        }
    };
    match record(&options, stopped, |_| ()) {
        Err(RecordError::Trace(TraceError::Io { .. })) => assert!(rounds_after <= 1, "{rounds_after}"),
        Err(RecordError::Unsupported { missing, .. }) => skipped!("{missing}"),
        other => panic!("{other:?}"),
    }
    if let Some(load) = load {
        load.join().unwrap();
    }
}

/// Loading takes a tenth of a second of CPU time, for which a thread of the same rank waits seconds here.
#[test]
fn recording_begins_and_ends_soon_beside_tasks_that_spin() {
    let ended = Arc::new(AtomicBool::new(false));
    let spinners: Vec<_> = (0..40)
        .map(|_| {
            let until = ended.clone();
            named("plim-spin", move || while !until.load(Relaxed) {})
        })
        .collect();
    let done = recorded(None, None, || ());
    ended.store(true, Relaxed);
    for spinner in spinners {
        spinner.join().unwrap();
    }
    let Some((report, ..)) = done else { return };
    assert!(report.begin_ns < 2_000_000_000, "{report:?}");
    assert!(report.detach_ns < 2_000_000_000, "{report:?}");
}

#[test]
fn a_group_that_does_not_exist_is_refused_by_name() {
    let options = Options {
        cgroup: Some("no-such-group".into()),
        duration: Duration::from_secs(1),
        output: "/nonexistent/t".into(),
        request: None,
        ring_bytes: 1 << 20,
    };
    match record(&options, || true, |_| ()) {
        Err(RecordError::Input {
            field: "cgroup",
            value,
            ..
        }) => {
            assert!(value.starts_with("\"no-such-group\": there is no /"), "{value}");
            assert!(value.ends_with("/no-such-group"), "{value}");
        }
        Err(RecordError::Unsupported { missing, .. }) => skipped!("{missing}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_script_cannot_be_probed_and_is_said_to_be_one() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("wrapper");
    std::fs::write(&script, "#!/bin/sh\n").unwrap();
    let options = Options {
        cgroup: None,
        duration: Duration::from_secs(1),
        output: dir.path().join("t"),
        request: Some(format!("uprobe:{}:a:b", script.display()).parse().unwrap()),
        ring_bytes: 1 << 20,
    };
    match record(&options, || true, |_| ()) {
        Err(RecordError::Input {
            field: "request",
            value,
            ..
        }) => {
            assert_eq!(value, format!("{}: not an ELF file", script.display()));
        }
        Err(RecordError::Unsupported { missing, .. }) => skipped!("{missing}"),
        other => panic!("{other:?}"),
    }
    assert!(
        !options.output.exists(),
        "nothing is left of a recording that did not begin"
    );
}
