// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a weight is for: a group, or each CPU that it keeps busy (cgroup_mode "concur", Linux 7.3). The figures are
//! derived by hand: with "concur" a group weighs cpu.weight * min(its runnable tasks, its CPUs).
use plimsoll_sim::{
    CgroupMode, Config, Context, CpuSet, GroupId, GroupSpec, Machine, Policy, Simulation, Step, TaskSpec,
    Topology,
};

const DURATION_NS: u64 = 10_000_000_000;
const CPUS: u32 = 4;

fn spin(_: &mut Context) -> Step {
    Step::Compute { ns: u64::MAX }
}

/// A group: its parent in the list (or none: the root), its weight, its spinners.
type Tree<'a> = &'a [(Option<usize>, u32, usize)];

/// CPUs that each group of the tree used, without its children's, on four; its groups may be bound to the first `cpus`.
fn used(tree: Tree, cpus: u32, mode: CgroupMode) -> Vec<f64> {
    let mut config = Config::new(Machine::new(Topology::flat(CPUS)), DURATION_NS);
    config.policy = Policy::default().with_cgroup_mode(mode);
    // Counts take a third of a second to settle: PELT's half-life is 32 ms.
    config.warmup_ns = 1_000_000_000;
    let workload = config.add_workload("spinners");
    let mut groups: Vec<GroupId> = Vec::new();
    for (number, &(parent, weight, spinners)) in tree.iter().enumerate() {
        let parent = parent.map_or(GroupId::ROOT, |parent| groups[parent]);
        let mut group = GroupSpec::new(format!("/{number}"), parent);
        group.cpu_weight = weight;
        group.cpuset = (cpus < CPUS).then(|| CpuSet::all(cpus));
        let group = config.add_group(group);
        groups.push(group);
        for spinner in 0..spinners {
            let name = format!("{number} {spinner}");
            config.add_task(TaskSpec::new(group, workload, name, spin));
        }
    }
    let results = Simulation::new(config).unwrap().run(None).unwrap();
    let measured = (DURATION_NS - 1_000_000_000) as f64;
    let usage = |group: &GroupId| results.groups[group.0 as usize].usage_ns as f64 / measured;
    groups.iter().map(usage).collect()
}

/// Within `points` of the machine's four CPUs.
#[track_caller]
fn assert_near(used: &[f64], due: &[f64], points: f64, what: &str) {
    let near = |(used, due): (&f64, &f64)| (used - due).abs() <= points / 100.0 * f64::from(CPUS);
    assert!(
        used.len() == due.len() && used.iter().zip(due).all(near),
        "{what}: CPUs used {used:.3?}, due {due:.3?}"
    );
}

#[test]
fn two_against_eight_tasks_of_equal_groups_get_a_third_where_weights_are_for_cpus() {
    // Two groups on four CPUs: tasks and weights of both; CPUs due to the first, of 4, with "smp" and with "concur".
    for (tasks, weights, smp, concur) in [
        // 2 and 4 CPUs' worth: 4 * 2/6.
        ([2, 8], [100, 100], 2.0, 4.0 / 3.0),
        // 1 and 4: 4 * 1/5. With "smp" half would be two CPUs, and one task uses one.
        ([1, 4], [100, 100], 1.0, 0.8),
        ([1, 8], [100, 100], 1.0, 0.8),
        // Both keep four busy.
        ([4, 8], [100, 100], 2.0, 2.0),
        // 8 and 4: two thirds would be 2.67, and two tasks use two.
        ([2, 8], [400, 100], 2.0, 2.0),
        // 4 and 8: 4 * 4/12. The weight is that of each of the four CPUs.
        ([8, 8], [100, 200], 4.0 / 3.0, 4.0 / 3.0),
        // 300 and 400: a weight makes up for what is not run at once.
        ([1, 8], [300, 100], 1.0, 1.0),
    ] {
        for (mode, due) in [(CgroupMode::Smp, smp), (CgroupMode::Concur, concur)] {
            let tree = [(None, weights[0], tasks[0]), (None, weights[1], tasks[1])];
            let what = format!("{mode:?}, tasks {tasks:?}, weights {weights:?}");
            let got = used(&tree, CPUS, mode);
            assert_near(&got, &[due, f64::from(CPUS) - due], 1.0, &what);
        }
    }
}

#[test]
fn no_group_keeps_more_cpus_busy_than_its_cpuset_has() {
    // On two of four CPUs: min(1, 2) and min(8, 2), so 2 * 1/3.
    let tree = [(None, 100, 1), (None, 100, 8)];
    let of = |mode| used(&tree, 2, mode);
    assert_near(&of(CgroupMode::Concur), &[2.0 / 3.0, 4.0 / 3.0], 1.0, "concur");
    assert_near(&of(CgroupMode::Smp), &[1.0, 1.0], 1.0, "smp");
}

#[test]
fn a_group_counts_the_tasks_of_the_groups_below_it() {
    // A pod of a container with one task and one with four, beside a group with one task: the pod keeps min(5, 4) CPUs
    // busy, so 4 * 4/5 are its; of these 1/5 and 4/5 the containers'.
    let tree = [
        (None, 100, 0),
        (Some(0), 100, 1),
        (Some(0), 100, 4),
        (None, 100, 1),
    ];
    let of = |mode| used(&tree, CPUS, mode)[1..].to_vec();
    assert_near(&of(CgroupMode::Concur), &[0.64, 2.56, 0.8], 1.5, "concur");
    // Half of four CPUs each, but one task uses one: 3 for the pod, of which one task uses one again.
    assert_near(&of(CgroupMode::Smp), &[1.0, 2.0, 1.0], 1.5, "smp");
}
