// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NOTICE, which `plimsoll --licences` prints and the wheel has in it, names all that is linked into either, with the whole texts. It is made
//! here: from LICENSES/linked for what is not a crate, and from the sources of the crates that cargo has unpacked.
//! `UPDATE_EXPECT=1 cargo test -p plimsoll --test all notice::` writes it.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Licences in the order in which we take one where a crate leaves the choice, with the word by which a file with its
/// text is known.
const PREFERRED: [(&str, &str); 8] = [
    ("MIT", "MIT"),
    ("BSD-2-Clause", "BSD"),
    ("BSD-3-Clause", "BSD"),
    ("ISC", "ISC"),
    ("Zlib", "ZLIB"),
    ("Apache-2.0", "APACHE"),
    ("BSL-1.0", "BOOST"),
    ("Unicode-3.0", "UNICODE"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or("")
}

/// Crates of others that are linked into the package `root`: reached by normal dependencies, without what only runs in the
/// compiler (procedural macros and what they use).
fn linked<'a>(metadata: &'a Value, root: &str) -> Vec<&'a Value> {
    let packages: HashMap<&str, &Value> = metadata["packages"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|p| (text(p, "id"), p))
        .collect();
    let nodes: HashMap<&str, &Value> = metadata["resolve"]["nodes"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|n| (text(n, "id"), n))
        .collect();
    let runs_in_the_compiler = |id: &str| {
        let targets = packages[id]["targets"].as_array().expect("a list");
        targets.iter().any(|t| {
            t["kind"]
                .as_array()
                .expect("a list")
                .iter()
                .any(|k| k == "proc-macro")
        })
    };
    let binary = packages
        .values()
        .find(|p| p["name"] == root)
        .expect("the package");
    let mut seen = BTreeSet::new();
    let mut next = vec![text(binary, "id")];
    while let Some(id) = next.pop() {
        if runs_in_the_compiler(id) || !seen.insert(id) {
            continue;
        }
        for dependency in nodes[id]["deps"].as_array().expect("a list") {
            let kinds = dependency["dep_kinds"].as_array().expect("a list");
            if kinds.iter().any(|kind| kind["kind"].is_null()) {
                next.push(text(dependency, "pkg"));
            }
        }
    }
    seen.into_iter()
        .map(|id| packages[id])
        .filter(|p| !p["source"].is_null())
        .collect()
}

/// Of the binary and of the Python package, which has a lock file of its own, each version once.
fn linked_into_either<'a>(binary: &'a Value, python: &'a Value) -> Vec<&'a Value> {
    let mut crates = linked(binary, "plimsoll");
    crates.extend(linked(python, "plimsoll-python"));
    crates.sort_by_key(|p| (text(p, "name"), text(p, "version")));
    crates.dedup_by_key(|p| (text(p, "name"), text(p, "version")));
    crates
}

/// The licences of `PREFERRED` that together meet a crate's expression.
fn chosen(expression: &str) -> Vec<(&'static str, &'static str)> {
    let parsed = spdx::Expression::parse_mode(expression, spdx::ParseMode::LAX).expect("an SPDX expression");
    let meets =
        |list: &[(&str, &str)]| parsed.evaluate(|r| list.iter().any(|(name, _)| *name == r.to_string()));
    // Leave out, the least preferred first, whatever is not needed.
    let mut list = PREFERRED.to_vec();
    assert!(
        meets(&list),
        "{expression}: none of these licences; see deny.toml"
    );
    for &one in PREFERRED.iter().rev() {
        let without: Vec<_> = list.iter().copied().filter(|other| *other != one).collect();
        if meets(&without) {
            list = without;
        }
    }
    list
}

/// The names of the files in a crate's folder that hold its terms: the text of each licence chosen, and its notices.
fn files(folder: &Path, chosen: &[(&str, &str)]) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}; cargo fetch brings it", folder.display()))
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    let upper = |name: &str| name.to_uppercase();
    let mut found = Vec::new();
    for (_, word) in chosen {
        let named = names
            .iter()
            .find(|n| upper(n).contains("LICEN") && upper(n).contains(word));
        let only = || {
            names.iter().find(|n| {
                let stem = upper(n);
                ["LICENSE", "LICENSE.TXT", "LICENSE.MD", "LICENCE", "COPYING"].contains(&stem.as_str())
            })
        };
        found.extend(named.or_else(only).cloned());
    }
    found.extend(names.iter().filter(|n| upper(n).starts_with("NOTICE")).cloned());
    found
}

