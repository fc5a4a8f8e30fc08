// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Moves tasks and sets timers as the limits of bandwidth.h say.
use super::events::Timer;
use super::state::{State, NONE};
use super::Engine;
use crate::class::Class;
use crate::config::{Enforce, GroupId, Limits};
use plimsoll_policy_sys as pl;

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
    fn bw_config(&self, group: u32) -> *const pl::BwConfig {
        if group == self.memory.side() {
            &self.policy.core.side
        } else {
            &self.policy.core.bandwidth
        }
    }

    /// The level that keeps a group's tasks from running on a CPU.
    #[inline]
    pub(super) fn throttled_by(&self, group: u32, cpu: u32) -> Option<u32> {
        // SAFETY: the group is alive; the policy only reads.
        let level = unsafe { pl::pl_group_throttled(self.memory.group(group), cpu) };
        self.memory.number(level)
    }

    /// Starts the timers that the policy asked for on the way up from a group.
    pub(super) fn arm(&mut self, flags: u32, group: u32) {
        if flags & (pl::BW_ARM_PERIOD | pl::BW_ARM_SLACK) == 0 {
            return;
        }
        let mut level = Some(group);
        while let Some(number) = level {
            self.arm_level(number);
            // SAFETY: the group is alive and not borrowed.
            level = self.memory.number(unsafe { (*self.memory.group(number)).parent });
        }
        self.arm_level(self.memory.side());
    }

    fn arm_level(&mut self, group: u32) {
        let pool = self.memory.pool(group);
        // SAFETY: the pool is alive and not borrowed.
        let (period, slack, next_ns) = unsafe {
            (
                pl::pl_bw_take_arm_period(pool),
                pl::pl_bw_take_arm_slack(pool),
                (*pool).next_ns,
            )
        };
        if period {
            self.arm_period(group, next_ns);
        }
        if slack {
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
        let pool = self.memory.pool(group);
        // SAFETY: the pool is alive and not borrowed.
        let (before, again, next_ns) = unsafe {
            let before = *pool;
            let again = pl::pl_bw_period(pool, self.now_ns, 1, self.bw_config(group));
            (before, again, (*pool).next_ns)
        };
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
        // SAFETY: the pool is alive and not borrowed.
        if unsafe { pl::pl_bw_slack(self.memory.pool(group), self.now_ns, self.bw_config(group)) } {
            self.distribute(group);
        }
    }

    fn distribute(&mut self, group: u32) {
        let config = self.bw_config(group);
        self.hand_out(group, |pool, now_ns| unsafe {
            pl::pl_bw_distribute_next(pool, now_ns, config)
        });
    }

    /// Releases all that the group's throttling holds, whatever the pool says.
    pub(super) fn release_all(&mut self, group: u32) {
        self.hand_out(group, |pool, now_ns| unsafe {
            pl::pl_bw_release_next(pool, now_ns)
        });
    }

    fn hand_out(&mut self, group: u32, next: impl Fn(*mut pl::Pool, u64) -> *mut pl::Balance) {
        let pool = self.memory.pool(group);
        let mut released = std::mem::take(&mut self.released);
        // SAFETY: the pool is alive and not borrowed; nothing else distributes meanwhile. First all are released,
        // then tasks move: what they do to the pool must not come in between.
        unsafe {
            if pl::pl_bw_distribute_begin(pool) {
                loop {
                    let balance = next(pool, self.now_ns);
                    if balance.is_null() {
                        break;
                    }
                    released.push((*balance).cpu);
                }
                pl::pl_bw_distribute_end(pool);
            }
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
        // First all are counted, then placed: the bound on a wait is at the weights of all that wait here, and by
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
            // Nobody came back.
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
        // SAFETY: groups are alive and not borrowed.
        let lighter = unsafe {
            pl::pl_group_parked(
                self.memory.group(group),
                self.memory.group(level),
                cpu,
                self.now_ns,
                &mut touch,
                &self.policy.core,
            )
        };
        self.cpus[cpu as usize].fair.lighter |= u32::from(lighter);
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
        let pool = self.memory.pool(group);
        for cpu in 0..self.cpus.len() as u32 {
            self.charge(cpu, false);
        }
        // SAFETY: the pool is alive and not borrowed.
        let flags = unsafe { pl::pl_bw_set(pool, &limits, phase_ns, self.now_ns, self.bw_config(group)) };
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
            // SAFETY: groups are alive; parents have lower numbers than their children.
            unsafe { pl::pl_group_link(self.memory.group(number)) };
        }
    }

    pub(super) fn observe_pool(&mut self, group: u32) {
        let Some(observer) = self.observer.as_deref_mut() else {
            return;
        };
        if group != self.memory.side() {
            // SAFETY: the pool is alive and not borrowed.
            let runtime_ns = unsafe { (*self.memory.pool(group)).runtime_ns };
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
            // SAFETY: the group is alive and not borrowed.
            let balance = unsafe { *self.memory.balance(number, cpu) };
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
            // SAFETY: the pool is alive and not borrowed.
            if unsafe { pl::pl_bw_limited(self.memory.pool(number)) } {
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
            // SAFETY: the group is alive and not borrowed.
            level = self.memory.number(unsafe { (*self.memory.group(number)).parent });
        }
        self.touches.load_ns += cost_ns;
        cost_ns
    }
}
