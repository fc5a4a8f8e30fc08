//! Groups get what their weights say, however their tasks sleep.
use plimsoll_sim::{Config, Context, GroupId, GroupSpec, Machine, Simulation, Step, TaskSpec, Topology};

const DURATION_NS: u64 = 10_000_000_000;

/// One CPU, two groups of equal weight. One has a spinner; the other a spinner of `nice`, and tasks that compute for
/// `work_ns` and sleep for `sleep_ns`. Returns the first group's share of the CPU.
fn share_beside_sleepers(nice: i32, sleepers: u64, work_ns: u64, sleep_ns: u64) -> f64 {
    let mut config = Config::new(Machine::new(Topology::flat(1)), DURATION_NS);
    let groups = ["/one", "/other"].map(|path| config.add_group(GroupSpec::new(path, GroupId::ROOT)));
    let workload = config.add_workload("all");
    let spin = |_: &mut Context| Step::Compute { ns: u64::MAX };
    let alone = TaskSpec::new(groups[0], workload, "alone".to_string(), spin);
    let mut beside = TaskSpec::new(groups[1], workload, "beside".to_string(), spin);
    beside.nice = nice;
    config.add_task(alone);
    config.add_task(beside);
    for number in 0..sleepers {
        let mut rests = true;
        let first_ns = number * sleep_ns / sleepers + 1;
        let in_turn = move |context: &mut Context| {
            rests = !rests;
            match (rests, context.now_ns()) {
                (true, now_ns) => Step::SleepUntil {
                    at_ns: now_ns + sleep_ns,
                },
                (false, 0) => Step::SleepUntil { at_ns: first_ns },
                (false, _) => Step::Compute { ns: work_ns },
            }
        };
        config.add_task(TaskSpec::new(
            groups[1],
            workload,
            format!("sleeper {number}"),
            in_turn,
        ));
    }
    let results = Simulation::new(config).unwrap().run(None);
    results.groups[groups[0].0 as usize].usage_ns as f64 / DURATION_NS as f64
}

#[test]
fn what_sleepers_take_their_own_group_has_less_of() {
    for (nice, sleepers, work_us, sleep_us) in [
        (0, 10, 400, 9_000),
        (0, 1, 750, 2_250),
        (0, 10, 200, 10_000),
        (19, 1, 750, 2_250),
        (19, 1, 30, 2_970),
        (-10, 3, 500, 4_500),
    ] {
        let share = share_beside_sleepers(nice, sleepers, work_us * 1000, sleep_us * 1000);
        assert!(
            (share - 0.5).abs() < 0.02,
            "{share} beside a spinner of nice {nice} and {sleepers} that compute for {work_us} us and sleep for {sleep_us}"
        );
    }
}
