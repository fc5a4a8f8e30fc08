// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Screening held to what is known: workloads made in the simulator, their cpu.stat sampled as a server would, screened, and
//! compared with what the simulation itself gives under other limits.
//!
//!     cargo run --release -p plimsoll-screen --example known -- [WORKLOADS] [FIRST_SEED] [--each]
use plimsoll_screen::answer::{Labels, Series};
use plimsoll_screen::{Class, Collector, Metric, Options, Row, Thin};
use plimsoll_sim::{
    Config, GroupId, GroupSpec, Limits, Machine, Observer, Policy, Results, Simulation, TaskId, Topology,
};
use plimsoll_workload::{Arrivals, Duty, Place, Server, Spread};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rayon::prelude::*;
use std::collections::BTreeSet;

/// 33 samples at 60 s.
const SECONDS: u64 = 1_920;
const CPUS: u32 = 8;
const PERIOD_NS: u64 = 100_000_000;
const SAMPLE_NS: u64 = 15_000_000_000;

/// How many samples of 15 s make one: 15, 30 and 60 s.
const STEPS: [usize; 3] = [1, 2, 4];

/// One sample of so many at 15 s is seen by a first look: 64 and 32 of 128.
const FIRST_LOOKS: [usize; 2] = [2, 4];

/// Time, use, periods, throttled ones; ns and numbers.
type Sample = (u64, u64, u64, u64);

/// cpu.stat of one group, at every 15 s.
struct Sampler {
    group: GroupId,
    since_ns: Vec<Option<u64>>,
    used_ns: u64,
    standing: BTreeSet<u32>,
    periods: u64,
    throttled: u64,
    next_ns: u64,
    samples: Vec<Sample>,
}

