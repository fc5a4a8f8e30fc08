//! Cache lines that many CPUs write: a queue with one server.
//!
//! A line is in one place at a time. A CPU that wants it and has it pays nothing; otherwise it is transferred, which
//! takes as long as the two CPUs are far apart, and transfers of one line happen one after the other in the order they
//! were asked for. That queueing is what made one load average cost a quarter of a 224-CPU machine.
use super::topo::Topo;
use crate::config::Costs;

#[derive(Clone, Copy, Default)]
pub(super) struct Line {
    free_at_ns: u64,
    /// Changes with every write; a CPU that has seen this value has the line.
    version: u32,
    owner: u32,
}

impl Line {
    /// How long the CPU waits until it has read the line; `seen` is its own, kept for it between calls.
    #[inline]
    pub fn read(&mut self, cpu: u32, seen: &mut u32, now_ns: u64, topo: &Topo, costs: &Costs) -> u64 {
        if *seen == self.version {
            return 0;
        }
        *seen = self.version;
        self.transfer(cpu, now_ns, 0, topo, costs)
    }

    /// Likewise until it has written; `hold_ns` is how long nobody else gets it (a lock's critical section).
    #[inline]
    pub fn write(
        &mut self,
        cpu: u32,
        seen: &mut u32,
        now_ns: u64,
        hold_ns: u64,
        topo: &Topo,
        costs: &Costs,
    ) -> u64 {
        let cost_ns = self.transfer(cpu, now_ns, hold_ns, topo, costs);
        self.version = self.version.wrapping_add(1).max(1);
        self.owner = cpu;
        *seen = self.version;
        cost_ns
    }

    #[inline]
    fn transfer(&mut self, cpu: u32, now_ns: u64, hold_ns: u64, topo: &Topo, costs: &Costs) -> u64 {
        let fetch_ns = topo.cost(&costs.line, self.owner, cpu) + hold_ns;
        if !costs.contention {
            return fetch_ns;
        }
        let begin_ns = now_ns.max(self.free_at_ns);
        self.free_at_ns = begin_ns + fetch_ns;
        self.free_at_ns - now_ns
    }
}
