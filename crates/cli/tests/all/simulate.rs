// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simulate command as a user runs it: what it prints, what it refuses, and that it always gives the same bytes.
//! UPDATE_EXPECT=1 writes the expected output again.
use crate::common::{directory, plimsoll, shell, stdout, temporary};
use expect_test::{expect, expect_file, Expect};
use std::path::Path;
use std::process::Command;

fn refused(args: &[&str], expected: Expect) {
    let output = plimsoll(args);
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    assert!(output.stdout.is_empty(), "{args:?} printed results");
    expected.assert_eq(&String::from_utf8_lossy(&output.stderr));
}

/// The first run of a scenario's JSON. Relative files of the scenario are looked for beside the golden ones.
fn first_run(name: &str, scenario: &str) -> serde_json::Value {
    let path = temporary(name);
    std::fs::write(&path, scenario).expect("a scenario");
    let json = stdout(&["simulate", path.to_str().expect("a path of ours"), "--json", "-"]);
    serde_json::from_str::<serde_json::Value>(&json).expect("JSON")["runs"][0].take()
}

#[test]
fn one_run_is_printed_as_tables() {
    expect_file!["golden/limits.txt"].assert_eq(&stdout(&["simulate", "limits.toml", "--per-cpu"]));
}

#[test]
fn a_setting_prints_both_runs_side_by_side() {
    let args = ["simulate", "limits.toml", "--set", "group.web.burst_us=0"];
    expect_file!["golden/limits-compared.txt"].assert_eq(&stdout(&args));
}

/// Also the reference that a release build is compared with (scripts/test.sh).
#[test]
fn the_json_of_a_run_is_stable() {
    expect_file!["golden/limits.json"].assert_eq(&stdout(&["simulate", "limits.toml", "--json", "-"]));
}

#[test]
fn two_runs_give_the_same_bytes_in_results_and_timeline() {
    let run = |name: &str| {
        let path = temporary(name);
        let trace = path.to_str().expect("a path of ours");
        let json = stdout(&["simulate", "busy.toml", "--json", "-", "--trace", trace]);
        (json, std::fs::read(&path).expect("the timeline"))
    };
    let (a, b) = (run("same-a.pftrace"), run("same-b.pftrace"));
    assert!(a.1.len() > 10_000, "a timeline of {} bytes", a.1.len());
    assert!(a == b);
}

#[test]
fn a_seed_changes_what_is_random_and_an_observer_changes_nothing() {
    let path = temporary("observed.pftrace");
    let trace = path.to_str().expect("a path of ours");
    let plain = stdout(&["simulate", "busy.toml", "--json", "-"]);
    assert_eq!(
        plain,
        stdout(&["simulate", "busy.toml", "--json", "-", "--trace", trace])
    );
    assert_ne!(
        plain,
        stdout(&["simulate", "busy.toml", "--json", "-", "--seed", "8"])
    );
}

/// The reader of crates/trace, which knows nothing of the writer, finds the same run times.
#[test]
fn a_timeline_read_back_says_what_ran_for_how_long() {
    let path = temporary("back.pftrace");
    stdout(&[
        "simulate",
        "limits.toml",
        "--trace",
        path.to_str().expect("a path of ours"),
    ]);
    let (_, timeline) = plimsoll_trace::Timeline::open(&path).expect("a Perfetto trace");
    let ran_ms: Vec<_> = timeline
        .threads
        .iter()
        .filter(|thread| thread.recorded)
        .map(|thread| {
            (
                thread.comm.as_str(),
                thread
                    .runs
                    .iter()
                    .map(|run| run.end_ns - run.start_ns)
                    .sum::<i64>()
                    / 1_000_000,
            )
        })
        .collect();
    assert_eq!(ran_ms, [("requests/duty-0", 200), ("spinner/spin-0", 350)]);
}

/// Of each CPU: in order of time, and the task that is switched out is the one that was switched in.
#[test]
fn a_timeline_of_many_cpus_is_consistent() {
    let path = temporary("busy.pftrace");
    stdout(&[
        "simulate",
        "busy.toml",
        "--trace",
        path.to_str().expect("a path of ours"),
    ]);
    let trace = plimsoll_trace::Trace::read(&path).expect("a Perfetto trace");
    let mut last = std::collections::BTreeMap::new();
    let mut switches = 0;
    for event in &trace.events {
        if let plimsoll_trace::What::Switch { prev, next, .. } = &event.what {
            if let Some(before) = last.insert(event.cpu, *next) {
                assert_eq!(before, *prev, "at {event:?}");
            }
            switches += 1;
        }
    }
    assert!(switches > 1000, "{switches} switches");
}

