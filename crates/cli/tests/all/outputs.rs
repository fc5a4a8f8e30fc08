// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where results go: files that are there whole or not at all, streams, and nothing over what is read.
use crate::common::{directory, plimsoll, plimsoll_in, shell, stdout, temporary};
use expect_test::expect_file;
use std::path::Path;
use std::process::Command;

#[test]
fn a_closed_pipe_ends_the_printing_and_a_full_disk_the_command() {
    for (to, code) in [("- | true", 0), ("- > /dev/full", 3), ("/dev/full", 3)] {
        let line = format!("$0 simulate limits.toml --json {to}; exit ${{PIPESTATUS[0]}}");
        let output = shell(&line);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{to}: {said}");
        assert_eq!(said.lines().count(), usize::from(code != 0), "{to}: {said}");
    }
}

#[test]
fn help_and_version_that_are_lost_are_said() {
    for asked in [
        "help",
        "--help",
        "-h",
        "help simulate",
        "simulate --help",
        "--version",
        "-V",
    ] {
        for (to, code) in [("> /dev/full", 3), ("| true", 0), ("> /dev/null", 0)] {
            let output = shell(&format!("$0 {asked} {to}; exit ${{PIPESTATUS[0]}}"));
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "{asked} {to}: {said}");
            assert_eq!(
                said.lines().count(),
                usize::from(code != 0),
                "{asked} {to}: {said}"
            );
        }
    }
}

#[test]
fn a_standard_error_that_nobody_takes_changes_no_exit_code() {
    for (args, code) in [
        ("simulate nosuch", 2),
        ("validate nosuch", 2),
        ("simulate limits.toml --sed 3", 2),
        ("simulate limits.toml --trace /dev/null", 0),
        ("simulate limits.toml > /dev/full", 3),
    ] {
        for nobody in ["/dev/full", ">(true)", "&-"] {
            let output = shell(&format!("$0 {args} 2> {nobody}").replace("> &", ">&"));
            assert_eq!(output.status.code(), Some(code), "{args} to {nobody}");
        }
    }
}

/// Nothing of what was asked for is written when one part of it cannot be, and nothing is simulated first.
#[test]
fn a_file_that_cannot_be_written_is_said_before_the_work_begins() {
    let trace = temporary("never.pftrace");
    let trace = trace.to_str().expect("a path of ours");
    let directory = env!("CARGO_TARGET_TMPDIR");
    for (json, said) in [
        ("no/such/dir/x.json", "No such file or directory"),
        (directory, "Is a directory"),
    ] {
        let output = plimsoll(&["simulate", "limits.toml", "--trace", trace, "--json", json]);
        let message = String::from_utf8_lossy(&output.stderr).to_string();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(json) && message.contains(said), "{message}");
        assert!(!Path::new(trace).exists(), "{message}");
    }
    // The published tables take minutes, the fits longer: these end at once.
    let published = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/published");
    for args in [
        &["reproduce", "--html", "no/such/dir/x.html"][..],
        &["reproduce", "--markdown", "-"],
        &["calibrate", "--machines", "no/such/dir"],
        &["plan", "x.trace", "--goal", "throttled < 1%", "--html", directory],
        &["record", "-o", directory],
    ] {
        let scenarios: &[&str] = match args[0] {
            "reproduce" | "calibrate" => &["--scenarios", published],
            _ => &[],
        };
        let output = plimsoll(&[args, scenarios].concat());
        let message = String::from_utf8_lossy(&output.stderr).to_string();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
        assert!(message.lines().count() == 1, "{args:?}: {message}");
    }
}

