// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What clients of one group run on one CPU, in the simulator: see `clients.rs`.
use crate::program::Program;
use plimsoll_sim::{Behaviour, ChannelId, Context, Step};

pub(crate) struct ClientTask {
    channel: ChannelId,
}

impl ClientTask {
    pub fn new(program: &Program, task: u32) -> Self {
        Self {
            channel: Self::channel_of(program, task),
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
    fn next(&mut self, ctx: &mut Context) -> Step {
        match ctx.received() {
            Some(ns) if ns > 0 => Step::Compute { ns },
            _ => Step::Receive {
                channel: self.channel,
            },
        }
    }
}