#[test]
fn a_timeline_shows_headrooms_side_where_a_group_asks_for_headroom() {
    let shown = |percent: &str| {
        let path = temporary(&format!("side-{percent}.pftrace"));
        let trace = path.to_str().expect("a path of ours");
        let scenario = temporary(&format!("side-{percent}.toml"));
        let text = format!(
            "machine = \"vm\"\nduration_ms = 500\n[group.web]\nheadroom_percent = {percent}\n\
             [workload.s]\nkind = \"spinners\"\nthreads = 4\n"
        );
        std::fs::write(&scenario, text).expect("a scenario");
        stdout(&[
            "simulate",
            scenario.to_str().expect("a path of ours"),
            "--trace",
            trace,
        ]);
        let bytes = std::fs::read(&path).expect("the timeline");
        bytes.windows(15).any(|part| part == b"headroom's side")
    };
    assert_eq!((shown("0"), shown("30")), (false, true));
}

#[test]
fn the_axis_of_a_picture_counts_as_its_window_does() {
    let drawn = |warmup_ms: u32| {
        let path = temporary(&format!("axis-{warmup_ms}.svg"));
        let picture = path.to_str().expect("a path of ours");
        let scenario = temporary(&format!("axis-{warmup_ms}.toml"));
        let text = format!(
            "machine = \"vm\"\nduration_ms = 500\nwarmup_ms = {warmup_ms}\n[group.web]\n\
             [workload.s]\nkind = \"spinners\"\nthreads = 1\ngroup = \"web\"\n"
        );
        std::fs::write(&scenario, text).expect("a scenario");
        let scenario = scenario.to_str().expect("a path of ours");
        stdout(&["simulate", scenario, "--picture", picture, "--window", "100..200"]);
        let svg = std::fs::read_to_string(&path).expect("the picture");
        ["100", "120", "300"].map(|ms| svg.contains(&format!(">{ms}</text>")))
    };
    assert_eq!(drawn(0), [true, true, false]);
    assert_eq!(drawn(200), [true, true, false]);
}

/// A task that still runs as the run ends is drawn up to there, which is the middle of the window.
#[test]
fn a_picture_ends_with_its_run() {
    let path = temporary("ends-with-run.svg");
    let scenario = temporary("ends-with-run.toml");
    let text = "machine = \"vm\"\nduration_ms = 100\nwarmup_ms = 0\n[group.web]\n\
                [workload.s]\nkind = \"spinners\"\nthreads = 1\ngroup = \"web\"\n";
    std::fs::write(&scenario, text).expect("a scenario");
    let [scenario, picture] = [&scenario, &path].map(|path| path.to_str().expect("a path of ours"));
    stdout(&["simulate", scenario, "--picture", picture, "--window", "0..200"]);
    let svg = std::fs::read_to_string(&path).expect("the picture");
    // Bars are "M left top h width v height h -width z": where the last one ends, in parts of what 0..200 ms take.
    let numbers = |bar: &str| -> Option<f64> {
        let (left, rest) = bar.split_once(' ')?;
        let width = rest.split_once('h')?.1.split_once('v')?.0;
        Some(left.parse::<f64>().ok()? + width.parse::<f64>().ok()?)
    };
    let end = svg.split('M').filter_map(numbers).fold(0.0, f64::max);
    let whole = 860.0 - 110.0 - 16.0;
    let part = (end - 110.0) / whole;
    assert!((0.49..=0.51).contains(&part), "{part}");
}

#[test]
fn two_runs_write_two_timelines() {
    let path = temporary("two.pftrace");
    let trace = path.to_str().expect("a path of ours");
    stdout(&["simulate", "limits.toml", "--set", "seed=2", "--trace", trace]);
    for label in ["base", "changed"] {
        let written = path.with_file_name(format!("two.{label}.pftrace"));
        assert!(written.exists(), "{label}");
    }
}

