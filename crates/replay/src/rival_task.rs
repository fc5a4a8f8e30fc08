// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One rival at work in the simulator. After the end of the recording, while what is left of the recorded work is done, it
//! does the same again.
use crate::program::Program;
use crate::rivals::{Demand, Want};
use plimsoll_sim::{Behaviour, Context, Step};
use std::sync::Arc;

/// A task that wants a CPU until some time looks at the clock after so much CPU time at most: by so much it may be
/// late.
const LOOK_NS: u64 = 1_000_000;
const LOOK_MIN_NS: u64 = 50_000;

pub(crate) struct RivalTask {
    program: Arc<Program>,
    rival: u32,
    next: usize,
    /// What is added to the times of the recording.
    round_ns: u64,
    /// The work of the next demand has been begun.
    works: bool,
}

impl RivalTask {
    pub fn new(program: Arc<Program>, rival: u32) -> Self {
        Self {
            program,
            rival,
            next: 0,
            round_ns: 0,
            works: false,
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
    fn next(&mut self, ctx: &mut Context) -> Step {
        let now_ns = ctx.now_ns();
        loop {
            if self.works {
                self.done();
            }
            let Demand { from_ns, want } = self.demands()[self.next];
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
