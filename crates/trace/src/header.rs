// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What may stand in the header of a trace file.
use crate::error::{At, Place, TraceError};
use crate::model::{
    Clock, Group, Header, Sockets, CPU_MAX, DURATION_NS_MAX, GO_VERSION_MAX, RECORDER_EVENT_MAX_NS, TID_MAX,
};
use crate::request::RequestSpec;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::Path;

/// What the kernel takes in cpu.max and cpu.max.burst: at least 1 ms for quota and period, 1 s for a period, and
/// MAX_BW of kernel/sched/core.c, which keeps ns and their sums within 64 bits. The same as in policy/bandwidth.h; a test
/// compares them, so that a reader of traces need not compile the policy.
const MAX_BW_US: u64 = (1 << 44) - 1;
const QUOTA_US: RangeInclusive<u64> = 1_000..=MAX_BW_US;
const PERIOD_US: RangeInclusive<u64> = 1_000..=1_000_000;
/// CGROUP_WEIGHT_MAX; 0 is what cpu.weight shows while cpu.idle is 1.
const WEIGHT_MAX: u32 = 10_000;
/// From the lowest CONFIG_HZ of any architecture (mips) to beyond the highest; what the simulator takes.
const HZ: RangeInclusive<u32> = 24..=10_000;

/// A value that a header must not have.
struct Bad {
    field: String,
    value: String,
    allowed: String,
}

/// Refuses what no recorder can have written, with the field, its value and what is allowed.
pub(crate) fn check_header(path: &Path, header: &Header) -> Result<(), TraceError> {
    check(header).map_err(|bad| TraceError::Value {
        place: Place::new(path, At::Part("header")),
        field: bad.field,
        value: bad.value,
        allowed: bad.allowed,
    })
}

fn check(header: &Header) -> Result<(), Bad> {
    check_clock(&header.clock)?;
    for cpu in &header.machine.cpus {
        if cpu.cpu >= CPU_MAX {
            return bad("machine.cpus.cpu", cpu.cpu, format!("below {CPU_MAX}"));
        }
    }
    in_range("machine.hz", header.machine.hz, HZ)?;
    for thread in &header.threads {
        if thread.tid > TID_MAX {
            return bad("threads.tid", thread.tid, format!("0 to {TID_MAX}"));
        }
        if let Some(group) = thread.group.filter(|&g| g as usize >= header.groups.len()) {
            let field = format!("threads.group of thread {}", thread.tid);
            let allowed = format!("below {}, the number of groups", header.groups.len());
            return bad(&field, group, allowed);
        }
    }
    if header.recorder_event_ns > RECORDER_EVENT_MAX_NS {
        let allowed = format!("0 to {RECORDER_EVENT_MAX_NS}");
        return bad("recorder_event_ns", header.recorder_event_ns, allowed);
    }
    for process in &header.processes {
        if process.tgid > TID_MAX {
            return bad("processes.tgid", process.tgid, format!("0 to {TID_MAX}"));
        }
        if !(1..=GO_VERSION_MAX).contains(&process.go.len()) {
            let field = format!("processes.go of process {}", process.tgid);
            let allowed = format!("1 to {GO_VERSION_MAX} bytes");
            return bad(&field, format!("{} bytes", process.go.len()), allowed);
        }
    }
    header.groups.iter().try_for_each(check_group)?;
    check_sockets(&header.sockets, header.groups.len())?;
    if let Some(Err(error)) = header.request.as_deref().map(str::parse::<RequestSpec>) {
        return bad("request", format!("{:?}", error.value), RequestSpec::FORMS.into());
    }
    Ok(())
}

fn check_clock(clock: &Clock) -> Result<(), Bad> {
    let (field, start_ns, end_ns) = ("clock.end_ns", clock.start_ns, clock.end_ns);
    if end_ns < start_ns {
        return bad(field, end_ns, format!("at least clock.start_ns, {start_ns}"));
    }
    if end_ns.saturating_sub(start_ns) > DURATION_NS_MAX {
        let allowed = format!("at most {DURATION_NS_MAX} after clock.start_ns, {start_ns}");
        return bad(field, end_ns, allowed);
    }
    Ok(())
}

fn check_sockets(sockets: &Sockets, groups: usize) -> Result<(), Bad> {
    let count = sockets.connections.len();
    if !sockets.recorded && count > 0 {
        return bad(
            "sockets.connections",
            count,
            "none where sockets.recorded is false".into(),
        );
    }
    let mut ids = BTreeSet::new();
    for connection in &sockets.connections {
        let id = connection.id;
        if id > i64::MAX as u64 {
            return bad("sockets.connections.id", id, format!("0 to {}", i64::MAX));
        }
        if !ids.insert(id) {
            let allowed = "each id once".into();
            return bad("sockets.connections.id", format!("{id}, a second time"), allowed);
        }
        if let Some(group) = connection.group.filter(|&g| g as usize >= groups) {
            let field = format!("sockets.connections.group of connection {id}");
            return bad(
                &field,
                group,
                format!("below {groups}, the number of groups, or null"),
            );
        }
    }
    for connection in &sockets.connections {
        let id = connection.id;
        if let Some(peer) = connection.peer.filter(|peer| *peer == id || !ids.contains(peer)) {
            let field = format!("sockets.connections.peer of connection {id}");
            return bad(
                &field,
                peer,
                "the id of another connection of the header, or null".into(),
            );
        }
    }
    Ok(())
}

fn check_group(group: &Group) -> Result<(), Bad> {
    if !group.path.starts_with('/') {
        let path = format!("{:?}", group.path);
        return bad("groups.path", path, "a path that starts with /".into());
    }
    let field = |name: &str| format!("groups.{name} of {}", group.path);
    in_range(&field("quota_us"), group.quota_us, QUOTA_US)?;
    in_range(&field("period_us"), group.period_us, PERIOD_US)?;
    in_range(&field("burst_us"), group.burst_us, 0..=MAX_BW_US)?;
    in_range(&field("weight"), group.weight, 0..=WEIGHT_MAX)
}

fn in_range<T: PartialOrd + Display>(
    field: &str,
    value: Option<T>,
    allowed: RangeInclusive<T>,
) -> Result<(), Bad> {
    match value {
        Some(value) if !allowed.contains(&value) => {
            let allowed = format!("{} to {}, or null", allowed.start(), allowed.end());
            bad(field, value, allowed)
        }
        _ => Ok(()),
    }
}

fn bad(field: &str, value: impl Display, allowed: String) -> Result<(), Bad> {
    Err(Bad {
        field: field.into(),
        value: value.to_string(),
        allowed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_policy_sys::{BwLimits, BwPart};

    #[test]
    fn what_a_header_may_say_of_limits_is_what_the_policy_takes() {
        let allowed = |part| BwLimits::NONE.allowed(part, false);
        assert_eq!(QUOTA_US, allowed(BwPart::Quota));
        assert_eq!(PERIOD_US, allowed(BwPart::Period));
        assert_eq!(0..=MAX_BW_US, allowed(BwPart::Burst));
    }
}
