// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns by lag and deadline: policy/steps.h, and the memory of its lines and turns.
use super::array::ZeroedArray;
use super::sys::{self, Domain, Entity, FairConfig, FairCpu, Line, Node};
use super::{Root, Task};

/// Turns stay where they are: lines link them.
const CHUNK: usize = 256;

/// Reached through raw pointers only, as [`super::Memory`] is. What is read is a copy.
pub(crate) struct Turns {
    root: Root,
    nr_cpus: usize,
    nodes: ZeroedArray<Node>,
    domains: ZeroedArray<Domain>,
    domain_of: ZeroedArray<u32>,
    turns: Vec<ZeroedArray<sys::Turn>>,
}

// SAFETY of all calls below: a task's group and its CPU have nodes here, as the class was made for the engine's groups and
// CPUs; numbers of tasks and CPUs are checked; no reference to anything in the arrays outlasts a call.
impl Turns {
    /// Of that many groups and CPUs, in one domain.
    pub fn new(root: Root, nr_groups: usize, nr_cpus: usize) -> Self {
        let nodes = ZeroedArray::new(nr_groups * nr_cpus);
        let (domains, domain_of) = (ZeroedArray::new(nr_cpus), ZeroedArray::new(nr_cpus));
        for group in 0..nr_groups {
            // SAFETY: groups stand in one array, the root first.
            unsafe { (*root.0.cast_mut().add(group)).nodes = nodes.at(group * nr_cpus) };
        }
        Self {
            root,
            nr_cpus,
            nodes,
            domains,
            domain_of,
            turns: Vec::new(),
        }
    }

    /// Of a CPU.
    #[inline]
    fn domain(&self, cpu: u32) -> *mut Domain {
        // SAFETY: takes a number that is there.
        let domain = unsafe { *self.domain_of.at(cpu as usize) };
        self.domains.at(domain as usize)
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

    /// All that a line links, in no order.
    pub fn entities(&self, node: usize) -> Vec<Entity> {
        let mut entities = Vec::new();
        let mut next = vec![self.line(node).top];
        while let Some(entity) = next.pop() {
            // SAFETY: what is linked in a line is alive.
            if let Some(entity) = unsafe { entity.as_ref() } {
                entities.push(*entity);
                next.extend(entity.below);
            }
        }
        entities
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

    /// The domain of each CPU anew, and what `counted` tasks, each on its CPU, weigh in them.
    pub fn set_domains(&mut self, domain_of: &[u32], counted: impl Iterator<Item = (u32, u32)> + Clone) {
        assert_eq!(domain_of.len(), self.nr_cpus);
        let weights: Vec<u64> = counted
            .clone()
            // SAFETY: as above.
            .map(|(task, _)| std::mem::take(unsafe { &mut (*self.turn(task)).domain_w }))
            .collect();
        // A part that came off goes on from where the whole was.
        let means: Vec<u64> = (0..self.nr_cpus)
            // SAFETY: as above.
            .map(|domain| unsafe { (*self.domains.at(domain)).u0 })
            .collect();
        // SAFETY: as above.
        let before: Vec<u32> = (0..self.nr_cpus)
            .map(|cpu| unsafe { *self.domain_of.at(cpu) })
            .collect();
        for (cpu, &domain) in domain_of.iter().enumerate() {
            let mut new: Domain = sys::zeroed();
            new.u0 = means[before[domain as usize] as usize];
            // SAFETY: as above.
            unsafe {
                *self.domain_of.at(cpu) = domain;
                *self.domains.at(domain as usize) = new;
            }
        }
        for ((task, cpu), weight) in counted.zip(weights) {
            let turn = self.turn(task);
            let domain = self.domains.at(domain_of[cpu as usize] as usize);
            // SAFETY: as above.
            unsafe {
                (*turn).domain_w = weight;
                if weight > 0 {
                    sys::pl_domain_count(domain, (*turn).u, weight, true);
                }
            }
        }
    }

    /// `pinned`: the task may run on this CPU only.
    pub fn pl_steps_enter(
        &mut self,
        task: &mut Task,
        id: u32,
        pinned: bool,
        now_ns: u64,
        config: &FairConfig,
    ) {
        let turn = self.turn(id);
        let domain = self.domain(task.cpu);
        // SAFETY: as above.
        unsafe {
            (*turn).pinned = u32::from(pinned);
            sys::pl_steps_enter(domain, &mut task.0, turn, u64::from(id), now_ns, config);
        }
    }

    /// `delays`: a task that exits or goes elsewhere must not be left in a line.
    pub fn pl_steps_leave(&mut self, task: &mut Task, id: u32, ran_ns: u64, sleeps: bool, delays: bool) {
        let (domain, turn) = (self.domain(task.cpu), self.turn(id));
        // SAFETY: as above.
        unsafe { sys::pl_steps_leave(domain, &mut task.0, turn, ran_ns, sleeps, delays) }
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
        let (domain, turn) = (self.domain(task.cpu), self.turn(id));
        // SAFETY: as above.
        unsafe { sys::pl_steps_ran(domain, &mut task.0, turn, delta_ns, now_ns, config) }
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
            from_domain: self.domain(task.cpu),
            to_domain: self.domain(to),
            from,
            to: fair,
        };
        // SAFETY: as above.
        unsafe { sys::pl_steps_pulls(pull, &task.0, self.turn(id), has_own, own, config) }
    }
}
