// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A recording that has ended becomes a trace: its tables are finished, its events sorted and written.
use crate::cgroup::Hierarchy;
use crate::connections::Connections;
use crate::error::RecordError;
use crate::names::{Names, Tables};
use crate::record::{Options, Report};
use crate::spool::Spool;
use crate::streams::Told;
use plimsoll_trace::{
    Clock, GroupIx, Header, Machine, Place, Process, RequestSpec, Sockets, Tid, TraceError, TraceWriter, What,
};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::path::Path;

/// While the trace is written, progress is told every so many events: some tens of times a second.
const PROGRESS_EVENTS: u64 = 1 << 16;

/// What was kept while recording.
pub struct Kept {
    pub spool: Spool,
    pub names: Names,
    pub connections: Connections,
    pub told: Told,
    /// Events, those outside of the recorded time among them.
    pub rows: u64,
}

/// What is known when recording has ended.
pub struct Finished {
    pub machine: Machine,
    pub only_below: Option<String>,
    pub start_ns: i64,
    pub end_ns: i64,
    pub wall_start_ns: i64,
    pub without_sockets: Option<String>,
    pub recorder_event_ns: u64,
    pub has_datagrams: bool,
    pub has_streams: bool,
    pub sealed: u64,
}

impl Finished {
    pub fn write(
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

pub fn spool_failed(dir: &Path, source: io::Error) -> TraceError {
    TraceError::Io {
        place: Place::whole(dir),
        action: "keep the recorded events here",
        source,
    }
}
