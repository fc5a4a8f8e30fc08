// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The one binary: flags in, results out. Everything else lives in the library crates.
//!
//! Each subcommand is a file in `cmd/` with its flags (`Args`) and `run`. The flags defined there feed the parser, the
//! help, the man pages and the completions.
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
mod out;

mod cmd;
mod exit;
mod http;
mod listen;
mod number;
mod openmetrics;
mod output;
mod perfetto;
mod picture;
mod progress;
mod rates;
mod signals;
mod simulate;
mod stream;
mod timeline;

use clap::Parser;
use std::io::Write;
use std::process::ExitCode;

/// CPU limits for Linux that hold the load line.
///
/// Simulates, enforces and plans CPU limits: quota, burst, weights, stealing, headroom. The simulator and the
/// sched_ext scheduler share one policy, so what a simulation shows is what the scheduler does.
#[derive(Parser)]
#[command(name = "plimsoll", version = VERSION, after_help = exit::HELP, after_long_help = exit::HELP, arg_required_else_help = true)]
pub struct Cli {
    /// Print the licences of Plimsoll and of all that is linked into it
    #[arg(long, exclusive = true)]
    licences: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

/// With the commit, in a release build: build.rs.
pub const VERSION: &str = env!("PLIMSOLL_VERSION");

/// Made and compared by tests/all/notice.rs.
const NOTICE: &str = include_str!("../../../NOTICE");

#[derive(clap::Subcommand)]
enum Command {
    Demo(cmd::demo::Args),
    Simulate(cmd::simulate::Args),
    Calibrate(cmd::calibrate::Args),
    Run(cmd::run::Args),
    Agent(cmd::agent::Args),
    Status(cmd::status::Args),
    Top(cmd::top::Args),
    Set(cmd::set::Args),
    Get(cmd::get::Args),
    Record(cmd::record::Args),
    Reproduce(cmd::reproduce::Args),
    Plan(cmd::plan::Args),
    Explain(cmd::explain::Args),
    Screen(cmd::screen::Args),
    Sweep(cmd::sweep::Args),
    Schema(cmd::schema::Args),
    Completions(cmd::completions::Args),
    Man(cmd::man::Args),
    Validate(cmd::validate::Args),
    Vm(cmd::vm::Args),
}

/// The command line. Help and version are output as any other: `parse` would lose it on a full disk without a word.
fn parse() -> Cli {
    Cli::try_parse().unwrap_or_else(|said| {
        if said.use_stderr() {
            said.exit();
        }
        out::printed(said.print().and_then(|()| std::io::stdout().flush()));
        std::process::exit(said.exit_code());
    })
}

fn main() -> ExitCode {
    signals::let_writes_fail();
    let Some(command) = parse().command else {
        // Without a command there is help, unless this was asked.
        out!("{NOTICE}");
        return ExitCode::SUCCESS;
    };
    let result = match command {
        Command::Demo(args) => cmd::demo::run(&args),
        Command::Simulate(args) => cmd::simulate::run(&args),
        Command::Calibrate(args) => cmd::calibrate::run(&args),
        Command::Run(args) => cmd::run::run(&args),
        Command::Agent(args) => cmd::agent::run(&args),
        Command::Status(args) => cmd::status::run(&args),
        Command::Top(args) => cmd::top::run(&args),
        Command::Set(args) => cmd::set::run(&args),
        Command::Get(args) => cmd::get::run(&args),
        Command::Record(args) => cmd::record::run(&args),
        Command::Reproduce(args) => cmd::reproduce::run(&args),
        Command::Plan(args) => cmd::plan::run(&args),
        Command::Explain(args) => cmd::explain::run(&args),
        Command::Screen(args) => cmd::screen::run(&args),
        Command::Sweep(args) => cmd::sweep::run(&args),
        Command::Schema(args) => cmd::schema::run(&args),
        Command::Completions(args) => cmd::completions::run(&args),
        Command::Man(args) => cmd::man::run(&args),
        Command::Validate(args) => cmd::validate::run(&args),
        Command::Vm(args) => cmd::vm::run(&args),
    };
    exit::code(result)
}
