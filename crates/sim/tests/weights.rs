//! Groups get what their weights say, however their tasks sleep.
use plimsoll_sim::{Config, Context, GroupId, GroupSpec, Machine, Simulation, Step, TaskSpec, Topology};

const DURATION_NS: u64 = 10_000_000_000;

/// One CPU, two groups of equal weight. One has a spinner; the other spinners of `nice`, and tasks that compute for
/// `work_ns` and sleep for `sleep_ns`: in itself, or as a pod, the spinners in one child group and the sleepers in another.
#[derive(Clone, Copy, Debug)]
struct Beside {
    pod: bool,
    spinners: u64,
    nice: i32,
    sleepers: u64,
    work_ns: u64,
    sleep_ns: u64,
}

/// The first group's share of the CPU.
fn share(beside: Beside) -> f64 {
    let mut config = Config::new(Machine::new(Topology::flat(1)), DURATION_NS);
    let [one, other] = ["/one", "/other"].map(|path| config.add_group(GroupSpec::new(path, GroupId::ROOT)));
    let [main, sidecar] = match beside.pod {
        true => ["/other/main", "/other/sidecar"].map(|path| config.add_group(GroupSpec::new(path, other))),
        false => [other, other],
    };
    let workload = config.add_workload("all");
    let spin = |_: &mut Context| Step::Compute { ns: u64::MAX };
    config.add_task(TaskSpec::new(one, workload, "alone".to_string(), spin));
    for number in 0..beside.spinners {
        let mut spinner = TaskSpec::new(main, workload, format!("beside {number}"), spin);
        spinner.nice = beside.nice;
        config.add_task(spinner);
    }
    for number in 0..beside.sleepers {
        let mut rests = true;
        let first_ns = number * beside.sleep_ns / beside.sleepers + 1;
        let in_turn = move |context: &mut Context| {
            rests = !rests;
            match (rests, context.now_ns()) {
                (true, now_ns) => Step::SleepUntil {
                    at_ns: now_ns + beside.sleep_ns,
                },
                (false, 0) => Step::SleepUntil { at_ns: first_ns },
                (false, _) => Step::Compute { ns: beside.work_ns },
            }
        };
        let name = format!("sleeper {number}");
        config.add_task(TaskSpec::new(sidecar, workload, name, in_turn));
    }
    let results = Simulation::new(config).unwrap().run(None);
    results.groups[one.0 as usize].usage_ns as f64 / DURATION_NS as f64
}

#[test]
fn what_sleepers_take_their_own_group_has_less_of() {
    for pod in [false, true] {
        for (spinners, nice, sleepers, work_us, sleep_us) in [
            (1, 0, 10, 400, 9_000),
            (1, 0, 1, 750, 2_250),
            (1, 0, 10, 200, 10_000),
            (1, 19, 1, 750, 2_250),
            (1, 19, 1, 30, 2_970),
            (1, -10, 3, 500, 4_500),
            (6, 0, 1, 750, 2_250),
            (6, 0, 10, 200, 10_000),
        ] {
            let beside = Beside {
                pod,
                spinners,
                nice,
                sleepers,
                work_ns: work_us * 1000,
                sleep_ns: sleep_us * 1000,
            };
            let share = share(beside);
            assert!((share - 0.5).abs() < 0.02, "{share} beside {beside:?}");
        }
    }
}
