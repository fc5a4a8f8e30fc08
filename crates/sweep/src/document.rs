// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A sweep's quantiles as the documented JSON: its schema in docs/src/reference is made of this.
use crate::Summary;
use schemars::JsonSchema;
use serde::Serialize;

/// `plimsoll sweep report --json`.
#[derive(Serialize, JsonSchema)]
pub struct Swept<'a> {
    /// Version of this format: 1.
    pub format: u32,
    /// Quantiles over the seeds, by combination.
    pub sweep: &'a Summary,
}

impl<'a> Swept<'a> {
    /// Of what [`crate::summary`] gives.
    pub fn of(sweep: &'a Summary) -> Self {
        Swept { format: 1, sweep }
    }
}
