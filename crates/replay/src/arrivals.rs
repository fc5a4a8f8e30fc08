// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Open or closed loop: whether work that comes from outside keeps its own time, or waits for the work before.
//!
//! A timer or a device wakes a thread. If it would have done so whenever the thread had finished (a periodic timer,
//! packets of clients that do not wait), the absolute time is kept: open loop. If the time ran from the end of the
//! thread's last work (a sleep, a client that waits for the answer), the distance is kept: closed loop.
//!
//! Three looks at the times, the first that is clear decides:
//! 1. A schedule: wake-ups that stay near a straight line have a clock of their own. Errors of sleeps add up instead
//!    (a random walk), so that distances from the line are then larger than the changes from one to the next.
//! 2. Spread: of the times between wake-ups, and of the times from end of work to wake-up, the one that is kept
//!    spreads less.
//! 3. The slope of the first over the length of the work: 0 for open, 1 for closed.
//!
//! The second and third find a closed loop only if the pauses are alike, as those of a client are. Arrivals at random
//! (Poisson) leave pauses after long work as after short, too, but those differ as widely as the arrivals do.
//!
//! Where none is clear, because work is short compared with the times between: a timer whose sleeps differ widely
//! follows a plan (a time-out or a pause is a constant), one whose sleeps are alike does not. The same holds where the
//! second or third look finds a closed loop of timers: see [`timer_pacing`].
use plimsoll_stats::{mean, upper_median};

/// How work from outside of the trace is timed in the replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pacing {
    /// Times of the recording are kept.
    Open,
    /// The distance from the end of the thread's last work is kept.
    Closed,
}

/// Two arrivals in a row: when the thread was woken, when it blocked for the last time before the next wake-up, and
/// when that was. Nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub woken_ns: i64,
    pub idle_ns: i64,
    pub next_ns: i64,
}

/// Fewer than these say nothing about a distribution.
pub(crate) const ARRIVALS_MIN: usize = 8;
/// A spread counts as smaller when it is below this share of the other.
const CLEARLY: f64 = 0.8;
/// Pauses are alike when their spread is below this share of their median. Of an exponential distribution it is 0.69.
const ALIKE: f64 = 0.5;

/// What is so many times as far from the schedule as half of all are was held up. Of normal errors 0.7% are.
const FAR: f64 = 4.0;
/// So much of a schedule has to be kept.
const ON_TIME: f64 = 0.75;

/// Decides for one thread. `unclear` is the answer when the times do not tell.
pub fn pacing(arrivals: &[Arrival], unclear: Pacing) -> Pacing {
    if arrivals.len() < ARRIVALS_MIN {
        return unclear;
    }
    if keeps_a_schedule(arrivals) {
        return Pacing::Open;
    }
    let between: Vec<f64> = arrivals.iter().map(|a| (a.next_ns - a.woken_ns) as f64).collect();
    let gap: Vec<f64> = arrivals.iter().map(|a| (a.next_ns - a.idle_ns) as f64).collect();
    let (between_spread, gap_spread) = (spread(&between), spread(&gap));
    if between_spread < CLEARLY * gap_spread {
        return Pacing::Open;
    }
    if gap_spread >= ALIKE * upper_median(gap) {
        return unclear;
    }
    if gap_spread < CLEARLY * between_spread {
        return Pacing::Closed;
    }
    // Only where work was short: no wake-up is seen before the work is done, so that longer work would always come with
    // a longer time between, open loop or not.
    let short = 0.5 * upper_median(between.clone());
    let (busy, between): (Vec<f64>, Vec<f64>) = arrivals
        .iter()
        .map(|a| ((a.idle_ns - a.woken_ns) as f64, (a.next_ns - a.woken_ns) as f64))
        .filter(|(busy, _)| *busy <= short)
        .unzip();
    match slope(&busy, &between) {
        Some((slope, error)) if error < 0.25 && slope < 0.25 => Pacing::Open,
        Some((slope, error)) if error < 0.25 && slope > 0.75 => Pacing::Closed,
        _ => unclear,
    }
}

