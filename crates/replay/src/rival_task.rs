// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One rival at work in the simulator. After the end of the recording, while what is left of the recorded work is done, it
//! does the same again.
use crate::program::Program;
use crate::rivals::{Demand, Want};
use plimsoll_sim::{Behaviour, Choice, Context, Seat, Step};
use std::sync::Arc;

/// A task that wants a CPU until some time looks at the clock after so much CPU time at most: by so much it may be
/// late.
const LOOK_NS: u64 = 1_000_000;
const LOOK_MIN_NS: u64 = 50_000;

pub(crate) struct RivalTask {
    program: Arc<Program>,
    rival: u32,
    /// Where it runs.
    cpu: u32,
    next: usize,
    /// What is added to the times of the recording.
    round_ns: u64,
    /// The work of the next demand has been begun.
    works: bool,
    /// What the recorded kernel owed whom counts.
    has_seats: bool,
}

impl RivalTask {
    pub fn new(program: Arc<Program>, rival: u32, cpu: u32, has_seats: bool) -> Self {
        Self {
            program,
            rival,
            cpu,
            next: 0,
            round_ns: 0,
            works: false,
            has_seats,
        }
    }

    fn demands(&self) -> &[Demand] {
        &self.program.rivals[self.rival as usize].demands
    }

    fn done(&mut self) {
        self.works = false;
        self.next += 1;
        if self.next == self.demands().len() {
            self.next = 0;
            self.round_ns += self.program.duration_ns.max(1);
        }
    }
}

impl Behaviour for RivalTask {
    /// When it ran is known, not when it was woken: its CPU was back from idle by then.
    ///
    /// Where it took the CPU from a recorded thread it is owed what it was then. A client of a hundred times the weight comes and goes so
    /// often that its lag stands at its bound: it leaves while it is still owed time, and whom it interrupted goes on.
    fn woken_on(&self, _: Option<u64>) -> Option<Seat> {
        Some(Seat {
            cpu: Some(self.cpu),
            waker_cpu: None,
            choice: Choice::NotIdle,
            turn: None,
            owed: self.demands()[self.next].owed.filter(|_| self.has_seats),
            took_ns: Some(0),
        })
    }

    fn next(&mut self, ctx: &mut Context) -> Step {
        let now_ns = ctx.now_ns();
        loop {
            if self.works {
                self.done();
            }
            let Demand { from_ns, want, .. } = self.demands()[self.next];
            let at_ns = from_ns + self.round_ns;
            if at_ns > now_ns {
                return Step::SleepUntil { at_ns };
            }
            match want {
                Want::Work(ns) => {
                    self.works = true;
                    return Step::Compute { ns };
                }
                Want::Until(to_ns) => {
                    let left_ns = (to_ns + self.round_ns).saturating_sub(now_ns);
                    if left_ns > 0 {
                        let ns = (left_ns / 2).clamp(LOOK_MIN_NS, LOOK_NS);
                        return Step::Compute { ns };
                    }
                    self.done();
                }
            }
        }
    }
}