#[test]
fn results_go_over_no_input_and_over_no_other_result() {
    let path = temporary("mine.toml");
    std::fs::copy(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/golden/limits.toml"),
        &path,
    )
    .expect("a copy");
    let before = std::fs::read(&path).expect("the copy");
    let mine = path.to_str().expect("a path of ours");
    let link = temporary("mine.link");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(&path, &link).expect("a link");
    let link = link.to_str().expect("a path of ours");
    let read = "this one is read";
    for (args, said) in [
        (&["simulate", mine, "--json", mine][..], read),
        (&["simulate", mine, "--trace", link], read),
        (
            &["simulate", "limits.toml", "--compare", mine, "--json", link],
            read,
        ),
        (&["validate", mine, "--json", mine], read),
        (&["plan", mine, "--goal", "throttled < 1%", "--html", mine], read),
        (&["simulate", "--replay", mine, "--json", mine], read),
        (&["reproduce", "--published", mine, "--markdown", mine], read),
        (
            &[
                "simulate",
                "limits.toml",
                "--json",
                "new.out",
                "--trace",
                "./new.out",
            ],
            "another result goes there",
        ),
    ] {
        let output = plimsoll(args);
        let message = String::from_utf8_lossy(&output.stderr).to_string();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
        assert!(message.contains(said), "{args:?}: {message}");
    }
    assert_eq!(before, std::fs::read(&path).expect("the copy"));
    // Nothing is lost where nothing is kept.
    stdout(&[
        "simulate",
        "limits.toml",
        "--json",
        "/dev/null",
        "--trace",
        "/dev/null",
    ]);
}

#[test]
fn results_replace_a_file_whole_and_leave_none_beside_it() {
    let dir = temporary("replaced");
    std::fs::create_dir_all(&dir).expect("a directory");
    let path = dir.join("r.json");
    std::fs::write(&path, "x".repeat(1_000_000)).expect("a file");
    // Whose this is, it stays.
    let other = dir.join("r.json.partial");
    std::fs::write(&other, "mine").expect("a file");
    let name = path.to_str().expect("a path of ours");
    stdout(&["simulate", "limits.toml", "--json", name]);
    expect_file!["golden/limits.json"].assert_eq(&std::fs::read_to_string(&path).expect("the results"));
    assert_eq!(std::fs::read_to_string(&other).expect("still there"), "mine");
    assert_eq!(std::fs::read_dir(&dir).expect("the directory").count(), 2);
}

/// Models of machines and scenarios are read although no argument names them.
#[test]
fn results_go_over_no_file_that_was_read_on_the_way() {
    let dir = directory("indirect");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let copy = |from: &str, to: &str| {
        std::fs::create_dir_all(dir.join(to).parent().expect("a folder")).expect("a directory");
        std::fs::copy(root.join(from), dir.join(to)).expect("a copy");
    };
    for folder in ["machines", "scenarios/published"] {
        for entry in std::fs::read_dir(root.join(folder)).expect("a folder of ours") {
            let name = entry.expect("an entry").file_name();
            let name = format!("{folder}/{}", name.to_str().expect("ours"));
            copy(&name, &name);
        }
    }
    copy("bench/results/kernel-bandwidth-truth.csv", "v.csv");
    std::fs::write(dir.join("s.toml"), "machine = \"vm\"\nduration_ms = 1\n").expect("a scenario");
    let tables = "scenarios/published/tables.toml";
    let fibtest = "scenarios/published/003-fibtest.toml";
    let fitted = "scenarios/published/004-headroom.toml";
    for args in [
        &["simulate", "s.toml", "--json", "machines/vm.toml"][..],
        &["simulate", "s.toml", "--trace", "./machines/vm.toml"],
        &["validate", "v.csv", "--json", "machines/vm.toml"],
        &["reproduce", "003-fibtest", "--seeds", "1", "--json", fibtest],
        &["reproduce", "--html", tables],
        &["calibrate", "--json", tables],
        &["calibrate", "unnamed-headroom", "--json", fitted],
        &["vm", "--file", "s.toml", "--dmesg", "s.toml", "--", "true"],
    ] {
        let output = plimsoll_in(&dir, args);
        let message = String::from_utf8_lossy(&output.stderr).to_string();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
        assert!(message.contains("this one is read"), "{args:?}: {message}");
    }
}

