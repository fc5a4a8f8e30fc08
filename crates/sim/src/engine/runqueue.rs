// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A CPU's waiting tasks in order of their class's key: u of policy/domain.h, vruntime of policy/baseline/cfs.h, or what another
//! class puts there.
//!
//! Most queues hold a few tasks and nearly all insertions are near the head, so a sorted array, head last, is faster
//! than a tree; a thousand entries still move within a microsecond.

#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    key: u64,
    order: u32,
    pub task: u32,
}

impl Waiting {
    /// Clocks may wrap, so the difference decides.
    #[inline]
    fn before(&self, key: u64, order: u32) -> bool {
        match self.key.wrapping_sub(key) as i64 {
            0 => (self.order.wrapping_sub(order) as i32) < 0,
            difference => difference < 0,
        }
    }
}

#[derive(Default)]
pub(super) struct RunQueue {
    /// Last is next to run.
    waiting: Vec<Waiting>,
    order: u32,
}

impl RunQueue {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Behind all of the same key. Returns what `remove` wants back.
    pub fn insert(&mut self, task: u32, key: u64) -> u32 {
        self.order = self.order.wrapping_add(1);
        let order = self.order;
        // From the head: a woken or preempted task usually goes among the first.
        let mut at = self.waiting.len();
        if at > 16 {
            at = self.waiting.partition_point(|w| !w.before(key, order));
        } else {
            while at > 0 && self.waiting[at - 1].before(key, order) {
                at -= 1;
            }
        }
        self.waiting.insert(at, Waiting { key, order, task });
        order
    }

    #[inline]
    pub fn head_key(&self) -> Option<u64> {
        self.waiting.last().map(|w| w.key)
    }

    #[inline]
    pub fn first(&self) -> Option<u32> {
        self.waiting.last().map(|w| w.task)
    }

    #[inline]
    pub fn pop(&mut self) -> Option<u32> {
        self.waiting.pop().map(|w| w.task)
    }

    /// Puts the one that was popped last back to where it was.
    pub fn put_back(&mut self, task: u32, key: u64, order: u32) {
        self.waiting.push(Waiting { key, order, task });
    }

    /// Takes out a task that was inserted with this key and got this order number.
    pub fn remove(&mut self, task: u32, key: u64, order: u32) {
        let at = self
            .waiting
            .partition_point(|w| !w.before(key, order))
            .wrapping_sub(1);
        // The one at `at` is the last that is not before (key, order): the task itself.
        assert!(
            self.waiting.get(at).is_some_and(|w| w.task == task),
            "task {task} is not where it was queued"
        );
        self.waiting.remove(at);
    }

    /// In order of next to run.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.waiting.iter().rev().map(|w| w.task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_keys_run_in_order_of_arrival_and_removal_finds_its_task() {
        let mut queue = RunQueue::default();
        let orders: Vec<u32> = (0..40u32)
            .map(|i| queue.insert(i, u64::from(i % 4).wrapping_sub(2)))
            .collect();
        queue.remove(6, 0, orders[6]);
        let mut last = None;
        while let Some(task) = queue.pop() {
            assert_ne!(task, 6);
            let key = (u64::from(task % 4).wrapping_sub(2) as i64, task);
            assert!(last < Some(key));
            last = Some(key);
        }
    }
}
