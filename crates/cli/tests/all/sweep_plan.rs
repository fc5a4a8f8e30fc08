// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plimsoll sweep plan` as a user runs it: the table's bytes depend neither on which machines plan nor on who is killed.
use crate::common::{plimsoll_in, signalled, succeeds, two_recordings};
use expect_test::{expect, Expect};
use plimsoll_sweep::{Cell, Columns};
use plimsoll_trace::example;
use std::path::{Path, PathBuf};

const SPEC: &str = r#"recordings = "each"
seeds = 2
[set]
min_throughput = 90
[vary]
goal = ["p99(request) < 20ms", "p50(request) < 30ms; throttled < 1%"]
for = ["cgroup", "kubernetes"]
"#;

/// A folder with two recordings and a file for 16 plans.
fn plans(name: &str) -> PathBuf {
    two_recordings(name, SPEC)
}

fn plan(dir: &Path, out: &str, more: &[&str]) -> String {
    let arguments = [
        "sweep",
        "plan",
        "mon.trace",
        "tue.trace",
        "--spec",
        "spec.toml",
        "--out",
        out,
    ];
    succeeds(dir, &[&arguments, more].concat())
}

fn merged(dir: &Path, out: &str) -> Vec<u8> {
    let arguments = [
        "sweep",
        "merge",
        "spec.toml",
        "mon.trace",
        "tue.trace",
        "--out",
        out,
        "-o",
        "table.parquet",
    ];
    succeeds(dir, &arguments);
    std::fs::read(dir.join("table.parquet")).expect("the table")
}

/// The last digit of a number of JSON may be lost as it is read.
fn same(here: Option<f64>, json: &serde_json::Value) {
    let (here, json) = (here.expect("a number"), json.as_f64().expect("a number"));
    assert!((here - json).abs() <= 1e-12 * json.abs(), "{here} {json}");
}

/// What a row has in a column.
fn cell(table: &Columns, column: &str, row: usize) -> Cell {
    let column = table.get(column).unwrap_or_else(|| panic!("no column {column}"));
    column.cell(row).expect("a value")
}

#[test]
fn shards_give_the_same_bytes_and_a_row_is_what_plan_says() {
    let dir = plans("sweep-plan-shards");
    assert_eq!(
        plan(&dir, "one", &[]),
        "16 points: 0 were there, 16 run, 0 failed\n"
    );
    assert_eq!(
        plan(&dir, "one", &[]),
        "16 points: 16 were there, 0 run, 0 failed\n"
    );
    let whole = merged(&dir, "one");
    for shard in ["1/3", "0/3", "2/3"] {
        plan(&dir, "three", &["--shard", shard]);
    }
    assert!(merged(&dir, "three") == whole, "three shards gave other bytes");

    let table = Columns::read(whole, None).expect("a table");
    let names: Vec<&str> = table.0.iter().take(5).map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["set.recording", "set.goal", "set.for", "seed", "key"]);
    // The last but one: the second recording under the second goals for Kubernetes, with the first seed.
    let row = 14;
    let goals = ["--goal", "p50(request) < 30ms", "--goal", "throttled < 1%"];
    let alone = [
        &[
            "plan",
            "tue.trace",
            "--for",
            "kubernetes",
            "--min-throughput",
            "90",
        ][..],
        &goals,
        &["--json"],
    ];
    let json = plimsoll_in(&dir, &alone.concat());
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    let plan = &json["plan"];
    assert_eq!(cell(&table, "set.recording", row), Cell::Text("tue.trace".into()));
    assert_eq!(cell(&table, "verdict", row).text(), plan["verdict"]);
    for of in ["recommended", "today"] {
        for field in ["period_us", "reserved_cpus", "p99_ns", "throttled", "margin"] {
            let here = cell(&table, &format!("{of}.{field}"), row).number();
            same(here, &plan[of][field]);
        }
    }
    let ranges = &plan["recommended"]["ranges"];
    for (number, end) in [(0, "low"), (0, "high"), (1, "middle")] {
        let here = cell(&table, &format!("recommended.goals.{number}.{end}"), row);
        same(here.number(), &ranges[number][end]);
    }
    let report = succeeds(&dir, &["sweep", "report", "table.parquet"]);
    assert!(
        report.starts_with("16 runs of 8 combinations\n") && report.contains("\nrecommended.reserved_cpus\n"),
        "{report}"
    );
}

