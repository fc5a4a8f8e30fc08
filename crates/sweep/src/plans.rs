// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Points that are plans from recordings.
use crate::grid::{keys, place, problem_at, Combination, Grid, Setting, Varied};
use crate::key::Content;
use crate::planned::planned;
use crate::points::{Points, Runner};
use crate::shard::Shard;
use crate::shelf::{by_recordings, with_recording, RecordingsError, Shelf, Which};
use plimsoll_plan::{Goal, PlanError, Question, Target};
use plimsoll_plan::{MAX_CPUS, MIN_THROUGHPUT_PERCENT};
use plimsoll_scenario::{find, nearest, Problem, Problems, Tree};
use plimsoll_trace::RequestSpec;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

/// Many plans from recordings.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(title = "plimsoll sweep plan", deny_unknown_fields)]
struct PlansFile {
    /// Whether each plan is from all recordings together, or from each of them alone. Default together.
    #[serde(default)]
    recordings: Taken,
    #[serde(flatten)]
    varied: Varied,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Taken {
    #[default]
    Together,
    Each,
}

/// What may be set and vary; several goals of one plan have ";" between them.
const KEYS: [&str; 6] = ["goal", "group", "request", "for", "max_cpus", "min_throughput"];

/// Plans every combination of which is a question.
pub struct Plans {
    tree: Tree,
    grid: Grid,
    shelf: Shelf,
    asked: Vec<(Which, Question)>,
    contents: Vec<Content>,
}

impl Plans {
    /// Whether a file asks for plans: it has a goal.
    pub fn asks(spec: &Path) -> Result<bool, Problems> {
        let name = spec.display().to_string();
        let text =
            find::text(spec).map_err(|error| Problems::one(&name, format!("cannot read it: {error}")))?;
        let tree = Tree::parse(&name, &text)?;
        let has_goal = |table| keys(&tree, table).iter().any(|key| key == "goal");
        Ok(["set", "vary"].into_iter().any(has_goal))
    }

    /// Reads the file of what varies, and the bytes of the recordings. What is in them says [`Plans::check`]. `version`: of the
    /// program.
    pub fn load(spec: &Path, recordings: &[PathBuf], version: &str) -> Result<Self, Problems> {
        let name = spec.display().to_string();
        let text =
            find::text(spec).map_err(|error| Problems::one(&name, format!("cannot read it: {error}")))?;
        Self::parse(&name, &text, recordings, version)
    }

    /// The same of its text.
    pub fn parse(name: &str, text: &str, recordings: &[PathBuf], version: &str) -> Result<Self, Problems> {
        let tree = Tree::parse(name, text)?;
        let file: PlansFile = plimsoll_scenario::read(&tree)?;
        let varied = file.varied;
        let mut problems = check_keys(&tree, &varied);
        problems.extend(varied.check(&tree));
        if !problems.is_empty() {
            return Err(Problems::sorted(problems));
        }
        let mut grid = varied.grid(&tree);
        let mut asked = Vec::new();
        for combination in &grid.combinations {
            match question(&tree, &varied.set, &grid.keys, combination) {
                Ok(one) => asked.push(one),
                // Many combinations have the value that stands there.
                Err(those) => {
                    for one in those {
                        if !problems.contains(&one) {
                            problems.push(one);
                        }
                    }
                }
            }
        }
        if !problems.is_empty() {
            return Err(Problems::sorted(problems));
        }
        let shelf = Shelf::new(recordings)?;
        let all: Vec<usize> = (0..recordings.len()).collect();
        let parts: Vec<Vec<usize>> = match file.recordings {
            Taken::Together => vec![all],
            Taken::Each => {
                grid = with_recording(&grid, recordings);
                all.into_iter().map(|one| vec![one]).collect()
            }
        };
        let asked: Vec<(Which, Question)> = parts
            .iter()
            .flat_map(|files| {
                asked.iter().map(|(which, question)| {
                    let files = files.clone();
                    (
                        Which {
                            files,
                            ..which.clone()
                        },
                        question.clone(),
                    )
                })
            })
            .collect();
        let contents = asked.iter().map(|(which, question)| {
            let question = format!("{question:?} {:?} {:?}", which.group, which.request);
            let mut content = vec![version.as_bytes(), question.as_bytes()];
            content.extend(shelf.contents(which));
            Content::of(&content)
        });
        Ok(Plans {
            contents: contents.collect(),
            grid,
            asked,
            tree,
            shelf,
        })
    }

