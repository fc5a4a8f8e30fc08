// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plimsoll sweep` as a user runs it: the table's bytes depend neither on which machines run the points nor on the order.
use crate::common::{directory, plimsoll_in, signalled, stdout};
use expect_test::{expect, Expect};
use std::path::Path;
use std::process::Command;

const SPEC: &str = r#"scenario = "burst"
seeds = 3
[set]
duration_ms = 300
warmup_ms = 0
[vary]
"group.bench.burst_us" = [0, 100_000, "0"]
"group.bench.quota_us" = { from = 500_000, to = 900_000, count = 3 }
"#;

/// A folder with a sweep of 18 points; those with a burst of 0 written as a text would be refused.
fn sweep(name: &str) -> std::path::PathBuf {
    let dir = directory(name);
    std::fs::write(dir.join("spec.toml"), SPEC.replace(", \"0\"", "")).expect("a spec");
    dir
}

fn run(dir: &Path, arguments: &[&str]) -> String {
    let output = plimsoll_in(dir, arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).expect("text")
}

fn merged(dir: &Path, rows: &str) -> Vec<u8> {
    run(
        dir,
        &[
            "sweep",
            "merge",
            "spec.toml",
            "--out",
            rows,
            "-o",
            "table.parquet",
        ],
    );
    std::fs::read(dir.join("table.parquet")).expect("the table")
}

#[test]
fn shards_and_threads_give_the_same_bytes_and_what_is_there_is_not_run_again() {
    let dir = sweep("sweep-shards");
    assert_eq!(
        run(&dir, &["sweep", "spec.toml", "--out", "one"]),
        "18 points: 0 were there, 18 run, 0 failed\n"
    );
    assert_eq!(
        run(&dir, &["sweep", "spec.toml", "--out", "one"]),
        "18 points: 18 were there, 0 run, 0 failed\n"
    );
    let whole = merged(&dir, "one");
    for shard in ["2/3", "0/3"] {
        run(&dir, &["sweep", "spec.toml", "--out", "three", "--shard", shard]);
    }
    let merge = [
        "sweep",
        "merge",
        "spec.toml",
        "--out",
        "three",
        "-o",
        "early.parquet",
    ];
    let early = plimsoll_in(&dir, &merge);
    let said = String::from_utf8_lossy(&early.stderr);
    assert!(
        early.status.code() == Some(1) && said.contains("6 of 18 points are missing"),
        "{said}"
    );
    assert!(!dir.join("early.parquet").exists());
    let last = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["sweep", "spec.toml", "--out", "three", "--shard", "1/3"])
        .env("RAYON_NUM_THREADS", "1")
        .current_dir(&dir)
        .status();
    assert!(last.expect("the binary").success());
    assert!(merged(&dir, "three") == whole, "three shards gave other bytes");
}

/// Another value runs only what it adds; another scenario, everything.
#[test]
fn the_key_is_the_content() {
    let dir = sweep("sweep-key");
    run(&dir, &["sweep", "spec.toml", "--out", "rows"]);
    let more = SPEC
        .replace(", \"0\"", ", 200_000")
        .replace("900_000, count", "900_000 , count");
    std::fs::write(dir.join("spec.toml"), &more).expect("a spec");
    assert_eq!(
        run(&dir, &["sweep", "spec.toml", "--out", "rows"]),
        "27 points: 18 were there, 9 run, 0 failed\n"
    );
    std::fs::write(
        dir.join("spec.toml"),
        more.replace("duration_ms = 300", "duration_ms = 301"),
    )
    .expect("a spec");
    assert_eq!(
        run(&dir, &["sweep", "spec.toml", "--out", "rows"]),
        "27 points: 0 were there, 27 run, 0 failed\n"
    );
}

/// It is killed until it has nothing left to do; each time what is in the folder is whole.
#[test]
fn a_kill_at_any_moment_loses_no_point_and_leaves_no_half() {
    let dir = sweep("sweep-kill");
    let spec = SPEC
        .replace(", \"0\"", "")
        .replace("duration_ms = 300", "duration_ms = 3000");
    std::fs::write(dir.join("spec.toml"), spec).expect("a spec");
    run(&dir, &["sweep", "spec.toml", "--out", "whole"]);
    let whole = merged(&dir, "whole");
    for signal in ["KILL", "TERM", "KILL", "INT"] {
        // As soon as it makes its folder, that is at its first points.
        let ready = || dir.join("killed/parts").exists();
        signalled(&dir, &["sweep", "spec.toml", "--out", "killed"], signal, ready);
    }
    run(&dir, &["sweep", "spec.toml", "--out", "killed"]);
    assert!(merged(&dir, "killed") == whole, "what was left gave other bytes");
}

