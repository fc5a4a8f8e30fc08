// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `[[change]]`: each is judged by how things are at its time, after those before it.
use super::{ns_of_ms, Resolve, What, LEFT};
use crate::file::ChangeTable;
use plimsoll_sim::{ChangeKind, CpuSet, GroupId, Limits};

/// What a change is judged by: how things are at its time, after those before it. An affinity that a move or a cpuset
/// leaves nothing of is forgotten, as in the kernel, so none is kept here.
struct Now {
    /// Of each group; a change names only what changes.
    limits: Vec<Limits>,
    /// Of each group, its own.
    cpusets: Vec<Option<CpuSet>>,
    /// Of each workload.
    groups: Vec<GroupId>,
    online: CpuSet,
}

impl Resolve<'_> {
    pub(super) fn changes(&mut self) {
        let mut order: Vec<usize> = (0..self.file.change.len()).collect();
        order.sort_by(|a, b| self.file.change[*a].at_ms.total_cmp(&self.file.change[*b].at_ms));
        let specs = self.scenario.groups.iter().map(|group| &group.spec);
        let workloads = self.scenario.workloads.iter();
        let mut now = Now {
            limits: specs.clone().map(|spec| spec.limits).collect(),
            cpusets: specs.map(|spec| spec.cpuset.clone()).collect(),
            groups: workloads.map(|workload| workload.place.group).collect(),
            online: CpuSet::all(self.nr_cpus()),
        };
        for at in order {
            let table = &self.file.change[at];
            let index = at.to_string();
            let end_ns = self.scenario.warmup_ns + self.scenario.duration_ns;
            let at_ns = ns_of_ms(table.at_ms);
            if at_ns >= end_ns {
                let allowed = format!(
                    "{}: allowed 0 .. below {}, the end of the run",
                    table.at_ms,
                    end_ns / 1_000_000
                );
                self.refuse(&["change", &index, "at_ms"], allowed);
            }
            for what in self.change(table, &index, &mut now) {
                self.scenario.changes.push((at_ns, what));
            }
        }
    }

    fn change(&mut self, table: &ChangeTable, index: &str, now: &mut Now) -> Vec<What> {
        let path = ["change", index];
        let subjects = [
            ("group", table.group.is_some()),
            ("workload", table.workload.is_some()),
            ("offline", table.offline.is_some()),
            ("online", table.online.is_some()),
        ];
        let given: Vec<&str> = subjects
            .iter()
            .filter(|(_, given)| *given)
            .map(|(name, _)| *name)
            .collect();
        let [subject] = given[..] else {
            let given = if given.is_empty() {
                "none".to_string()
            } else {
                given.join(" and ")
            };
            self.refuse(
                &path,
                format!("{given} given: allowed is one of group, workload, offline, online"),
            );
            return Vec::new();
        };
        let knobs = &table.knobs;
        let of_group = [
            ("weight", knobs.weight.is_some()),
            ("quota_us", knobs.quota_us.is_some()),
            ("period_us", knobs.period_us.is_some()),
            ("burst_us", knobs.burst_us.is_some()),
            ("onset_percent", knobs.onset_percent.is_some()),
            ("idle", knobs.idle.is_some()),
            ("headroom_percent", knobs.headroom_percent.is_some()),
        ];
        let of_workload = [
            ("nice", table.nice.is_some()),
            ("move_to", table.move_to.is_some()),
        ];
        let of_both = [("cpus", table.cpus.is_some())];
        let mut used = 0;
        for (owners, keys) in [
            (&["group"][..], &of_group[..]),
            (&["workload"][..], &of_workload[..]),
            (&["group", "workload"][..], &of_both[..]),
        ] {
            for (key, _) in keys.iter().filter(|(_, given)| *given) {
                used += 1;
                if !owners.contains(&subject) {
                    self.refuse(
                        &["change", index, key],
                        format!("goes with {}, not with {subject}", owners.join(" or ")),
                    );
                }
            }
        }
        match subject {
            "group" if used > 0 => self.change_group(table, index, now),
            "workload" if used > 0 => self.change_workload(table, index, now),
            "group" | "workload" => {
                self.refuse(&path, format!("changes nothing of the {subject}"));
                Vec::new()
            }
            _ => self.change_cpus(table, index, now),
        }
    }

    /// Takes CPUs off line, or back.
    fn change_cpus(&mut self, table: &ChangeTable, index: &str, now: &mut Now) -> Vec<What> {
        let all = CpuSet::all(self.nr_cpus());
        let mut online = now.online.clone();
        let (cpus, kind): (_, fn(u32) -> ChangeKind) = if table.offline.is_some() {
            let path = ["change", index, "offline"];
            let cpus = self
                .cpu_list(&table.offline, &all, "there", &path)
                .unwrap_or_default();
            cpus.iter().for_each(|cpu| online.remove(cpu));
            if online.is_empty() {
                let message = format!(
                    "no CPU would be on line; allowed is a list without one of these: {}",
                    now.online
                );
                self.refuse(&path, message);
                return Vec::new();
            }
            (cpus, |cpu| ChangeKind::CpuOffline { cpu })
        } else {
            let cpus = self.cpu_list(&table.online, &all, "there", &["change", index, "online"]);
            let cpus = cpus.unwrap_or_default();
            cpus.iter().for_each(|cpu| online.insert(cpu));
            (cpus, |cpu| ChangeKind::CpuOnline { cpu })
        };
        now.online = online;
        cpus.iter().map(|cpu| What::Kind(kind(cpu))).collect()
    }

    fn change_group(&mut self, table: &ChangeTable, index: &str, now: &mut Now) -> Vec<What> {
        let name = table.group.clone().unwrap_or_default();
        let Some(group) = self.named_group(&name, &["change", index, "group"]) else {
            return Vec::new();
        };
        let Some(number) = group.0.checked_sub(1) else {
            self.refuse(&["change", index, "group"], "the root group takes no knobs");
            return Vec::new();
        };
        let mut kinds = Vec::new();
        // In this order: a group that stops being idle weighs 100.
        if let Some(idle) = table.knobs.idle {
            kinds.push(ChangeKind::GroupIdle { group, idle });
        }
        if let Some(cpu_weight) = table.knobs.weight {
            kinds.push(ChangeKind::CpuWeight { group, cpu_weight });
        }
        if let Some(percent) = table.knobs.headroom_percent {
            kinds.push(ChangeKind::Headroom { group, percent });
        }
        if table.cpus.is_some() {
            // Of all CPUs: as in the kernel, a cpuset may wait for CPUs that are off line.
            let parent = self.scenario.groups[number as usize].spec.parent;
            let above = self.cpus_of(
                parent,
                &|at| now.cpusets[at].as_ref(),
                &CpuSet::all(self.nr_cpus()),
            );
            let cpuset = self.cpu_list(&table.cpus, &above, LEFT, &["change", index, "cpus"]);
            if cpuset.is_some() {
                now.cpusets[number as usize] = cpuset.clone();
            }
            kinds.push(ChangeKind::Cpuset { group, cpuset });
        }
        if table.knobs.limits_given() {
            if let Some(changed) = self.limits(&table.knobs, now.limits[number as usize], &["change", index])
            {
                now.limits[number as usize] = changed;
                kinds.push(ChangeKind::Limits {
                    group,
                    limits: changed,
                });
            }
        }
        kinds.into_iter().map(What::Kind).collect()
    }

    fn change_workload(&mut self, table: &ChangeTable, index: &str, now: &mut Now) -> Vec<What> {
        let name = table.workload.clone().unwrap_or_default();
        let Some(workload) = self
            .scenario
            .workloads
            .iter()
            .position(|workload| workload.name == name)
        else {
            let message = self.unknown("workload", &name, self.file.workload.keys());
            self.refuse(&["change", index, "workload"], message);
            return Vec::new();
        };
        let mut whats = Vec::new();
        if let Some(to) = &table.move_to {
            if let Some(group) = self.named_group(to, &["change", index, "move_to"]) {
                now.groups[workload] = group;
                whats.push(What::Move(workload, group));
            }
        }
        if let Some(nice) = table.nice {
            whats.push(What::Nice(workload, nice));
        }
        if table.cpus.is_some() {
            // Of those on line: the kernel refuses an affinity that leaves none.
            let own = |at: usize| now.cpusets[at].as_ref();
            let within = self.cpus_of(now.groups[workload], &own, &now.online);
            let rule = "on line and left by the groups above";
            let affinity = self.cpu_list(&table.cpus, &within, rule, &["change", index, "cpus"]);
            whats.push(What::Affinity(workload, affinity));
        }
        whats
    }
}
