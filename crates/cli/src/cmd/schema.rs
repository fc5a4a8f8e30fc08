// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plimsoll schema`: the JSON schemas of our input files, for editors and for reading.
use crate::exit::{Outcome, Result};

/// Print the JSON schema of scenario or machine files
///
/// An editor with a TOML language server completes and checks scenarios with it.
#[derive(clap::Args)]
pub struct Args {
    /// Which kind of file
    #[arg(value_enum, default_value = "scenario")]
    kind: Kind,

    /// Print the keys as Markdown tables, for reading
    #[arg(long)]
    markdown: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Kind {
    Scenario,
    Machine,
}

pub fn run(args: &Args) -> Result {
    let schema = match args.kind {
        Kind::Scenario => plimsoll_scenario::scenario_schema(),
        Kind::Machine => plimsoll_scenario::machine_schema(),
    };
    if args.markdown {
        out!("{}", plimsoll_scenario::reference(&schema));
    } else {
        outln!("{schema:#}");
    }
    Ok(Outcome::Done)
}
