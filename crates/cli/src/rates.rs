// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two readings of the scheduler's counters as rates: what `plimsoll top` shows.
use plimsoll_live::{GroupStatus, Status};
use std::collections::HashMap;

/// What happened between two readings.
pub struct Rates {
    pub span_s: f64,
    pub nr_cpus: usize,
    /// Of the machine.
    pub idle_percent: f64,
    pub switches_per_s: f64,
    pub steals_per_s: f64,
    pub pulls_per_s: f64,
    pub headroom: Option<HeadroomState>,
    pub groups: Vec<GroupRates>,
}

/// Of the last window, in percent of the machine.
pub struct HeadroomState {
    pub wanted_percent: u32,
    pub idle_percent: f64,
    pub used_percent: f64,
    pub budget_percent: f64,
}

pub struct GroupRates {
    pub cgroup: String,
    /// Of one CPU.
    pub cpu_percent: f64,
    pub limit_percent: Option<f64>,
    /// Periods at whose end the group was throttled on some CPU.
    pub throttled_percent: f64,
    pub throttled_ms_per_s: f64,
    pub burst_us: u64,
    /// Share of the periods that used more than the quota.
    pub burst_percent: f64,
    /// Run time in the pool beyond one quota: what was carried over.
    pub carried_us: u64,
    pub delay_ms_per_s: f64,
    pub steals_per_s: f64,
    pub headroom: String,
}

/// By what groups are sorted; the largest first, names from A.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Name,
    Cpu,
    Throttled,
    Burst,
    Delay,
    Steals,
}

impl Order {
    pub const ALL: [Order; 6] = [
        Order::Name,
        Order::Cpu,
        Order::Throttled,
        Order::Burst,
        Order::Delay,
        Order::Steals,
    ];

    pub fn key(self) -> char {
        match self {
            Order::Name => 'n',
            Order::Cpu => 'c',
            Order::Throttled => 't',
            Order::Burst => 'b',
            Order::Delay => 'd',
            Order::Steals => 's',
        }
    }
}

impl Rates {
    /// A group that was not there before, or whose counters went back (its cgroup was made anew), shows zeros.
    pub fn between(before: &Status, after: &Status) -> Self {
        let span_s = after.uptime_usec.saturating_sub(before.uptime_usec) as f64 / 1e6;
        let per_s = |before: u64, after: u64| match span_s > 0.0 {
            true => after.saturating_sub(before) as f64 / span_s,
            false => 0.0,
        };
        let old: HashMap<&str, &GroupStatus> = before
            .groups
            .iter()
            .map(|group| (group.cgroup.as_str(), group))
            .collect();
        let groups = after
            .groups
            .iter()
            .map(|group| {
                group_rates(
                    old.get(group.cgroup.as_str()).copied().unwrap_or(group),
                    group,
                    per_s,
                )
            })
            .collect();
        let sum =
            |status: &Status, of: fn(&plimsoll_live::CpuStatus) -> u64| status.cpus.iter().map(of).sum();
        let rate = |of| per_s(sum(before, of), sum(after, of));
        // A CPU off line is neither busy nor idle.
        let online = || after.cpus.iter().filter(|cpu| cpu.online);
        let nr_cpus = online().count();
        let idle = online().map(|now| {
            let then = before.cpus.iter().find(|then| then.cpu == now.cpu).unwrap_or(now);
            per_s(then.idle_usec, now.idle_usec)
        });
        let idle_us_per_s: f64 = idle.sum();
        let machine_us = after.headroom_window_us as f64 * nr_cpus as f64;
        Self {
            span_s,
            nr_cpus,
            idle_percent: idle_us_per_s / 1e4 / nr_cpus.max(1) as f64,
            switches_per_s: rate(|cpu| cpu.nr_switches),
            steals_per_s: rate(|cpu| cpu.nr_steals),
            pulls_per_s: rate(|cpu| cpu.nr_pulls),
            headroom: after.side_budget_us.map(|budget_us| HeadroomState {
                wanted_percent: after.headroom_percent,
                idle_percent: after.idle_us as f64 / machine_us * 100.0,
                used_percent: after.side_used_us as f64 / machine_us * 100.0,
                budget_percent: budget_us as f64 / machine_us * 100.0,
            }),
            groups,
        }
    }

    pub fn sort(&mut self, order: Order) {
        self.groups.sort_by(|a, b| a.cgroup.cmp(&b.cgroup));
        let by = |of: fn(&GroupRates) -> f64| move |a: &GroupRates, b: &GroupRates| of(b).total_cmp(&of(a));
        match order {
            Order::Name => {}
            Order::Cpu => self.groups.sort_by(by(|group| group.cpu_percent)),
            Order::Throttled => self.groups.sort_by(by(|group| group.throttled_percent)),
            Order::Burst => self.groups.sort_by(by(|group| group.burst_percent)),
            Order::Delay => self.groups.sort_by(by(|group| group.delay_ms_per_s)),
            Order::Steals => self.groups.sort_by(by(|group| group.steals_per_s)),
        }
    }
}

