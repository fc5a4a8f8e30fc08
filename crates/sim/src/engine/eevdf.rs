// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tasks take turns as policy/steps.h says: its steps called, its memory owned.
use super::memory::ZeroedArray;
use super::state::State;
use super::Engine;
use crate::config::Fair;
use plimsoll_policy_sys as pl;

/// Turns stay where they are: lines link them.
const CHUNK: usize = 256;

pub(super) struct Eevdf {
    steps: pl::Steps,
    _nodes: ZeroedArray<pl::Node>,
    domains: Vec<pl::Domain>,
    domain_of: Vec<u32>,
    turns: Vec<ZeroedArray<pl::Turn>>,
    /// Affinities or cpusets have changed since domains were made.
    stale: bool,
    /// The task that leaves its line goes to sleep.
    pub sleeps: bool,
    /// Of each task, with what lag it left its line: a second book, where every event is checked.
    left: Vec<Option<Left>>,
}

#[derive(Clone, Copy)]
struct Left {
    node: *const pl::Node,
    /// Times 2^20; the weight it had, and V after it had gone.
    lag: i128,
    weight: i128,
    mean: u64,
}

impl Eevdf {
    pub fn new(fair: Fair, nr_groups: usize, nr_cpus: usize) -> Option<Box<Self>> {
        if fair == Fair::Flat {
            return None;
        }
        let nodes = ZeroedArray::new(nr_groups * nr_cpus);
        let mut steps: pl::Steps = pl::zeroed();
        steps.nodes = nodes.at(0);
        steps.nr_cpus = nr_cpus as u64;
        Some(Box::new(Self {
            steps,
            _nodes: nodes,
            domains: vec![pl::zeroed(); nr_cpus],
            domain_of: vec![0; nr_cpus],
            turns: Vec::new(),
            stale: true,
            sleeps: false,
            left: Vec::new(),
        }))
    }

    fn turn(&self, task: u32) -> *mut pl::Turn {
        self.turns[task as usize / CHUNK].at(task as usize % CHUNK)
    }

    /// A task of this number comes into being.
    pub fn is_new(&mut self, task: u32) {
        while self.turns.len() * CHUNK <= task as usize {
            self.turns.push(ZeroedArray::new(CHUNK));
        }
        // SAFETY: in bounds; the task that had this number is in no line.
        unsafe { *self.turn(task) = pl::zeroed() };
        if let Some(left) = self.left.get_mut(task as usize) {
            *left = None;
        }
        self.stale = true;
    }

    pub fn changed(&mut self) {
        self.stale = true;
    }

    fn node(&self, group: u32, cpu: u32) -> *mut pl::Node {
        self._nodes
            .at(group as usize * self.domain_of.len() + cpu as usize)
    }
}

/// The books of `left`: whatever the policy keeps of a lag, in arithmetic of its own.
impl Eevdf {
    fn node_of(&self, task: &pl::Task) -> *mut pl::Node {
        // SAFETY: the task's group is alive.
        self.node(unsafe { (*task.group).id } as u32, task.cpu)
    }

    fn lag_in(line: &pl::Line, entity: &pl::Entity) -> i128 {
        // SAFETY: a plain struct.
        let mean = unsafe { pl::pl_line_mean(line) };
        i128::from(mean.wrapping_sub(entity.v) as i64) * i128::from(entity.weight)
    }

    fn bound(slice_ns: u64) -> i128 {
        const OVERRUN_NS: u64 = 10_000_000;
        i128::from(slice_ns.min(1_000_000_000) + OVERRUN_NS) << 20
    }

    fn lag(&self, task: u32, entry: &pl::Task) -> i128 {
        // SAFETY: in bounds; nothing is borrowed.
        let (line, entity) = unsafe { (&(*self.node_of(entry)).line, &(*self.turn(task)).entity) };
        let bound = Self::bound(entity.slice_ns);
        Self::lag_in(line, entity).clamp(-bound, bound)
    }

    fn book_left(&mut self, task: u32, entry: &pl::Task, lag: i128) {
        let node = self.node_of(entry);
        // SAFETY: as above.
        let (mean, weight) = unsafe { (pl::pl_line_mean(&(*node).line), (*self.turn(task)).entity.weight) };
        if self.left.len() <= task as usize {
            self.left.resize(task as usize + 1, None);
        }
        self.left[task as usize] = Some(Left {
            node,
            lag,
            weight: i128::from(weight),
            mean,
        });
    }

