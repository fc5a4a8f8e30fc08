// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Invariants, checked at every event where `check` asks for it. A broken one panics: it is a mistake in code.
use super::policy as pl;
use super::state::{State, NONE};
use super::topo::test_bit;
use super::Engine;
use crate::class::Class;

/// What a check counts in; kept, because it counts thousands of times in a second of a debug build.
#[derive(Default)]
pub(super) struct Counts {
    /// Of each CPU.
    queued: Vec<u32>,
    weights: Vec<u64>,
    /// Of each group on each CPU.
    runnable: Vec<u32>,
}

fn zeros<T: Clone + Default>(of: &mut Vec<T>, count: usize) {
    if of.len() != count {
        of.resize(count, T::default());
    }
    of.fill(T::default());
}

impl<C: Class> Engine<'_, C> {
    pub(super) fn check_invariants(&mut self) {
        let mut counts = std::mem::take(&mut self.check_counts);
        self.check_cpus(&mut counts);
        for group in 0..self.memory.nr_groups as u32 {
            self.check_pool(group);
        }
        self.check_runnable(&mut counts.runnable);
        self.class.check(self.now_ns);
        self.check_counts = counts;
    }

    /// Each CPU's queue has what its tasks say, and each group's load is what its CPUs published.
    fn check_cpus(&self, Counts { queued, weights, .. }: &mut Counts) {
        let n = self.cpus.len();
        zeros(queued, n);
        zeros(weights, n);
        for (number, task) in self.tasks.iter().enumerate() {
            let cpu = task.policy.cpu as usize;
            match task.state {
                State::Running => assert_eq!(
                    self.cpus[cpu].running, number as u32,
                    "task {number} thinks it runs"
                ),
                State::Parked => assert!(
                    self.parked_rightly(number as u32),
                    "task {number} is parked for nothing at {} ns",
                    self.now_ns
                ),
                _ => {}
            }
            let counts = matches!(task.state, State::Running | State::Queued);
            assert_eq!(
                counts,
                task.policy.counted != 0,
                "task {number} is {:?}",
                task.state
            );
            if counts {
                queued[cpu] += 1;
                weights[cpu] += task.policy.effective;
                assert!(
                    self.cpus[cpu].online,
                    "task {number} is on CPU {cpu}, which is off"
                );
                assert!(
                    self.allowed(number as u32, cpu as u32),
                    "task {number} is on CPU {cpu}, which it may not use"
                );
            }
        }
        for group in 0..self.memory.nr_groups as u32 {
            let published = self.memory.load_avg(group);
            let books: i64 = self.memory.contributions(group).sum();
            assert_eq!(
                published, books,
                "group {group}: its load is not what its CPUs published or handed on, at {} ns",
                self.now_ns
            );
        }
        for (cpu, state) in self.cpus.iter().enumerate() {
            assert_eq!(state.fair.nr_queued, queued[cpu], "CPU {cpu}: tasks queued");
            assert_eq!(state.fair.weight_sum, weights[cpu], "CPU {cpu}: sum of weights");
            let running = usize::from(state.running != NONE);
            assert_eq!(
                state.queue.len() + running,
                queued[cpu] as usize,
                "CPU {cpu}: queue and count differ"
            );
            assert!(
                !state.idle || queued[cpu] == 0,
                "CPU {cpu} idles at {} ns with {} tasks",
                self.now_ns,
                queued[cpu]
            );
            assert!(state.idle != (state.running != NONE), "CPU {cpu} is in between");
            let llc = &self.llcs[self.topo.llc(cpu as u32) as usize];
            let overloaded = test_bit(&llc.overloaded, self.topo.in_llc[cpu]);
            assert_eq!(overloaded, queued[cpu] >= 2, "CPU {cpu}: overloaded or not");
        }
    }

    /// Every level's count of what is runnable on a CPU: its own tasks, and child groups that have any.
    fn check_runnable(&self, counts: &mut Vec<u32>) {
        let n = self.cpus.len();
        zeros(counts, self.memory.side() as usize * n);
        for task in &self.tasks {
            if matches!(task.state, State::Running | State::Queued | State::Parked) {
                counts[task.group as usize * n + task.policy.cpu as usize] += 1;
            }
        }
        // Parents have lower numbers: from the last group on, children are complete before their parent is.
        for group in (0..self.memory.side()).rev() {
            let parent = self.memory.parent(group);
            for (cpu, kept) in self.memory.runnable(group).enumerate() {
                let count = counts[group as usize * n + cpu];
                assert_eq!(
                    kept, count,
                    "group {}, CPU {cpu}: runnable at {} ns",
                    self.paths[group as usize], self.now_ns
                );
                if let (Some(parent), 1..) = (parent, count) {
                    counts[parent as usize * n + cpu] += 1;
                }
            }
        }
    }

    fn parked_rightly(&self, task: u32) -> bool {
        let entry = &self.tasks[task as usize];
        self.memory.is_throttled(entry.parked_by, entry.policy.cpu)
    }

    fn check_pool(&self, group: u32) {
        let pool = self.memory.pool(group);
        if pool.generation == 0 {
            return;
        }
        let path = self.paths.get(group as usize).map_or("side", |p| p.as_str());
        assert!(
            pool.runtime_ns >= 0,
            "group {path}: pool is {} ns",
            pool.runtime_ns
        );
        let throttled = self.memory.nr_throttled(group);
        let in_ring = pool.tail.wrapping_sub(pool.head);
        assert_eq!(
            throttled as u32, in_ring,
            "group {path}: throttled balances and those in the ring differ at {} ns",
            self.now_ns
        );
        assert!(
            in_ring == 0 || pool.quota_ns == pl::UNLIMITED || pool.timer_active != 0,
            "group {path}: throttled, and no period timer will end it"
        );
    }
}
