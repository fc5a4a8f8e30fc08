// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a configuration to results: at once, or in steps.
use crate::class::Class;
use crate::config::Config;
use crate::engine::turns::Plimsoll;
use crate::engine::{input, Engine};
use crate::error::{ConfigError, RunError};
use crate::observer::Observer;
use crate::results::Results;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

/// A configuration that was found possible.
pub struct Simulation {
    config: Config,
    cancel: Option<Arc<AtomicBool>>,
}

impl Simulation {
    /// Checks everything.
    ///
    /// # Errors
    /// What is wrong, its value and the allowed range. Nothing has been simulated.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        input::check(&config)?;
        Ok(Self { config, cancel: None })
    }

    /// The run ends with [`RunError::Cancelled`] some thousand events after any thread has set this flag, at most.
    #[must_use]
    pub fn cancelled_by(mut self, flag: Arc<AtomicBool>) -> Self {
        self.cancel = Some(flag);
        self
    }

    /// Runs to the end. Panics with [`Config::check`] if an invariant is broken: a mistake in code, not in input.
    ///
    /// # Errors
    /// Time stands still, a program asks for what is not there, or the run was cancelled.
    pub fn run(self, observer: Option<&mut dyn Observer>) -> Result<Results, RunError> {
        let mut run = self.start(observer);
        run.run_until(u64::MAX)?;
        Ok(run.finish())
    }

    /// A run that goes on as far as it is told to.
    pub fn start(self, observer: Option<&mut dyn Observer>) -> Run<'_> {
        let class = Plimsoll::new(self.config.policy.fair);
        self.start_with(class, observer)
    }

    /// Likewise, by another class's rules of taking turns; [`crate::Policy::fair`] does not count.
    pub fn start_with<C: Class>(self, class: C, observer: Option<&mut dyn Observer>) -> Run<'_, C> {
        Run {
            engine: Engine::new(self.config, class, observer),
            cancel: self.cancel,
        }
    }
}

/// A run between two of its moments. Where it is stopped on the way changes nothing of what happens.
///
/// ```
/// use plimsoll_sim::{Config, GroupId, Machine, Simulation, Step, TaskSpec, Topology};
///
/// let mut config = Config::new(Machine::new(Topology::flat(2)), 1_000_000_000);
/// let workload = config.add_workload("spin");
/// let spin = |_: &mut plimsoll_sim::Context| Step::Compute { ns: 1_000_000 };
/// config.add_task(TaskSpec::new(GroupId::ROOT, workload, "spin", spin));
///
/// let mut run = Simulation::new(config)?.start(None);
/// while !run.run_until(run.now_ns() + 100_000_000)? {
///     println!("{} ms are over", run.now_ns() / 1_000_000);
/// }
/// assert_eq!(run.finish().measured_ns, 1_000_000_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Run<'o, C = Plimsoll> {
    engine: Engine<'o, C>,
    cancel: Option<Arc<AtomicBool>>,
}

impl<C: Class> Run<'_, C> {
    /// Goes on until the clock of the run shows `at_ns`, with all that happens then. Returns whether the run is over.
    ///
    /// # Errors
    /// As [`Simulation::run`]; the run cannot go on.
    pub fn run_until(&mut self, at_ns: u64) -> Result<bool, RunError> {
        self.engine.run_until(at_ns, self.cancel.as_deref());
        match &self.engine.failed {
            Some(why) => Err(why.clone()),
            None => Ok(self.engine.ended),
        }
    }

    /// Time since the run began.
    pub fn now_ns(&self) -> u64 {
        self.engine.now_ns
    }

    /// By whose rules tasks take turns.
    pub fn class(&self) -> &C {
        &self.engine.class
    }

    /// Ends the run here, and says what it measured until now.
    pub fn finish(self) -> Results {
        self.engine.report()
    }
}
