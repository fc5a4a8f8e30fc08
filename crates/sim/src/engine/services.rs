// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What tasks may ask of the machine while they decide on their next step.
use crate::config::{ChannelId, ChannelSpec, ConfigError, CounterId, LatencyId, TaskId, TaskSpec};
use crate::histogram::Histogram;
use rand_pcg::Pcg64;
use std::collections::BTreeMap;

/// A task that a task has started.
pub(crate) struct Spawned {
    pub task: TaskId,
    pub spec: TaskSpec,
    /// Takes over what a fork inherits from its parent.
    pub inherits: bool,
}

pub(crate) struct Services {
    pub nr_cpus: u32,
    pub recording: bool,
    pub latencies: Vec<Histogram>,
    pub counters: Vec<u64>,
    /// There is something in the next three for the engine to take over.
    pub asked: bool,
    /// What a program asked for that is not there.
    pub problem: Option<ConfigError>,
    /// Spawned and not yet taken over by the engine.
    pub spawned: Vec<Spawned>,
    /// Capacities of channels made and not yet taken over.
    pub new_channels: Vec<ChannelSpec>,
    pub nr_channels: u32,
    seed: u64,
    names: Vec<String>,
    rngs: Vec<Option<Box<Pcg64>>>,
    /// Numbers of forks that have exited, by name. A program that forks without end would otherwise use memory without
    /// end. Only a fork of the same name takes one over, so that a timeline shows both under one name.
    free: BTreeMap<String, Vec<TaskId>>,
}

impl Services {
    pub fn new(seed: u64, nr_cpus: u32, nr_latencies: usize, nr_counters: usize, nr_channels: u32) -> Self {
        Self {
            nr_cpus,
            recording: false,
            latencies: vec![Histogram::default(); nr_latencies],
            counters: vec![0; nr_counters],
            asked: false,
            problem: None,
            spawned: Vec::new(),
            new_channels: Vec::new(),
            nr_channels,
            seed,
            names: Vec::new(),
            rngs: Vec::new(),
            free: BTreeMap::new(),
        }
    }

    /// Numbers a task; its random stream is made when it first asks for it.
    pub fn register(&mut self, name: String) -> TaskId {
        self.names.push(name);
        self.rngs.push(None);
        TaskId(self.names.len() as u32 - 1)
    }

    /// The number of a fork that has exited is for the next one of its name.
    pub fn release(&mut self, task: TaskId) {
        let name = &self.names[task.0 as usize];
        match self.free.get_mut(name) {
            Some(free) => free.push(task),
            None => drop(self.free.insert(name.clone(), vec![task])),
        }
    }

    pub fn name(&self, task: TaskId) -> &str {
        &self.names[task.0 as usize]
    }

    pub fn rng(&mut self, task: TaskId) -> &mut Pcg64 {
        let (seed, name) = (self.seed, &self.names[task.0 as usize]);
        self.rngs[task.0 as usize].get_or_insert_with(|| Box::new(stream(seed, name)))
    }

    pub fn record(&mut self, latency: LatencyId, ns: u64) {
        let recording = self.recording;
        match self.latencies.get_mut(latency.0 as usize) {
            Some(histogram) if recording => histogram.record(ns),
            Some(_) => {}
            None => self.unknown("latency", latency.0, self.latencies.len()),
        }
    }

    pub fn count(&mut self, counter: CounterId, n: u64) {
        let recording = self.recording;
        match self.counters.get_mut(counter.0 as usize) {
            Some(sum) if recording => *sum += n,
            Some(_) => {}
            None => self.unknown("counter", counter.0, self.counters.len()),
        }
    }

    /// A program names what is not there: the run ends, and says so.
    #[cold]
    pub fn unknown(&mut self, what: &str, number: u32, count: usize) {
        self.refuse(ConfigError {
            what: what.to_owned(),
            value: number.to_string(),
            allowed: match count {
                0 => "none, as none was added".to_owned(),
                _ => format!("0 .. {}", count - 1),
            },
        });
    }

    /// The first problem of a step counts.
    #[cold]
    pub fn refuse(&mut self, problem: ConfigError) {
        self.asked = true;
        self.problem.get_or_insert(problem);
    }

    pub fn spawn(&mut self, spec: TaskSpec, inherits: bool) -> TaskId {
        let free = self.free.get_mut(&spec.name).filter(|_| inherits);
        let task = match free.and_then(Vec::pop) {
            Some(task) => {
                self.rngs[task.0 as usize] = None;
                task
            }
            None => self.register(spec.name.clone()),
        };
        self.asked = true;
        self.spawned.push(Spawned { task, spec, inherits });
        task
    }

    pub fn add_channel(&mut self, capacity: u32) -> ChannelId {
        if capacity == 0 {
            self.refuse(ConfigError {
                what: "channel: capacity".to_owned(),
                value: "0".to_owned(),
                allowed: format!("1 .. {}", u32::MAX),
            });
        }
        self.asked = true;
        self.new_channels.push(ChannelSpec::new(capacity.max(1)));
        self.nr_channels += 1;
        ChannelId(self.nr_channels - 1)
    }
}

/// The random stream `name` of a run: the name and the seed decide, nothing else.
pub(crate) fn stream(seed: u64, name: &str) -> Pcg64 {
    // FNV-1a, twice with different beginnings: 128 bits for the state, and the same bits in another order
    // for the sequence.
    let hash = |start: u64| {
        name.bytes().fold(start, |h, byte| {
            (h ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    };
    let high = hash(0xcbf2_9ce4_8422_2325 ^ seed);
    let low = hash(0x8422_2325_cbf2_9ce4 ^ seed.rotate_left(32));
    let state = u128::from(high) << 64 | u128::from(low);
    Pcg64::new(state, state.rotate_left(64))
}
