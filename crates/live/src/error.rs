// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can go wrong, by whose fault.

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Bad input: what was given and what is allowed.
    #[error("{0}")]
    Input(String),
    /// This machine cannot do it: what is missing.
    #[error("{0}")]
    Machine(String),
    /// No scheduler of ours runs.
    #[error("{0}")]
    Absent(String),
    /// It worked, and then it failed.
    #[error("{0}")]
    Failed(String),
}

pub type Result<T> = std::result::Result<T, Error>;
