// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A thread on its way through a trace: what it does now, and the bursts and runs that it has had.
use crate::model::{GroupIx, Owed};
use crate::timeline::{Burst, Cause, End, Run, ThreadTimeline};

/// A thread, and where it is now.
pub(crate) struct OpenThread {
    pub out: ThreadTimeline,
    pub status: Status,
    pub group: Option<GroupIx>,
    /// If it moved during the open burst.
    moved: Option<Moved>,
    /// Before its first event it may have run, unseen, since then: the beginning of the recording, or when it came
    /// to be recorded.
    pub from_ns: i64,
    /// The CPU that it runs on, or on whose queue it is or was last; `None`: not known.
    pub cpu: Option<u32>,
    /// Whether each change of its queue is among the events.
    follows_queues: bool,
    /// A wake-up that came while it was not blocked.
    pub early_wake: Option<Cause>,
    pub exiting: bool,
}

/// What an open burst did before its thread last moved.
struct Moved {
    /// Group in which it had done most until then, and its work there.
    group: Option<GroupIx>,
    most_ns: i64,
    /// All its work until then.
    work_ns: i64,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Status {
    /// No event of its own yet.
    Unseen,
    Running {
        since_ns: i64,
        cpu: u32,
    },
    Waiting,
    Blocked {
        since_ns: i64,
    },
    Dead,
}

impl OpenThread {
    /// Before its first event.
    pub fn new(
        out: ThreadTimeline,
        group: Option<GroupIx>,
        from_ns: i64,
        follows_queues: bool,
    ) -> OpenThread {
        OpenThread {
            out,
            status: Status::Unseen,
            group,
            moved: None,
            from_ns,
            cpu: None,
            follows_queues,
            early_wake: None,
            exiting: false,
        }
    }

    pub fn open_burst(&mut self, cause: Cause, woken_ns: i64) {
        let run = self.out.runs.len() as u32;
        self.out.bursts.push(Burst {
            cause,
            woken_ns,
            end_ns: woken_ns,
            work_ns: 0,
            end: End::Cut,
            group: self.group,
            queued: self.cpu.filter(|_| self.follows_queues),
            owed: None,
            runs: run..run,
            wakes: 0..0,
        });
    }

    /// It is being woken, and is on this CPU's queue.
    pub fn place_on(&mut self, cpu: u32) {
        self.cpu = Some(cpu);
        let has_run = |burst: &Burst| burst.runs.start < self.out.runs.len() as u32;
        if let (Status::Waiting, Some(burst)) = (self.status, self.out.bursts.last_mut()) {
            if !has_run(burst) {
                burst.queued = self.cpu;
            }
        }
    }

    /// It has just been woken, and is owed so much.
    pub fn is_owed(&mut self, owed: Owed) {
        if let (Status::Waiting, Some(burst)) = (self.status, self.out.bursts.last_mut()) {
            burst.owed = Some(owed);
        }
    }

    /// Its open burst, if there is one, belongs to the group in which it does most of its work: a thread that moves
    /// itself goes on in the same burst.
    pub fn move_to(&mut self, group: GroupIx, now_ns: i64) {
        let running_ns = match self.status {
            Status::Running { since_ns, .. } => Some(now_ns - since_ns),
            Status::Waiting => Some(0),
            Status::Unseen | Status::Blocked { .. } | Status::Dead => None,
        };
        if let (Some(running_ns), Some(burst)) = (running_ns, self.out.bursts.last()) {
            let work_ns = burst.work_ns + running_ns;
            let here = |before_ns| Moved {
                group: self.group,
                most_ns: work_ns - before_ns,
                work_ns,
            };
            self.moved = Some(match self.moved.take() {
                Some(moved) if work_ns - moved.work_ns < moved.most_ns => Moved { work_ns, ..moved },
                Some(moved) => here(moved.work_ns),
                None => here(0),
            });
        }
        self.group = Some(group);
    }

    /// It is on `cpu` at its first event. `since_ns`: until then another thread was there.
    pub fn first_run(&mut self, cpu: u32, since_ns: Option<i64>) {
        let from_ns = since_ns.map_or(self.from_ns, |ns| ns.max(self.from_ns));
        self.open_burst(Cause::Start, from_ns);
        self.start_running(from_ns, cpu);
    }

    pub fn start_running(&mut self, since_ns: i64, cpu: u32) {
        self.status = Status::Running { since_ns, cpu };
        self.cpu = Some(cpu);
        self.out.recorded = true;
    }

    /// It left `cpu` at about `now_ns`, and no event says so: as if it had blocked, and been woken by something unseen.
    pub fn vanish(&mut self, now_ns: i64, cpu: u32) {
        self.stop_running_on(now_ns, cpu);
        self.close_burst(
            now_ns,
            End::Blocked {
                uninterruptible: false,
            },
        );
        self.early_wake.get_or_insert(Cause::Unseen);
        self.status = Status::Blocked { since_ns: now_ns };
    }

    /// What it does from here on is not recorded.
    pub fn cut(&mut self, now_ns: i64) {
        match self.status {
            Status::Running { .. } => {
                self.stop_running(now_ns);
                self.close_burst(now_ns, End::Cut);
            }
            Status::Waiting => self.close_burst(now_ns, End::Cut),
            Status::Unseen | Status::Blocked { .. } | Status::Dead => {}
        }
        self.status = Status::Dead;
    }

    /// From when it can have run: since it was woken, or since it last had a CPU.
    pub fn ready_ns(&self) -> i64 {
        let woken_ns = self.out.bursts.last().map_or(i64::MIN, |b| b.woken_ns);
        self.out.runs.last().map_or(woken_ns, |r| r.end_ns.max(woken_ns))
    }

    pub fn stop_running(&mut self, now_ns: i64) {
        if let Status::Running { cpu, .. } = self.status {
            self.stop_running_on(now_ns, cpu);
        }
    }

    /// Ends the stretch on `cpu`: where it is seen now, if that is not where it began.
    pub fn stop_running_on(&mut self, now_ns: i64, cpu: u32) {
        let Status::Running { since_ns, .. } = self.status else {
            return;
        };
        self.out.runs.push(Run {
            start_ns: since_ns,
            end_ns: now_ns,
            cpu,
        });
        let burst = self.out.bursts.last_mut().expect("a running thread has a burst");
        burst.work_ns += now_ns - since_ns;
        burst.runs.end = self.out.runs.len() as u32;
    }

    pub fn close_burst(&mut self, now_ns: i64, end: End) {
        if let Some(burst) = self.out.bursts.last_mut() {
            (burst.end_ns, burst.end) = (now_ns, end);
            if let Some(moved) = self.moved.take() {
                burst.group = match burst.work_ns - moved.work_ns < moved.most_ns {
                    true => moved.group,
                    false => self.group,
                };
            }
        }
    }

    /// The current burst and its CPU time at `ts`, as far as it was seen to run; `None`: it has none under way.
    pub fn work_so_far(&self, ts: i64) -> Option<(u32, i64)> {
        let running_ns = match self.status {
            Status::Running { since_ns, .. } => ts - since_ns,
            Status::Waiting => 0,
            Status::Unseen | Status::Blocked { .. } | Status::Dead => return None,
        };
        let burst = self.out.bursts.last()?;
        Some((self.out.bursts.len() as u32 - 1, burst.work_ns + running_ns))
    }
}
