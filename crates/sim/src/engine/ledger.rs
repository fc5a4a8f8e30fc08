// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Books kept only where invariants are checked: what every limited group was given, has used and still holds.
//!
//! ```text
//! given = used + pool + sum of balances                                        nothing is lost
//! used in any stretch of periods <= cap + positive balances at its start
//!                                   + what its periods earned + debts at its end        burst's inequality
//! a debt <= time until running on is noticed;  a balance with nothing runnable <= 1 ms
//! ```
//!
//! "Noticed" is derived, not measured: where ticks enforce limits, a task runs on for at most one tick; where a timer
//! does, for as long as that takes. `NOTICE_NS` is added for the interrupts, transfers and switches in between.
use super::policy as pl;
use super::state::State;
use super::Engine;
use crate::class::Class;
use crate::config::Enforce;

/// The largest sum of costs between a moment that matters and the scheduler's acting on it, in any machine that is
/// fuzzed.
const NOTICE_NS: u64 = 300_000;
/// Kept by a balance whose last task left: PL_BW_KEPT_NS.
const KEPT_NS: i64 = 1_000_000;
const NEVER: u64 = u64::MAX;
const NOT_PLACED: (u64, u64) = (u64::MAX, 0);

#[derive(Clone, Copy, Default)]
struct Book {
    open: bool,
    used_ns: u64,
    /// used + pool + balances when last looked at.
    total_ns: i128,
    /// The pool, then.
    runtime_ns: i128,
    /// What balances held, then: all of it may come back in one event, in which several CPUs' last tasks leave.
    held_ns: i128,
    generation: u64,
    next_ns: u64,
    /// Earned by periods since the limits were set.
    earned_ns: i128,
    /// min over refills j of (used + cap + positive balances - earned) at j.
    least_ns: i128,
}

pub(super) struct Ledger {
    books: Vec<Book>,
    /// Per task: since when it waits although it may run; and since when an idle CPU might have taken it.
    queued_ns: Vec<u64>,
    passed_over_ns: Vec<u64>,
    /// Per task: the least sum of weights at which it was placed for its wait (u64::MAX: not placed), and the largest
    /// sum of its queue since.
    weights: Vec<(u64, u64)>,
}

impl Ledger {
    pub fn new(nr_groups: usize) -> Self {
        Self {
            books: vec![Book::default(); nr_groups],
            queued_ns: Vec::new(),
            passed_over_ns: Vec::new(),
            weights: Vec::new(),
        }
    }
}

