// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All that answers from outside of the recording: see `outside.rs`. Nothing of it runs on the recorded machine.
use crate::program::{Delayed, Program};
use crate::state::State;
use plimsoll_sim::{Behaviour, ChannelId, Context, Step};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

pub(crate) struct OutsideTask {
    program: Arc<Program>,
    state: Arc<State>,
    /// When, which.
    due: BinaryHeap<Reverse<(u64, u32)>>,
}

impl OutsideTask {
    pub fn new(program: Arc<Program>, state: Arc<State>) -> Self {
        let arriving = program.arriving.clone();
        let due = arriving.map(|one| Reverse((program.delayed[one as usize].after_ns, one)));
        let due = due.collect();
        Self { program, state, due }
    }

    /// How a thread asks for what comes later, one of [`Program::delayed`].
    pub fn ask(program: &Program, delayed: u32) -> Step {
        Step::Send {
            channel: Self::channel(program),
            value: u64::from(delayed),
        }
    }

    pub fn channel(program: &Program) -> ChannelId {
        ChannelId(program.threads.len() as u32)
    }
}

impl Behaviour for OutsideTask {
    fn next(&mut self, ctx: &mut Context) -> Step {
        let now_ns = ctx.now_ns();
        if let Some(asked) = ctx.received() {
            let Delayed { after_ns, .. } = self.program.delayed[asked as usize];
            self.due.push(Reverse((now_ns + after_ns, asked as u32)));
        }
        let channel = Self::channel(&self.program);
        match self.due.peek().copied() {
            Some(Reverse((due_ns, asked))) if due_ns <= now_ns => {
                self.due.pop();
                let burst = self.program.delayed[asked as usize].burst;
                self.state.wake(&self.program, burst, now_ns)
            }
            Some(Reverse((at_ns, _))) => Step::ReceiveUntil { channel, at_ns },
            None => Step::Receive { channel },
        }
    }
}