impl Sampler {
    fn new(group: GroupId) -> Self {
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

/// A workload by its seed: what it does does not depend on the limit.
struct Known {
    server: Option<Server>,
    duty: Option<Duty>,
    limit: f64,
}

impl Known {
    fn of(seed: u64) -> Known {
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
    fn run(&self, seed: u64, limits: (f64, u64, f64)) -> (Results, Sampler) {
        let (limit, period_ns, burst_s) = limits;
        let mut config = Config::new(Machine::new(Topology::flat(CPUS)), SECONDS * 1_000_000_000);
        config.seed = seed;
        config.policy = Policy::mainline();
        let mut group = GroupSpec::new("/app", GroupId::ROOT);
        group.limits = Limits {
            quota_ns: Some((limit * period_ns as f64) as u64),
            period_ns,
            burst_ns: (burst_s * 1e9) as u64,
            ..Limits::UNLIMITED
        };
        let group = config.add_group(group);
        let place = Place::new("app", group);
        if let Some(server) = &self.server {
            server.build(&place, &mut config);
        }
        if let Some(duty) = &self.duty {
            duty.build(&place, &mut config);
        }
        let mut sampler = Sampler::new(group);
        let simulation = Simulation::new(config).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let results = simulation.run(Some(&mut sampler)).expect("it goes on");
        (results, sampler)
    }
}

fn share(results: &Results) -> f64 {
    let stat = results.groups[1].stat.expect("it has a limit");
    stat.nr_throttled as f64 / stat.nr_periods.max(1) as f64
}

fn p99_ns(results: &Results) -> u64 {
    results.workloads[0].latencies[0]
        .histogram
        .value_at_quantile(0.99)
}

/// The row of a container of which every `every`-th sample was taken.
fn screened(samples: &[Sample], every: usize, limit: f64) -> Row {
    let mut collector = Collector::new(None);
    let label = |name: &str| -> Labels {
        let pairs = [
            ("__name__", name),
            ("namespace", "known"),
            ("pod", "app"),
            ("container", "app"),
            ("resource", "cpu"),
        ];
        pairs
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .into()
    };
    let at_ms = |ns: u64| 1_700_000_000_000 + (ns / 1_000_000) as i64;
    let mut take = |name: &str, value: &dyn Fn(&Sample) -> f64| {
        let points = samples.iter().step_by(every).map(|s| (at_ms(s.0), value(s)));
        let series = Series {
            labels: label(name),
            points: points.collect(),
        };
        collector.take(series, None);
    };
    take("container_cpu_usage_seconds_total", &|s| s.1 as f64 / 1e9);
    take("container_cpu_cfs_periods_total", &|s| s.2 as f64);
    take("container_cpu_cfs_throttled_periods_total", &|s| s.3 as f64);
    take("kube_pod_container_resource_limits", &|_| limit);
    collector.finish(&Options::default()).rows.remove(0)
}

/// The class of a container of which a first look sees every `every`-th stretch between two samples; `None`: it leaves a doubt.
fn at_first_look(samples: &[Sample], every: usize, limit: f64) -> Option<Class> {
    let end_ms = 1_700_000_000_000 + (samples.last()?.0 / 1_000_000) as i64;
    let mut collector = Collector::new(Some((1_700_000_000_000, end_ms)));
    let interval_ms = (SAMPLE_NS / 1_000_000) as i64;
    let thin = Thin {
        step_ms: interval_ms * every as i64,
        interval_ms,
    };
    let at_ms = |ns: u64| 1_700_000_000_000 + (ns / 1_000_000) as i64;
    let labels = || -> Labels {
        [("namespace", "known"), ("pod", "app"), ("container", "app")]
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .into()
    };
    let mut take = |metric: Metric, value: &dyn Fn(&Sample) -> f64| {
        let pairs: Vec<_> = samples.windows(2).collect();
        let looks = pairs.iter().rev().step_by(every).rev();
        let points = looks.map(|two| {
            (
                at_ms(two[1].0),
                (value(&two[1]) - value(&two[0])) * 1e9 / SAMPLE_NS as f64,
            )
        });
        let series = Series {
            labels: labels(),
            points: points.collect(),
        };
        collector.take_rates(series, metric, thin);
    };
    take(Metric::Usage, &|s| s.1 as f64 / 1e9);
    take(Metric::Periods, &|s| s.2 as f64);
    take(Metric::ThrottledPeriods, &|s| s.3 as f64);
    let mut labels = labels();
    labels.insert("resource".into(), "cpu".into());
    let points = vec![(end_ms, limit)];
    collector.take(
        Series { labels, points },
        Some("kube_pod_container_resource_limits"),
    );
    collector.flush();
    let options = Options::default();
    let sure = collector.in_doubt(&BTreeSet::new(), &options).is_empty();
    sure.then(|| collector.finish(&options).rows.remove(0).class)
}

/// What the simulation gives under one change, beside the model's estimate, low and high.
struct Compared {
    what: String,
    simulated: f64,
    bounds: (f64, f64, f64),
}

struct Outcome {
    /// Sampled at [`STEPS`].
    classes: [Class; STEPS.len()],
    /// Of every second and every fourth sample at 15 s.
    first_look: [Option<Class>; FIRST_LOOKS.len()],
    throttled: bool,
    /// Burst of one quota halves what is throttled.
    profits: bool,
    /// And takes a fifth of the 99th percentile of latency, or more.
    faster: bool,
    compared: Vec<Compared>,
    /// What was sampled is not cpu.stat: a mistake in this program.
    wrong_sampler: bool,
}

fn known(seed: u64) -> Outcome {
    let known = Known::of(seed);
    let (results, sampler) = known.run(seed, (known.limit, PERIOD_NS, 0.0));
    let stat = results.groups[1].stat.expect("it has a limit");
    let wrong = |sampled: u64, counted: u64| sampled.abs_diff(counted) > 2 + counted / 100;
    let quota_s = known.limit * PERIOD_NS as f64 / 1e9;
    let (burst, _) = known.run(seed, (known.limit, PERIOD_NS, quota_s));
    let rows = STEPS.map(|every| screened(&sampler.samples, every, known.limit));
    let now = share(&results);
    let compared = rows[1].estimates.iter().map(|(what, change, estimate)| {
        let period_ns = (change.period_s * 1e9).round() as u64;
        let (other, _) = known.run(seed, (change.limit, period_ns, change.burst_s));
        Compared {
            what: what.split(' ').next().unwrap_or_default().to_string(),
            simulated: share(&other),
            bounds: (estimate.share, estimate.low, estimate.high),
        }
    });
    let throttled = now >= Options::default().throttled_share;
    let outcome = Outcome {
        compared: compared.collect(),
        classes: std::array::from_fn(|i| rows[i].class),
        first_look: FIRST_LOOKS.map(|every| at_first_look(&sampler.samples, every, known.limit)),
        throttled,
        profits: throttled && share(&burst) <= now / 2.0,
        faster: p99_ns(&burst) as f64 <= 0.8 * p99_ns(&results) as f64,
        wrong_sampler: wrong(sampler.throttled, stat.nr_throttled) || wrong(sampler.periods, stat.nr_periods),
    };
    if std::env::args().any(|arg| arg == "--each") {
        println!(
            "{seed} limit {} now {now:.3} burst {:.3} {:?}",
            known.limit,
            share(&burst),
            rows[1].class
        );
        for c in &outcome.compared {
            println!(
                "   {}: simulated {:.4}, model {:.4} ({:.4} to {:.4})",
                c.what, c.simulated, c.bounds.0, c.bounds.1, c.bounds.2
            );
        }
    }
    outcome
}

fn main() {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--each");
    let mut number = |default: u64| {
        args.next()
            .map_or(default, |text| text.parse().expect("a whole number"))
    };
    let (nr, first) = (number(200), number(1001));
    let all: Vec<Outcome> = (first..first + nr).into_par_iter().map(known).collect();
    let count = |of: &dyn Fn(&Outcome) -> bool| all.iter().filter(|one| of(one)).count();
    println!(
        "{nr} workloads from seed {first}, {SECONDS} s each; sampled unlike cpu.stat: {}",
        count(&|o| o.wrong_sampler)
    );
    println!(
        "throttled {}; of them burst halves it in {}, and p99 falls by a fifth in {}",
        count(&|o| o.throttled),
        count(&|o| o.profits),
        count(&|o| o.profits && o.faster)
    );
    for (i, every) in STEPS.map(|every| format!("{} s", every * 15)).iter().enumerate() {
        let named = |o: &Outcome| o.classes[i] == Class::ThrottledByBursts;
        let any = |o: &Outcome| named(o) || o.classes[i] == Class::TooSmall;
        println!(
            "{every}: {} named as bursts, of which {} profit; {} profit, of which {} are named; {} called throttled that are \
             not, {} not called so that are; {} unknown",
            count(&named),
            count(&|o| named(o) && o.profits),
            count(&|o| o.profits),
            count(&|o| named(o) && o.profits),
            count(&|o| !o.throttled && any(o)),
            count(&|o| o.throttled && !any(o)),
            count(&|o| o.classes[i] == Class::Unknown),
        );
    }
    for (i, every) in FIRST_LOOKS.iter().enumerate() {
        let sure = |o: &Outcome| o.first_look[i].is_some();
        println!(
            "a first look at one of {every} samples at 15 s leaves no doubt in {}; of them {} have the class of all samples",
            count(&sure),
            count(&|o| o.first_look[i] == Some(o.classes[0]))
        );
    }
    let every: Vec<&Compared> = all.iter().flat_map(|o| &o.compared).collect();
    let kinds: BTreeSet<&str> = every.iter().map(|c| c.what.as_str()).collect();
    for kind in kinds {
        let of: Vec<&&Compared> = every.iter().filter(|c| c.what == kind).collect();
        // A share of a thousandth is a few periods of the simulated time.
        let below = of.iter().filter(|c| c.simulated < c.bounds.1 - 1e-3).count();
        let above = of.iter().filter(|c| c.simulated > c.bounds.2 + 1e-3).count();
        let mut widths: Vec<f64> = of.iter().map(|c| c.bounds.2 - c.bounds.1).collect();
        widths.sort_by(f64::total_cmp);
        println!(
            "bounds of {kind}: {} of {} contain the simulated share ({below} lie below, {above} above); median width {:.3}",
            of.len() - below - above,
            of.len(),
            widths[widths.len() / 2]
        );
    }
}