#[test]
fn what_cannot_be_run_is_refused_with_exit_code_2() {
    refused(
        &["simulate", "limits.toml", "--set", "group.web.quota_us=7"],
        expect![[r#"
            error: --set group.web.quota_us=7: group.web.quota_us: 7: allowed 1000 .. 17592186044415, or "max"
        "#]],
    );
    refused(
        &["simulate", "limits.toml", "--seed", "-1"],
        expect![[r#"
            error: invalid value '-1' for '--seed <NUMBER>': allowed: 0 .. 9223372036854775807

            For more information, try '--help'.
        "#]],
    );
    refused(
        &["simulate", "limits.toml", "--set", "seed=9223372036854775808"],
        expect![[r#"
            error: --set seed=9223372036854775808: seed: 9223372036854775808: allowed 0 .. 9223372036854775807
        "#]],
    );
    refused(
        &["simulate", "limits.toml", "--duration-ms", "0"],
        expect![[r#"
            error: invalid value '0' for '--duration-ms <MS>': allowed: 1 .. 86400000

            For more information, try '--help'.
        "#]],
    );
    refused(
        &["simulate", "limits.toml", "--json", "no/such/dir/x.json"],
        expect![[r#"
            error: no/such/dir/x.json: cannot write it: No such file or directory (os error 2)
        "#]],
    );
    refused(
        &["simulate", "limits.toml", "--trace", "no/such/dir/x.pftrace"],
        expect![[r#"
            error: no/such/dir/x.pftrace: cannot write it: No such file or directory (os error 2)
        "#]],
    );
    refused(
        &["simulate", "bad.toml"],
        expect![[r#"
            error: bad.toml:3:15: duration_ms: 0: allowed 1 .. 86400000
            error: bad.toml:4:1: warmup: unknown key; did you mean warmup_ms?
            error: bad.toml:7:12: group.web.quota_us: "20ms": allowed an integer, 1000 .. 17592186044415, or "max"
            error: bad.toml:8:12: group.web.burst_us: -1: allowed 0 .. 17592186044415
            error: bad.toml:11:8: workload.server.kind: "servr": did you mean "server"? allowed: schbench, hackbench, fibtest, duty, clients_db, request_response, stream, server, batch, spinners
        "#]],
    );
    refused(
        &["reproduce", "--set", "seed=3"],
        expect![[r#"
            error: --set seed=3: each row runs with seeds 1 .. --seeds; allowed are other keys
        "#]],
    );
    let published = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/published");
    let same = ["--set", "switches.steal=true", "--scenarios", published];
    refused(
        &[&["reproduce", "001-x6-1x"][..], &same].concat(),
        expect![[r#"
            error: --set switches.steal=true: switches.steal: base and change differ in it, and would be the same; allowed are other keys (001-x6-1x10, 001-x6-1x22)
        "#]],
    );
    refused(
        &["simulate", "limits.toml", "--sed", "3"],
        expect![[r#"
        error: unexpected argument '--sed' found

          tip: a similar argument exists: '--seed'

        Usage: plimsoll simulate --seed <NUMBER> <SCENARIO>

        For more information, try '--help'.
    "#]],
    );
}

#[test]
fn a_scenario_from_a_pipe_can_be_compared_with_itself_changed() {
    let output = shell("cat limits.toml | $0 simulate /dev/stdin --set group.web.burst_us=0");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
}

/// A fit of minutes is not written into its machine while another one cannot even begin.
#[test]
fn calibrate_reads_everything_before_it_fits_anything() {
    let dir = directory("fits");
    let published = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/published");
    for entry in std::fs::read_dir(published).expect("the scenarios") {
        let path = entry.expect("an entry").path();
        std::fs::copy(&path, dir.join(path.file_name().expect("a name"))).expect("a copy");
    }
    std::fs::write(dir.join("004-headroom.toml"), "duration_ms = 0\n").expect("a bad scenario");
    let machines = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines");
    let scenarios = dir.display().to_string();
    let output = plimsoll(&[
        "calibrate",
        "--dry-run",
        "--scenarios",
        &scenarios,
        "--machines",
        machines,
    ]);
    let message = String::from_utf8_lossy(&output.stderr).to_string();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("004-headroom.toml"), "{message}");
}

#[test]
fn mistakes_of_both_scenarios_are_said_at_once() {
    let other = temporary("bad-too.toml");
    std::fs::write(&other, "duration_ms = 0\n").expect("a scenario");
    let other = other.to_str().expect("a path of ours");
    let output = plimsoll(&["simulate", "bad.toml", "--compare", other]);
    let said = String::from_utf8_lossy(&output.stderr).to_string();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("error: bad.toml:4:1: ") && said.contains("bad-too.toml:1:15: "),
        "{said}"
    );
    let setting = ["--set", "group.web.quota_us=7"];
    let output = plimsoll(
        &[
            &["simulate", "limits.toml", "--compare", "limits.toml"][..],
            &setting,
        ]
        .concat(),
    );
    let said = String::from_utf8_lossy(&output.stderr).to_string();
    assert_eq!(said.lines().count(), 1, "wrong in both alike: {said}");
}

#[test]
fn rows_that_no_target_bears_on_are_held_against_their_own_tolerance() {
    let published = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/published");
    let reproduce = |settings: &[&str]| {
        let args = [
            "reproduce",
            "003-fibtest",
            "--seeds",
            "1",
            "--scenarios",
            published,
        ];
        let output = plimsoll(&[&args[..], settings].concat());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).to_string();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, out, _) = reproduce(&["--set", "duration_ms=1", "--set", "warmup_ms=0"]);
    assert!(out.contains("1 wrong") && code == Some(1), "{code:?}: {out}");
    for said in [
        ": plimsoll reproduce 003-fibtest --seeds 1 ",
        " --set duration_ms=1 --set warmup_ms=0\nNot as published: ",
    ] {
        assert!(out.contains(said), "{out}");
    }
    // Of many scenarios one lacks the group.
    let (code, _, said) = reproduce(&["--set", "group.web.quota_us=5"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("003-fibtest.toml: --set group.web.quota_us=5"),
        "{said}"
    );
}

#[test]
fn values_that_mean_nothing_are_refused() {
    let nowhere = env!("CARGO_TARGET_TMPDIR");
    for (args, said) in [
        (&["record", "--cgroup", "", "-o", "x.trace"][..], "--cgroup"),
        (&["reproduce", ""], "[TABLE]"),
        (&["vm", "--cpus", "4,sockets=3", "--", "true"], "sockets make 3"),
        (&["plan", "x.trace", "--goal", "p99(request) < 0ms"], "above 0"),
        (&["reproduce", "--scenarios", nowhere], "--scenarios DIR"),
        (&["calibrate", "--scenarios", nowhere], "--scenarios DIR"),
    ] {
        let output = plimsoll(args);
        let message = String::from_utf8_lossy(&output.stderr).to_string();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
        assert!(message.contains(said), "{args:?}: {message}");
    }
}

/// Minutes of fitting would end in a table of costs that cannot be written.
#[test]
fn a_dry_run_of_calibrate_asks_for_the_same_files() {
    let dir = directory("calibrated");
    let scenarios = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/published");
    let machines = dir.display().to_string();
    let args = [
        "calibrate",
        "--dry-run",
        "--scenarios",
        scenarios,
        "--machines",
        &machines,
    ];
    for text in [None, Some("smt_percent = 1\n")] {
        if let Some(text) = text {
            std::fs::write(dir.join("x6-2-1x10.toml"), text).expect("a file");
        }
        let output = plimsoll(&args);
        let message = String::from_utf8_lossy(&output.stderr).to_string();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains("x6-2-1x10.toml"), "{message}");
    }
}

/// A directory with a cgroup's files is one to `set`; no scheduler is asked about it.
#[test]
fn the_root_group_takes_no_knobs() {
    let dir = directory("cgroup");
    std::fs::write(dir.join("cgroup.controllers"), "cpu\n").expect("a file");
    let path = dir.display().to_string();
    let output = plimsoll(&["set", &path, "burst_us=1"]);
    let message = String::from_utf8_lossy(&output.stderr).to_string();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("the root group takes no knobs"), "{message}");
    let output = plimsoll(&["set", &path, "burst_us=1", "onset_percent=5", "burst_us=2"]);
    let message = String::from_utf8_lossy(&output.stderr).to_string();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("burst_us=2: given twice"), "{message}");
    let output = plimsoll(&[
        "set",
        &path,
        "onset_percent=101",
        "burst_us=1",
        "headroom_percent=x",
    ]);
    let message = String::from_utf8_lossy(&output.stderr).to_string();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(
        message.contains("101") && message.contains("headroom_percent"),
        "both are named: {message}"
    );
}

#[test]
fn flags_of_a_replay_are_not_ignored_where_nothing_is_replayed() {
    for flag in [["--group", "/web"], ["--request", "comm:web"]] {
        let output = plimsoll(&[&["simulate", "limits.toml"][..], &flag].concat());
        assert_eq!(output.status.code(), Some(2), "{flag:?}");
    }
}

#[test]
fn a_scenario_that_is_not_there_names_the_examples() {
    let message = |name| String::from_utf8_lossy(&plimsoll(&["simulate", name]).stderr).to_string();
    assert!(message("brust").contains("did you mean burst?"));
    assert!(!message("/").contains("examples"), "it is there, and no file");
    let output = plimsoll(&["simulate", "limit.toml"]);
    let message = String::from_utf8_lossy(&output.stderr).to_string();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        message.starts_with("error: limit.toml: cannot read it: ") && message.contains("burst"),
        "{message}"
    );
}

#[test]
fn a_device_that_never_ends_is_no_scenario() {
    let output = plimsoll(&["simulate", "/dev/zero"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "error: /dev/zero: cannot read it: it is larger than 64 MiB\n"
    );
}

#[test]
fn a_machine_file_that_cannot_be_read_is_not_replaced_by_the_model_of_its_name() {
    let dir = temporary("own");
    std::fs::create_dir_all(dir.join("machines")).expect("a directory");
    std::fs::write(dir.join("machines/vm.toml"), b"# vm\ndescription = \"\xb5s\"\n").expect("Latin-1");
    std::fs::write(dir.join("s.toml"), "machine = \"vm\"\nduration_ms = 1\n").expect("a scenario");
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["simulate", "s.toml"])
        .current_dir(&dir)
        .output()
        .expect("the binary was built for this test");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).to_string();
    assert_eq!(
        said,
        "error: s.toml:1:11: machine: \"vm\": cannot read machines/vm.toml: line 2 is not UTF-8\n"
    );
}

#[test]
fn percentages_are_of_the_time_that_cpus_were_on_line() {
    let run = first_run(
        "offline.toml",
        "duration_ms = 1_000\n\
         [machine]\ntopology = { cores_per_llc = 4 }\n\
         [workload.s]\nkind = \"spinners\"\nthreads = 1\ncpus = \"0\"\n\
         [[change]]\nat_ms = 0\noffline = \"1-2\"\n",
    );
    assert_eq!(run["cpu"]["offline_ns"], 2_000_000_000_u64);
    assert_eq!(run["cpus"][1]["busy_percent"], 0.0);
    let busy = run["cpu"]["busy_percent"].as_f64().expect("a number");
    assert!((busy - 50.0).abs() < 0.1, "{busy} % of CPUs 0 and 3");
}

#[test]
fn a_run_that_ends_within_the_warm_up_says_so() {
    let path = temporary("short.toml");
    let scenario = "machine = \"vm\"\nduration_ms = 1000\nwarmup_ms = 500\nstop_when_done = true\n\
                    [workload.h]\nkind = \"hackbench\"\ngroups = 1\nloops = 1\n";
    std::fs::write(&path, scenario).expect("a scenario");
    let output = plimsoll(&["simulate", path.to_str().expect("a path of ours"), "--json", "-"]);
    let said = String::from_utf8_lossy(&output.stderr).to_string();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.starts_with("warning: ") && said.contains("within the warm-up (warmup_ms: 500)"),
        "{said}"
    );
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["runs"][0]["measured_ns"], 0);
    assert_eq!(json["runs"][0]["workloads"][0]["counters"][0]["value"], 0);
}

#[test]
fn the_invariants_hold_at_every_event() {
    stdout(&["simulate", "busy.toml", "--check"]);
}

#[test]
fn the_manual_and_the_completions_are_made_from_the_flags() {
    let dir = directory("man");
    stdout(&["man", dir.to_str().expect("a path of ours")]);
    let page = std::fs::read_to_string(dir.join("plimsoll-simulate.1")).expect("the page");
    assert!(
        page.contains("per\\-cpu") && page.contains("group.web.burst_us=0"),
        "{page}"
    );
    assert!(stdout(&["completions", "bash"]).contains("--per-cpu"));
    // A page that cannot be written whole is the disk's fault.
    std::fs::remove_file(dir.join("plimsoll.1")).expect("the page");
    std::os::unix::fs::symlink("/dev/full", dir.join("plimsoll.1")).expect("a link");
    let output = plimsoll(&["man", dir.to_str().expect("a path of ours")]);
    assert_eq!(output.status.code(), Some(3));
}
