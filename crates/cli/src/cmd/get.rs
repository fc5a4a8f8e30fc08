// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plimsoll get`: knobs of a cgroup.
use crate::exit::{Failure, Outcome, Result};
use plimsoll_live::{cgroup_id, Knob};
use std::path::PathBuf;

/// Print the knobs of a cgroup; `-` where one is not set
#[derive(clap::Args)]
pub struct Args {
    /// Directory of the cgroup, such as /sys/fs/cgroup/web
    cgroup: PathBuf,

    /// Print JSON; null where a knob is not set
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result {
    let cgroup = args
        .cgroup
        .canonicalize()
        .map_err(|error| Failure::file("find it", &args.cgroup, &error))?;
    cgroup_id(&cgroup)?;
    let values = Knob::ALL
        .iter()
        .map(|knob| Ok((knob.name(), knob.read(&cgroup)?)))
        .collect::<std::result::Result<Vec<_>, Failure>>()?;
    if args.json {
        let map: serde_json::Map<_, _> = values
            .iter()
            .map(|(name, value)| (name.to_string(), serde_json::json!(value)))
            .collect();
        outln!("{}", serde_json::Value::from(map));
        return Ok(Outcome::Done);
    }
    for (name, value) in values {
        let value = value.map_or_else(|| "-".into(), |value| value.to_string());
        outln!("{name:<16}  {value:>14}");
    }
    Ok(Outcome::Done)
}