/// Whether wake-ups stay near a straight line through them all, but for some: a client that was held up sends what was
/// due meanwhile at once, and is on its schedule again.
pub(crate) fn keeps_a_schedule(arrivals: &[Arrival]) -> bool {
    let first = arrivals[0].woken_ns;
    let times: Vec<f64> = arrivals.iter().map(|a| (a.next_ns - first) as f64).collect();
    let Some((numbers, times)) = near_a_line(&times) else {
        return false;
    };
    let Some((period, _)) = slope(&numbers, &times) else {
        return false;
    };
    let (mean_number, mean_time) = (mean(&numbers), mean(&times));
    let off: Vec<f64> = times
        .iter()
        .zip(&numbers)
        .map(|(t, n)| t - mean_time - period * (n - mean_number))
        .collect();
    let square = |values: &mut dyn Iterator<Item = f64>| {
        let (sum, count) = values.fold((0.0, 0.0), |(sum, count), v| (sum + v * v, count + 1.0));
        sum / f64::max(count, 1.0)
    };
    let far = square(&mut off.iter().copied());
    let change = square(&mut off.windows(2).map(|w| w[1] - w[0]));
    // White noise has far = change / 2; a random walk of n steps about n / 15 * change, and hardly ever a twentieth of that. A
    // client's own timer is late by more at some times than at others, and does not stray.
    let many = f64::max(1.0, off.len() as f64 / 300.0);
    // The more there are the further a walk would have strayed, and the less exact a client's timer needs to be.
    far <= change * many && far.sqrt() < f64::min(0.1 * many.sqrt(), 0.3) * period
}

/// The numbers and times of those that are near a line which a minority cannot bend (slopes between points half of them
/// apart, their median). `None`: too few are.
fn near_a_line(times: &[f64]) -> Option<(Vec<f64>, Vec<f64>)> {
    let half = times.len() / 2;
    if half == 0 {
        return None;
    }
    let rises = times
        .iter()
        .zip(&times[half..])
        .map(|(a, b)| (b - a) / half as f64);
    let period = upper_median(rises.collect());
    let off: Vec<f64> = (0..).zip(times).map(|(i, t)| t - period * f64::from(i)).collect();
    let middle = upper_median(off.clone());
    let far: Vec<f64> = off.iter().map(|off| (off - middle).abs()).collect();
    let near = FAR * upper_median(far.clone());
    let kept = (0..times.len()).filter(|&i| far[i] <= near);
    let (numbers, kept): (Vec<f64>, Vec<f64>) = kept.map(|i| (i as f64, times[i])).unzip();
    (kept.len() as f64 >= ON_TIME * times.len() as f64).then_some((numbers, kept))
}

/// Decides for a thread that is woken by timers.
///
/// A client that sends at random times of a schedule sleeps as long, at random, after long work as after short: from its
/// times alone it looks like a closed loop. So sleeps are counted from the end of the work before only if they are alike.
pub fn timer_pacing(arrivals: &[Arrival]) -> Pacing {
    let unclear = unclear_timer(arrivals);
    match pacing(arrivals, unclear) {
        Pacing::Open => Pacing::Open,
        Pacing::Closed => unclear,
    }
}

/// Timers: what they are where [`pacing`] finds nothing.
fn unclear_timer(arrivals: &[Arrival]) -> Pacing {
    let gaps: Vec<f64> = arrivals.iter().map(|a| (a.next_ns - a.idle_ns) as f64).collect();
    match gaps.len() >= ARRIVALS_MIN && spread(&gaps) > 0.2 * upper_median(gaps.clone()) {
        true => Pacing::Open,
        false => Pacing::Closed,
    }
}

/// Median distance from the median.
fn spread(values: &[f64]) -> f64 {
    let middle = upper_median(values.to_vec());
    upper_median(values.iter().map(|v| (v - middle).abs()).collect())
}

