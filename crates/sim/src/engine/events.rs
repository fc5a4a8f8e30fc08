// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What happens next: one slot per CPU in a tournament tree, everything else in a heap of timers.
//!
//! A CPU's own next event (end of work, tick, interrupt, end of a slice) changes with nearly every event, so it is
//! not queued and cancelled but overwritten: a path of log2(CPUs) comparisons. At one time timers come first, in the
//! order they were set, then CPUs in the order of their numbers: a total order, so runs are reproducible.

pub(super) const NEVER: u64 = u64::MAX;

/// Bits of a slot's key that hold the CPU's number. Times fit into the rest: runs are shorter than 2^52 ns.
const CPU_BITS: u32 = 12;

/// The earliest of n times, each overwritten at will.
pub(super) struct Slots {
    /// Keys are time << CPU_BITS | cpu, so that the earliest also names its CPU. keys[leaves..] are the CPUs',
    /// keys[i] = min of its two children; keys[1] is the earliest.
    keys: Box<[u64]>,
    leaves: usize,
}

impl Slots {
    pub fn new(n: usize) -> Self {
        assert!(n <= 1 << CPU_BITS, "CPU numbers have {CPU_BITS} bits");
        let leaves = n.next_power_of_two().max(2);
        Self {
            keys: vec![NEVER; 2 * leaves].into_boxed_slice(),
            leaves,
        }
    }

    #[inline]
    pub fn set(&mut self, cpu: u32, time_ns: u64) {
        let key = if time_ns >> (64 - CPU_BITS) == 0 {
            time_ns << CPU_BITS | u64::from(cpu)
        } else {
            NEVER
        };
        let mut i = self.leaves + cpu as usize;
        if self.keys[i] == key {
            return;
        }
        self.keys[i] = key;
        let mut earliest = key;
        while i > 1 {
            earliest = earliest.min(self.keys[i ^ 1]);
            i >>= 1;
            if self.keys[i] == earliest {
                return;
            }
            self.keys[i] = earliest;
        }
    }

    /// Earliest time, and the lowest-numbered CPU that has it.
    #[inline]
    pub fn earliest(&self) -> (u64, u32) {
        let key = self.keys[1];
        if key == NEVER {
            return (NEVER, 0);
        }
        (key >> CPU_BITS, (key & ((1 << CPU_BITS) - 1)) as u32)
    }
}

/// A sequence number's upper bits hold the timer's rank, which is below 2^13; 2^51 timers are more than any run sets.
const RANK_SHIFT: u32 = 51;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// A sleeper's, valid while the task's `timer` is this sequence number.
    Sleep {
        task: u32,
    },
    /// A task comes into being.
    Start {
        task: u32,
    },
    /// An external task's step is complete.
    External {
        task: u32,
    },
    /// A waker turns to the next task that it wakes.
    Wake {
        task: u32,
        waker: u32,
        sync: bool,
    },
    /// A woken task is in the queue of the CPU that was found for it.
    Woken {
        task: u32,
        cpu: u32,
        waker: u32,
    },
    /// Whether a task that was left its waker's CPU still waits for it.
    Offer {
        task: u32,
    },
    /// A task that was woken where others ran has waited for as long as it did when it was recorded.
    Turn {
        task: u32,
        cpu: u32,
        ns: u32,
    },
    Period {
        group: u32,
    },
    Slack {
        group: u32,
    },
    Headroom,
    Change {
        index: u32,
    },
    WarmUp,
    End,
}

#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub at_ns: u64,
    pub sequence: u64,
    pub timer: Timer,
}

impl Entry {
    #[inline]
    fn before(&self, other: &Self) -> bool {
        (self.at_ns, self.sequence) < (other.at_ns, other.sequence)
    }
}

/// A heap with four children per node: half the depth of a binary one, and the four lie side by side.
pub(super) struct Timers {
    heap: Vec<Entry>,
    sequence: u64,
    /// Entries that mean nothing any more.
    cancelled: usize,
}

/// Below this many entries a heap is not worth cleaning.
const CLEAN_MIN: usize = 1024;

impl Timers {
    pub fn new() -> Self {
        Self {
            heap: Vec::new(),
            sequence: 0,
            cancelled: 0,
        }
    }

    #[inline]
    pub fn next_ns(&self) -> u64 {
        self.heap.first().map_or(NEVER, |entry| entry.at_ns)
    }

