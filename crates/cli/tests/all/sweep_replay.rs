// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plimsoll sweep replay` as a user runs it. Kills and the folder are those of every sweep: tests/sweep.rs, tests/sweep_plan.rs.
use crate::common::{plimsoll_in, succeeds, two_recordings};
use expect_test::{expect, Expect};
use plimsoll_sweep::{Cell, Columns};
use plimsoll_trace::example;
use std::path::{Path, PathBuf};

const SPEC: &str = r#"seeds = 3
[set]
"group.web.period_us" = 100_000
[vary]
"group.web.quota_us" = [20_000, 50_000]
"group.web.burst_us" = [0, 10_000]
"#;

/// A folder with two recordings and a file for 24 replays.
fn replays(name: &str) -> PathBuf {
    two_recordings(name, SPEC)
}

fn sweep(dir: &Path, out: &str, more: &[&str]) -> String {
    let traces = ["mon.trace", "tue.trace"];
    let place = ["--spec", "spec.toml", "--out", out];
    succeeds(dir, &[&["sweep", "replay"], &traces[..], &place, more].concat())
}

fn merged(dir: &Path, out: &str) -> Vec<u8> {
    let place = ["spec.toml", "mon.trace", "tue.trace", "--out", out];
    let output = ["-o", "table.parquet"];
    succeeds(dir, &[&["sweep", "merge"], &place[..], &output].concat());
    std::fs::read(dir.join("table.parquet")).expect("the table")
}

#[test]
fn shards_give_the_same_bytes_and_a_row_is_what_a_replay_says() {
    let dir = replays("sweep-replay-shards");
    assert_eq!(
        sweep(&dir, "one", &[]),
        "24 points: 0 were there, 24 run, 0 failed\n"
    );
    assert_eq!(
        sweep(&dir, "one", &[]),
        "24 points: 24 were there, 0 run, 0 failed\n"
    );
    let whole = merged(&dir, "one");
    for shard in ["1/3", "0/3", "2/3"] {
        sweep(&dir, "three", &["--shard", shard]);
    }
    assert!(merged(&dir, "three") == whole, "three shards gave other bytes");

    let table = Columns::read(whole, None).expect("a table");
    let cell = |column: &str, row| {
        let column = table.get(column).unwrap_or_else(|| panic!("no column {column}"));
        column.cell(row).expect("a value")
    };
    // The second recording with 20 ms, and burst, by the first seed.
    let row = 15;
    assert_eq!(cell("set.recording", row), Cell::Text("tue.trace".into()));
    assert_eq!(cell("set.group.web.burst_us", row), Cell::Integer(10_000));
    assert_eq!(cell("self_check_holds", row), Cell::Flag(true));
    let sets = ["quota_us=20000", "period_us=100000", "burst_us=10000"].map(|set| format!("group.web.{set}"));
    let mut alone = vec!["simulate", "--replay", "tue.trace", "--seed", "1", "--json"];
    alone.extend(sets.iter().flat_map(|set| ["--set", set]));
    let json: serde_json::Value = serde_json::from_slice(&plimsoll_in(&dir, &alone).stdout).expect("JSON");
    let changed = &json["changed"];
    assert!(
        changed["p99_ns"].as_u64() > Some(20_000_000),
        "its limit is felt: {json}"
    );
    for field in ["requests", "p99_ns", "nr_periods"] {
        assert_eq!(cell(field, row).integer(), changed[field].as_i64(), "{field}");
    }
    let report = succeeds(&dir, &["sweep", "report", "table.parquet"]);
    assert!(
        report.starts_with("24 runs of 8 combinations\n") && report.contains("\nthrottled\n"),
        "{report}"
    );
}

/// Another recording or value is another replay; a value that is set instead of varied is not.
#[test]
fn the_key_is_the_content_of_recording_and_settings() {
    let dir = replays("sweep-replay-key");
    sweep(&dir, "rows", &[]);
    let fixed = SPEC
        .replace("[20_000, 50_000]\n", "[50_000]\n")
        .replace("\"group.web.burst_us\" = [0, 10_000]\n", "")
        .replace("[vary]", "\"group.web.burst_us\" = 0\n[vary]");
    std::fs::write(dir.join("spec.toml"), fixed).expect("a spec");
    assert_eq!(
        sweep(&dir, "rows", &[]),
        "6 points: 6 were there, 0 run, 0 failed\n"
    );
    let (header, events) = example::open_loop(320);
    example::write(&dir.join("tue.trace"), &header, &events).expect("a trace");
    assert_eq!(
        sweep(&dir, "rows", &[]),
        "6 points: 3 were there, 3 run, 0 failed\n"
    );
}

#[test]
fn what_cannot_be_replayed_is_said_with_its_place_before_anything_is_run() {
    let dir = replays("sweep-replay-wrong");
    let refused = |spec: &str, expected: Expect| {
        std::fs::write(dir.join("spec.toml"), spec).expect("a spec");
        let arguments = [
            "sweep",
            "replay",
            "mon.trace",
            "--spec",
            "spec.toml",
            "--out",
            "rows",
        ];
        let output = plimsoll_in(&dir, &arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(!dir.join("rows").exists());
        expected.assert_eq(&said);
    };
    refused(
        "[set]\ngoal = \"p99(request) < 20ms\"\n",
        expect![[r#"
            error: spec.toml:2:8: set.goal: "p99(request) < 20ms": a replay has no goal; `plimsoll sweep plan` takes goals
        "#]],
    );
    refused(
        "[vary]\ngroup.web.quota_us = [1]\n",
        expect![[r#"
        error: spec.toml:2:1: vary.group: allowed: the whole key in quotes, as in "group.web.quota_us"
    "#]],
    );
    refused(
        "[vary]\n\"group.web.quota_us\" = [50_000, 0]\n",
        expect![[r#"
            error: spec.toml:2:33: vary.group.web.quota_us.1: "0" is not allowed; allowed: a whole number from 1000 to 17592186044415
        "#]],
    );
    refused(
        "[vary]\n\"group.wb.quota_us\" = [50_000]\n",
        expect![[r#"
            error: spec.toml:2:24: vary.group.wb.quota_us.0: "/wb" is not allowed; allowed: /, /web
        "#]],
    );
    refused(
        "[set]\n\"group.web.burst_us\" = 1000\n",
        expect![[r#"
            error: spec.toml:2:24: set.group.web.burst_us: 1000 is not allowed; allowed: with a quota only, and quota_us is max
        "#]],
    );
    refused(
        "[set]\nrequest = \"comm\"\n",
        expect![[r#"
        error: spec.toml:2:11: set.request: "comm": allowed: comm:GLOB, tid:NUMBER, client:GLOB, process:GLOB, uprobe:FILE:BEGIN_FUNCTION:END_FUNCTION or usdt:FILE:PROVIDER:BEGIN_PROBE:END_PROBE
    "#]],
    );
}
