// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Workloads that are made from seeds, and simulated.
use crate::sampler::Sampler;
use plimsoll_sim::{
    Config, GroupId, GroupSpec, Limits, Machine, Observer, Policy, Results, Simulation, Topology,
};
use plimsoll_workload::{Arrivals, Duty, Place, Server, Spread};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// 33 samples at 60 s.
pub const SECONDS: u64 = 1_920;
pub const CPUS: u32 = 8;
pub const PERIOD_NS: u64 = 100_000_000;
/// What is limited.
pub const PATH: &str = "/app";
pub const GROUP: GroupId = GroupId(1);

/// A workload by its seed: what it does does not depend on the limit.
pub struct Known {
    server: Option<Server>,
    duty: Option<Duty>,
    /// CPUs.
    pub limit: f64,
}

impl Known {
    pub fn of(seed: u64) -> Known {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let spreads = [Spread::Fixed, Spread::Uniform, Spread::Exponential, Spread::Heavy];
        let limit = [0.25, 0.5, 1.0, 2.0, 4.0][random.random_range(0..5)];
        let rho: f64 = random.random_range(0.05..1.05);
        // 2 to 200 ms of CPU time.
        let work_us: f64 = 10f64.powf(random.random_range(3.3..5.3));
        let used = limit * rho;
        let kind = random.random_range(0..4);
        let duty = (kind == 3).then(|| {
            let threads = random.random_range(1..=4);
            Duty {
                threads,
                work_us,
                interval_us: f64::from(threads) * work_us / used,
                stagger_us: [0.0, 777.0][random.random_range(0..2)],
                ..Duty::default()
            }
        });
        let rate_per_s = used * 1e6 / work_us;
        let server = (kind < 3).then(|| Server {
            workers: random.random_range(1..=16),
            arrivals: match kind {
                0 => Arrivals::Poisson { rate_per_s },
                1 => Arrivals::Bursts {
                    rate_per_s,
                    size: random.random_range(2..=16),
                    regular: false,
                },
                _ => Arrivals::Fixed { rate_per_s },
            },
            work_us,
            spread: spreads[random.random_range(0..4)],
            ..Server::default()
        });
        Known { server, duty, limit }
    }

    /// `limits`: CPUs, period in ns, burst in seconds.
    pub fn run(&self, seed: u64, limits: (f64, u64, f64)) -> (Results, Sampler) {
        let mut sampler = Sampler::new(GROUP);
        let results = self.watched(seed, of(limits), SECONDS, &mut sampler);
        (results, sampler)
    }

    /// Under other limits, or for another time.
    pub fn watched(&self, seed: u64, limits: Limits, seconds: u64, observer: &mut dyn Observer) -> Results {
        let mut config = Config::new(Machine::new(Topology::flat(CPUS)), seconds * 1_000_000_000);
        config.seed = seed;
        config.policy = Policy::mainline();
        let mut group = GroupSpec::new(PATH, GroupId::ROOT);
        group.limits = limits;
        let group = config.add_group(group);
        assert_eq!(group, GROUP);
        let place = Place::new("app", group);
        if let Some(server) = &self.server {
            server.build(&place, &mut config);
        }
        if let Some(duty) = &self.duty {
            duty.build(&place, &mut config);
        }
        let simulation = Simulation::new(config).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        simulation.run(Some(observer)).expect("it goes on")
    }
}

/// CPUs, period in ns, burst in seconds.
pub fn of((limit, period_ns, burst_s): (f64, u64, f64)) -> Limits {
    Limits {
        quota_ns: Some((limit * period_ns as f64) as u64),
        period_ns,
        burst_ns: (burst_s * 1e9) as u64,
        ..Limits::UNLIMITED
    }
}
