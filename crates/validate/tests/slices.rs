// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What slices that expire cost, against the published figure and a real kernel 5.0.
use plimsoll_scenario::Scenario;
use plimsoll_sim::{Results, Simulation};
use std::path::Path;

fn run(name: &str, expire: bool) -> Results {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../scenarios")
        .join(name);
    let settings = [format!("switches.expire={expire}")];
    let scenario = Scenario::load(&path, &settings).unwrap_or_else(|problems| panic!("{problems}"));
    Simulation::new(scenario.config()).unwrap().run(None).unwrap()
}

fn usage_ms(results: &Results) -> f64 {
    results.groups[1].usage_ns as f64 / 1e6
}

#[test]
fn expiry_costs_more_than_20_times_on_80_cpus() {
    let fast = |results: &Results| results.workloads[0].counters[0].value as f64;
    let (old, new) = (run("slices.toml", true), run("slices.toml", false));
    let times = fast(&new) / fast(&old);
    assert!(times > 20.0, "{times:.1} times");
}

#[test]
fn without_expiry_the_quota_is_used_within_2_percent_on_80_cpus() {
    let results = run("slices.toml", false);
    let quota_ms = results.measured_ns as f64 / 1e8 * 10.0;
    let off = (usage_ms(&results) / quota_ms - 1.0) * 100.0;
    assert!(off.abs() <= 2.0, "{off:+.2}%");
}

/// bench/results/kernel-bandwidth-truth.md: 401-439 of 513 ms, 262 of 512 ms, and 128-136 of 511 ms.
#[test]
fn expiry_leaves_what_a_real_kernel_used_at_4_8_and_16_cpus() {
    let measured = [
        ("fibtest-4.toml", 0.82),
        ("fibtest-8.toml", 0.51),
        ("fibtest-16.toml", 0.26),
    ];
    for (name, measured) in measured {
        let share = usage_ms(&run(name, true)) / usage_ms(&run(name, false));
        let off = (share / measured - 1.0) * 100.0;
        assert!(off.abs() <= 10.0, "{name}: {share:.3}, {off:+.1}% off");
    }
}
