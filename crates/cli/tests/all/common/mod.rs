// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the command as a user does.
#![allow(dead_code)] // each of the tests' files uses some of it
pub mod traces;

use plimsoll_trace::example;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

/// Where the scenarios and the expected results are: errors name files the same everywhere.
pub fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/golden")
}

pub fn plimsoll(args: &[&str]) -> Output {
    plimsoll_in(&golden(), args)
}

pub fn plimsoll_in(directory: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(args)
        .current_dir(directory)
        .output()
        .expect("the binary was built for this test")
}

/// What it prints; it has to end with success.
pub fn succeeds(directory: &Path, args: &[&str]) -> String {
    let output = plimsoll_in(directory, args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {said}");
    String::from_utf8(output.stdout).expect("text")
}

/// A folder with the recordings mon.trace and tue.trace, and this as spec.toml.
pub fn two_recordings(name: &str, spec: &str) -> PathBuf {
    let dir = directory(name);
    std::fs::write(dir.join("spec.toml"), spec).expect("a spec");
    for (name, requests) in [("mon.trace", 300), ("tue.trace", 310)] {
        let (header, events) = example::open_loop(requests);
        example::write(&dir.join(name), &header, &events).expect("a trace");
    }
    dir
}

/// A line of bash in the same directory; plimsoll is $0.
pub fn shell(line: &str) -> Output {
    Command::new("bash")
        .args(["-c", line, env!("CARGO_BIN_EXE_plimsoll")])
        .current_dir(golden())
        .output()
        .expect("bash")
}

pub fn stdout(args: &[&str]) -> String {
    let output = plimsoll(args);
    assert!(
        output.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("text")
}

/// Starts it in a directory and sends it a signal as soon as `ready`, if it has not ended before. Killed, it is gone; told to
/// end, it says so by its code, or ends by the signal where it did not listen yet.
pub fn signalled(directory: &Path, args: &[&str], signal: &str, ready: impl Fn() -> bool) {
    let mut child = Command::new("env")
        .args(["--default-signal=INT,TERM"])
        .arg(env!("CARGO_BIN_EXE_plimsoll"))
        .args(args)
        .current_dir(directory)
        .spawn()
        .expect("env of coreutils");
    while !ready() && child.try_wait().expect("our child").is_none() {
        std::thread::yield_now();
    }
    let _ = Command::new("kill")
        .args([&format!("-{signal}"), &child.id().to_string()])
        .status();
    let code = child.wait().expect("our child").code();
    let allowed: &[Option<i32>] = match signal {
        "KILL" => &[None, Some(0)],
        _ => &[None, Some(130), Some(0)],
    };
    assert!(allowed.contains(&code), "{signal}: {code:?}");
}

/// The folder of these tests.
pub fn temporary_folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(env!("CARGO_CRATE_NAME"));
    std::fs::create_dir_all(&folder).expect("a directory");
    folder
}

/// A file of this test's own. Tests run side by side, so a name is given out once: a second test that asks for it fails, as
/// would one that asks twice.
pub fn temporary(name: &str) -> PathBuf {
    static TAKEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let is_new = TAKEN
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(name.into());
    assert!(is_new, "{name}: another test, or this one, has taken the name");
    temporary_folder().join(name)
}

/// A directory of this test's own, empty.
pub fn directory(name: &str) -> PathBuf {
    let dir = temporary(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a directory");
    dir
}

/// The workspace and all that it is linked with on x86-64 Linux, as `cargo metadata` has it.
pub fn cargo_metadata() -> serde_json::Value {
    cargo_metadata_of("Cargo.toml")
}

/// The same of the workspace of a manifest.
pub fn cargo_metadata_of(manifest: &str) -> serde_json::Value {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--filter-platform",
            "x86_64-unknown-linux-gnu",
            "--manifest-path",
            manifest,
        ])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("JSON")
}
