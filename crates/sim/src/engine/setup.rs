// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a configuration that was found possible to a machine about to run: memory, groups, tasks.
use super::check::Counts;
use super::events::{Slots, Timer, Timers};
use super::lines::Line;
use super::policy::{self as pl, Memory};
use super::state::{Channel, Cpu, Pending, State, Task, NONE};
use super::topo::{LlcState, Topo};
use super::{headroom, ledger, report, Engine, Services};
use crate::class::{Class, Shape};
use crate::config::{CgroupMode, Config, GroupId, TaskId, TaskSpec, WakeSearch};
use crate::observer::Observer;
use crate::results::{EventCounts, RunDelay, Touches};
use std::collections::BTreeSet;

impl<'o, C: Class> Engine<'o, C> {
    pub fn new(config: Config, mut class: C, observer: Option<&'o mut dyn Observer>) -> Self {
        let machine = config.machine;
        let nr_cpus = machine.topology.nr_cpus();
        let mut parents = vec![None];
        parents.extend(config.groups.iter().map(|group| Some(group.parent.0)));
        parents.push(None);
        let nr_groups = parents.len();
        let topo = Topo::new(&machine.topology);
        let tick_len_ns = 1_000_000_000 / u64::from(machine.hz);
        let clock_ns = machine.clock_start_ns % tick_len_ns;
        let mut paths = vec!["/".to_owned()];
        let mut phases_ns = vec![0];
        let mut own_cpusets = vec![None];
        for group in &config.groups {
            paths.push(group.path.clone());
            phases_ns.push(group.phase_ns);
            own_cpusets.push(group.cpuset.clone());
        }
        phases_ns.push(0);
        let memory = Memory::new(
            &parents,
            nr_cpus as usize,
            config.policy.cgroup_mode == CgroupMode::Concur,
        );
        class.begin(&Shape {
            nr_cpus,
            nr_groups: nr_groups as u32,
            check: config.check,
            delays: config.policy.delay_dequeue,
            root: memory.root(),
        });
        let mut engine = Self {
            now_ns: 0,
            ended: false,
            failed: None,
            llcs: topo.llcs.iter().map(|cpus| LlcState::new(cpus.len())).collect(),
            costs: machine.costs,
            policy: config.policy,
            tick_len_ns,
            tick_phase_ns: (machine.tick_phase_ns % tick_len_ns + tick_len_ns - clock_ns) % tick_len_ns,
            // Within a tick: for the last of many CPUs it is many times as much.
            tick_stagger_ns: machine.tick_stagger_ns % tick_len_ns,
            clock_start_ns: machine.clock_start_ns,
            stop_when_done: config.stop_when_done,
            check_every: match (config.check, cfg!(debug_assertions)) {
                (true, _) => 1,
                // A check looks at everything: on large machines not after every single event.
                (_, true) => 1 + (nr_groups * nr_cpus as usize + config.tasks.len()) as u32 / 64,
                _ => 0,
            },
            since_check: 0,
            check_counts: Counts::default(),
            ledger: config.check.then(|| Box::new(ledger::Ledger::new(nr_groups))),
            slots: Slots::new(nr_cpus as usize),
            timers: Timers::new(),
            cpus: (0..nr_cpus).map(Cpu::new).collect(),
            nr_online: nr_cpus,
            nr_busy: 0,
            nr_overloaded: 0,
            nr_give_way: 0,
            stepping: NONE,
            seat: None,
            tasks: Vec::with_capacity(config.tasks.len()),
            behaviours: Vec::with_capacity(config.tasks.len()),
            unfinished: 0,
            forks: BTreeSet::new(),
            channels: config.channels.iter().map(|&spec| Channel::new(spec)).collect(),
            route_line: Line::default(),
            services: Services::new(
                config.seed,
                nr_cpus,
                config.latencies.len(),
                config.counters.len(),
                config.channels.len() as u32,
            ),
            memory,
            class,
            paths,
            phases_ns,
            own_cpusets,
            cpusets: vec![None; nr_groups],
            period_at_ns: vec![0; nr_groups],
            is_side: vec![false; nr_groups],
            had_quota: vec![false; nr_groups],
            headroom: pl::zeroed(),
            headroom_marks: headroom::Marks::default(),
            released: Vec::new(),
            unparked: Vec::new(),
            observer,
            counts: EventCounts::default(),
            touches: Touches::default(),
            newidle_rng: super::services::stream(config.seed, "new-idle"),
            interrupts_rng: super::services::stream(config.seed, "interrupts"),
            group_usage_ns: vec![0; nr_groups],
            group_delays: vec![RunDelay::default(); nr_groups],
            workload_usage_ns: vec![0; config.workloads.len()],
            workload_delays: vec![Default::default(); config.workloads.len()],
            workloads: config.workloads,
            latencies: config.latencies,
            counters: config.counters,
            warm: report::WarmUp::until(config.warmup_ns),
            topo,
            changes: config.changes,
        };
        for cpu in 0..nr_cpus {
            engine.show_idle(cpu);
        }
        engine.begin_side();
        engine.resolve_cpusets();
        for (i, group) in config.groups.iter().enumerate() {
            let number = i as u32 + 1;
            engine
                .memory
                .configure(number, group.cpu_weight, group.idle, group.headroom_percent);
            if group.limits.quota_ns.is_some() {
                engine.set_limits(number, &group.limits);
            }
        }
        engine.link_groups();
        engine.link_side();
        engine.timers.push(0, Timer::WarmUp);
        if config.warmup_ns > 0 {
            engine.timers.push(config.warmup_ns, Timer::WarmUp);
        }
        for (index, change) in engine.changes.iter().enumerate() {
            let index = index as u32;
            engine.timers.push(change.at_ns, Timer::Change { index });
        }
        for spec in config.tasks {
            let task = engine.services.register(spec.name.clone());
            engine.add_task(task, spec, 0);
        }
        engine.timers.push(config.duration_ns, Timer::End);
        engine
    }