#[test]
fn a_standard_stream_that_is_a_file_keeps_what_it_holds() {
    let dir = directory("streams");
    let golden =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/golden/limits.json"))
            .expect("the golden results");
    for (to, redirected) in [
        ("/dev/stdout", ""),
        ("/dev/stderr", "2>&1 >/dev/null"),
        ("/dev/fd/3", "3>&1 >/dev/null"),
        ("/proc/self/fd/3", "3>&1 >/dev/null"),
    ] {
        let file = dir.join("log").display().to_string();
        let line = format!(
            "{{ echo before; $0 simulate limits.toml --json {to} {redirected}; echo after; }} > {file}"
        );
        let output = shell(&line);
        assert!(output.status.success(), "{to}");
        let log = std::fs::read_to_string(&file).expect("the log");
        assert!(log.starts_with(&format!("before\n{golden}")), "{to}: {log}");
        assert!(log.ends_with("after\n"), "{to}: {log}");
        assert_eq!(std::fs::read_dir(&dir).expect("the directory").count(), 1, "{to}");
    }
    let output = shell("$0 simulate limits.toml --json /dev/fd/4 4< limits.toml");
    assert_eq!(output.status.code(), Some(2), "it is open for reading only");
    let output = shell(&format!("$0 record -o /dev/stdout > {}/trace", dir.display()));
    assert_eq!(output.status.code(), Some(2));
}

/// The file is not a trace, and the message says so with any name.
#[test]
fn a_name_that_is_not_utf_8_reaches_the_results() {
    use std::os::unix::ffi::OsStrExt;
    let dir = directory("names");
    let text = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/results/kernel-bandwidth-truth.csv"),
    )
    .expect("the measured runs");
    let few: Vec<&str> = text.lines().take(40).collect();
    let path = dir.join(std::ffi::OsStr::from_bytes(b"m\xb5.csv"));
    std::fs::write(&path, few.join("\n") + "\n").expect("measured runs");
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["validate", "--json", "-"])
        .arg(&path)
        .output()
        .expect("the binary was built for this test");
    let said = String::from_utf8_lossy(&output.stderr).to_string();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{said}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let name = json["measured"].as_str().expect("a name");
    assert!(name.ends_with("m\u{fffd}.csv"), "{name}");
}

#[test]
fn a_file_that_grows_too_large_is_a_full_disk_and_leaves_no_half() {
    let dir = directory("limited");
    let line = format!(
        "ulimit -f 8; $0 simulate busy.toml --json - --trace {}/t.pftrace",
        dir.display()
    );
    let output = shell(&line);
    let said = String::from_utf8_lossy(&output.stderr).to_string();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("File too large"), "{said}");
    assert_eq!(std::fs::read_dir(&dir).expect("the directory").count(), 0);
}

#[test]
fn a_link_to_nothing_stays_one_and_its_file_is_made() {
    let dir = directory("dangling");
    std::os::unix::fs::symlink("real.json", dir.join("link.json")).expect("a link");
    let link = dir.join("link.json");
    for _ in 0..2 {
        stdout(&["simulate", "limits.toml", "--json", link.to_str().expect("ours")]);
        assert!(link.is_symlink());
        expect_file!["golden/limits.json"]
            .assert_eq(&std::fs::read_to_string(dir.join("real.json")).expect("the results"));
    }
    std::fs::remove_file(dir.join("real.json")).expect("the results");
    let [link, real] = ["link.json", "real.json"].map(|name| dir.join(name).display().to_string());
    let output = plimsoll(&["simulate", "limits.toml", "--json", &link, "--trace", &real]);
    let said = String::from_utf8_lossy(&output.stderr).to_string();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("another result goes there"), "{said}");
}

/// Names made from a device's would be new files beside it.
#[test]
fn two_timelines_do_not_go_beside_a_device() {
    let dir = directory("device");
    std::os::unix::fs::symlink("/dev/full", dir.join("full")).expect("a link");
    let trace = dir.join("full").display().to_string();
    let output = plimsoll(&["simulate", "limits.toml", "--trace", &trace, "--set", "seed=2"]);
    let said = String::from_utf8_lossy(&output.stderr).to_string();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("two files"), "{said}");
    assert_eq!(std::fs::read_dir(&dir).expect("the directory").count(), 1);
}

