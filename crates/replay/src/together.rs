// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client that waits for no answer takes any connection that is free. While requests pile up its connections are used
//! again after pauses that are alike, as those of clients that wait are: one by one they cannot be told apart. Together
//! they can. Of N clients that wait, those that are owed an answer ask for nothing, so that requests come at a rate of
//! (N - k) times that of one client while k answers are owed; from outside they come at one rate, whatever is owed.
//! Clients that wait, and whose pauses differ widely, cannot be told one by one, either: that none asks while all are owed an answer can.
//! So can clients of one thread, as of a benchmark, which asks for one after the other as fast as it can, whatever is owed.
//!
//! Which of the two the requests show is decided by their likelihoods, as counts in the time spent with each k. Requests
//! that are sent together count once: a client that sends several at a time and waits for all of them is one that waits.

/// So many times as likely the one rate has to be: wrong in one of a hundred cases at most where both were as likely before.
const TIMES: f64 = 100.0;
/// And so many times clients that wait: as many connections are counted as were busy at once, and while all of them are, none can come.
/// Of 25 kinds of service with random arrivals, throttled or not (200 seeds each, 30 of the five longest), this was a hundred thousand times
/// likelier in none. That none comes while all are owed for long was no thousand times likelier in 3,360 (56 kinds, 60 seeds
/// each).
const TIMES_WAITS: f64 = 1e6;
/// What comes within so much of the mean time between two requests was sent together. Of random ones 2% do.
const TOGETHER: f64 = 0.02;

/// How many connections there were at a time, and since when as many.
#[derive(Clone, Copy)]
pub(crate) struct Connections {
    pub most: usize,
    pub since_ns: i64,
}

/// A client with a clock sends as it ticks, in between nothing comes for sure: only what lasts for so many of the usual times between requests
/// counts.
const LONG: f64 = 3.0;
/// Clients that wait have all their connections before this share of the requests has come. One that waits for no answer opens another
/// connection where all are busy, and while the service accepts none nothing comes, either.
const BEGINNING: f64 = 0.1;

/// What all requests together say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Together {
    /// They came whatever was owed.
    Open,
    /// Fewer came while more was owed: where the pauses of a connection do not tell, its client waits.
    RatherClosed,
    /// None while all was owed, for long: all clients wait.
    Closed,
}

