// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The invariants of ARCHITECTURE.md that can be read off the source.
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(dir: &str, extension: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(dir)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)
            .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
            .flatten()
        {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == extension) {
                let text = std::fs::read_to_string(&path).expect("source is text");
                found.push((path, text));
            }
        }
    }
    assert!(!found.is_empty(), "{dir} has no .{extension} files");
    found.sort();
    found
}

#[test]
fn policy_includes_only_its_own_headers() {
    for (path, text) in sources("policy", "h") {
        for line in text.lines().filter(|l| l.starts_with("#include")) {
            let own = line.starts_with("#include \"") && {
                let name = line.split('"').nth(1).expect("quoted");
                root().join("policy").join(name).exists()
            };
            // The port alone may use the compiler's own integer types, natively.
            let port =
                path.ends_with("port.h") && (line.contains("<stdint.h>") || line.contains("<stdbool.h>"));
            assert!(own || port, "{}: {line}", path.display());
        }
    }
}

#[test]
fn policy_has_no_globals_but_constant_tables() {
    for (path, text) in sources("policy", "h") {
        for line in text.lines() {
            // What begins a line, assigns or ends there, and is not a function: a variable, or a type by name.
            let declares = line.starts_with(|c: char| c.is_ascii_alphabetic())
                && (line.contains('=') || line.ends_with(';') && !line.contains('('));
            let table = line.starts_with("static const ");
            let type_name =
                line.starts_with("typedef ") || line.split(' ').count() == 2 && line.starts_with("struct ");
            assert!(!declares || table || type_name, "{}: {line}", path.display());
        }
    }
}

#[test]
fn policy_header_opens_with_problem_mechanism_tradeoffs_and_limits() {
    for (path, text) in sources("policy", "h") {
        if path.ends_with("port.h") || path.ends_with("weight.h") {
            continue; // what an engine gives; a table
        }
        for heading in [
            "Problem ",
            "Mechanism ",
            "Formula ",
            "Trade-offs ",
            "Limits ",
            "Source",
        ] {
            assert!(
                text.contains(&format!(" * {heading}")),
                "{} lacks `{heading}`",
                path.display()
            );
        }
    }
}

#[test]
fn simulator_reads_no_clock_and_no_environment_and_has_no_globals() {
    // Names are resolved by the compiler: `make lint` fails on a use, whatever it is called where it is used.
    for folder in ["crates/sim", "crates/workload"] {
        let rules = std::fs::read_to_string(root().join(folder).join("clippy.toml")).expect("clippy.toml");
        for name in [
            "std::time::Instant",
            "std::time::SystemTime",
            "std::collections::HashMap",
            "std::collections::HashSet",
            "std::env::var",
            "std::fs::File",
            "std::fs::read",
            "std::thread::spawn",
            "std::thread_local",
            "std::sync::OnceLock",
            "std::sync::LazyLock",
        ] {
            assert!(
                rules.contains(&format!("\"{name}\"")),
                "{folder}/clippy.toml allows {name}"
            );
        }
        for (path, text) in sources(&format!("{folder}/src"), "rs") {
            for line in text.lines().map(str::trim_start) {
                let item = line
                    .trim_start_matches("pub")
                    .trim_start_matches("(crate)")
                    .trim_start();
                assert!(
                    !item.starts_with("static "),
                    "{}: a global: {line}",
                    path.display()
                );
                assert!(
                    !line.contains("allow(clippy::disallowed"),
                    "{}: {line}",
                    path.display()
                );
            }
        }
    }
}

/// Raw results are kept for the documents that cite them, each by its whole name; the history has the others.
#[test]
fn results_that_are_kept_are_cited() {
    let mut documents = String::new();
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("docs/").flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else if entry.path().extension().is_some_and(|e| e == "md") {
                documents += &std::fs::read_to_string(entry.path()).expect("text");
            }
        }
    }
    documents += &std::fs::read_to_string(root().join("README.md")).expect("README.md");
    // A name is cited where it does not go on: `a-2` does not cite `a`.
    let goes_on = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let cited = |name: &str| {
        let found = |(at, _): (usize, &str)| !documents[at + name.len()..].starts_with(goes_on);
        documents.match_indices(name).any(found)
    };
    let kept = std::process::Command::new("git")
        .args(["ls-files", "bench/results"])
        .current_dir(root())
        .output()
        .expect("git runs");
    assert!(kept.status.success(), "{}", String::from_utf8_lossy(&kept.stderr));
    let kept = String::from_utf8(kept.stdout).expect("UTF-8");
    let kept: std::collections::BTreeSet<&str> =
        kept.lines().filter_map(|path| path.split('/').nth(2)).collect();
    assert!(kept.len() > 10);
    let uncited: Vec<&str> = kept.into_iter().filter(|name| !cited(name)).collect();
    assert!(
        uncited.is_empty(),
        "in bench/results and in no document: {uncited:?}; cite each by its whole name in docs/, or remove it"
    );
}
