// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tasks take turns as policy/steps.h says: its steps called, its memory owned.
use super::super::memory::ZeroedArray;
use crate::class::{Entry, Seen, Shape};
use crate::config::TaskId;
use plimsoll_policy_sys as pl;

/// Turns stay where they are: lines link them.
const CHUNK: usize = 256;

pub(super) struct Eevdf {
    steps: pl::Steps,
    root: *const pl::Group,
    nr_groups: u32,
    _nodes: ZeroedArray<pl::Node>,
    domains: Vec<pl::Domain>,
    domain_of: Vec<u32>,
    turns: Vec<ZeroedArray<pl::Turn>>,
    /// Every event is checked, with what is next.
    checked: bool,
    /// Of each task, with what lag it left its line: a second book.
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

// SAFETY of all calls below: a task's memory, its group's and that of its lines are the engine's, which is alive, and not
// borrowed meanwhile; a turn is in bounds as its task was born.
impl Eevdf {
    pub fn new(shape: &Shape) -> Self {
        let nr_cpus = shape.nr_cpus as usize;
        let nodes = ZeroedArray::new(shape.nr_groups as usize * nr_cpus);
        let mut steps: pl::Steps = pl::zeroed();
        steps.nodes = nodes.at(0);
        steps.nr_cpus = nr_cpus as u64;
        Self {
            steps,
            root: shape.root,
            // The last one has no line.
            nr_groups: shape.nr_groups - 1,
            _nodes: nodes,
            domains: vec![pl::zeroed(); nr_cpus],
            domain_of: vec![0; nr_cpus],
            turns: Vec::new(),
            checked: shape.check,
            left: Vec::new(),
        }
    }

    fn turn(&self, task: u32) -> *mut pl::Turn {
        self.turns[task as usize / CHUNK].at(task as usize % CHUNK)
    }

    pub fn born(&mut self, task: u32) {
        while self.turns.len() * CHUNK <= task as usize {
            self.turns.push(ZeroedArray::new(CHUNK));
        }
        // SAFETY: in bounds; the task that had this number is in no line.
        unsafe { *self.turn(task) = pl::zeroed() };
        if let Some(left) = self.left.get_mut(task as usize) {
            *left = None;
        }
    }

    fn node(&self, group: u32, cpu: u32) -> *mut pl::Node {
        self._nodes
            .at(group as usize * self.domain_of.len() + cpu as usize)
    }

    /// CPUs that tasks can move between have one clock.
    pub fn set_domains(&mut self, domain_of: &[u32], counted: &[(TaskId, u32)]) {
        let weights: Vec<u64> = counted
            .iter()
            // SAFETY: as above.
            .map(|&(task, _)| std::mem::take(unsafe { &mut (*self.turn(task.0)).domain_w }))
            .collect();
        // A part that came off goes on from where the whole was.
        let means: Vec<u64> = self.domains.iter().map(|domain| domain.u0).collect();
        let before = std::mem::replace(&mut self.domain_of, domain_of.to_vec());
        for &domain in domain_of {
            let mut new: pl::Domain = pl::zeroed();
            new.u0 = means[before[domain as usize] as usize];
            self.domains[domain as usize] = new;
        }
        for (&(task, cpu), weight) in counted.iter().zip(weights) {
            let turn = self.turn(task.0);
            let domain = &mut self.domains[domain_of[cpu as usize] as usize];
            // SAFETY: as above.
            unsafe {
                let turn = &mut *turn;
                turn.domain_w = weight;
                if weight > 0 {
                    pl::pl_domain_count(domain, turn.u, weight, true);
                }
            }
        }
        self.steps.domains = self.domains.as_mut_ptr();
        self.steps.domain_of = self.domain_of.as_mut_ptr();
    }

    /// A task was counted on its CPU.
    pub fn join(&mut self, entry: &mut Entry, pinned: bool) {
        let (task, turn) = (entry.task.0, self.turn(entry.task.0));
        let before = self.checked.then(|| self.expected(task, entry.policy));
        // SAFETY: as above.
        unsafe {
            (*turn).pinned = u32::from(pinned);
            pl::pl_steps_enter(&self.steps, entry.policy, turn, u64::from(task), entry.config);
        }
        if let Some(Some(expected)) = before {
            self.check_kept(task, entry.policy, expected, entry.now_ns);
        }
    }

