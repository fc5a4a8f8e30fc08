// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What programs that use the simulator rely on: mistakes are errors, runs stop where they are told to, results are
//! data.
use plimsoll_sim::{
    ChannelId, Config, Context, Costs, CounterId, CpuSet, GroupId, GroupSpec, IdleState, LatencyId, Limits,
    Machine, Results, RunError, Simulation, Step, TaskSpec, Topology, WorkloadId,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

const MS: u64 = 1_000_000;

fn spin(_: &mut Context) -> Step {
    Step::Compute { ns: 300_000 }
}

/// Two limited groups that wake each other, with a histogram.
fn config() -> Config {
    let mut config = Config::new(Machine::new(Topology::flat(2)), 500 * MS);
    let workload = config.add_workload("w");
    let latency = config.add_latency(workload, "wait");
    let channel = config.add_channel(4);
    for number in 0..4u64 {
        let mut group = GroupSpec::new(format!("/g{number}"), GroupId::ROOT);
        group.limits = Limits::quota((3 + number) * MS, 10 * MS);
        let group = config.add_group(group);
        let mut turn = 0;
        let task = move |ctx: &mut Context| {
            turn += 1;
            let now_ns = ctx.now_ns();
            ctx.record(latency, now_ns / 7);
            match turn % 3 {
                0 => Step::Compute { ns: 700_000 },
                1 if number % 2 == 0 => Step::Send { channel, value: 0 },
                1 => Step::Receive { channel },
                _ => Step::SleepUntil {
                    at_ns: now_ns + 100_000,
                },
            }
        };
        config.add_task(TaskSpec::new(group, workload, format!("t{number}"), task));
    }
    config
}

fn whole() -> Results {
    Simulation::new(config()).unwrap().run(None).unwrap()
}

#[test]
fn a_run_in_steps_is_the_run_at_once() {
    let mut run = Simulation::new(config()).unwrap().start(None);
    let mut steps = 0;
    // Steps that fall on events, and beside them.
    while !run.run_until(run.now_ns() + 333_333).unwrap() {
        steps += 1;
    }
    assert!(steps > 1000);
    assert_eq!(run.finish(), whole());
}

#[test]
fn a_run_that_is_ended_early_says_what_it_measured_until_then() {
    let mut run = Simulation::new(config()).unwrap().start(None);
    assert!(!run.run_until(123_456_789).unwrap());
    let results = run.finish();
    assert_eq!((results.end_ns, results.measured_ns), (123_456_789, 123_456_789));
    let cpu = &results.cpus[0];
    assert_eq!(cpu.busy_ns + cpu.idle_ns, 123_456_789);
}

#[test]
fn a_flag_ends_a_run_from_outside() {
    let flag = Arc::new(AtomicBool::new(false));
    let mut run = Simulation::new(config())
        .unwrap()
        .cancelled_by(flag.clone())
        .start(None);
    assert_eq!(run.run_until(10 * MS), Ok(false));
    flag.store(true, Ordering::Relaxed);
    let cancelled = run.run_until(u64::MAX).unwrap_err();
    assert!(matches!(cancelled, RunError::Cancelled { at_ns } if at_ns >= 10 * MS));
}

#[test]
fn results_are_the_same_after_they_were_written_and_read() {
    let results = whole();
    assert!(results.workloads[0].latencies[0].histogram.len() > 100);
    let text = serde_json::to_string(&results).unwrap();
    assert_eq!(serde_json::from_str::<Results>(&text).unwrap(), results);
}

/// What comes of a program that does something only once.
fn refused(act: impl Fn(&mut Context) -> Step + Send + 'static) -> String {
    let mut config = Config::new(Machine::new(Topology::flat(2)), 10 * MS);
    config.machine.costs = Costs::free();
    config.add_workload("w");
    config.add_task(TaskSpec::new(GroupId::ROOT, WorkloadId(0), "t", act));
    let error = Simulation::new(config).unwrap().run(None).unwrap_err();
    assert!(matches!(error, RunError::Program { .. }));
    error.to_string()
}

fn spawns(change: impl Fn(&mut TaskSpec) + Send + 'static) -> String {
    refused(move |ctx| {
        let mut child = TaskSpec::new(GroupId::ROOT, WorkloadId(0), "child", spin);
        change(&mut child);
        ctx.spawn(child);
        Step::Compute { ns: MS }
    })
}

#[test]
fn a_program_that_asks_for_what_is_not_there_ends_the_run_with_an_error() {
    assert_eq!(
        spawns(|child| child.group = GroupId(7)),
        "at 0 ns: task t: asks for task child: group: 7 is not allowed; allowed: 0 .. 0"
    );
    assert!(spawns(|child| child.workload = WorkloadId(u32::MAX)).contains("task child: workload"));
    assert!(spawns(|child| child.nice = 20).contains("task child: nice: 20"));
    assert!(spawns(|child| child.affinity = Some(CpuSet::all(3))).contains("CPU 2 is not allowed"));
    let channel = ChannelId(0);
    assert_eq!(
        refused(move |_| Step::Send { channel, value: 1 }),
        "at 0 ns: task t: asks for channel: 0 is not allowed; allowed: none, as none was added"
    );
    let nothing = |ctx: &mut Context| {
        ctx.count(CounterId(1), 1);
        Step::Yield
    };
    assert!(refused(nothing).contains("asks for counter: 1"));
    let nothing = |ctx: &mut Context| {
        ctx.record(LatencyId(3), 1);
        Step::Yield
    };
    assert!(refused(nothing).contains("asks for latency: 3"));
    let nothing = |ctx: &mut Context| {
        ctx.add_channel(0);
        Step::Yield
    };
    assert!(refused(nothing).contains("channel: capacity: 0 is not allowed"));
}

#[test]
fn what_no_machine_has_is_refused_before_the_run() {
    let refused = |change: &dyn Fn(&mut Config)| {
        let mut config = config();
        change(&mut config);
        Simulation::new(config).err().expect("it is refused").to_string()
    };
    assert_eq!(
        refused(&|config| config.machine.costs.ipi.llc_ns = u64::MAX),
        "machine: costs: ipi.llc_ns: 18446744073709551615 is not allowed; allowed: 0 .. 1000000000"
    );
    assert!(refused(&|config| config.machine.costs.syscall_ns = 2_000 * MS).contains("costs: syscall_ns"));
    let state = |after_ns, exit_ns| IdleState { after_ns, exit_ns };
    assert!(
        refused(&|config| config.machine.costs.idle_states = vec![state(0, u64::MAX)])
            .contains("idle_states")
    );
    assert_eq!(
        refused(&|config| config.machine.costs.idle_states = vec![state(5, 1), state(5, 2)]),
        "machine: costs: idle_states[1].after_ns: 5 is not allowed; allowed: more than 5, the one before"
    );
    assert!(refused(&|config| config.policy.core.fair.pull_ns = u64::MAX).contains("policy: pull_ns"));
    assert!(refused(&|config| config.machine.topology.cpus[1].node = u32::MAX).contains("topology"));
}
