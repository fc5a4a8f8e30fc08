// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The examples use the CPU time that their comments say, so that they show what they are for.
use plimsoll_scenario::{find, Scenario};
use plimsoll_sim::{Results, Simulation};
use std::path::Path;

fn run(name: &str, settings: &[&str]) -> Results {
    let settings: Vec<String> = settings.iter().map(|setting| setting.to_string()).collect();
    let found = find::example(name).expect("an example");
    let scenario = Scenario::parse(&found.name, &found.text, Path::new(""), &settings)
        .unwrap_or_else(|problems| panic!("{problems}"));
    Simulation::new(scenario.config())
        .expect("a checked scenario")
        .run(None)
        .unwrap()
}

fn used_cpus(results: &Results, group: usize) -> f64 {
    results.groups[group].usage_ns as f64 / results.measured_ns as f64
}

fn near(what: &str, value: f64, wanted: f64, percent: f64) {
    assert!(
        (value / wanted - 1.0).abs() * 100.0 <= percent,
        "{what}: {value}, wanted {wanted} within {percent}%"
    );
}

/// 500% CPU under a limit of 700%; what burst is for shows with it.
#[test]
fn burst_uses_five_cpus_and_spares_the_tail_its_waits() {
    let (with, without) = (run("burst", &[]), run("burst", &["group.bench.burst_us=0"]));
    near("with", used_cpus(&with, 1), 5.0, 2.0);
    near("without", used_cpus(&without, 1), 5.0, 2.0);
    let throttled = |run: &Results| run.groups[1].stat.expect("a limit").nr_throttled;
    let p99_ns = |run: &Results| run.workloads[0].latencies[0].histogram.value_at_quantile(0.99);
    let pairs = [
        (throttled(&with), throttled(&without)),
        (p99_ns(&with), p99_ns(&without)),
    ];
    assert!(
        pairs.iter().all(|(with, without)| *without > 5 * with),
        "{pairs:?}"
    );
}

/// Main at 40% of 40 CPUs and 30% headroom leave 30% to the side.
#[test]
fn headroom_has_main_at_40_percent_the_side_at_30_and_30_idle() {
    let results = run("headroom", &["duration_ms=3000"]);
    near("web", used_cpus(&results, 1), 16.0, 4.0);
    near("encoder", used_cpus(&results, 2), 12.0, 6.0);
    let idle_ns: u64 = results.cpus.iter().map(|cpu| cpu.idle_ns).sum();
    near("idle", idle_ns as f64 / results.measured_ns as f64, 12.0, 3.0);
}

/// Messages, transactions and the like of the first workload, per second.
fn rate(results: &Results) -> f64 {
    results.workloads[0].counters[0].value as f64 / results.measured_ns as f64 * 1e9
}

/// Idle CPUs find what waits beside them: more messages.
#[test]
fn stealing_gets_more_messages_out_of_the_same_machine() {
    let short = "workload.hackbench.loops=1000";
    let (with, without) = (
        run("steal", &[short]),
        run("steal", &[short, "switches.steal=false"]),
    );
    let steals = |run: &Results| run.cpus.iter().map(|cpu| cpu.steals).sum::<u64>();
    assert!(steals(&with) > 0 && steals(&without) == 0);
    let gain = rate(&with) / rate(&without);
    assert!(gain > 1.15, "{gain}");
}

/// Where load is published at every change, CPUs wait for its line; at most once per ms they do not.
#[test]
fn rate_limited_load_gets_more_transactions_through() {
    let short = "duration_ms=20";
    let (with, without) = (
        run("load", &[short]),
        run(
            "load",
            &[short, "switches.load_publish_us=0", "switches.load_refresh_us=0"],
        ),
    );
    let spent = |run: &Results| run.touches.load_ns as f64 / (run.measured_ns as f64 * run.cpus.len() as f64);
    assert!(
        spent(&with) < 0.01 && spent(&without) > 0.2,
        "{} {}",
        spent(&with),
        spent(&without)
    );
    let gain = rate(&with) / rate(&without);
    assert!(gain > 1.3, "{gain}");
}

/// A path would name a file of that name, which says something else.
#[test]
fn what_the_binary_holds_is_not_called_a_path() {
    let found = find::example("burst").expect("an example");
    let problems = Scenario::parse(&found.name, "machine = \"vm\"\n", Path::new(""), &[]).expect_err("bad");
    let said = problems.to_string();
    assert!(said.starts_with("burst (in the binary)"), "{said}");
}