#[test]
fn a_signal_leaves_no_half_of_a_file() {
    for signal in ["INT", "TERM", "HUP", "QUIT"] {
        let dir = directory(&format!("signal-{signal}"));
        let trace = dir.join("t.pftrace").display().to_string();
        let day = ["--duration-ms", "86400000"];
        // The tests may run with these ignored: under nohup, or in a shell's background. QUIT would leave a core.
        let mut child = Command::new("prlimit")
            .args(["--core=0", "env", "--default-signal=INT,TERM,HUP,QUIT"])
            .arg(env!("CARGO_BIN_EXE_plimsoll"))
            .args([&["simulate", "limits.toml", "--trace", &trace][..], &day].concat())
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/golden"))
            .spawn()
            .expect("prlimit of util-linux, env of coreutils");
        let files = || std::fs::read_dir(&dir).expect("the directory").count();
        while files() == 0 {
            assert_eq!(
                child.try_wait().expect("our child"),
                None,
                "ended before it was told to"
            );
            std::thread::yield_now();
        }
        let output = shell(&format!("kill -{signal} {}", child.id()));
        assert!(output.status.success());
        let status = child.wait().expect("our child");
        assert_eq!(status.code(), None, "ended by the signal, as its parent expects");
        assert_eq!(files(), 0, "{signal}");
    }
}

#[test]
fn figures_of_validate_have_units_and_the_scheduler_they_were_measured_under() {
    let truth = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../bench/results/kernel-bandwidth-truth.csv"
    );
    let text = std::fs::read_to_string(truth).expect("the measured runs");
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let one = temporary("one-row.csv");
    std::fs::write(&one, lines[..2].join("\n")).expect("a row");
    let output = plimsoll(&["validate", one.to_str().expect("a path of ours"), "--json", "-"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["scheduler"], "kernel");
    let figures = json["rows"][0]["figures"].as_array().expect("figures");
    let unit = |name: &str| {
        figures
            .iter()
            .find(|one| one["figure"] == name)
            .map(|one| &one["unit"])
    };
    assert_eq!(unit("nr_periods").expect("periods"), "count");
    assert_eq!(unit("cpu").expect("CPU time"), "us");
}

#[test]
fn repetitions_of_a_run_that_has_none_are_not_said_to_agree() {
    let header =
        "kernel,vcpus,rep,label,quota,period,burst,phase_us,nth,work,interval,spin,slow,pin,dur_ms,cpu_us";
    let row = |rep, cpu_us| format!("6.1,4,{rep},a,50000,100000,0,47,0,0,100000,1,0,0,1000,{cpu_us}\n");
    let path = temporary("repetitions.csv");
    let path = path.to_str().expect("a path of ours");
    for (rows, said, differ) in [
        (row(1, 1), "-", serde_json::Value::Null),
        (row(1, 1) + &row(2, 1), "agree", false.into()),
        (
            row(1, 1) + &row(2, 2),
            "differ by more than twice the tolerance",
            true.into(),
        ),
    ] {
        std::fs::write(path, format!("{header}\n{rows}")).expect("measured runs");
        let output = plimsoll(&["validate", path]);
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8(output.stdout).expect("text");
        let last = text.lines().last().expect("a missed row");
        assert!(last.ends_with(&format!("  {said}")), "{text}");
        let output = plimsoll(&["validate", path, "--json", "-"]);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(json["rows"][0]["figures"][0]["repetitions_differ"], differ);
    }
}

#[test]
fn a_configuration_that_is_no_text_is_refused_with_its_line() {
    let path = temporary("latin1.toml");
    std::fs::write(&path, b"slice_us = 3000\n# gr\xfc\xdfe\n").expect("a configuration");
    for (config, said) in [
        (path.to_str().expect("a path of ours"), "line 2 is not UTF-8"),
        ("/dev/zero", "it is larger than 64 MiB"),
    ] {
        let output = plimsoll(&["run", "--check", "--config", config]);
        assert_eq!(output.status.code(), Some(2));
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(message, format!("error: {config}: cannot read it: {said}\n"));
    }
}
