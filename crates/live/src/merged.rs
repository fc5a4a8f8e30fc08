// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Says which cgroups are scheduled as part of one above them, and which limits have no effect because of that.
use crate::intf::Merged;
use crate::{shown, Scheduler, Watch};
use plimsoll_policy_sys as pl;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What has been told so far.
#[derive(Default)]
pub struct Merges {
    seen: u32,
}

impl Merges {
    /// One line for each cgroup that was merged since the last call, or whose limit was set although it is merged. The
    /// scheduler keeps the last of them: of more a last line has the number.
    pub fn news(&mut self, scheduler: &Scheduler, watch: &Watch) -> Vec<String> {
        let (merged, lost) = scheduler.merged_since(&mut self.seen);
        let max_groups = scheduler.config().max_groups;
        let into = |id| {
            watch
                .path(id)
                .map_or_else(|| format!("cgroup {id}").into(), PathBuf::from)
        };
        let lines = merged
            .iter()
            .map(|merged| line(merged, &into(merged.into_id), max_groups));
        let more = (lost > 0).then(|| {
            format!("{lost} more cgroups are scheduled as part of ones above them, or had a limit set that has no effect")
        });
        lines.chain(more).collect()
    }
}

fn line(merged: &Merged, into: &Path, max_groups: u32) -> String {
    let name = merged.name.split(|&byte| byte == 0).next().unwrap_or_default();
    let name = shown(Path::new(OsStr::from_bytes(name)));
    // The numbers of bpf/intf.h's live_merge.
    let why = match merged.why {
        1 => format!(
            "it is {} levels deep, and at most {} can be scheduled",
            merged.level,
            pl::GROUP_DEPTH_MAX
        ),
        2 => "a cgroup above it has its share of the scheduler's groups below it".to_string(),
        3 => format!("all of max_groups = {max_groups} are in use, or there is no memory for one more"),
        4 => "so is its parent".to_string(),
        _ => "its cpu.max was set".to_string(),
    };
    let limit = match merged.quota_us {
        u64::MAX => "its own cpu.max, cpu.weight and cpu.idle have no effect".to_string(),
        quota_us => format!("its cpu.max of {quota_us} {} is not enforced", merged.period_us),
    };
    format!(
        "cgroup {} ({name}) is scheduled as part of {}, whose limits hold: {why}; {limit}",
        merged.id,
        shown(into)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_has_no_effect_is_said_with_name_value_and_whose_limits_hold() {
        let mut merged = Merged {
            id: 77,
            into_id: 5,
            quota_us: 20_000,
            period_us: 100_000,
            level: 33,
            why: 1,
            name: [0; 64],
        };
        merged.name[..4].copy_from_slice(b"we\x1bb");
        let said = line(&merged, Path::new("/cg/up"), 64);
        assert_eq!(
            said,
            "cgroup 77 (we\\x1bb) is scheduled as part of /cg/up, whose limits hold: it is 33 levels deep, and at most 32 \
             can be scheduled; its cpu.max of 20000 100000 is not enforced"
        );
        merged.why = 3;
        merged.quota_us = u64::MAX;
        let said = line(&merged, Path::new("/cg/up"), 64);
        assert!(said.contains("max_groups = 64"), "{said}");
        assert!(
            said.contains("its own cpu.max, cpu.weight and cpu.idle have no effect"),
            "{said}"
        );
    }
}
