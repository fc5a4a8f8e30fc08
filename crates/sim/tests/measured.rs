//! What is reported is about the measured time, the whole of it and nothing else.
use plimsoll_sim::{
    Change, ChangeKind, Config, Context, GroupId, Machine, Results, Simulation, Step, TaskSpec, Topology,
};

const MS: u64 = 1_000_000;

fn run(config: Config) -> Results {
    Simulation::new(config).unwrap().run(None)
}

fn at(config: &mut Config, ms: u64, what: ChangeKind) {
    config.changes.push(Change { at_ns: ms * MS, what });
}

fn spinners(config: &mut Config, n: u32, group: GroupId) {
    let workload = config.add_workload("spin");
    for i in 0..n {
        let spin = |_: &mut Context| Step::Compute { ns: u64::MAX };
        config.add_task(TaskSpec::new(group, workload, format!("spin{i}"), spin));
    }
}

#[test]
fn a_cpu_off_line_is_neither_busy_nor_idle() {
    let mut config = Config::new(Machine::new(Topology::flat(3)), 1100 * MS);
    config.warmup_ns = 100 * MS;
    spinners(&mut config, 1, GroupId::ROOT);
    config.tasks[0].affinity = Some([0].into_iter().collect());
    // CPU 1 was off line already as the measured time began, CPU 2 is idle in between.
    for (ms, cpu) in [(50, 1), (300, 2)] {
        at(&mut config, ms, ChangeKind::CpuOffline { cpu });
    }
    at(&mut config, 700, ChangeKind::CpuOnline { cpu: 2 });
    let results = run(config);
    let ms = |ns: u64| (ns as f64 / 1e6).round() as u64;
    let cpus: Vec<_> = results
        .cpus
        .iter()
        .map(|cpu| (ms(cpu.busy_ns), ms(cpu.idle_ns), ms(cpu.offline_ns)))
        .collect();
    assert_eq!(cpus, [(1000, 0, 0), (0, 0, 1000), (0, 600, 400)]);
    assert_eq!(results.cpus[1].busy_percent(), 0.0);
    assert_eq!(results.cpus[2].busy_percent(), 0.0);
}
