// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where waking tasks go: the kernel's searches overlap, the live scheduler's do not. And which task pays for what.
use plimsoll_sim::{
    ChannelSpec, Config, Context, Costs, CpuSet, GroupId, GroupSpec, Limits, Machine, Observer, PerDistance,
    Simulation, Step, TaskId, TaskSpec, Topology, WakeSearch,
};

const MS: u64 = 1_000_000;

/// When tasks were woken, and where to.
#[derive(Default)]
struct Wakes(Vec<(u64, u32)>);

impl Observer for Wakes {
    fn wake(&mut self, now_ns: u64, _: TaskId, cpu: u32, _: u32) {
        self.0.push((now_ns, cpu));
    }
}

fn spin(_: &mut Context) -> Step {
    Step::Compute { ns: u64::MAX }
}

/// `senders` on CPUs of their own that each wake `each` receivers after 5 ms; the receivers slept on one CPU, which has been
/// taken since. `idle` more CPUs have nothing to do. Returns the CPUs that the receivers were sent to.
fn woken(search: WakeSearch, senders: u32, each: u32, idle: u32) -> Vec<u32> {
    let busy = senders + 1;
    let mut config = Config::new(Machine::new(Topology::flat(busy + idle)), 10 * MS);
    config.policy.wake_search = search;
    config.policy.steal.enabled = 0;
    config.policy.newidle = false;
    config.policy.periodic = false;
    config.check = true;
    let workload = config.add_workload("w");
    let on = |cpu: u32| Some(CpuSet::from_iter([cpu]));
    for sender in 0..senders {
        let channels: Vec<_> = (0..each).map(|_| config.add_channel(1)).collect();
        for (number, &channel) in channels.iter().enumerate() {
            let mut waited = false;
            let receiver = move |_: &mut Context| {
                waited = !waited;
                if waited {
                    Step::Receive { channel }
                } else {
                    Step::Compute { ns: u64::MAX }
                }
            };
            let name = format!("receiver {sender}.{number}");
            let mut receiver = TaskSpec::new(GroupId::ROOT, workload, name, receiver);
            receiver.start_cpu = Some(senders);
            config.add_task(receiver);
        }
        let mut step = 0;
        let waker = move |_: &mut Context| {
            step += 1;
            match step {
                1 => Step::Compute { ns: 4 * MS },
                step if step - 2 < channels.len() => Step::Send {
                    channel: channels[step - 2],
                    value: 0,
                },
                _ => Step::Compute { ns: u64::MAX },
            }
        };
        let mut waker = TaskSpec::new(GroupId::ROOT, workload, format!("sender {sender}"), waker);
        waker.affinity = on(sender);
        waker.start_ns = MS;
        config.add_task(waker);
    }
    let mut late = TaskSpec::new(GroupId::ROOT, workload, "where they slept", spin);
    late.affinity = on(senders);
    late.start_ns = 2 * MS;
    config.add_task(late);
    let mut wakes = Wakes::default();
    Simulation::new(config).unwrap().run(Some(&mut wakes)).unwrap();
    wakes
        .0
        .into_iter()
        .filter(|&(at_ns, _)| at_ns > 3 * MS)
        .map(|(_, cpu)| cpu)
        .collect()
}

#[test]
fn two_wakers_of_the_fair_class_find_the_same_cpu_idle() {
    for search in [WakeSearch::Proportional, WakeSearch::Utilisation] {
        assert_eq!(woken(search, 2, 1, 1), [3, 3], "{search:?}");
    }
    // The live scheduler claims what it finds: the second one stays where it was.
    assert_eq!(woken(WakeSearch::All, 2, 1, 1)[0], 3);
    assert_ne!(woken(WakeSearch::All, 2, 1, 1)[1], 3);
}

#[test]
fn one_waker_knows_whom_it_has_woken() {
    for search in [WakeSearch::Proportional, WakeSearch::Utilisation, WakeSearch::All] {
        let mut cpus = woken(search, 1, 2, 2);
        cpus.sort_unstable();
        assert_eq!(cpus, [2, 3], "{search:?}");
    }
}

