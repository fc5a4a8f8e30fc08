// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Screening held to what is known: workloads made in the simulator, their cpu.stat sampled as a server would, screened, and
//! compared with what the simulation itself gives under other limits; the order in which they are worth recording, with how
//! much their requests lose to the limit; whether burst helps the first REPLAYED, with what replays of a recording of them say; and the
//! class of the first PLANS of these, with what follows from a plan.
//!
//!     cargo run --release -p plimsoll-screen --example known -- [WORKLOADS] [FIRST_SEED] [REPLAYED] [PLANS] [--each]
mod planned;
mod ranking;
mod sampler;
mod screened;
mod workload;

use planned::{planned, replayed, Planned};
use plimsoll_screen::{Class, Options};
use plimsoll_sim::observer::NoObserver;
use plimsoll_sim::{Limits, Results};
use rayon::prelude::*;
use screened::{at_first_look, screened};
use std::collections::{BTreeMap, BTreeSet};
use workload::{Known, PERIOD_NS, SECONDS};

/// How many samples of 15 s make one: 15, 30 and 60 s.
const STEPS: [usize; 3] = [1, 2, 4];

/// One sample of so many at 15 s is seen by a first look: 64 and 32 of 128.
const FIRST_LOOKS: [usize; 2] = [2, 4];

/// Workloads of which `screen` names ten to be recorded.
const FLEET: usize = 100;

fn share(results: &Results) -> f64 {
    let stat = results.groups[1].stat.expect("it has a limit");
    stat.nr_throttled as f64 / stat.nr_periods.max(1) as f64
}

fn p99_ns(results: &Results) -> u64 {
    results.workloads[0].latencies[0]
        .histogram
        .value_at_quantile(0.99)
}

/// Seconds that requests lose to their limit, in each second.
fn lost(limited: &Results, unlimited: &Results) -> f64 {
    let mean_ns = |results: &Results| results.workloads[0].latencies[0].histogram.mean();
    let requests = limited.workloads[0].latencies[0].histogram.len() as f64;
    (mean_ns(limited) - mean_ns(unlimited)).max(0.0) / 1e9 * requests / SECONDS as f64
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
    /// By which `screen` chooses what is worth recording; 0: it is not called throttled.
    worth: f64,
    lost: f64,
    /// `None`: not among those that are replayed.
    replayed: Option<Result<Replay, String>>,
    /// What was sampled is not cpu.stat: a mistake in this program.
    wrong_sampler: bool,
}

struct Replay {
    holds: bool,
    profits: bool,
    /// `None`: not among those that are planned.
    planned: Option<Result<Planned, String>>,
}

