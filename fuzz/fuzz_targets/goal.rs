// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A goal of `plan`: what is accepted is shown as a goal that means the same.
#![no_main]
use libfuzzer_sys::fuzz_target;
use plimsoll_plan::Goal;

fuzz_target!(|text: &str| {
    if let Ok(goal) = text.parse::<Goal>() {
        let shown = goal.to_string();
        let again: Goal = shown.parse().unwrap_or_else(|error| panic!("{shown:?}: {error}"));
        assert_eq!(goal, again, "{shown:?}");
    }
    let _ = text.parse::<plimsoll_trace::RequestSpec>();
});