/// Least squares: slope of y over x, and its standard error. `None`: x does not vary.
fn slope(x: &[f64], y: &[f64]) -> Option<(f64, f64)> {
    if x.len() < 3 {
        return None;
    }
    let (mx, my) = (mean(x), mean(y));
    let sxx: f64 = x.iter().map(|v| (v - mx).powi(2)).sum();
    if sxx <= 0.0 {
        return None;
    }
    let sxy: f64 = x.iter().zip(y).map(|(a, b)| (a - mx) * (b - my)).sum();
    let slope = sxy / sxx;
    let rest: f64 = x
        .iter()
        .zip(y)
        .map(|(a, b)| (b - my - slope * (a - mx)).powi(2))
        .sum();
    Some((slope, (rest / (x.len() as f64 - 2.0) / sxx).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_pcg::Pcg64;

    /// Arrivals of a thread: `next(woken, idle)` says when it is woken again.
    fn arrivals(
        work: impl Fn(&mut Pcg64) -> i64,
        next: impl Fn(&mut Pcg64, i64, i64, i64) -> i64,
    ) -> Vec<Arrival> {
        many(200, work, next)
    }

    fn many(
        count: i64,
        work: impl Fn(&mut Pcg64) -> i64,
        next: impl Fn(&mut Pcg64, i64, i64, i64) -> i64,
    ) -> Vec<Arrival> {
        let mut rng = Pcg64::seed_from_u64(7);
        let mut woken_ns = 0;
        (1..count)
            .map(|i| {
                let idle_ns = woken_ns + work(&mut rng);
                let next_ns = next(&mut rng, i, woken_ns, idle_ns).max(idle_ns);
                let arrival = Arrival {
                    woken_ns,
                    idle_ns,
                    next_ns,
                };
                woken_ns = next_ns;
                arrival
            })
            .collect()
    }

    const MS: i64 = 1_000_000;

    #[test]
    fn periodic_timer_with_constant_work_is_open_loop() {
        let found = arrivals(
            |_| 10 * MS,
            |rng, i, _, _| i * 97 * MS + rng.random_range(0..50_000),
        );
        assert_eq!(pacing(&found, Pacing::Closed), Pacing::Open);
    }

    #[test]
    fn schedule_of_a_client_that_is_held_up_now_and_then_is_open_loop() {
        // It should send each 10 ms, and for 60 ms of each second it cannot.
        let found = arrivals(
            |_| 2 * MS,
            |rng, i, _, _| {
                let due_ns = i * 10 * MS + rng.random_range(0..200_000);
                match due_ns / MS % 1000 {
                    late @ 500..560 => due_ns + (560 - late) * MS + i * 10_000 % MS,
                    _ => due_ns,
                }
            },
        );
        assert_eq!(pacing(&found, Pacing::Closed), Pacing::Open);
        assert!(keeps_a_schedule(&found));
    }

    /// Of a Go client each 10 ms: late by up to a millisecond, of neighbours by as much. Answers take less than that to differ.
    #[test]
    fn schedule_of_a_client_whose_timer_is_late_for_a_while_is_open_loop() {
        let lates = std::cell::Cell::new(0);
        let found = many(
            1500,
            |rng| 770_000 + rng.random_range(0..40_000),
            |rng, i, _, _| {
                let late = lates.get() * 7 / 10 + rng.random_range(-400_000..400_000);
                lates.set(late);
                i * 10 * MS + late
            },
        );
        assert_eq!(pacing(&found, Pacing::Closed), Pacing::Open);
    }

    /// 400 a second, from a timer that is late by up to 1 ms; and 24 clients that each wait for an answer of 60 ms.
    #[test]
    fn many_requests_keep_a_schedule_with_an_inexact_timer_and_those_of_clients_that_wait_do_not() {
        let mut rng = Pcg64::seed_from_u64(3);
        let arrivals = |mut times: Vec<i64>| -> Vec<Arrival> {
            times.sort_unstable();
            let pair = |pair: &[i64]| Arrival {
                woken_ns: pair[0],
                idle_ns: pair[0],
                next_ns: pair[1],
            };
            times.windows(2).map(pair).collect()
        };
        let due = |i: i64| i * 2_500_000;
        let open = arrivals(
            (0..4000)
                .map(|i| due(i) + rng.random_range(0..1_000_000))
                .collect(),
        );
        assert!(keeps_a_schedule(&open));
        assert!(!keeps_a_schedule(&open[..200]), "too few to say");
        let mut times = Vec::new();
        for client in 0..24 {
            let mut at = due(client);
            for _ in 0..166 {
                times.push(at);
                at += 60_000_000 + rng.random_range(0..600_000);
            }
        }
        assert!(!keeps_a_schedule(&arrivals(times)));
    }

    #[test]
    fn sleep_after_constant_work_is_closed_loop_even_though_it_looks_periodic() {
        for count in [200, 3000] {
            let found = many(
                count,
                |rng| 10 * MS + rng.random_range(0..100_000),
                |_, _, _, idle| idle + 90 * MS,
            );
            assert_eq!(pacing(&found, Pacing::Open), Pacing::Closed, "{count}");
        }
    }

    #[test]
    fn client_that_waits_for_the_answer_is_closed_loop() {
        let found = arrivals(
            |rng| rng.random_range(MS..20 * MS),
            |rng, _, _, idle| idle + 3 * MS + rng.random_range(0..MS),
        );
        assert_eq!(pacing(&found, Pacing::Open), Pacing::Closed);
    }

    #[test]
    fn packets_that_do_not_wait_are_open_loop() {
        let found = arrivals(
            |rng| rng.random_range(MS..8 * MS),
            |rng, _, woken, _| woken + 20 * MS + rng.random_range(0..3 * MS),
        );
        assert_eq!(pacing(&found, Pacing::Closed), Pacing::Open);
    }

    #[test]
    fn timers_at_random_times_follow_a_plan_even_if_work_is_too_short_to_tell() {
        let found = arrivals(
            |rng| rng.random_range(50_000..60_000),
            |rng, _, woken, _| woken + rng.random_range(MS..20 * MS),
        );
        assert_eq!(pacing(&found, unclear_timer(&found)), Pacing::Open);
    }

    #[test]
    fn client_with_a_random_schedule_is_open_loop_however_long_the_work() {
        for work in [100_000, 600_000, 2 * MS] {
            let found = arrivals(
                |rng| rng.random_range(work / 2..2 * work),
                // The first time of the schedule after the answer.
                |rng, _, _, idle| idle + (-3.3e6 * (1.0 - rng.random::<f64>()).ln()) as i64,
            );
            assert_eq!(timer_pacing(&found), Pacing::Open, "work of {work} ns");
        }
    }

    /// One server, arrivals at random: what comes while it works waits, and leaves no wake-up.
    #[test]
    fn random_arrivals_at_a_server_are_open_loop_from_a_tenth_to_three_quarters_busy() {
        for busy_percent in [10, 30, 50, 75] {
            let mut rng = Pcg64::seed_from_u64(3);
            let mut random = |mean: f64| -mean * (1.0 - rng.random::<f64>()).ln();
            let (mut at, mut free) = (0.0, 0.0);
            let (mut woken, mut idle) = (Vec::new(), Vec::new());
            for _ in 0..3000 {
                at += random(10e6 * 100.0 / f64::from(busy_percent));
                if at > free {
                    woken.push(at as i64);
                    idle.push(free as i64);
                    free = at;
                }
                free += 10e6;
            }
            let found: Vec<Arrival> = (1..woken.len())
                .map(|i| Arrival {
                    woken_ns: woken[i - 1],
                    idle_ns: idle[i],
                    next_ns: woken[i],
                })
                .collect();
            assert_eq!(pacing(&found, Pacing::Open), Pacing::Open, "{busy_percent}%");
        }
    }

    #[test]
    fn sleep_after_work_of_any_length_is_closed_loop() {
        let found = arrivals(
            |rng| rng.random_range(MS..20 * MS),
            |rng, _, _, idle| idle + 90 * MS + rng.random_range(0..MS),
        );
        assert_eq!(timer_pacing(&found), Pacing::Closed);
    }

    #[test]
    fn few_arrivals_decide_nothing() {
        let few = arrivals(|_| MS, |_, i, _, _| i * 10 * MS)[..5].to_vec();
        assert_eq!(pacing(&few, Pacing::Closed), Pacing::Closed);
        assert_eq!(pacing(&few, Pacing::Open), Pacing::Open);
    }
}
