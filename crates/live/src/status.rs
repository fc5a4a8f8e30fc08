// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the scheduler has counted, under the names that cpu.stat has for it.
use crate::intf::{Cpu, Group};
use crate::{Scheduler, Watch};
use plimsoll_policy_sys as pl;
use serde::{Deserialize, Serialize};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// Time since the machine started.
    pub uptime_usec: u64,
    pub groups: Vec<GroupStatus>,
    pub cpus: Vec<CpuStatus>,
    pub headroom_window_us: u64,
    /// Idle share that main groups ask for, and what the side may use of each window; none where no group asks.
    pub headroom_percent: u32,
    pub side_budget_us: Option<u64>,
    pub side_used_us: u64,
    pub idle_us: u64,
    /// Cgroups that are scheduled as part of one above them, too deep or too many: they have no figures of their own.
    pub merged_cgroups: u32,
    /// Cgroups whose knobs or limits the agent could not enforce; `None` from the scheduler, which merges instead.
    pub refused_cgroups: Option<u32>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GroupStatus {
    pub cgroup: String,
    pub usage_usec: u64,
    pub nr_periods: u64,
    pub nr_throttled: u64,
    pub throttled_usec: u64,
    pub nr_bursts: u64,
    pub burst_usec: u64,
    /// Run time in the pool now.
    pub current_bw_usec: Option<u64>,
    pub quota_us: Option<u64>,
    pub period_us: u64,
    pub burst_us: u64,
    pub headroom_percent: u32,
    /// "main", "side", or "-" where no group asks for headroom.
    pub headroom: String,
    pub throttled_cpus: u32,
    pub parked_tasks: u32,
    /// Time that tasks waited, runnable, and how often they were picked.
    pub run_delay_usec: u64,
    pub nr_runs: u64,
    /// Times that a task ran although throttled, because it had waited for too long.
    pub nr_grants: u64,
    /// Tasks of the group that a CPU took over from another one's queue: stolen or pulled.
    pub nr_steals: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CpuStatus {
    pub cpu: u32,
    pub online: bool,
    pub nr_switches: u64,
    pub nr_wakeups: u64,
    pub nr_preempts: u64,
    pub nr_steals: u64,
    pub nr_searches: u64,
    pub find_usec: u64,
    pub nr_pulls: u64,
    pub nr_parks: u64,
    pub idle_usec: u64,
    pub load_writes: u64,
    pub placed: PlacedStatus,
}

/// Where tasks that woke up on a CPU, or were born there, and may run on more than one went, the kernel's own
/// threads left out.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct PlacedStatus {
    /// To their waker's CPU, which that was about to leave.
    pub waker: u64,
    /// To their previous CPU, which was idle.
    pub kept: u64,
    /// To another idle CPU of its cache.
    pub cache: u64,
    /// To an idle CPU elsewhere.
    pub elsewhere: u64,
    /// To a CPU that ran work which gives way.
    pub idle_work: u64,
    /// To a busy CPU, behind what was there.
    pub behind: u64,
}

impl PlacedStatus {
    /// By the policy's numbers: enum pl_place.
    fn from_counts(counts: [u64; pl::PLACES]) -> Self {
        let [waker, kept, cache, elsewhere, idle_work, behind] = counts;
        Self {
            waker,
            kept,
            cache,
            elsewhere,
            idle_work,
            behind,
        }
    }
}

impl Status {
    /// Reads all groups, or the one at `cgroup` and what is below it.
    pub fn read(scheduler: &Scheduler, watch: &Watch, cgroup: Option<&Path>) -> Self {
        let state = scheduler.state();
        let nr_cpus = state.nr_cpus as usize;
        let mut groups: Vec<GroupStatus> = scheduler
            .groups()
            .into_iter()
            .filter_map(|group| {
                let path = watch
                    .path(group.g.id)
                    .map_or_else(|| group.name().into(), PathBuf::from);
                let wanted = cgroup.is_none_or(|cgroup| path.starts_with(cgroup));
                wanted.then(|| read_group(group, &path, nr_cpus, state.headroom.percent))
            })
            .collect();
        groups.sort_by(|a, b| a.cgroup.cmp(&b.cgroup));
        let now_ns = scheduler.now_ns();
        // SAFETY: `cpus` has nr_cpus elements for as long as the scheduler lives.
        let cpus = (0..nr_cpus).map(|cpu| unsafe { &*state.cpus.add(cpu) });
        let cpus = cpus.enumerate().map(|(cpu, line)| CpuStatus {
            cpu: cpu as u32,
            online: line.online != 0,
            nr_switches: line.nr_switches,
            nr_wakeups: line.nr_wakeups,
            nr_preempts: line.nr_preempts,
            nr_steals: line.steal.nr_steals,
            nr_searches: line.steal.nr_searches,
            find_usec: line.steal.find_ns / 1000,
            nr_pulls: line.nr_pulls,
            nr_parks: line.nr_parks,
            idle_usec: idle_ns(line, now_ns) / 1000,
            load_writes: line.touch.load_writes.into(),
            placed: PlacedStatus::from_counts(line.placed),
        });
        let asked = state.headroom.percent > 0;
        Self {
            uptime_usec: uptime_usec(),
            groups,
            cpus: cpus.collect(),
            headroom_window_us: state.headroom_config.window_ns / 1000,
            headroom_percent: state.headroom.percent,
            side_budget_us: asked.then_some(state.headroom.budget_ns / 1000),
            side_used_us: state.headroom.used_ns / 1000,
            idle_us: state.headroom.idle_ns / 1000,
            merged_cgroups: state.nr_merged,
            refused_cgroups: None,
        }
    }
}