/// Another recording, goal or limit of requests is another plan; the same under another name is not.
#[test]
fn the_key_is_the_content_of_recordings_and_question() {
    let dir = plans("sweep-plan-key");
    let spec = SPEC
        .replace("seeds = 2", "seeds = 1")
        .replace(", \"p50(request) < 30ms; throttled < 1%\"", "");
    std::fs::write(dir.join("spec.toml"), &spec).expect("a spec");
    plan(&dir, "rows", &[]);
    let more = spec.replace("\"kubernetes\"]", "\"kubernetes\", \"systemd\"]");
    std::fs::write(dir.join("spec.toml"), &more).expect("a spec");
    assert_eq!(
        plan(&dir, "rows", &[]),
        "6 points: 4 were there, 2 run, 0 failed\n"
    );
    std::fs::copy(dir.join("mon.trace"), dir.join("same.trace")).expect("a copy");
    std::fs::rename(dir.join("same.trace"), dir.join("mon.trace")).expect("in its place");
    assert_eq!(
        plan(&dir, "rows", &[]),
        "6 points: 6 were there, 0 run, 0 failed\n"
    );
    let (header, events) = example::open_loop(320);
    example::write(&dir.join("mon.trace"), &header, &events).expect("a trace");
    assert_eq!(
        plan(&dir, "rows", &[]),
        "6 points: 3 were there, 3 run, 0 failed\n"
    );
    std::fs::write(
        dir.join("spec.toml"),
        more.replace("min_throughput = 90", "min_throughput = 91"),
    )
    .expect("a spec");
    assert_eq!(
        plan(&dir, "rows", &[]),
        "6 points: 0 were there, 6 run, 0 failed\n"
    );
}

/// It is killed again and again, at first as it starts, later once there are rows.
#[test]
fn a_kill_at_any_moment_loses_no_plan_and_leaves_no_half() {
    let dir = plans("sweep-plan-kill");
    std::fs::write(
        dir.join("spec.toml"),
        SPEC.replace("seeds = 2", "seeds = 3")
            .replace(", \"kubernetes\"", "")
            .replace(", \"p50(request) < 30ms; throttled < 1%\"", ""),
    )
    .expect("a spec");
    plan(&dir, "whole", &[]);
    let whole = merged(&dir, "whole");
    let parts = dir.join("killed/parts");
    let rows = || std::fs::read_dir(&parts).map_or(0, |all| all.count());
    for (signal, wanted) in [("KILL", 0), ("KILL", 1), ("TERM", 0), ("INT", 0)] {
        let before = rows();
        let ready = || parts.exists() && rows() >= before + wanted;
        let traces = ["mon.trace", "tue.trace"];
        let args = [
            &["sweep", "plan"][..],
            &traces,
            &["--spec", "spec.toml", "--out", "killed"],
        ]
        .concat();
        signalled(&dir, &args, signal, ready);
        for part in std::fs::read_dir(&parts).expect("the folder") {
            let path = part.expect("an entry").path();
            if path.extension().is_some_and(|extension| extension == "parquet") {
                let bytes = std::fs::read(&path).expect("a file");
                Columns::read(bytes, None).expect("whole");
            }
        }
    }
    plan(&dir, "killed", &[]);
    assert!(merged(&dir, "killed") == whole, "what was left gave other bytes");
}

