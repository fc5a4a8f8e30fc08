// SPDX-License-Identifier: Apache-2.0 OR MIT
//! hackbench: groups of senders and receivers that exchange small messages, all to all.
//!
//! Each of `fds` senders of a group writes `loops` messages to each of `fds` receivers, in turn; each receiver reads
//! `fds * loops`. A receiver has one pipe or socket that all senders of its group share. A full one blocks the
//! senders; they are woken when it has drained to `wake_percent`, as the kernel's sockets do it, or, for a pipe, when
//! there is room for a page.
use crate::place::Place;
use plimsoll_sim::{Behaviour, ChannelId, ChannelSpec, Config, Context, CounterId, Step, WorkloadId};
use rand::Rng;
use schemars::JsonSchema;
use serde::Deserialize;

/// hackbench: groups of senders and receivers.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Hackbench {
    /// Groups (-g). Default 10.
    #[schemars(range(min = 1, max = 10_000))]
    pub groups: u32,
    /// Senders of a group, and receivers of a group (-f). Default 20.
    #[schemars(range(min = 1, max = 1000))]
    pub fds: u32,
    /// Messages from each sender to each receiver (-l); 0: without end. Default 100.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub loops: u32,
    /// Processes, or threads of one process (-P, -T). Threads switch cheaper. Default "process".
    pub mode: Mode,
    /// Sockets, or pipes (-p). Default "socket".
    pub channel: Transport,
    /// CPU time of a sender for one message, in microseconds, on top of what the machine needs for any message. Default
    /// 0.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub send_us: f64,
    /// CPU time of a receiver for one message, in microseconds, on top of what the machine needs for any message. Default
    /// 0.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub receive_us: f64,
    /// Messages that one socket or pipe holds. Default: by `channel`, for messages of 100 bytes.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub buffer_messages: Option<u32>,
    /// Senders begin at random times within this, in microseconds: they are forked one after the other. Receivers begin
    /// at once. Default 0.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub begin_us: f64,
    /// Senders that found it full are woken when it is filled to no more than this share, in percent. Default: by
    /// `channel`.
    #[schemars(range(min = 0, max = 99))]
    pub wake_percent: Option<u32>,
}

/// Whether tasks share their memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    #[default]
    Process,
    Thread,
}

/// What carries the messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    #[default]
    Socket,
    Pipe,
}

impl Default for Hackbench {
    fn default() -> Self {
        Hackbench {
            groups: 10,
            fds: 20,
            loops: 100,
            mode: Mode::Process,
            channel: Transport::Socket,
            send_us: 0.0,
            receive_us: 0.0,
            buffer_messages: None,
            begin_us: 0.0,
            wake_percent: None,
        }
    }
}

impl Hackbench {
    /// Messages that a socket or pipe holds. A socket's send buffer of 212,992 bytes is charged 768 bytes for a
    /// message of 100; a pipe's 16 pages are filled with messages of 100 bytes, 40 to a page.
    pub fn capacity(&self) -> u32 {
        self.buffer_messages.unwrap_or(match self.channel {
            Transport::Socket => 212_992 / 768,
            Transport::Pipe => 16 * 40,
        })
    }

    /// What of a message the receiver fetches from where it was written: its 100 bytes, of a pipe. What a socket's buffer
    /// takes on top is in the machine's cost of receiving, which is fitted to sockets.
    fn lines(&self) -> u8 {
        match self.channel {
            Transport::Socket => 0,
            Transport::Pipe => 2,
        }
    }

    /// Fill at which senders are woken: sockets wake them at a quarter, pipes as a page becomes free.
    pub fn wake_level(&self) -> u32 {
        let percent = self.wake_percent.unwrap_or(match self.channel {
            Transport::Socket => 25,
            Transport::Pipe => 93,
        });
        self.capacity() * percent / 100
    }
}

impl Hackbench {
    /// Counter "messages": received ones.
    pub fn build(&self, place: &Place, config: &mut Config) -> WorkloadId {
        let workload = config.add_workload(&place.name);
        let messages = config.add_counter(workload, "messages");
        let left = if self.loops == 0 {
            u64::MAX
        } else {
            u64::from(self.loops) * u64::from(self.fds)
        };
        for group in 0..self.groups {
            let channels: Vec<ChannelId> = (0..self.fds)
                .map(|_| {
                    config.add_channel_of(ChannelSpec {
                        wake_level: self.wake_level(),
                        lines: self.lines(),
                        ..ChannelSpec::new(self.capacity())
                    })
                })
                .collect();
            for (number, &channel) in (group * self.fds..).zip(&channels) {
                let receiver = Receiver {
                    channel,
                    left,
                    work_ns: (self.receive_us * 1e3) as u64,
                    messages,
                };
                let mut task = place.task(workload, "receiver", number, receiver);
                task.address_space = self.address_space(number * 2);
                config.add_task(task);
            }
            for number in group * self.fds..(group + 1) * self.fds {
                let sender = Sender {
                    channels: channels.clone(),
                    turn: 0,
                    left,
                    work_ns: (self.send_us * 1e3) as u64,
                    begin_ns: (self.begin_us * 1e3) as u64,
                    worked: false,
                };
                let mut task = place.task(workload, "sender", number, sender);
                task.address_space = self.address_space(number * 2 + 1);
                config.add_task(task);
            }
        }
        workload
    }

    fn address_space(&self, number: u32) -> u32 {
        match self.mode {
            Mode::Process => number + 1,
            Mode::Thread => 0,
        }
    }
}

struct Sender {
    channels: Vec<ChannelId>,
    turn: usize,
    left: u64,
    work_ns: u64,
    /// Still to be forked, within this time.
    begin_ns: u64,
    worked: bool,
}

impl Behaviour for Sender {
    fn next(&mut self, ctx: &mut Context) -> Step {
        if self.begin_ns > 0 {
            let within_ns = std::mem::take(&mut self.begin_ns);
            return Step::SleepUntil {
                at_ns: ctx.now_ns() + ctx.rng().random_range(0..=within_ns),
            };
        }
        if self.left == 0 {
            return Step::Exit;
        }
        if self.work_ns > 0 && !self.worked {
            self.worked = true;
            return Step::Compute { ns: self.work_ns };
        }
        self.worked = false;
        self.left -= 1;
        let channel = self.channels[self.turn];
        self.turn += 1;
        if self.turn == self.channels.len() {
            self.turn = 0;
        }
        Step::Send { channel, value: 0 }
    }
}

struct Receiver {
    channel: ChannelId,
    left: u64,
    work_ns: u64,
    messages: CounterId,
}

impl Behaviour for Receiver {
    fn next(&mut self, ctx: &mut Context) -> Step {
        if ctx.received().is_some() {
            ctx.count(self.messages, 1);
            self.left -= 1;
            if self.work_ns > 0 {
                return Step::Compute { ns: self.work_ns };
            }
        }
        if self.left == 0 {
            return Step::Exit;
        }
        Step::Receive {
            channel: self.channel,
        }
    }
}