/// Whether requests came whatever was owed, or as those of clients that wait; `None`: one is not much likelier
/// than the other. `requests`: when each began and ended.
pub(crate) fn pacing(requests: &[(i64, i64)], connections: Connections) -> Option<Together> {
    // Answers first: what begins as another ends finds that one's connection free.
    let mut events: Vec<(i64, bool)> = requests
        .iter()
        .flat_map(|&(begin_ns, end_ns)| [(begin_ns, true), (end_ns.max(begin_ns + 1), false)])
        .collect();
    events.sort_unstable();
    let (first, last) = (events.first()?, events.last()?);
    let together_ns = TOGETHER * (last.0 - first.0) as f64 / requests.len() as f64;
    let mut at: Vec<Owed> = Vec::new();
    let (mut owed, mut since_ns, mut begun_ns) = (0usize, first.0, i64::MIN);
    for &(ts_ns, begins) in &events {
        if at.len() <= owed {
            at.resize(owed + 1, Owed::default());
        }
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
    let begun = requests.iter().filter(|own| own.0 < connections.since_ns).count() as f64;
    let all_there = begun <= BEGINNING * requests.len() as f64;
    let connections = connections.most.max(at.len() - 1);
    let free = |owed: usize| (connections - owed) as f64;
    let came: f64 = at.iter().map(|at| at.came).sum();
    let time_ns: f64 = at.iter().map(|at| at.time_ns).sum();
    let free_ns: f64 = (0..).zip(&at).map(|(owed, at)| at.time_ns * free(owed)).sum();
    if came * time_ns * free_ns <= 0.0 {
        return None;
    }
    let (rate, rate_of_one) = (came / time_ns, came / free_ns);
    // On a single connection the next request waits for the answer in either case.
    let may_wait = connections > 1 && all_there;
    let long_ns = || -> f64 {
        let stays = stays_ns(&events, connections);
        stays.filter(|&ns| rate * ns > LONG).sum()
    };
    if may_wait && rate * long_ns() > TIMES_WAITS.ln() {
        return Some(Together::Closed);
    }
    let seen = (0..).zip(&at).filter(|(_, at)| at.came > 0.0);
    let likelier: f64 = seen
        .map(|(owed, at)| at.came * (rate.ln() - (rate_of_one * free(owed)).ln()))
        .sum();
    if likelier > TIMES.ln() {
        return Some(Together::Open);
    }
    (may_wait && likelier < -TIMES_WAITS.ln()).then_some(Together::RatherClosed)
}

/// For how long at a time so many answers were owed. `events`: when requests began (true) and ended, ascending.
fn stays_ns(events: &[(i64, bool)], wanted: usize) -> impl Iterator<Item = f64> + '_ {
    let mut owed = 0;
    events.windows(2).filter_map(move |pair| {
        match pair[0].1 {
            true => owed += 1,
            false => owed -= 1,
        }
        (owed == wanted).then(|| (pair[1].0 - pair[0].0) as f64)
    })
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

    /// All the while.
    fn of(most: usize) -> Connections {
        Connections { most, since_ns: 0 }
    }

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
        assert_ne!(pacing(&eight_together(4), of(8)), Some(Together::Open));
        assert_ne!(pacing(&eight_together(40), of(8)), Some(Together::Open));
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
        assert_eq!(pacing(&requests, of(4)), Some(Together::RatherClosed));
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
            let found = pacing(&requests, of(connections));
            assert!(
                matches!(found, None | Some(Together::Open)),
                "seed {seed}: {found:?}"
            );
        }
    }

    /// A thread asks on four connections for one after the other, every 1.3 ms as long as one is free; each is answered in 1 ms, and
    /// every fiftieth in 20.
    #[test]
    fn clients_of_one_thread_wait() {
        let (mut now_ns, mut free_ns) = (0i64, 0i64);
        let mut ends_ns = [0i64; 4];
        let mut requests = Vec::new();
        for request in 0..2000 {
            let next = ends_ns.iter_mut().min().unwrap();
            now_ns = (now_ns + 1_300_000).max(*next);
            free_ns = free_ns.max(now_ns) + if request % 50 == 49 { 20_000_000 } else { 1_000_000 };
            requests.push((now_ns, free_ns));
            *next = free_ns;
        }
        assert_eq!(pacing(&requests, of(4)), Some(Together::Closed));
    }

    /// Four at a time, each 2 ms, answered in 5 us each: nothing comes while all are owed, as it is not time.
    #[test]
    fn a_clock_is_no_client_that_waits() {
        let tick = |i: i64| {
            let begin_ns = i / 4 * 2_000_000 + i / 4 * (i / 4) % 7 * 100_000;
            (begin_ns + i % 4, begin_ns + 5_000 * (i % 4 + 1))
        };
        let requests: Vec<_> = (0..8000).map(tick).collect();
        assert_ne!(pacing(&requests, of(4)), Some(Together::Closed));
    }

    /// Requests come at random, and are kept from a service that has no more than four workers: it answers in 1 ms, and every fifth
    /// in 40. What is kept is seen as a worker is free.
    #[test]
    fn what_a_service_keeps_from_itself_does_not_show_who_waits() {
        let mut time_ns = random(3);
        let mut came_ns = 0;
        let mut ends_ns = [0i64; 4];
        let mut requests = Vec::new();
        for request in 0..1000 {
            came_ns += time_ns(3e6);
            let next = ends_ns.iter_mut().min().unwrap();
            let begin_ns = came_ns.max(*next + 1000);
            *next = begin_ns + if request % 5 == 4 { 40_000_000 } else { 1_000_000 };
            requests.push((begin_ns, *next));
        }
        let late = Connections {
            most: 4,
            since_ns: came_ns / 2,
        };
        let found = pacing(&requests, late);
        assert!(matches!(found, None | Some(Together::Open)), "{found:?}");
    }

    #[test]
    fn few_requests_decide_nothing() {
        assert_eq!(pacing(&[], of(0)), None);
        assert_eq!(pacing(&[(0, 5), (3, 9)], of(2)), None);
        // Answered at once, as far as the clock tells.
        assert_eq!(pacing(&[(3, 3), (7, 7)], of(1)), None);
    }
}
