// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the engine's books to results.
use super::policy as pl;
use super::state::State;
use super::Engine;
use crate::class::Class;
use crate::results::{
    CounterResult, CpuResult, CpuStat, GroupResult, HeadroomResult, LatencyResult, Placed, Results, RunDelay,
    Touches, WorkloadResult,
};

/// Books as they stood when the warm-up ended.
#[derive(Default)]
pub(super) struct WarmUp {
    /// When it is to end.
    due_ns: u64,
    ended_ns: u64,
    /// Throttlings that lasted as it ended: group, CPU, since when.
    throttled: Vec<(u32, u32, u64)>,
    stats: Vec<CpuStat>,
    /// Statistics, idle time, time off line.
    cpus: Vec<(CpuResult, u64, u64)>,
    placed: Vec<[u64; pl::PLACES]>,
    waiting: u64,
}

impl WarmUp {
    pub fn until(due_ns: u64) -> Self {
        Self {
            due_ns,
            ..Self::default()
        }
    }
}

impl<C: Class> Engine<'_, C> {
    /// The warm-up is over: everything counted so far is left out of the results.
    pub(super) fn warm_up(&mut self) {
        for cpu in 0..self.cpus.len() as u32 {
            self.charge(cpu, false);
        }
        self.services.recording = true;
        self.warm.ended_ns = self.now_ns;
        self.warm.stats = (0..self.memory.side())
            .map(|group| self.cpu_stat(group))
            .collect();
        self.warm.cpus = (0..self.cpus.len())
            .map(|cpu| {
                (
                    self.cpus[cpu].stats,
                    self.cpu_idle_ns(cpu),
                    self.cpu_offline_ns(cpu),
                )
            })
            .collect();
        self.warm.placed = self.cpus.iter().map(|cpu| cpu.placed).collect();
        self.warm.waiting = self.waiting();
        self.group_usage_ns.fill(0);
        self.group_delays.fill(RunDelay::default());
        self.workload_usage_ns.fill(0);
        self.workload_delays.iter_mut().for_each(|h| h.reset());
        self.touches = Touches::default();
        self.services.latencies.iter_mut().for_each(|h| h.reset());
        self.services.counters.fill(0);
        self.warm.throttled = self.throttled();
        self.begin_headroom_totals();
    }

    fn throttled(&self) -> Vec<(u32, u32, u64)> {
        let mut throttled = Vec::new();
        for group in (0..self.memory.side()).filter(|&group| self.had_quota[group as usize]) {
            for cpu in 0..self.cpus.len() as u32 {
                let balance = self.memory.balance(group, cpu);
                if balance.throttled != 0 {
                    throttled.push((group, cpu, balance.throttled_at_ns));
                }
            }
        }
        throttled
    }

    /// How much of its cpu.stat's throttled time a group had before the measured time, by throttlings that have ended
    /// since: the policy counts one when it ends, and the whole of it.
    fn throttled_early_ns(&self, group: u32) -> u64 {
        let of_group = self.warm.throttled.iter().filter(|&&(of, _, _)| of == group);
        let early_ns = of_group.map(|&(_, cpu, at_ns)| {
            let balance = self.memory.balance(group, cpu);
            let lasts = balance.throttled != 0 && balance.throttled_at_ns == at_ns;
            if lasts {
                0
            } else {
                self.warm.ended_ns - at_ns
            }
        });
        early_ns.sum()
    }

    /// Tasks that are runnable and do not run.
    fn waiting(&self) -> u64 {
        self.tasks
            .iter()
            .filter(|task| matches!(task.state, State::Queued | State::Parked))
            .count() as u64
    }

    fn placed(&self, cpu: usize) -> Placed {
        let before = self.warm.placed.get(cpu).copied().unwrap_or_default();
        let now = self.cpus[cpu].placed;
        Placed::from_counts(std::array::from_fn(|place| now[place] - before[place]))
    }

    fn cpu_idle_ns(&self, cpu: usize) -> u64 {
        let cpu = &self.cpus[cpu];
        let now_ns = if cpu.idle && cpu.online {
            self.now_ns.saturating_sub(cpu.idle_from_ns)
        } else {
            0
        };
        cpu.idle_total_ns + now_ns
    }

    pub(super) fn cpu_offline_ns(&self, cpu: usize) -> u64 {
        let cpu = &self.cpus[cpu];
        let now_ns = if cpu.online {
            0
        } else {
            self.now_ns - cpu.offline_from_ns
        };
        cpu.offline_total_ns + now_ns
    }

    fn cpu_stat(&self, group: u32) -> CpuStat {
        let pool = self.memory.pool(group);
        CpuStat {
            nr_periods: pool.nr_periods,
            nr_throttled: pool.nr_throttled,
            throttled_ns: pool.throttled_ns as u64,
            current_bw_ns: if pool.quota_ns == pl::UNLIMITED {
                0
            } else {
                pool.runtime_ns.max(0) as u64
            },
            nr_bursts: pool.nr_bursts,
            burst_ns: pool.burst_ns_used,
        }
    }

    pub(crate) fn report(mut self) -> Results {
        for cpu in 0..self.cpus.len() as u32 {
            self.charge(cpu, false);
        }
        if self.now_ns < self.warm.due_ns {
            // Every task ended within the warm-up: nothing was measured, and nothing of the warm-up is reported.
            self.warm_up();
        }
        self.end_headroom_totals();
        let measured_ns = self.now_ns - self.warm.ended_ns;
        let groups = self.report_groups();
        let cpus = (0..self.cpus.len())
            .map(|cpu| {
                let (before, idle_before_ns, offline_before_ns) = self.warm.cpus[cpu];
                let now = self.cpus[cpu].stats;
                let offline_ns = self.cpu_offline_ns(cpu) - offline_before_ns;
                let online_ns = measured_ns - offline_ns;
                let idle_ns = (self.cpu_idle_ns(cpu) - idle_before_ns).min(online_ns);
                CpuResult {
                    busy_ns: online_ns - idle_ns,
                    idle_ns,
                    offline_ns,
                    task_ns: now.task_ns - before.task_ns,
                    schedules: now.schedules - before.schedules,
                    idles: now.idles - before.idles,
                    wakeups: now.wakeups - before.wakeups,
                    steals: now.steals - before.steals,
                    newidle_pulls: now.newidle_pulls - before.newidle_pulls,
                    periodic_pulls: now.periodic_pulls - before.periodic_pulls,
                    lag_pulls: now.lag_pulls - before.lag_pulls,
                    searches: now.searches - before.searches,
                    find_ns: now.find_ns - before.find_ns,
                    placed: self.placed(cpu),
                }
            })
            .collect();
        let marks = &self.headroom_marks;
        let headroom = marks.asked.then_some(HeadroomResult {
            windows: marks.windows,
            side_used_ns: marks.side_total_ns,
            idle_ns: marks.idle_total_ns,
            capacity_ns: marks.capacity_total_ns,
            budget_ns: marks.budget_ns,
        });
        Results {
            end_ns: self.now_ns,
            measured_ns,
            all_exited: self.unfinished == 0,
            waiting_at_begin: self.warm.waiting,
            waiting_at_end: self.waiting(),
            events: self.counts,
            groups,
            cpus,
            touches: self.touches,
            headroom,
            workloads: self.report_workloads(),
        }
    }

    fn report_groups(&self) -> Vec<GroupResult> {
        let n = self.memory.side() as usize;
        let mut usage_ns = self.group_usage_ns[..n].to_vec();
        for group in (1..n).rev() {
            // Parents have lower numbers.
            if let Some(parent) = self.memory.parent(group as u32) {
                usage_ns[parent as usize] += usage_ns[group];
            }
        }
        (0..n)
            .map(|group| {
                let (before, now) = (self.warm.stats[group], self.cpu_stat(group as u32));
                let limited = self.had_quota[group];
                GroupResult {
                    path: self.paths[group].clone(),
                    usage_ns: usage_ns[group],
                    stat: limited.then_some(CpuStat {
                        nr_periods: now.nr_periods - before.nr_periods,
                        nr_throttled: now.nr_throttled - before.nr_throttled,
                        throttled_ns: now.throttled_ns
                            - before.throttled_ns
                            - self.throttled_early_ns(group as u32),
                        current_bw_ns: now.current_bw_ns,
                        nr_bursts: now.nr_bursts - before.nr_bursts,
                        burst_ns: now.burst_ns - before.burst_ns,
                    }),
                    run_delay: self.group_delays[group],
                }
            })
            .collect()
    }

    fn report_workloads(self) -> Vec<WorkloadResult> {
        let mut results: Vec<WorkloadResult> = self
            .workloads
            .into_iter()
            .zip(self.workload_delays)
            .zip(self.workload_usage_ns)
            .map(|((name, run_delay), usage_ns)| WorkloadResult {
                name,
                usage_ns,
                run_delay,
                latencies: Vec::new(),
                counters: Vec::new(),
            })
            .collect();
        for ((workload, name), histogram) in self.latencies.into_iter().zip(self.services.latencies) {
            let result = LatencyResult { name, histogram };
            results[workload.0 as usize].latencies.push(result);
        }
        for ((workload, name), value) in self.counters.into_iter().zip(self.services.counters) {
            results[workload.0 as usize]
                .counters
                .push(CounterResult { name, value });
        }
        results
    }
}
