// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the recorder took of each thread's CPU time, so that what is foretold is the service without it.
//!
//! Its programs run where the event is: of a switch after the clock was read that the thread before is charged by, so that
//! the next one pays; of a wake-up and of what sockets do in the thread that does it.
use plimsoll_trace::Timeline;

/// Of a thread's CPU time no more is taken to be the recorder's: chosen; a service that does nothing but answer 20,000 requests a
/// second has 12% of it (docs/src/reference/record.md).
const SHARE_MAX: f64 = 0.3;

/// Of each thread, ns. `event_ns`: of one event.
pub(crate) fn taken_ns(timeline: &Timeline, event_ns: u64) -> Vec<u64> {
    let mut events: Vec<u64> = timeline
        .threads
        .iter()
        .map(|t| (t.runs.len() + t.wakes.len()) as u64)
        .collect();
    let used = timeline.connections.iter().flat_map(|c| &c.events);
    for by in used.filter_map(|event| event.by) {
        events[by.thread as usize] += 1;
    }
    timeline
        .threads
        .iter()
        .zip(events)
        .map(|(thread, events)| {
            let work_ns: i64 = thread.bursts.iter().map(|b| b.work_ns.max(0)).sum();
            (events * event_ns).min((work_ns as f64 * SHARE_MAX) as u64)
        })
        .collect()
}