    /// Reads all recordings of a shard, and refuses what cannot be planned from them.
    pub fn check(&self, shard: Shard) -> Result<(), RecordingsError> {
        let which = |combination: usize| &self.asked[combination].0;
        for (which, combinations) in by_recordings(self, shard, which) {
            let recordings = self.shelf.read(which, &Arc::default())?;
            for combination in combinations {
                let (_, question) = &self.asked[combination];
                question
                    .check(&recordings)
                    .map_err(|error| Problems(vec![self.problem(combination, &error)]))?;
            }
        }
        Ok(())
    }

    /// What is wrong with a combination, at its goal.
    fn problem(&self, combination: usize, error: &PlanError) -> Problem {
        let path = match self.grid.keys.iter().position(|key| key == "goal") {
            None => vec!["set".to_string(), "goal".to_string()],
            Some(at) => {
                let value = &self.grid.combinations[combination][at];
                place(&self.tree, "vary", "goal", value)
            }
        };
        problem_at(&self.tree, &path, error.to_string())
    }
}

impl Points for Plans {
    fn grid(&self) -> &Grid {
        &self.grid
    }

    fn content(&self, combination: usize) -> Content {
        self.contents[combination]
    }

    fn side_by_side(&self) -> bool {
        false
    }

    fn runner(&self, combination: usize, stop: &Arc<AtomicBool>) -> Runner<'_> {
        let (which, question) = &self.asked[combination];
        self.shelf.runner(which, stop, move |recordings, seed| {
            let mut own = question.clone();
            own.seed = seed;
            own.answer(recordings, &|_, _| {}).map(|answer| planned(&answer))
        })
    }
}

fn check_keys(tree: &Tree, varied: &Varied) -> Vec<Problem> {
    let mut problems = Vec::new();
    for table in ["set", "vary"] {
        for key in keys(tree, table) {
            if !KEYS.contains(&key.as_str()) && nearest(&key, ["seed"]) != Some("seed") {
                let known = KEYS.join(", ");
                problems.push(tree.problem_at(&[table, &key], format!("unknown key; known: {known}")));
            }
        }
    }
    if !varied.set.contains_key("goal") && !varied.vary.contains_key("goal") {
        let message = "no goal; allowed: `goal` in [set] or [vary], as \"p99(request) < 50ms\"";
        problems.push(tree.problem_at(&[], message));
    }
    problems
}

/// What a combination asks.
fn question(
    tree: &Tree,
    set: &BTreeMap<String, Setting>,
    varying: &[String],
    combination: &Combination,
) -> Result<(Which, Question), Vec<Problem>> {
    let fixed = set.iter().map(|(key, value)| {
        let path = vec!["set".to_string(), key.clone()];
        (key.as_str(), value, path)
    });
    let varied = varying
        .iter()
        .zip(combination)
        .map(|(key, value)| (key.as_str(), value, place(tree, "vary", key, value)));
    let mut question = Question::about(Vec::new());
    let mut which = Which {
        files: Vec::new(),
        group: None,
        request: None,
    };
    let mut problems = Vec::new();
    for (key, value, path) in fixed.chain(varied) {
        let refuse =
            |allowed: String| problem_at(tree, &path, format!("{}: allowed: {allowed}", value.toml()));
        let text = || match value {
            Setting::Text(text) => Ok(text.as_str()),
            _ => Err(refuse("a text".into())),
        };
        let number = |range: std::ops::RangeInclusive<f64>| {
            let given = match value {
                Setting::Integer(given) => Some(*given as f64),
                Setting::Number(given) => Some(*given),
                _ => None,
            };
            given
                .filter(|given| range.contains(given))
                .ok_or_else(|| refuse(format!("a number, {} .. {}", range.start(), range.end())))
        };
        let mut take = || -> Result<(), Problem> {
            match key {
                "goal" => {
                    for goal in text()?.split(';') {
                        let read = goal.trim().parse::<Goal>();
                        question.goals.push(read.map_err(|bad| {
                            refuse(format!(
                                "{} at character {} of {goal:?}",
                                bad.allowed, bad.position
                            ))
                        })?);
                    }
                }
                "group" => which.group = Some(text()?.to_string()),
                "request" => {
                    let given = text()?;
                    let read = given.parse::<RequestSpec>();
                    read.map_err(|_| refuse(RequestSpec::FORMS.to_string()))?;
                    which.request = Some(given.to_string());
                }
                "for" => {
                    let read = text()?.parse::<Target>();
                    question.target =
                        Some(read.map_err(|_| refuse(Target::ALL.map(Target::name).join(", ")))?);
                }
                "max_cpus" => question.max_cpus = Some(number(MAX_CPUS)?),
                "min_throughput" => question.min_throughput_percent = number(MIN_THROUGHPUT_PERCENT)?,
                other => unreachable!("{other} was refused"),
            }
            Ok(())
        };
        problems.extend(take().err());
    }
    match problems.is_empty() {
        true => Ok((which, question)),
        false => Err(problems),
    }
}
