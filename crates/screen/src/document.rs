// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A screening as the documented JSON: its schema in docs/src/reference is made of this.
use crate::Screening;
use schemars::JsonSchema;
use serde::Serialize;

/// `plimsoll screen --json`.
#[derive(Serialize, JsonSchema)]
pub struct Screened<'a> {
    /// Version of this format: 1.
    pub format: u32,
    /// Rows by workload and container.
    pub screening: &'a Screening,
}

impl<'a> Screened<'a> {
    /// Of what [`crate::Collector::finish`] gives.
    pub fn of(screening: &'a Screening) -> Self {
        Screened { format: 1, screening }
    }
}
