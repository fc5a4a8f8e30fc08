// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One replay: the program under settings, on the recorded machine.
use crate::client_task::ClientTask;
use crate::error::SettingsError;
use crate::machine::resize;
use crate::outcome::{CpuStat, GroupOutcome, Outcome, Request};
use crate::outside_task::OutsideTask;
use crate::program::{Program, Start};
use crate::request::last_end_ns;
use crate::rival_task::RivalTask;
use crate::settings::{Semantics, Settings};
use crate::state::State;
use crate::task::ThreadTask;
use plimsoll_sim::policy::BW_QUOTA_MIN_NS;
use plimsoll_sim::{
    Change, ChangeKind, Config, ConfigError, Enforce, GroupId, GroupSpec, Limits, Machine, Mainline,
    Observer, RunError, Simulation, TaskSpec,
};
use rand::Rng;
use rand_pcg::Pcg64;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

/// A closed loop stops where the recording did. Open arrivals have to be drained, a job has to be finished: that may
/// take longer under a limit, but not for ever.
const DRAIN_FACTOR_MAX: u64 = 20;

/// Replays the program under `settings`. The same program, machine and settings give the same outcome.
pub fn replay(
    program: &Arc<Program>,
    machine: &Machine,
    settings: &Settings,
    observer: Option<&mut dyn Observer>,
) -> Result<Outcome, SettingsError> {
    replay_cancelled_by(program, machine, settings, observer, None)
}

/// The same; it ends with an error soon after the flag is set.
pub fn replay_cancelled_by(
    program: &Arc<Program>,
    machine: &Machine,
    settings: &Settings,
    observer: Option<&mut dyn Observer>,
    cancel: Option<&Arc<AtomicBool>>,
) -> Result<Outcome, SettingsError> {
    settings.check(program)?;
    let mut machine = machine.clone();
    machine.costs.idle_charged_ns = program.idle_charged_ns;
    let nr_recorded = machine.topology.nr_cpus();
    if let Some(cpus) = settings.cpus {
        resize(&mut machine.topology, cpus);
    }
    let nr_cpus = machine.topology.nr_cpus();
    let horizon_ns = match program.is_closed_loop() && !program.is_job() {
        true => program.duration_ns,
        false => program.duration_ns.saturating_mul(DRAIN_FACTOR_MAX),
    };
    let horizon_ns = settings.until_ns.map_or(horizon_ns, |ns| ns.min(horizon_ns));
    let mut config = Config::new(machine, horizon_ns.max(1));
    config.seed = settings.seed;
    config.stop_when_done = true;
    let beside_others = program.is_beside_others(nr_recorded);
    mainline_or_published(&mut config, settings.semantics, program, nr_cpus, beside_others);
    add_groups(&mut config, program, settings)?;
    let workload = config.add_workload("replay");
    let has_seats = settings.semantics == Semantics::Mainline && nr_cpus == nr_recorded;
    let state = Arc::new(State::new(program, settings, has_seats, workload));
    for (ix, thread) in program.threads.iter().enumerate() {
        config.add_channel(u32::MAX);
        let Some(first) = program.bursts.get(thread.bursts.start as usize) else {
            continue;
        };
        if thread.bursts.is_empty() || first.start == Start::Fork {
            continue;
        }
        let mut spec = ThreadTask::spec(program, &state, ix as u32, false);
        // One whose first burst has a time comes into being then; others wait for their message from the start.
        if first.start == Start::At && thread.bursts.len() == 1 {
            spec.start_ns = first.at_ns;
        }
        spec.affinity = spec.affinity.filter(|set| set.iter().all(|cpu| cpu < nr_cpus));
        config.add_task(spec);
    }
    if !program.delayed.is_empty() {
        let channel = config.add_channel(u32::MAX);
        debug_assert_eq!(channel, OutsideTask::channel(program));
        let task = OutsideTask::new(program.clone(), state.clone());
        let mut spec = TaskSpec::new(GroupId(0), workload, "outside".to_string(), task);
        (spec.background, spec.external) = (true, true);
        config.add_task(spec);
    }
    if !settings.alone {
        for (ix, rival) in program.rivals.iter().enumerate() {
            let cpu = rival.cpu % nr_cpus;
            let task = RivalTask::new(program.clone(), ix as u32, cpu, has_seats);
            let mut spec = TaskSpec::new(GroupId(rival.group), workload, format!("rival/{ix}"), task);
            spec.background = true;
            spec.start_cpu = Some(cpu);
            spec.affinity = Some(std::iter::once(cpu).collect());
            config.add_task(spec);
        }
        for (ix, &(group, cpu)) in program.clients.tasks.iter().enumerate() {
            let cpu = cpu % nr_cpus;
            let task = ClientTask::new(program, ix as u32);
            let channel = config.add_channel(u32::MAX);
            debug_assert_eq!(channel, task.channel());
            let mut spec = TaskSpec::new(GroupId(group), workload, format!("client/{ix}"), task);
            spec.background = true;
            spec.start_cpu = Some(cpu);
            config.add_task(spec);
        }
    }
    let mut simulation = Simulation::new(config).map_err(from_config)?;
    if let Some(flag) = cancel {
        simulation = simulation.cancelled_by(flag.clone());
    }
    let results = simulation.run(observer).map_err(from_stuck)?;
    Ok(outcome(program, settings, &state, &results))
}

