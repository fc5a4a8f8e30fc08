// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When requests arrive: open loop (at a rate, whatever the server does) or closed loop (think, then ask again).
use plimsoll_sim::Machine;
use rand::Rng;
use rand_distr::{Distribution, Exp1};
use schemars::JsonSchema;
use serde::Deserialize;

/// An arrival process. Open-loop ones count the wait in a queue as latency, closed-loop ones slow down instead.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(tag = "process", rename_all = "snake_case", deny_unknown_fields)]
pub enum Arrivals {
    /// Open loop, independent arrivals: exponential gaps.
    Poisson {
        /// Requests per second, over all clients of the workload.
        #[schemars(range(min = 0.001, max = 1e8))]
        rate_per_s: f64,
    },
    /// Open loop, independent arrivals at a share of what the machine can do.
    Load {
        /// Share of the machine that the requests' work takes, in percent: of all its CPUs with every one of them busy, so
        /// that hardware threads run at the machine's `smt_percent`.
        #[schemars(range(min = 0.001, max = 1e4))]
        load_percent: f64,
    },
    /// Open loop, equal gaps.
    Fixed {
        /// Requests per second, over all clients of the workload.
        #[schemars(range(min = 0.001, max = 1e8))]
        rate_per_s: f64,
    },
    /// Open loop, `size` requests at once; gaps between bursts are exponential, or equal.
    Bursts {
        /// Requests per second, over all clients of the workload.
        #[schemars(range(min = 0.001, max = 1e8))]
        rate_per_s: f64,
        /// Requests in one burst.
        #[schemars(range(min = 1, max = 1_000_000))]
        size: u32,
        /// Equal gaps between bursts instead of exponential ones. Default false.
        #[serde(default)]
        regular: bool,
    },
    /// Closed loop: each client thinks, asks, waits for the answer. Think times are exponential.
    Closed {
        /// Mean think time of a client, in microseconds; 0 asks again at once.
        #[schemars(range(min = 0.0, max = 1e9))]
        think_us: f64,
    },
}

impl Arrivals {
    /// Whether clients wait for an answer before they ask again.
    pub fn is_closed(&self) -> bool {
        matches!(self, Arrivals::Closed { .. })
    }

    /// Whether all gaps are equal.
    pub fn is_regular(&self) -> bool {
        matches!(
            self,
            Arrivals::Fixed { .. } | Arrivals::Bursts { regular: true, .. }
        )
    }

    /// On a machine, with requests of `work_us`: a load has become a rate.
    pub(crate) fn on(&self, machine: &Machine, work_us: f64) -> Arrivals {
        let Arrivals::Load { load_percent } = *self else {
            return self.clone();
        };
        let cpus = &machine.topology.cpus;
        let shared = |core: u32| cpus.iter().filter(|place| place.core == core).count() > 1;
        let percent = |core: u32| {
            if shared(core) {
                machine.costs.smt_percent
            } else {
                100
            }
        };
        let capacity: f64 = cpus
            .iter()
            .map(|place| f64::from(percent(place.core)) / 100.0)
            .sum();
        Arrivals::Poisson {
            rate_per_s: load_percent / 100.0 * capacity * 1e6 / work_us,
        }
    }

    /// Time from one arrival (or answer, in a closed loop) of one of `clients` equal streams to its next, and how many
    /// requests arrive then. Not for a load, which becomes a rate first. The first gaps of streams with equal ones are up to
    /// the caller: all alike, they would arrive together.
    pub fn next<R: Rng + ?Sized>(&self, clients: u32, rng: &mut R) -> (u64, u32) {
        let exponential = |rng: &mut R| -> f64 { Exp1.sample(rng) };
        let gap_ns = |rate_per_s: f64, size: u32| 1e9 * f64::from(clients) * f64::from(size) / rate_per_s;
        match *self {
            Arrivals::Poisson { rate_per_s } => ((gap_ns(rate_per_s, 1) * exponential(rng)) as u64, 1),
            Arrivals::Load { .. } => unreachable!("a load is made a rate when its workload is built"),
            Arrivals::Fixed { rate_per_s } => (gap_ns(rate_per_s, 1) as u64, 1),
            Arrivals::Bursts {
                rate_per_s,
                size,
                regular,
            } => {
                let factor = if regular { 1.0 } else { exponential(rng) };
                ((gap_ns(rate_per_s, size) * factor) as u64, size)
            }
            Arrivals::Closed { think_us } => ((think_us * 1e3 * exponential(rng)) as u64, 1),
        }
    }
}

