// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The version with the commit, for `plimsoll --version`: from PLIMSOLL_COMMIT, or from git, or neither in a tree that git
//! does not know. Only of release builds: another commit would build every test anew.
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=PLIMSOLL_COMMIT");
    let version = std::env::var("CARGO_PKG_VERSION").expect("cargo sets it");
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let version = match is_release.then(commit).flatten() {
        Some(commit) => format!("{version} ({commit})"),
        None => version,
    };
    println!("cargo::rustc-env=PLIMSOLL_VERSION={version}");
}

fn commit() -> Option<String> {
    // A line is added to it by whatever moves HEAD.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    std::env::var("PLIMSOLL_COMMIT")
        .ok()
        .filter(|commit| !commit.is_empty())
        .or_else(|| git(&["rev-parse", "--short=12", "HEAD"]))
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_string())
}
