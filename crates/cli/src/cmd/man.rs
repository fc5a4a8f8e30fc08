//! `plimsoll man`: the manual pages, from the flags' own definitions.
use crate::exit::{Failure, Outcome, Result};
use clap::CommandFactory;
use std::path::PathBuf;

/// Write the manual pages into a directory
#[derive(clap::Args)]
pub struct Args {
    /// Directory for plimsoll.1, plimsoll-simulate.1 ...; made if it is not there
    dir: PathBuf,
}

pub fn run(args: &Args) -> Result {
    std::fs::create_dir_all(&args.dir)
        .map_err(|error| Failure::file("make the directory", &args.dir, &error))?;
    clap_mangen::generate_to(crate::Cli::command(), &args.dir)
        .map_err(|error| Failure::file("write the manual pages", &args.dir, &error))?;
    Ok(Outcome::Done)
}
