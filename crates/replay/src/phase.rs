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
/// Fewer stretches say nothing by themselves.
const COUNT_MIN: usize = 5;
/// So many times as many as would end there if they ended anywhere.
const CROWD_MIN: f64 = 20.0;
/// Fewer than that are believed if in so many recordings of a hundred, or fewer, they would meet by chance.
const CHANCE_MAX: f64 = 0.02;

/// What the kernel counted of a group while it was recorded.
#[derive(Clone, Copy)]
pub(crate) struct Throttled {
    pub periods: u64,
    /// Summed over CPUs.
    pub ns: u64,
}

/// Where in a period of so many ns of the trace's clock boundaries lie; `None`: it does not show. `throttled`: `None`: not known.
pub(crate) fn of_periods(
    stretches: &[Standstill],
    period_ns: u64,
    throttled: Option<Throttled>,
) -> Option<u64> {
    let period_ns = period_ns as i64;
    let mut places: Vec<(i64, i64)> = stretches
        .iter()
        .map(|stretch| {
            (
                stretch.end_ns.rem_euclid(period_ns),
                stretch.end_ns - stretch.from_ns,
            )
        })
        .collect();
    places.sort_unstable();
    let count = places.len();
    // Round once more, as a period's end is the next one's beginning.
    places.extend_from_within(..);
    places[count..].iter_mut().for_each(|place| place.0 += period_ns);
    let (mut to, mut lasted_ns, mut best) = (0, 0, (0, 0, 0));
    for from in 0..count {
        while to < places.len() && to < from + count && places[to].0 - places[from].0 <= WITHIN_NS {
            lasted_ns += places[to].1;
            to += 1;
        }
        best = best.max((to - from, lasted_ns, usize::MAX - from));
        lasted_ns -= places[from].1;
    }
    let (most, lasted_ns, from) = (best.0, best.1, usize::MAX - best.2);
    let share = WITHIN_NS as f64 / period_ns as f64;
    let is_crowd = most >= COUNT_MIN && most as f64 >= CROWD_MIN * count as f64 * share;
    let are_few = throttled.is_some_and(|kernel| {
        let by_chance = (1..=most).fold(1.0 / (2.0 * share), |chance, nth| {
            chance * 2.0 * share * (count + 1 - nth) as f64 / nth as f64
        });
        let all = most >= 1 && most as u64 >= kernel.periods && count < COUNT_MIN;
        kernel.periods > 0
            && lasted_ns <= kernel.ns as i64 + most as i64 * WITHIN_NS
            && (all || by_chance < CHANCE_MAX)
    });
    (is_crowd || are_few).then(|| (places[from].0 % period_ns) as u64)
}

/// So many places in a period are looked at.
const PLACES: i64 = 100;
/// Of all periods together; what comes after that is not looked at: an hour of periods of 100 ms, 32 MB.
const PLACES_MAX: i64 = 4_000_000;

/// Likewise of a group without burst, by how many periods the kernel counted as throttled: where as many hold a whole quota of its
/// run time between two boundaries, and the fullest of the others is furthest from that. `None`: wherever boundaries lie it is as many.
pub(crate) fn of_full_periods(
    timeline: &Timeline,
    period_ns: u64,
    quota_ns: u64,
    throttled: u64,
    member: impl Fn(usize) -> bool,
) -> Option<u64> {
    let place_ns = (period_ns as i64 / PLACES).max(1);
    let first = timeline.start_ns.div_euclid(place_ns);
    let count = (timeline.end_ns.div_euclid(place_ns) - first + 1).clamp(0, PLACES_MAX) as usize;
    let end_ns = timeline
        .end_ns
        .min((first + count as i64).saturating_mul(place_ns));
    let mut ran_ns = vec![0u64; count];
    let threads = timeline.threads.iter().enumerate().filter(|(ix, _)| member(*ix));
    for run in threads.flat_map(|(_, thread)| &thread.runs) {
        let (mut from_ns, to_ns) = (run.start_ns.max(timeline.start_ns), run.end_ns.min(end_ns));
        while from_ns < to_ns {
            let place = from_ns.div_euclid(place_ns);
            let next_ns = ((place + 1) * place_ns).min(to_ns);
            ran_ns[(place - first) as usize] += (next_ns - from_ns) as u64;
            from_ns = next_ns;
        }
    }
    // How many are full, and the fullest of those that the kernel did not throttle.
    let full = |place: i64| {
        let begin = ((place - first).rem_euclid(PLACES) as usize).min(count);
        let mut periods: Vec<u64> = ran_ns[begin..]
            .chunks(PLACES as usize)
            .map(|period| period.iter().sum())
            .collect();
        periods.push(ran_ns[..begin].iter().sum());
        let full = periods.iter().filter(|ns| **ns >= quota_ns).count() as u64;
        let fullest_first = |ns: &u64| std::cmp::Reverse(*ns);
        let other_ns = match (throttled as usize) < periods.len() {
            true => {
                *periods
                    .select_nth_unstable_by_key(throttled as usize, fullest_first)
                    .1
            }
            false => 0,
        };
        (full, other_ns)
    };
    let by_place: Vec<(u64, u64)> = (0..PLACES).map(full).collect();
    let (place, _) = by_place
        .iter()
        .enumerate()
        .min_by_key(|(_, (full, other_ns))| (full.abs_diff(throttled), *other_ns))?;
    by_place
        .iter()
        .any(|(full, _)| *full != by_place[0].0)
        .then_some(place as u64 * place_ns as u64)
}

/// What of its quota a group had left as recording began, ns, if that was so little that it stood still until the first boundary:
/// what it ran up to there. `phase_ns`: of the boundaries, as above.
pub(crate) fn left_at_start(
    timeline: &Timeline,
    stretches: &[Standstill],
    period_ns: u64,
    phase_ns: u64,
    member: impl Fn(usize) -> bool,
) -> Option<(u64, u64)> {
    let boundary_ns = timeline.start_ns + (phase_ns as i64 - timeline.start_ns).rem_euclid(period_ns as i64);
    let goes_on = |end_ns: i64| (0..=WITHIN_NS).contains(&(end_ns - boundary_ns));
    stretches.iter().find(|stretch| goes_on(stretch.end_ns))?;
    let threads = timeline.threads.iter().enumerate().filter(|(ix, _)| member(*ix));
    let runs = threads.flat_map(|(_, thread)| &thread.runs);
    let ran = runs.map(|run| run.end_ns.min(boundary_ns) - run.start_ns.max(timeline.start_ns));
    let ran_ns: i64 = ran.filter(|ns| *ns > 0).sum();
    Some(((boundary_ns - timeline.start_ns) as u64, ran_ns as u64))
}

/// Until some thread of a group went on all that wanted to run stood still.
pub(crate) struct Standstill {
    from_ns: i64,
    end_ns: i64,
}

/// Of a limited group. `member`: its threads and those of groups below.
pub(crate) fn standstills(timeline: &Timeline, member: impl Fn(usize) -> bool) -> Vec<Standstill> {
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
    let mut found = Vec::new();
    for (now_ns, more_wanting, more_running) in changes {
        wanting += more_wanting;
        running += more_running;
        if running > 0 {
            match since_ns.take() {
                Some(from_ns) if now_ns - from_ns >= STRETCH_NS_MIN => found.push(Standstill {
                    from_ns,
                    end_ns: now_ns,
                }),
                _ => {}
            }
        } else if wanting == 0 {
            since_ns = None;
        } else if since_ns.is_none() {
            since_ns = Some(now_ns);
        }
    }
    found
}
