//! Headroom on a simulated machine reaches the published steady state.
use plimsoll_sim::{Config, Context, GroupId, GroupSpec, Machine, Simulation, Step, TaskSpec, Topology};

/// (main, side, idle) in percent of the machine, with `load` percent of main on every CPU.
fn steady(load: u64) -> (f64, f64, f64) {
    let nr_cpus = 8;
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
    let results = Simulation::new(config).unwrap().run(None);
    let share = |ns: u64| ns as f64 * 100.0 / (results.measured_ns as f64 * f64::from(nr_cpus));
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
