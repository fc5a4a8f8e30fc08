// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the process ends with. The codes are part of the interface: scripts and tests rely on them.
use std::fmt;
use std::process::ExitCode;

pub const HELP: &str = "Exit codes:
  0  done
  1  a result missed its tolerance
  2  bad input or usage; nothing was done
  3  this machine cannot do it; the message says what is missing";

/// How a command ended that could do its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    Done,
    /// It ran, and a result lies outside its tolerance.
    Missed,
    /// A command that was run for the user ended with this code.
    Code(u8),
}

/// Why a command could not do its work.
#[derive(Debug)]
pub enum Failure {
    /// Bad input or usage: what was given, where, and what is allowed.
    Input(String),
    /// This machine cannot do it: what is missing.
    Machine(String),
}

pub type Result = std::result::Result<Outcome, Failure>;

impl Failure {
    /// A file that cannot be read or written.
    pub fn file(what: &str, path: &std::path::Path, error: &std::io::Error) -> Self {
        Failure::Input(format!("{}: cannot {what}: {error}", path.display()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Input(message) | Failure::Machine(message) => f.write_str(message),
        }
    }
}

impl From<plimsoll_live::Error> for Failure {
    fn from(error: plimsoll_live::Error) -> Self {
        match error {
            plimsoll_live::Error::Input(message) => Failure::Input(message),
            plimsoll_live::Error::Machine(message)
            | plimsoll_live::Error::Absent(message)
            | plimsoll_live::Error::Failed(message) => Failure::Machine(message),
        }
    }
}

impl From<plimsoll_scenario::Problems> for Failure {
    fn from(problems: plimsoll_scenario::Problems) -> Self {
        Failure::Input(problems.to_string())
    }
}

/// Prints a failure, one `error:` for each line of it, and gives the exit code.
pub fn code(result: Result) -> ExitCode {
    match result {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Missed) => ExitCode::from(1),
        Ok(Outcome::Code(code)) => ExitCode::from(code),
        Err(failure) => {
            for line in failure.to_string().lines() {
                errln!("error: {line}");
            }
            ExitCode::from(match failure {
                Failure::Input(_) => 2,
                Failure::Machine(_) => 3,
            })
        }
    }
}
