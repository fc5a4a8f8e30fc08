// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much of a long recording the search replays.
//!
//! Some 200 settings are told apart by far fewer requests than a busy service answers in a minute. So the search looks at
//! the beginning of a recording that is much longer than its goals need. What is recommended, and all that has a range, is
//! replayed from beginning to end: a setting that meets the goals in the beginning only is found out there.
use crate::enough::needed;
use crate::goal::{Goal, Subject};
use plimsoll_replay::Program;

/// Requests by which some 200 settings can be told apart.
pub const SEARCHED: u64 = 20_000;
/// Times as many requests as a goal's percentile needs.
const TIMES_NEEDED: u64 = 20;
/// The beginning is this part of the recording at least.
const PART: u64 = 12;
/// In all replays for one range there are as many requests as this, or two replays.
const REPLICATED: u64 = 500_000;

/// Where the search stops, in ns since the recording began, so that it sees `least` requests and as many as the goals
/// need; `None`: it looks at all. A job has to be finished.
pub(crate) fn until_ns(program: &Program, goals: &[Goal], least: u64) -> Option<u64> {
    let of = |goal: &Goal| match &goal.subject {
        Subject::Percentile { percent, .. } if *percent < 100.0 => TIMES_NEEDED * needed(*percent),
        _ => 0,
    };
    let requests = goals.iter().map(of).fold(least, u64::max);
    let until_ns = program
        .request_begins_ns(requests)?
        .max(program.duration_ns / PART);
    (!program.is_job() && until_ns < program.duration_ns / 2).then_some(until_ns)
}

/// How many replays of a recording a range is made of, where `asked` are asked for.
pub(crate) fn replicates(program: &Program, asked: u32) -> u32 {
    let enough = REPLICATED.div_ceil(program.nr_requests().max(1)).max(2);
    asked.min(enough.try_into().unwrap_or(u32::MAX))
}