#[test]
fn what_the_kernel_does_between_two_tasks_is_taken_from_the_next_one() {
    let mut config = Config::new(Machine::new(Topology::flat(1)), 1000 * MS);
    config.machine.costs = Costs::free();
    config.machine.costs.pool_lock_ns = 100_000;
    config.check = true;
    let mut limited = GroupSpec::new("/limited", GroupId::ROOT);
    limited.limits = Limits::quota(100 * MS, 100 * MS);
    let limited = config.add_group(limited);
    let workload = config.add_workload("w");
    let pieces = config.add_counter(workload, "pieces");
    let spinner = move |ctx: &mut Context| {
        ctx.count(pieces, 1);
        Step::Compute { ns: 1000 }
    };
    config.add_task(TaskSpec::new(GroupId::ROOT, workload, "spinner", spinner));
    let runs = config.add_counter(workload, "runs");
    let mut sleeps = true;
    // Each time it falls asleep its group returns run time to the pool, under the pool's lock.
    let sleeper = move |ctx: &mut Context| {
        sleeps = !sleeps;
        if sleeps {
            return Step::SleepUntil {
                at_ns: ctx.now_ns() + 2 * MS,
            };
        }
        ctx.count(runs, 1);
        Step::Compute { ns: MS }
    };
    config.add_task(TaskSpec::new(limited, workload, "sleeper", sleeper));
    let results = Simulation::new(config).unwrap().run(None).unwrap();
    let counters = &results.workloads[0].counters;
    let worked_ns = counters[0].value * 1000 + counters[1].value * MS;
    let held_ns = results.touches.pool_ns;
    assert!(held_ns > 20 * MS, "{held_ns}");
    assert!(
        (worked_ns + held_ns).abs_diff(1000 * MS) < 2 * MS,
        "{worked_ns} + {held_ns}"
    );
}

/// Pairs on CPUs of their own that send each other values over `channel`. Returns how many a second.
fn messages_per_s(pairs: u32, spec: ChannelSpec) -> f64 {
    let mut config = Config::new(Machine::new(Topology::flat(2 * pairs)), 2 * MS);
    config.machine.costs = Costs::free();
    config.machine.costs.line = PerDistance::flat(100);
    config.machine.costs.contention = true;
    let workload = config.add_workload("w");
    let messages = config.add_counter(workload, "messages");
    for pair in 0..pairs {
        let (there, back) = (config.add_channel_of(spec), config.add_channel_of(spec));
        for (side, to, from) in [(0, there, back), (1, back, there)] {
            let mut step = side;
            let task = move |ctx: &mut Context| {
                step = (step + 1) % 2;
                if step == 0 {
                    return Step::Receive { channel: from };
                }
                ctx.count(messages, 1);
                Step::Send {
                    channel: to,
                    value: 0,
                }
            };
            let mut task = TaskSpec::new(GroupId::ROOT, workload, format!("{pair}.{side}"), task);
            task.affinity = Some(CpuSet::from_iter([2 * pair + side]));
            config.add_task(task);
        }
    }
    let results = Simulation::new(config).unwrap().run(None).unwrap();
    results.workloads[0].counters[0].value as f64 / 0.002
}

#[test]
fn who_receives_fetches_what_a_value_is_made_of() {
    // Without time of its own a message takes what its channel's line takes, and its own.
    let one = messages_per_s(1, ChannelSpec::new(1));
    let more = messages_per_s(
        1,
        ChannelSpec {
            lines: 3,
            ..ChannelSpec::new(1)
        },
    );
    assert!(more < 0.5 * one, "{more} of {one}");
}

#[test]
fn packets_of_the_loopback_network_go_one_after_the_other() {
    let pipe = ChannelSpec::new(1);
    let loopback = ChannelSpec {
        loopback: true,
        ..pipe
    };
    // A line that takes 100 ns to fetch: ten million packets a second, from however many pairs.
    for pairs in [8, 32] {
        let rate = messages_per_s(pairs, loopback);
        assert!((9.9e6..10.1e6).contains(&rate), "{pairs} pairs: {rate}");
    }
    assert!(messages_per_s(32, pipe) > 1e8);
}