    /// What a task that comes to a line where others are should have there, before it is bounded; else nothing.
    fn expected(&self, task: u32, entry: &pl::Task) -> Option<i128> {
        let left = (*self.left.get(task as usize)?)?;
        let node = self.node_of(entry);
        // SAFETY: as above.
        let (line, behind) = unsafe { (&(*node).line, i128::from((*self.turn(task)).behind)) };
        if line.n == 0 {
            return None;
        }
        let paid = match std::ptr::eq(left.node, node) && left.lag < 0 {
            // SAFETY: as above.
            true => {
                i128::from(unsafe { pl::pl_line_mean(line) }.wrapping_sub(left.mean) as i64) * left.weight
            }
            false => 0,
        };
        Some((left.lag + paid.max(0)).min(left.lag.max(0)) + behind)
    }

    fn check_kept(&self, task: u32, entry: &pl::Task, expected: i128, now_ns: u64) {
        // SAFETY: as above.
        let (line, entity) = unsafe { (&(*self.node_of(entry)).line, &(*self.turn(task)).entity) };
        let bound = Self::bound(entity.slice_ns);
        let (got, expected) = (Self::lag_in(line, entity), expected.clamp(-bound, bound));
        // V and v are whole numbers, and so was what it left with.
        let left = self.left[task as usize].map_or(0, |left| left.weight);
        let rounding = 4 * i128::from(entity.weight) + 4 * left;
        assert!(
            (got - expected).abs() <= rounding,
            "task {task} came back with a lag of {got} at {now_ns} ns; it is due {expected}, within {rounding}"
        );
    }

    /// Lags and weights of the groups above a task, from its own upwards.
    fn group_lags(&self, entry: &pl::Task) -> Vec<(i128, i128)> {
        let mut lags = Vec::new();
        let mut level = entry.group;
        // SAFETY: groups are alive; nothing is borrowed.
        unsafe {
            while !(*level).parent.is_null() {
                let entity = &(*self.node((*level).id as u32, entry.cpu)).entity;
                level = (*level).parent;
                let line = &(*self.node((*level).id as u32, entry.cpu)).line;
                lags.push((Self::lag_in(line, entity), i128::from(entity.weight)));
            }
        }
        lags
    }
}

/// The CPU that stands for all that tasks reach from this one.
fn root_of(parents: &mut [u32], mut cpu: u32) -> u32 {
    while parents[cpu as usize] != cpu {
        parents[cpu as usize] = parents[parents[cpu as usize] as usize];
        cpu = parents[cpu as usize];
    }
    cpu
}

