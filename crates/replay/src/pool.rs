// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client that waits for no answer takes any connection that is free. While requests pile up its connections are used
//! again after pauses that are alike, as those of clients that wait are: one by one they cannot be told apart. Together
//! they can. Of N clients that wait, those that are owed an answer ask for nothing, so that requests come at a rate of
//! (N - k) times that of one client while k answers are owed; from outside they come at one rate, whatever is owed.
//!
//! Which of the two the requests show is decided by their likelihoods, as counts in the time spent with each k. Requests
//! that are sent together count once: a client that sends several at a time and waits for all of them is one that waits.

/// So many times as likely the one rate has to be: wrong in one of a hundred cases at most where both were as likely before.
const TIMES: f64 = 100.0;
/// What comes within so much of the mean time between two requests was sent together. Of random ones 2% do.
const TOGETHER: f64 = 0.02;

/// Whether requests came whatever was owed. `requests`: when each began and ended, on so many connections.
pub(crate) fn come_whatever_is_owed(requests: &[(i64, i64)], connections: usize) -> bool {
    // Answers first: what begins as another ends finds that one's connection free.
    let mut events: Vec<(i64, bool)> = requests
        .iter()
        .flat_map(|&(begin_ns, end_ns)| [(begin_ns, true), (end_ns, false)])
        .collect();
    events.sort_unstable();
    let (Some(first), Some(last)) = (events.first(), events.last()) else {
        return false;
    };
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
        return false;
    }
    let (rate, rate_of_one) = (came / time_ns, came / free_ns);
    let seen = (0..).zip(&at).filter(|(_, at)| at.came > 0.0);
    seen.map(|(owed, at)| at.came * (rate.ln() - (rate_of_one * free(owed)).ln()))
        .sum::<f64>()
        > TIMES.ln()
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
        assert!(!come_whatever_is_owed(&eight_together(4), 8));
        assert!(!come_whatever_is_owed(&eight_together(40), 8));
    }

    #[test]
    fn few_requests_decide_nothing() {
        assert!(!come_whatever_is_owed(&[], 0));
        assert!(!come_whatever_is_owed(&[(0, 5), (3, 9)], 2));
    }
}
