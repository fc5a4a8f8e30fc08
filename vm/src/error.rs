// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a guest could not be run.

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller gave something that cannot be used; the message names it and what is allowed.
    #[error("{0}")]
    Input(String),
    /// This machine lacks something; the message names it and how to get it.
    #[error("{0}")]
    Machine(String),
    /// The guest broke down before its command ended; the message has the end of its console.
    #[error("{message}")]
    Guest { message: String, console: Vec<u8> },
    /// The command did not end in time.
    #[error("{message}")]
    Timeout { message: String, console: Vec<u8> },
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A file of ours that cannot be read or written: a fault of the machine, not of the input.
    pub(crate) fn file(what: &str, path: &std::path::Path, error: &std::io::Error) -> Self {
        Error::Machine(format!("{}: cannot {what}: {error}", path.display()))
    }
}
