// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plimsoll man`: the manual pages, from the flags' own definitions.
use crate::exit::{Failure, Outcome, Result};
use crate::output;
use clap::CommandFactory;
use std::path::PathBuf;

/// Write the manual pages into a directory
#[derive(clap::Args)]
pub struct Args {
    /// Directory for plimsoll.1, plimsoll-simulate.1 ...; made if it is not there
    dir: PathBuf,
}

pub fn run(args: &Args) -> Result {
    std::fs::create_dir_all(&args.dir)
        .map_err(|error| Failure::file("make the directory", &args.dir, &error))?;
    let mut command = crate::Cli::command().disable_help_subcommand(true);
    command.build();
    let mut all = vec![];
    pages(command, &mut all);
    let files: Vec<PathBuf> = all.iter().map(|(name, _)| args.dir.join(name)).collect();
    output::check([], None, &files)?;
    for (file, (_, text)) in files.iter().zip(&all) {
        output::write(file, text)?;
    }
    Ok(Outcome::Done)
}

/// The page of a command and those of its subcommands, with their files' names.
fn pages(command: clap::Command, all: &mut Vec<(String, Vec<u8>)>) {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        pages(sub.clone(), all);
    }
    let page = clap_mangen::Man::new(command);
    let mut text = Vec::new();
    page.render(&mut text).expect("writing into memory");
    all.push((page.get_filename(), text));
}

/// The page of the book that lists every command and option, from the same definitions as the manual.
#[cfg(test)]
mod book {
    use clap::{Arg, Command, CommandFactory};
    use std::fmt::Write;

    /// Text without its line breaks.
    fn on_one_line(text: &str) -> String {
        let words: Vec<&str> = text.split_whitespace().collect();
        words.join(" ").replace('<', "&lt;")
    }

    /// Text in one cell of a table.
    fn cell(text: &str) -> String {
        on_one_line(text).replace('|', "\\|")
    }

    /// `--seed NUMBER`, `-o, --output FILE`, `SCENARIO`.
    fn name(arg: &Arg) -> String {
        let values: Vec<&str> = arg
            .get_value_names()
            .unwrap_or_default()
            .iter()
            .map(|name| name.as_str())
            .collect();
        let takes = arg.get_action().takes_values();
        let value = match arg.get_num_args() {
            Some(count) if takes && count.min_values() == 0 => format!("[{}]", values.join(" ")),
            _ if takes => values.join(" "),
            _ => String::new(),
        };
        let short = arg.get_short().map(|short| format!("-{short}, "));
        match arg.get_long() {
            Some(long) => format!("{}--{long} {value}", short.unwrap_or_default())
                .trim_end()
                .to_string(),
            None => value,
        }
    }

    fn meaning(arg: &Arg) -> String {
        let help = arg
            .get_long_help()
            .or(arg.get_help())
            .expect("every flag has a help text");
        let mut text = cell(&help.to_string());
        if !text.ends_with(['.', ']', ')']) {
            text.push('.');
        }
        let words: Vec<String> = arg
            .get_possible_values()
            .iter()
            .map(|value| format!("`{}`", value.get_name()))
            .collect();
        if arg.get_action().takes_values() && !words.is_empty() {
            write!(text, " One of {}.", words.join(", ")).expect("memory");
        }
        let defaults: Vec<String> = arg
            .get_default_values()
            .iter()
            .map(|value| format!("`{}`", value.to_string_lossy()))
            .collect();
        if arg.get_action().takes_values() && !defaults.is_empty() {
            write!(text, " Default {}.", defaults.join(", ")).expect("memory");
        }
        if arg.is_required_set() {
            text.push_str(" Required.");
        }
        text
    }

    /// `above`: the words before this command's own name. Those below it follow it.
    fn section(text: &mut String, above: &str, command: &mut Command) {
        let usage = command.render_usage().to_string();
        let about = command
            .get_long_about()
            .or(command.get_about())
            .expect("every command says what it does")
            .to_string();
        let words = format!("{above} {}", command.get_name());
        writeln!(text, "\n## {words}\n").expect("memory");
        for paragraph in about.split("\n\n") {
            writeln!(text, "{}\n", on_one_line(paragraph)).expect("memory");
        }
        writeln!(text, "```text\n{}\n```", usage.trim_start_matches("Usage: ")).expect("memory");
        let shown = |arg: &&Arg| !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str());
        let args: Vec<&Arg> = command.get_arguments().filter(shown).collect();
        if !args.is_empty() {
            text.push_str("\n| argument or option | meaning |\n|---|---|\n");
        }
        for arg in args {
            writeln!(text, "| `{}` | {} |", name(arg), meaning(arg)).expect("memory");
        }
        let is_shown = |sub: &&mut Command| !sub.is_hide_set() && sub.get_name() != "help";
        for sub in command.get_subcommands_mut().filter(is_shown) {
            section(text, &words, sub);
        }
    }

    #[test]
    fn the_page_of_commands_is_that_of_the_program() {
        let mut text = String::from(
            "<!-- SPDX-License-Identifier: Apache-2.0 OR MIT -->\n\
             <!-- A test compares; UPDATE_EXPECT=1 cargo test -p plimsoll --bin plimsoll book writes it. -->\n\n\
             # Commands\n\n\
             `plimsoll help COMMAND` prints the same with examples; `plimsoll man DIR` writes manual pages, `plimsoll completions \
             SHELL`\na completion script. Exit codes: [exit-codes.md](exit-codes.md). `--json` prints JSON in place of the tables; \
             followed by a file\nit writes the file and prints the tables, too: put it last, or before another option.\n",
        );
        let mut command = crate::Cli::command().disable_help_subcommand(true);
        command.build();
        for sub in command.get_subcommands_mut().filter(|sub| !sub.is_hide_set()) {
            section(&mut text, "plimsoll", sub);
        }
        expect_test::expect_file!["../../../../docs/src/reference/commands.md"].assert_eq(&text);
    }

    #[test]
    fn schemas_of_results_are_those_of_the_program() {
        use crate::cmd::schema::Kind;
        let page = include_str!("../../../../docs/src/reference/results.md");
        let words: std::collections::BTreeSet<&str> = page
            .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .collect();
        let mut missing = Vec::new();
        for (name, kind) in [
            ("results", Kind::Results),
            ("replay", Kind::Replay),
            ("plan", Kind::Plan),
            ("explain", Kind::Explain),
            ("screen", Kind::Screen),
            ("sweep", Kind::Sweep),
        ] {
            let schema = kind.schema();
            let file = format!("../../../../docs/src/reference/{name}.schema.json");
            expect_test::expect_file![file].assert_eq(&format!("{schema:#}\n"));
            // The page describes every field.
            let all = schema["$defs"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(_, one)| one);
            for table in all.chain([&schema]) {
                let fields = table["properties"].as_object().into_iter().flatten();
                missing.extend(
                    fields
                        .filter(|(field, _)| !words.contains(field.as_str()))
                        .map(|(field, _)| format!("{name}: {field}")),
                );
            }
        }
        assert!(missing.is_empty(), "not in results.md: {missing:?}");
    }
}
