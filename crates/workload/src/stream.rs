// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stream: pairs of a sender and a receiver with a socket buffer between them (netperf TCP_STREAM).
use crate::place::{ns, Place};
use plimsoll_sim::{Config, Context, Step, WorkloadId};
use schemars::JsonSchema;
use serde::Deserialize;

/// Pairs of a sender and a receiver, one way.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Stream {
    /// Pairs. Default 1.
    #[schemars(range(min = 1, max = 100_000))]
    pub pairs: u32,
    /// CPU time of the sender for one message, in microseconds. Default 4.
    #[schemars(range(min = 0.001, max = 1e6))]
    pub send_us: f64,
    /// CPU time of the receiver for one message, in microseconds. Default 4.
    #[schemars(range(min = 0.001, max = 1e6))]
    pub receive_us: f64,
    /// Messages that the buffers between them hold. Default 40.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub buffer_messages: u32,
    /// A sender that found them full is woken at this fill, in percent. Default 33.
    #[schemars(range(min = 0, max = 99))]
    pub wake_percent: u32,
    /// Bytes of a message, for throughput. Default 16384.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub message_bytes: u32,
}

impl Default for Stream {
    fn default() -> Self {
        Stream {
            pairs: 1,
            send_us: 4.0,
            receive_us: 4.0,
            buffer_messages: 40,
            wake_percent: 33,
            message_bytes: 16_384,
        }
    }
}

impl Stream {
    /// Counter "bytes": received ones.
    pub fn build(&self, place: &Place, config: &mut Config) -> WorkloadId {
        let workload = config.add_workload(&place.name);
        let bytes = config.add_counter(workload, "bytes");
        let (send_ns, receive_ns, size) = (
            ns(self.send_us),
            ns(self.receive_us),
            u64::from(self.message_bytes),
        );
        let wake_level = self.buffer_messages * self.wake_percent / 100;
        for number in 0..self.pairs {
            let channel = config.add_channel_with(self.buffer_messages, wake_level);
            let mut ready = false;
            let sender = move |_: &mut Context| {
                ready = !ready;
                if ready {
                    Step::Compute { ns: send_ns }
                } else {
                    Step::Send { channel, value: 0 }
                }
            };
            let receiver = move |ctx: &mut Context| {
                if ctx.received().is_some() {
                    ctx.count(bytes, size);
                    Step::Compute { ns: receive_ns }
                } else {
                    Step::Receive { channel }
                }
            };
            let task = place.task(workload, "receiver", number, receiver);
            config.add_task(task);
            let task = place.task(workload, "sender", number, sender);
            config.add_task(task);
        }
        workload
    }
}