    /// A task will be counted on its CPU no more.
    pub fn leave(&mut self, entry: &mut Entry, sleeps: bool) {
        let task = entry.task.0;
        let lag = self.checked.then(|| self.lag(task, entry.policy));
        // SAFETY: as above.
        unsafe { pl::pl_steps_leave(&self.steps, entry.policy, self.turn(task), sleeps) };
        if let Some(lag) = lag {
            self.book_left(task, entry.policy, lag);
        }
    }

    pub fn ran(&mut self, entry: &mut Entry, ran_ns: u64) {
        let turn = self.turn(entry.task.0);
        // SAFETY: as above.
        unsafe { pl::pl_steps_ran(&self.steps, entry.policy, turn, ran_ns, entry.config) };
    }

    /// Who is furthest behind is looked at first by others.
    pub fn key(&self, task: u32) -> u64 {
        // SAFETY: as above.
        unsafe { (*self.turn(task)).u }
    }

    /// Weighs the groups of a running task anew.
    pub fn weigh(&mut self, entry: &mut Entry) {
        let lags = self.checked.then(|| self.group_lags(entry.policy));
        // SAFETY: as above.
        unsafe { pl::pl_steps_tick(&self.steps, entry.policy) };
        let Some(lags) = lags else { return };
        for (before, after) in lags.iter().zip(self.group_lags(entry.policy)) {
            let off = (before.0 - after.0).abs();
            assert!(
                off <= 2 * (before.1 + after.1),
                "task {}: a group's lag became {} from {} as it was weighed at {} ns",
                entry.task.0,
                after.0,
                before.0,
                entry.now_ns
            );
        }
    }

    /// Likewise. Run time until it may be another's turn.
    pub fn weighed_slice_ns(&mut self, entry: &mut Entry) -> u64 {
        self.weigh(entry);
        let turn = self.turn(entry.task.0);
        // SAFETY: as above.
        unsafe { pl::pl_steps_slice(&self.steps, entry.policy, turn, entry.config) }
    }

    /// Whose turn it is on a CPU where tasks wait and none runs.
    pub fn pick(&self, cpu: u32) -> u32 {
        // SAFETY: as above.
        unsafe { pl::pl_steps_pick(&self.steps, self.root, cpu) as u32 }
    }

    pub fn preempts(&self, woken: &Seen, running: &Seen) -> bool {
        let (a, b) = (self.turn(woken.task.0), self.turn(running.task.0));
        // SAFETY: as above.
        unsafe { pl::pl_steps_preempts(&self.steps, woken.policy, a, running.policy, b) }
    }

    pub fn yields(&mut self, entry: &mut Entry) {
        // SAFETY: as above.
        unsafe { pl::pl_steps_yield(&self.steps, entry.policy, self.turn(entry.task.0)) };
    }

    /// Whether a CPU takes over a task that waits elsewhere, by how far behind that is. `own`: the one of its own that is
    /// furthest behind.
    pub fn pulls(&mut self, entry: &mut Entry, to: u32, own: Option<u64>) -> bool {
        let turn = self.turn(entry.task.0);
        let (has_own, own) = (own.is_some(), own.unwrap_or(0));
        // SAFETY: as above.
        unsafe { pl::pl_steps_pulls(&self.steps, entry.policy, turn, to, has_own, own, entry.config) }
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

    /// Every line's sums are those of its entities: the lags of a line add up to nothing.
    pub fn check(&self, now_ns: u64) {
        for group in 0..self.nr_groups {
            for cpu in 0..self.domain_of.len() as u32 {
                // SAFETY: in bounds; nothing is borrowed.
                let line = unsafe { &(*self.node(group, cpu)).line };
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
                let at = || format!("group {group}, CPU {cpu}, at {now_ns} ns");
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
