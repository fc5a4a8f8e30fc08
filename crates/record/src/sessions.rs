// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a session weighs whose threads the kernel schedules as a group (autogroup): by its own nice value, whatever those of its
//! threads. It has no cgroup in which that could be read, and is no other cgroup's child.
use crate::cgroup::weight_of_shares;
use crate::connections::numbers_in;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// Weights (1..10000, default 100) by a session's number, as the processes of now say. Of one whose last process has ended none.
pub fn weights(proc: &Path) -> HashMap<u32, u32> {
    let of = |pid: u32| parse(&fs::read_to_string(proc.join(format!("{pid}/autogroup"))).ok()?);
    numbers_in(proc).into_iter().filter_map(of).collect()
}

/// As in `/autogroup-440 nice 19`.
fn parse(text: &str) -> Option<(u32, u32)> {
    let (number, nice) = text.strip_prefix("/autogroup-")?.split_once(" nice ")?;
    let nice: i32 = nice.trim().parse().ok()?;
    // A level is a factor of 1.25, in the kernel's table as well, which is rounded.
    let shares = 1024.0 * 1.25f64.powi(-nice);
    Some((number.parse().ok()?, weight_of_shares(shares as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_weighs_what_its_nice_value_is_worth() {
        let proc = tempfile::tempdir().unwrap();
        for (pid, text) in [
            ("1", "/autogroup-2 nice 0\n"),
            ("20", "/autogroup-440 nice 19\n"),
            ("21", "/autogroup-441 nice -20\n"),
            ("22", "no such line\n"),
            ("self", "/autogroup-9 nice 0\n"),
        ] {
            fs::create_dir(proc.path().join(pid)).unwrap();
            fs::write(proc.path().join(pid).join("autogroup"), text).unwrap();
        }
        fs::create_dir(proc.path().join("30")).unwrap();
        let found = weights(proc.path());
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!((found[&2], found[&440]), (100, 1));
        // The kernel's table has 88,761 for -20.
        assert!((8600..8750).contains(&found[&441]), "{found:?}");
    }
}
