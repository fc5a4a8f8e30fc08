// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The counters of a simulated group, as a server that scrapes them would see them.
use crate::workload::CPUS;
use plimsoll_sim::{GroupId, Observer, TaskId};
use std::collections::BTreeSet;

pub const SAMPLE_NS: u64 = 15_000_000_000;

/// Time, use, periods, throttled ones; ns and numbers.
pub type Sample = (u64, u64, u64, u64);

/// cpu.stat of one group, at every 15 s.
pub struct Sampler {
    group: GroupId,
    since_ns: Vec<Option<u64>>,
    used_ns: u64,
    standing: BTreeSet<u32>,
    pub periods: u64,
    pub throttled: u64,
    next_ns: u64,
    pub samples: Vec<Sample>,
}

impl Sampler {
    pub fn new(group: GroupId) -> Self {
        Sampler {
            group,
            since_ns: vec![None; CPUS as usize],
            used_ns: 0,
            standing: BTreeSet::new(),
            periods: 0,
            throttled: 0,
            next_ns: 0,
            samples: Vec::new(),
        }
    }

    fn until(&mut self, now_ns: u64) {
        while self.next_ns <= now_ns {
            let at_ns = self.next_ns;
            let running = self.since_ns.iter().flatten();
            let more_ns: u64 = running.map(|since_ns| at_ns.saturating_sub(*since_ns)).sum();
            let used_ns = self.used_ns + more_ns;
            self.samples.push((at_ns, used_ns, self.periods, self.throttled));
            self.next_ns += SAMPLE_NS;
        }
    }
}

impl Observer for Sampler {
    fn run(&mut self, now_ns: u64, cpu: u32, _: TaskId, group: GroupId) {
        self.until(now_ns);
        if group == self.group {
            self.since_ns[cpu as usize] = Some(now_ns);
        }
    }
    fn stop(&mut self, now_ns: u64, cpu: u32, _: TaskId, _: plimsoll_sim::observer::Stop) {
        self.until(now_ns);
        if let Some(since_ns) = self.since_ns[cpu as usize].take() {
            self.used_ns += now_ns - since_ns;
        }
    }
    fn throttle(&mut self, now_ns: u64, group: GroupId, cpu: u32) {
        self.until(now_ns);
        if group == self.group {
            self.standing.insert(cpu);
        }
    }
    fn unthrottle(&mut self, now_ns: u64, group: GroupId, cpu: u32) {
        self.until(now_ns);
        if group == self.group {
            self.standing.remove(&cpu);
        }
    }
    /// At a period's end, before what waits is released.
    fn pool(&mut self, now_ns: u64, group: GroupId, _: i64) {
        self.until(now_ns);
        if group == self.group {
            self.periods += 1;
            self.throttled += u64::from(!self.standing.is_empty());
        }
    }
}
