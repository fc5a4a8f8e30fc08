// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sweep's file: which scenario, which of its values vary, and how.
use crate::grid::{keys, place, problem_at, Combination, Grid, Setting, Varied};
use plimsoll_scenario::{find, Problem, Problems, Scenario, Tree};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// Many runs of one scenario.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(title = "plimsoll sweep", deny_unknown_fields)]
struct SweepFile {
    /// The scenario: a path relative to this file, or the name of an example.
    scenario: String,
    #[serde(flatten)]
    varied: Varied,
}

/// A sweep that has been read.
#[derive(Debug, Clone)]
pub struct Sweep {
    /// The file's name.
    pub name: String,
    pub grid: Grid,
    /// Keys that are set in all runs.
    set: Vec<(String, Setting)>,
    scenario: find::Found,
    base: PathBuf,
    tree: Tree,
}

impl Sweep {
    /// Reads a sweep's file and the scenario's. Whether each combination is a scenario says [`crate::Simulations::new`].
    pub fn load(path: &Path) -> Result<Self, Problems> {
        let name = path.display().to_string();
        let text =
            find::text(path).map_err(|error| Problems::one(&name, format!("cannot read it: {error}")))?;
        Self::parse(&name, &text, path.parent().unwrap_or(Path::new("")))
    }

    /// Reads a sweep's text. `base`: the directory that the scenario's path is relative to.
    pub fn parse(name: &str, text: &str, base: &Path) -> Result<Self, Problems> {
        let tree = Tree::parse(name, text)?;
        check_keys(&tree)?;
        let file: SweepFile = plimsoll_scenario::read(&tree)?;
        let path = match find::example(&file.scenario) {
            Some(_) if !base.join(&file.scenario).exists() => PathBuf::from(&file.scenario),
            _ => base.join(&file.scenario),
        };
        let scenario = find::scenario(&path).map_err(|message| {
            Problems(vec![
                tree.problem_at(&["scenario"], format!("{}: {message}", path.display()))
            ])
        })?;
        let varied = file.varied;
        let problems = varied.check(&tree);
        if !problems.is_empty() {
            return Err(Problems::sorted(problems));
        }
        let set = keys(&tree, "set")
            .into_iter()
            .map(|key| (key.clone(), varied.set[&key].clone()))
            .collect();
        Ok(Sweep {
            name: name.to_string(),
            grid: varied.grid(&tree),
            set,
            base: path.parent().unwrap_or(Path::new("")).to_path_buf(),
            scenario,
            tree,
        })
    }

    /// The scenario of a combination, with the seed of its file. What is wrong with it has the place in the sweep's file.
    pub fn scenario(&self, combination: &Combination) -> Result<Scenario, Problems> {
        let fixed = self.set.iter().map(|(key, value)| ("set", key, value));
        let varied = self.grid.keys.iter().zip(combination);
        let all: Vec<(&str, &String, &Setting)> = fixed
            .chain(varied.map(|(key, value)| ("vary", key, value)))
            .collect();
        let settings: Vec<String> = all
            .iter()
            .map(|(_, key, value)| format!("{key}={}", value.toml()))
            .collect();
        let placed = |mut problem: Problem| {
            let of = |setting: &String| problem.place == format!("--set {setting}");
            if let Some(which) = settings.iter().position(of) {
                let (table, key, value) = all[which];
                let here = problem_at(&self.tree, &place(&self.tree, table, key, value), "");
                if problem.path.is_empty() {
                    problem.path = format!("{table}.{key}");
                    problem.message = format!("{}: {}", value.toml(), problem.message);
                }
                (problem.place, problem.at) = (here.place, here.at);
            }
            problem
        };
        Scenario::parse(&self.scenario.name, &self.scenario.text, &self.base, &settings)
            .map_err(|Problems(all)| Problems(all.into_iter().map(placed).collect()))
    }
}

/// `[vary.group.web]` and `group.web.quota_us = [...]` are tables in tables: here a key is one in quotes.
pub(crate) fn check_keys(tree: &Tree) -> Result<(), Problems> {
    let mut problems = Vec::new();
    for table in ["set", "vary"] {
        for key in keys(tree, table) {
            let node = tree.node_at(&[table, &key]).expect("it is one of its keys");
            let is_range = table == "vary" && node.keys().any(|key| ["from", "to"].contains(&key));
            if node.kind() == "a table" && !is_range {
                let message = "allowed: the whole key in quotes, as in \"group.web.quota_us\"";
                problems.push(tree.problem_at(&[table, &key], message));
            }
        }
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Problems::sorted(problems)),
    }
}
