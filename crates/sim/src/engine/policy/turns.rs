// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns by lag and deadline: policy/steps.h, and the memory of its lines and turns.
use super::array::ZeroedArray;
use super::sys::{self, Domain, Entity, FairConfig, FairCpu, Line, Node, Part, Sum};
use super::{Root, Task};
use crate::behaviour::Owed;
use crate::class::Bound;

/// Turns stay where they are: lines link them.
const CHUNK: usize = 256;

/// Reached through raw pointers only, as [`super::Memory`] is. What is read is a copy.
pub(crate) struct Turns {
    root: Root,
    nr_cpus: usize,
    nodes: ZeroedArray<Node>,
    parts: ZeroedArray<Part>,
    domains: ZeroedArray<Domain>,
    /// Those that were ever used, and all before them.
    nr_domains: u32,
    /// How far all are served.
    all: Sum,
    /// When the means were last gathered, and how old they get.
    gathered_ns: u64,
    gather_ns: u64,
    turns: Vec<ZeroedArray<sys::Turn>>,
}

// SAFETY of all calls below: a task's group and its CPU have nodes here, as the class was made for the engine's groups and
// CPUs; numbers of tasks and CPUs are checked; no reference to anything in the arrays outlasts a call.
impl Turns {
    /// Of that many groups and CPUs.
    pub fn new(root: Root, nr_groups: usize, nr_cpus: usize) -> Self {
        let nodes = ZeroedArray::new(nr_groups * nr_cpus);
        let parts: ZeroedArray<Part> = ZeroedArray::new(nr_cpus);
        let domains = ZeroedArray::new(nr_cpus + 1);
        for cpu in 0..nr_cpus {
            // SAFETY: takes a number that is there.
            unsafe { (*parts.at(cpu)).domain = domains.at(sys::DOMAIN_REST as usize) };
        }
        for group in 0..nr_groups {
            // SAFETY: groups stand in one array, the root first.
            unsafe { (*root.0.cast_mut().add(group)).nodes = nodes.at(group * nr_cpus) };
        }
        Self {
            root,
            nr_cpus,
            nodes,
            parts,
            domains,
            nr_domains: sys::DOMAIN_REST + 1,
            all: sys::zeroed(),
            gathered_ns: 0,
            // SAFETY: a function of a number.
            gather_ns: unsafe { sys::pl_domain_gather_ns(nr_cpus as u32) },
            turns: Vec::new(),
        }
    }

    /// Of a CPU.
    #[inline]
    fn part(&self, cpu: u32) -> *mut Part {
        self.parts.at(cpu as usize)
    }

    #[inline]
    fn turn(&self, task: u32) -> *mut sys::Turn {
        self.turns[task as usize / CHUNK].at(task as usize % CHUNK)
    }

    /// Where a group stands among others on a CPU, and its own line: names both.
    #[inline]
    pub fn node(&self, group: u32, cpu: u32) -> usize {
        assert!((cpu as usize) < self.nr_cpus, "CPU {cpu} of {}", self.nr_cpus);
        group as usize * self.nr_cpus + cpu as usize
    }

    /// That of a task's group on its CPU.
    pub fn node_of(&self, task: &Task) -> usize {
        // SAFETY: the task's group is alive.
        self.node(unsafe { (*task.0.group).id } as u32, task.cpu)
    }

    /// Those of the levels from a task's group to the root on its CPU.
    pub fn nodes_above(&self, task: &Task) -> Vec<usize> {
        let mut nodes = Vec::new();
        let mut level = task.0.group;
        // SAFETY: groups are alive.
        while let Some(group) = unsafe { level.as_ref() } {
            nodes.push(self.node(group.id as u32, task.cpu));
            level = group.parent;
        }
        nodes
    }

    /// The line of a group's tasks and child groups on a CPU.
    pub fn line(&self, node: usize) -> Line {
        // SAFETY: as above.
        unsafe { (*self.nodes.at(node)).line }
    }

    /// The group in its parent's line.
    pub fn entity(&self, node: usize) -> Entity {
        // SAFETY: as above.
        unsafe { (*self.nodes.at(node)).entity }
    }

    /// Shows all that a line links, in no order.
    pub fn entities(&self, line: &Line, mut show: impl FnMut(&Entity)) {
        Self::below(line.top, &mut show);
    }

    /// As deep as the tree, which ranks that are as if drawn at random keep low.
    fn below(entity: *const Entity, show: &mut impl FnMut(&Entity)) {
        // SAFETY: what is linked in a line is alive.
        if let Some(entity) = unsafe { entity.as_ref() } {
            show(entity);
            for below in entity.below {
                Self::below(below, show);
            }
        }
    }

    pub fn turn_of(&self, task: u32) -> sys::Turn {
        // SAFETY: as above.
        unsafe { *self.turn(task) }
    }

    /// How far a task has come in its domain.
    #[inline]
    pub fn u(&self, task: u32) -> u64 {
        // SAFETY: as above.
        unsafe { (*self.turn(task)).u }
    }

    /// A task of this number begins; the one that had it is in no line.
    pub fn born(&mut self, task: u32) {
        while self.turns.len() * CHUNK <= task as usize {
            self.turns.push(ZeroedArray::new(CHUNK));
        }
        // SAFETY: as above.
        unsafe { *self.turn(task) = sys::zeroed() };
    }

