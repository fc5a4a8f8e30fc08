// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes that are started and end without end.
use plimsoll_sim::{
    Config, Context, GroupId, Machine, Observer, Simulation, Step, TaskId, TaskSpec, Topology,
};

const MS: u64 = 1_000_000;

/// A shell on each of two CPUs that starts one process of 50 us after the other and waits for it.
fn shells(duration_ns: u64) -> Config {
    let mut config = Config::new(Machine::new(Topology::flat(2)), duration_ns);
    config.check = true;
    let workload = config.add_workload("shells");
    for i in 0..2 {
        let done = config.add_channel(1);
        let shell = move |ctx: &mut Context| {
            let mut step = 0;
            let child = move |_: &mut Context| {
                step += 1;
                match step {
                    1 => Step::Compute { ns: 50_000 },
                    2 => Step::Send {
                        channel: done,
                        value: 0,
                    },
                    _ => Step::Exit,
                }
            };
            ctx.fork(TaskSpec::new(
                GroupId::ROOT,
                workload,
                format!("child {i}"),
                child,
            ));
            Step::Receive { channel: done }
        };
        config.add_task(TaskSpec::new(
            GroupId::ROOT,
            workload,
            format!("shell {i}"),
            shell,
        ));
    }
    config
}

/// Which tasks were started, under which number.
#[derive(Default)]
struct Started(Vec<(TaskId, String)>);

impl Observer for Started {
    fn task(&mut self, _now_ns: u64, task: TaskId, name: &str, _group: GroupId) {
        self.0.push((task, name.to_owned()));
    }
}

/// Memory goes with the highest number: with a number for each, a day of a shell script would not fit into any.
#[test]
fn numbers_of_forks_that_have_exited_come_round() {
    let mut started = Started::default();
    Simulation::new(shells(100 * MS))
        .unwrap()
        .run(Some(&mut started))
        .unwrap();
    let Started(started) = started;
    assert!(started.len() > 1_000, "{} tasks", started.len());
    let highest = started.iter().map(|(task, _)| task.0).max().unwrap();
    assert!(highest < 8, "{highest} is the highest number");
    // Under one number goes one name.
    for (task, name) in &started {
        let (_, first) = started.iter().find(|(other, _)| other == task).unwrap();
        assert_eq!(name, first);
    }
}

#[test]
fn a_task_that_lets_no_time_pass_ends_the_run_by_name() {
    let mut config = Config::new(Machine::new(Topology::flat(1)), MS);
    config.machine.costs = plimsoll_sim::Costs::free();
    let workload = config.add_workload("w");
    let circle = |_: &mut Context| Step::Compute { ns: 0 };
    config.add_task(TaskSpec::new(GroupId::ROOT, workload, "circle", circle));
    let stuck = Simulation::new(config)
        .expect("a valid machine")
        .run(None)
        .unwrap_err();
    assert_eq!(
        stuck.to_string(),
        "time stands still at 0 ns: task \"circle\" takes steps without end"
    );
}

/// Its parent computes on one CPU, and light work has the other: behind the parent it would wait until it is far enough behind
/// to be taken over.
#[test]
fn a_new_task_goes_to_the_lightest_cpu_where_none_is_idle() {
    let mut config = Config::new(Machine::new(Topology::flat(2)), 12 * MS);
    config.policy.fair = plimsoll_sim::Fair::Eevdf;
    (config.policy.newidle, config.policy.periodic) = (false, false);
    let workload = config.add_workload("w");
    let work = config.add_group(plimsoll_sim::GroupSpec::new("/work", GroupId::ROOT));
    let spin = |_: &mut Context| Step::Compute { ns: u64::MAX };
    let mut light = TaskSpec::new(GroupId::ROOT, workload, "light", spin);
    light.nice = 19;
    config.add_task(light);
    let mut begun = false;
    let parent = move |ctx: &mut Context| {
        if begun {
            ctx.fork(TaskSpec::new(work, workload, "child", spin));
        }
        let ns = if begun { u64::MAX } else { 4 * MS };
        begun = true;
        Step::Compute { ns }
    };
    config.add_task(TaskSpec::new(work, workload, "parent", parent));
    let results = Simulation::new(config).unwrap().run(None).unwrap();
    // The parent 12 ms, its child 8 ms but for its first wait.
    let had_ns = results.groups[work.0 as usize].usage_ns;
    assert!(had_ns > 18 * MS, "{had_ns} ns of 20 ms");
}