/// How run times spread around their mean.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// All equal.
    #[default]
    Fixed,
    /// Between half and one and a half of the mean, evenly.
    Uniform,
    /// Exponential: standard deviation equal to the mean.
    Exponential,
    /// Hyper-exponential: nine in ten take half the mean, one in ten five and a half of it.
    Heavy,
}

impl Spread {
    /// A run time around mean_ns; at least 1 ns.
    pub fn sample<R: Rng + ?Sized>(self, mean_ns: f64, rng: &mut R) -> u64 {
        let ns = match self {
            Spread::Fixed => mean_ns,
            Spread::Uniform => mean_ns * rng.random_range(0.5..1.5),
            Spread::Exponential => {
                let x: f64 = Exp1.sample(rng);
                mean_ns * x
            }
            Spread::Heavy => {
                let x: f64 = Exp1.sample(rng);
                let factor = if rng.random_bool(0.1) { 5.5 } else { 0.5 };
                mean_ns * factor * x
            }
        };
        (ns as u64).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_sim::{Numbering, Topology};
    use rand_pcg::Pcg64;

    fn rate(arrivals: &Arrivals, clients: u32) -> f64 {
        let mut rng = Pcg64::new(1, 2);
        let (mut ns, mut requests) = (0u64, 0u64);
        for _ in 0..20_000 {
            let (gap_ns, size) = arrivals.next(clients, &mut rng);
            ns += gap_ns;
            requests += u64::from(size);
        }
        requests as f64 * f64::from(clients) / (ns as f64 / 1e9)
    }

    #[test]
    fn open_loops_keep_the_rate_asked_for() {
        for arrivals in [
            Arrivals::Poisson { rate_per_s: 500.0 },
            Arrivals::Fixed { rate_per_s: 500.0 },
            Arrivals::Bursts {
                rate_per_s: 500.0,
                size: 8,
                regular: true,
            },
            Arrivals::Bursts {
                rate_per_s: 500.0,
                size: 8,
                regular: false,
            },
        ] {
            for clients in [1, 7] {
                let got = rate(&arrivals, clients);
                assert!(
                    (got / 500.0 - 1.0).abs() < 0.03,
                    "{arrivals:?} with {clients} clients: {got}"
                );
            }
        }
    }

    /// Two cores of two threads each at 45%, asked for half of 1.8 CPUs: 0.9 / 0.002 s.
    #[test]
    fn a_load_is_a_share_of_what_the_machine_can_do() {
        let mut machine = Machine::new(Topology::regular(1, 1, 1, 2, 2, Numbering::SiblingsLast));
        machine.costs.smt_percent = 45;
        let load = Arrivals::Load { load_percent: 50.0 };
        let rate_of = |machine: &Machine| match load.on(machine, 2000.0) {
            Arrivals::Poisson { rate_per_s } => rate_per_s,
            other => panic!("{other:?}"),
        };
        assert!((rate_of(&machine) - 450.0).abs() < 1e-6);
        machine.topology = Topology::flat(4);
        assert!((rate_of(&machine) - 1000.0).abs() < 1e-6, "no CPU has a sibling");
        let fixed = Arrivals::Fixed { rate_per_s: 7.0 };
        assert_eq!(fixed.on(&machine, 2000.0), fixed);
    }

    #[test]
    fn every_spread_keeps_its_mean() {
        let mut rng = Pcg64::new(1, 2);
        for spread in [Spread::Fixed, Spread::Uniform, Spread::Exponential, Spread::Heavy] {
            let n = 100_000;
            let sum: u64 = (0..n).map(|_| spread.sample(10_000.0, &mut rng)).sum();
            let mean = sum as f64 / f64::from(n);
            assert!((mean / 10_000.0 - 1.0).abs() < 0.03, "{spread:?}: {mean}");
        }
    }
}
