// SPDX-License-Identifier: Apache-2.0 OR MIT
//! baseline/wake.h: how far a wake-up looks for an idle CPU.
use plimsoll_policy_sys as pl;

#[test]
fn a_search_that_was_given_up_does_not_make_the_next_ones_shorter() {
    // SAFETY: plain values.
    unsafe {
        assert_eq!(pl::pl_wake_scan_cost(800, 1600, false), 900);
        assert_eq!(pl::pl_wake_scan_cost(800, 1600, true), 800);
        // 20 CPUs, 51.2 us of idle time: 100 ns of searching for each of them.
        assert_eq!(pl::pl_wake_scan_proportional(20, 51_200, 199), 9);
        assert_eq!(pl::pl_wake_scan_proportional(20, 51_200, 399), 4);
        // Never fewer than three.
        assert_eq!(pl::pl_wake_scan_proportional(20, 1_000, 5_000), 3);
    }
}
