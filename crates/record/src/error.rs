// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why nothing was recorded.
use plimsoll_trace::TraceError;

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// This machine, or this user on it, cannot do it; says what is missing.
    #[error("{what} is not possible here: {missing}")]
    Unsupported { what: &'static str, missing: String },

    /// What the user asked for makes no sense.
    #[error("{field}: {value}; allowed: {allowed}")]
    Input {
        field: &'static str,
        value: String,
        allowed: String,
    },

    #[error(transparent)]
    Trace(#[from] TraceError),
}
