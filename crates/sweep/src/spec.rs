// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sweep's file: which scenario, which of its values vary, and how.
use plimsoll_scenario::{find, nearest, Problem, Problems, Scenario, Tree};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Points of a sweep: their keys alone take half a GB.
pub const POINTS_MAX: u64 = 10_000_000;

/// Many runs of one scenario.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "plimsoll sweep")]
struct SweepFile {
    /// The scenario: a path relative to this file, or the name of an example.
    scenario: String,
    /// What holds in all runs, as `--set` takes it: "group.web.quota_us" = 50_000.
    #[serde(default)]
    set: BTreeMap<String, Setting>,
    /// What varies, as `--set` takes it: a list of values, or a range.
    #[serde(default)]
    vary: BTreeMap<String, Axis>,
    /// This many combinations are drawn at random, evenly between the ends of a range. Default: all of them.
    #[schemars(range(min = 1, max = 10_000_000_u64))]
    sample: Option<u64>,
    /// Seed of that draw. More of one draw begin with the same ones.
    #[serde(default = "one")]
    #[schemars(range(max = 9_223_372_036_854_775_807_u64))]
    sample_seed: u64,
    /// Seeds with which each combination is run: how many (they count from 1), or a list. Default 1.
    #[serde(default)]
    seeds: Seeds,
}

fn one() -> u64 {
    1
}

/// A value of the scenario.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Setting {
    Integer(i64),
    Number(f64),
    Flag(bool),
    Text(String),
}

