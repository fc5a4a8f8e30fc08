// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which CPUs share a core, a last-level cache, a NUMA node, a socket.

/// Where a CPU sits. Every number is unique in the whole machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuPlace {
    /// Hardware threads of one core share this.
    pub core: u32,
    /// Last-level cache.
    pub llc: u32,
    /// NUMA node.
    pub node: u32,
    /// Socket.
    pub socket: u32,
}

/// How far apart two CPUs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Distance {
    /// It is the same CPU.
    Same = 0,
    /// Two hardware threads of one core.
    Core = 1,
    /// One last-level cache.
    Llc = 2,
    /// One socket, another last-level cache.
    Socket = 3,
    /// Another socket.
    Remote = 4,
}

/// How Linux numbers hardware threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbering {
    /// 0 and 1 are siblings.
    SiblingsAdjacent,
    /// The first threads of all cores, then the second ones: usual on x86 servers.
    SiblingsLast,
}

/// Where every CPU sits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// By number.
    pub cpus: Vec<CpuPlace>,
}

impl Topology {
    /// A machine whose sockets, nodes, caches and cores are all alike. Every count is at least 1.
    pub fn regular(
        sockets: u32,
        nodes_per_socket: u32,
        llcs_per_node: u32,
        cores_per_llc: u32,
        threads_per_core: u32,
        numbering: Numbering,
    ) -> Self {
        let cores = sockets * nodes_per_socket * llcs_per_node * cores_per_llc;
        let place = |core: u32| {
            let llc = core / cores_per_llc;
            let node = llc / llcs_per_node;
            let socket = node / nodes_per_socket;
            CpuPlace {
                core,
                llc,
                node,
                socket,
            }
        };
        let cpus = (0..cores * threads_per_core)
            .map(|cpu| match numbering {
                Numbering::SiblingsAdjacent => place(cpu / threads_per_core),
                Numbering::SiblingsLast => place(cpu % cores),
            })
            .collect();
        Self { cpus }
    }

    /// `nr_cpus` CPUs without hardware threads that share one cache.
    pub fn flat(nr_cpus: u32) -> Self {
        Self::regular(1, 1, 1, nr_cpus, 1, Numbering::SiblingsLast)
    }

    /// Whether a machine can be of this shape.
    ///
    /// # Errors
    /// What cannot be: a gap in the numbers of caches, a number of a core or node that none can have (each is a row of a
    /// table or counted), a core whose threads are in two caches, a cache that is in two sockets.
    pub fn check(&self) -> Result<(), String> {
        let mut caches = vec![None; self.nr_cpus() as usize];
        let mut cores: std::collections::BTreeMap<u32, u32> = std::collections::BTreeMap::new();
        for (cpu, place) in self.cpus.iter().enumerate() {
            if place.core >= self.nr_cpus() {
                return Err(format!(
                    "CPU {cpu} in core {} of {} CPUs",
                    place.core,
                    self.nr_cpus()
                ));
            }
            if place.node >= self.nr_cpus() {
                return Err(format!(
                    "CPU {cpu} in node {} of {} CPUs",
                    place.node,
                    self.nr_cpus()
                ));
            }
            let Some(socket) = caches.get_mut(place.llc as usize) else {
                return Err(format!(
                    "CPU {cpu} in cache {} of {} CPUs",
                    place.llc,
                    self.nr_cpus()
                ));
            };
            let known = *socket.get_or_insert(place.socket);
            if known != place.socket {
                return Err(format!(
                    "cache {} in sockets {known} and {}",
                    place.llc, place.socket
                ));
            }
            let known = *cores.entry(place.core).or_insert(place.llc);
            if known != place.llc {
                return Err(format!("core {} in caches {known} and {}", place.core, place.llc));
            }
        }
        match caches[..self.nr_llcs() as usize].iter().position(Option::is_none) {
            Some(gap) => Err(format!("no CPU in cache {gap} of {}", self.nr_llcs())),
            None => Ok(()),
        }
    }

    /// How many there are.
    pub fn nr_cpus(&self) -> u32 {
        self.cpus.len() as u32
    }

    /// One more than the highest number.
    pub fn nr_nodes(&self) -> u32 {
        self.cpus.iter().map(|cpu| cpu.node + 1).max().unwrap_or(0)
    }

    /// One more than the highest number.
    pub fn nr_llcs(&self) -> u32 {
        self.cpus.iter().map(|cpu| cpu.llc + 1).max().unwrap_or(0)
    }

    /// How far apart two CPUs are; panics if one is not there.
    pub fn distance(&self, a: u32, b: u32) -> Distance {
        let (x, y) = (self.cpus[a as usize], self.cpus[b as usize]);
        if a == b {
            Distance::Same
        } else if x.core == y.core {
            Distance::Core
        } else if x.llc == y.llc {
            Distance::Llc
        } else if x.socket == y.socket {
            Distance::Socket
        } else {
            Distance::Remote
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A regular machine, with one number of one CPU changed.
    fn check(change: impl Fn(&mut CpuPlace)) -> String {
        let mut topology = Topology::regular(2, 1, 2, 2, 2, Numbering::SiblingsLast);
        change(&mut topology.cpus[0]);
        topology.check().expect_err("no machine is like that")
    }

    #[test]
    fn shapes_that_no_machine_has_are_named() {
        assert_eq!(Topology::flat(1).check(), Ok(()));
        assert_eq!(
            Topology::regular(2, 2, 4, 8, 2, Numbering::SiblingsAdjacent).check(),
            Ok(())
        );
        assert_eq!(check(|cpu| cpu.llc = 1), "core 0 in caches 1 and 0");
        assert_eq!(check(|cpu| cpu.socket = 1), "cache 0 in sockets 1 and 0");
        assert_eq!(
            check(|cpu| cpu.core = 1 << 30),
            "CPU 0 in core 1073741824 of 16 CPUs"
        );
        assert_eq!(
            check(|cpu| cpu.llc = u32::MAX),
            "CPU 0 in cache 4294967295 of 16 CPUs"
        );
        assert_eq!(
            check(|cpu| cpu.node = u32::MAX),
            "CPU 0 in node 4294967295 of 16 CPUs"
        );
        let mut gap = Topology::flat(4);
        gap.cpus[3].llc = 2;
        assert_eq!(gap.check(), Err("no CPU in cache 1 of 3".into()));
    }
}
