// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A CPU's life: pick a task, run it, charge it, stop it, go idle.
use super::events::NEVER;
use super::policy as pl;
use super::state::{Pending, State, GONE, NONE};
use super::topo::set_bit;
use super::{entry, Engine};
use crate::class::{Class, CpuSeen};
use crate::config::{Enforce, TaskId};
use crate::observer::Stop;

/// How long `work_ns` at full speed take.
#[inline]
pub(super) fn stretch(work_ns: u64, speed_percent: u32) -> u64 {
    if speed_percent == 100 {
        work_ns
    } else {
        work_ns.saturating_mul(100).div_ceil(u64::from(speed_percent))
    }
}

/// How long a virtual CPU polls next time, having been idle for `idle_ns`: as kvm grows and shrinks it.
fn next_poll(poll_ns: u64, idle_ns: u64, most_ns: u64) -> u64 {
    const FIRST_NS: u64 = 10_000;
    match idle_ns {
        _ if idle_ns <= poll_ns => poll_ns,
        _ if idle_ns > most_ns => 0,
        _ => (poll_ns * 2).clamp(FIRST_NS.min(most_ns), most_ns),
    }
}

impl<C: Class> Engine<'_, C> {
    /// Charges the running task for the time since it was last charged. `ask`: even if no time has passed.
    pub(super) fn charge(&mut self, cpu: u32, ask: bool) {
        self.charge_one(cpu, ask, false);
    }

    /// `leaves`: see [`Class::ran`].
    fn charge_one(&mut self, cpu: u32, ask: bool, leaves: bool) {
        let state = &mut self.cpus[cpu as usize];
        let running = state.running;
        if running == NONE || (self.now_ns <= state.exec_ns && !ask) {
            return;
        }
        let delta_ns = self.now_ns.saturating_sub(state.exec_ns);
        let ran_ns = delta_ns + std::mem::take(&mut state.early_ns);
        state.exec_ns = state.exec_ns.max(self.now_ns);
        state.stats.task_ns += delta_ns;
        let task = &mut self.tasks[running as usize];
        let group = task.group;
        task.cpu_ns += delta_ns;
        self.workload_usage_ns[task.workload.0 as usize] += delta_ns;
        self.group_usage_ns[group as usize] += delta_ns;
        if self.is_side[group as usize] {
            self.headroom_marks.side_used_ns += delta_ns;
            self.headroom_marks.side_total_ns += delta_ns;
        }
        let mut touch: pl::Touch = pl::zeroed();
        let flags = pl::pl_task_charge(
            &mut task.policy,
            ran_ns,
            self.now_ns,
            &mut touch,
            &self.policy.core,
        );
        self.class.ran(&mut entry!(self, running, cpu), ran_ns, leaves);
        if self.ledger.is_some() {
            self.book_use(group, delta_ns);
        }
        if touch.pool_locks > 0 {
            let cost_ns = self.pay_pool(group, cpu, touch.pool_locks);
            self.stall(cpu, cost_ns);
            // The run time left is another one now.
            self.set_limit(cpu);
        }
        if flags != 0 {
            self.after_charge(cpu, group, flags);
        }
    }

    #[cold]
    fn after_charge(&mut self, cpu: u32, group: u32, flags: u32) {
        self.arm(flags, group);
        if flags & pl::BW_THROTTLED != 0 {
            self.observe_throttled(group, cpu);
            self.resched(cpu, 0);
        }
    }

    /// The CPU looks for another task, `after_ns` from now; one on its way out of idleness or searching, when it has
    /// arrived: whatever it runs, it does not begin sooner.
    pub(super) fn resched(&mut self, cpu: u32, after_ns: u64) {
        let state = &mut self.cpus[cpu as usize];
        let begun_ns = if state.running == NONE { 0 } else { state.exec_ns };
        state.resched_ns = state.resched_ns.min((self.now_ns + after_ns).max(begun_ns));
        self.update_slot(cpu);
    }

    /// Time that the kernel takes from what a CPU runs, or, between two tasks, from what it runs next; no task notices it on
    /// an idle one, or on NONE.
    pub(super) fn overhead(&mut self, cpu: u32, ns: u64) {
        if ns == 0 || cpu == NONE {
            return;
        }
        let state = &mut self.cpus[cpu as usize];
        let running = state.running;
        if running == NONE {
            state.owed_ns += if state.idle { 0 } else { ns };
            return;
        }
        if self.stepping == cpu {
            self.tasks[running as usize].debt_ns += ns;
            return;
        }
        let state = &mut self.cpus[cpu as usize];
        state.work_ns = state.work_ns.saturating_add(ns);
        state.work_end_ns = state.work_end_ns.saturating_add(stretch(ns, state.speed_percent));
        self.update_slot(cpu);
    }

    /// Likewise time that a CPU waits for a line which others have: a busy sibling does not make that longer.
    pub(super) fn stall(&mut self, cpu: u32, ns: u64) {
        if cpu == NONE {
            return;
        }
        let state = &self.cpus[cpu as usize];
        match state.running {
            NONE => self.overhead(cpu, ns),
            _ => self.overhead(cpu, ns * u64::from(state.speed_percent) / 100),
        }
    }

    /// Brings the work left up to date.
    fn sync_work(&mut self, cpu: u32) {
        let state = &mut self.cpus[cpu as usize];
        if self.now_ns <= state.work_from_ns {
            return;
        }
        let elapsed_ns = self.now_ns - state.work_from_ns;
        let done_ns = if state.speed_percent == 100 {
            elapsed_ns
        } else {
            elapsed_ns * u64::from(state.speed_percent) / 100
        };
        state.work_ns = state.work_ns.saturating_sub(done_ns);
        state.work_from_ns = self.now_ns;
    }

    fn speed(&self, cpu: u32) -> u32 {
        let busy = |&sibling: &u32| !self.cpus[sibling as usize].idle && self.cpus[sibling as usize].online;
        if self.topo.smt && self.topo.siblings[cpu as usize].iter().any(busy) {
            self.costs.smt_percent
        } else {
            100
        }
    }

    /// A CPU became busy or idle: its siblings change speed, and searches see it.
    fn set_idle(&mut self, cpu: u32, idle: bool) {
        self.cpus[cpu as usize].idle = idle;
        self.nr_busy = if idle { self.nr_busy - 1 } else { self.nr_busy + 1 };
        let llc = &mut self.llcs[self.topo.llc(cpu) as usize];
        llc.count_busy(self.now_ns);
        llc.nr_busy = if idle { llc.nr_busy - 1 } else { llc.nr_busy + 1 };
        self.show_idle(cpu);
        if !self.topo.smt {
            return;
        }
        for i in 0..self.topo.siblings[cpu as usize].len() {
            let sibling = self.topo.siblings[cpu as usize][i];
            let speed = self.speed(sibling);
            let state = &self.cpus[sibling as usize];
            if state.running == NONE || state.speed_percent == speed {
                continue;
            }
            self.sync_work(sibling);
            let state = &mut self.cpus[sibling as usize];
            state.speed_percent = speed;
            state.work_end_ns = state.work_from_ns.saturating_add(stretch(state.work_ns, speed));
            self.update_slot(sibling);
        }
    }

    /// Shows in the masks of its cache whether a CPU is idle.
    pub(super) fn show_idle(&mut self, cpu: u32) {
        let llc = &mut self.llcs[self.topo.llc(cpu) as usize];
        let is_idle = |cpu: u32| self.cpus[cpu as usize].idle && self.cpus[cpu as usize].online;
        set_bit(&mut llc.idle, self.topo.in_llc[cpu as usize], is_idle(cpu));
        if self.topo.smt {
            let siblings = &self.topo.siblings[cpu as usize];
            let core_idle = is_idle(cpu) && siblings.iter().all(|&s| is_idle(s));
            llc.believes_idle_cores |= core_idle;
            set_bit(&mut llc.idle_cores, self.topo.in_llc[cpu as usize], core_idle);
            for &sibling in siblings {
                set_bit(&mut llc.idle_cores, self.topo.in_llc[sibling as usize], core_idle);
            }
        }
    }

    /// Takes a running task off its CPU, with its time charged. The CPU is neither idle nor running afterwards.
    pub(super) fn take_off(&mut self, cpu: u32, why: Stop) -> u32 {
        self.charge_one(cpu, false, matches!(why, Stop::Blocked | Stop::Exited));
        self.sync_work(cpu);
        let state = &mut self.cpus[cpu as usize];
        let running = state.running;
        state.running = NONE;
        state.keeps_ns = 0;
        state.last = running;
        state.work_end_ns = NEVER;
        state.resched_ns = NEVER;
        state.limit_ns = NEVER;
        let task = &mut self.tasks[running as usize];
        task.work_ns = state.work_ns;
        task.last_ran_ns = self.now_ns;
        task.last_cpu = cpu;
        if let Some(observer) = self.observer.as_deref_mut() {
            // A change of affinity may take a task off that has not begun.
            let now_ns = self.now_ns.max(state.exec_ns);
            observer.stop(now_ns, cpu, TaskId(running), why);
        }
        running
    }

    /// The running task may have to give way.
    pub(super) fn reschedule(&mut self, cpu: u32) {
        let Some(running) = self.running(cpu) else {
            self.cpus[cpu as usize].resched_ns = NEVER;
            return;
        };
        self.charge(cpu, false);
        let throttled = self.throttled_by(self.tasks[running as usize].group, cpu);
        if throttled.is_none() && self.cpus[cpu as usize].queue.is_empty() {
            self.cpus[cpu as usize].resched_ns = NEVER;
            self.pick_again(cpu);
            return;
        }
        let why = if throttled.is_some() {
            Stop::Throttled
        } else {
            Stop::Preempted
        };
        let task = self.take_off(cpu, why);
        self.tasks[task as usize].runnable_ns = self.now_ns;
        match throttled {
            Some(group) => self.park(task, cpu, group),
            None => {
                // Of the kernel before 6.6, a light task's vruntime leaps ahead with every slice: placing it anew bounds its wait.
                self.place(task, cpu, false);
                self.insert(task, cpu);
            }
        }
        self.schedule(cpu, 0);
    }

    /// The running task goes on, as if it had been picked now.
    fn pick_again(&mut self, cpu: u32) {
        let running = self.cpus[cpu as usize].running;
        let slice_ns = self.class.picked(&mut entry!(self, running, cpu));
        let state = &mut self.cpus[cpu as usize];
        state.slice_end_ns = self.now_ns.max(state.exec_ns).saturating_add(slice_ns);
        self.set_limit(cpu);
    }

    /// Puts a counted task into its CPU's queue.
    pub(super) fn insert(&mut self, task: u32, cpu: u32) {
        let key = self.key(task);
        let entry = &mut self.tasks[task as usize];
        entry.state = State::Queued;
        entry.order = self.cpus[cpu as usize].queue.insert(task, key);
    }

    /// Finds something to run on a CPU that runs nothing; it begins `delay_ns` from now.
    pub(super) fn schedule(&mut self, cpu: u32, mut delay_ns: u64) {
        self.cpus[cpu as usize].stats.schedules += 1;
        let mut next = self.pick(cpu);
        if next.is_none() {
            delay_ns += self.pull_when_dry(cpu);
            next = self.pick(cpu);
        }
        delay_ns += std::mem::take(&mut self.cpus[cpu as usize].owed_ns);
        match next {
            Some(task) => self.start(cpu, task, delay_ns),
            None => self.go_idle(cpu, delay_ns),
        }
    }

    /// Takes whose turn it is out of a CPU's queue.
    fn pop(&mut self, cpu: u32) -> Option<u32> {
        let first = std::mem::replace(&mut self.cpus[cpu as usize].first, NONE);
        if first != NONE {
            let task = &self.tasks[first as usize];
            if task.state == State::Queued && task.policy.cpu == cpu {
                let (order, key) = (task.order, self.key(first));
                self.cpus[cpu as usize].queue.remove(first, key, order);
                return Some(first);
            }
        }
        let queue = &mut self.cpus[cpu as usize].queue;
        let first = queue.pop()?;
        let on = CpuSeen {
            cpu,
            fair: &self.cpus[cpu as usize].fair,
            config: &self.policy.core.fair,
        };
        let task = self.class.pick(&on, self.now_ns, TaskId(first)).0;
        if task != first {
            let (order, key) = (self.tasks[task as usize].order, self.key(task));
            let first = (first, self.key(first), self.tasks[first as usize].order);
            let queue = &mut self.cpus[cpu as usize].queue;
            queue.remove(task, key, order);
            queue.put_back(first.0, first.1, first.2);
        }
        Some(task)
    }

    /// The first of the queue that may run; those before it are parked.
    fn pick(&mut self, cpu: u32) -> Option<u32> {
        loop {
            let task = self.pop(cpu)?;
            match self.throttled_by(self.tasks[task as usize].group, cpu) {
                None => return Some(task),
                Some(group) => self.park(task, cpu, group),
            }
        }
    }

    fn start(&mut self, cpu: u32, next: u32, delay_ns: u64) {
        let now_ns = self.now_ns;
        let speed = self.speed(cpu);
        let mut touch: pl::Touch = pl::zeroed();
        let state = &mut self.cpus[cpu as usize];
        let task = &mut self.tasks[next as usize];
        let exec_ns = now_ns + delay_ns;
        pl::pl_task_reweigh(
            &mut task.policy,
            &mut state.fair,
            now_ns,
            &mut touch,
            &self.policy.core,
        );
        let gives_way = task.policy.idle != 0;
        if state.gives_way != gives_way {
            state.gives_way = gives_way;
            let change = if gives_way { 1 } else { -1 };
            self.nr_give_way = self.nr_give_way.wrapping_add_signed(change);
        }
        let slice_ns = self.class.picked(&mut entry!(self, next, cpu));
        let state = &mut self.cpus[cpu as usize];
        let task = &mut self.tasks[next as usize];
        let mut work_ns = task.work_ns;
        if state.last != next {
            work_ns = work_ns.saturating_add(self.costs.context_switch_ns);
            self.counts.switches += 1;
            if task.address_space != 0 && task.address_space != state.address_space {
                if state.address_space != 0 {
                    work_ns = work_ns.saturating_add(self.costs.address_space_ns);
                }
                state.address_space = task.address_space;
            }
        }
        if task.last_cpu != cpu && task.last_cpu != NONE {
            self.counts.migrations += 1;
            if now_ns - task.last_ran_ns < self.costs.migration_hot_ns {
                work_ns = work_ns.saturating_add(self.topo.cost(&self.costs.migration, task.last_cpu, cpu));
            }
            task.last_cpu = cpu;
        }
        let fetch_lines = u64::from(std::mem::take(&mut task.fetch_lines));
        if fetch_lines > 0 {
            let from = u32::from(task.fetch_from);
            let line_ns = self.topo.cost(&self.costs.line, from, cpu);
            work_ns = work_ns.saturating_add(fetch_lines * line_ns);
        }
        task.state = State::Running;
        let delay = exec_ns - task.runnable_ns;
        state.running = next;
        state.exec_ns = exec_ns;
        let awake = std::mem::take(&mut state.awake);
        state.early_ns = if state.idle && !awake {
            self.costs.idle_charged_ns
        } else {
            0
        };
        state.work_ns = work_ns;
        state.work_from_ns = exec_ns;
        state.speed_percent = speed;
        state.work_end_ns = exec_ns.saturating_add(stretch(work_ns, speed));
        state.resched_ns = NEVER;
        state.slice_end_ns = exec_ns.saturating_add(slice_ns);
        let group = task.group;
        if self.services.recording {
            let delays = &mut self.group_delays[group as usize];
            delays.waits += 1;
            delays.total_ns += delay;
            delays.max_ns = delays.max_ns.max(delay);
            self.workload_delays[task.workload.0 as usize].record(delay);
        }
        if state.tick_ns == NEVER {
            self.cpus[cpu as usize].tick_ns = self.next_tick(cpu);
        }
        if self.cpus[cpu as usize].idle {
            self.set_idle(cpu, false);
        }
        self.set_limit(cpu);
        self.update_slot(cpu);
        if touch.load_reads + touch.load_writes > 0 {
            let cost_ns = self.pay_load(group, cpu, &touch);
            self.stall(cpu, cost_ns);
        }
        if let Some(observer) = self.observer.as_deref_mut() {
            let (task, group) = (TaskId(next), crate::config::GroupId(group));
            observer.run(exec_ns, cpu, task, group);
        }
    }

    fn go_idle(&mut self, cpu: u32, after_ns: u64) {
        self.count_runnable(cpu, 1);
        let state = &mut self.cpus[cpu as usize];
        state.stats.idles += 1;
        if state.last != NONE {
            self.counts.switches += 1;
            state.last = NONE;
        }
        state.idle_from_ns = self.now_ns + after_ns;
        state.tick_ns = NEVER;
        state.limit_ns = NEVER;
        state.resched_ns = NEVER;
        state.work_end_ns = NEVER;
        if !state.idle {
            self.set_idle(cpu, true);
        }
        self.update_slot(cpu);
    }

    /// An idle CPU has something in its queue now; `from` told it so (NONE: it found out itself).
    /// It hears of it `after_ns` from now.
    pub(super) fn kick(&mut self, cpu: u32, from: u32, after_ns: u64) {
        let mut delay_ns = after_ns;
        self.count_runnable(cpu, 0);
        if from != NONE {
            delay_ns += self.topo.cost(&self.costs.ipi, from, cpu);
        }
        let state = &mut self.cpus[cpu as usize];
        let idle_ns = self.now_ns.saturating_sub(state.idle_from_ns);
        state.idle_total_ns += idle_ns;
        pl::pl_steal_idle_ended(&mut state.steal, idle_ns);
        delay_ns = delay_ns.max(state.idle_from_ns.saturating_sub(self.now_ns));
        let took_ns = self.seat.and_then(|seat| seat.took_ns_on(cpu));
        state.awake = self.seat.is_some_and(|seat| seat.gave_way_ns_on(cpu).is_some());
        let depth = self
            .costs
            .idle_states
            .iter()
            .rev()
            .find(|s| s.after_ns <= idle_ns);
        let polling = idle_ns <= state.halt_poll_ns;
        state.halt_poll_ns = next_poll(state.halt_poll_ns, idle_ns, self.costs.halt_poll_ns);
        let depth = depth.filter(|_| !polling || self.costs.halt_poll_ns == 0);
        let exit_ns =
            || depth.map_or(0, |s| s.exit_ns) + self.costs.idle_exit_per_busy_ns * u64::from(self.nr_busy);
        delay_ns += took_ns.unwrap_or_else(exit_ns);
        state.idle_from_ns = self.now_ns;
        self.schedule(cpu, delay_ns);
    }

    /// The first tick of a CPU after now.
    fn next_tick(&self, cpu: u32) -> u64 {
        let phase_ns = self.tick_phase_ns + self.tick_stagger_ns * u64::from(cpu);
        let phase_ns = phase_ns % self.tick_len_ns;
        let since_ns = self.now_ns + self.tick_len_ns - phase_ns;
        self.now_ns + self.tick_len_ns - since_ns % self.tick_len_ns
    }

    pub(super) fn tick(&mut self, cpu: u32) {
        self.counts.ticks += 1;
        self.cpus[cpu as usize].tick_ns += self.tick_len_ns;
        let Some(running) = self.running(cpu) else {
            self.cpus[cpu as usize].tick_ns = NEVER;
            return;
        };
        self.overhead(cpu, self.costs.timer_ns);
        self.charge(cpu, true);
        if self.cpus[cpu as usize].resched_ns == self.now_ns {
            // The task stops when the interrupt returns, and is charged until then.
            self.cpus[cpu as usize].resched_ns += self.costs.timer_ns;
        }
        let mut touch: pl::Touch = pl::zeroed();
        let state = &mut self.cpus[cpu as usize];
        let task = &mut self.tasks[running as usize];
        let group = task.group;
        if self.policy.newidle {
            for newidle in &mut state.newidle {
                pl::pl_newidle_decay(newidle, self.now_ns);
            }
        }
        let turn_over = pl::pl_task_reweigh(
            &mut task.policy,
            &mut state.fair,
            self.now_ns,
            &mut touch,
            &self.policy.core,
        );
        let turn_over = self.class.tick(&mut entry!(self, running, cpu), turn_over);
        let state = &mut self.cpus[cpu as usize];
        let slice_over = turn_over || self.now_ns >= state.slice_end_ns;
        let queued = state.fair.nr_queued;
        self.count_runnable(cpu, queued);
        let cost_ns = self.pay_load(group, cpu, &touch);
        self.stall(cpu, cost_ns);
        if self.policy.periodic {
            self.balance_at_tick(cpu);
        }
        if slice_over {
            self.end_of_slice(cpu);
        }
    }

    /// The task has had its slice: perhaps it is another one's turn, here or from elsewhere.
    fn end_of_slice(&mut self, cpu: u32) {
        if self.now_ns < self.cpus[cpu as usize].keeps_ns {
            return;
        }
        self.pull_on_lag(cpu);
        if self.cpus[cpu as usize].queue.is_empty() {
            self.pick_again(cpu);
        } else {
            self.resched(cpu, 0);
        }
    }

    /// Where a timer enforces limits or slices: when it is due.
    pub(super) fn set_limit(&mut self, cpu: u32) {
        let by_timer = self.policy.enforce == Enforce::Timer;
        if !by_timer && !self.policy.slice_timer {
            return;
        }
        let state = &mut self.cpus[cpu as usize];
        if state.running == NONE {
            return;
        }
        let mut budget_ns = NEVER - state.exec_ns;
        if by_timer {
            let group = self.tasks[state.running as usize].group;
            let left_ns = self.memory.pl_group_budget(group, cpu, budget_ns);
            let work_ns = left_ns.saturating_sub(state.early_ns);
            budget_ns = budget_ns.min(work_ns.saturating_add(self.costs.limit_late_ns));
        }
        let slice_ns = state.slice_end_ns.saturating_sub(state.exec_ns);
        let turn_ns = pl::pl_fair_turn(&state.fair, slice_ns, budget_ns);
        state.limit_ns = (state.exec_ns + turn_ns).max(self.now_ns);
        self.update_slot(cpu);
    }

    /// The timer that enforces limits and slices fired.
    pub(super) fn limit(&mut self, cpu: u32) {
        self.counts.timers += 1;
        self.cpus[cpu as usize].limit_ns = NEVER;
        self.overhead(cpu, self.costs.timer_ns);
        self.charge(cpu, true);
        let state = &self.cpus[cpu as usize];
        if state.resched_ns == self.now_ns {
            return;
        }
        if self.now_ns >= state.slice_end_ns && !state.queue.is_empty() {
            self.end_of_slice(cpu);
        } else {
            self.set_limit(cpu);
        }
    }

    /// The running task sleeps, waits or exits.
    pub(super) fn block(&mut self, cpu: u32, state: State) {
        let why = if state == State::Exited {
            Stop::Exited
        } else {
            Stop::Blocked
        };
        let task = self.take_off(cpu, why);
        self.uncount(task, cpu, state != State::Exited);
        self.no_longer_runnable(task, cpu);
        let entry = &mut self.tasks[task as usize];
        entry.state = state;
        entry.work_ns = 0;
        if state == State::Exited {
            // The task that takes its number over is another one.
            self.cpus[cpu as usize].last = GONE;
        } else {
            entry.pending = Pending::Next;
        }
        self.schedule(cpu, 0);
    }
}
