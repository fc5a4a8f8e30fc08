// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plimsoll set`: knobs of a cgroup.
use crate::exit::{Failure, Outcome, Result};
use plimsoll_live::{ask, cgroup_id, cpu_max, is_root, only_roots, Error, Knob, KnobValues, Request, Status};
use std::path::PathBuf;

/// Set knobs of a cgroup: headroom_percent, tolerance_us, burst_us, onset_percent
///
/// Knobs are extended attributes user.plimsoll.* of the cgroup's directory and last as long as it does. They take effect
/// at once where the scheduler or the agent runs, else when one starts.
#[derive(clap::Args)]
pub struct Args {
    /// Directory of the cgroup, such as /sys/fs/cgroup/web
    cgroup: PathBuf,

    /// A knob and its value, as in headroom_percent=30; an empty value takes the knob away
    #[arg(required = true, value_name = "KNOB=VALUE")]
    knobs: Vec<String>,
}

pub fn run(args: &Args) -> Result {
    let (mut changes, mut refused) = (Vec::new(), Vec::new());
    for text in &args.knobs {
        match Knob::parse(text) {
            Ok(change) => changes.push(change),
            Err(error) => refused.push(format!("{}: {error}", args.cgroup.display())),
        }
    }
    if !refused.is_empty() {
        return Err(Failure::Input(refused.join("\n")));
    }
    for (at, (knob, _)) in changes.iter().enumerate() {
        if changes[..at].iter().any(|(before, _)| before == knob) {
            let message = format!("{}: given twice: allowed is each knob once", args.knobs[at]);
            return Err(Failure::Input(message));
        }
    }
    let cgroup = args
        .cgroup
        .canonicalize()
        .map_err(|error| Failure::file("find it", &args.cgroup, &error))?;
    cgroup_id(&cgroup)?;
    if is_root(&cgroup) {
        let message = format!("{}: the root group takes no knobs", cgroup.display());
        return Err(Failure::Input(message));
    }
    only_roots(&cgroup)?;
    let mut after = KnobValues::default();
    for knob in Knob::ALL {
        let changed = changes.iter().find(|(name, _)| *name == knob);
        // One that is replaced may have been anything.
        after.set(
            knob,
            changed.map_or_else(|| knob.read(&cgroup), |(_, value)| Ok(*value))?,
        );
    }
    let (quota_us, period_us) = cpu_max(&cgroup);
    after.check(&cgroup, quota_us, period_us)?;
    let before = Knob::ALL.map(|knob| (knob, knob.read(&cgroup).ok().flatten()));
    let put_back = || {
        for (knob, value) in before {
            let _ = knob.write(&cgroup, value);
        }
    };
    for &(knob, _) in &changes {
        if let Err(error) = knob.write(&cgroup, after.get(knob)) {
            put_back();
            return Err(error.into());
        }
    }
    let answer = ask(&Request::Reload {
        cgroup: cgroup.clone(),
    });
    end(answer, put_back)
}

/// What the scheduler's answer means for knobs that are written. One that refuses them gets those from before.
fn end(answer: plimsoll_live::Result<Option<Status>>, put_back: impl FnOnce()) -> Result {
    match answer {
        Ok(_) => Ok(Outcome::Done),
        Err(Error::Absent(_)) => {
            outln!("kept; no scheduler runs now, the next one will apply it");
            Ok(Outcome::Done)
        }
        Err(Error::Input(message)) => {
            put_back();
            Err(Failure::Input(message))
        }
        Err(Error::Machine(message) | Error::Failed(message)) => Err(Failure::Machine(format!(
            "the knobs are kept; whether they were applied is not known: {message}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knobs_that_the_scheduler_refuses_are_put_back_and_others_stay() {
        let came = |answer| {
            let mut is_back = false;
            let result = end(answer, || is_back = true);
            (
                result.map_err(|failure| matches!(failure, Failure::Input(_))),
                is_back,
            )
        };
        assert_eq!(came(Ok(None)), (Ok(Outcome::Done), false));
        assert_eq!(
            came(Err(Error::Absent(String::new()))),
            (Ok(Outcome::Done), false)
        );
        assert_eq!(came(Err(Error::Input(String::new()))), (Err(true), true));
        assert_eq!(came(Err(Error::Machine(String::new()))), (Err(false), false));
        assert_eq!(came(Err(Error::Failed(String::new()))), (Err(false), false));
    }
}
