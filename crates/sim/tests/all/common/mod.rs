// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What tests of a run share.
use plimsoll_sim::{Change, ChangeKind, Config, Results, Simulation};

pub const MS: u64 = 1_000_000;

pub fn run(config: Config) -> Results {
    Simulation::new(config).unwrap().run(None).unwrap()
}

pub fn at(config: &mut Config, ms: u64, what: ChangeKind) {
    config.changes.push(Change { at_ns: ms * MS, what });
}
