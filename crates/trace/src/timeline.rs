// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each thread did, seen from the thread: when it was woken and by which, how much it ran, how long
//! it waited for a CPU, when it blocked. This is what replay is built on.
//!
//! A *burst* is everything between a wake-up and the next blocking point. Its work is CPU time only:
//! waiting for a CPU (a busy machine, throttling) is left out, so that it can come out differently under
//! other limits. Its cause is what must happen again before it can start.
use crate::model::{Connection, GroupIx, Owed, SocketOp, Tid};
use crate::quality::Quality;
use std::ops::Range;

/// Index into [`Timeline::threads`]. Not the thread id, which the kernel uses again.
pub type ThreadIx = u32;

/// The whole trace, thread by thread.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// The recorded window, ns on the trace's clock.
    pub start_ns: i64,
    pub end_ns: i64,
    /// In the order of their first event.
    pub threads: Vec<ThreadTimeline>,
    /// Whether sockets were recorded.
    pub has_sockets: bool,
    /// As in the header.
    pub connections: Vec<ConnectionTimeline>,
    /// In order of their ends.
    pub others: Vec<OthersRun>,
    pub quality: Quality,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ThreadTimeline {
    pub tid: Tid,
    pub tgid: Option<Tid>,
    pub comm: String,
    /// Whether its switches were recorded; `false` for a thread that only appears as a waker of others.
    pub recorded: bool,
    pub bursts: Vec<Burst>,
    /// Stretches on a CPU, of all bursts.
    pub runs: Vec<Run>,
    /// Wake-ups that it caused, of all bursts.
    pub wakes: Vec<Wake>,
    /// Times at which probes said that a request began (`true`) or ended.
    pub requests: Vec<(i64, bool)>,
}

/// One connection, from the recorded groups' end.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectionTimeline {
    pub about: Connection,
    /// In order of time.
    pub events: Vec<SocketEvent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketEvent {
    pub ts_ns: i64,
    pub op: SocketOp,
    pub bytes: u32,
    /// What did it; `None`: no recorded thread.
    pub by: Option<Moment>,
}

/// A moment of a thread's life: after so much CPU time of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub thread: ThreadIx,
    pub burst: u32,
    pub at_work_ns: i64,
}

/// A stretch in which a CPU ran threads that are not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OthersRun {
    /// Its end.
    pub end_ns: i64,
    pub run_ns: u64,
    pub cpu: u32,
    pub group: Option<GroupIx>,
    /// The last one of that group still wanted the CPU.
    pub wants_more: bool,
    /// What the first one was owed, or its group, as it took the CPU from a recorded thread; `None`: it did not, or that is not known.
    pub owed: Option<Owed>,
}

/// From a wake-up to the next blocking point.
#[derive(Clone, Debug, PartialEq)]
pub struct Burst {
    pub cause: Cause,
    /// When it became runnable; for [`Cause::Start`] when it was first seen.
    pub woken_ns: i64,
    /// When it blocked, exited or left the recorded window.
    pub end_ns: i64,
    /// CPU time between the two, ns.
    pub work_ns: i64,
    pub end: End,
    /// Group in which it did most of its work, if known.
    pub group: Option<GroupIx>,
    /// The CPU on whose queue it was put as it was woken; `None`: not known.
    pub queued: Option<u32>,
    /// What it was owed then where another group's thread ran; `None`: none did, or that is not known.
    pub owed: Option<Owed>,
    /// Into [`ThreadTimeline::runs`].
    pub runs: Range<u32>,
    /// Into [`ThreadTimeline::wakes`].
    pub wakes: Range<u32>,
}

impl Burst {
    /// Time spent runnable without a CPU, ns.
    pub fn wait_ns(&self) -> i64 {
        self.end_ns - self.woken_ns - self.work_ns
    }
}

/// What made a burst start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It was under way, or runnable, when recording began, or when its thread moved into what is recorded.
    Start,
    /// Another thread's burst, after `at_work_ns` of that burst's CPU time.
    Thread {
        thread: ThreadIx,
        burst: u32,
        at_work_ns: i64,
    },
    /// As `Thread`; the burst is the first of a new thread.
    Fork {
        thread: ThreadIx,
        burst: u32,
        at_work_ns: i64,
    },
    /// A thread that was not recorded.
    Outside { waker: Tid },
    /// A timer.
    Timer,
    /// A device, or something in interrupt context that the recorder does not tell apart.
    Interrupt,
    /// The trace does not say; counted as a doubt.
    Unseen,
}

/// How a burst ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Blocked {
        uninterruptible: bool,
    },
    Exit,
    /// Still running or runnable when recording ended, or when its thread moved out of what is recorded.
    Cut,
}

/// A stretch on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub start_ns: i64,
    pub end_ns: i64,
    pub cpu: u32,
}

/// A wake-up, seen from the waker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    /// CPU time of the waker's burst when it happened.
    pub at_work_ns: i64,
    /// The burst that it started.
    pub thread: ThreadIx,
    pub burst: u32,
    /// The waker's own burst; [`Burst::wakes`] groups by it.
    pub by_burst: u32,
}

/// One stretch of a thread's life, for plots and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Run { cpu: u32 },
    Wait,
    Blocked,
}

impl ThreadTimeline {
    /// The stretches on a CPU of one of its bursts.
    pub fn runs_of(&self, burst: &Burst) -> &[Run] {
        &self.runs[burst.runs.start as usize..burst.runs.end as usize]
    }

    /// The thread's life as a sequence without holes, from its first to its last burst.
    pub fn phases(&self) -> Vec<(Range<i64>, Phase)> {
        let mut phases = Vec::new();
        let mut push = |range: Range<i64>, phase| {
            if range.end > range.start {
                phases.push((range, phase));
            }
        };
        let mut blocked_since = None;
        for burst in &self.bursts {
            if let Some(since) = blocked_since {
                push(since..burst.woken_ns, Phase::Blocked);
            }
            let mut now = burst.woken_ns;
            for run in self.runs_of(burst) {
                push(now..run.start_ns, Phase::Wait);
                push(run.start_ns..run.end_ns, Phase::Run { cpu: run.cpu });
                now = run.end_ns;
            }
            push(now..burst.end_ns, Phase::Wait);
            blocked_since = Some(burst.end_ns);
        }
        phases
    }
}
