// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plimsoll completions`: what a shell needs to complete our flags.
use crate::exit::{Outcome, Result};
use clap::CommandFactory;

/// Print a completion script for a shell
///
/// Example, for bash: plimsoll completions bash > /etc/bash_completion.d/plimsoll
#[derive(clap::Args)]
pub struct Args {
    /// Which shell
    shell: clap_complete::Shell,
}

pub fn run(args: &Args) -> Result {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "plimsoll", &mut script);
    out!("{}", String::from_utf8_lossy(&script));
    Ok(Outcome::Done)
}
