// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tasks that move between queues: new-idle and periodic balance, stealing, pull on lag.
use super::policy as pl;
use super::topo::{bits_from, test_bit, LEVELS};
use super::{entry, Engine};
use crate::class::{Class, CpuSeen};
use crate::config::TaskId;
use crate::observer::Move;
use rand::Rng;

/// Pairs of a task and an idle CPU that one tick tries to bring together.
const PUSH_LOOKS_MAX: usize = 2048;

impl<C: Class> Engine<'_, C> {
    /// A CPU has nothing to run: looks for something elsewhere. Returns the time that took.
    pub(super) fn pull_when_dry(&mut self, cpu: u32) -> u64 {
        // The kernel, too, keeps a word that says whether any CPU of the machine has work to spare.
        if self.nr_overloaded == 0 {
            return 0;
        }
        let mut spent_ns = 0;
        let mut found = false;
        if self.policy.newidle {
            (found, spent_ns) = self.newidle(cpu);
        }
        if !found {
            spent_ns += self.steal(cpu);
            found = !self.cpus[cpu as usize].queue.is_empty();
        }
        if !found && self.pull(cpu) {
            spent_ns += self.costs.move_task_ns;
        }
        if spent_ns > 0 {
            let stats = &mut self.cpus[cpu as usize].stats;
            stats.searches += 1;
            stats.find_ns += spent_ns;
        }
        spent_ns
    }

    /// Searches domain by domain. Returns whether something was found, and the time spent.
    fn newidle(&mut self, cpu: u32) -> (bool, u64) {
        let (mut spent_ns, mut span) = (0, 1);
        if self.cpus[cpu as usize].steal.avg_idle_ns < self.costs.newidle_idle_ns {
            return (false, 0);
        }
        for level in 0..LEVELS {
            let wider = self.topo.span(cpu, level);
            if wider == span {
                continue;
            }
            let state = &mut self.cpus[cpu as usize];
            let newidle = &mut state.newidle[level];
            if !pl::pl_newidle_worthwhile(newidle, state.steal.avg_idle_ns, spent_ns) {
                break;
            }
            if self.policy.newidle_dice
                && !pl::pl_newidle_drawn(newidle, self.newidle_rng.random_range(0..1024))
            {
                continue;
            }
            let cost_ns = self.costs.newidle_level_ns + u64::from(wider - span) * self.costs.search_cpu_ns;
            pl::pl_newidle_measured(newidle, cost_ns);
            spent_ns += cost_ns;
            span = wider;
            let busiest = self.busiest(cpu, level);
            // Hardware threads of one core share all its caches.
            let task = busiest.and_then(|from| self.movable(from, cpu, level > 0));
            if self.policy.newidle_dice {
                pl::pl_newidle_found(&mut self.cpus[cpu as usize].newidle[level], task.is_some());
            }
            if let Some(task) = task {
                spent_ns += self.costs.move_task_ns;
                self.cpus[cpu as usize].stats.newidle_pulls += 1;
                self.move_task(task, cpu, Move::NewIdle);
                return (true, spent_ns);
            }
        }
        (false, spent_ns)
    }

    /// The overloaded CPU with the longest queue in the domain of a level; the nearest of equals.
    fn busiest(&self, cpu: u32, level: usize) -> Option<u32> {
        let own = self.topo.llc(cpu);
        let mut best = (0, None);
        let mut look = |candidate: u32| {
            let state = &self.cpus[candidate as usize];
            if candidate != cpu && state.fair.nr_queued > best.0 && !state.queue.is_empty() {
                best = (state.fair.nr_queued, Some(candidate));
            }
        };
        if level == 0 {
            self.topo.siblings[cpu as usize].iter().for_each(|&s| look(s));
            return best.1.filter(|_| best.0 >= 2);
        }
        self.overloaded(own, self.topo.in_llc[cpu as usize], &mut look);
        if level >= 2 {
            for &llc in &self.topo.socket_llcs[own as usize] {
                self.overloaded(llc, 0, &mut look);
            }
        }
        if level >= 3 {
            for &llc in &self.topo.remote_llcs[own as usize] {
                self.overloaded(llc, 0, &mut look);
            }
        }
        best.1
    }

    /// Calls `look` for the overloaded CPUs of a cache, from one of its numbers on.
    fn overloaded(&self, llc: u32, from: u32, look: &mut impl FnMut(u32)) {
        let cpus = &self.topo.llcs[llc as usize];
        for element in bits_from(&self.llcs[llc as usize].overloaded, from, cpus.len() as u32) {
            look(cpus[element as usize]);
        }
    }

    /// The first task, in order of next to run, that may go from one CPU's queue to another's. `cold`: only those
    /// that have not run for a while, whose cache contents are not worth keeping.
    fn movable(&self, from: u32, to: u32, cold: bool) -> Option<u32> {
        self.cpus[from as usize].queue.iter().find(|&task| {
            let entry = &self.tasks[task as usize];
            let since_ran_ns = self.now_ns - entry.last_ran_ns;
            if cold && pl::pl_newidle_hot(since_ran_ns, self.costs.migration_hot_ns) {
                return false;
            }
            // Where it waits it may be throttled and not parked yet; where it would go, it could only be parked.
            let throttled = [from, to]
                .iter()
                .any(|&cpu| self.throttled_by(entry.group, cpu).is_some());
            pl::pl_steal_may_take(false, self.allowed(task, to), throttled)
        })
    }

    /// Takes a task from an overloaded CPU of the cache, if that is worthwhile. Returns the time spent.
    fn steal(&mut self, cpu: u32) -> u64 {
        let state = &self.cpus[cpu as usize];
        if !pl::pl_steal_worthwhile(&state.steal, self.topo.nr_nodes, &self.policy.steal) {
            return 0;
        }
        let llc = self.topo.llc(cpu) as usize;
        let mask = &self.llcs[llc].overloaded;
        let own = self.topo.in_llc[cpu as usize];
        let siblings = &self.topo.siblings[cpu as usize];
        let mut looked = siblings.len() as u32;
        let mut found = siblings
            .iter()
            .filter(|&&s| test_bit(mask, self.topo.in_llc[s as usize]))
            .find_map(|&s| self.movable(s, cpu, false));
        if found.is_none() {
            let cpus = &self.topo.llcs[llc];
            let size = cpus.len() as u32;
            let mut passed = size;
            for element in bits_from(mask, own + 1, size) {
                found = self.movable(cpus[element as usize], cpu, false);
                if found.is_some() {
                    passed = (element + size - own - 1) % size + 1;
                    break;
                }
            }
            // The mask has eight CPUs to a cache line: that is what the search costs.
            looked += passed.div_ceil(8);
        }
        let mut spent_ns = u64::from(looked) * self.costs.search_cpu_ns;
        self.cpus[cpu as usize].steal.nr_searches += 1;
        if let Some(task) = found {
            spent_ns += self.costs.move_task_ns;
            self.cpus[cpu as usize].steal.nr_steals += 1;
            self.cpus[cpu as usize].stats.steals += 1;
            self.move_task(task, cpu, Move::Steal);
        }
        spent_ns
    }

    /// A CPU that ends its slice looks at the head of one other queue.
    pub(super) fn pull_on_lag(&mut self, cpu: u32) {
        self.charge(cpu, false);
        if self.pull(cpu) {
            self.overhead(cpu, self.costs.move_task_ns);
        }
    }

    /// Looks at the head of one other queue, the next in turn, and takes it over if that is further behind than what this
    /// CPU has, or this CPU has nothing. Returns whether it did.
    fn pull(&mut self, cpu: u32) -> bool {
        if self.policy.core.fair.pull_ns == 0 || self.nr_overloaded == 0 {
            return false;
        }
        let n = self.cpus.len() as u32;
        let from = self.cpus[cpu as usize].look_at;
        let mut others = (1..=n).map(|step| (from + step) % n);
        let other = others.find(|&other| other != cpu && self.cpus[other as usize].online);
        let Some(other) = other else {
            return false;
        };
        self.cpus[cpu as usize].look_at = other;
        // A lone task there is about to run there.
        if self.cpus[other as usize].fair.nr_queued < pl::STEAL_OVERLOADED {
            return false;
        }
        let Some(first) = self.cpus[other as usize].queue.first() else {
            return false;
        };
        let state = &self.cpus[cpu as usize];
        let mut own = self.running(cpu).map(|t| self.key(t));
        if let Some(head) = state.queue.head_key() {
            own = Some(own.map_or(head, |v| {
                if (head.wrapping_sub(v) as i64) < 0 {
                    head
                } else {
                    v
                }
            }));
        }
        let (to, from) = (self.cpu_seen(cpu), self.cpu_seen(other));
        if !self.class.looks(&to, own, &from, &self.seen(first)) {
            return false;
        }
        let Some(task) = self.movable(other, cpu, false) else {
            return false;
        };
        let to = CpuSeen {
            cpu,
            fair: &self.cpus[cpu as usize].fair.clone(),
            config: &self.policy.core.fair,
        };
        if !self.class.pulls(&mut entry!(self, task, other), &to, own) {
            return false;
        }
        self.cpus[cpu as usize].stats.lag_pulls += 1;
        self.move_task(task, cpu, Move::Pull);
        true
    }

    /// Periodic balance, and work for idle CPUs, which have no ticks of their own.
    pub(super) fn balance_at_tick(&mut self, cpu: u32) {
        if self.nr_overloaded == 0 {
            return;
        }
        if !self.cpus[cpu as usize].queue.is_empty() {
            self.push_to_idle(cpu);
        }
        let mut span = 1;
        for level in 1..LEVELS {
            let wider = self.topo.span(cpu, level);
            if wider == span {
                continue;
            }
            span = wider;
            let state = &mut self.cpus[cpu as usize];
            if self.now_ns < state.next_balance_ns[level] {
                continue;
            }
            // The kernel's interval: as many ms as the domain has CPUs, 16 times that on a busy CPU.
            state.next_balance_ns[level] = self.now_ns + u64::from(span.min(64)) * 16_000_000;
            self.overhead(
                cpu,
                self.costs.periodic_level_ns + u64::from(span) * self.costs.search_cpu_ns,
            );
            let Some(busiest) = self.busiest(cpu, level) else {
                continue;
            };
            let queued = |cpu: u32| self.cpus[cpu as usize].fair.nr_queued;
            let runnable = &self.cpus[busiest as usize].runnable;
            if self.policy.busy_pull_overloaded && !pl::pl_balance_overloaded(queued(busiest), runnable) {
                continue;
            }
            let n = pl::pl_balance_to_move(queued(busiest), queued(cpu));
            let mut imbalance = match self.policy.balance_weighs {
                true => self.imbalance(busiest, cpu),
                false => u64::MAX,
            };
            for _ in 0..n {
                let Some(task) = self.movable(busiest, cpu, self.policy.balance_weighs) else {
                    break;
                };
                let weight = self.tasks[task as usize].policy.effective;
                if weight > imbalance {
                    break;
                }
                imbalance -= weight;
                self.overhead(cpu, self.costs.move_task_ns);
                self.cpus[cpu as usize].stats.periodic_pulls += 1;
                self.move_task(task, cpu, Move::Periodic);
            }
        }
    }

    /// Counts the time since the last call with `n` tasks runnable on a CPU.
    pub(super) fn count_runnable(&mut self, cpu: u32, n: u32) {
        if self.policy.busy_pull_overloaded {
            let runnable = &mut self.cpus[cpu as usize].runnable;
            pl::pl_pelt_update(runnable, u64::from(n * pl::BALANCE_ONE), self.now_ns);
        }
    }

    fn imbalance(&mut self, busiest: u32, cpu: u32) -> u64 {
        self.count_load(busiest);
        self.count_load(cpu);
        let load = |cpu: u32| &self.cpus[cpu as usize].load;
        pl::pl_balance_imbalance(load(busiest), load(cpu))
    }

    /// Counts the time since the last call with what its tasks have weighed.
    pub(super) fn count_load(&mut self, cpu: u32) {
        if self.policy.balance_weighs {
            let state = &mut self.cpus[cpu as usize];
            pl::pl_pelt_update(&mut state.load, state.fair.weight_sum, self.now_ns);
        }
    }

    /// The kernel kicks an idle CPU from the tick of a busy one with tasks waiting: the idle one then balances.
    fn push_to_idle(&mut self, cpu: u32) {
        let own = self.topo.llc(cpu);
        let socket = &self.topo.socket_llcs[own as usize];
        let remote = &self.topo.remote_llcs[own as usize];
        let mut pair = None;
        let mut looks = 0;
        'llcs: for llc in std::iter::once(&own).chain(socket).chain(remote) {
            let cpus = &self.topo.llcs[*llc as usize];
            let from = if *llc == own {
                self.topo.in_llc[cpu as usize]
            } else {
                0
            };
            for bit in bits_from(&self.llcs[*llc as usize].idle, from, cpus.len() as u32) {
                let to = cpus[bit as usize];
                if let Some(task) = self.movable(cpu, to, false) {
                    pair = Some((task, to));
                    break 'llcs;
                }
                // Where affinities forbid everything, the search is given up for this tick.
                looks += self.cpus[cpu as usize].queue.len();
                if looks > PUSH_LOOKS_MAX {
                    break 'llcs;
                }
            }
        }
        if let Some((task, to)) = pair {
            self.overhead(cpu, self.costs.ipi_send_ns);
            self.cpus[to as usize].stats.periodic_pulls += 1;
            self.dequeue(task);
            self.observe_move(task, cpu, to, Move::Periodic);
            self.activate(task, to, cpu, false);
        }
    }

    /// A waiting task goes to the queue of `to`, which pays for it.
    fn move_task(&mut self, task: u32, to: u32, why: Move) {
        let from = self.tasks[task as usize].policy.cpu;
        self.dequeue(task);
        self.observe_move(task, from, to, why);
        self.enqueue(task, to, to, false);
    }

    pub(super) fn observe_move(&mut self, task: u32, from: u32, to: u32, why: Move) {
        if let Some(observer) = self.observer.as_deref_mut() {
            observer.migrate(self.now_ns, TaskId(task), from, to, why);
        }
    }

    /// What writing the mask of overloaded CPUs costs a CPU: its chunk's line is shared with seven others. Without
    /// stealing there is no such mask to write: the baseline's balance looks at the queues themselves.
    pub(super) fn mask_written(&mut self, cpu: u32) -> u64 {
        if self.policy.steal.enabled == 0 {
            return 0;
        }
        self.touches.mask_writes += 1;
        let cost_ns = self.costs.line.llc_ns;
        self.touches.mask_ns += cost_ns;
        self.cpus[cpu as usize].stats.find_ns += cost_ns;
        cost_ns
    }
}
