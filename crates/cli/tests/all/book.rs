// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The book in docs/ holds together: its links lead somewhere, its table of contents has every page, its commands are those of
//! the program, and what it shows of them is what they print.
use crate::common::{directory, temporary};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::process::Command;

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

/// mdBook writes NAME.html for NAME.md, and copies other files over it.
#[test]
fn no_file_takes_the_place_of_a_page() {
    for page in pages() {
        let rendered = page.with_extension("html");
        assert!(!root().join(&rendered).exists(), "{}", rendered.display());
    }
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

/// Runs the program without a shell; its standard output. Panics where it ends with a failure.
fn plimsoll(arguments: &[&str]) -> String {
    let run = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(arguments)
        .current_dir(root())
        .output()
        .expect("the program starts");
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(
        run.status.success(),
        "plimsoll {arguments:?}: {}: {errors}",
        run.status
    );
    String::from_utf8(run.stdout).expect("text")
}

/// Words with one space between them: how wide a column is depends on rows that a page need not show.
fn words(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The lines of fenced code of a kind ("": every kind), and of code that is indented.
fn code(text: &str, kind: &str) -> Vec<Vec<String>> {
    let (mut blocks, mut block): (Vec<Vec<String>>, Option<Vec<String>>) = (Vec::new(), None);
    let mut wanted = false;
    for line in text.lines() {
        if let Some(fence) = line.trim_start().strip_prefix("```") {
            if let Some(block) = block.take() {
                blocks.extend(wanted.then_some(block));
            } else {
                wanted = kind.is_empty() || fence.trim() == kind;
                block = Some(Vec::new());
            }
        } else if let Some(block) = &mut block {
            block.push(line.to_string());
        } else if kind.is_empty() && line.starts_with("    ") {
            blocks.push(vec![line.trim().to_string()]);
        }
    }
    blocks
}

#[test]
fn what_the_pages_show_is_what_the_program_prints() {
    let mut shown = 0;
    for page in pages() {
        for block in code(&text(&page), "console") {
            let command = block[0].strip_prefix("$ plimsoll ").unwrap_or_else(|| {
                panic!("{}: a console block begins with \"$ plimsoll \"", page.display());
            });
            let printed = plimsoll(&command.split_whitespace().collect::<Vec<_>>());
            let mut printed = printed.lines().map(words);
            for line in &block[1..] {
                // In the order of the page; lines between them may be left out.
                assert!(
                    printed.any(|other| other == words(line)),
                    "{}: plimsoll {command} does not print (here):\n{line}",
                    page.display()
                );
                shown += 1;
            }
        }
    }
    assert!(shown > 20, "{shown} lines");
}

/// Pictures of the book, and what draws them. UPDATE_EXPECT=1 draws them again.
const PICTURES: [(&str, &str); 7] = [
    ("throttled", "throttled --window 3000..3600 --duration-ms 3600"),
    (
        "burst",
        "throttled --window 3000..3600 --duration-ms 3600 --set group.web.burst_us=200000 \
         --set switches.burst_semantics=published --set switches.enforce=timer",
    ),
    (
        "weights",
        "docs/src/concepts/weights.toml --window 0..60 --duration-ms 60",
    ),
    (
        "turns",
        "docs/src/concepts/turns.toml --window 100..160 --duration-ms 160",
    ),
    (
        "turns-heavy",
        "docs/src/concepts/turns.toml --window 100..160 --duration-ms 160 --set group.batch.weight=1000",
    ),
    ("headroom", "headroom --window 0..60 --duration-ms 60"),
    (
        "headroom-without",
        "headroom --window 0..60 --duration-ms 60 --set group.web.headroom_percent=0",
    ),
];

#[test]
fn pictures_are_what_the_simulator_draws() {
    for (name, arguments) in PICTURES {
        let drawn = temporary(&format!("{name}.svg"));
        let file = drawn.display().to_string();
        let mut command = vec!["simulate"];
        command.extend(arguments.split_whitespace());
        command.extend(["--picture", &file]);
        plimsoll(&command);
        // With --set the changed run is the second of two.
        let changed = drawn.with_extension("changed.svg");
        let drawn = if arguments.contains("--set") {
            changed
        } else {
            drawn
        };
        let picture = std::fs::read_to_string(&drawn).expect("a picture");
        assert!(picture.len() < 60_000, "{name}.svg: {} bytes", picture.len());
        expect_test::expect_file![root().join(format!("docs/src/concepts/{name}.svg"))].assert_eq(&picture);
    }
}

/// Commands that this test does not run, and why; other tests do, where one is named.
const NOT_RUN: [(&str, &str); 14] = [
    (
        "record",
        "root, and a service: crates/record/tests, make verify-plan",
    ),
    ("run", "root, and Linux 6.17 or newer: make test-live"),
    ("agent", "root, and cgroup v2: tests/live/agent.sh, agent-unit.sh"),
    ("set", "a scheduler that runs: tests/live/safety.sh"),
    ("get", "a scheduler that runs: tests/live/safety.sh"),
    ("status", "a scheduler that runs: tests/live/safety.sh"),
    ("top", "a scheduler that runs, and a terminal"),
    ("vm", "QEMU: make test-live"),
    ("screen", "metrics of a fleet: crates/screen/tests"),
    ("calibrate", "minutes: crates/reproduce/tests"),
    ("reproduce", "minutes: crates/reproduce/tests"),
    ("demo", "run by make demo"),
    ("man", "writes into a folder of the reader's: scripts/install.sh"),
    ("help", "prints what is on the page"),
];

/// Words of a shell's line, of which single quotes keep some together. `None`: a line that is a form, such as `FILE...`.
fn shell_words(line: &str) -> Option<Vec<String>> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            '[' | ']' | '<' | '>' | '*' if !quoted => return None,
            _ => words.last_mut()?.push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    let is_name = |word: &String| word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase() || c == '.');
    (!words
        .iter()
        .any(|word| is_name(word) || word.contains("...") || word == "\\"))
    .then_some(words)
}

