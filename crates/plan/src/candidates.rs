// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The settings that a plan tries.
use crate::search::Limits;
use plimsoll_replay::{GroupSettings, Program, Semantics};

/// Which knobs may be turned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knobs {
    pub period: bool,
    pub burst: bool,
    pub weight: bool,
    pub headroom: bool,
}

impl Knobs {
    pub const ALL: Knobs = Knobs {
        period: true,
        burst: true,
        weight: true,
        headroom: true,
    };

    /// Whether these knobs suffice for a setting beside today's.
    pub fn can_say(&self, own: &Limits, today: &GroupSettings) -> bool {
        let limited = own.quota_us.is_some();
        (self.period || !limited || own.period_us == PERIOD_DEFAULT_US)
            && (self.burst || own.burst_us == 0)
            && (self.weight || own.weight == today.weight)
            && (self.headroom || own.headroom_percent == 0)
    }
}

/// Limits on the first pass, evenly spaced in their logarithm.
const QUOTAS: u32 = 13;
/// What every system has where nothing else is said (default_cfs_period of kernel/sched/fair.c).
const PERIOD_DEFAULT_US: u64 = 100_000;
const PERIODS_US: [u64; 4] = [10_000, 25_000, 50_000, 100_000];
const WEIGHTS: [u32; 4] = [50, 200, 400, 1_000];
const HEADROOMS_PERCENT: [u32; 3] = [10, 20, 30];

/// What share of the CPUs that the group uses the search begins at. With arrivals that do not wait less than all is not
/// enough ([`needed`]); clients that wait for answers only become slower.
const LOWEST_OPEN: f64 = 0.6;
const LOWEST_CLOSED: f64 = 0.1;

/// CPUs that the planned group used.
pub fn used(program: &Program) -> f64 {
    program.groups[program.target as usize].work_ns as f64 / program.duration_ns.max(1) as f64
}

/// CPUs without which the queue grows for ever, whatever latencies a recording shows before it ends: those of the work
/// that arrivals set off which do not wait. Where that is most of the work, what the rest takes is needed as well, but for
/// what clients that wait may lose (`min_throughput`, 0..1).
pub fn needed(program: &Program, min_throughput: f64) -> f64 {
    let open = program.open_work_ns as f64 / program.duration_ns.max(1) as f64;
    match (program.is_job(), program.is_closed_loop()) {
        (true, _) => 0.0,
        (_, true) => open,
        (_, false) => open.max(used(program) * min_throughput),
    }
}

/// Limits for the first pass: from below what the group uses up to `max_cpus`; each with several periods and bursts.
/// Where the machine has no more than that, no limit at all, too, with several weights and headrooms.
pub fn first_pass(
    program: &Program,
    today: GroupSettings,
    max_cpus: f64,
    machine_cpus: f64,
    knobs: Knobs,
    semantics: Semantics,
) -> Vec<GroupSettings> {
    let used = used(program);
    let lowest = match program.is_closed_loop() || program.is_job() {
        true => LOWEST_CLOSED,
        false => LOWEST_OPEN,
    };
    let low = (lowest * used).clamp(max_cpus.min(0.02), max_cpus);
    let mut found = Vec::new();
    for step in 0..QUOTAS {
        let cpus = low * (max_cpus / low).powf(f64::from(step) / f64::from(QUOTAS - 1));
        found.extend(limits(cpus, max_cpus, today, knobs, semantics));
    }
    if max_cpus >= machine_cpus {
        found.extend(without_limit(program, today, knobs, semantics));
    }
    found
}

/// One amount of CPU, with every period and burst; at most `max_cpus`.
pub fn limits(
    cpus: f64,
    max_cpus: f64,
    today: GroupSettings,
    knobs: Knobs,
    semantics: Semantics,
) -> Vec<GroupSettings> {
    let periods: &[u64] = if knobs.period {
        &PERIODS_US
    } else {
        &[PERIOD_DEFAULT_US]
    };
    // Burst in hundredths of the quota. Mainline takes no more than the quota.
    let bursts: &[u64] = match (knobs.burst, semantics) {
        (false, _) => &[0],
        (true, Semantics::Mainline) => &[0, 50, 100],
        (true, Semantics::Published) => &[0, 100, 400],
    };
    let mut found = Vec::new();
    for &period_us in periods {
        let most = max_cpus * 1.01 * period_us as f64;
        let mut quota_us = round_quota(cpus * period_us as f64, period_us);
        // Of a small quota half the unit is more than 1%.
        if quota_us as f64 > most {
            quota_us = (quota_us - quota_unit_us(quota_us as f64, period_us) as u64).max(1_000);
        }
        // Quotas have a smallest value, which short periods may not be able to go down to.
        if quota_us as f64 > most {
            continue;
        }
        for &hundredths in bursts {
            found.push(GroupSettings {
                quota_us: Some(quota_us),
                period_us,
                burst_us: quota_us * hundredths / 100,
                headroom_percent: 0,
                ..today
            });
        }
    }
    found
}

/// Three digits are enough to read. Of 100 ms, 100 us are a millicore, below which Kubernetes cannot say
/// anything.
fn quota_unit_us(us: f64, period_us: u64) -> f64 {
    match us < 10_000.0 && period_us != PERIOD_DEFAULT_US {
        true => 50.0,
        false => 100.0,
    }
}

/// Kernel and schedulers take no quota below 1 ms.
fn round_quota(us: f64, period_us: u64) -> u64 {
    let unit = quota_unit_us(us, period_us);
    ((us / unit).round() * unit).max(1_000.0) as u64
}

fn without_limit(
    program: &Program,
    today: GroupSettings,
    knobs: Knobs,
    semantics: Semantics,
) -> Vec<GroupSettings> {
    let free = GroupSettings {
        quota_us: None,
        period_us: 100_000,
        burst_us: 0,
        headroom_percent: 0,
        ..today
    };
    let mut found = vec![free];
    let has_neighbours = program.groups.iter().enumerate().any(|(ix, g)| {
        ix as u32 != program.target
            && g.parent == program.groups[program.target as usize].parent
            && g.work_ns > 0
    });
    let takes_weight = !program.groups[program.target as usize].idle;
    if knobs.weight && has_neighbours && takes_weight {
        found.extend(
            WEIGHTS
                .iter()
                .filter(|&&w| w != today.weight)
                .map(|&weight| GroupSettings { weight, ..free }),
        );
    }
    if knobs.headroom && semantics == Semantics::Published {
        found.extend(HEADROOMS_PERCENT.map(|headroom_percent| GroupSettings {
            headroom_percent,
            ..free
        }));
    }
    found
}
