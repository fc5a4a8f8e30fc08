// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Points of a trace at which requests begin and end, turned into actions inside of bursts.
use crate::program::{Action, Burst, BurstIx, Deed};
use plimsoll_trace::{Cause, ThreadIx, Timeline};

/// A moment that exists in the recording and in every replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// A burst becomes runnable: its waker gets there, or its time has come.
    Woken(ThreadIx, u32),
    /// It runs for the first time.
    Runs(ThreadIx, u32),
    /// It has done this much of its work, ns of the recording.
    Works(ThreadIx, u32, i64),
    /// It blocks or exits.
    Ends(ThreadIx, u32),
}

impl Mark {
    /// When that was in the recording.
    pub fn recorded_ns(self, timeline: &Timeline) -> i64 {
        let of = |thread: ThreadIx, burst: u32| &timeline.threads[thread as usize].bursts[burst as usize];
        match self {
            Mark::Woken(t, b) => of(t, b).woken_ns,
            Mark::Runs(t, b) => {
                let burst = of(t, b);
                let runs = &timeline.threads[t as usize].runs;
                runs.get(burst.runs.start as usize)
                    .filter(|_| !burst.runs.is_empty())
                    .map_or(burst.end_ns, |r| r.start_ns)
            }
            Mark::Works(t, b, work_ns) => {
                let burst = of(t, b);
                let runs = timeline.threads[t as usize].runs_of(burst);
                let mut left = work_ns;
                for run in runs {
                    if left <= run.end_ns - run.start_ns {
                        return run.start_ns + left;
                    }
                    left -= run.end_ns - run.start_ns;
                }
                burst.end_ns
            }
            Mark::Ends(t, b) => of(t, b).end_ns,
        }
    }
}

/// Order of what happens at one point of a burst's work.
const ENDS_FIRST: u8 = 0;
const BEGINS: u8 = 1;
const WAKES: u8 = 2;
const ENDS_LAST: u8 = 3;

struct Entry {
    burst: BurstIx,
    at_ns: i64,
    order: u8,
    /// Of what happens to sockets, which keep their order: when it did.
    ts_ns: i64,
    deed: Deed,
}

pub(crate) struct Marks<'a> {
    timeline: &'a Timeline,
    firsts: &'a [u32],
    entries: Vec<Entry>,
    /// Requests that begin as a burst becomes due without a waker.
    due: Vec<(BurstIx, u32)>,
}

impl<'a> Marks<'a> {
    /// Starts with the wake-ups themselves.
    pub fn new(timeline: &'a Timeline, firsts: &'a [u32]) -> Self {
        let mut entries = Vec::new();
        for (thread, first) in timeline.threads.iter().zip(firsts) {
            for wake in &thread.wakes {
                let woken = &timeline.threads[wake.thread as usize].bursts[wake.burst as usize];
                let target = firsts[wake.thread as usize] + wake.burst;
                let deed = match woken.cause {
                    Cause::Fork { .. } => Deed::Fork(target),
                    _ => Deed::Wake(target),
                };
                entries.push(Entry {
                    burst: first + wake.by_burst,
                    at_ns: wake.at_work_ns,
                    order: WAKES,
                    ts_ns: 0,
                    deed,
                });
            }
        }
        Self {
            timeline,
            firsts,
            entries,
            due: Vec::new(),
        }
    }

    fn index(&self, thread: ThreadIx, burst: u32) -> BurstIx {
        self.firsts[thread as usize] + burst
    }

    fn work_ns(&self, thread: ThreadIx, burst: u32) -> i64 {
        self.timeline.threads[thread as usize].bursts[burst as usize].work_ns
    }

    fn add(&mut self, burst: BurstIx, at_ns: i64, order: u8, deed: Deed) {
        self.entries.push(Entry {
            burst,
            at_ns,
            order,
            ts_ns: 0,
            deed,
        });
    }

    /// A read or write of a socket, at its time in the recording.
    pub fn socket(&mut self, mark: Mark, ts_ns: i64, deed: Deed) {
        self.place(mark, BEGINS, deed, None);
        if let Some(entry) = self.entries.last_mut() {
            entry.ts_ns = ts_ns;
        }
    }

    pub fn begin(&mut self, request: u32, mark: Mark) {
        self.place(mark, BEGINS, Deed::Begin(request), Some(request));
    }

    pub fn end(&mut self, request: u32, mark: Mark) {
        self.place(mark, ENDS_FIRST, Deed::End(request), None);
    }

    fn place(&mut self, mark: Mark, order: u8, deed: Deed, begins: Option<u32>) {
        match mark {
            Mark::Woken(t, b) => match self.timeline.threads[t as usize].bursts[b as usize].cause {
                Cause::Thread {
                    thread,
                    burst,
                    at_work_ns,
                }
                | Cause::Fork {
                    thread,
                    burst,
                    at_work_ns,
                } => {
                    self.add(self.index(thread, burst), at_work_ns, order, deed);
                }
                _ => match begins {
                    Some(request) => self.due.push((self.index(t, b), request)),
                    None => self.add(self.index(t, b), 0, order, deed),
                },
            },
            Mark::Runs(t, b) => self.add(self.index(t, b), 0, order, deed),
            Mark::Works(t, b, at_ns) => {
                self.add(self.index(t, b), at_ns.min(self.work_ns(t, b)), order, deed)
            }
            Mark::Ends(t, b) => self.add(self.index(t, b), self.work_ns(t, b), ENDS_LAST, deed),
        }
    }

    pub fn take_due(&mut self) -> Vec<(BurstIx, u32)> {
        std::mem::take(&mut self.due)
    }

    /// All actions in order, each burst told where its own begin.
    pub fn into_actions(mut self, bursts: &mut [Burst], speeds: &[Vec<f32>]) -> Vec<Action> {
        self.entries.sort_by_key(|e| (e.burst, e.at_ns, e.order, e.ts_ns));
        let mut actions = Vec::with_capacity(self.entries.len());
        let mut entries = self.entries.iter().peekable();
        for (ix, burst) in bursts.iter_mut().enumerate() {
            burst.actions = actions.len() as u32;
            let own = ix as u32 - self.firsts[burst.thread as usize];
            let speed = f64::from(speeds[burst.thread as usize][own as usize]);
            while let Some(entry) = entries.next_if(|e| e.burst == ix as u32) {
                let at_ns = ((entry.at_ns.max(0) as f64 * speed) as u64).min(burst.work_ns);
                actions.push(Action {
                    at_ns,
                    deed: entry.deed,
                });
            }
        }
        actions
    }
}