impl Engine<'_> {
    /// What a task is ordered by among those that wait on its CPU: who is furthest behind is looked at first by others.
    #[inline]
    pub(super) fn key(&self, task: u32) -> u64 {
        match &self.eevdf {
            None => self.tasks[task as usize].policy.vruntime,
            // SAFETY: in bounds.
            Some(eevdf) => unsafe { (*eevdf.turn(task)).u },
        }
    }

    /// CPUs that tasks can move between have one clock.
    fn make_domains(&mut self) {
        let n = self.cpus.len() as u32;
        let mut parents: Vec<u32> = (0..n).collect();
        let tasks = self.tasks.len() as u32;
        let free = |task: &super::state::Task| {
            task.affinity.is_none() && self.cpusets[task.group as usize].is_none()
        };
        let lives = |task: &super::state::Task| task.state != State::Exited && !task.external;
        let any_free = self.tasks.iter().any(|task| lives(task) && free(task));
        for task in 0..tasks {
            let entry = &self.tasks[task as usize];
            if any_free || !lives(entry) {
                continue;
            }
            let mut first = None;
            for cpu in (0..n).filter(|&cpu| self.allowed(task, cpu)) {
                let root = root_of(&mut parents, cpu);
                let first = *first.get_or_insert(root);
                parents[root as usize] = root_of(&mut parents, first);
            }
        }
        let Some(mut eevdf) = self.eevdf.take() else {
            return;
        };
        let mut counted = Vec::new();
        for task in (0..tasks).filter(|&task| self.tasks[task as usize].policy.counted != 0) {
            // SAFETY: in bounds, nothing is borrowed.
            let turn = unsafe { &mut *eevdf.turn(task) };
            counted.push((task, turn.domain_w));
            turn.domain_w = 0;
        }
        // A part that came off goes on from where the whole was.
        let before = eevdf.domain_of.clone();
        let means: Vec<u64> = eevdf.domains.iter().map(|domain| domain.u0).collect();
        for cpu in 0..n {
            let domain = if any_free { 0 } else { root_of(&mut parents, cpu) };
            eevdf.domain_of[cpu as usize] = domain;
            let mut new: pl::Domain = pl::zeroed();
            new.u0 = means[before[domain as usize] as usize];
            eevdf.domains[domain as usize] = new;
        }
        eevdf.stale = false;
        for (task, weight) in counted {
            let cpu = self.tasks[task as usize].policy.cpu;
            let turn = eevdf.turn(task);
            let domain = &mut eevdf.domains[eevdf.domain_of[cpu as usize] as usize];
            // SAFETY: as above.
            unsafe {
                let turn = &mut *turn;
                turn.domain_w = weight;
                if weight > 0 {
                    pl::pl_domain_count(domain, turn.u, weight, true);
                }
            }
        }
        eevdf.steps.domains = eevdf.domains.as_mut_ptr();
        eevdf.steps.domain_of = eevdf.domain_of.as_mut_ptr();
        self.eevdf = Some(eevdf);
    }

    fn pinned(&self, task: u32) -> bool {
        let entry = &self.tasks[task as usize];
        match (&entry.affinity, &self.cpusets[entry.group as usize]) {
            (None, None) => self.nr_online == 1,
            _ => {
                let n = self.cpus.len() as u32;
                (0..n).filter(|&cpu| self.allowed(task, cpu)).take(2).count() < 2
            }
        }
    }

    /// A task was counted on its CPU.
    pub(super) fn steps_enter(&mut self, task: u32) {
        if self.eevdf.as_ref().is_some_and(|eevdf| eevdf.stale) {
            self.make_domains();
        }
        let pinned = self.pinned(task);
        let Some(eevdf) = self.eevdf.as_deref_mut() else {
            return;
        };
        let entry = &mut self.tasks[task as usize].policy;
        let turn = eevdf.turn(task);
        let checked = self.ledger.is_some();
        let before = checked.then(|| eevdf.expected(task, entry));
        // SAFETY: the task's memory, its group's and that of its lines are the engine's, alive and not borrowed.
        unsafe {
            (*turn).pinned = u32::from(pinned);
            pl::pl_steps_enter(&eevdf.steps, entry, turn, u64::from(task), &self.policy.core.fair);
        }
        if let Some(Some(expected)) = before {
            eevdf.check_kept(task, entry, expected, self.now_ns);
        }
    }

    /// A task will be counted on its CPU no more.
    pub(super) fn steps_leave(&mut self, task: u32) {
        let Some(eevdf) = self.eevdf.as_deref_mut() else {
            return;
        };
        let sleeps = std::mem::take(&mut eevdf.sleeps);
        let entry = &mut self.tasks[task as usize].policy;
        let checked = self.ledger.is_some();
        let lag = checked.then(|| eevdf.lag(task, entry));
        // SAFETY: as in steps_enter().
        unsafe { pl::pl_steps_leave(&eevdf.steps, entry, eevdf.turn(task), sleeps) };
        if let Some(lag) = lag {
            eevdf.book_left(task, entry, lag);
        }
    }

    pub(super) fn steps_ran(&mut self, task: u32, delta_ns: u64) {
        let Some(eevdf) = self.eevdf.as_deref_mut() else {
            return;
        };
        let entry = &mut self.tasks[task as usize].policy;
        // SAFETY: as in steps_enter().
        unsafe {
            pl::pl_steps_ran(
                &eevdf.steps,
                entry,
                eevdf.turn(task),
                delta_ns,
                &self.policy.core.fair,
            );
        }
    }

    /// Weighs the groups of a running task anew. Run time until it may be another's turn.
    pub(super) fn steps_tick(&mut self, task: u32) -> Option<u64> {
        let eevdf = self.eevdf.as_deref_mut()?;
        let entry = &self.tasks[task as usize].policy;
        let checked = self.ledger.is_some();
        let lags = checked.then(|| eevdf.group_lags(entry));
        // SAFETY: as in steps_enter().
        unsafe {
            pl::pl_steps_tick(&eevdf.steps, entry);
            if let Some(before) = lags {
                for (before, after) in before.iter().zip(eevdf.group_lags(entry)) {
                    let off = (before.0 - after.0).abs();
                    assert!(
                        off <= 2 * (before.1 + after.1),
                        "task {task}: a group's lag became {} from {} as it was weighed at {} ns",
                        after.0,
                        before.0,
                        self.now_ns
                    );
                }
            }
            let fair = &self.policy.core.fair;
            Some(pl::pl_steps_slice(&eevdf.steps, entry, eevdf.turn(task), fair))
        }
    }

    /// Whose turn it is on a CPU where somebody waits and nobody runs.
    pub(super) fn steps_pick(&self, eevdf: &Eevdf, cpu: u32) -> u32 {
        // SAFETY: as in steps_enter().
        unsafe { pl::pl_steps_pick(&eevdf.steps, self.memory.group(0), cpu) as u32 }
    }

    pub(super) fn steps_preempts(&self, eevdf: &Eevdf, woken: u32, running: u32) -> bool {
        let (a, b) = (
            &self.tasks[woken as usize].policy,
            &self.tasks[running as usize].policy,
        );
        // SAFETY: as in steps_enter().
        unsafe { pl::pl_steps_preempts(&eevdf.steps, a, eevdf.turn(woken), b, eevdf.turn(running)) }
    }

    pub(super) fn steps_yield(&mut self, task: u32) {
        let Some(eevdf) = self.eevdf.as_deref_mut() else {
            return;
        };
        let entry = &self.tasks[task as usize].policy;
        // SAFETY: as in steps_enter().
        unsafe { pl::pl_steps_yield(&eevdf.steps, entry, eevdf.turn(task)) };
    }

    /// Whether a CPU takes over a task that waits elsewhere, by how far behind that is. `own`: the one of its own that is
    /// furthest behind.
    pub(super) fn steps_pull(&mut self, task: u32, to: u32, own: Option<u64>) -> bool {
        let Some(eevdf) = self.eevdf.as_deref_mut() else {
            return false;
        };
        let entry = &self.tasks[task as usize].policy;
        let fair = &self.policy.core.fair;
        // SAFETY: as in steps_enter().
        unsafe {
            pl::pl_steps_pulls(
                &eevdf.steps,
                entry,
                eevdf.turn(task),
                to,
                own.is_some(),
                own.unwrap_or(0),
                fair,
            )
        }
    }

    /// Every line's sums are those of its entities: the lags of a line add up to nothing.
    pub(super) fn check_lines(&self) {
        let Some(eevdf) = self.eevdf.as_deref() else {
            return;
        };
        for group in 0..self.memory.side() {
            for cpu in 0..self.cpus.len() as u32 {
                // SAFETY: in bounds; nothing is borrowed.
                let line = unsafe { &(*eevdf.node(group, cpu)).line };
                let (mut n, mut sum_w, mut sum_wv, mut lags) = (0, 0u64, 0i128, 0i128);
                let mut next = line.first;
                while !next.is_null() {
                    // SAFETY: what is linked in a line is alive.
                    let entity = unsafe { &*next };
                    n += 1;
                    sum_w += entity.weight;
                    let ahead = entity.v.wrapping_sub(line.v0) as i64;
                    sum_wv += i128::from(ahead) * i128::from(entity.weight);
                    // SAFETY: as above.
                    lags += i128::from(unsafe { pl::pl_entity_lag(line, next) });
                    next = entity.next;
                }
                let at = || format!("group {group}, CPU {cpu}, at {} ns", self.now_ns);
                assert_eq!(line.n, n, "entities of {}", at());
                assert_eq!(line.sum_w, sum_w, "weights of {}", at());
                assert_eq!(i128::from(line.sum_wv), sum_wv, "moments of {}", at());
                assert!(
                    lags.unsigned_abs() <= u128::from(sum_w),
                    "lags of {}: {lags}",
                    at()
                );
            }
        }
    }
}