#[test]
fn what_is_wrong_with_a_sweep_is_said_with_its_place_before_anything_is_run() {
    let dir = directory("sweep-wrong");
    let refused = |spec: &str, expected: Expect| {
        std::fs::write(dir.join("spec.toml"), spec).expect("a spec");
        let output = plimsoll_in(&dir, &["sweep", "spec.toml", "--out", "rows"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(!dir.join("rows").exists());
        expected.assert_eq(&String::from_utf8_lossy(&output.stderr));
    };
    refused(
        SPEC,
        expect![[r#"
        error: spec.toml:7:39: group.bench.burst_us: "0": allowed an integer, 0 .. 17592186044415
    "#]],
    );
    refused(
        "scenario = \"burts\"\nseeds = [1, -1]\n[vary]\n\"group.bench.quota_us\" = { from = 1000, to = 2000 }\n",
        expect![[r#"
            error: spec.toml:1:12: scenario: burts: cannot read it: No such file or directory (os error 2); did you mean burst?; examples that need no file: burst, fibtest-16, fibtest-4, fibtest-8, headroom, load, slices, steal, throttled
        "#]],
    );
    refused(
        "scenario = \"burst\"\nseeds = [1, -1, 1]\n[vary]\nseed = [1]\n\"group.bench.burst_us\" = [7, 7]\n\
         \"group.bench.quota_us\" = { from = 2000, to = 1000 }\n",
        expect![[r#"
            error: spec.toml:2:13: seeds.1: -1: allowed 0 .. 9223372036854775807
            error: spec.toml:2:17: seeds.2: 1 is there twice; allowed: once
            error: spec.toml:4:8: vary.seed: allowed: `seeds` at the top of the file
            error: spec.toml:5:30: vary.group.bench.burst_us.1: 7 is there twice; allowed: once
            error: spec.toml:6:1: vary.group.bench.quota_us: it needs `count`, or the file `sample`
            error: spec.toml:6:46: vary.group.bench.quota_us.to: 1000: allowed: above 2000, the value of `from`
        "#]],
    );
    refused(
        "scenario = \"burst\"\n[vary]\n\"group.web.quota_us\" = { from = 100, to = 90_000, count = 4 }\n",
        expect![[r#"
            error: spec.toml:3:1: vary.group.web.quota_us: 100: no "web" in the scenario; known: bench
        "#]],
    );
    refused(
        "scenario = \"burst\"\n[vary]\ngroup.bench.burst_us = [1]\n",
        expect![[r#"
            error: spec.toml:3:1: vary.group: allowed: the whole key in quotes, as in "group.web.quota_us"
        "#]],
    );
}

#[test]
fn a_report_has_the_quantiles_of_each_combination_and_a_page() {
    let dir = sweep("sweep-report");
    run(&dir, &["sweep", "spec.toml", "--out", "rows"]);
    merged(&dir, "rows");
    let arguments = [
        "sweep",
        "report",
        "table.parquet",
        "--metric",
        "groups.bench.used*",
        "--html",
        "page.html",
    ];
    let text = run(&dir, &arguments);
    assert!(
        text.starts_with("18 runs of 6 combinations\n\ngroups.bench.used_cpus\n"),
        "{text}"
    );
    let page = std::fs::read_to_string(dir.join("page.html")).expect("the page");
    // Two keys, two plots; a dot for each combination in each.
    assert_eq!(
        (page.matches("<svg").count(), page.matches("<circle").count()),
        (2, 12)
    );
    let json = run(&dir, &["sweep", "report", "table.parquet", "--json", "-"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let used = json["sweep"]["measures"]
        .as_array()
        .and_then(|all| all.iter().find(|one| one["column"] == "groups.bench.used_cpus"));
    assert_eq!(used.expect("the measure")["quantiles"][0]["runs"], 3);
    // The same run by itself.
    let alone = stdout(&[
        "simulate",
        "burst",
        "--duration-ms",
        "300",
        "--seed",
        "1",
        "--set",
        "warmup_ms=0",
        "--set",
        "group.bench.burst_us=0",
        "--set",
        "group.bench.quota_us=500000",
        "--json",
        "-",
    ]);
    let alone: serde_json::Value = serde_json::from_str(&alone).expect("JSON");
    let alone = &alone["runs"][1]["groups"][1]["used_cpus"];
    let within = &used.expect("the measure")["quantiles"][0];
    assert!(
        (within["min"].as_f64()..=within["max"].as_f64()).contains(&alone.as_f64()),
        "{alone} {within}"
    );
}