    /// Takes over a task that has been numbered, and starts it when its time comes.
    pub(super) fn add_task(&mut self, task_id: TaskId, spec: TaskSpec, near_cpu: u32) {
        let number = task_id.0;
        let task = Task {
            policy: self.memory.task(spec.group.0, near_cpu),
            group: spec.group.0,
            state: State::New,
            pending: Pending::Next,
            order: 0,
            work_ns: 0,
            debt_ns: 0,
            received: None,
            fetch_lines: 0,
            fetch_from: 0,
            cpu_ns: 0,
            runnable_ns: 0,
            last_ran_ns: 0,
            last_cpu: NONE,
            timer: 0,
            waits_for: NONE,
            parked_by: NONE,
            parked_next: NONE,
            parked_previous: NONE,
            workload: spec.workload,
            address_space: spec.address_space,
            forked_by: NONE,
            nice: spec.nice as i8,
            idle_class: spec.idle,
            external: spec.external,
            background: spec.background,
            follows_waker: spec.follows_waker,
            start_cpu: spec.start_cpu.unwrap_or(NONE),
            affinity: spec.affinity.map(Box::new),
            instant_steps: 0,
            recent_cpu: near_cpu,
            waker: pl::zeroed(),
        };
        if number as usize == self.tasks.len() {
            self.tasks.push(task);
            self.behaviours.push(spec.behaviour);
        } else {
            debug_assert_eq!(self.tasks[number as usize].state, State::Exited);
            self.tasks[number as usize] = task;
            self.behaviours[number as usize] = spec.behaviour;
        }
        self.class.born(task_id);
        self.unfinished += u32::from(!spec.background);
        self.set_class(number);
        self.timers
            .push(spec.start_ns.max(self.now_ns), Timer::Start { task: number });
    }

    /// A task comes into being: on the least busy CPU. Its vruntime, for [`crate::Fair::Cfs`], begins at that CPU's clock.
    pub(super) fn start_task(&mut self, task: u32) {
        if let Some(observer) = self.observer.as_deref_mut() {
            let group = GroupId(self.tasks[task as usize].group);
            observer.task(self.now_ns, TaskId(task), self.services.name(TaskId(task)), group);
        }
        self.tasks[task as usize].state = State::Blocked;
        if self.tasks[task as usize].external {
            self.external_step(task);
            return;
        }
        self.forget_useless_affinity(task);
        let wanted = self.tasks[task as usize].start_cpu;
        let cpu = match wanted < self.cpus.len() as u32 && self.allowed(task, wanted) {
            true => wanted,
            false
                if self.policy.wake_search == WakeSearch::Live
                    && self.tasks[task as usize].forked_by != NONE =>
            {
                let (mut cpu, _) = self.select_live(task, NONE, false);
                if !self.cpus[cpu as usize].idle && !self.gives_way(task, cpu) {
                    cpu = self.lightest(task, cpu);
                }
                self.count_placed(task, cpu, NONE, false);
                cpu
            }
            false => self.select_any(task),
        };
        let entry = &mut self.tasks[task as usize];
        let fair = &self.cpus[cpu as usize].fair;
        self.memory.pl_cfs_born(&mut entry.policy, cpu, fair);
        entry.runnable_ns = self.now_ns;
        self.counts.wakeups += 1;
        if let Some(observer) = self.observer.as_deref_mut() {
            observer.wake(self.now_ns, TaskId(task), cpu, cpu);
        }
        self.activate(task, cpu, NONE, true);
    }
}
