// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which CPUs share a core, a last-level cache, a NUMA node, a socket.

/// Where a CPU sits. Every number is unique in the whole machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuPlace {
    pub core: u32,
    pub llc: u32,
    pub node: u32,
    pub socket: u32,
}

/// How far apart two CPUs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Distance {
    Same = 0,
    /// Two hardware threads of one core.
    Core = 1,
    /// One last-level cache.
    Llc = 2,
    /// One socket, another last-level cache.
    Socket = 3,
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
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

    pub fn nr_cpus(&self) -> u32 {
        self.cpus.len() as u32
    }

    pub fn nr_nodes(&self) -> u32 {
        self.cpus.iter().map(|cpu| cpu.node + 1).max().unwrap_or(0)
    }

    pub fn nr_llcs(&self) -> u32 {
        self.cpus.iter().map(|cpu| cpu.llc + 1).max().unwrap_or(0)
    }

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
