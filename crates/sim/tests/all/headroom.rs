// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Headroom on a simulated machine reaches the published steady state.
use plimsoll_sim::observer::Observer;
use plimsoll_sim::{Config, Context, GroupId, GroupSpec, Machine, Simulation, Step, TaskSpec, Topology};
use std::collections::BTreeSet;

const NR_CPUS: u32 = 8;

/// Main with `load` percent on every CPU, and a side that wants all that is left.
fn main_and_side(load: u64) -> Config {
    let nr_cpus = NR_CPUS;
    let mut config = Config::new(Machine::new(Topology::flat(nr_cpus)), 3_000_000_000);
    config.warmup_ns = 1_000_000_000;
    let mut main = GroupSpec::new("/main", GroupId::ROOT);
    main.headroom_percent = 30;
    let main = config.add_group(main);
    let mut side = GroupSpec::new("/side", GroupId::ROOT);
    side.cpu_weight = 1;
    let side = config.add_group(side);
    let workload = config.add_workload("w");
    for i in 0..nr_cpus {
        let (mut busy, mut release_ns) = (false, 0);
        let duty = move |_: &mut Context| {
            busy = !busy;
            if busy {
                release_ns += 2_000_000;
                Step::Compute { ns: load * 20_000 }
            } else {
                Step::SleepUntil { at_ns: release_ns }
            }
        };
        config.add_task(TaskSpec::new(main, workload, format!("main{i}"), duty));
        let spin = |_: &mut Context| Step::Compute { ns: 1_000_000 };
        config.add_task(TaskSpec::new(side, workload, format!("side{i}"), spin));
    }
    config
}

/// (main, side, idle) in percent of the machine.
fn steady(load: u64) -> (f64, f64, f64) {
    let results = Simulation::new(main_and_side(load)).unwrap().run(None).unwrap();
    let share = |ns: u64| ns as f64 * 100.0 / (results.measured_ns as f64 * f64::from(NR_CPUS));
    let idle: u64 = results.cpus.iter().map(|cpu| cpu.idle_ns).sum();
    (
        share(results.groups[1].usage_ns),
        share(results.groups[2].usage_ns),
        share(idle),
    )
}

#[test]
fn side_gets_what_main_and_the_headroom_leave() {
    for (load, side_wanted, idle_wanted) in [(30, 40.0, 30.0), (50, 20.0, 30.0), (70, 1.0, 29.0)] {
        let (main, side, idle) = steady(load);
        assert!(
            (side - side_wanted).abs() < 2.0 && (idle - idle_wanted).abs() < 2.0,
            "load {load}: main {main:.1} side {side:.1} idle {idle:.1}"
        );
    }
}

/// When and where the side was throttled and released: its number is the one after the last group's.
#[derive(Default)]
struct Side {
    throttled: BTreeSet<u32>,
    throttlings: u32,
    releases: u32,
    twice: u32,
}

impl Observer for Side {
    fn throttle(&mut self, _: u64, group: GroupId, cpu: u32) {
        if group == GroupId(3) {
            self.throttlings += 1;
            self.twice += u32::from(!self.throttled.insert(cpu));
        }
    }

    fn unthrottle(&mut self, _: u64, group: GroupId, cpu: u32) {
        if group == GroupId(3) {
            self.releases += u32::from(self.throttled.remove(&cpu));
        }
    }
}

#[test]
fn an_observer_sees_the_side_throttled_as_its_budget_ends_and_changes_nothing() {
    let mut side = Side::default();
    let seen = Simulation::new(main_and_side(50))
        .unwrap()
        .run(Some(&mut side))
        .unwrap();
    // On every CPU in every window of 100 ms at least, but for the first one.
    assert!(
        side.throttlings >= 29 * NR_CPUS,
        "{} throttlings",
        side.throttlings
    );
    let left = side.throttled.len() as u32;
    assert_eq!((side.twice, side.releases + left), (0, side.throttlings));
    let unseen = Simulation::new(main_and_side(50)).unwrap().run(None).unwrap();
    assert_eq!((seen.events, &seen.cpus), (unseen.events, &unseen.cpus));
}
