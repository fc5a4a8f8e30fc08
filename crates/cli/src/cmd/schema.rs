// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plimsoll schema`: the JSON schemas of our input files and of results, for editors, programs and reading.
use crate::exit::{Outcome, Result};
use plimsoll_plan::document::{Explained, Planned, Replay};
use plimsoll_screen::Screened;
use plimsoll_sweep::Swept;
use schemars::schema_for;

/// Print the JSON schema of scenario files, machine files or results
///
/// An editor with a TOML language server completes and checks scenarios with it. The others are of what commands write with
/// `--json`.
#[derive(clap::Args)]
pub struct Args {
    /// What to print the schema of
    #[arg(value_enum, default_value = "scenario")]
    kind: Kind,

    /// Print the keys or fields as Markdown tables, for reading
    #[arg(long)]
    markdown: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Kind {
    /// A scenario's file
    Scenario,
    /// A machine model's file
    Machine,
    /// Results of `plimsoll simulate`
    Results,
    /// Results of `plimsoll simulate --replay`
    Replay,
    /// Results of `plimsoll plan`
    Plan,
    /// Results of `plimsoll explain`
    Explain,
    /// Results of `plimsoll screen`
    Screen,
    /// Results of `plimsoll sweep report`
    Sweep,
}

impl Kind {
    pub fn schema(self) -> serde_json::Value {
        match self {
            Kind::Scenario => plimsoll_scenario::scenario_schema(),
            Kind::Machine => plimsoll_scenario::machine_schema(),
            Kind::Results => schema_for!(plimsoll_report::Report).to_value(),
            Kind::Replay => schema_for!(Replay).to_value(),
            Kind::Plan => schema_for!(Planned).to_value(),
            Kind::Explain => schema_for!(Explained).to_value(),
            Kind::Screen => schema_for!(Screened).to_value(),
            Kind::Sweep => schema_for!(Swept).to_value(),
        }
    }
}

pub fn run(args: &Args) -> Result {
    let schema = args.kind.schema();
    if args.markdown {
        out!("{}", plimsoll_scenario::reference(&schema));
    } else {
        outln!("{schema:#}");
    }
    Ok(Outcome::Done)
}
