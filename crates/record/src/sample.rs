// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recording without BPF: the groups' cumulative statistics, read again and again.
use crate::cgroup::Hierarchy;
use crate::error::RecordError;
use crate::machine;
use crate::record::clock_ns;
use plimsoll_trace::{Clock, Event, Group, GroupIx, Header, TraceWriter, What, EVENTS_MAX};
use std::path::Path;
use std::time::Duration;

/// What was sampled, and what it cost.
#[derive(Clone, Debug, Default)]
pub struct SampleReport {
    pub duration_ns: u64,
    /// It ended early: a trace holds no more samples ([`EVENTS_MAX`]).
    pub full: bool,
    pub cpus: u32,
    pub samples: u64,
    pub groups: u64,
    /// Rounds that came later than one interval, because reading took longer or no CPU was free.
    pub late_rounds: u64,
    pub file_bytes: u64,
    /// CPU time of this process while sampling.
    pub reader_ns: u64,
}

/// Samples `cgroup` and all groups below it (default: all groups) every `interval`. A group that
/// appears later is sampled from the next second on; one that is made again under the path of one
/// that was sampled is a group of its own, from the next round on.
pub fn sample(
    cgroup: Option<&str>,
    interval: Duration,
    duration: Duration,
    output: &Path,
    mut stopped: impl FnMut() -> bool,
    mut progress: impl FnMut(f64),
) -> Result<SampleReport, RecordError> {
    let hierarchy = Hierarchy::find()?;
    let top = cgroup
        .map(|name| hierarchy.resolve(name))
        .transpose()?
        .unwrap_or("/".into());
    let mut writer = TraceWriter::create(output)?;
    let mut machine = machine::read();
    machine.cgroup_version = Some(hierarchy.version);
    let mut report = SampleReport {
        cpus: machine.cpus.len() as u32,
        ..Default::default()
    };

    let mut groups: Vec<Group> = Vec::new();
    // The kernel's number of each group, which no other gets; none once the group is gone.
    let mut ids: Vec<Option<u64>> = Vec::new();
    let wall_start_ns = clock_ns(libc::CLOCK_REALTIME);
    let start_ns = clock_ns(libc::CLOCK_MONOTONIC);
    let cpu_start_ns = clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID);
    let (interval_ns, length_ns) = (interval.as_nanos() as i64, duration.as_nanos() as i64);
    let mut due_ns = start_ns;
    let mut walk_due_ns = start_ns;
    loop {
        if due_ns >= walk_due_ns {
            for (id, path) in hierarchy.walk(&top) {
                if !ids.contains(&Some(id)) {
                    groups.push(hierarchy.group(&path));
                    ids.push(Some(id));
                }
            }
            walk_due_ns = due_ns + 1_000_000_000;
        }
        report.full = writer.written() + groups.len() as u64 > EVENTS_MAX;
        if report.full {
            break;
        }
        for (ix, group) in groups.iter_mut().enumerate() {
            if ids[ix].is_none() {
                continue;
            }
            let Some(stat) = hierarchy.stat(&group.path) else {
                continue;
            };
            // Asked after reading: were they another group's, so is this number.
            if hierarchy.id_of(&group.path) != ids[ix] {
                ids[ix] = None;
                walk_due_ns = due_ns;
                continue;
            }
            group.stat_end = Some(stat);
            let what = What::Sample {
                group: ix as GroupIx,
                stat: Box::new(stat),
            };
            writer.push(&Event {
                ts_ns: clock_ns(libc::CLOCK_MONOTONIC),
                cpu: 0,
                what,
            })?;
        }
        let now_ns = clock_ns(libc::CLOCK_MONOTONIC);
        progress(((now_ns - start_ns) as f64 / length_ns as f64).clamp(0.0, 1.0));
        if now_ns - start_ns >= length_ns || stopped() {
            break;
        }
        due_ns += interval_ns;
        if due_ns <= now_ns {
            report.late_rounds += 1;
            due_ns = now_ns;
        }
        std::thread::sleep(Duration::from_nanos(
            (due_ns.min(start_ns + length_ns) - now_ns).max(0) as u64,
        ));
    }
    let end_ns = clock_ns(libc::CLOCK_MONOTONIC);
    report.reader_ns = (clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID) - cpu_start_ns) as u64;
    report.duration_ns = (end_ns - start_ns) as u64;
    report.samples = writer.written();
    report.groups = groups.len() as u64;
    let header = Header {
        source: "cgroup-stat".into(),
        clock: Clock {
            name: "CLOCK_MONOTONIC".into(),
            start_ns,
            end_ns,
            wall_start_ns: Some(wall_start_ns),
        },
        machine,
        groups,
        only_below: (top != "/").then_some(top),
        ..Default::default()
    };
    report.file_bytes = writer.finish(&header)?;
    Ok(report)
}
