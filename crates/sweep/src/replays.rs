// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Points that are replays of a recording under other settings.
use crate::grid::{keys, place, problem_at, Grid, Setting, Varied};
use crate::key::Content;
use crate::points::{Points, Runner};
use crate::row::fields;
use crate::shard::Shard;
use crate::shelf::{by_recordings, with_recording, RecordingsError, Shelf, Which};
use crate::spec::check_keys;
use plimsoll_columns::{Cell, Row};
use plimsoll_plan::{Figures, Source};
use plimsoll_replay::{Settings, SettingsError};
use plimsoll_scenario::{find, Problem, Problems, Tree};
use plimsoll_trace::RequestSpec;
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

/// Many replays of recordings, of each alone.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(title = "plimsoll sweep replay", deny_unknown_fields)]
struct ReplaysFile {
    #[serde(flatten)]
    varied: Varied,
}

/// What a combination changes: keys of `simulate --replay --set`, with the table in which each stands.
type Sets = Vec<(&'static str, String, Setting)>;

/// Replays every combination of which can be one.
pub struct Replays {
    tree: Tree,
    grid: Grid,
    shelf: Shelf,
    asked: Vec<(Which, Sets)>,
    contents: Vec<Content>,
}

impl Replays {
    /// Reads the file of what varies, and the bytes of the recordings. Whether these can be replayed so says
    /// [`Replays::check`]. `version`: of the program.
    pub fn load(spec: &Path, recordings: &[PathBuf], version: &str) -> Result<Self, Problems> {
        let name = spec.display().to_string();
        let text =
            find::text(spec).map_err(|error| Problems::one(&name, format!("cannot read it: {error}")))?;
        let tree = Tree::parse(&name, &text)?;
        check_keys(&tree)?;
        let file: ReplaysFile = plimsoll_scenario::read(&tree)?;
        let problems = file.varied.check(&tree);
        if !problems.is_empty() {
            return Err(Problems::sorted(problems));
        }
        let fixed: Sets = keys(&tree, "set")
            .into_iter()
            .map(|key| ("set", key.clone(), file.varied.set[&key].clone()))
            .collect();
        let grid = file.varied.grid(&tree);
        let (mut asked, mut problems) = (Vec::new(), Vec::new());
        for combination in &grid.combinations {
            let varied = grid.keys.iter().zip(combination);
            let varied = varied.map(|(key, value)| ("vary", key.clone(), value.clone()));
            match question(&tree, fixed.iter().cloned().chain(varied)) {
                Ok(one) => asked.push(one),
                // Many combinations have the value that stands there.
                Err(problem) if problems.contains(&problem) => {}
                Err(problem) => problems.push(problem),
            }
        }
        if !problems.is_empty() {
            return Err(Problems::sorted(problems));
        }
        let shelf = Shelf::new(recordings)?;
        let of = |file: usize| {
            asked.iter().map(move |(which, sets)| {
                let which = Which {
                    files: vec![file],
                    ..which.clone()
                };
                (which, sets.clone())
            })
        };
        let asked: Vec<(Which, Sets)> = (0..recordings.len()).flat_map(of).collect();
        let contents = asked.iter().map(|(which, sets)| {
            // Neither the order of the file nor its table counts.
            let mut changed: Vec<_> = sets.iter().map(|(_, key, value)| (key, value.toml())).collect();
            changed.sort();
            let asked = format!("replay {changed:?} {:?} {:?}", which.group, which.request);
            let mut content = vec![version.as_bytes(), asked.as_bytes()];
            content.extend(shelf.contents(which));
            Content::of(&content)
        });
        Ok(Replays {
            contents: contents.collect(),
            grid: with_recording(&grid, recordings),
            asked,
            shelf,
            tree,
        })
    }

    /// Reads all recordings of a shard, and refuses what cannot be changed in them.
    pub fn check(&self, shard: Shard) -> Result<(), RecordingsError> {
        let which = |combination: usize| &self.asked[combination].0;
        for (which, combinations) in by_recordings(self, shard, which) {
            let recordings = self.shelf.read(which, &Arc::default())?;
            for combination in combinations {
                let (_, sets) = &self.asked[combination];
                settings(recordings.median(), sets)
                    .map_err(|error| Problems(vec![self.problem(sets, &error)]))?;
            }
        }
        Ok(())
    }

    /// What is wrong with a combination, at its place in the file.
    fn problem(&self, sets: &Sets, error: &SettingsError) -> Problem {
        match sets.iter().find(|(_, key, _)| *key == error.what) {
            Some((table, key, value)) => {
                let message = format!("{} is not allowed; allowed: {}", error.value, error.allowed);
                problem_at(&self.tree, &place(&self.tree, table, key, value), message)
            }
            None => problem_at(&self.tree, &[], error.to_string()),
        }
    }
}

/// Splits what a combination sets into which recordings are read, and how they are replayed.
fn question(
    tree: &Tree,
    all: impl Iterator<Item = (&'static str, String, Setting)>,
) -> Result<(Which, Sets), Problem> {
    let mut which = Which::default();
    let mut sets = Vec::new();
    for (table, key, value) in all {
        let refuse = |why: &str| {
            let place = place(tree, table, &key, &value);
            Err(problem_at(tree, &place, format!("{}: {why}", value.toml())))
        };
        match (key.as_str(), &value) {
            ("group", Setting::Text(path)) => which.group = Some(path.clone()),
            ("request", Setting::Text(text)) if text.parse::<RequestSpec>().is_ok() => {
                which.request = Some(text.clone())
            }
            ("group", _) => return refuse("allowed: a text"),
            ("request", _) => return refuse(&format!("allowed: {}", RequestSpec::FORMS)),
            ("goal", _) => return refuse("a replay has no goal; `plimsoll sweep plan` takes goals"),
            _ => sets.push((table, key, value)),
        }
    }
    Ok((which, sets))
}

/// The recorded settings with these changes.
fn settings(source: &Source, sets: &Sets) -> Result<Settings, SettingsError> {
    let assignments: Vec<String> = sets
        .iter()
        .map(|(_, key, value)| format!("{key}={}", value.toml()))
        .collect();
    let mut settings = Settings::unrecorded(&source.program);
    settings.set_all(&source.program, &assignments)?;
    Ok(settings)
}

impl Points for Replays {
    fn grid(&self) -> &Grid {
        &self.grid
    }

    fn content(&self, combination: usize) -> Content {
        self.contents[combination]
    }

    fn side_by_side(&self) -> bool {
        true
    }

    fn runner(&self, combination: usize, stop: &Arc<AtomicBool>) -> Runner<'_> {
        let (which, sets) = &self.asked[combination];
        self.shelf.runner(which, stop, move |recordings, seed| {
            replay(recordings.median(), sets, seed)
        })
    }
}

/// The figures of a replay (docs/src/reference/replay.md), and whether that under the recorded settings shows what was recorded.
fn replay(source: &Source, sets: &Sets, seed: u64) -> Result<Row, SettingsError> {
    let mut changed = settings(source, sets)?;
    changed.seed = seed;
    let outcome = source.replay(&changed)?;
    let mut row = fields(&Figures::of(&source.program, &outcome));
    row.insert(
        "self_check_holds".into(),
        Cell::Flag(source.self_check()?.holds()),
    );
    Ok(row)
}
