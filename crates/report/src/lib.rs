// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Results as others take them: what a simulation gave, as types with the names and units of the documented JSON, and the tables
//! that show it. The command line, sweeps and Python use the same. What plans, screenings and sweeps give is with them:
//! `plimsoll_plan::document`, `plimsoll_screen::Screened`, `plimsoll_sweep::Swept`.
#![warn(missing_docs)]
mod figures;
mod run;
mod table;
pub mod tables;

pub use figures::Value;
pub use run::*;
pub use table::Table;

/// The JSON text of a document, its keys in alphabetical order, with a newline at its end.
pub fn text(document: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(document).expect("keys are strings");
    format!("{value:#}\n")
}
