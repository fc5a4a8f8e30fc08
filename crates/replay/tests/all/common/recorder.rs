// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records one group of a simulated machine as `plimsoll record --cgroup` records one of a real machine: the switches of its
//! threads, and of all others only what they took from each CPU. Or all of it, as without --cgroup.
use plimsoll_sim::observer::Stop;
use plimsoll_sim::{GroupId, Observer, TaskId};
use plimsoll_trace::{Context, Event, Header, State, Thread, What};

/// A turn on a CPU.
#[derive(Clone, Copy)]
struct Turn {
    task: u32,
    group: u32,
    from_ns: i64,
    to_ns: i64,
    state: State,
}

pub struct Recorder {
    header: Header,
    /// `None`: all.
    group: Option<u32>,
    turns: Vec<Vec<Turn>>,
    events: Vec<Event>,
    group_of: Vec<u32>,
}

fn tid(task: u32) -> u32 {
    task + 100
}

impl Recorder {
    /// Of the group with this index in the header, or of all, on as many CPUs as that has.
    pub fn new(header: Header, group: Option<u32>) -> Recorder {
        Recorder {
            turns: vec![Vec::new(); header.machine.cpus.len()],
            header,
            group,
            events: Vec::new(),
            group_of: Vec::new(),
        }
    }

    fn records(&self, group: u32) -> bool {
        group != u32::MAX && self.group.is_none_or(|own| own == group)
    }

    /// What was recorded until then.
    pub fn finish(mut self, end_ns: u64) -> (Header, Vec<Event>) {
        let end_ns = end_ns as i64;
        for (cpu, turns) in (0..).zip(std::mem::take(&mut self.turns)) {
            // Each turn, and what comes after it: the next one, or the idle thread.
            let mut others: Vec<Turn> = Vec::new();
            let mut last = Turn {
                task: u32::MAX,
                group: u32::MAX,
                from_ns: 0,
                to_ns: 0,
                state: State::Runnable,
            };
            for mut turn in turns {
                turn.to_ns = turn.to_ns.min(end_ns);
                if turn.from_ns > last.to_ns {
                    self.others(cpu, &mut others);
                    self.switch(last.to_ns, cpu, Some(last), None);
                    last.group = u32::MAX;
                }
                if self.records(turn.group) {
                    self.others(cpu, &mut others);
                }
                self.switch(turn.from_ns, cpu, Some(last), Some(turn));
                if !self.records(turn.group) {
                    others.push(turn);
                }
                last = turn;
            }
            self.others(cpu, &mut others);
        }
        self.header.clock.end_ns = end_ns;
        self.events.retain(|e| e.ts_ns <= end_ns);
        self.events.sort_by_key(|e| e.ts_ns);
        (self.header, self.events)
    }

    fn switch(&mut self, ts_ns: i64, cpu: u32, from: Option<Turn>, to: Option<Turn>) {
        let [from, to] = [from, to].map(|turn| turn.filter(|t| self.records(t.group)));
        if from.is_none() && to.is_none() {
            return;
        }
        let what = What::Switch {
            prev: from.map_or(0, |t| tid(t.task)),
            prev_state: from.map_or(State::Runnable, |t| t.state),
            next: to.map_or(0, |t| tid(t.task)),
        };
        self.events.push(Event { ts_ns, cpu, what });
    }

    /// A stretch of others: one event for each group in turn.
    fn others(&mut self, cpu: u32, turns: &mut Vec<Turn>) {
        for same in turns.chunk_by(|a, b| a.group == b.group) {
            let last = same[same.len() - 1];
            let what = What::Others {
                group: Some(last.group),
                run_ns: (last.to_ns - same[0].from_ns) as u64,
                state: last.state,
            };
            let ts_ns = last.to_ns;
            self.events.push(Event { ts_ns, cpu, what });
        }
        turns.clear();
    }
}

impl Observer for Recorder {
    fn task(&mut self, _now_ns: u64, task: TaskId, name: &str, group: GroupId) {
        assert_eq!(task.0 as usize, self.group_of.len());
        self.group_of.push(group.0);
        if self.records(group.0) {
            self.header.threads.push(Thread {
                tid: tid(task.0),
                tgid: Some(tid(task.0)),
                comm: name.into(),
                group: Some(group.0),
                from_ns: 0,
            });
        }
    }

    fn run(&mut self, now_ns: u64, cpu: u32, task: TaskId, group: GroupId) {
        self.turns[cpu as usize].push(Turn {
            task: task.0,
            group: group.0,
            from_ns: now_ns as i64,
            to_ns: i64::MAX,
            state: State::Runnable,
        });
    }

    fn stop(&mut self, now_ns: u64, cpu: u32, _task: TaskId, why: Stop) {
        let turn = self.turns[cpu as usize].last_mut().expect("it runs");
        turn.to_ns = now_ns as i64;
        turn.state = match why {
            Stop::Blocked => State::Sleeping,
            Stop::Exited => State::Dead,
            Stop::Preempted | Stop::Throttled => State::Runnable,
        };
    }

    fn wake(&mut self, now_ns: u64, task: TaskId, cpu: u32, _waker_cpu: u32) {
        if self.records(self.group_of[task.0 as usize]) {
            let what = What::Waking {
                tid: tid(task.0),
                waker: 0,
                context: Context::Interrupt,
            };
            let ts_ns = now_ns as i64;
            self.events.push(Event { ts_ns, cpu, what });
        }
    }
}
