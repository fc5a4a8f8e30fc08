// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A few seeds of `make fuzz` in every test run.
mod fuzz;

#[test]
fn a_hundred_random_machines_keep_every_invariant() {
    for seed in 1..=100 {
        if let Err(broken) = fuzz::one(seed) {
            panic!("seed {seed}: {broken}");
        }
    }
}