fn from_config(error: ConfigError) -> SettingsError {
    SettingsError {
        what: error.what,
        value: error.value,
        allowed: error.allowed,
    }
}

fn from_stuck(stuck: RunError) -> SettingsError {
    SettingsError {
        what: "the recorded work".into(),
        value: stuck.to_string(),
        allowed: "work that lets time pass".into(),
    }
}

fn mainline_or_published(
    config: &mut Config,
    semantics: Semantics,
    program: &Program,
    nr_cpus: u32,
    beside_others: bool,
) {
    match semantics {
        Semantics::Mainline => {
            config.policy = program.kernel.policy();
            // Turns by lag and deadline, level by level: beside others, a woken task waits for what its own group has had.
            // Among threads of one group it is a habit of the recording that decides, below, which this rule does not have.
            if program.kernel.has_lags() && beside_others {
                program
                    .kernel
                    .set_turns(&mut config.policy, nr_cpus, config.machine.hz);
                config.policy.balance_weighs = true;
            }
            // Since 6.6 a woken task that is owed time runs at once, however little it is; or, if the running task is not past
            // its due, when its slice is over. Which it mostly is shows in the recording.
            config.policy.core.fair.wakeup_gran_ns = match program.spares_own_group {
                true => Mainline::base_slice_ns(nr_cpus),
                false => 0,
            };
            config.policy.wake_affine_far = true;
            config.policy.wake_crowd = program.seeks_idle_from;
        }
        Semantics::Published => config.policy.enforce = Enforce::Timer,
    }
}

fn add_groups(config: &mut Config, program: &Program, settings: &Settings) -> Result<(), SettingsError> {
    let mut rng = Pcg64::new(u128::from(settings.seed), 0x706c_616e_7068_6173);
    for (ix, group) in program.groups.iter().enumerate() {
        let own = &settings.groups[ix];
        // Drawn for every group, so that one group's setting does not move another's phase.
        let phase = (rng.random_range(0.0..1.0f64) + settings.phase).fract();
        let Some(parent) = group.parent else { continue };
        // What a rival's own limit let it have is what was recorded.
        let as_recorded = own.quota_us == group.quota_us && own.period_us == group.period_us;
        let quota_us = own.quota_us.filter(|_| !(program.only_rivals[ix] && as_recorded));
        let mut spec = GroupSpec::new(group.path.clone(), GroupId(parent));
        spec.cpu_weight = own.weight;
        spec.idle = group.idle;
        spec.headroom_percent = own.headroom_percent;
        let period_ns = own.period_us * 1000;
        spec.phase_ns = match group.phase_ns {
            Some(known_ns) if as_recorded => known_ns + (settings.phase * period_ns as f64) as u64,
            _ => (phase * period_ns as f64) as u64,
        };
        // The simulator charges all of the recorded work, and what is charged beyond it only where that goes by wake-ups.
        let charged = match program.idle_charged_ns {
            0 => group.charged(),
            _ => group.charged().min(1.0),
        };
        let of_work_ns = |us: u64| (us as f64 * 1000.0 / charged).round() as u64;
        spec.limits = Limits {
            // The least quota that there is may stand for less work than that.
            quota_ns: quota_us.map(|us| of_work_ns(us).max(BW_QUOTA_MIN_NS)),
            period_ns: own.period_us * 1000,
            burst_ns: quota_us.map_or(0, |_| of_work_ns(own.burst_us)),
            onset_percent: 0,
        };
        // As it began, part of its quota was used up already.
        if let (Some((until_ns, left_ns)), Some(quota_ns), true) = (
            group.first_ns,
            spec.limits.quota_ns,
            as_recorded && settings.phase == 0.0,
        ) {
            config.changes.push(Change {
                at_ns: until_ns,
                what: ChangeKind::Limits {
                    group: GroupId(ix as u32),
                    limits: spec.limits,
                },
            });
            spec.limits.quota_ns = Some(left_ns.clamp(BW_QUOTA_MIN_NS, quota_ns));
            spec.limits.burst_ns = 0;
        }
        config.add_group(spec);
    }
    Ok(())
}

