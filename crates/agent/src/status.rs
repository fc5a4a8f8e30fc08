// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `plimsoll status` and `top` ask for, and how a changed knob is heard of: the protocol is the scheduler's.
use crate::{Agent, Files, Store};
use plimsoll_live::{shown, GroupStatus, Serves, Status};
use std::path::Path;

/// Of an agent at a moment.
pub struct At<'a, F, S> {
    pub agent: &'a mut Agent<F, S>,
    pub now_ns: u64,
}

impl<F: Files, S: Store> Serves for At<'_, F, S> {
    fn status(&mut self, cgroup: Option<&Path>) -> Status {
        self.agent.status(cgroup, self.now_ns)
    }

    fn reload(&mut self, cgroup: &Path) -> plimsoll_live::Result<()> {
        self.agent.reload(cgroup, self.now_ns)
    }
}

impl<F: Files, S: Store> Agent<F, S> {
    /// All groups, or the one at `cgroup` and what is below it. `now_ns`: since the machine started.
    pub fn status(&self, cgroup: Option<&Path>, now_ns: u64) -> Status {
        let wanted = |path: &Path| cgroup.is_none_or(|cgroup| path.starts_with(cgroup));
        let groups = self.groups.iter().filter(|(path, _)| wanted(path));
        let groups = groups.map(|(path, group)| {
            let counted = self.files.counted(path);
            let number = |name| counted.get(name).copied().unwrap_or(0);
            let loan = self.lent.get(path).map(|lent| &lent.loan);
            let lent = loan.map(|loan| loan.bursts());
            GroupStatus {
                cgroup: shown(path),
                usage_usec: number("usage_usec"),
                nr_periods: number("nr_periods"),
                nr_throttled: number("nr_throttled"),
                throttled_usec: number("throttled_usec"),
                nr_bursts: lent.map_or(number("nr_bursts"), |(nr_bursts, _)| nr_bursts),
                burst_usec: lent.map_or(number("burst_usec"), |(_, burst_us)| burst_us),
                current_bw_usec: loan.map(|loan| loan.have_us().max(0) as u64),
                quota_us: group.owner.quota_us,
                period_us: group.owner.period_us,
                burst_us: group.burst_us(),
                headroom_percent: group.knobs.headroom_percent.unwrap_or(0) as u32,
                headroom: self.headroom.role(path, group).into(),
                throttled_cpus: 0,
                parked_tasks: 0,
                run_delay_usec: 0,
                nr_runs: 0,
                nr_grants: 0,
                nr_steals: 0,
            }
        });
        let asked = self.headroom.percent > 0;
        Status {
            merged_cgroups: 0,
            refused_cgroups: Some(self.nr_refused()),
            uptime_usec: now_ns / 1000,
            groups: groups.collect(),
            cpus: Vec::new(),
            headroom_window_us: crate::headroom::WINDOW_NS / 1000,
            headroom_percent: self.headroom.percent,
            side_budget_us: asked.then_some(self.headroom.budget_us),
            side_used_us: self.headroom.used_us,
            idle_us: self.headroom.idle_us,
        }
    }
}
