//! The machine at work.
mod services;

pub(crate) use services::Services;

use crate::config::{Config, ConfigError};
use crate::observer::Observer;
use crate::results::Results;

/// A configuration that was found possible.
pub struct Simulation {
    _config: Config,
}

impl Simulation {
    /// Checks everything. Errors name what is wrong, its value and the allowed range.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        Ok(Self { _config: config })
    }

    /// Runs to the end.
    pub fn run(self, _observer: Option<&mut dyn Observer>) -> Results {
        unimplemented!("the engine lands next")
    }
}
