// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client that waits for no answer takes any connection that is free. While requests pile up its connections are used
//! again after pauses that are alike, as those of clients that wait are: one by one they cannot be told apart. Together
//! they can. Of N clients that wait, those that are owed an answer ask for nothing, so that requests come at a rate of
//! (N - k) times that of one client while k answers are owed; from outside they come at one rate, whatever is owed.
//! Clients that wait, and whose pauses differ widely, cannot be told one by one, either: that none asks while all are owed an answer can.
//!
//! Which of the two the requests show is decided by their likelihoods, as counts in the time spent with each k. Requests
//! that are sent together count once: a client that sends several at a time and waits for all of them is one that waits.

use crate::arrivals::Pacing;

/// So many times as likely the one rate has to be: wrong in one of a hundred cases at most where both were as likely before.
const TIMES: f64 = 100.0;
/// And so many times clients that wait: as many connections are counted as were busy at once, and while all of them are, none can come.
/// Of 25 kinds of service with random arrivals, throttled or not (200 seeds each, 30 of the five longest), this was a hundred thousand times
/// likelier in none.
const TIMES_WAITS: f64 = 1e6;
/// What comes within so much of the mean time between two requests was sent together. Of random ones 2% do.
const TOGETHER: f64 = 0.02;

/// Whether requests came whatever was owed ([`Pacing::Open`]), or as those of clients that wait; `None`: one is not much likelier
/// than the other. `requests`: when each began and ended, on so many connections.
pub(crate) fn pacing(requests: &[(i64, i64)], connections: usize) -> Option<Pacing> {
    // Answers first: what begins as another ends finds that one's connection free.
    let mut events: Vec<(i64, bool)> = requests
        .iter()
        .flat_map(|&(begin_ns, end_ns)| [(begin_ns, true), (end_ns, false)])
        .collect();
    events.sort_unstable();
    let (first, last) = (events.first()?, events.last()?);
    let together_ns = TOGETHER * (last.0 - first.0) as f64 / requests.len() as f64;
    let mut at: Vec<Owed> = vec![Owed::default(); connections + 1];
    let (mut owed, mut since_ns, mut begun_ns) = (0usize, first.0, i64::MIN);
    for (ts_ns, begins) in events {
        at[owed].time_ns += (ts_ns - since_ns) as f64;
        since_ns = ts_ns;
        if begins {
            let alone = ts_ns.saturating_sub(begun_ns) as f64 > together_ns;
            at[owed].came += f64::from(u8::from(alone));
            begun_ns = ts_ns;
            owed += 1;
        } else {
            owed -= 1;
        }
    }
    let free = |owed: usize| (connections - owed) as f64;
    let came: f64 = at.iter().map(|at| at.came).sum();
    let time_ns: f64 = at.iter().map(|at| at.time_ns).sum();
    let free_ns: f64 = (0..).zip(&at).map(|(owed, at)| at.time_ns * free(owed)).sum();
    if came * time_ns * free_ns <= 0.0 {
        return None;
    }
    let (rate, rate_of_one) = (came / time_ns, came / free_ns);
    let seen = (0..).zip(&at).filter(|(_, at)| at.came > 0.0);
    let likelier: f64 = seen
        .map(|(owed, at)| at.came * (rate.ln() - (rate_of_one * free(owed)).ln()))
        .sum();
    if likelier > TIMES.ln() {
        return Some(Pacing::Open);
    }
    // On a single connection the next request waits for the answer in either case.
    (connections > 1 && likelier < -TIMES_WAITS.ln()).then_some(Pacing::Closed)
}

/// While so many answers are owed.
#[derive(Clone, Copy, Default)]
struct Owed {
    came: f64,
    time_ns: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};

    /// Eight at a time, answered one after another, each 1 ms; then `pause_ms`.
    fn eight_together(pause_ms: i64) -> Vec<(i64, i64)> {
        let of = |i: i64| {
            let begin_ms = i / 8 * (8 + pause_ms);
            (begin_ms * 1_000_000 + i % 8, (begin_ms + i % 8 + 1) * 1_000_000)
        };
        (0..800).map(of).collect()
    }

    #[test]
    fn client_that_sends_several_at_once_and_waits_for_all_is_one_that_waits() {
        assert_ne!(pacing(&eight_together(4), 8), Some(Pacing::Open));
        assert_ne!(pacing(&eight_together(40), 8), Some(Pacing::Open));
    }

    /// Times between whatever happens at random, with this mean.
    fn random(seed: u64) -> impl FnMut(f64) -> i64 {
        let mut rng = rand_pcg::Pcg64::seed_from_u64(seed);
        move |mean_ns: f64| (-mean_ns * (1.0 - rng.random::<f64>()).ln()) as i64
    }

    /// Four clients ask a service that answers one after another in 2 ms, and think for a while between.
    #[test]
    fn clients_whose_pauses_differ_widely_wait() {
        let mut pause_ns = random(1);
        let mut next_ns = [0i64; 4];
        let mut free_ns = 0;
        let mut requests = Vec::new();
        for _ in 0..300 {
            let first = next_ns.iter_mut().min().unwrap();
            free_ns = free_ns.max(*first) + 2_000_000;
            requests.push((*first, free_ns));
            *first = free_ns + pause_ns(500e3);
        }
        assert_eq!(pacing(&requests, 4), Some(Pacing::Closed));
    }

    /// Half busy, each at random.
    #[test]
    fn what_comes_at_random_does_not_wait() {
        for seed in 0..20 {
            let mut time_ns = random(seed);
            let (mut at_ns, mut free_ns) = (0i64, 0i64);
            let one = |_| {
                at_ns += time_ns(4e6);
                free_ns = free_ns.max(at_ns) + time_ns(2e6);
                (at_ns, free_ns)
            };
            let requests: Vec<(i64, i64)> = (0..300).map(one).collect();
            let under_way =
                |own: &(i64, i64)| requests.iter().filter(|r| r.0 <= own.0 && own.0 < r.1).count();
            let connections = requests.iter().map(under_way).max().unwrap();
            assert_ne!(
                pacing(&requests, connections),
                Some(Pacing::Closed),
                "seed {seed}"
            );
        }
    }

    #[test]
    fn few_requests_decide_nothing() {
        assert_eq!(pacing(&[], 0), None);
        assert_eq!(pacing(&[(0, 5), (3, 9)], 2), None);
    }
}
