//! `plimsoll set`: knobs of a cgroup.
use crate::exit::{Failure, Outcome, Result};
use plimsoll_live::{ask, cgroup_id, cpu_max, Knob, KnobValues, Request};
use std::path::PathBuf;

/// Set knobs of a cgroup: headroom_percent, tolerance_us, burst_us, onset_percent
///
/// They are kept as extended attributes user.plimsoll.* of the cgroup's directory for as long as it exists, and take
/// effect at once where a scheduler runs, or when one starts. An empty value (burst_us=) takes a knob away.
#[derive(clap::Args)]
pub struct Args {
    /// Directory of the cgroup, such as /sys/fs/cgroup/web
    cgroup: PathBuf,

    #[arg(required = true, value_name = "KNOB=VALUE")]
    knobs: Vec<String>,
}

pub fn run(args: &Args) -> Result {
    let changes = args
        .knobs
        .iter()
        .map(|text| {
            Knob::parse(text).map_err(|error| Failure::Input(format!("{}: {error}", args.cgroup.display())))
        })
        .collect::<std::result::Result<Vec<_>, Failure>>()?;
    let cgroup = args
        .cgroup
        .canonicalize()
        .map_err(|error| Failure::file("find it", &args.cgroup, &error))?;
    cgroup_id(&cgroup)?;
    let mut after = KnobValues::default();
    for knob in Knob::ALL {
        let changed = changes.iter().rev().find(|(name, _)| *name == knob);
        // One that is replaced may have been anything.
        after.set(
            knob,
            changed.map_or_else(|| knob.read(&cgroup), |(_, value)| Ok(*value))?,
        );
    }
    let (quota_us, period_us) = cpu_max(&cgroup);
    after.check(&cgroup, quota_us, period_us)?;
    let before = Knob::ALL.map(|knob| (knob, knob.read(&cgroup).ok().flatten()));
    for &(knob, _) in &changes {
        if let Err(error) = knob.write(&cgroup, after.get(knob)) {
            for (knob, value) in before {
                let _ = knob.write(&cgroup, value);
            }
            return Err(error.into());
        }
    }
    match ask(&Request::Reload { cgroup }) {
        Ok(_) => Ok(Outcome::Done),
        Err(plimsoll_live::Error::Machine(_)) => {
            outln!("kept; no scheduler runs now, the next one will apply it");
            Ok(Outcome::Done)
        }
        Err(error) => Err(error.into()),
    }
}
