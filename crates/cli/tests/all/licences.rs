// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every tracked file says its licence, and every crate that the lock file pins has one that deny.toml allows.

use std::path::{Path, PathBuf};
use std::process::Command;

const OWN: &str = "Apache-2.0 OR MIT";
const KERNEL_SIDE: &str = "GPL-2.0-only OR BSD-2-Clause";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The licence a file must have.
fn expected(path: &str) -> &'static str {
    if path.starts_with("policy/") || path.starts_with("bpf/") {
        KERNEL_SIDE
    } else {
        OWN
    }
}

/// What the tag in the first lines of a file says, if there is one.
fn tag(bytes: &[u8]) -> Option<String> {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(400)]).into_owned();
    let line = head
        .lines()
        .find(|line| line.contains("SPDX-License-Identifier:"))?;
    let said = line.split_once("SPDX-License-Identifier:")?.1;
    Some(
        said.trim_end_matches("*/")
            .trim_end_matches("-->")
            .trim()
            .to_string(),
    )
}

/// Whether a path of REUSE.toml means `path`: `**` stands for any text, `*` for any without a slash.
fn means(pattern: &str, path: &str) -> bool {
    if let Some(rest) = pattern.strip_prefix("**") {
        return (0..=path.len())
            .any(|n| path.is_char_boundary(n) && means(rest.trim_start_matches('/'), &path[n..]));
    }
    match (pattern.chars().next(), path.chars().next()) {
        (None, left) => left.is_none(),
        (Some('*'), left) => {
            means(&pattern[1..], path)
                || left.is_some_and(|c| c != '/' && means(pattern, &path[c.len_utf8()..]))
        }
        (Some(want), Some(have)) if want == have => {
            means(&pattern[want.len_utf8()..], &path[have.len_utf8()..])
        }
        _ => false,
    }
}

/// What REUSE.toml says of files that cannot say it themselves.
fn annotations() -> Vec<(String, String)> {
    let reuse: toml::Table = read("REUSE.toml").parse().expect("TOML");
    let mut found = Vec::new();
    for annotation in reuse["annotations"].as_array().expect("a list") {
        let licence = annotation["SPDX-License-Identifier"].as_str().expect("a text");
        for path in annotation["path"].as_array().expect("a list") {
            found.push((path.as_str().expect("a text").to_string(), licence.to_string()));
        }
    }
    found
}

#[test]
fn every_tracked_file_says_its_licence() {
    let listed = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(root())
        .output()
        .expect("git runs");
    assert!(
        listed.status.success(),
        "git ls-files: {}",
        String::from_utf8_lossy(&listed.stderr)
    );
    let listed = String::from_utf8(listed.stdout).expect("UTF-8");
    let paths: Vec<&str> = listed.split_terminator('\0').collect();
    assert!(paths.len() > 100);
    let annotations = annotations();
    let mut wrong = Vec::new();
    for path in paths {
        // A file that is being deleted is listed until that is committed.
        let Ok(bytes) = std::fs::read(root().join(path)) else {
            continue;
        };
        let by_list = annotations.iter().find(|(pattern, _)| means(pattern, path));
        let said = by_list
            .map(|(_, licence)| licence.clone())
            .or_else(|| tag(&bytes));
        let expected = expected(path);
        match said {
            Some(licence) if licence == expected => {}
            Some(licence) => wrong.push(format!("{path}: says `{licence}`, must say `{expected}`")),
            None => wrong.push(format!(
                "{path}: add a comment `SPDX-License-Identifier: {expected}` as its first line"
            )),
        }
    }
    assert!(
        wrong.is_empty(),
        "{}\n(after `#!` where a script has it; what cannot carry a comment is listed in REUSE.toml)",
        wrong.join("\n")
    );
}

#[test]
fn a_path_of_the_list_means_the_files_below_it() {
    for (pattern, path, expected) in [
        ("Cargo.lock", "Cargo.lock", true),
        ("Cargo.lock", "fuzz/Cargo.lock", false),
        ("bench/results/**", "bench/results/a/b.csv", true),
        ("crates/**/tests/**.csv", "crates/validate/tests/misses.csv", true),
        ("crates/**/tests/**.csv", "crates/validate/src/misses.csv", false),
        ("docs/*.json", "docs/a/b.json", false),
        ("docs/*.json", "docs/b.json", true),
    ] {
        assert_eq!(means(pattern, path), expected, "{pattern} {path}");
    }
}

/// The texts of all licences that files here name are in LICENSES/.
#[test]
fn every_licence_that_a_file_has_is_here_in_full() {
    for licence in OWN.split(" OR ").chain(KERNEL_SIDE.split(" OR ")) {
        assert!(read(&format!("LICENSES/{licence}.txt")).len() > 1000, "{licence}");
    }
}

/// `A/B` is the older spelling of `A OR B`: the reader of expressions knows it.
fn allowed(expression: &str, list: &[String]) -> bool {
    spdx::Expression::parse_mode(expression, spdx::ParseMode::LAX).is_ok_and(|expression| {
        expression.evaluate(|required| list.iter().any(|one| *one == required.to_string()))
    })
}

#[test]
fn an_expression_is_met_by_what_is_allowed() {
    let list: Vec<String> = ["MIT", "Apache-2.0", "Unicode-3.0", "BSD-2-Clause"]
        .map(String::from)
        .into();
    for (expression, expected) in [
        ("MIT", true),
        ("MIT/Unlicense", true),
        ("Apache-2.0 WITH LLVM-exception OR MIT", true),
        ("Apache-2.0 WITH LLVM-exception", false),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("(Apache-2.0 OR MIT) AND (GPL-2.0-only OR BSD-2-Clause)", true),
        ("MIT AND GPL-2.0-only", false),
        ("GPL-2.0-only", false),
        ("Apache-2.0 AND (GPL-2.0-only OR LGPL-2.1-only)", false),
        ("no such licence", false),
    ] {
        assert_eq!(allowed(expression, &list), expected, "{expression}");
    }
}

fn allow_list() -> Vec<String> {
    let deny: toml::Table = read("deny.toml").parse().expect("TOML");
    let list = deny["licenses"]["allow"].as_array().expect("a list");
    list.iter()
        .map(|l| l.as_str().expect("a text").to_string())
        .collect()
}

/// The binary joins Apache-2.0-only crates, the LGPL-3.0 of libelf and our own: the FSF calls GPL-2.0-only incompatible
/// with the first two. A licence that needs the reader's thought is absent from the list.
#[test]
fn what_is_allowed_can_be_linked_into_one_binary() {
    for licence in allow_list() {
        assert!(!licence.contains("GPL"), "deny.toml allows {licence}");
    }
}

#[test]
fn every_dependency_has_an_allowed_licence() {
    let list = allow_list();
    let metadata = crate::common::cargo_metadata();
    let packages = metadata["packages"].as_array().expect("a list");
    assert!(packages.len() > 10);
    let refused: Vec<String> = packages
        .iter()
        .filter(|p| !p["license"].as_str().is_some_and(|l| allowed(l, &list)))
        .map(|p| format!("{} {}: {}", p["name"], p["version"], p["license"]))
        .collect();
    assert!(
        refused.is_empty(),
        "not in deny.toml's list:\n{}",
        refused.join("\n")
    );
}