#[test]
fn what_cannot_be_planned_is_said_with_its_place_before_anything_is_run() {
    let dir = plans("sweep-plan-wrong");
    let refused = |spec: &str, traces: &[&str], expected: Expect| {
        std::fs::write(dir.join("spec.toml"), spec).expect("a spec");
        let arguments = [
            &["sweep", "plan"][..],
            traces,
            &["--spec", "spec.toml", "--out", "rows"],
        ];
        let output = plimsoll_in(&dir, &arguments.concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(!dir.join("rows").exists());
        expected.assert_eq(&said);
    };
    let both = ["mon.trace", "tue.trace"];
    refused(
        "recordings = \"every\"\n[vary]\nseed = [1]\ngoals = [\"x\"]\n",
        &both,
        expect![[r#"
            error: spec.toml:1:14: recordings: "every": allowed: together, each
        "#]],
    );
    refused(
        "[vary]\nseed = [1]\ngoals = [\"x\"]\nmax_cpus = { from = 2, to = 1 }\n",
        &both,
        expect![[r#"
            error: spec.toml:1:1: no goal; allowed: `goal` in [set] or [vary], as "p99(request) < 50ms"
            error: spec.toml:2:8: vary.seed: allowed: `seeds` at the top of the file
            error: spec.toml:3:9: vary.goals: unknown key; known: goal, group, request, for, max_cpus, min_throughput
            error: spec.toml:4:1: vary.max_cpus: it needs `count`, or the file `sample`
            error: spec.toml:4:29: vary.max_cpus.to: 1: allowed: above 2, the value of `from`
        "#]],
    );
    refused(
        "[set]\nfor = \"mesos\"\ngroup = 7\n[vary]\ngoal = [\"p99(request) < 20ms; throttled\"]\n",
        &both,
        expect![[r#"
            error: spec.toml:2:7: set.for: "mesos": allowed: kubernetes, kubernetes+agent, docker, systemd, cgroup, plimsoll
            error: spec.toml:3:9: set.group: 7: allowed: a text
            error: spec.toml:5:9: vary.goal.0: "p99(request) < 20ms; throttled": allowed: < or <= at character 10 of " throttled"
        "#]],
    );
    refused(
        "[set]\nmax_cpus = 0\nrequest = \"comm\"\n[vary]\ngoal = [\"p99(request) < 20ms\", \"p99(request) < 20\"]\n",
        &both,
        expect![[r#"
            error: spec.toml:2:12: set.max_cpus: 0: allowed: a number, 0.01 .. 4096
            error: spec.toml:3:11: set.request: "comm": allowed: comm:GLOB, tid:NUMBER, client:GLOB, process:GLOB, uprobe:FILE:BEGIN_FUNCTION:END_FUNCTION or usdt:FILE:PROVIDER:BEGIN_PROBE:END_PROBE
            error: spec.toml:5:32: vary.goal.1: "p99(request) < 20": allowed: ns, us, ms, s at character 18 of "p99(request) < 20"
        "#]],
    );
    refused(
        "recordings = \"each\"\n[vary]\ngoal = [\"p99(request) < 20ms\", \"p99(nginx) < 20ms\"]\n",
        &both,
        expect![[r#"
            error: spec.toml:3:32: vary.goal.1: goal "p99(nginx) < 20ms": request: nginx is not allowed; allowed: request (all of them), web
        "#]],
    );
    refused(
        "[set]\ngoal = \"p99.9(request) < 20ms\"\n",
        &both,
        expect![[r#"
        error: spec.toml:2:8: set.goal: goal "p99.9(request) < 20ms": 610 requests were recorded, and p99.9 needs 2995 (then the longest is beyond the true p99.9 with 95% confidence). Record 5 times as long (30 s in all, in one recording or several), or give a goal that these can answer: p99.5(request)
    "#]],
    );
    refused(
        "[set]\ngoal = \"p99(request) < 20ms\"\n",
        &["none.trace"],
        expect![[r#"
        error: none.trace: cannot read it: No such file or directory (os error 2)
    "#]],
    );
    refused(
        "[set]\ngoal = \"p99(request) < 20ms\"\n",
        &["spec.toml"],
        expect![[r#"
        error: spec.toml: not a trace that is read: this is a JSON file; record a Perfetto trace with the ftrace events sched/sched_switch and sched/sched_waking
    "#]],
    );
    refused(
        "[set]\ngoal = \"p99(request) < 20ms\"\ngroup = \"/wb\"\n",
        &both,
        expect![[r#"
            error: mon.trace: group: /wb is not allowed; allowed: /, /web
        "#]],
    );
}