    /// Returns the entry's sequence number, unique in the run and above 0.
    pub fn push(&mut self, at_ns: u64, timer: Timer) -> u64 {
        self.push_ranked(at_ns, 0, timer)
    }

    /// Likewise; of timers due at one time, those of a lower rank come first.
    pub fn push_ranked(&mut self, at_ns: u64, rank: u32, timer: Timer) -> u64 {
        self.sequence += 1;
        let sequence = u64::from(rank) << RANK_SHIFT | self.sequence;
        let entry = Entry {
            at_ns,
            sequence,
            timer,
        };
        let mut i = self.heap.len();
        self.heap.push(entry);
        while i > 0 {
            let parent = (i - 1) / 4;
            if !entry.before(&self.heap[parent]) {
                break;
            }
            self.heap[i] = self.heap[parent];
            i = parent;
        }
        self.heap[i] = entry;
        sequence
    }

    /// An entry means nothing any more, as the engine finds where it handles the entry. Returns whether most entries are such, and
    /// [`Timers::clean`] is due.
    #[inline]
    pub fn cancel(&mut self) -> bool {
        self.cancelled += 1;
        self.cancelled > CLEAN_MIN && self.cancelled > self.heap.len() / 2
    }

    /// A cancelled entry was handled after all.
    #[inline]
    pub fn passed(&mut self) {
        self.cancelled -= 1;
    }

    /// Drops the entries that mean nothing. Order is that of time and number, whatever the heap's shape.
    pub fn clean(&mut self, live: impl Fn(&Entry) -> bool) {
        self.heap.retain(live);
        // Ascending order is a heap.
        self.heap
            .sort_unstable_by_key(|entry| (entry.at_ns, entry.sequence));
        self.cancelled = 0;
    }

    pub fn pop(&mut self) -> Option<Entry> {
        let first = *self.heap.first()?;
        let last = self.heap.pop()?;
        let n = self.heap.len();
        if n == 0 {
            return Some(first);
        }
        let mut i = 0;
        loop {
            let child = 4 * i + 1;
            if child >= n {
                break;
            }
            let mut least = child;
            for other in child + 1..(child + 4).min(n) {
                if self.heap[other].before(&self.heap[least]) {
                    least = other;
                }
            }
            if !self.heap[least].before(&last) {
                break;
            }
            self.heap[i] = self.heap[least];
            i = least;
        }
        self.heap[i] = last;
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_come_in_order_of_time_then_of_setting() {
        let mut timers = Timers::new();
        let mut x = 1u64;
        for i in 0..1000 {
            x = x
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            timers.push(x >> 60, Timer::Period { group: i });
        }
        let mut last = (0, 0);
        while let Some(entry) = timers.pop() {
            assert!((entry.at_ns, entry.sequence) > last);
            last = (entry.at_ns, entry.sequence);
        }
    }

    #[test]
    fn cancelled_timers_leave_the_heap_and_the_others_keep_their_order() {
        let mut timers = Timers::new();
        let mut kept = Vec::new();
        for i in 0..100_000u64 {
            let sequence = timers.push(1_000_000 - i / 3, Timer::Sleep { task: i as u32 });
            if i % 100 == 0 {
                kept.push((1_000_000 - i / 3, sequence));
            } else if timers.cancel() {
                timers.clean(|entry| matches!(entry.timer, Timer::Sleep { task } if task % 100 == 0));
            }
            assert!(timers.heap.len() < 2 * (CLEAN_MIN + kept.len() + 1));
        }
        kept.sort_unstable();
        let rest = std::iter::from_fn(|| timers.pop());
        let live = rest.filter(|entry| matches!(entry.timer, Timer::Sleep { task } if task % 100 == 0));
        assert!(live.map(|entry| (entry.at_ns, entry.sequence)).eq(kept));
    }

    #[test]
    fn slots_give_the_lowest_cpu_of_the_earliest_time() {
        let mut slots = Slots::new(5);
        slots.set(4, 10);
        slots.set(2, 10);
        slots.set(3, 11);
        assert_eq!(slots.earliest(), (10, 2));
        slots.set(2, NEVER);
        assert_eq!(slots.earliest(), (10, 4));
        slots.set(4, 12);
        assert_eq!(slots.earliest(), (11, 3));
    }
}