fn group_rates(old: &GroupStatus, new: &GroupStatus, per_s: impl Fn(u64, u64) -> f64) -> GroupRates {
    let periods = new.nr_periods.saturating_sub(old.nr_periods) as f64;
    let of_periods = |before: u64, after: u64| match periods > 0.0 {
        true => after.saturating_sub(before) as f64 / periods * 100.0,
        false => 0.0,
    };
    let carried_us = match (new.current_bw_usec, new.quota_us) {
        (Some(pool), Some(quota)) => pool.saturating_sub(quota),
        _ => 0,
    };
    GroupRates {
        cgroup: new.cgroup.clone(),
        cpu_percent: per_s(old.usage_usec, new.usage_usec) / 1e4,
        limit_percent: new
            .quota_us
            .map(|quota| quota as f64 / new.period_us as f64 * 100.0),
        throttled_percent: of_periods(old.nr_throttled, new.nr_throttled),
        throttled_ms_per_s: per_s(old.throttled_usec, new.throttled_usec) / 1e3,
        burst_us: new.burst_us,
        burst_percent: of_periods(old.nr_bursts, new.nr_bursts),
        carried_us,
        delay_ms_per_s: per_s(old.run_delay_usec, new.run_delay_usec) / 1e3,
        steals_per_s: per_s(old.nr_steals, new.nr_steals),
        headroom: match new.headroom_percent {
            0 => new.headroom.clone(),
            percent => format!("{} {percent}%", new.headroom),
        },
    }
}

impl GroupRates {
    /// Carried run time out of what may be carried, and the share of periods that used it.
    pub fn burst(&self) -> String {
        if self.limit_percent.is_none() || self.burst_us == 0 {
            return "-".into();
        }
        let (carried, most) = (self.carried_us / 1000, self.burst_us / 1000);
        format!("{carried}/{most} ms {:.0}%", self.burst_percent)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Two readings, two seconds apart, of a limited and an unlimited group on two CPUs.
    pub fn two() -> (Status, Status) {
        let group = |name: &str, quota_us: Option<u64>| GroupStatus {
            cgroup: name.into(),
            usage_usec: 0,
            nr_periods: 0,
            nr_throttled: 0,
            throttled_usec: 0,
            nr_bursts: 0,
            burst_usec: 0,
            current_bw_usec: quota_us.map(|quota| quota + 15_000),
            quota_us,
            period_us: 100_000,
            burst_us: 40_000,
            headroom_percent: 0,
            headroom: "side".into(),
            throttled_cpus: 0,
            parked_tasks: 0,
            run_delay_usec: 0,
            nr_runs: 0,
            nr_grants: 0,
            nr_steals: 0,
        };
        let cpu = |cpu| plimsoll_live::CpuStatus {
            online: true,
            cpu,
            nr_switches: 0,
            nr_wakeups: 0,
            nr_preempts: 0,
            nr_steals: 0,
            nr_searches: 0,
            find_usec: 0,
            nr_pulls: 0,
            nr_parks: 0,
            idle_usec: 0,
            load_writes: 0,
            placed: plimsoll_live::PlacedStatus::default(),
        };
        let before = Status {
            uptime_usec: 10_000_000,
            groups: vec![group("web", Some(20_000)), group("batch", None)],
            cpus: vec![cpu(0), cpu(1)],
            headroom_window_us: 100_000,
            headroom_percent: 30,
            side_budget_us: Some(30_000),
            side_used_us: 20_000,
            idle_us: 50_000,
            merged_cgroups: 0,
            refused_cgroups: None,
        };
        let mut after = before.clone();
        after.uptime_usec += 2_000_000;
        after.cpus[0].idle_usec = 1_000_000;
        after.cpus[1].nr_steals = 8;
        let web = &mut after.groups[0];
        web.usage_usec = 400_000;
        (web.nr_periods, web.nr_throttled, web.nr_bursts) = (20, 10, 5);
        (web.throttled_usec, web.run_delay_usec) = (600_000, 50_000);
        after.groups[1].usage_usec = 2_600_000;
        after.groups[1].nr_steals = 8;
        (before, after)
    }

    #[test]
    fn counters_become_rates_over_the_time_between() {
        let (before, after) = two();
        let rates = Rates::between(&before, &after);
        assert_eq!((rates.idle_percent, rates.steals_per_s), (25.0, 4.0));
        let web = &rates.groups[0];
        assert_eq!((web.cpu_percent, web.limit_percent), (20.0, Some(20.0)));
        assert_eq!((web.throttled_percent, web.throttled_ms_per_s), (50.0, 300.0));
        assert_eq!((web.delay_ms_per_s, rates.groups[1].steals_per_s), (25.0, 4.0));
        assert_eq!(
            (web.burst(), rates.groups[1].burst()),
            ("15/40 ms 25%".into(), "-".into())
        );
    }

    #[test]
    fn a_cpu_off_line_is_neither_busy_nor_idle() {
        let (before, mut after) = two();
        after.cpus[1].online = false;
        let rates = Rates::between(&before, &after);
        assert_eq!((rates.nr_cpus, rates.idle_percent), (1, 50.0));
    }

    #[test]
    fn no_time_between_and_counters_that_went_back_show_zeros() {
        let (before, after) = two();
        for rates in [Rates::between(&after, &after), Rates::between(&after, &before)] {
            for group in rates.groups {
                assert_eq!(
                    (group.cpu_percent, group.throttled_percent, group.steals_per_s),
                    (0.0, 0.0, 0.0)
                );
            }
        }
    }
}
