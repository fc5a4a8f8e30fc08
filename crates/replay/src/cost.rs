// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU time per request, stretch by stretch of the recording: what work costs when the machine is fast, and when not.
use crate::groups::{is_below, Group};
use crate::program::{Stretch, Thread, STRETCH_NS};
use crate::requests::Pair;
use plimsoll_trace::Timeline;

/// Stretches from the beginning of the recording; those of `target` and the groups below it.
pub(crate) fn stretches(
    timeline: &Timeline,
    threads: &[Thread],
    groups: &[Group],
    target: u32,
    requests: &[Pair],
) -> Vec<Stretch> {
    let duration_ns = (timeline.end_ns - timeline.start_ns).max(0) as u64;
    let mut found = vec![Stretch::default(); duration_ns.div_ceil(STRETCH_NS) as usize];
    for (thread, known) in timeline.threads.iter().zip(threads) {
        if !is_below(groups, known.group, target) {
            continue;
        }
        for run in &thread.runs {
            let [from, to] = [run.start_ns, run.end_ns]
                .map(|at| (at - timeline.start_ns).clamp(0, duration_ns as i64) as u64);
            overlaps(from, to, |at, ns| found[at].work_ns += ns as f64);
        }
    }
    for Pair { info, .. } in requests {
        let from = info.begin_ns.min(duration_ns);
        let to = (info.begin_ns + info.latency_ns.max(1)).min(duration_ns);
        let share = 1.0 / info.latency_ns.max(1) as f64;
        overlaps(from, to, |at, ns| found[at].requests += ns as f64 * share);
    }
    found
}

/// Each stretch that the time from `from` to `to` touches, and for how long.
fn overlaps(from: u64, to: u64, mut add: impl FnMut(usize, u64)) {
    let mut at = from;
    while at < to {
        let end = ((at / STRETCH_NS + 1) * STRETCH_NS).min(to);
        add((at / STRETCH_NS) as usize, end - at);
        at = end;
    }
}
