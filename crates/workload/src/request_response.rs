// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Request and response: pairs of a client and a server, one message each way, without end (netperf UDP_RR, tbench).
use crate::place::{ns, Place};
use plimsoll_sim::{ChannelSpec, Config, Context, Step, WorkloadId};
use rand::Rng;
use schemars::JsonSchema;
use serde::Deserialize;

/// Pairs of a client and a server that exchange one message each way.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RequestResponse {
    /// Pairs. Default 1.
    #[schemars(range(min = 1, max = 100_000))]
    pub pairs: u32,
    /// CPU time of the client for one transaction, in microseconds. Default 5.
    #[schemars(range(min = 0.001, max = 1e6))]
    pub client_us: f64,
    /// CPU time of the server for one transaction, in microseconds. Default 5.
    #[schemars(range(min = 0.001, max = 1e6))]
    pub server_us: f64,
    /// The server waits for storage or the like in every transaction, in microseconds; 0: it does not. Default 0.
    #[schemars(range(min = 0.0, max = 1e7))]
    pub server_wait_us: f64,
    /// What carries the messages. Default "pipe".
    pub channel: Wire,
    /// Clients begin at random times within this, in microseconds: they are started one after the other. Default 0.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub begin_us: f64,
}

/// What carries the messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Wire {
    /// A pipe, or a socket of the same machine without a network.
    #[default]
    Pipe,
    /// Packets of the loopback network (netperf, tbench): each counts a reference to the one route that all take.
    Loopback,
}

impl Default for RequestResponse {
    fn default() -> Self {
        RequestResponse {
            pairs: 1,
            client_us: 5.0,
            server_us: 5.0,
            server_wait_us: 0.0,
            channel: Wire::Pipe,
            begin_us: 0.0,
        }
    }
}

impl RequestResponse {
    /// Histogram "round_trip". Counter "transactions".
    pub fn build(&self, place: &Place, config: &mut Config) -> WorkloadId {
        let workload = config.add_workload(&place.name);
        let latency = config.add_latency(workload, "round_trip");
        let transactions = config.add_counter(workload, "transactions");
        let (client_ns, server_ns, wait_ns) = (
            ns(self.client_us),
            ns(self.server_us),
            (self.server_wait_us * 1e3) as u64,
        );
        for number in 0..self.pairs {
            let spec = ChannelSpec {
                loopback: self.channel == Wire::Loopback,
                ..ChannelSpec::new(1)
            };
            let (request, response) = (config.add_channel_of(spec), config.add_channel_of(spec));
            let (mut stage, mut sent_ns) = (0, 0);
            let mut begin_ns = (self.begin_us * 1e3) as u64;
            let client = move |ctx: &mut Context| {
                if begin_ns > 0 {
                    let within_ns = std::mem::take(&mut begin_ns);
                    return Step::SleepUntil {
                        at_ns: ctx.now_ns() + ctx.rng().random_range(0..=within_ns),
                    };
                }
                if ctx.received().is_some() {
                    ctx.record(latency, ctx.now_ns() - sent_ns);
                    ctx.count(transactions, 1);
                }
                stage = (stage + 1) % 3;
                match stage {
                    1 => Step::Compute { ns: client_ns },
                    2 => {
                        sent_ns = ctx.now_ns();
                        Step::Send {
                            channel: request,
                            value: 0,
                        }
                    }
                    _ => Step::Receive { channel: response },
                }
            };
            let mut stage = 0;
            let server = move |ctx: &mut Context| {
                stage = (stage + 1) % 4;
                if stage == 3 && wait_ns == 0 {
                    stage = 0;
                }
                match stage {
                    1 => Step::Receive { channel: request },
                    2 => Step::Compute { ns: server_ns },
                    3 => Step::SleepUntil {
                        at_ns: ctx.now_ns() + wait_ns,
                    },
                    _ => Step::Send {
                        channel: response,
                        value: 0,
                    },
                }
            };
            let task = place.task(workload, "server", number, server);
            config.add_task(task);
            let task = place.task(workload, "client", number, client);
            config.add_task(task);
        }
        workload
    }
}