impl Setting {
    /// As TOML has it.
    pub fn toml(&self) -> String {
        match self {
            Setting::Integer(value) => value.to_string(),
            Setting::Number(value) => format!("{value:?}"),
            Setting::Flag(value) => value.to_string(),
            // A string of JSON is one of TOML.
            Setting::Text(value) => serde_json::Value::from(value.as_str()).to_string(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Axis {
    List(Vec<Setting>),
    Range(Range),
}

/// Numbers from one to another. Of whole numbers, whole ones.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Range {
    /// The first number.
    from: Number,
    /// The last number.
    to: Number,
    /// How many, the ends included. Needed unless `sample` draws them.
    #[schemars(range(min = 2, max = 1_000_000_u64))]
    count: Option<u64>,
    /// Evenly spaced in the logarithm. Default false.
    #[serde(default)]
    log: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Number {
    Integer(i64),
    Number(f64),
}

impl Number {
    fn value(self) -> f64 {
        match self {
            Number::Integer(value) => value as f64,
            Number::Number(value) => value,
        }
    }
}

impl Range {
    /// The number at a share of the way.
    fn at(&self, share: f64) -> Setting {
        let (from, to) = (self.from.value(), self.to.value());
        let value = match share {
            0.0 => from,
            1.0 => to,
            _ if self.log => (from.ln() + share * (to.ln() - from.ln())).exp(),
            _ => from + share * (to - from),
        };
        match (self.from, self.to) {
            (Number::Integer(_), Number::Integer(_)) => Setting::Integer(value.round() as i64),
            _ => Setting::Number(value),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Seeds {
    Count(#[schemars(range(min = 1, max = 10_000_000_u64))] u64),
    List(Vec<i64>),
}

impl Default for Seeds {
    fn default() -> Self {
        Seeds::Count(1)
    }
}

/// One value of each key that varies, in the order of the file.
pub type Combination = Vec<Setting>;

/// A sweep that has been read. Its points are each combination with each seed, the seeds of one after another.
#[derive(Debug, Clone)]
pub struct Sweep {
    /// The file's name.
    pub name: String,
    /// Keys that vary, in the order of the file.
    pub keys: Vec<String>,
    /// What is run, in order.
    pub combinations: Vec<Combination>,
    pub seeds: Vec<u64>,
    /// Keys that are set in all runs.
    set: Vec<(String, Setting)>,
    scenario: find::Found,
    base: PathBuf,
    tree: Tree,
}

impl Sweep {
    /// Reads a sweep's file and the scenario's. Whether each combination is a scenario says [`crate::Plan::new`].
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
        let problems = check(&file, &tree);
        if !problems.is_empty() {
            return Err(Problems::sorted(problems));
        }
        let set = keys(&tree, "set")
            .into_iter()
            .map(|key| (key.clone(), file.set[&key].clone()))
            .collect();
        let keys = keys(&tree, "vary");
        let axes: Vec<&Axis> = keys.iter().map(|key| &file.vary[key]).collect();
        Ok(Sweep {
            name: name.to_string(),
            combinations: match file.sample {
                None => product(&axes),
                Some(count) => sample(&axes, count, file.sample_seed),
            },
            seeds: match &file.seeds {
                Seeds::Count(count) => (1..=*count).collect(),
                Seeds::List(list) => list.iter().map(|seed| *seed as u64).collect(),
            },
            set,
            keys,
            base: path.parent().unwrap_or(Path::new("")).to_path_buf(),
            scenario,
            tree,
        })
    }

    pub fn points(&self) -> u64 {
        self.combinations.len() as u64 * self.seeds.len() as u64
    }

    /// Where a value stands: in a list its own place, of a range that of the range.
    fn place(&self, table: &str, key: &str, value: &Setting) -> Problem {
        let json = self.tree.node_at(&[table, key]).map(|node| node.to_json());
        let list: Vec<Setting> = json
            .and_then(|json| serde_json::from_value(json).ok())
            .unwrap_or_default();
        match list.iter().position(|own| own == value) {
            Some(at) => self.tree.problem_at(&[table, key, &at.to_string()], ""),
            None => self.tree.problem_at(&[table, key], ""),
        }
    }

    /// The scenario of a combination, with the seed of its file. What is wrong with it has the place in the sweep's file.
    pub fn scenario(&self, combination: &Combination) -> Result<Scenario, Problems> {
        let fixed = self.set.iter().map(|(key, value)| ("set", key, value));
        let varied = self.keys.iter().zip(combination);
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
                let here = self.place(table, key, value);
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

/// `[vary.group.web]` and `group.web.quota_us = [...]` are tables in tables: here a key of the scenario is one in quotes.
fn check_keys(tree: &Tree) -> Result<(), Problems> {
    let mut problems = Vec::new();
    for table in ["set", "vary"] {
        for key in keys(tree, table) {
            let node = tree.node_at(&[table, &key]).expect("it is one of its keys");
            let is_range = table == "vary" && node.keys().any(|key| ["from", "to"].contains(&key));
            if node.kind() == "a table" && !is_range {
                let message =
                    "allowed: the whole key of the scenario in quotes, as in \"group.web.quota_us\"";
                problems.push(tree.problem_at(&[table, &key], message));
            }
        }
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Problems::sorted(problems)),
    }
}

/// Keys of a table in the order of the file.
fn keys(tree: &Tree, table: &str) -> Vec<String> {
    let entry = tree.root.entry(table);
    entry.map_or(Vec::new(), |entry| {
        entry.node.keys().map(str::to_string).collect()
    })
}

/// What the schema does not say.
fn check(file: &SweepFile, tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut refuse = |path: &[&str], message: String| problems.push(tree.problem_at(path, message));
    for (table, keys) in [
        ("set", file.set.keys().collect::<Vec<_>>()),
        ("vary", file.vary.keys().collect()),
    ] {
        for key in keys {
            if nearest(key, ["seed"]) == Some("seed") {
                refuse(&[table, key], "allowed: `seeds` at the top of the file".into());
            }
        }
    }
    for key in file.set.keys().filter(|key| file.vary.contains_key(*key)) {
        refuse(&["set", key], "it varies, too; allowed: one of both".into());
    }
    let mut points = 1.0;
    for (key, axis) in &file.vary {
        match axis {
            Axis::List(values) if values.is_empty() => {
                refuse(&["vary", key], "an empty list; allowed: one value or more".into());
            }
            Axis::List(values) => {
                for (at, value) in values.iter().enumerate() {
                    if values[..at].contains(value) {
                        let at = at.to_string();
                        let message = format!("{} is there twice; allowed: once", value.toml());
                        refuse(&["vary", key, &at], message);
                    }
                }
                points *= values.len() as f64;
            }
            Axis::Range(range) => {
                let (from, to) = (range.from.value(), range.to.value());
                if from >= to {
                    refuse(
                        &["vary", key, "to"],
                        format!("{to}: allowed: above {from}, the value of `from`"),
                    );
                }
                if range.log && from <= 0.0 {
                    refuse(
                        &["vary", key, "from"],
                        format!("{from}: allowed with `log`: above 0"),
                    );
                }
                if range.count.is_none() && file.sample.is_none() {
                    refuse(&["vary", key], "it needs `count`, or the file `sample`".into());
                }
                points *= range.count.unwrap_or(1) as f64;
            }
        }
    }
    let seeds = match &file.seeds {
        Seeds::Count(count) => *count as f64,
        Seeds::List(list) => {
            if list.is_empty() {
                refuse(&["seeds"], "an empty list; allowed: one seed or more".into());
            }
            for (at, seed) in list.iter().enumerate() {
                let path = at.to_string();
                if *seed < 0 {
                    refuse(&["seeds", &path], format!("{seed}: allowed 0 .. {}", i64::MAX));
                } else if list[..at].contains(seed) {
                    refuse(&["seeds", &path], format!("{seed} is there twice; allowed: once"));
                }
            }
            list.len() as f64
        }
    };
    let points = file.sample.map_or(points, |count| count as f64) * seeds;
    if points > POINTS_MAX as f64 {
        refuse(&[], format!("{points} points: allowed 1 .. {POINTS_MAX}"));
    }
    problems
}

/// Every value with every other; the last key's change first.
fn product(axes: &[&Axis]) -> Vec<Combination> {
    let mut all = vec![Vec::new()];
    for axis in axes {
        let values = match axis {
            Axis::List(values) => values.clone(),
            Axis::Range(range) => {
                let count = range.count.expect("checked");
                let mut values: Vec<Setting> = (0..count)
                    .map(|at| range.at(at as f64 / (count - 1) as f64))
                    .collect();
                // Whole numbers between ends that are near.
                values.dedup();
                values
            }
        };
        all = all
            .into_iter()
            .flat_map(|start: Combination| {
                values.iter().map(move |value| {
                    let mut one = start.clone();
                    one.push(value.clone());
                    one
                })
            })
            .collect();
    }
    all
}

/// One stream for all: more of one draw begin with the same ones.
fn sample(axes: &[&Axis], count: u64, seed: u64) -> Vec<Combination> {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut one = |axis: &&Axis| match axis {
        Axis::List(values) => values[random.random_range(0..values.len() as u64) as usize].clone(),
        Axis::Range(range) => range.at(random.random()),
    };
    (0..count).map(|_| axes.iter().map(&mut one).collect()).collect()
}
