// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One recording with BPF, from loading the program to the finished file.
use crate::cgroup::Hierarchy;
use crate::connections::{processes, Connections};
use crate::datagrams::{any_socket, Datagrams};
use crate::error::RecordError;
use crate::finished::{spool_failed, Finished, Kept};
use crate::machine;
use crate::measured::Measured;
use crate::names::Names;
use crate::probes::{Probes, Settings};
use crate::recordable;
use crate::sink::Sink;
use crate::spool::Spool;
use crate::stage::Stage;
use crate::streams::Streams;
use crate::urgent::{be_prompt, Urgent};
use crate::wire;
use plimsoll_trace::{Loss, RequestSpec, TraceWriter, EVENTS_MAX, HEADER_MAX};
use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often the ring buffer is emptied. 16 MiB hold 2,000 batches, 1 million events: enough for 10 million events a
/// second between two rounds.
const POLL: Duration = Duration::from_millis(100);

/// Measuring a BPF program makes each of its runs about a third longer (docs/src/reference/record.md), so it is done at
/// the beginning of the recording only: for this share of it, and for at least so long.
const MEASURE_SHARE: i64 = 50;
const MEASURE_MIN: Duration = Duration::from_millis(200);

/// Packets are looked at for so long, whether a connection is HTTP/2 or not: to begin and to end that is not free.
const LOOK_MIN_NS: i64 = 200_000_000;

pub struct Options {
    /// Record only this group and those below it: a path below the cpu controller's hierarchy.
    pub cgroup: Option<String>,
    pub duration: Duration,
    pub output: PathBuf,
    pub request: Option<RequestSpec>,
    /// Size of the ring buffer, bytes; a power of two.
    pub ring_bytes: u32,
}

/// What was recorded, and what it cost.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub duration_ns: u64,
    /// It ended early: a trace holds no more events ([`EVENTS_MAX`]), or threads and groups ([`HEADER_MAX`]).
    pub full: bool,
    pub cpus: u32,
    pub events: u64,
    pub switches: u64,
    pub wakeups: u64,
    /// Connections that recorded threads used, and what was seen of them.
    pub connections: u64,
    pub socket_events: u64,
    /// Connections of HTTP/2 whose streams are told apart: as many of `connections` stand for one of these as it had streams at a time.
    pub with_streams: u64,
    /// Accepted connections that are encrypted and may be HTTP/2, whose streams are not told apart.
    pub sealed: u64,
    /// Why sockets were not recorded, if they were not.
    pub without_sockets: Option<String>,
    pub threads: u64,
    pub groups: u64,
    /// Groups made and gone while recording, so soon that their limits could not be read: the trace says they had none.
    pub limits_unknown: u64,
    pub lost: u64,
    /// Of those, how many the kernel gave to no program, as the one for them was under way on that CPU.
    pub missed: u64,
    /// Switches that the kernel raised no event for, found by what ran next on that CPU. They are among `switches`.
    pub mended: u64,
    pub file_bytes: u64,
    /// Time in the BPF programs while recording: measured for `measured_ns`, the rest in proportion to the events.
    /// `None` if the kernel does not measure it.
    pub bpf_ns: Option<u64>,
    /// Runs of BPF programs while they were measured, and what one took.
    pub bpf_runs: u64,
    pub bpf_run_ns: u64,
    /// How long they were measured.
    pub measured_ns: u64,
    /// CPU time of this process while recording.
    pub reader_ns: u64,
    /// CPU time to sort and encode the trace, after recording ended.
    pub encode_ns: u64,
    /// From the call to where recording began: loading, attaching, a look at all groups.
    pub begin_ns: u64,
    /// When recording began, since 1970.
    pub begin_unix_ns: i64,
    /// To detach, after recording ended.
    pub detach_ns: u64,
}

impl Report {
    /// Share of the machine that recording took while it went on.
    pub fn overhead(&self) -> Option<f64> {
        let machine_ns = self.duration_ns as f64 * self.cpus as f64;
        Some((self.bpf_ns? + self.reader_ns) as f64 / machine_ns)
    }
}

