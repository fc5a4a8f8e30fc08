// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Results as others take them: what a simulation gave, as types with the names and units of the documented JSON, and the
//! charts of pages. The command line, sweeps and Python use the same.
mod run;
pub mod svg;

pub use run::*;
