//! `plimsoll get`: knobs of a cgroup.
use crate::exit::{Failure, Outcome, Result};
use plimsoll_live::{cgroup_id, Knob};
use std::path::PathBuf;

/// Print the knobs of a cgroup; `-` where one is not set
#[derive(clap::Args)]
pub struct Args {
    /// Directory of the cgroup, such as /sys/fs/cgroup/web
    cgroup: PathBuf,
}

pub fn run(args: &Args) -> Result {
    let cgroup = args
        .cgroup
        .canonicalize()
        .map_err(|error| Failure::file("find it", &args.cgroup, &error))?;
    cgroup_id(&cgroup)?;
    for knob in Knob::ALL {
        let value = knob
            .read(&cgroup)?
            .map_or_else(|| "-".into(), |value| value.to_string());
        outln!("{:<16}  {value:>8}", knob.name());
    }
    Ok(Outcome::Done)
}
