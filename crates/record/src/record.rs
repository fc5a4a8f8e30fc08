// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One recording with BPF, from loading the program to the finished file.
use crate::cgroup::Hierarchy;
use crate::connections::{processes, Connections};
use crate::datagrams::{any_socket, Datagrams};
use crate::error::RecordError;
use crate::machine;
use crate::names::{Names, Tables};
use crate::probes::{Cost, Probes, Settings, Unsent};
use crate::recordable;
use crate::spool::Spool;
use crate::stage::Stage;
use crate::streams::{Streams, Told};
use crate::urgent::{be_prompt, Urgent};
use crate::wire::{self, Batch, Record};
use plimsoll_trace::{
    Clock, Event, GroupIx, Header, Loss, Machine, Place, Process, Protocol, RequestSpec, Sockets, State, Tid,
    TraceError, TraceWriter, What, EVENTS_MAX, HEADER_MAX, RECORDER_EVENT_MAX_NS,
};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
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

/// While the trace is written, progress is told every so many events: some tens of times a second.
const PROGRESS_EVENTS: u64 = 1 << 16;

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

/// Where the ring buffer's records go.
struct Sink<'h> {
    hierarchy: &'h Hierarchy,
    spool: Spool,
    names: Names,
    connections: Connections,
    datagrams: Datagrams,
    streams: Streams,
    start_ns: i64,
    /// The first failure to write; the rest is dropped, and the recording reported as failed.
    error: Option<io::Error>,
    /// Events in batches so far.
    events: u64,
}

/// What the BPF programs cost in the first part of the recording.
struct Measured {
    cost: Option<Cost>,
    events: u64,
    ns: u64,
}

impl Measured {
    /// Ends the measurement. The ring buffer has just been emptied.
    fn now(probes: &mut Probes, sink: &RefCell<Sink>, ns: i64) -> Result<Measured, RecordError> {
        let cost = probes.cost();
        let unsent: usize = probes
            .unsent()?
            .iter()
            .filter_map(|unsent| Some(Batch::parse(&unsent.batch)?.events.len() / wire::EVENT))
            .sum();
        Ok(Measured {
            cost,
            events: sink.borrow().events + unsent as u64,
            ns: ns as u64,
        })
    }

    /// What one event took; 0: not measured. An event takes two runs of programs at most, as counted under
    /// `bench/record-overhead.sh`: where most runs are of threads that are not recorded, those would be counted in.
    fn event_ns(&self) -> u64 {
        let Some(cost) = self.cost else { return 0 };
        let per_event = cost.run_time_ns / self.events.max(1);
        per_event
            .min(2 * cost.run_time_ns / cost.runs.max(1))
            .min(RECORDER_EVENT_MAX_NS)
    }

    /// `events`: of the whole recording.
    fn put_into(&self, report: &mut Report, events: u64) {
        let Some(cost) = self.cost else { return };
        let share = events.max(self.events) as f64 / self.events.max(1) as f64;
        report.bpf_ns = Some((cost.run_time_ns as f64 * share) as u64);
        report.bpf_runs = cost.runs;
        report.bpf_run_ns = cost.run_time_ns / cost.runs.max(1);
        report.measured_ns = self.ns;
    }
}

impl Sink<'_> {
    fn take(&mut self, bytes: &[u8]) {
        match wire::parse(bytes) {
            Some(Record::Batch(batch)) => {
                self.take_batch(&batch);
            }
            Some(Record::Socket(socket)) if socket.protocol == Protocol::Udp => {
                self.datagrams.add_socket(socket)
            }
            Some(Record::Datagram(datagram)) => self.datagrams.add(datagram),
            Some(Record::Frame(frame)) => self.streams.add(frame),
            Some(Record::Socket(socket)) => {
                self.streams.add_socket(&socket);
                let began = self.connections.add(&socket);
                self.spool.singles.extend(began);
            }
            Some(Record::Thread {
                ts_ns,
                group_id,
                tid,
                tgid,
                comm,
            }) => self.names.thread(ts_ns, tid, tgid, comm, group_id),
            Some(Record::Group { group_id, path }) => self.names.group(group_id, path, self.hierarchy),
            Some(Record::Single { ts_ns, cpu, what }) => {
                if let What::Exit { tid } = what {
                    self.names.exit(tid);
                }
                self.spool.singles.push(Event { ts_ns, cpu, what });
            }
            None => {
                self.error
                    .get_or_insert(io::Error::other("a record of the BPF program is malformed"));
            }
        }
    }

    fn take_batch(&mut self, batch: &Batch) {
        self.events += (batch.events.len() / wire::EVENT) as u64;
        batch.groups_of_others().for_each(|id| self.names.other(id));
        if let Err(error) = self.spool.add(batch, self.start_ns as u64) {
            self.error.get_or_insert(error);
        }
    }

    /// What the header's tables take at most if recording ends now.
    fn header_bytes(&self) -> u64 {
        let more = self.datagrams.connections() + self.streams.connections();
        self.names.header_bytes() + self.connections.header_bytes(more)
    }

    /// Events that the trace would hold if recording ended now.
    fn rows(&self) -> u64 {
        self.events
            + self.spool.singles.len() as u64
            + self.datagrams.len()
            + self.streams.len()
            + self.names.moves()
    }

    /// What a CPU had not sent: its last events, how many it had lost, and whether others run on it.
    fn take_unsent(&mut self, unsent: &Unsent, end_ns: i64) {
        if let Some(since_ns) = unsent.others_since_ns {
            self.spool.singles.push(Event {
                ts_ns: end_ns,
                cpu: unsent.cpu,
                what: What::Others {
                    group: None,
                    run_ns: (end_ns - since_ns.max(self.start_ns)).max(0) as u64,
                    state: State::Runnable,
                },
            });
        }
        let Some(batch) = Batch::parse(&unsent.batch) else {
            return;
        };
        if !batch.events.is_empty() {
            self.take_batch(&batch);
            return;
        }
        let (start_ns, end_ns) = (self.start_ns as u64, end_ns as u64);
        self.spool
            .add_final_loss(unsent.cpu, unsent.stream, batch.lost, start_ns, end_ns);
    }
}