    /// A task's turn begins on its CPU: whose domain that is, and how far all are served.
    pub fn follow_bound(&mut self, task: &Task, id: u32, now_ns: u64, config: &FairConfig) {
        // SAFETY: as above; there are as many domains as numbers.
        unsafe {
            let bound = (*self.turn(id)).bound;
            sys::pl_part_follows(self.part(task.cpu), self.domains.at(0), bound, now_ns);
        }
        if now_ns.saturating_sub(self.gathered_ns) > self.gather_ns {
            self.gathered_ns = now_ns;
            self.gather(config);
        }
    }

    fn gather(&mut self, config: &FairConfig) {
        let domains = self.domains.at(0);
        // SAFETY: as above.
        unsafe {
            sys::pl_domains_begin(domains, self.nr_domains);
            for cpu in 0..self.nr_cpus {
                sys::pl_domains_gather(self.parts.at(cpu));
            }
            sys::pl_domains_end(domains, self.nr_domains, &mut self.all, config);
        }
    }

    pub fn pl_steps_enter(
        &mut self,
        task: &mut Task,
        id: u32,
        bound: Bound,
        now_ns: u64,
        config: &FairConfig,
    ) {
        let turn = self.turn(id);
        let part = self.part(task.cpu);
        let number = match bound {
            // SAFETY: a function of a number.
            Bound::Set(first) => unsafe { sys::pl_domain_of_set(first) },
            Bound::No | Bound::Cpu => sys::DOMAIN_REST,
        };
        self.nr_domains = self.nr_domains.max(number + 1);
        // SAFETY: as above.
        unsafe {
            (*turn).bound = number;
            (*turn).pinned = u32::from(bound == Bound::Cpu);
            sys::pl_steps_enter(part, &mut task.0, turn, u64::from(id), now_ns, config);
        }
    }

    /// `delays`: a task that exits or goes elsewhere must not be left in a line.
    pub fn pl_steps_leave(&mut self, task: &mut Task, id: u32, ran_ns: u64, sleeps: bool, delays: bool) {
        let (part, turn) = (self.part(task.cpu), self.turn(id));
        // SAFETY: as above.
        unsafe { sys::pl_steps_leave(part, &mut task.0, turn, ran_ns, sleeps, delays) }
    }

    #[inline]
    pub fn pl_steps_ran(
        &mut self,
        task: &mut Task,
        id: u32,
        delta_ns: u64,
        now_ns: u64,
        config: &FairConfig,
    ) {
        let (part, turn) = (self.part(task.cpu), self.turn(id));
        // SAFETY: as above.
        unsafe { sys::pl_steps_ran(part, &mut task.0, turn, delta_ns, now_ns, config) }
    }

    pub fn pl_steps_tick(&mut self, task: &Task, config: &FairConfig) {
        // SAFETY: as above.
        unsafe { sys::pl_steps_tick(&task.0, config) }
    }

    pub fn pl_steps_picked(&mut self, task: &Task, id: u32, now_ns: u64, config: &FairConfig) -> u64 {
        // SAFETY: as above.
        unsafe { sys::pl_steps_picked(&task.0, self.turn(id), now_ns, config) }
    }

    /// Something waits on the CPU, and no task runs there.
    pub fn pl_steps_pick(&self, cpu: u32, now_ns: u64, config: &FairConfig) -> u32 {
        assert!((cpu as usize) < self.nr_cpus, "CPU {cpu} of {}", self.nr_cpus);
        // SAFETY: as above.
        unsafe { sys::pl_steps_pick(self.root.0, cpu, now_ns, config) as u32 }
    }

    pub fn pl_steps_owes_nothing(&self, woken: (&Task, u32), running: (&Task, u32)) -> bool {
        let (a, b) = (self.turn(woken.1), self.turn(running.1));
        // SAFETY: as above.
        unsafe { sys::pl_steps_owes_nothing(&woken.0 .0, a, &running.0 .0, b) }
    }

    pub fn pl_recorded_owed(&mut self, woken: &Task, id: u32, owed: Owed) {
        // Is there one of that number?
        self.nodes.at(self.node(owed.beside.0, woken.cpu));
        let (own_ns, beside_ns) = (owed.own_ns.into(), owed.beside_ns.into());
        // SAFETY: as above, and groups stand in one array, the root first.
        unsafe {
            let beside = self.root.0.add(owed.beside.0 as usize);
            sys::pl_recorded_owed(&woken.0, self.turn(id), beside, own_ns, beside_ns);
        }
    }

    pub fn pl_steps_comes(&self, woken: (&Task, u32), running: (&Task, u32), config: &FairConfig) -> u64 {
        let (a, b) = (self.turn(woken.1), self.turn(running.1));
        // The engine has charged it. SAFETY: as above.
        unsafe { sys::pl_steps_comes(&woken.0 .0, a, &running.0 .0, b, config) }
    }

    pub fn pl_steps_yield(&mut self, task: &Task, id: u32) {
        // SAFETY: as above.
        unsafe { sys::pl_steps_yield(&task.0, self.turn(id)) }
    }

    /// A task that waits on a CPU, and one that would take it over.
    pub fn pl_steps_pulls(
        &mut self,
        (task, id, from): (&Task, u32, &FairCpu),
        (to, fair): (u32, &FairCpu),
        own: Option<u64>,
        config: &FairConfig,
    ) -> bool {
        assert!((to as usize) < self.nr_cpus, "CPU {to} of {}", self.nr_cpus);
        let (has_own, own) = (own.is_some(), own.unwrap_or(0));
        let pull = sys::Pull {
            from_part: self.part(task.cpu),
            to_part: self.part(to),
            from,
            to: fair,
        };
        // SAFETY: as above.
        unsafe { sys::pl_steps_pulls(pull, &task.0, self.turn(id), has_own, own, config) }
    }
}
