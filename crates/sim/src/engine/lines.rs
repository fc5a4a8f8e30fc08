// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cache lines that many CPUs write: a queue with one server.
//!
//! A line is in one place at a time. A CPU that wants it and has it pays nothing; otherwise it is transferred, which
//! takes as long as the two CPUs are far apart, and transfers of one line happen one after the other. That queueing is
//! what made one load average cost a quarter of a 224-CPU machine.
//!
//! Where several wait, the hardware hands the line to a near one first, and hardly ever across sockets: then a transfer
//! takes what it takes within a cache. A write also takes the line from all that have read it since the last write, and is
//! done when the farthest of them has let go.
use super::topo::Topo;
use crate::config::Costs;

#[derive(Clone, Copy, Default)]
pub(super) struct Line {
    free_at_ns: u64,
    /// Changes with every write; a CPU that has seen this value has the line.
    version: u32,
    owner: u32,
    /// A CPU of another socket than the owner's has read it since it was written.
    read_far: bool,
}

impl Line {
    /// How long the CPU waits until it has read the line; `seen` is its own, kept for it between calls.
    #[inline]
    pub fn read(&mut self, cpu: u32, seen: &mut u32, now_ns: u64, topo: &Topo, costs: &Costs) -> u64 {
        if *seen == self.version {
            return 0;
        }
        *seen = self.version;
        self.read_far |= topo.far(self.owner, cpu);
        self.transfer(now_ns, self.fetch(cpu, now_ns, topo, costs), costs)
    }

    /// Likewise until it has written; `hold_ns` is how long no other CPU gets it (a lock's critical section).
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
        let mut fetch_ns = self.fetch(cpu, now_ns, topo, costs);
        if self.read_far {
            fetch_ns = fetch_ns.max(costs.line.remote_ns);
        }
        let cost_ns = self.transfer(now_ns, fetch_ns + hold_ns, costs);
        self.version = self.version.wrapping_add(1).max(1);
        self.owner = cpu;
        self.read_far = false;
        *seen = self.version;
        cost_ns
    }

    #[inline]
    fn fetch(&self, cpu: u32, now_ns: u64, topo: &Topo, costs: &Costs) -> u64 {
        let fetch_ns = topo.cost(&costs.line, self.owner, cpu);
        match costs.contention && self.free_at_ns > now_ns {
            true => fetch_ns.min(costs.line.llc_ns),
            false => fetch_ns,
        }
    }

    #[inline]
    fn transfer(&mut self, now_ns: u64, takes_ns: u64, costs: &Costs) -> u64 {
        if !costs.contention {
            return takes_ns;
        }
        self.free_at_ns = now_ns.max(self.free_at_ns) + takes_ns;
        self.free_at_ns - now_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PerDistance;
    use crate::topology::{Numbering, Topology};

    /// Two sockets of two cores; 10 ns within a cache, 100 ns across.
    fn machine() -> (Topo, Costs) {
        let topology = Topology::regular(2, 1, 1, 2, 1, Numbering::SiblingsAdjacent);
        let mut costs = Costs::free();
        costs.contention = true;
        costs.line = PerDistance {
            remote_ns: 100,
            ..PerDistance::flat(10)
        };
        (Topo::new(&topology), costs)
    }

    #[test]
    fn who_waits_in_line_gets_it_within_a_cache_who_does_not_from_where_it_is() {
        let (topo, costs) = machine();
        let mut line = Line::default();
        let mut write = |cpu, now_ns| line.write(cpu, &mut 0, now_ns, 0, &topo, &costs);
        assert_eq!(write(2, 0), 100); // from the other socket
        assert_eq!(write(0, 50), 50 + 10); // it waits for the first one, and then is near
        assert_eq!(write(0, 1000), 0); // its own
        assert_eq!(write(3, 2000), 100);
    }

    #[test]
    fn a_write_waits_for_readers_of_the_other_socket() {
        let (topo, costs) = machine();
        let mut line = Line::default();
        assert_eq!(line.write(0, &mut 0, 0, 0, &topo, &costs), 0);
        let mut seen = 0;
        assert_eq!(line.read(2, &mut seen, 1000, &topo, &costs), 100);
        assert_eq!(line.read(2, &mut seen, 2000, &topo, &costs), 0);
        assert_eq!(line.write(1, &mut 0, 3000, 0, &topo, &costs), 100);
        assert_eq!(line.write(0, &mut 0, 4000, 0, &topo, &costs), 10);
    }
}
