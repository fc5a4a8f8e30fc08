// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be wrong with a configuration or a run.

/// A value that no machine or kernel would take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {value} is not allowed; allowed: {allowed}")]
pub struct ConfigError {
    /// Which field of what: "group /web: quota".
    pub what: String,
    /// What was given.
    pub value: String,
    /// The range, or the values that are.
    pub allowed: String,
}

/// Why a run has no results.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// It does not come to its end.
    #[error(transparent)]
    Stuck(#[from] Stuck),
    /// A task's program asked for what is not there: it spawned a task into an unknown group, sent to an unknown channel.
    #[error("at {at_ns} ns: {problem}")]
    Program {
        /// When it did so.
        at_ns: u64,
        /// What it asked for.
        problem: ConfigError,
    },
    /// The flag was set that was given to [`crate::Simulation::cancelled_by`].
    #[error("cancelled at {at_ns} ns")]
    Cancelled {
        /// How far the run had come.
        at_ns: u64,
    },
}

/// A run that does not come to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("time stands still at {at_ns} ns: {why}")]
pub struct Stuck {
    /// Where it stands.
    pub at_ns: u64,
    /// What does not let it pass.
    pub why: String,
}
