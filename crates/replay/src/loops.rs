// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which work is open loop: set off by an arrival that keeps its own time, however many threads hand it on.
//!
//! A burst that begins at a time of the recording is open if that time is kept ([`crate::Pacing::Open`]): a schedule,
//! packets of clients that do not wait. One that begins a while after the work before is closed. What is woken or forked
//! by another thread is what its waker is, what an answer from others sets off is what its question is, and what goes on after a wait
//! for storage is what it was before.
//!
//! A closed loop is such a chain without an end: the answer wakes the client, which asks again. Whatever once started it
//! must not count for ever, so a chain is followed through [`HOPS_MAX`] wake-ups only.
use crate::groups::{is_below, Group};
use crate::outside::Woken;
use crate::program::{Burst, Thread};
use crate::recording::{is_stuck, HOPS_MAX};
use plimsoll_trace::{Cause, Timeline};

/// Marks the bursts that arrivals set off. Those that are arrivals themselves have been marked.
pub(crate) fn hand_on(timeline: &Timeline, firsts: &[u32], woken: &Woken, bursts: &mut [Burst]) {
    let open: Vec<bool> = (0..bursts.len())
        .map(|burst| is_open(timeline, firsts, woken, bursts, burst))
        .collect();
    for (burst, open) in bursts.iter_mut().zip(open) {
        burst.open = open;
    }
}

fn is_open(timeline: &Timeline, firsts: &[u32], woken: &Woken, arrivals: &[Burst], burst: usize) -> bool {
    let mut at = burst;
    for _ in 0..HOPS_MAX {
        match before(timeline, firsts, woken, arrivals, at) {
            Some(earlier) if !arrivals[at].open => at = earlier,
            _ => break,
        }
    }
    arrivals[at].open
}

/// The burst that this one is a part of, as that woke it or asked for what it was woken by, or as it waited for storage; `None`: none.
fn before(timeline: &Timeline, firsts: &[u32], woken: &Woken, bursts: &[Burst], at: usize) -> Option<usize> {
    let thread = bursts[at].thread as usize;
    let own = at - firsts[thread] as usize;
    let known = &timeline.threads[thread].bursts;
    // Looked at first: the waker only brings what the storage has.
    if own > 0 && is_stuck(known[own - 1].end) {
        return Some(at - 1);
    }
    if let Some(answer) = woken.get(&(thread as u32, own as u32)) {
        return Some((firsts[answer.asked.thread as usize] + answer.asked.burst) as usize);
    }
    match known[own].cause {
        Cause::Thread { thread, burst, .. } | Cause::Fork { thread, burst, .. } => {
            Some((firsts[thread as usize] + burst) as usize)
        }
        _ => None,
    }
}

/// CPU time of open bursts in a group and below, as recorded.
pub(crate) fn open_work_ns(
    timeline: &Timeline,
    threads: &[Thread],
    groups: &[Group],
    bursts: &[Burst],
    target: u32,
) -> u64 {
    let mut sum = 0;
    for (thread, known) in threads.iter().zip(&timeline.threads) {
        if !is_below(groups, thread.group, target) {
            continue;
        }
        let own = &bursts[thread.bursts.start as usize..thread.bursts.end as usize];
        let open = own.iter().zip(&known.bursts).filter(|(burst, _)| burst.open);
        sum += open.map(|(_, known)| known.work_ns.max(0) as u64).sum::<u64>();
    }
    sum
}
