// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Moves tasks and sets timers as the limits of bandwidth.h say.
use super::events::Timer;
use super::policy as pl;
use super::state::{State, NONE};
use super::Engine;
use crate::class::Class;
use crate::config::{Enforce, GroupId, Limits};

pub(super) fn policy_limits(limits: &Limits) -> pl::BwLimits {
    pl::BwLimits {
        quota_ns: limits.quota_ns.unwrap_or(pl::UNLIMITED),
        period_ns: limits.period_ns,
        burst_ns: limits.burst_ns,
        onset_percent: limits.onset_percent,
        reserved: 0,
    }
}

impl<C: Class> Engine<'_, C> {
    fn bw_config(&self, group: u32) -> &pl::BwConfig {
        if group == self.memory.side() {
            &self.policy.core.side
        } else {
            &self.policy.core.bandwidth
        }
    }

    /// The level that keeps a group's tasks from running on a CPU.
    #[inline]
    pub(super) fn throttled_by(&self, group: u32, cpu: u32) -> Option<u32> {
        self.memory.pl_group_throttled(group, cpu)
    }

    /// Starts the timers that the policy asked for on the way up from a group.
    pub(super) fn arm(&mut self, flags: u32, group: u32) {
        if flags & (pl::BW_ARM_PERIOD | pl::BW_ARM_SLACK) == 0 {
            return;
        }
        let mut level = Some(group);
        while let Some(number) = level {
            self.arm_level(number);
            level = self.memory.parent(number);
        }
        self.arm_level(self.memory.side());
    }

    fn arm_level(&mut self, group: u32) {
        if self.memory.pl_bw_take_arm_period(group) {
            self.arm_period(group, self.memory.pool(group).next_ns);
        }
        if self.memory.pl_bw_take_arm_slack(group) {
            self.timers
                .push(self.now_ns + pl::BW_SLACK_DELAY_NS, Timer::Slack { group });
        }
    }

    fn arm_period(&mut self, group: u32, at_ns: u64) {
        self.period_at_ns[group as usize] = at_ns;
        self.timers.push(at_ns.max(self.now_ns), Timer::Period { group });
    }

    pub(super) fn period(&mut self, group: u32) {
        if self.period_at_ns[group as usize] != self.now_ns {
            return;
        }
        self.counts.timers += 1;
        let before = self.memory.pool(group);
        let again = self
            .memory
            .pl_bw_period(group, self.now_ns, 1, self.bw_config(group));
        let next_ns = self.memory.pool(group).next_ns;
        self.book_refill(group, &before);
        self.observe_pool(group);
        self.distribute(group);
        if again {
            self.arm_period(group, next_ns);
        } else {
            self.period_at_ns[group as usize] = 0;
        }
    }

    pub(super) fn slack(&mut self, group: u32) {
        self.counts.timers += 1;
        let config = self.bw_config(group);
        if self.memory.pl_bw_slack(group, self.now_ns, config) {
            self.distribute(group);
        }
    }

    fn distribute(&mut self, group: u32) {
        self.hand_out(group, |engine| {
            let config = engine.bw_config(group);
            engine.memory.pl_bw_distribute_next(group, engine.now_ns, config)
        });
    }

    /// Releases all that the group's throttling holds, whatever the pool says.
    pub(super) fn release_all(&mut self, group: u32) {
        self.hand_out(group, |engine| {
            engine.memory.pl_bw_release_next(group, engine.now_ns)
        });
    }

    fn hand_out(&mut self, group: u32, next: impl Fn(&Self) -> Option<u32>) {
        let mut released = std::mem::take(&mut self.released);
        // First all are released, then tasks move: what they do to the pool must not come in between.
        if self.memory.pl_bw_distribute_begin(group) {
            while let Some(cpu) = next(self) {
                released.push(cpu);
            }
            self.memory.pl_bw_distribute_end(group);
        }
        // One CPU tells all of them, one after the other: the one told first draws first from what is left.
        let step_ns = self.costs.ipi_send_ns + self.costs.pool_lock_ns;
        for (told, cpu) in released.drain(..).enumerate() {
            self.release(group, cpu, told as u64 * step_ns);
        }
        self.released = released;
    }

    /// A group may run again on a CPU, which hears of it `after_ns` from now.
    fn release(&mut self, group: u32, cpu: u32, after_ns: u64) {
        if let Some(observer) = self.observer.as_deref_mut() {
            observer.unthrottle(self.now_ns, GroupId(group), cpu);
        }
        let mut next = self.memory.parked(group, cpu);
        self.memory.set_parked(group, cpu, None);
        let mut back = std::mem::take(&mut self.unparked);
        // First all are counted, then placed: the bound of baseline/cfs.h is at the weights of all that wait here, and by
        // the first one's alone a light task would stand behind its heavy neighbours for as long as they are heavier.
        while let Some(task) = next {
            let entry = &mut self.tasks[task as usize];
            next = (entry.parked_next != NONE).then_some(entry.parked_next);
            entry.parked_by = NONE;
            match self.throttled_by(self.tasks[task as usize].group, cpu) {
                Some(other) => self.park(task, cpu, other),
                None => {
                    self.count(task, cpu);
                    back.push(task);
                }
            }
        }
        for &task in &back {
            self.place(task, cpu, true);
            self.insert(task, cpu);
        }
        let state = &self.cpus[cpu as usize];
        if state.queue.is_empty() {
            // No task came back.
        } else if state.idle {
            self.kick(cpu, NONE, after_ns);
        } else if self.policy.enforce == Enforce::Timer && back.iter().any(|&task| self.preempts(task, cpu)) {
            // The kernel's unthrottling interrupts idle CPUs only.
            self.resched(cpu, after_ns);
        } else {
            self.set_limit(cpu);
        }
        back.clear();
        self.unparked = back;
    }

    /// Sets a runnable task aside until a group may run on its CPU again.
    pub(super) fn park(&mut self, task: u32, cpu: u32, group: u32) {
        if self.tasks[task as usize].policy.counted != 0 {
            self.uncount(task, cpu, false);
        }
        let first = self.memory.parked(group, cpu);
        if let Some(first) = first {
            self.tasks[first as usize].parked_previous = task;
        }
        let entry = &mut self.tasks[task as usize];
        entry.state = State::Parked;
        entry.parked_by = group;
        entry.parked_next = first.unwrap_or(NONE);
        entry.parked_previous = NONE;
        self.memory.set_parked(group, cpu, Some(task));
        self.weigh_parked(task, cpu, group);
    }

    fn weigh_parked(&mut self, task: u32, cpu: u32, level: u32) {
        let group = self.tasks[task as usize].group;
        let mut touch: pl::Touch = pl::zeroed();
        let (now_ns, config) = (self.now_ns, &self.policy.core);
        self.memory
            .pl_group_parked(group, level, cpu, now_ns, &mut touch, config);
        let cost_ns = self.pay_load(group, cpu, &touch);
        self.stall(cpu, cost_ns);
    }

    pub(super) fn unpark(&mut self, task: u32) {
        let entry = &mut self.tasks[task as usize];
        let (group, cpu) = (entry.parked_by, entry.policy.cpu);
        let (previous, next) = (entry.parked_previous, entry.parked_next);
        entry.parked_by = NONE;
        if next != NONE {
            self.tasks[next as usize].parked_previous = previous;
        }
        if previous != NONE {
            self.tasks[previous as usize].parked_next = next;
        } else {
            self.memory.set_parked(group, cpu, (next != NONE).then_some(next));
        }
    }

    /// Limits that were checked take effect: everything starts anew.
    pub(super) fn set_limits(&mut self, group: u32, limits: &Limits) {
        self.had_quota[group as usize] |= limits.quota_ns.is_some();
        let period_ns = limits.period_ns;
        let phase_ns = (self.phases_ns[group as usize] % period_ns + period_ns
            - self.clock_start_ns % period_ns)
            % period_ns;
        let limits = policy_limits(limits);
        for cpu in 0..self.cpus.len() as u32 {
            self.charge(cpu, false);
        }
        let config = self.bw_config(group);
        let flags = self
            .memory
            .pl_bw_set(group, &limits, phase_ns, self.now_ns, config);
        self.link_groups();
        self.book_limits(group);
        self.arm(flags, group);
        self.observe_pool(group);
        self.release_all(group);
        for cpu in 0..self.cpus.len() as u32 {
            self.set_limit(cpu);
        }
    }

    /// After limits or cpu.idle changed.
    pub(super) fn link_groups(&mut self) {
        for number in 0..self.memory.side() {
            // Parents have lower numbers than their children.
            self.memory.pl_group_link(number);
        }
    }

    pub(super) fn observe_pool(&mut self, group: u32) {
        let Some(observer) = self.observer.as_deref_mut() else {
            return;
        };
        if group != self.memory.side() {
            let runtime_ns = self.memory.pool(group).runtime_ns;
            observer.pool(self.now_ns, GroupId(group), runtime_ns);
        }
    }

    /// Tells the observer which levels have just been throttled.
    pub(super) fn observe_throttled(&mut self, group: u32, cpu: u32) {
        let Some(observer) = self.observer.as_deref_mut() else {
            return;
        };
        let mut level = Some(group);
        while let Some(number) = level {
            let balance = self.memory.balance(number, cpu);
            if balance.throttled != 0 && balance.throttled_at_ns == self.now_ns {
                observer.throttle(self.now_ns, GroupId(number), cpu);
            }
            level = self.memory.above(number, group);
        }
    }

    /// What `locks` pools on the way up from a group cost the CPU that asked them.
    pub(super) fn pay_pool(&mut self, group: u32, cpu: u32, locks: u32) -> u64 {
        let mut cost_ns = 0;
        let mut level = Some(group);
        let mut left = locks;
        while let (Some(number), 1..) = (level, left) {
            if self.memory.pl_bw_limited(number) {
                left -= 1;
                let hold_ns = self.costs.pool_lock_ns;
                let (line, seen) = self.memory.pool_line(number, cpu);
                cost_ns += line.write(cpu, seen, self.now_ns + cost_ns, hold_ns, &self.topo, &self.costs);
            }
            level = self.memory.above(number, group);
        }
        self.touches.pool_locks += u64::from(locks);
        self.touches.pool_ns += cost_ns;
        cost_ns
    }

    /// What touching the load averages from a group upwards costs. The policy counts, level by level from below.
    pub(super) fn pay_load(&mut self, group: u32, cpu: u32, touch: &pl::Touch) -> u64 {
        let (mut reads, mut writes) = (touch.load_reads, touch.load_writes);
        if reads + writes == 0 {
            return 0;
        }
        self.touches.load_reads += u64::from(reads);
        self.touches.load_writes += u64::from(writes);
        let mut cost_ns = 0;
        let mut level = Some(group);
        while let (Some(number), 1..) = (level, reads + writes) {
            let (line, seen) = self.memory.load_line(number, cpu);
            if writes > 0 {
                cost_ns += line.write(cpu, seen, self.now_ns + cost_ns, 0, &self.topo, &self.costs);
                writes -= 1;
                reads = reads.saturating_sub(1);
            } else {
                let read_ns = line.read(cpu, seen, self.now_ns + cost_ns, &self.topo, &self.costs);
                self.touches.load_read_ns += read_ns;
                cost_ns += read_ns;
                reads -= 1;
            }
            level = self.memory.parent(number);
        }
        self.touches.load_ns += cost_ns;
        cost_ns
    }
}
