// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the kernel's fair class puts a waking task: the baseline's placement (policy/baseline/wake.h decides, this looks).
//!
//! The kernel's searches overlap. A waker finds a CPU idle, and until it has that CPU's queue locked and its task in it
//! every other waker finds the same: some tasks wait behind others that their wakers did not see. (The live scheduler does not: it
//! claims the CPU that it finds.)
use super::events::Timer;
use super::policy as pl;
use super::state::NONE;
use super::topo::bits_from;
use super::Engine;
use crate::class::Class;
use crate::config::WakeSearch;

/// PL_PELT_MAX: the sum of an average that was 1 for ever.
const PELT_MAX: u64 = 47_742;

impl<C: Class> Engine<'_, C> {
    /// A CPU wakes one task after the other.
    pub(super) fn wake_fair(&mut self, task: u32, waker: u32, sync: bool) {
        if waker == NONE {
            return self.wake_found(task, waker, sync);
        }
        let state = &mut self.cpus[waker as usize];
        let begin_ns = state.waking_until_ns.max(self.now_ns);
        state.waking_until_ns = begin_ns + self.costs.wakeup_ns;
        if begin_ns == self.now_ns {
            self.wake_found(task, waker, sync);
        } else {
            self.timers.push(begin_ns, Timer::Wake { task, waker, sync });
        }
    }

    /// Finds a task's CPU as all look now; the task is there when the wake-up is done.
    pub(super) fn wake_found(&mut self, task: u32, waker: u32, sync: bool) {
        let (cpu, looked) = self.select_fair(task, waker, sync);
        self.count_placed(task, cpu, waker, sync);
        self.pay_wake(task, cpu, waker, looked);
        let there_ns = self.now_ns + self.costs.wakeup_ns;
        self.timers.push(there_ns, Timer::Woken { task, cpu, waker });
    }

    /// A woken task arrives where it was sent, or, if that has become forbidden meanwhile, elsewhere.
    pub(super) fn woken(&mut self, task: u32, cpu: u32, waker: u32) {
        self.activate(task, self.allowed_or_any(task, cpu), waker, true);
    }

    /// The CPU, and how many were looked at.
    fn select_fair(&mut self, task: u32, waker: u32, sync: bool) -> (u32, u32) {
        let previous = self.tasks[task as usize].policy.cpu;
        if !self.allowed(task, previous) {
            return (self.select_any(task), 1);
        }
        if !self.policy.wake_idle {
            return (previous, 0);
        }
        let here = if waker == NONE { previous } else { waker };
        let target = self.wake_target(task, here, previous, sync);
        self.idle_beside(task, here, previous, target)
    }

    /// The waker's CPU or the previous one.
    fn wake_target(&mut self, task: u32, here: u32, previous: u32, sync: bool) -> u32 {
        let newer = self.policy.wake_search == WakeSearch::Utilisation;
        let mut wide = false;
        let running = self.cpus[here as usize].running;
        if running != NONE && running != task {
            let cpus = self.topo.llcs[self.topo.llc(here) as usize].len() as u32;
            pl::pl_wake_count(&mut self.tasks[running as usize].waker, task, self.now_ns);
            let (a, b) = (
                &self.tasks[running as usize].waker,
                &self.tasks[task as usize].waker,
            );
            wide = pl::pl_wake_wide(a, b, cpus);
        }
        if wide || !self.policy.wake_affine || !self.allowed(task, here) {
            return previous;
        }
        if running != NONE && !newer {
            self.tasks[running as usize].recent_cpu = here;
        }
        if here == previous {
            return previous;
        }
        let shared = self.topo.llc(here) == self.topo.llc(previous);
        if self.available(here) && shared {
            return if self.available(previous) { previous } else { here };
        }
        if sync && self.cpus[here as usize].fair.nr_queued == 1 {
            return here;
        }
        if newer && self.available(previous) {
            return previous;
        }
        let weight = |task: u32| {
            if task == NONE {
                0
            } else {
                self.tasks[task as usize].policy.effective
            }
        };
        let queued = |cpu: u32| self.cpus[cpu as usize].fair.weight_sum;
        let drawn = pl::pl_wake_affine(
            queued(here),
            queued(previous),
            weight(task),
            weight(running),
            sync && running != NONE,
        );
        if drawn {
            here
        } else {
            previous
        }
    }

    /// Idle, and not a virtual CPU that its host has taken away.
    fn available(&self, cpu: u32) -> bool {
        let state = &self.cpus[cpu as usize];
        state.idle
            && (self.costs.halt_poll_ns == 0
                || self.now_ns.saturating_sub(state.idle_from_ns) <= state.halt_poll_ns)
    }

    /// An idle CPU of the target's cache, or the target.
    fn idle_beside(&mut self, task: u32, here: u32, previous: u32, target: u32) -> (u32, u32) {
        let newer = self.policy.wake_search == WakeSearch::Utilisation;
        if self.available(target) {
            return (target, 1);
        }
        let number = self.topo.llc(target);
        let shares = |cpu: u32| self.topo.llc(cpu) == number;
        if previous != target && shares(previous) && self.available(previous) {
            return (previous, 2);
        }
        let recent = self.tasks[task as usize].recent_cpu;
        let fits = recent != previous
            && recent != target
            && shares(recent)
            && self.available(recent)
            && self.allowed(task, recent);
        if newer || fits {
            self.tasks[task as usize].recent_cpu = previous;
        }
        if fits {
            return (recent, 3);
        }
        let size = self.topo.llcs[number as usize].len() as u32;
        let mut looked = 3;
        if newer && !self.believes_idle_cores(number) && shares(previous) {
            if let Some(cpu) = self.idle_sibling(task, previous) {
                return (cpu, looked + 1);
            }
        }
        let most = self.scan_limit(here, number, size);
        if newer && most == 0 {
            return (target, looked);
        }
        let from = self.topo.in_llc[target as usize];
        let passed = |bit: u32| (bit + size - from) % size + 1;
        if self.believes_idle_cores(number) {
            looked += size;
            if let Some(cpu) = self.first_of(task, number, from, size, true) {
                return (cpu, looked.min(passed(self.topo.in_llc[cpu as usize]) + 3));
            }
            self.llcs[number as usize].believes_idle_cores = false;
            if newer {
                let cpu = self.first_of(task, number, from, size, false);
                return (cpu.unwrap_or(target), looked);
            }
        }
        // Newer kernels begin beside the target, older ones at it.
        let reach = most + u32::from(newer);
        let found = self
            .first_of(task, number, from, size, false)
            .filter(|&cpu| passed(self.topo.in_llc[cpu as usize]) <= reach);
        let scanned = found.map_or(most.min(size), |cpu| passed(self.topo.in_llc[cpu as usize]));
        let cost_ns = u64::from(scanned) * self.costs.search_cpu_ns;
        let average_ns = &mut self.cpus[here as usize].scan_cost_ns;
        let given_up = found.is_none() && most < size;
        *average_ns = pl::pl_wake_scan_cost(*average_ns, cost_ns, given_up);
        looked += scanned;
        let found = found.or_else(|| {
            if newer {
                None
            } else {
                self.idle_sibling(task, target)
            }
        });
        (found.unwrap_or(target), looked)
    }

    fn believes_idle_cores(&self, llc: u32) -> bool {
        self.topo.smt && self.llcs[llc as usize].believes_idle_cores
    }

    /// How many CPUs of a cache are looked at.
    fn scan_limit(&mut self, here: u32, llc: u32, size: u32) -> u32 {
        let state = &mut self.llcs[llc as usize];
        if self.policy.wake_search == WakeSearch::Proportional {
            let cpu = &self.cpus[here as usize];
            return pl::pl_wake_scan_proportional(size, cpu.steal.avg_idle_ns, cpu.scan_cost_ns);
        }
        state.count_busy(self.now_ns);
        pl::pl_wake_scan_utilisation(size, state.busy.sum / u64::from(size) * 1024 / PELT_MAX)
    }

    fn idle_sibling(&self, task: u32, cpu: u32) -> Option<u32> {
        self.topo.siblings[cpu as usize]
            .iter()
            .copied()
            .find(|&sibling| self.available(sibling) && self.allowed(task, sibling))
    }

    /// The first available CPU of a cache, from one of its numbers on; `cores`: one of a core that is idle.
    fn first_of(&self, task: u32, llc: u32, from: u32, size: u32, cores: bool) -> Option<u32> {
        let state = &self.llcs[llc as usize];
        let mask = if cores { &state.idle_cores } else { &state.idle };
        bits_from(mask, from, size)
            .map(|bit| self.topo.llcs[llc as usize][bit as usize])
            .find(|&cpu| self.available(cpu) && self.allowed(task, cpu))
    }
}
