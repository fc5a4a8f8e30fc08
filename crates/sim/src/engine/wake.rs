// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A task becomes runnable: where it goes, and whether it runs at once.
use super::events::{Timer, NEVER};
use super::policy as pl;
use super::state::{State, NONE};
use super::topo::{bits_from, set_bit};
use super::{entry, seen, Engine};
use crate::behaviour::{Choice, Seat, When};
use crate::class::{Bound, Class, CpuSeen};
use crate::config::{TaskId, WakeSearch};

impl<C: Class> Engine<'_, C> {
    /// Wakes a task. `waker`: the CPU that does it, NONE: no CPU does. `sync`: the waker is about to wait itself.
    pub(super) fn wake(&mut self, task: u32, waker: u32, sync: bool) {
        if self.tasks[task as usize].external {
            let timer = Timer::External { task };
            self.timers.push(self.now_ns, timer);
            return;
        }
        self.counts.wakeups += 1;
        self.tasks[task as usize].runnable_ns = self.now_ns;
        if matches!(self.policy.wake_search, WakeSearch::Live | WakeSearch::All) {
            let (cpu, looked, seat) = self.select(task, waker, sync);
            let place = self.count_placed(task, cpu, waker, sync);
            self.pay_wake(task, cpu, waker, looked);
            self.seat = seat;
            self.activate(task, cpu, waker, true);
            self.seat = None;
            if place == pl::PLACE_WAKER && self.policy.wake_search == WakeSearch::Live {
                let at_ns = self.now_ns + pl::PLACE_SYNC_WAIT_NS;
                self.timers.push(at_ns, Timer::Offer { task });
            }
        } else {
            self.wake_fair(task, waker, sync);
        }
    }

    /// What is there as the task goes to `cpu`, by enum pl_place. Counted where it was woken.
    pub(super) fn count_placed(&mut self, task: u32, cpu: u32, waker: u32, sync: bool) -> u32 {
        let state = &self.cpus[cpu as usize];
        let entry = &self.tasks[task as usize];
        let place = if state.idle {
            let previous = entry.policy.cpu;
            pl::pl_place_idle(previous, cpu, self.topo.llc(previous) == self.topo.llc(cpu))
        } else if cpu == waker && pl::pl_place_passes_on(&state.fair, sync) {
            pl::PLACE_WAKER
        } else if self.gives_way(task, cpu) {
            pl::PLACE_IDLE_WORK
        } else {
            pl::PLACE_BEHIND
        };
        let at = if waker == NONE { cpu } else { waker };
        if self.bound(task) != Bound::Cpu {
            self.cpus[at as usize].placed[place as usize] += 1;
        }
        place
    }

    /// A task was left the CPU of a waker that said it would wait. If that has not, an idle CPU of the cache takes one of them.
    pub(super) fn offer(&mut self, task: u32) {
        if self.tasks[task as usize].state != State::Queued {
            return;
        }
        let cpu = self.tasks[task as usize].policy.cpu;
        let llc = self.topo.llc(cpu);
        let size = self.topo.llcs[llc as usize].len() as u32;
        if let Some(bit) = bits_from(&self.llcs[llc as usize].idle, 0, size).next() {
            self.kick(self.topo.llcs[llc as usize][bit as usize], NONE, 0);
        }
    }

    /// Whether a CPU runs what gives way to a woken task, and no other task has woken up to take it.
    pub(super) fn gives_way(&self, task: u32, cpu: u32) -> bool {
        let woken = &self.tasks[task as usize].policy;
        self.running(cpu).is_some_and(|running| {
            pl::pl_task_yields_cpu(&self.tasks[running as usize].policy, woken)
                && self.cpus[cpu as usize].resched_ns == NEVER
        })
    }

    /// What finding a CPU for a task and waking it there costs the waker.
    pub(super) fn pay_wake(&mut self, task: u32, cpu: u32, waker: u32, looked: u32) {
        if waker != NONE {
            // The published share of time spent finding counts the search for an idle CPU, too.
            let search_ns = u64::from(looked) * self.costs.search_cpu_ns;
            let stats = &mut self.cpus[waker as usize].stats;
            stats.wakeups += 1;
            stats.find_ns += search_ns;
            self.overhead(waker, self.costs.wakeup_ns + search_ns);
        }
        if let Some(observer) = self.observer.as_deref_mut() {
            observer.wake(self.now_ns, TaskId(task), cpu, waker);
        }
    }

    /// Makes a task runnable on a CPU and lets it run if it is its turn. `woken`: as in `place`.
    pub(super) fn activate(&mut self, task: u32, cpu: u32, from: u32, woken: bool) {
        if !self.enqueue(task, cpu, from, woken) {
            return;
        }
        if self.cpus[cpu as usize].idle {
            if from != NONE && from != cpu {
                self.overhead(from, self.costs.ipi_send_ns);
            }
            self.kick(cpu, from, 0);
        } else {
            self.preempt_for(task, cpu, from);
        }
    }

    /// Counts a task as runnable on a CPU, and puts it into the queue; false: it was parked instead. What that costs is
    /// `payer`'s.
    pub(super) fn enqueue(&mut self, task: u32, cpu: u32, payer: u32, woken: bool) -> bool {
        self.charge(cpu, false);
        let entry = &mut self.tasks[task as usize];
        let (group, from) = (entry.group, entry.policy.cpu);
        self.memory.touch(group, cpu);
        let mut touch: pl::Touch = pl::zeroed();
        if from != cpu {
            let (policy, now_ns) = (&mut entry.policy, self.now_ns);
            self.memory.pl_task_moved(policy, cpu, now_ns, &self.policy.core);
        }
        if from != cpu {
            let from_fair = self.cpus[from as usize].fair;
            let from = CpuSeen {
                cpu: from,
                fair: &from_fair,
                config: &self.policy.core.fair,
            };
            self.class.moved(&mut entry!(self, task, cpu), &from);
        }
        let entry = &mut self.tasks[task as usize];
        let (policy, now_ns) = (&mut entry.policy, self.now_ns);
        let flags = self
            .memory
            .pl_task_runnable(policy, cpu, now_ns, &mut touch, &self.policy.core);
        if flags != 0 {
            self.arm(flags, group);
            if flags & pl::BW_THROTTLED != 0 {
                self.observe_throttled(group, cpu);
            }
        }
        if payer != NONE && touch.load_reads + touch.load_writes + touch.pool_locks > 0 {
            let mut cost_ns = self.pay_load(group, payer, &touch);
            if touch.pool_locks > 0 {
                cost_ns += self.pay_pool(group, payer, touch.pool_locks);
            }
            self.stall(payer, cost_ns);
        }
        if let Some(level) = self.throttled_by(group, cpu) {
            self.park(task, cpu, level);
            return false;
        }
        self.place(task, cpu, woken);
        let cost_ns = self.count(task, cpu);
        self.overhead(payer, cost_ns);
        self.insert(task, cpu);
        true
    }

    /// Gives a task its place on its CPU. `woken`: it slept, is new or was throttled; else it was
    /// preempted or moved.
    pub(super) fn place(&mut self, task: u32, cpu: u32, woken: bool) {
        let state = &self.cpus[cpu as usize];
        let alone = (state.running != NONE && state.queue.is_empty()).then(|| self.key(state.running));
        self.class.place(&mut entry!(self, task, cpu), woken, alone);
        if self.ledger.is_some() {
            self.book_place(task, cpu);
        }
    }

    /// Both keep the queue's count, and the overloaded CPUs' mask. They return what writing that costs.
    pub(super) fn count(&mut self, task: u32, cpu: u32) -> u64 {
        self.count_load(cpu);
        let state = &mut self.cpus[cpu as usize];
        let before = pl::pl_task_count(&mut self.tasks[task as usize].policy, &mut state.fair);
        self.join(task, cpu);
        self.count_changed(cpu, before, before + 1)
    }

    /// `sleeps`: it does not go on elsewhere.
    pub(super) fn uncount(&mut self, task: u32, cpu: u32, sleeps: bool) -> u64 {
        self.class.leave(&mut entry!(self, task, cpu), sleeps);
        self.count_load(cpu);
        let state = &mut self.cpus[cpu as usize];
        let before = pl::pl_task_uncount(&mut self.tasks[task as usize].policy, &mut state.fair);
        self.count_changed(cpu, before, before - 1)
    }

    #[inline]
    fn join(&mut self, task: u32, cpu: u32) {
        let mut bound = Bound::No;
        if self.class.needs().bound {
            bound = self.bound(task);
        }
        self.class.join(&mut entry!(self, task, cpu), bound);
    }

    #[inline]
    fn count_changed(&mut self, cpu: u32, before: u32, after: u32) -> u64 {
        let turned = pl::pl_steal_turned(before, after);
        if turned == 0 {
            return 0;
        }
        let llc = &mut self.llcs[self.topo.llc(cpu) as usize];
        set_bit(&mut llc.overloaded, self.topo.in_llc[cpu as usize], turned > 0);
        self.nr_overloaded = self.nr_overloaded.wrapping_add_signed(turned);
        self.mask_written(cpu)
    }

    /// A waiting task is no longer one.
    pub(super) fn dequeue(&mut self, task: u32) {
        let entry = &self.tasks[task as usize];
        let cpu = entry.policy.cpu;
        match entry.state {
            State::Queued => {
                let (key, order) = (self.key(task), entry.order);
                self.cpus[cpu as usize].queue.remove(task, key, order);
                if self.class.needs().charged {
                    // What is due to those that wait is known as of now.
                    self.charge(cpu, false);
                }
                self.uncount(task, cpu, false);
            }
            State::Parked => self.unpark(task),
            state => unreachable!("task {task} is {state:?} and does not wait"),
        }
        self.no_longer_runnable(task, cpu);
    }

    pub(super) fn no_longer_runnable(&mut self, task: u32, cpu: u32) {
        let entry = &mut self.tasks[task as usize];
        let group = entry.group;
        let mut touch: pl::Touch = pl::zeroed();
        let flags = pl::pl_task_blocked(&mut entry.policy, self.now_ns, &mut touch, &self.policy.core);
        self.arm(flags, group);
        // Paid by the task that runs next here: the CPU is between two tasks.
        let cost_ns = self.pay_load(group, cpu, &touch) + self.pay_pool(group, cpu, touch.pool_locks);
        self.stall(cpu, cost_ns);
    }

    /// Whether the running task gives way at once to one that has just been queued.
    pub(super) fn preempts(&self, task: u32, cpu: u32) -> bool {
        let comes = |running| self.class.comes(&self.seen(task), &self.seen(running));
        self.running(cpu).and_then(comes) == Some(0)
    }

    /// Takes the CPU from the running task for one that has just been queued, if that preempts it.
    pub(super) fn preempt_for(&mut self, task: u32, cpu: u32, from: u32) {
        let Some(running) = self.running(cpu) else {
            return;
        };
        let (own, now) = (
            self.tasks[task as usize].group,
            self.tasks[running as usize].group,
        );
        if let (Some(owed), true) = (self.seat.and_then(|seat| seat.owed), own != now) {
            self.class.owed(&seen!(self, task), owed);
        }
        let when = self.seat.and_then(|seat| seat.turn).and_then(|turn| {
            let when = match (turn.of.0 == own, now == own) {
                (true, false) if turn.others_ns == 0 => When::Now,
                (true, false) => When::After { ns: turn.others_ns },
                (false, true) => return None,
                _ => turn.when,
            };
            let waits = matches!(when, When::AfterSlice | When::After { .. });
            let owes_nothing = self.class.owes_nothing(&self.seen(task), &self.seen(running));
            let taken = owes_nothing.map_or(now == own, |nothing| nothing || waits);
            taken.then_some((turn, when))
        });
        // Run time of the one that runs after which it is this one's turn.
        let comes = match when {
            Some((_, When::Now)) => Some(0),
            Some((turn, When::Next)) => (turn.of.0 != now).then_some(0),
            Some((_, When::AfterSlice)) => None,
            Some((_, When::After { ns })) => {
                self.wait_out(task, cpu, ns);
                None
            }
            None => self.class.comes(&self.seen(task), &self.seen(running)),
        };
        if when.is_some_and(|(_, when)| when != When::AfterSlice) {
            self.cpus[cpu as usize].first = task;
        }
        if comes != Some(0) {
            if let Some(ns) = comes {
                let state = &mut self.cpus[cpu as usize];
                let ends_ns = self.now_ns.max(state.exec_ns).saturating_add(ns);
                state.slice_end_ns = state.slice_end_ns.min(ends_ns);
            }
            self.set_limit(cpu);
            return;
        }
        let mut after_ns = 0;
        if from != NONE && from != cpu {
            after_ns = self.topo.cost(&self.costs.ipi, from, cpu);
            self.overhead(from, self.costs.ipi_send_ns);
        }
        let gives_way_ns = self.seat.and_then(|seat| seat.gave_way_ns_on(cpu));
        if let Some(ns) = gives_way_ns.filter(|_| own != now) {
            after_ns = after_ns.max(ns);
        }
        self.resched(cpu, after_ns);
    }

    /// What runs on a CPU keeps it for so long, and then the task gets it.
    fn wait_out(&mut self, task: u32, cpu: u32, ns: u32) {
        let at_ns = self.now_ns + u64::from(ns);
        let keeps_ns = &mut self.cpus[cpu as usize].keeps_ns;
        *keeps_ns = match *keeps_ns > self.now_ns {
            true => at_ns.min(*keeps_ns),
            false => at_ns,
        };
        self.timers.push(at_ns, Timer::Turn { task, cpu, ns });
    }

    /// The turn of a task that waited so long for others has come, if it still waits for them.
    pub(super) fn turn_comes(&mut self, task: u32, cpu: u32, ns: u32) {
        let entry = &self.tasks[task as usize];
        let since = entry.runnable_ns + u64::from(ns) == self.now_ns;
        let waits = since && entry.state == State::Queued && entry.policy.cpu == cpu;
        let beside = |running: u32| self.tasks[running as usize].group != entry.group;
        if waits && self.running(cpu).is_some_and(beside) {
            self.cpus[cpu as usize].first = task;
            self.resched(cpu, 0);
        }
    }

    /// Where a waking task goes, and how many CPUs were looked at: where the recorded one went, if the choice is like
    /// that one's, as what else decided then is in no recording; else by rule.
    fn select(&self, task: u32, waker: u32, sync: bool) -> (u32, u32, Option<Seat>) {
        let message = self.tasks[task as usize].received;
        let seat = self.behaviours[task as usize].woken_on(message);
        if let Some(cpu) = seat.and_then(|seat| self.taken_seat(task, waker, seat)) {
            return (cpu, 1, seat);
        }
        let (cpu, looked) = match self.policy.wake_search {
            WakeSearch::Live => self.select_live(task, waker, sync),
            _ => self.select_by_rule(task, waker, sync),
        };
        (cpu, looked, seat)
    }

    /// As policy/place.h says.
    pub(super) fn select_live(&self, task: u32, waker: u32, sync: bool) -> (u32, u32) {
        let previous = self.tasks[task as usize].policy.cpu;
        if !self.allowed(task, previous) {
            return (self.select_any(task), 1);
        }
        if !self.policy.wake_idle {
            return (previous, 0);
        }
        if waker != NONE && self.policy.wake_affine && self.allowed(task, waker) {
            let state = &self.cpus[waker as usize];
            if state.running != NONE && pl::pl_place_passes_on(&state.fair, sync) {
                return (waker, 1);
            }
        }
        let home = self.topo.llc(previous);
        let size = self.topo.llcs[home as usize].len() as u32;
        let most = match self.policy.wake_search_cpus {
            0 => size,
            most => most.min(size),
        };
        for cores in [true, false].into_iter().skip(usize::from(!self.topo.smt)) {
            if let Some(found) = self.idle_from(task, home, previous, cores, most) {
                return found;
            }
            let others = [&self.topo.socket_llcs, &self.topo.remote_llcs];
            for &llc in others.into_iter().flat_map(|llcs| &llcs[home as usize]) {
                let first = self.topo.llcs[llc as usize][0];
                if let Some((cpu, looked)) = self.idle_from(task, llc, first, cores, u32::MAX) {
                    return (cpu, most + looked);
                }
            }
        }
        (self.idle_work(task, previous, most).unwrap_or(previous), most)
    }

    /// Where a new task waits if no CPU is idle: by pl_place_lighter.
    pub(super) fn lightest(&self, task: u32, previous: u32) -> u32 {
        let cpus = &self.topo.llcs[self.topo.llc(previous) as usize];
        let allowed = cpus.iter().copied().filter(|&cpu| self.allowed(task, cpu));
        let fair = |cpu: u32| &self.cpus[cpu as usize].fair;
        allowed.fold(previous, |best, cpu| {
            match pl::pl_place_lighter(fair(cpu), fair(best)) {
                true => cpu,
                false => best,
            }
        })
    }

    /// An idle CPU of a cache that the task may use, or of an idle core, `from` first, and how many were looked at: `most`
    /// are.
    fn idle_from(&self, task: u32, llc: u32, from: u32, cores: bool, most: u32) -> Option<(u32, u32)> {
        let state = &self.llcs[llc as usize];
        let cpus = &self.topo.llcs[llc as usize];
        let size = cpus.len() as u32;
        let mask = if cores { &state.idle_cores } else { &state.idle };
        let first = self.topo.in_llc[from as usize];
        bits_from(mask, first, size)
            .map(|bit| (cpus[bit as usize], (bit + size - first) % size + 1))
            .take_while(|&(_, looked)| looked <= most)
            .find(|&(cpu, _)| self.allowed(task, cpu))
    }

    /// CPUs are names: a task that went to its waker's goes to where that is now, and one that went to another does so,
    /// too, if need be to the one where the waker was.
    fn taken_seat(&self, task: u32, waker: u32, seat: Seat) -> Option<u32> {
        let recorded = seat.cpu?;
        let cpu = match seat.waker_cpu {
            Some(then) if waker != NONE && then == recorded => waker,
            Some(then) if waker != NONE && waker == recorded => then,
            _ => recorded,
        };
        if cpu as usize >= self.cpus.len() {
            return None; // of a smaller machine than the recorded one
        }
        let any_idle = || self.llcs.iter().any(|llc| llc.idle.iter().any(|&word| word != 0));
        let alike = match seat.choice {
            Choice::Idle => false,
            Choice::NotIdle => true,
            Choice::NoneIdle => !any_idle(),
        };
        (self.allowed(task, cpu) && (self.cpus[cpu as usize].idle || alike)).then_some(cpu)
    }

    fn select_by_rule(&self, task: u32, waker: u32, sync: bool) -> (u32, u32) {
        let previous = self.tasks[task as usize].policy.cpu;
        if !self.allowed(task, previous) {
            return (self.select_any(task), 1);
        }
        if !self.policy.wake_idle {
            return (previous, 0);
        }
        let idle = |cpu: u32| self.cpus[cpu as usize].idle;
        let mut target = previous;
        let queued = |cpu: u32| self.cpus[cpu as usize].fair.nr_queued;
        let follows = self.policy.wake_affine && self.tasks[task as usize].follows_waker;
        if follows && waker != NONE && waker != previous && self.allowed(task, waker) {
            let soon_free = sync && queued(waker) == 1;
            let apart = self.topo.llc(waker) != self.topo.llc(previous) || self.policy.wake_crowd > 1;
            let far = self.policy.wake_affine_far && apart;
            if soon_free && far || !idle(previous) && (soon_free || queued(waker) < queued(previous)) {
                target = waker;
            }
        }
        if idle(target) || queued(target) < self.policy.wake_crowd {
            return (target, 1);
        }
        let llc = self.topo.llc(target);
        if idle(previous) && self.topo.llc(previous) == llc {
            return (previous, 2);
        }
        let state = &self.llcs[llc as usize];
        let size = self.topo.llcs[llc as usize].len() as u32;
        let most = if self.policy.wake_search_cpus == 0 {
            size
        } else {
            self.policy.wake_search_cpus.min(size)
        };
        let from = self.topo.in_llc[target as usize];
        let passed = |bit: u32| (bit + size - from) % size + 1;
        let masks = [&state.idle_cores, &state.idle];
        for mask in &masks[usize::from(!self.topo.smt)..] {
            for bit in bits_from(mask, from, size) {
                let cpu = self.topo.llcs[llc as usize][bit as usize];
                if passed(bit) > most {
                    break;
                }
                if self.allowed(task, cpu) {
                    return (cpu, passed(bit));
                }
            }
        }
        (self.idle_work(task, target, most).unwrap_or(target), most)
    }

    /// A CPU of a cache that runs idle work, which the woken task will preempt, and no other yet; of `most` from
    /// `target` on.
    fn idle_work(&self, task: u32, target: u32, most: u32) -> Option<u32> {
        if self.nr_give_way == 0 {
            return None;
        }
        let cpus = &self.topo.llcs[self.topo.llc(target) as usize];
        let from = self.topo.in_llc[target as usize] as usize;
        let near = cpus[from..].iter().chain(&cpus[..from]).take(most as usize);
        near.copied()
            .find(|&cpu| self.gives_way(task, cpu) && self.allowed(task, cpu))
    }

    /// A CPU, or, if the task may not use that one, the least busy of those it may.
    pub(super) fn allowed_or_any(&self, task: u32, cpu: u32) -> u32 {
        match self.allowed(task, cpu) {
            true => cpu,
            false => self.select_any(task),
        }
    }

    /// The least busy CPU that a task may use: for new tasks, and those whose CPU is forbidden.
    pub(super) fn select_any(&self, task: u32) -> u32 {
        let near = self.tasks[task as usize].policy.cpu;
        let n = self.cpus.len() as u32;
        let mut best = (u32::MAX, near);
        for step in 0..n {
            let cpu = (near + step) % n;
            if !self.allowed(task, cpu) {
                continue;
            }
            let siblings = &self.topo.siblings[cpu as usize];
            let busy_siblings = siblings.iter().filter(|&&s| !self.cpus[s as usize].idle).count() as u32;
            // An idle core before an idle thread before a short queue.
            let load = self.cpus[cpu as usize].fair.nr_queued * 1024
                + u32::from(!self.cpus[cpu as usize].idle) * 512
                + busy_siblings;
            if load < best.0 {
                best = (load, cpu);
            }
        }
        best.1
    }
}
