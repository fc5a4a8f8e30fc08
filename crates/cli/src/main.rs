//! The one binary: flags in, results out. Everything else lives in the library crates.
use clap::Parser;

/// CPU limits for Linux that hold the load line.
#[derive(Parser)]
#[command(name = "plimsoll", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {}

fn main() {
    match Cli::parse().command {}
}
