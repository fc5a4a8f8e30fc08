// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What clients of one group run on one CPU, in the simulator: see `clients.rs`.
use crate::program::Program;
use plimsoll_sim::{Behaviour, ChannelId, Choice, Context, Seat, Step};

pub(crate) struct ClientTask {
    channel: ChannelId,
    cpu: u32,
}

impl ClientTask {
    /// `cpu`: where it runs.
    pub fn new(program: &Program, task: u32, cpu: u32) -> Self {
        Self {
            channel: Self::channel_of(program, task),
            cpu,
        }
    }

    /// What a thread does as it has answered a request.
    pub fn tell(program: &Program, request: u32) -> Option<Step> {
        let (task, ns) = program.clients.answered(request)?;
        Some(Step::Send {
            channel: Self::channel_of(program, task),
            value: ns,
        })
    }

    pub fn channel(&self) -> ChannelId {
        self.channel
    }

    /// Those of threads, and of what is outside, come first.
    fn channel_of(program: &Program, task: u32) -> ChannelId {
        ChannelId(program.threads.len() as u32 + u32::from(!program.delayed.is_empty()) + task)
    }
}

impl Behaviour for ClientTask {
    /// As a rival's: where it runs is known.
    fn woken_on(&self, _: Option<u64>) -> Option<Seat> {
        Some(Seat {
            cpu: Some(self.cpu),
            waker_cpu: None,
            choice: Choice::NotIdle,
            turn: None,
            owed: None,
            took_ns: Some(0),
        })
    }

    fn next(&mut self, ctx: &mut Context) -> Step {
        match ctx.received() {
            Some(ns) if ns > 0 => Step::Compute { ns },
            _ => Step::Receive {
                channel: self.channel,
            },
        }
    }
}