fn known(seed: u64, replays: bool, plans: bool) -> Outcome {
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
    let unlimited = known.watched(seed, Limits::UNLIMITED, SECONDS, &mut NoObserver);
    let outcome = Outcome {
        compared: compared.collect(),
        worth: rows[1].worth_recording(),
        lost: lost(&results, &unlimited),
        replayed: replays.then(|| {
            let replayed = replayed(&known, seed)?;
            Ok(Replay {
                holds: replayed.holds,
                profits: replayed.profits,
                planned: plans.then(|| planned(&known, &replayed, rows[1].throttled_share)),
            })
        }),
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
    let (nr, first, replays, plans) = (number(200), number(1001), number(0), number(0));
    let all: Vec<Outcome> = (first..first + nr)
        .into_par_iter()
        .map(|seed| known(seed, seed < first + replays, seed < first + plans))
        .collect();
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
    order(&all);
    if replays > 0 {
        beside_replays(&all);
    }
    if plans > 0 {
        beside_plan(&all);
    }
}

/// How well the order of what is worth recording is that of what requests lose.
fn order(all: &[Outcome]) {
    for (what, of) in [
        ("throttled", None),
        ("called bursts", Some(Class::ThrottledByBursts)),
    ] {
        let called = |o: &&Outcome| o.worth > 0.0 && of.is_none_or(|class| o.classes[1] == class);
        let pairs: Vec<(f64, f64)> = all.iter().filter(called).map(|o| (o.worth, o.lost)).collect();
        let fleets: Vec<(f64, f64)> = all
            .chunks(FLEET)
            .map(|fleet| {
                let pairs: Vec<_> = fleet.iter().filter(called).map(|o| (o.worth, o.lost)).collect();
                ranking::first_hold(&pairs, 10)
            })
            .collect();
        let mean = |side: fn(&(f64, f64)) -> f64| fleets.iter().map(side).sum::<f64>() / fleets.len() as f64;
        println!(
            "order of the {} {what}: correlation with what requests lose {:.2}; of that the ten first of {FLEET} workloads hold \
             {:.0}% on average, the ten largest {:.0}%",
            pairs.len(),
            ranking::correlation(&pairs),
            100.0 * mean(|hold| hold.0),
            100.0 * mean(|hold| hold.1)
        );
    }
}

fn without_name(why: &str) -> &str {
    let what = why.split_once(": ").map_or(why, |(_, what)| what);
    what.split(';').next().unwrap_or_default()
}

fn beside_replays(all: &[Outcome]) {
    let of: Vec<(&Outcome, &Result<Replay, String>)> = all
        .iter()
        .filter_map(|o| Some((o, o.replayed.as_ref()?)))
        .collect();
    let mut refused = BTreeMap::new();
    for why in of.iter().filter_map(|(_, replayed)| replayed.as_ref().err()) {
        *refused.entry(without_name(why)).or_insert(0) += 1;
    }
    for (why, nr) in refused {
        println!("no replay of {nr}: {why}");
    }
    for held in [true, false] {
        let of = of
            .iter()
            .filter_map(|(o, replayed)| Some((o, replayed.as_ref().ok()?)));
        let of: Vec<_> = of.filter(|(_, replayed)| replayed.holds || !held).collect();
        let named = |o: &Outcome| o.classes[1] == Class::ThrottledByBursts;
        let count = |is: &dyn Fn(&Outcome, &Replay) -> bool| of.iter().filter(|(o, r)| is(o, r)).count();
        println!(
            "{} whose replays {}: named as bursts {}, burst halves it in the replays of {}, both {}",
            of.len(),
            if held { "hold" } else { "hold or not" },
            count(&|o, _| named(o)),
            count(&|_, r| r.profits),
            count(&|o, r| named(o) && r.profits),
        );
    }
}

fn beside_plan(all: &[Outcome]) {
    let of = all.iter().filter_map(|o| {
        let replay = o.replayed.as_ref()?.as_ref().ok()?;
        Some((o, replay.holds, replay.planned.as_ref()?))
    });
    let (mut classes, mut refused) = (BTreeMap::new(), BTreeMap::new());
    let mut pairs = Vec::new();
    for (outcome, holds, planned) in of {
        match planned {
            Ok(plan) => {
                *classes
                    .entry((holds, outcome.classes[1], plan.class))
                    .or_insert(0) += 1;
                if outcome.worth > 0.0 && holds {
                    pairs.push((outcome.worth, plan.gain_ns));
                }
            }
            Err(why) => *refused.entry(without_name(why)).or_insert(0) += 1,
        }
    }
    for ((holds, screen, plan), nr) in &classes {
        let same = if screen == plan { "" } else { ", differs" };
        println!(
            "replays hold {holds}: screen {:?}, plan {:?}: {nr}{same}",
            screen.name(),
            plan.name()
        );
    }
    for (why, nr) in refused {
        println!("no plan of {nr}: {why}");
    }
    let count = |is: &dyn Fn(Class, Class) -> bool| -> u32 {
        let held = classes
            .iter()
            .filter(|((holds, screen, plan), _)| *holds && is(*screen, *plan));
        held.map(|(_, nr)| nr).sum()
    };
    let bursts = Class::ThrottledByBursts;
    println!(
        "where replays hold: {} of {} in the class of plan; named as bursts {}, of which plan says so of {}; plan says so of {}",
        count(&|screen, plan| screen == plan),
        count(&|_, _| true),
        count(&|screen, _| screen == bursts),
        count(&|screen, plan| screen == bursts && plan == bursts),
        count(&|_, plan| plan == bursts),
    );
    println!(
        "order of {} by what plan gains of the 99th percentile: correlation {:.2}",
        pairs.len(),
        ranking::correlation(&pairs)
    );
}
