// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A measured run again, on the simulated machine: built from the row's parameters alone.
use crate::measured::Row;
use plimsoll_scenario::{find, machine, read, MachineFile, Problems, Tree};
use plimsoll_sim::{
    Config, GroupId, GroupSpec, Limits, Machine, Mainline, Numbering, Policy, Simulation, Topology,
};
use plimsoll_workload::{Duty, Place};
use std::path::Path;

/// Which scheduler ran while the runs were measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scheduler {
    /// The kernel's own: what mainline took of burst, limits noticed at ticks.
    #[default]
    Kernel,
    /// The live scheduler: published semantics, limits noticed by timer, stealing.
    Plimsoll,
}

impl Scheduler {
    /// The child joins its group and starts its threads this long before the first release, at least (bwtest.c: t0;
    /// tests/live/duty-cycles.sh).
    fn start_ms(self) -> f64 {
        match self {
            Scheduler::Kernel => 20.0,
            Scheduler::Plimsoll => 105.0,
        }
    }
}

/// Aligned runs release this long after a period boundary (bench/results/kernel-bandwidth-truth.md).
const AFTER_BOUNDARY_US: u64 = 5_000;
/// A run that takes longer than its window by this much has lost a thread.
const OVERTIME_MS: u64 = 60_000;

/// The machine that the rows were measured on, with its kernels.
pub struct Model {
    file: MachineFile,
    machine: Machine,
    own: Own,
    scheduler: Scheduler,
}

/// What the probe itself costs, for the model's machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Own {
    /// CPU time from a thread's birth to its first sleep.
    pub birth_us: f64,
    /// CPU time that one thread takes to create another.
    pub create_us: f64,
    /// CPU time between two looks at the thread's clock, on an otherwise idle machine.
    pub check_us: f64,
    /// What waiting for one's turn adds to it when all virtual CPUs are busy: a round of turns fits into the time to the
    /// machine's next timer, however many CPUs there are.
    pub turn_us: f64,
    /// CPU time of a slow thread between two sleeps.
    pub slow_us: f64,
    /// CPU time that a thread is charged for coming back from a sleep (timer interrupt, wake-up of itself and others,
    /// switch).
    pub wake_us: f64,
    /// The same on a machine where nothing else runs: no other virtual CPU takes turns.
    pub wake_alone_us: f64,
}

/// bwtest.c on the machine's 2 ns for one instruction: a chunk of 2,000 turns of 6 instructions and a system call;
/// 100 turns, the clock, and the way into a sleep and back; clone, exit and the page faults of a new stack. Creating is
/// pthread_create, 16 times on 8 CPUs of 6.1 and of 7.2: 180 to 340 us. Turns and waking are fits, to CPU time above work
/// for each burst and to latencies: of bench/results/kernel-bandwidth-truth.csv, and of the two files of bench/results that
/// docs/src/lab/validation.md says were looked at; one value for all kernels, CPUs and cases.
/// Waking alone is CPU time above work of the live scheduler's row d1 without burst (docs/src/lab/live.md).
pub const OWN: Own = Own {
    birth_us: 60.0,
    create_us: 200.0,
    check_us: 25.0,
    turn_us: 400.0,
    slow_us: 12.0,
    wake_us: 120.0,
    wake_alone_us: 32.0,
};

/// What a simulated run came to, in the units of the file.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Simulated {
    pub cpu_us: f64,
    pub nr_periods: f64,
    pub nr_throttled: f64,
    pub throttled_us: f64,
    pub nr_bursts: f64,
    pub burst_us: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// Where the first release fell in its period: what was assumed for rows that do not say.
    pub start_us: u64,
}

impl Model {
    /// A machine model by name or path.
    pub fn load(wanted: &str, scheduler: Scheduler) -> Result<Model, Problems> {
        let found =
            find::machine(wanted, Path::new(".")).map_err(|error| Problems::one("--machine", error))?;
        let tree = Tree::parse(&found.name, &found.text)?;
        let file: MachineFile = read(&tree)?;
        let machine = machine(&file, &tree, &[])?;
        Ok(Model {
            file,
            machine,
            own: OWN,
            scheduler,
        })
    }

    /// The kernel that stands for a row's.
    pub fn kernel(&self, row: &Row) -> Option<&str> {
        self.file.kernel(&row.kernel).map(|(name, _)| name)
    }