fn spool_failed(dir: &Path, source: io::Error) -> TraceError {
    TraceError::Io {
        place: Place::whole(dir),
        action: "keep the recorded events here",
        source,
    }
}

/// What was kept while recording.
struct Kept {
    spool: Spool,
    names: Names,
    connections: Connections,
    told: Told,
    /// Events, those outside of the recorded time among them.
    rows: u64,
}

/// What is known when recording has ended.
struct Finished {
    machine: Machine,
    only_below: Option<String>,
    start_ns: i64,
    end_ns: i64,
    wall_start_ns: i64,
    without_sockets: Option<String>,
    recorder_event_ns: u64,
    has_datagrams: bool,
    has_streams: bool,
    sealed: u64,
}

impl Finished {
    fn write(
        self,
        options: &Options,
        mut writer: TraceWriter,
        hierarchy: &Hierarchy,
        kept: Kept,
        mut progress: impl FnMut(f64),
    ) -> Result<Report, RecordError> {
        let Kept {
            mut spool,
            names,
            connections,
            mut told,
            rows,
        } = kept;
        let (start_ns, end_ns) = (self.start_ns, self.end_ns);
        let Tables {
            mut threads,
            groups,
            moves,
            others,
            limits_unknown,
        } = names.finish(hierarchy);
        threads
            .iter_mut()
            .for_each(|t| t.from_ns = t.from_ns.max(start_ns));
        let mut entries: HashMap<Tid, Vec<(i64, Option<GroupIx>)>> = HashMap::new();
        for thread in &threads {
            entries
                .entry(thread.tid)
                .or_default()
                .push((thread.from_ns, thread.group));
        }
        let group_of = |tid, ts_ns| {
            let before = |entry: &&(i64, Option<GroupIx>)| entry.0 <= ts_ns;
            entries.get(&tid)?.iter().rev().find(before)?.1
        };
        let processes: BTreeSet<Tid> = threads.iter().filter_map(|t| t.tgid).collect();
        let processes = processes.into_iter().filter_map(|tgid| {
            let go = crate::go::version(Path::new(&format!("/proc/{tgid}/exe")))?;
            Some(Process { tgid, go })
        });
        let processes = processes.collect();
        let announced: HashSet<u64> = connections.ids().collect();
        let sockets = match self.without_sockets {
            None => connections.finish(group_of, self.has_datagrams, self.has_streams, self.sealed),
            without => Sockets {
                without,
                ..Default::default()
            },
        };
        spool.singles.extend(moves);
        let losses = std::mem::take(&mut spool.losses);
        let mut report = Report {
            duration_ns: (end_ns - start_ns) as u64,
            threads: threads.len() as u64,
            groups: groups.len() as u64,
            limits_unknown,
            lost: losses.iter().map(|l| l.count.unwrap_or(1)).sum(),
            ..Default::default()
        };
        let failed = |e| spool_failed(&options.output, e);
        let (mut done, total) = (0u64, rows.max(1));
        let mut merged = spool.merge().map_err(failed)?;
        while let Some(mut event) = merged.next().map_err(failed)? {
            if done % PROGRESS_EVENTS == 0 {
                progress((done as f64 / total as f64).min(1.0));
            }
            done += 1;
            // Attaching takes a moment, in which some tracepoints already report.
            if event.ts_ns < start_ns || event.ts_ns > end_ns {
                continue;
            }
            let mut of_stream = Vec::new();
            if told.take(&event, |event| of_stream.push(event)) {
                report.socket_events += of_stream.len() as u64;
                of_stream.iter().try_for_each(|event| writer.push(event))?;
                continue;
            }
            match &mut event.what {
                // Of a socket that the ring had no room to announce: it is announced the next time.
                What::Socket { connection, .. } if !announced.contains(connection) => continue,
                What::Socket { .. } => report.socket_events += 1,
                What::Others { group, run_ns, .. } => {
                    *group = group.and_then(|id| others.get(&id).copied());
                    *run_ns = (*run_ns).min((event.ts_ns - start_ns) as u64);
                }
                _ => {}
            }
            report.switches += matches!(event.what, What::Switch { .. }) as u64;
            report.wakeups += matches!(event.what, What::Waking { .. }) as u64;
            writer.push(&event)?;
        }
        report.events = writer.written();
        report.with_streams = told.sockets();
        report.sealed = self.sealed;
        let header = Header {
            source: "bpf".into(),
            clock: Clock {
                name: "CLOCK_MONOTONIC".into(),
                start_ns,
                end_ns,
                wall_start_ns: Some(self.wall_start_ns),
            },
            machine: self.machine,
            groups,
            threads,
            losses,
            only_below: self.only_below,
            request: options.request.as_ref().map(RequestSpec::to_string),
            migrations: true,
            sockets,
            recorder_event_ns: self.recorder_event_ns,
            processes,
        };
        report.connections = header.sockets.connections.len() as u64;
        report.without_sockets = header
            .sockets
            .without
            .clone()
            .filter(|_| !header.sockets.recorded);
        report.file_bytes = writer.finish(&header)?;
        Ok(report)
    }
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