/// The text without what differs for no reason: ends of lines, form feeds, and blank lines at both ends.
fn tidy(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes).replace('\u{c}', "");
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n").trim_matches('\n').to_string()
}

const RULE: &str = "--------------------------------------------------------------------------------";

fn notice() -> String {
    let licences = root().join("LICENSES");
    let own =
        |name: &str| tidy(&std::fs::read(licences.join(name)).unwrap_or_else(|e| panic!("{name}: {e}")));
    let mut notice = own("linked/README.txt");
    for (title, file) in [
        ("Plimsoll: MIT", "MIT.txt"),
        (
            "Plimsoll, and the crates that say so below: Apache-2.0",
            "Apache-2.0.txt",
        ),
        ("Plimsoll's policy/ and bpf/: BSD-2-Clause", "BSD-2-Clause.txt"),
        ("libbpf: BSD-2-Clause", "linked/libbpf.txt"),
        ("zlib", "linked/zlib.txt"),
        ("zstd: BSD-3-Clause", "linked/zstd.txt"),
        ("the GNU C library: LGPL-2.1", "linked/LGPL-2.1.txt"),
        ("libelf: LGPL-3.0", "linked/LGPL-3.0.txt"),
        (
            "the licence to which LGPL-3.0 and libgcc refer: GPL-3.0",
            "linked/GPL-3.0.txt",
        ),
        (
            "libgcc: GCC Runtime Library Exception 3.1",
            "linked/GCC-exception-3.1.txt",
        ),
    ] {
        write!(notice, "\n\n{RULE}\n{title}\n{RULE}\n\n{}", own(file)).expect("in memory");
    }
    let binary = crate::common::cargo_metadata();
    let python = crate::common::cargo_metadata_of("crates/python/Cargo.toml");
    let mut users: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut order = Vec::new();
    for package in linked_into_either(&binary, &python) {
        let name = format!("{} {}", text(package, "name"), text(package, "version"));
        let expression = text(package, "license");
        let chosen = chosen(expression);
        let folder = Path::new(text(package, "manifest_path"))
            .parent()
            .expect("a folder")
            .to_path_buf();
        let mut texts: Vec<String> = files(&folder, &chosen)
            .iter()
            .map(|file| tidy(&std::fs::read(folder.join(file)).expect("a file of the folder")))
            .collect();
        if texts.is_empty() {
            // A crate that names its licence and ships no text: the usual one, with its authors.
            assert_eq!(chosen, PREFERRED[..1], "{name} ships no licence text");
            let authors: Vec<&str> = package["authors"]
                .as_array()
                .expect("a list")
                .iter()
                .filter_map(Value::as_str)
                .collect();
            let mit = own("MIT.txt");
            let terms = mit.split_once('\n').expect("a line of copyright").1;
            texts.push(format!("Copyright (c) {}\n{terms}", authors.join(", ")));
        }
        for text in texts {
            let crates = users.entry(text.clone()).or_insert_with(|| {
                order.push(text);
                Vec::new()
            });
            let taken: Vec<&str> = chosen.iter().map(|(licence, _)| *licence).collect();
            crates.push(format!("{name} ({expression}; here {})", taken.join(" and ")));
        }
    }
    for text in order {
        write!(
            notice,
            "\n\n{RULE}\n{}\n{RULE}\n\n{text}",
            users[&text].join("\n")
        )
        .expect("in memory");
    }
    notice.push('\n');
    notice
}

#[test]
fn the_notice_names_all_that_is_linked_with_its_terms() {
    let path = root().join("NOTICE");
    let made = notice();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &made).expect("NOTICE can be written");
    }
    let kept = std::fs::read_to_string(&path).expect("NOTICE");
    assert!(
        kept == made,
        "NOTICE is not what Cargo.lock, crates/python/Cargo.lock and LICENSES/linked make: UPDATE_EXPECT=1 cargo test -p plimsoll --test all notice:: writes it"
    );
}

#[test]
fn the_licences_are_printed_whole() {
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .arg("--licences")
        .output()
        .expect("it runs");
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(printed == std::fs::read_to_string(root().join("NOTICE")).expect("NOTICE"));
    for name in [
        "pyo3 ",
        "arrow-array ",
        "libbpf ",
        "libelf ",
        "zlib ",
        "zstd ",
        "parquet ",
        "thrift ",
        "Apache License",
        "GNU LESSER",
    ] {
        assert!(printed.contains(name), "{name}");
    }
}
