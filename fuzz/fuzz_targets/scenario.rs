// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A scenario, with its machine, and the spec of a sweep: what is accepted makes a configuration that the simulator accepts.
#![no_main]
use libfuzzer_sys::fuzz_target;
use plimsoll_scenario::Scenario;
use std::path::Path;

/// Larger machines are refused or built by the same code, only slowly.
const CPUS_MAX: u32 = 1024;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    // Files beside it are not what is tried here, and devices must not be read.
    if text.contains('/') {
        return;
    }
    let base = Path::new("/nonexistent");
    let _ = plimsoll_sweep::Sweep::parse("spec.toml", text, base);
    if let Ok(scenario) = Scenario::parse("scenario.toml", text, base, &[]) {
        if scenario.machine.topology.nr_cpus() <= CPUS_MAX {
            plimsoll_sim::Simulation::new(scenario.config()).expect("what is accepted can be built");
        }
    }
});
