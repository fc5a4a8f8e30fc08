// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The book in docs/ holds together: its links lead somewhere, and its table of contents has every page.
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The pages of the book, by their paths from the root of the repository.
fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    let mut folders = vec![PathBuf::from("docs/src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root().join(&folder))
            .expect("docs/src")
            .flatten()
        {
            let path = folder.join(entry.file_name());
            if entry.path().is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    assert!(pages.len() > 10, "{pages:?}");
    pages
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The lines outside of fenced code.
fn prose(text: &str) -> String {
    let mut code = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            code = !code;
        } else if !code {
            prose += line;
            prose.push('\n');
        }
    }
    prose
}

/// What mdBook and the common repository viewers make of a heading.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for heading in prose(text).lines().filter(|line| line.starts_with('#')) {
        let heading = heading.trim_start_matches('#').trim();
        let slug: String = heading
            .chars()
            .filter_map(|c| match c {
                c if c.is_alphanumeric() || c == '_' || c == '-' => Some(c.to_ascii_lowercase()),
                c if c.is_whitespace() => Some('-'),
                _ => None,
            })
            .collect();
        let mut unique = slug.clone();
        let mut number = 0;
        while !anchors.insert(unique.clone()) {
            number += 1;
            unique = format!("{slug}-{number}");
        }
    }
    anchors
}

/// Targets of `[text](target)` outside of fenced code.
fn links(text: &str) -> Vec<String> {
    let prose = prose(text);
    let targets = prose.split("](").skip(1);
    targets
        .map(|rest| rest.split(')').next().expect("closed link").to_string())
        .collect()
}

/// `a/b/../c` is `a/c`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => assert!(plain.pop(), "{} leaves the repository", path.display()),
            other => plain.push(other),
        }
    }
    plain
}

#[test]
fn links_and_their_anchors_exist() {
    let mut wrong = Vec::new();
    let others = ["README.md", "ARCHITECTURE.md", "STYLE.md", "LICENSES/README.md"].map(PathBuf::from);
    for page in pages().into_iter().chain(others) {
        let here = text(&page);
        for link in links(&here) {
            if link.starts_with("https://") || link.starts_with("http://") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => page.clone(),
                file => plain(&page.parent().expect("a folder").join(file)),
            };
            // The book is served without the repository around it.
            let leaves = page.starts_with("docs/src") && !target.starts_with("docs/src");
            if leaves || !root().join(&target).exists() {
                wrong.push(format!("{}: ({link})", page.display()));
            } else if !anchor.is_empty() && !anchors(&text(&target)).contains(anchor) {
                wrong.push(format!("{}: ({link}): no such heading", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "links that lead nowhere:\n{}", wrong.join("\n"));
}

#[test]
fn the_summary_has_every_page_once() {
    let summary = PathBuf::from("docs/src/SUMMARY.md");
    let mut listed: Vec<PathBuf> = links(&text(&summary))
        .iter()
        .map(|link| plain(&Path::new("docs/src").join(link)))
        .collect();
    listed.sort();
    let pages: Vec<PathBuf> = pages().into_iter().filter(|page| *page != summary).collect();
    assert_eq!(listed, pages);
}
