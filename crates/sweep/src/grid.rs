// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What varies: values and seeds, all of them or a sample.
use plimsoll_scenario::{nearest, Problem, Tree};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Points of a sweep: their keys alone take half a GB.
pub const POINTS_MAX: u64 = 10_000_000;

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
pub(crate) enum Axis {
    List(Vec<Setting>),
    Range(Range),
}

/// Numbers from one to another. Of whole numbers, whole ones.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Range {
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
pub(crate) enum Number {
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
pub(crate) enum Seeds {
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

/// Every combination with every seed, the seeds of one after another.
#[derive(Debug, Clone)]
pub struct Grid {
    /// Keys that vary, in the order of the file.
    pub keys: Vec<String>,
    /// What is run, in order.
    pub combinations: Vec<Combination>,
    pub seeds: Vec<u64>,
}

impl Grid {
    pub fn points(&self) -> u64 {
        self.combinations.len() as u64 * self.seeds.len() as u64
    }
}

/// The part of a sweep's file that says what varies.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(crate) struct Varied {
    /// What holds at all points. Of a scenario as `--set` takes it: "group.web.quota_us" = 50_000. Of plans: `goal`, `group`,
    /// `request`, `for`, `max_cpus`, `min_throughput`.
    #[serde(default)]
    pub set: BTreeMap<String, Setting>,
    /// What varies, with the same keys: a list of values, or a range.
    #[serde(default)]
    pub vary: BTreeMap<String, Axis>,
    /// This many combinations are drawn at random, evenly between the ends of a range. Default: all of them.
    #[schemars(range(min = 1, max = 10_000_000_u64))]
    pub sample: Option<u64>,
    /// Seed of that draw. More of one draw begin with the same ones.
    #[serde(default = "first_seed")]
    #[schemars(range(max = 9_223_372_036_854_775_807_u64))]
    pub sample_seed: u64,
    /// Seeds with which each combination is run or planned: how many (they count from 1), or a list. Default 1.
    #[serde(default)]
    pub seeds: Seeds,
}

impl Varied {
    /// What the schema does not say.
    pub fn check(&self, tree: &Tree) -> Vec<Problem> {
        let file = self;
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

    pub fn grid(&self, tree: &Tree) -> Grid {
        let keys = keys(tree, "vary");
        let axes: Vec<&Axis> = keys.iter().map(|key| &self.vary[key]).collect();
        Grid {
            combinations: match self.sample {
                None => product(&axes),
                Some(count) => sample(&axes, count, self.sample_seed),
            },
            seeds: match &self.seeds {
                Seeds::Count(count) => (1..=*count).collect(),
                Seeds::List(list) => list.iter().map(|seed| *seed as u64).collect(),
            },
            keys,
        }
    }
}

/// Keys of a table in the order of the file.
pub(crate) fn keys(tree: &Tree, table: &str) -> Vec<String> {
    let entry = tree.root.entry(table);
    entry.map_or(Vec::new(), |entry| {
        entry.node.keys().map(str::to_string).collect()
    })
}

/// The path of a value that a key of a table takes: in a list its own place, of a range that of the range.
pub(crate) fn place(tree: &Tree, table: &str, key: &str, value: &Setting) -> Vec<String> {
    let mut path = vec![table.to_string(), key.to_string()];
    let json = tree.node_at(&[table, key]).map(|node| node.to_json());
    let list: Vec<Setting> = json
        .and_then(|json| serde_json::from_value(json).ok())
        .unwrap_or_default();
    path.extend(list.iter().position(|own| own == value).map(|at| at.to_string()));
    path
}

/// A problem there.
pub(crate) fn problem_at(tree: &Tree, path: &[String], message: impl Into<String>) -> Problem {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    tree.problem_at(&path, message)
}

/// The seed of a draw that a file does not name.
pub(crate) fn first_seed() -> u64 {
    1
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