/// Whether a word names a file that a reader has and this repository has not.
fn is_readers(word: &str) -> bool {
    let input = [".toml", ".trace", ".csv", ".parquet"]
        .iter()
        .any(|end| word.ends_with(end));
    input && !root().join(word).exists()
}

/// What the pages show without its output is run, too, where the repository has what it needs.
#[test]
fn commands_that_need_nothing_else_are_run() {
    let folder = directory("book");
    for name in ["scenarios", "machines", "docs", "bench"] {
        let _ = std::os::unix::fs::symlink(root().join(name), folder.join(name));
    }
    let mut done = BTreeSet::new();
    for page in pages().into_iter().chain([PathBuf::from("README.md")]) {
        for line in code(&text(&page), "").into_iter().flatten() {
            let Some(rest) = line.trim_start().strip_prefix("plimsoll ") else {
                continue;
            };
            let rest = rest.split([';', '|']).next().expect("the first part");
            let rest = rest.split(" #").next().expect("the first part").trim();
            let command = rest.split(' ').next().expect("a command");
            if command.starts_with('-') || NOT_RUN.iter().any(|(name, _)| *name == command) {
                continue;
            }
            let Some(words) = shell_words(rest).filter(|words| !words.iter().any(|word| is_readers(word)))
            else {
                continue;
            };
            if !done.insert(words.clone()) {
                continue;
            }
            let run = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
                .args(&words)
                .current_dir(&folder)
                .output()
                .expect("the program starts");
            // Rows that miss are printed, and end `validate` with 1.
            let good =
                run.status.code() == Some(0) || (command == "validate" && run.status.code() == Some(1));
            assert!(
                good,
                "{}: {rest}: {}: {}",
                page.display(),
                run.status,
                String::from_utf8_lossy(&run.stderr)
            );
        }
    }
    assert!(done.len() >= 4, "{done:?}");
}

#[test]
fn commands_of_the_book_are_those_of_the_program() {
    let mut helps: BTreeMap<String, String> = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for page in pages().into_iter().chain([PathBuf::from("README.md")]) {
        for line in code(&text(&page), "").into_iter().flatten() {
            let line = line.trim_start().trim_start_matches("$ ").to_string();
            let Some(rest) = line.strip_prefix("plimsoll ") else {
                continue;
            };
            // What follows is a comment, another program, or that program's own flags.
            let rest = [" #", " | ", " -- "]
                .iter()
                .fold(rest, |rest, end| rest.split(end).next().expect("the first part"));
            let mut parts = rest.split_whitespace();
            let command = parts.next().expect("a command").to_string();
            if command.starts_with('-') {
                continue;
            }
            let mut help_of = |words: &[&str]| {
                let help = helps.entry(words.join(" "));
                let printed = || plimsoll(&[&["help"], words].concat());
                match words {
                    ["help"] => String::new(),
                    _ => help.or_insert_with(printed).clone(),
                }
            };
            let mut help = help_of(&[&command]);
            // A command below a command has flags of its own.
            let below = parts.clone().next().unwrap_or_default();
            let listed = help.split_once("Commands:").is_some_and(|(_, list)| {
                let mut names = list.lines().filter_map(|line| line.split_whitespace().next());
                names.any(|name| name == below)
            });
            if listed {
                help = help_of(&[&command, below]);
            }
            for flag in parts.filter(|part| part.starts_with("--")) {
                let flag = flag.split('=').next().expect("the first part");
                if !help
                    .split(|c: char| !(c.is_alphanumeric() || c == '-'))
                    .any(|word| word == flag)
                {
                    wrong.push(format!("{}: {line}: {command} has no {flag}", page.display()));
                }
            }
            seen += 1;
        }
    }
    assert!(seen > 40, "{seen} commands");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// `text` without the spaces that only break a line of it.
fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Every message of the page on exit codes is one that the program has: its parts between the `…` stand in the sources.
#[test]
fn messages_with_a_cure_are_those_of_the_program() {
    let mut sources = Vec::new();
    for crate_ in ["crates/btf", "crates/live", "crates/agent", "crates/record", "vm"] {
        for entry in std::fs::read_dir(root().join(crate_).join("src")).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap_or_default();
            // A message may be broken by `\`, and `{..}` stands where the page has `…`.
            sources.push(on_one_line(&text.replace("\\\n", " ").replace("\\\"", "\"")));
        }
    }
    let page = text(Path::new("docs/src/reference/exit-codes.md"));
    let messages = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` |"))
        .map(|(message, _)| message);
    let mut count = 0;
    for message in messages {
        count += 1;
        // What the recorder cannot do is named by a variable of its own.
        for part in message
            .replace(" is not possible here", "…is not possible here")
            .split('…')
            .map(|part| part.trim_matches([' ', '(', ')', ':', ';']))
        {
            assert!(
                sources.iter().any(|source| source.contains(part)),
                "exit-codes.md: `{message}`: no source has `{part}`"
            );
        }
    }
    assert!(count > 20, "{count} messages");
}