/// Records until `options.duration` has passed, `stopped` says so or a trace could not hold more. `progress` is told when
/// recording begins, and then how far it is, a few times a second.
pub fn record(
    options: &Options,
    stopped: impl FnMut() -> bool,
    progress: impl FnMut(Stage),
) -> Result<Report, RecordError> {
    let room = Room {
        events: EVENTS_MAX,
        header_bytes: HEADER_MAX,
    };
    record_up_to(room, options, stopped, progress)
}

/// What a trace can hold.
struct Room {
    events: u64,
    header_bytes: u64,
}

fn record_up_to(
    room: Room,
    options: &Options,
    mut stopped: impl FnMut() -> bool,
    mut progress: impl FnMut(Stage),
) -> Result<Report, RecordError> {
    let called_ns = clock_ns(libc::CLOCK_MONOTONIC);
    if !cfg!(target_arch = "x86_64") {
        return Err(RecordError::Unsupported {
            what: "recording threads",
            missing: format!(
                "the recorder's BPF programs are for x86-64, and this is a build for {}; --sample, which needs none, is possible",
                std::env::consts::ARCH
            ),
        });
    }
    let urgent = Urgent::begin();
    let hierarchy = Hierarchy::find()?;
    let only_below = options
        .cgroup
        .as_deref()
        .map(|name| hierarchy.resolve(name))
        .transpose()?;
    if let Some(path) = &only_below {
        hierarchy.require_cpu(path)?;
    }
    let only_below_id = match &only_below {
        // It may be gone since it was resolved.
        Some(path) => hierarchy.id_of(path).ok_or_else(|| RecordError::Input {
            field: "cgroup",
            value: format!("{path:?}, which is gone"),
            allowed: "a group that stays while it is recorded".into(),
        })?,
        None => 0,
    };
    if let Some(request) = &options.request {
        recordable::check(request, only_below.as_deref(), &hierarchy)?;
    }
    // The output is made first: that it cannot be written has to be said before 30 s of recording.
    let writer = TraceWriter::create(&options.output)?;
    let mut machine = machine::read();
    machine.cgroup_version = Some(hierarchy.version);
    let cpus: Vec<u32> = machine.cpus.iter().map(|c| c.cpu).collect();

    let settings = Settings {
        only_below_id,
        cpu_hierarchy_id: hierarchy.id,
        ring_bytes: options.ring_bytes,
    };
    let mut storage = [const { MaybeUninit::uninit() }; 5];
    let mut probes = Probes::load(&mut storage, &settings)?;
    be_prompt();

    let dir = options
        .output
        .parent()
        .filter(|d| !d.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let sink = RefCell::new(Sink {
        hierarchy: &hierarchy,
        spool: Spool::new(dir.to_path_buf()),
        names: Names::new(&hierarchy),
        connections: Connections::new(&hierarchy, only_below.as_deref()),
        datagrams: Datagrams::default(),
        streams: Streams::default(),
        start_ns: 0,
        error: None,
        events: 0,
    });
    let drain = probes.drain_into(|bytes| sink.borrow_mut().take(bytes))?;

    probes.attach(
        options.request.as_ref(),
        || any_socket(&processes(&hierarchy, only_below.as_deref())),
        hierarchy.packets(only_below.as_deref().unwrap_or("/")).as_deref(),
    )?;
    let wall_start_ns = clock_ns(libc::CLOCK_REALTIME);
    let start_ns = clock_ns(libc::CLOCK_MONOTONIC);
    let cpu_start_ns = clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID);
    sink.borrow_mut().start_ns = start_ns;
    let missed_before = probes.missed();
    visit(&cpus);
    if let Some(path) = &only_below {
        sink.borrow_mut().names.begins(&hierarchy, path);
    }
    drop(urgent);
    progress(Stage::Begins);
    let length_ns = options.duration.as_nanos() as i64;
    // What may still come when the end is decided: what was in the ring, what came while it was emptied, and what the
    // CPUs have not sent.
    let unsent_max =
        2 * options.ring_bytes as u64 / wire::EVENT as u64 + (cpus.len() * wire::BATCH_EVENTS) as u64;
    let mut full = false;
    let mut look_until_ns = start_ns + LOOK_MIN_NS;
    let mut measured: Option<Measured> = None;
    loop {
        let now_ns = clock_ns(libc::CLOCK_MONOTONIC);
        if measured.is_none()
            && now_ns - start_ns >= (length_ns / MEASURE_SHARE).max(MEASURE_MIN.as_nanos() as i64)
        {
            drain.run()?;
            measured = Some(Measured::now(&mut probes, &sink, now_ns - start_ns)?);
        }
        let left_ns = start_ns + length_ns - now_ns;
        progress(Stage::Recorded(
            (1.0 - left_ns as f64 / length_ns as f64).clamp(0.0, 1.0),
        ));
        if left_ns <= 0 || stopped() {
            break;
        }
        std::thread::sleep(POLL.min(Duration::from_nanos(left_ns as u64)));
        drain.run()?;
        sink.borrow_mut().names.look(&hierarchy);
        let now_ns = clock_ns(libc::CLOCK_MONOTONIC);
        if sink.borrow_mut().streams.need_packets(now_ns) {
            look_until_ns = now_ns + LOOK_MIN_NS;
        }
        // Refused: the connections that are new are taken as they were.
        probes.look_at_packets(now_ns < look_until_ns);
        full = sink.borrow().rows() + unsent_max > room.events
            || sink.borrow().header_bytes() > room.header_bytes;
        // After an error nothing will be kept: there is nothing to wait for.
        if full || sink.borrow().error.is_some() {
            break;
        }
    }
    let urgent = Urgent::begin();
    visit(&cpus);
    let end_ns = clock_ns(libc::CLOCK_MONOTONIC);
    if let Some(path) = &only_below {
        sink.borrow_mut().names.ends(&hierarchy, path);
    }
    let reader_ns = (clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID) - cpu_start_ns) as u64;
    let measured = match measured {
        Some(measured) => measured,
        None => {
            drain.run()?;
            Measured::now(&mut probes, &sink, end_ns - start_ns)?
        }
    };
    let detach_start_ns = clock_ns(libc::CLOCK_MONOTONIC);
    probes.detach();
    let detach_ns = clock_ns(libc::CLOCK_MONOTONIC) - detach_start_ns;
    drain.run()?;
    for unsent in probes.unsent()? {
        sink.borrow_mut().take_unsent(&unsent, end_ns);
    }
    drop(drain);
    drop(urgent);

    let encode_start_ns = clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID);
    let rows = sink.borrow().rows();
    let Sink {
        mut spool,
        names,
        mut connections,
        datagrams,
        streams,
        error,
        events,
        ..
    } = sink.into_inner();
    if let Some(source) = error {
        return Err(spool_failed(dir, source).into());
    }
    let (flows, used) = datagrams.finish();
    connections.add_flows(flows);
    spool.singles.extend(used);
    let sealed = streams.sealed(&connections);
    streams.secure(&mut connections);
    let (told, sent) = streams.finish(&mut connections);
    spool.singles.extend(sent);
    // Rare records that found the ring full, and events that the kernel withheld.
    let missed = probes.missed() - missed_before;
    for lost in [probes.singles_lost(), missed]
        .into_iter()
        .filter(|&lost| lost > 0)
    {
        spool.losses.push(Loss {
            cpu: None,
            from_ns: start_ns,
            to_ns: end_ns,
            count: Some(lost),
        });
    }
    // Batches still come while the probes are detached; their events are left out, and so is the time.
    for loss in &mut spool.losses {
        loss.from_ns = loss.from_ns.min(end_ns);
        loss.to_ns = loss.to_ns.min(end_ns);
    }
    machine.hz = probes.hz().or(machine.hz);
    let finished = Finished {
        machine,
        only_below,
        start_ns,
        end_ns,
        wall_start_ns,
        without_sockets: probes.without_sockets().map(String::from),
        recorder_event_ns: measured.event_ns(),
        has_datagrams: probes.has_datagrams(),
        has_streams: probes.has_streams(),
        sealed,
    };
    let kept = Kept {
        spool,
        names,
        connections,
        told,
        rows,
    };
    let mut report = finished.write(options, writer, &hierarchy, kept, |share| {
        progress(Stage::Writing(share))
    })?;
    report.full = full;
    report.cpus = cpus.len() as u32;
    report.missed = missed;
    report.mended = probes.switches_mended();
    measured.put_into(&mut report, events);
    report.reader_ns = reader_ns;
    report.begin_ns = (start_ns - called_ns) as u64;
    report.begin_unix_ns = wall_start_ns;
    report.detach_ns = detach_ns as u64;
    report.encode_ns = (clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID) - encode_start_ns) as u64;
    Ok(report)
}