impl<C: Class> Engine<'_, C> {
    fn pool_now(&self, group: u32) -> pl::Pool {
        self.memory.pool(group)
    }

    fn remaining(&self, group: u32, cpu: u32) -> i64 {
        self.memory.balance(group, cpu).remaining_ns
    }

    /// Sum over the group's balances of a part of each.
    fn sum(&self, group: u32, part: impl Fn(i64) -> i64) -> i128 {
        let cpus = 0..self.cpus.len() as u32;
        cpus.map(|cpu| i128::from(part(self.remaining(group, cpu)))).sum()
    }

    fn total(&self, group: u32, used_ns: u64) -> i128 {
        let balances = self.sum(group, |ns| ns);
        i128::from(used_ns) + i128::from(self.pool_now(group).runtime_ns) + balances
    }

    fn cap(&self, group: u32) -> i128 {
        let pool = self.pool_now(group);
        let bandwidth = &self.policy.core.bandwidth;
        if bandwidth.burst_off != 0 || bandwidth.expire != 0 {
            i128::from(pool.quota_ns)
        } else {
            i128::from(pool.buffer_ns)
        }
    }

    /// A task was placed in a CPU's queue, and its wait bounded at the weights that the policy saw there.
    #[cold]
    pub(super) fn book_place(&mut self, task: u32, cpu: u32) {
        let weight = self.tasks[task as usize].policy.effective;
        let sum = self.cpus[cpu as usize].fair.weight_sum.max(weight);
        let n = self.tasks.len();
        if let Some(ledger) = self.ledger.as_deref_mut() {
            ledger.weights.resize(n, NOT_PLACED);
            let (first, _) = &mut ledger.weights[task as usize];
            *first = sum.min(*first);
        }
    }

    /// A task of `group` ran: every limited level has used it.
    #[cold]
    pub(super) fn book_use(&mut self, group: u32, ns: u64) {
        let Some(mut ledger) = self.ledger.take() else {
            return;
        };
        let mut level = Some(group);
        while let Some(number) = level {
            if self.memory.pl_bw_limited(number) {
                ledger.books[number as usize].used_ns += ns;
            }
            level = self.memory.parent(number);
        }
        self.ledger = Some(ledger);
    }

    /// Limits were set: the books begin anew.
    pub(super) fn book_limits(&mut self, group: u32) {
        let Some(mut ledger) = self.ledger.take() else {
            return;
        };
        let pool = self.pool_now(group);
        ledger.books[group as usize] = Book {
            open: pool.quota_ns != pl::UNLIMITED,
            generation: pool.generation,
            next_ns: pool.next_ns,
            least_ns: self.cap(group),
            total_ns: self.total(group, 0),
            ..Book::default()
        };
        self.ledger = Some(ledger);
    }

    /// A period ended and its pool was refilled, from `before` on: by the reference's rule?
    pub(super) fn book_refill(&mut self, group: u32, before: &pl::Pool) {
        let Some(mut ledger) = self.ledger.take() else {
            return;
        };
        let after = self.pool_now(group);
        let book = &mut ledger.books[group as usize];
        if book.open && group != self.memory.side() {
            let expire = self.policy.core.bandwidth.expire != 0;
            let mainline = self.policy.core.bandwidth.mainline != 0;
            let elapsed = (after.next_ns - before.next_ns) / before.period_ns;
            let earned = i128::from(before.quota_ns) * if mainline { 1 } else { i128::from(elapsed) };
            let cap = self.cap(group);
            let expected = if expire {
                i128::from(before.quota_ns)
            } else {
                cap.min(i128::from(before.runtime_ns) + earned)
            };
            let path = &self.paths[group as usize];
            assert_eq!(
                i128::from(after.runtime_ns),
                expected,
                "group {path}: pool after the refill at {} ns",
                self.now_ns
            );
            let used = i128::from(book.used_ns);
            let debts = self.sum(group, |ns| (-ns).max(0));
            assert!(
                expire || used - book.earned_ns - debts <= book.least_ns,
                "group {path}: burst's inequality does not hold at {} ns",
                self.now_ns
            );
            book.earned_ns += earned;
            let start = used + cap + self.sum(group, |ns| ns.max(0)) - book.earned_ns;
            book.least_ns = book.least_ns.min(start);
            book.total_ns = self.total(group, book.used_ns);
            (book.generation, book.next_ns) = (after.generation, after.next_ns);
        }
        self.ledger = Some(ledger);
    }

    pub(super) fn check_books(&mut self) {
        let Some(mut ledger) = self.ledger.take() else {
            return;
        };
        for group in 0..self.memory.side() {
            let book = &mut ledger.books[group as usize];
            if book.open {
                self.check_book(group, book);
            }
        }
        self.check_waiting(&mut ledger);
        self.ledger = Some(ledger);
    }

    fn check_book(&self, group: u32, book: &mut Book) {
        let pool = self.pool_now(group);
        let path = &self.paths[group as usize];
        let bandwidth = &self.policy.core.bandwidth;
        let total = self.total(group, book.used_ns);
        let added = total - book.total_ns;
        if bandwidth.expire == 0 {
            let periods = i128::from((pool.next_ns - book.next_ns) / pool.period_ns);
            // A refill as the timer starts again cuts the pool to its cap: what had come back on top of it, in this very
            // event, too, is gone, as it would be at any period's end.
            let (least, most) = if pool.generation == book.generation {
                (0, 0)
            } else {
                let above_cap = book.runtime_ns + book.held_ns - self.cap(group);
                (-above_cap.max(0), i128::from(pool.quota_ns) * periods.max(1))
            };
            assert!(
                (least..=most).contains(&added),
                "group {path}: {added} ns of run time came from nowhere or were lost at {} ns",
                self.now_ns
            );
        }
        if pool.generation != book.generation {
            // What was earned while the timer was stopped is paid out as it starts again.
            book.earned_ns += added;
        }
        (book.total_ns, book.generation, book.next_ns) = (total, pool.generation, pool.next_ns);
        book.runtime_ns = i128::from(pool.runtime_ns);
        book.held_ns = self.sum(group, |ns| ns.max(0));
        let overrun_ns = match self.policy.enforce {
            Enforce::Tick => self.tick_len_ns + NOTICE_NS,
            Enforce::Timer => self.costs.limit_late_ns + NOTICE_NS,
        };
        for cpu in 0..self.cpus.len() as u32 {
            let ns = self.remaining(group, cpu);
            let runnable = self.memory.queue(group, cpu).nr_runnable > 0;
            let most = if runnable {
                (bandwidth.slice_ns as i64).max(KEPT_NS)
            } else {
                KEPT_NS
            };
            assert!(
                (-(overrun_ns as i64)..=most).contains(&ns),
                "group {path}, CPU {cpu}: a balance of {ns} ns at {} ns ({:?}, tick {} ns)",
                self.now_ns,
                self.policy.enforce,
                self.tick_len_ns
            );
        }
    }

    /// No task waits without bound, and none is passed over by idle CPUs.
    fn check_waiting(&self, ledger: &mut Ledger) {
        let n = self.tasks.len();
        ledger.queued_ns.resize(n, NEVER);
        ledger.passed_over_ns.resize(n, NEVER);
        ledger.weights.resize(n, NOT_PLACED);
        let fair = &self.policy.core.fair;
        let turns = n as u64 + 2;
        let turns_ns = turns * (fair.slice_ns.max(fair.latency_ns) + self.tick_len_ns);
        let noticing_ns = turns * self.tick_len_ns + NOTICE_NS;
        for task in 0..n {
            let entry = &self.tasks[task];
            let cpu = entry.policy.cpu;
            let waits = entry.state == State::Queued && self.throttled_by(entry.group, cpu).is_none();
            if !waits {
                ledger.queued_ns[task] = NEVER;
                ledger.passed_over_ns[task] = NEVER;
                // One whose group is throttled while it is queued stays where it was placed.
                let (first, most) = &mut ledger.weights[task];
                *most = 0;
                if entry.state != State::Queued {
                    *first = u64::MAX;
                }
                continue;
            }
            // policy/baseline/cfs.h bounds a wait by wait_max at the weights of the time when the task is placed, and by what others
            // are paid back meanwhile, lag_max of the queue's time; weight that comes later, be it in the same event,
            // slows the queue's clock in proportion.
            let since_ns = &mut ledger.queued_ns[task];
            *since_ns = (*since_ns).min(self.now_ns);
            let (first, most) = &mut ledger.weights[task];
            *most = (*most).max(self.cpus[cpu as usize].fair.weight_sum);
            let longest_ns =
                (2 * fair.wait_max_ns + fair.lag_max_ns + turns_ns).saturating_mul((*most).div_ceil(*first));
            assert!(
                !self.class.needs().bounds_waits || self.now_ns - *since_ns <= longest_ns,
                "task {task} has waited since {since_ns} ns, until {} ns: at {} of clock {}, weight {} of {}",
                self.now_ns,
                entry.policy.vruntime,
                self.cpus[cpu as usize].fair.clock,
                entry.policy.effective,
                self.cpus[cpu as usize].fair.weight_sum
            );
            // One where the group is throttled could only park the task.
            let takes = |other: u32| {
                self.cpus[other as usize].idle
                    && self.allowed(task as u32, other)
                    && self.throttled_by(entry.group, other).is_none()
            };
            let near = &self.topo.llcs[self.topo.llc(cpu) as usize];
            let idle = near.iter().any(|&other| takes(other));
            let since_ns = &mut ledger.passed_over_ns[task];
            *since_ns = if idle { (*since_ns).min(self.now_ns) } else { NEVER };
            assert!(
                !idle || !self.policy.periodic || self.now_ns - *since_ns <= noticing_ns,
                "task {task} waits since {since_ns} ns beside an idle CPU, until {} ns",
                self.now_ns
            );
        }
    }
}
