//! What an administrator does to tasks while the machine runs.
use plimsoll_sim::{
    Change, ChangeKind, Config, Context, GroupId, Machine, Results, Simulation, Step, TaskId, TaskSpec,
    Topology,
};

const MS: u64 = 1_000_000;

fn run(config: Config) -> Results {
    Simulation::new(config).unwrap().run(None)
}

fn at(config: &mut Config, ms: u64, what: ChangeKind) {
    config.changes.push(Change { at_ns: ms * MS, what });
}

/// Looking at all tasks for each one that changes would take minutes.
#[test]
fn changes_of_many_tasks_end_in_time() {
    let nr_tasks = 60_000;
    let mut config = Config::new(Machine::new(Topology::flat(4)), 20 * MS);
    config.warmup_ns = 10 * MS;
    let workload = config.add_workload("many");
    for i in 0..nr_tasks {
        let spin = |_: &mut Context| Step::Compute { ns: u64::MAX };
        config.add_task(TaskSpec::new(GroupId::ROOT, workload, format!("many{i}"), spin));
    }
    for task in (0..nr_tasks).map(TaskId) {
        let affinity = Some([0, 1].into_iter().collect());
        at(&mut config, 5, ChangeKind::Affinity { task, affinity });
        at(&mut config, 5, ChangeKind::Nice { task, nice: 5 });
    }
    let results = run(config);
    let busy: Vec<_> = results.cpus.iter().map(|cpu| cpu.task_ns > 9 * MS).collect();
    assert_eq!(busy, [true, true, false, false]);
}
