// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What cannot be replayed as asked.

/// A setting that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {value} is not allowed; allowed: {allowed}")]
pub struct SettingsError {
    pub what: String,
    pub value: String,
    pub allowed: String,
}
