// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When the periods of a limit began in the recording.
//!
//! A trace does not say. But what is throttled goes on as a period begins: stretches in which threads of a group want to run
//! and none does end there, at the same place of each period. Near the whole of a quota the queue depends on it: replays of one
//! Go service at 98% of its quota had a p99 between 172 and 245 ms by where the periods lay (docs/src/lab/services.md).
use plimsoll_trace::Timeline;

/// A shorter stretch is one of waiting for a CPU more often than for a period, ns.
const STRETCH_NS_MIN: i64 = 2_000_000;
/// What is throttled goes on within this time after the boundary, ns.
const WITHIN_NS: i64 = 200_000;
/// Fewer stretches say nothing.
const COUNT_MIN: usize = 5;
/// So many times as many as would end there if they ended anywhere.
const CROWD_MIN: f64 = 20.0;

/// Where in a period of so many ns of the trace's clock boundaries lie; `None`: it does not show. `member`: the threads of the
/// limited group and those below.
pub(crate) fn of_periods(timeline: &Timeline, period_ns: u64, member: impl Fn(usize) -> bool) -> Option<u64> {
    let period_ns = period_ns as i64;
    let ends = ends_of_standstills(timeline, member);
    let mut places: Vec<i64> = ends.iter().map(|end_ns| end_ns.rem_euclid(period_ns)).collect();
    places.sort_unstable();
    let count = places.len();
    // Round once more, as a period's end is the next one's beginning.
    places.extend_from_within(..);
    places[count..].iter_mut().for_each(|place| *place += period_ns);
    let (mut to, mut best) = (0, (0, 0));
    for from in 0..count {
        while to < places.len() && to < from + count && places[to] - places[from] <= WITHIN_NS {
            to += 1;
        }
        best = best.max((to - from, usize::MAX - from));
    }
    let (most, from) = (best.0, usize::MAX - best.1);
    let anywhere = count as f64 * WITHIN_NS as f64 / period_ns as f64;
    (most >= COUNT_MIN && most as f64 >= CROWD_MIN * anywhere).then(|| (places[from] % period_ns) as u64)
}

/// When some thread of a group went on, after all that wanted to run stood still.
fn ends_of_standstills(timeline: &Timeline, member: impl Fn(usize) -> bool) -> Vec<i64> {
    // Time, how many more want to run, how many more run.
    let mut changes: Vec<(i64, i32, i32)> = Vec::new();
    for (ix, thread) in timeline.threads.iter().enumerate() {
        if !member(ix) {
            continue;
        }
        for burst in &thread.bursts {
            changes.extend([(burst.woken_ns, 1, 0), (burst.end_ns, -1, 0)]);
        }
        for run in &thread.runs {
            changes.extend([(run.start_ns, 0, 1), (run.end_ns, 0, -1)]);
        }
    }
    changes.sort_unstable();
    let (mut wanting, mut running, mut since_ns) = (0, 0, None);
    let mut ends = Vec::new();
    for (now_ns, more_wanting, more_running) in changes {
        wanting += more_wanting;
        running += more_running;
        if running > 0 {
            match since_ns.take() {
                Some(from_ns) if now_ns - from_ns >= STRETCH_NS_MIN => ends.push(now_ns),
                _ => {}
            }
        } else if wanting == 0 {
            since_ns = None;
        } else if since_ns.is_none() {
            since_ns = Some(now_ns);
        }
    }
    ends
}
