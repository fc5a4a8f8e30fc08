// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plimsoll man`: the manual pages, from the flags' own definitions.
use crate::exit::{Failure, Outcome, Result};
use crate::output;
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
    let mut command = crate::Cli::command().disable_help_subcommand(true);
    command.build();
    let mut all = vec![];
    pages(command, &mut all);
    let files: Vec<PathBuf> = all.iter().map(|(name, _)| args.dir.join(name)).collect();
    output::check([], None, &files)?;
    for (file, (_, text)) in files.iter().zip(&all) {
        output::write(file, text)?;
    }
    Ok(Outcome::Done)
}

/// The page of a command and those of its subcommands, with their files' names.
fn pages(command: clap::Command, all: &mut Vec<(String, Vec<u8>)>) {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        pages(sub.clone(), all);
    }
    let page = clap_mangen::Man::new(command);
    let mut text = Vec::new();
    page.render(&mut text).expect("writing into memory");
    all.push((page.get_filename(), text));
}
