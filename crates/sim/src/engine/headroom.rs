// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures what headroom.h wants to know, once a window, and links groups to the side.
use super::bandwidth::policy_limits;
use super::events::Timer;
use super::Engine;
use crate::class::Class;

/// What was so when the present window began.
#[derive(Default)]
pub(super) struct Marks {
    pub began_ns: u64,
    pub idle_ns: u64,
    /// Run time of the side in this window.
    pub side_used_ns: u64,
    /// Of the measured time, while a group asked for headroom. They know no windows: one lasts as the warm-up ends, and
    /// another as the run does.
    pub side_total_ns: u64,
    pub idle_total_ns: u64,
    pub capacity_total_ns: u64,
    /// Idle time and time on line of all CPUs as a group began to ask, or the warm-up ended; `None`: none asks.
    since: Option<(u64, u64)>,
    /// A group has asked at some time of the run.
    pub asked: bool,
    /// Windows that ended.
    pub windows: u64,
    /// Of the last of them with a budget.
    pub budget_ns: u64,
    /// A window's timer is set.
    pub active: bool,
}

impl<C: Class> Engine<'_, C> {
    /// Idle time of all CPUs online, until now.
    pub(super) fn machine_idle_ns(&self) -> u64 {
        let idle = |cpu: &super::state::Cpu| {
            cpu.idle_total_ns
                + if cpu.idle && cpu.online {
                    self.now_ns.saturating_sub(cpu.idle_from_ns)
                } else {
                    0
                }
        };
        self.cpus.iter().map(idle).sum()
    }

    /// Time on line of all CPUs, until now.
    fn machine_online_ns(&self) -> u64 {
        let offline_ns: u64 = (0..self.cpus.len()).map(|cpu| self.cpu_offline_ns(cpu)).sum();
        self.now_ns * self.cpus.len() as u64 - offline_ns
    }

    /// The measured time begins: what was counted so far is left out.
    pub(super) fn begin_headroom_totals(&mut self) {
        let now = (self.machine_idle_ns(), self.machine_online_ns());
        let marks = &mut self.headroom_marks;
        marks.side_total_ns = 0;
        marks.idle_total_ns = 0;
        marks.capacity_total_ns = 0;
        marks.windows = 0;
        marks.since = marks.since.map(|_| now);
    }

    /// No group asks for headroom any more, or the run is over.
    pub(super) fn end_headroom_totals(&mut self) {
        let (idle_ns, online_ns) = (self.machine_idle_ns(), self.machine_online_ns());
        let marks = &mut self.headroom_marks;
        if let Some((idle_before_ns, online_before_ns)) = marks.since.take() {
            marks.idle_total_ns += idle_ns - idle_before_ns;
            marks.capacity_total_ns += online_ns - online_before_ns;
        }
    }

    /// Groups' headroom changed: says which groups are side now, with no task runnable where that changes.
    pub(super) fn link_side(&mut self) {
        self.headroom.percent = 0;
        self.headroom.tolerance_ns = 0;
        let side = self.memory.side();
        for group in 0..side {
            self.memory.pl_headroom_clear(group);
        }
        // Parents have lower numbers than their children.
        for group in 0..side {
            self.memory.pl_headroom_mark(&mut self.headroom, group);
        }
        let changes: Vec<bool> = (0..side)
            .map(|group| self.memory.pl_headroom_side_changes(&self.headroom, group))
            .collect();
        // Levels count their children, so all below a change comes out as well; that is every task of the machine
        // at worst, and a change of headroom is rare.
        let any = changes.iter().any(|&change| change);
        let tasks = if any { self.tasks.len() as u32 } else { 0 };
        self.with_tasks_out(0..tasks, |engine| {
            for group in 0..side {
                let (memory, headroom) = (&engine.memory, &engine.headroom);
                memory.pl_headroom_link(headroom, group);
                engine.is_side[group as usize] = memory.pl_headroom_is_side(headroom, group);
            }
        });
        if self.headroom.percent == 0 {
            self.end_headroom_totals();
        } else if self.headroom_marks.since.is_none() {
            self.headroom_marks.asked = true;
            self.headroom_marks.since = Some((self.machine_idle_ns(), self.machine_online_ns()));
        }
        if self.headroom.percent > 0 && !self.headroom_marks.active {
            self.headroom_marks.active = true;
            self.begin_window();
        }
    }

    fn begin_window(&mut self) {
        self.headroom_marks.began_ns = self.now_ns;
        self.headroom_marks.idle_ns = self.machine_idle_ns();
        self.headroom_marks.side_used_ns = 0;
        self.timers
            .push(self.now_ns + self.policy.headroom.window_ns, Timer::Headroom);
    }

    pub(super) fn headroom_window(&mut self) {
        self.counts.timers += 1;
        for cpu in 0..self.cpus.len() as u32 {
            self.charge(cpu, false);
        }
        let side = self.memory.side();
        let used_ns = self.headroom_marks.side_used_ns;
        let idle_ns = self.machine_idle_ns() - self.headroom_marks.idle_ns;
        let window_ns = self.now_ns - self.headroom_marks.began_ns;
        let was_limited = self.memory.pl_bw_limited(side);
        let flags = self.memory.pl_headroom_window(
            &mut self.headroom,
            used_ns,
            idle_ns,
            window_ns,
            self.nr_online,
            self.now_ns,
            &self.policy.headroom,
            &self.policy.core.side,
        );
        let limited = (was_limited, self.memory.pl_bw_limited(side));
        self.arm(flags, side);
        if limited == (true, false) {
            self.release_all(side);
        }
        if limited.0 != limited.1 {
            for cpu in 0..self.cpus.len() as u32 {
                self.set_limit(cpu);
            }
        }
        self.headroom_marks.windows += 1;
        if self.headroom.percent > 0 {
            self.headroom_marks.budget_ns = self.headroom.budget_ns;
        }
        if let Some(observer) = self.observer.as_deref_mut() {
            observer.headroom(self.now_ns, self.headroom.budget_ns, used_ns, idle_ns);
        }
        if self.headroom.percent > 0 {
            self.begin_window();
        } else {
            self.headroom_marks.active = false;
        }
    }

    /// The side group begins without a limit; its first window sets one.
    pub(super) fn begin_side(&mut self) {
        let limits = policy_limits(&crate::config::Limits::UNLIMITED);
        let side = self.memory.side();
        self.memory.mark_side();
        self.memory.pl_bw_set(side, &limits, 0, 0, &self.policy.core.side);
        self.memory.pl_group_link(side);
    }
}