/// Runs on each CPU for a moment, so that each switches once: a thread that spins alone on a CPU would
/// otherwise not be seen.
fn visit(cpus: &[u32]) {
    // SAFETY: `cpu_set_t` is plain data, the calls read and write this thread's own mask.
    unsafe {
        let size = std::mem::size_of::<libc::cpu_set_t>();
        let mut before: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size, &mut before) != 0 {
            return;
        }
        for &cpu in cpus.iter().filter(|&&cpu| (cpu as usize) < size * 8) {
            let mut one: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu as usize, &mut one);
            libc::sched_setaffinity(0, size, &one);
        }
        libc::sched_setaffinity(0, size, &before);
    }
}

pub(crate) fn clock_ns(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes to `time`; the clocks used here always exist.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_that_a_trace_cannot_hold_ends_early_and_is_kept() {
        let unsent_max =
            (2 << 20) / wire::EVENT as u64 + (machine::read().cpus.len() * wire::BATCH_EVENTS) as u64;
        let events = unsent_max + 1000;
        let Some(report) = record_processes(Room {
            events,
            header_bytes: HEADER_MAX,
        }) else {
            return;
        };
        assert!((1..=events).contains(&report.events), "{report:?}");
        // The groups of this machine, and some hundred processes.
        let hierarchy = Hierarchy::find().unwrap();
        let header_bytes = Names::new(&hierarchy).header_bytes() + 100_000;
        record_processes(Room {
            events: EVENTS_MAX,
            header_bytes,
        });
    }

    /// Records short processes, each of them some events, until a trace with this room holds no more.
    fn record_processes(room: Room) -> Option<Report> {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            cgroup: None,
            duration: Duration::from_secs(60),
            output: dir.path().join("t"),
            request: None,
            ring_bytes: 1 << 20,
        };
        let mut rounds = 0;
        let stopped = || {
            rounds += 1;
            rounds > 100
        };
        let (stop, stopping) = std::sync::mpsc::channel::<()>();
        let load = std::thread::spawn(move || {
            while stopping.try_recv().is_err() {
                std::process::Command::new("/bin/true").status().unwrap();
            }
        });
        let done = record_up_to(room, &options, stopped, |_| ());
        stop.send(()).unwrap();
        load.join().unwrap();
        match done {
            Ok(report) => {
                assert!(report.full && rounds <= 100, "{rounds} rounds, {report:?}");
                let (header, _) = plimsoll_trace::Timeline::open(&options.output).unwrap();
                assert_eq!(
                    header.clock.end_ns - header.clock.start_ns,
                    report.duration_ns as i64
                );
                Some(report)
            }
            Err(RecordError::Unsupported { missing, .. }) => {
                // EAGAIN: the kernel could, had nothing disturbed it.
                assert!(!missing.contains("os error 11"), "{missing}");
                use std::io::Write; // what a test prints that passes is not shown
                let _ = writeln!(std::io::stderr(), "skipped, nothing was tested: {missing}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }
}
