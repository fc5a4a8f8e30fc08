//! What starts each burst when the trace is replayed: something another thread does, a moment on the clock,
//! or a delay after the thread's own last burst. This tells open-loop from closed-loop arrivals.
//!
//! Open loop: work arrives whether or not earlier work is done (requests from outside, periodic timers);
//! a slower machine builds a queue. Closed loop: the next piece waits for the last one (a client that
//! waits for its answer, a sleep after work, storage); a slower machine gets less of it.
//!
//! A timer's wake-up does not say which of the two it is. If the times between wake-ups vary less than the
//! times slept, the thread follows the clock; if the sleeps vary less, it sleeps for a time. Where both
//! vary alike, the clock is assumed: a queue that builds up is the worse case.
use crate::timeline::{Burst, Cause, End, ThreadTimeline, Timeline};

/// How a burst starts in a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// When its cause happens.
    Caused,
    /// At this moment, ns after the start of the trace.
    At { ns: i64 },
    /// This long after the thread's previous burst ended, ns.
    After { ns: i64 },
}

/// How many wake-ups are of which kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// By another recorded thread: closed loop, as far as that thread is.
    pub by_threads: u64,
    /// By a timer that follows the clock: open loop.
    pub by_clock: u64,
    /// By a device or a thread that was not recorded: open loop.
    pub from_outside: u64,
    /// By a timer that ends a sleep, or storage that answers: closed loop.
    pub after_delay: u64,
}

impl Arrivals {
    pub fn open_loop(&self) -> u64 {
        self.by_clock + self.from_outside
    }

    pub fn total(&self) -> u64 {
        self.by_threads + self.by_clock + self.from_outside + self.after_delay
    }

    fn count(&mut self, cause: &Cause, pace: Pace) {
        match (pace, cause) {
            (Pace::Caused, _) => self.by_threads += 1,
            (Pace::After { .. }, _) => self.after_delay += 1,
            (Pace::At { .. }, Cause::Timer) => self.by_clock += 1,
            (Pace::At { .. }, Cause::Start) => {}
            (Pace::At { .. }, _) => self.from_outside += 1,
        }
    }
}

/// Fewer wake-ups by timers than this say nothing about their rhythm.
const RHYTHM_MIN: usize = 5;
/// A spread this much smaller than the other is a difference.
const CLEARLY_SMALLER: f64 = 0.8;

impl Timeline {
    /// How each burst of a thread starts in a replay, in the order of the bursts.
    pub fn pace(&self, thread: &ThreadTimeline) -> Vec<Pace> {
        let sleeps_for_a_time = sleeps_for_a_time(&thread.bursts);
        let at = |burst: &Burst| Pace::At {
            ns: burst.woken_ns - self.start_ns,
        };
        let pace = |i: usize| {
            let burst = &thread.bursts[i];
            let Some(before) = i.checked_sub(1).map(|i| &thread.bursts[i]) else {
                return match burst.cause {
                    Cause::Thread { .. } | Cause::Fork { .. } => Pace::Caused,
                    _ => at(burst),
                };
            };
            let after = Pace::After {
                ns: (burst.woken_ns - before.end_ns).max(0),
            };
            let storage = before.end
                == End::Blocked {
                    uninterruptible: true,
                };
            match burst.cause {
                Cause::Thread { .. } | Cause::Fork { .. } => Pace::Caused,
                Cause::Timer if sleeps_for_a_time => after,
                Cause::Timer | Cause::Start => at(burst),
                // An answer comes some time after the question.
                Cause::Interrupt | Cause::Outside { .. } if storage => after,
                Cause::Interrupt | Cause::Outside { .. } => at(burst),
                Cause::Unseen => after,
            }
        };
        (0..thread.bursts.len()).map(pace).collect()
    }

    /// Counts the wake-ups of `threads` (all threads: `|_| true`) by kind.
    pub fn arrivals(&self, mut threads: impl FnMut(&ThreadTimeline) -> bool) -> Arrivals {
        let mut arrivals = Arrivals::default();
        for thread in self.threads.iter().filter(|t| threads(t)) {
            for (burst, pace) in thread.bursts.iter().zip(self.pace(thread)) {
                arrivals.count(&burst.cause, pace);
            }
        }
        arrivals
    }
}

/// Whether a thread's timers end sleeps of a length of their own, rather than follow the clock.
fn sleeps_for_a_time(bursts: &[Burst]) -> bool {
    let timed: Vec<usize> = (1..bursts.len())
        .filter(|&i| bursts[i].cause == Cause::Timer)
        .collect();
    let sleeps: Vec<i64> = timed
        .iter()
        .map(|&i| bursts[i].woken_ns - bursts[i - 1].end_ns)
        .collect();
    let intervals: Vec<i64> = timed
        .windows(2)
        .map(|pair| bursts[pair[1]].woken_ns - bursts[pair[0]].woken_ns)
        .collect();
    if intervals.len() < RHYTHM_MIN {
        return true; // most calls that wait have a time-out; few programs follow a clock
    }
    spread(sleeps) < CLEARLY_SMALLER * spread(intervals)
}

/// From the 10th to the 90th percentile. Absolute, because a jitter of the timer is the same for both.
fn spread(mut values: Vec<i64>) -> f64 {
    values.sort_unstable();
    let at = |percent: usize| values[(values.len() - 1) * percent / 100];
    (at(90) - at(10)) as f64
}
