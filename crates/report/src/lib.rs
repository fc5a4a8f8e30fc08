// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Results as others take them: what a simulation gave, as types with the names and units of the documented JSON. The
//! command line, sweeps and Python use the same.
mod run;

pub use run::*;
