//! The simulate command as a user runs it: what it prints, what it refuses, and that it always gives the same bytes.
//! UPDATE_EXPECT=1 writes the expected output again.
use expect_test::{expect, expect_file, Expect};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs plimsoll in this directory, so that errors name files the same everywhere.
fn plimsoll(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(args)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden"))
        .output()
        .expect("the binary was built for this test")
}

fn stdout(args: &[&str]) -> String {
    let output = plimsoll(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn refused(args: &[&str], expected: Expect) {
    let output = plimsoll(args);
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    assert!(output.stdout.is_empty(), "{args:?} printed results");
    expected.assert_eq(&String::from_utf8_lossy(&output.stderr));
}

/// A file of this test's own.
fn temporary(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
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
    expect_file!["golden/busy.json"].assert_eq(&stdout(&["simulate", "busy.toml", "--check", "--json", "-"]));
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
    assert_eq!(plain, stdout(&["simulate", "busy.toml", "--json", "-", "--trace", trace]));
    assert_ne!(plain, stdout(&["simulate", "busy.toml", "--json", "-", "--seed", "8"]));
}

#[test]
fn two_runs_write_two_timelines() {
    let path = temporary("two.pftrace");
    let trace = path.to_str().expect("a path of ours");
    stdout(&["simulate", "limits.toml", "--set", "seed=2", "--trace", trace]);
    for label in ["base", "changed"] {
        assert!(temporary(&format!("two.{label}.pftrace")).exists(), "{label}");
    }
}

#[test]
fn what_cannot_be_run_is_refused_with_exit_code_2() {
    refused(&["simulate", "limits.toml", "--set", "group.web.quota_us=7"], expect![]);
    refused(&["simulate", "limits.toml", "--seed", "-1"], expect![]);
    refused(&["simulate", "limits.toml", "--duration-ms", "0"], expect![]);
    refused(&["simulate", "limits.toml", "--json", "no/such/dir/x.json"], expect![]);
    refused(&["simulate", "limits.toml", "--trace", "no/such/dir/x.pftrace"], expect![]);
    refused(&["simulate", "bad.toml"], expect![]);
    refused(&["simulate", "limits.toml", "--sed", "3"], expect![]);
}

#[test]
fn a_scenario_that_is_not_there_names_the_examples() {
    refused(&["simulate", "limit.toml"], expect![]);
}

#[test]
fn the_manual_and_the_completions_are_made_from_the_flags() {
    let dir = temporary("man");
    stdout(&["man", dir.to_str().expect("a path of ours")]);
    let page = std::fs::read_to_string(dir.join("plimsoll-simulate.1")).expect("the page");
    assert!(page.contains("per\\-cpu") && page.contains("group.web.burst_us=0"), "{page}");
    assert!(stdout(&["completions", "bash"]).contains("--per-cpu"));
}