fn outcome(
    program: &Program,
    settings: &Settings,
    state: &State,
    results: &plimsoll_sim::Results,
) -> Outcome {
    let end_ns = results.end_ns;
    let mut requests = Vec::with_capacity(program.requests.len());
    let mut busy_ns = 0;
    for (ix, info) in program.requests.iter().enumerate() {
        let end = state.ended(ix as u32);
        let begins = state.begins(program, ix as u32);
        let Some(begin_ns) = begins.filter(|&ns| ns <= end_ns) else {
            continue;
        };
        busy_ns = busy_ns.max(end.unwrap_or(0));
        let until = end.map_or(end_ns, |ns| ns + info.held_ns);
        requests.push(Request {
            begin_ns,
            latency_ns: until.saturating_sub(begin_ns),
            class: info.class,
            done: end.is_some(),
        });
    }
    if busy_ns == 0 {
        busy_ns = end_ns;
    }
    // What ran after the last request does not belong to the time up to it. Where requests are left, it has not run.
    let all_done = requests.len() == program.requests.len() && requests.iter().all(|r| r.done);
    let groups = program
        .groups
        .iter()
        .zip(&results.groups)
        .zip(&settings.groups)
        .map(|((group, result), own)| {
            let stat = result.stat.map(|s| CpuStat {
                nr_periods: s.nr_periods,
                nr_throttled: s.nr_throttled,
                throttled_ns: s.throttled_ns,
            });
            let throttled = own.quota_us.and(stat).map(|s| match s.nr_periods {
                0 => 0.0,
                periods => s.nr_throttled as f64 / periods as f64,
            });
            let late_ns = if all_done { group.late_work_ns } else { 0 };
            GroupOutcome {
                path: group.path.clone(),
                usage_ns: result.usage_ns,
                cpus: result.usage_ns.saturating_sub(late_ns) as f64 / busy_ns.max(1) as f64,
                stat,
                throttled,
            }
        })
        .collect();
    // As it is counted: what a busy sibling took is in the threads' CPU time, and not in their work.
    let all_work: u64 = program.bursts.iter().map(|b| b.work_ns).sum();
    Outcome {
        requests,
        groups,
        end_ns,
        busy_ns,
        work_done: state.begun_ns() as f64 / all_work.max(1) as f64,
        events: results.events.total(),
    }
}

/// What the trace itself measured.
pub fn recorded(program: &Program) -> Outcome {
    let requests = program.requests.iter().map(|r| Request {
        begin_ns: r.begin_ns,
        latency_ns: r.latency_ns + r.held_ns,
        class: r.class,
        done: true,
    });
    let last_ns = last_end_ns(program.requests.iter());
    let busy_ns = last_ns.unwrap_or(program.duration_ns).max(1);
    let groups = program.groups.iter().map(|g| GroupOutcome {
        path: g.path.clone(),
        usage_ns: g.work_ns,
        cpus: (g.work_ns - g.late_work_ns) as f64 / busy_ns as f64,
        stat: None,
        throttled: g.throttled,
    });
    Outcome {
        requests: requests.collect(),
        groups: groups.collect(),
        end_ns: program.duration_ns,
        busy_ns,
        work_done: 1.0,
        events: 0,
    }
}