    /// Runs a row with its first release `start_us` after a period boundary, and boundaries at `phase_us`.
    pub fn run(&self, row: &Row, phase_us: u64, start_us: u64, seed: u64) -> Simulated {
        let config = self.config(row, phase_us, start_us, seed);
        // The reader has checked everything that the simulator does.
        let results = match Simulation::new(config) {
            Ok(simulation) => simulation.run(None).unwrap_or_else(|stuck| panic!("{stuck}")),
            Err(error) => panic!("a checked row cannot be simulated: {error}"),
        };
        let group = &results.groups[1];
        let stat = group.stat.unwrap_or_default();
        let latency = &results.workloads[0].latencies[0].histogram.whole();
        let us = |ns: u64| ns as f64 / 1000.0;
        // As the probe picks it from its sorted list: of two in the middle, the later one.
        let percentile = |q: f64| {
            let n = latency.len();
            let rank = (n.saturating_sub(1) as f64 * q + 0.5).floor() + 1.0;
            // The middle of the rank's part: a quotient that is rounded up would be the next one's.
            latency.value_at_quantile((rank - 0.5) / n.max(1) as f64)
        };
        Simulated {
            // The probe's threads first look at their clocks when they have been born.
            cpu_us: us(group.usage_ns) - (self.own.birth_us + self.create_us(row)) * f64::from(threads(row)),
            nr_periods: stat.nr_periods as f64,
            nr_throttled: stat.nr_throttled as f64,
            throttled_us: us(stat.throttled_ns),
            nr_bursts: stat.nr_bursts as f64,
            burst_us: us(stat.burst_ns),
            p50_us: us(percentile(0.5)),
            p99_us: us(percentile(0.99)),
            start_us,
        }
    }

    /// Runs a row: aligned as the probe was, or, where the row does not say how it lay in its period, at every
    /// millisecond of a period.
    pub fn runs(&self, row: &Row, seed: u64) -> Vec<Simulated> {
        match row.phase_us {
            Some(phase_us) => vec![self.run(row, phase_us, AFTER_BOUNDARY_US % row.period_us, seed)],
            None => (0..row.period_us)
                .step_by(1000)
                .map(|start_us| self.run(row, 0, start_us, seed))
                .collect(),
        }
    }

    /// Threads that may run anywhere are born at once: one after the other they would all be born on the CPU that has
    /// just become idle again, and the slices that births leave behind on every CPU would stay on that one.
    fn create_us(&self, row: &Row) -> f64 {
        if row.pin {
            self.own.create_us
        } else {
            0.0
        }
    }

    fn config(&self, row: &Row, phase_us: u64, start_us: u64, seed: u64) -> Config {
        let mut machine = self.machine.clone();
        machine.topology = Topology::regular(1, 1, 1, row.vcpus, 1, Numbering::SiblingsLast);
        // A boundary far from the clock's zero, on the tick grid like zero itself.
        let boundary_us = 1_000 * row.period_us + phase_us;
        machine.clock_start_ns = (boundary_us + start_us) * 1000 - (self.scheduler.start_ms() * 1e6) as u64;
        let mut policy = Mainline::of(&row.kernel).policy();
        if let Some((_, kernel)) = self.file.kernel(&row.kernel) {
            kernel.apply(row.vcpus, &mut policy, &mut machine.costs);
        }
        if self.scheduler == Scheduler::Plimsoll {
            // The kernel's costs stay; its policy does not.
            policy = Policy::default();
        }
        let mut config = Config::new(machine, (row.dur_ms + OVERTIME_MS) * 1_000_000);
        config.policy = policy;
        // Later kernels throw dice that differ from run to run: so does a repetition.
        config.seed = seed.wrapping_add(u64::from(row.rep.saturating_sub(1)));
        config.stop_when_done = true;
        let mut group = GroupSpec::new("/probe", GroupId::ROOT);
        group.limits = Limits {
            quota_ns: row.quota_us.map(|us| us * 1000),
            period_ns: row.period_us * 1000,
            burst_ns: row.burst_us * 1000,
            onset_percent: 0,
        };
        group.phase_ns = phase_us * 1000;
        let group = config.add_group(group);
        let busy = f64::from(threads(row).min(row.vcpus));
        // Of the CPUs other than a thread's own, the part that is busy.
        let others = (busy - 1.0) / f64::from((row.vcpus - 1).max(1));
        let wake_us = if threads(row) == 1 {
            self.own.wake_alone_us
        } else {
            self.own.wake_us
        };
        let duty = Duty {
            threads: row.nth,
            work_us: row.work_us.max(1) as f64 + wake_us,
            interval_us: row.interval_us as f64,
            stagger_us: 0.0,
            spinners: row.spin,
            slow_threads: row.slow,
            slow_work_us: self.own.slow_us,
            pin: row.pin,
            start_ms: self.scheduler.start_ms(),
            birth_work_us: self.own.birth_us,
            create_us: self.create_us(row),
            // One stream of instructions serves all CPUs: a chunk takes as much longer as there are busy ones, and its end
            // is noticed in a turn of its own CPU.
            check_us: self.own.check_us * busy + self.own.turn_us * others,
            window_ms: Some(row.dur_ms as f64),
        };
        duty.build(&Place::new("probe", group), &mut config);
        config
    }
}

fn threads(row: &Row) -> u32 {
    row.nth + row.spin + row.slow
}
