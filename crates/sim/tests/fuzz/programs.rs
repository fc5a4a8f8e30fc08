// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random tasks: spinners, duty cycles, pairs that talk, spawners, those that yield, some from another machine.
use super::{cpus, MS, US};
use plimsoll_sim::{Behaviour, ChannelId, Config, Context, CounterId, GroupId, Step, TaskSpec, WorkloadId};
use rand::seq::IndexedRandom;
use rand::Rng;
use rand_pcg::Pcg64;

pub fn spinner(group: GroupId, workload: WorkloadId, name: String) -> TaskSpec {
    TaskSpec::new(group, workload, name, |_: &mut Context| Step::Compute {
        ns: u64::MAX,
    })
}

/// Every step is drawn; `steps` of them, then it exits.
struct Random {
    group: GroupId,
    workload: WorkloadId,
    channels: Vec<ChannelId>,
    sent: CounterId,
    received: CounterId,
    steps: u32,
    may_spawn: bool,
}

impl Behaviour for Random {
    fn next(&mut self, ctx: &mut Context) -> Step {
        if ctx.received().is_some() {
            ctx.count(self.received, 1);
        }
        if self.steps == 0 {
            return Step::Exit;
        }
        self.steps -= 1;
        let now_ns = ctx.now_ns();
        let draw = ctx.rng().random_range(0..100);
        let long_ns = ctx.rng().random_range(0..20 * MS);
        let short_ns = ctx.rng().random_range(0..200 * US);
        let channel = *self.channels.choose(ctx.rng()).expect("there are channels");
        match draw {
            0..=29 => Step::Compute { ns: short_ns },
            30..=44 => Step::Compute { ns: long_ns },
            45..=59 => Step::SleepUntil {
                at_ns: now_ns + short_ns,
            },
            60..=64 => Step::SleepUntil {
                at_ns: now_ns + long_ns,
            },
            65..=79 => {
                // Counted as it is sent or waits to be: the sums allow for what is on its way.
                ctx.count(self.sent, 1);
                Step::Send {
                    channel,
                    value: now_ns,
                }
            }
            80..=94 => Step::ReceiveUntil {
                channel,
                at_ns: now_ns + long_ns,
            },
            95..=96 if self.may_spawn => {
                let child = Random {
                    channels: self.channels.clone(),
                    steps: self.steps.min(20),
                    may_spawn: false,
                    ..*self
                };
                let name = format!("child{now_ns}");
                let child = TaskSpec::new(self.group, self.workload, name, child);
                if now_ns % 2 == 0 {
                    ctx.spawn(child);
                } else {
                    ctx.fork(child);
                }
                Step::Compute { ns: short_ns }
            }
            _ => Step::Yield,
        }
    }
}

pub fn add(rng: &mut Pcg64, config: &mut Config, groups: &[GroupId]) {
    let nr_cpus = config.machine.topology.nr_cpus();
    let workload = config.add_workload("w");
    let sent = config.add_counter(workload, "sent");
    let received = config.add_counter(workload, "received");
    let channels: Vec<ChannelId> = (0..rng.random_range(1..=4))
        .map(|_| {
            let capacity = rng.random_range(1..=16);
            config.add_channel_with(capacity, rng.random_range(0..capacity))
        })
        .collect();
    for i in 0..rng.random_range(1..=16) {
        let group = *groups.choose(rng).expect("the root is there");
        let name = format!("t{i}");
        let mut task = match rng.random_range(0..4) {
            0 => spinner(group, workload, name),
            1 => {
                let (period_ns, percent) = (rng.random_range(MS..100 * MS), rng.random_range(1..100));
                let (mut release_ns, mut works) = (0, false);
                TaskSpec::new(group, workload, name, move |_: &mut Context| {
                    works = !works;
                    if works {
                        release_ns += period_ns;
                        Step::Compute {
                            ns: period_ns / 100 * percent,
                        }
                    } else {
                        Step::SleepUntil { at_ns: release_ns }
                    }
                })
            }
            _ => {
                let program = Random {
                    group,
                    workload,
                    channels: channels.clone(),
                    sent,
                    received,
                    steps: rng.random_range(10..2000),
                    may_spawn: rng.random(),
                };
                let mut task = TaskSpec::new(group, workload, name, program);
                task.external = rng.random_ratio(1, 10);
                task
            }
        };
        task.nice = if rng.random() {
            0
        } else {
            rng.random_range(-20..=19)
        };
        task.idle = rng.random_ratio(1, 12);
        task.start_ns = if rng.random() {
            0
        } else {
            rng.random_range(0..config.duration_ns)
        };
        if rng.random_ratio(1, 4) {
            task.affinity = Some(cpus(rng, nr_cpus));
        }
        config.add_task(task);
    }
}