impl GroupStatus {
    /// The kernel's cpu.stat, with the values that stand still under a BPF scheduler replaced by ours.
    pub fn cpu_stat(&self, kernels: &str) -> String {
        let ours = [
            ("nr_periods", self.nr_periods),
            ("nr_throttled", self.nr_throttled),
            ("throttled_usec", self.throttled_usec),
            ("nr_bursts", self.nr_bursts),
            ("burst_usec", self.burst_usec),
        ];
        let line = |line: &str| {
            let name = line.split(' ').next().unwrap_or_default();
            match ours.iter().find(|(known, _)| *known == name) {
                Some((name, value)) => format!("{name} {value}\n"),
                None => format!("{line}\n"),
            }
        };
        kernels.lines().map(line).collect()
    }
}

/// A cgroup's path as text. Users who may make cgroups name them, with any bytes: what is not text, or would move a
/// terminal's cursor, is shown as `\xff`, so that two names stay two.
pub fn shown(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        for c in chunk.valid().chars() {
            match c.is_control() {
                true => text.extend(c.to_string().bytes().map(|byte| format!("\\x{byte:02x}"))),
                false => text.push(c),
            }
        }
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

fn read_group(group: &Group, path: &Path, nr_cpus: usize, wanted_percent: u32) -> GroupStatus {
    let pool = &group.g.pool;
    let limited = pool.quota_ns != pl::UNLIMITED;
    // SAFETY: a member of a group. Null for a moment where its memory becomes another group's.
    let balances = unsafe { std::ptr::read_volatile(&pool.balances) };
    let nr_balances = if balances.is_null() { 0 } else { nr_cpus };
    // SAFETY: `balances` has nr_cpus elements for as long as the scheduler lives.
    let balances = (0..nr_balances).map(|cpu| unsafe { *balances.add(cpu) });
    let (mut delay_ns, mut runs, mut grants, mut steals) = (0, 0, 0, 0);
    for balance in balances {
        delay_ns += balance.run_delay_ns;
        runs += balance.nr_runs;
        grants += balance.nr_grants;
        steals += balance.nr_steals;
    }
    let headroom = match (wanted_percent, group.g.holds_main, group.g.side.is_null()) {
        (0, _, _) => "-",
        (_, 0, false) => "side",
        (_, 0, true) if group.g.under_main == 0 => "-",
        _ => "main",
    };
    GroupStatus {
        cgroup: shown(path),
        usage_usec: usage_usec(path),
        nr_periods: pool.nr_periods,
        nr_throttled: pool.nr_throttled,
        throttled_usec: pool.throttled_ns.max(0) as u64 / 1000,
        nr_bursts: pool.nr_bursts,
        burst_usec: pool.burst_ns_used / 1000,
        current_bw_usec: limited.then_some(pool.runtime_ns.max(0) as u64 / 1000),
        quota_us: limited.then_some(pool.quota_ns / 1000),
        period_us: pool.period_ns / 1000,
        burst_us: pool.burst_ns / 1000,
        headroom_percent: group.g.headroom_percent,
        headroom: headroom.into(),
        throttled_cpus: pool.tail.wrapping_sub(pool.head),
        parked_tasks: group.nr_parked,
        run_delay_usec: delay_ns / 1000,
        nr_runs: runs,
        nr_grants: grants,
        nr_steals: steals,
    }
}

/// How long a CPU has been idle, the present stretch included.
fn idle_ns(cpu: &Cpu, now_ns: Option<u64>) -> u64 {
    let idle_ns = cpu.idle_ns;
    match now_ns {
        Some(now_ns) if cpu.online != 0 && cpu.idle_since_ns != 0 => {
            idle_ns + now_ns.saturating_sub(cpu.idle_since_ns)
        }
        _ => idle_ns,
    }
}

fn uptime_usec() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes the time that is passed.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut time) };
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}

/// The kernel goes on counting this one under any scheduler.
fn usage_usec(cgroup: &Path) -> u64 {
    let text = std::fs::read_to_string(cgroup.join("cpu.stat")).unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("usage_usec ")?.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn names_that_are_no_text_stay_apart_and_move_no_cursor() {
        let of = |bytes: &[u8]| shown(Path::new(OsStr::from_bytes(bytes)));
        assert_eq!(of(b"/cg/web-\xc3\xa4"), "/cg/web-\u{e4}");
        assert_eq!(of(b"/cg/n\xff"), "/cg/n\\xff");
        assert_eq!(of(b"/cg/n\xfe"), "/cg/n\\xfe");
        assert_eq!(of(b"/cg/e\x1b[31mr\n"), "/cg/e\\x1b[31mr\\x0a");
        assert_eq!(of(b"/cg/\xc2\x9b"), "/cg/\\xc2\\x9b");
    }
}
