// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plimsoll schema`: the JSON schemas of our input files and of results, for editors, programs and reading.
use crate::exit::{Outcome, Result};

/// Print the JSON schema of scenario files, machine files or results
///
/// An editor with a TOML language server completes and checks scenarios with it. `results` is what `plimsoll simulate
/// --json` writes.
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
enum Kind {
    Scenario,
    Machine,
    Results,
}

pub fn run(args: &Args) -> Result {
    let schema = match args.kind {
        Kind::Scenario => plimsoll_scenario::scenario_schema(),
        Kind::Machine => plimsoll_scenario::machine_schema(),
        Kind::Results => schemars::schema_for!(plimsoll_report::Report).to_value(),
    };
    if args.markdown {
        out!("{}", plimsoll_scenario::reference(&schema));
    } else {
        outln!("{schema:#}");
    }
    Ok(Outcome::Done)
}
