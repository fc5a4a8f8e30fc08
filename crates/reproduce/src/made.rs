// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What outcomes were made with: a reader can make a table again, and sees where it was not made as published.
use crate::index::{Plan, Recipe};
use crate::published::Row;
use crate::Index;
use plimsoll_scenario::{Problem, Problems};
use serde::Serialize;

#[derive(Debug, Clone, Serialize)]
pub struct Made {
    pub plimsoll: &'static str,
    /// Only tables whose name begins so. `None`: all.
    pub tables: Option<String>,
    /// Another file of published figures than the binary's.
    pub published: Option<String>,
    /// Another directory of scenarios than the source tree's.
    pub scenarios: Option<String>,
    pub seeds: u64,
    /// Set in every scenario, on top of what tables.toml sets.
    pub settings: Vec<String>,
}

impl Made {
    /// The command as a shell takes it, without where its results go.
    pub fn command(&self) -> String {
        let mut words = vec!["plimsoll reproduce".to_string()];
        words.extend(self.tables.as_deref().map(quoted));
        words.push(format!("--seeds {}", self.seeds));
        let given = [("--published", &self.published), ("--scenarios", &self.scenarios)];
        let given = given
            .into_iter()
            .flat_map(|(flag, path)| Some((flag, path.as_ref()?)));
        let settings = self.settings.iter().map(|setting| ("--set", setting));
        words.extend(
            given
                .chain(settings)
                .map(|(flag, value)| format!("{flag} {}", quoted(value))),
        );
        words.join(" ")
    }

    /// Which rows these are: "every published row", or those of which tables.
    pub fn rows(&self) -> String {
        match &self.tables {
            None => "every published row".to_string(),
            Some(name) => format!("published rows of {name}"),
        }
    }

    /// What sets the scenarios apart from those that the targets are about; empty where nothing does.
    pub fn warning(&self) -> String {
        match &self.settings[..] {
            [] => String::new(),
            settings => format!(
                "Not as published: {} set in every scenario.",
                settings.join(" and ")
            ),
        }
    }
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+".contains(c);
    match word.chars().all(plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Settings of keys that tell a row's base from its change: with them, both would be the same.
pub fn check(settings: &[String], index: &Index, rows: &[&Row]) -> Result<(), Problems> {
    let mut problems = Vec::new();
    for setting in settings {
        let mut tables: Vec<&str> = Vec::new();
        let mut key_of_row = "";
        for row in rows {
            let Ok(Plan::Run(recipe)) = index.plan(row) else {
                continue;
            };
            if let Some(key) = told_apart_by(&recipe).find(|key| same_key(key, key_of(setting))) {
                key_of_row = key;
                if !tables.contains(&row.table.as_str()) {
                    tables.push(&row.table);
                }
            }
        }
        if !tables.is_empty() {
            problems.push(Problem {
                place: format!("--set {setting}"),
                path: key_of_row.to_string(),
                message: format!(
                    "base and change differ in it, and would be the same; allowed are other keys ({})",
                    tables.join(", ")
                ),
                at: problems.len(),
            });
        }
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Problems(problems)),
    }
}

fn told_apart_by<'a>(recipe: &Recipe<'a>) -> impl Iterator<Item = &'a str> {
    let (table, case) = (recipe.table, recipe.case);
    let all = [&table.base, &table.new, &case.base, &case.new];
    all.into_iter().flatten().map(|setting| key_of(setting))
}

fn key_of(setting: &str) -> &str {
    setting.split('=').next().unwrap_or("").trim()
}

/// Whether one holds the other: `switches` is set with all that is in it.
fn same_key(a: &str, b: &str) -> bool {
    let plain = |key: &str| key.replace('"', "") + ".";
    let (a, b) = (plain(a), plain(b));
    a.starts_with(&b) || b.starts_with(&a)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_says_all_that_the_figures_depend_on() {
        let mut made = Made {
            plimsoll: "0.1.0",
            tables: None,
            published: None,
            scenarios: None,
            seeds: 10,
            settings: Vec::new(),
        };
        assert_eq!(made.command(), "plimsoll reproduce --seeds 10");
        assert_eq!(made.warning(), "");
        made.tables = Some("001-x6".to_string());
        made.settings = vec!["duration_ms=50".to_string(), "kernel=\"6.1\"".to_string()];
        assert_eq!(
            made.command(),
            "plimsoll reproduce 001-x6 --seeds 10 --set duration_ms=50 --set 'kernel=\"6.1\"'"
        );
        assert_eq!(
            made.warning(),
            "Not as published: duration_ms=50 and kernel=\"6.1\" set in every scenario."
        );
    }

    #[test]
    fn a_table_that_holds_a_key_is_the_same_and_a_longer_name_is_not() {
        assert!(same_key("switches.steal", "switches.steal") && same_key("switches.steal", "switches"));
        assert!(!same_key("switches.steal", "switches.steal_cost_us"));
    }
}
