// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One run: which scenario, with which values and seed.
use crate::error;
use crate::guard::guarded;
use crate::recordings::check_seed;
use crate::table::cell;
use plimsoll_scenario::Scenario;
use plimsoll_sweep::{Cell, Content, Row, Setting};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;

/// Columns of what was set begin so; these are the columns of `plimsoll sweep merge`.
const SET: &str = "set.";
const SEED: &str = "seed";
const KEY: &str = "key";

/// A point of a sweep.
pub struct Point {
    scenario: PathBuf,
    set: Vec<(String, Cell)>,
    seed: Option<u64>,
}

impl Point {
    pub fn new(scenario: PathBuf, set: Option<&Bound<'_, PyDict>>, seed: Option<u64>) -> PyResult<Self> {
        check_seed(seed)?;
        let mut values = Vec::new();
        for (key, value) in set.into_iter().flatten() {
            let key: String = key.extract()?;
            let value = cell(&key, &value)?;
            values.push((key, value));
        }
        Ok(Point {
            scenario,
            set: values,
            seed,
        })
    }

    /// The first columns of a table of such points.
    pub fn heads(&self) -> Vec<String> {
        let set = self.set.iter().map(|(key, _)| format!("{SET}{key}"));
        set.chain([SEED.to_string(), KEY.to_string()]).collect()
    }

    /// Runs it.
    ///
    /// # Errors
    /// The scenario is wrong; a signal; a panic.
    pub fn run(self, py: Python<'_>) -> PyResult<Row> {
        let Point { scenario, set, seed } = self;
        let settings: Vec<String> = set
            .iter()
            .map(|(key, value)| format!("{key}={}", setting(value).toml()))
            .collect();
        let row = guarded(py, move |cancel| {
            let mut scenario = Scenario::load(&scenario, &settings)?;
            if let Some(seed) = seed {
                scenario.seed = seed;
            }
            let mut row = plimsoll_sweep::simulate(&scenario, cancel).unwrap_or_default();
            let key = Content::new(&scenario, env!("PLIMSOLL_VERSION")).key(scenario.seed);
            row.insert(KEY.to_string(), Cell::Text(key));
            row.insert(SEED.to_string(), Cell::Integer(scenario.seed as i64));
            Ok(row)
        })?;
        let mut row: Row = row.map_err(|problems| error::input(py, &problems))?;
        row.extend(set.into_iter().map(|(key, value)| (format!("{SET}{key}"), value)));
        Ok(row)
    }
}

pub fn setting(value: &Cell) -> Setting {
    match value {
        Cell::Integer(value) => Setting::Integer(*value),
        Cell::Number(value) => Setting::Number(*value),
        Cell::Flag(value) => Setting::Flag(*value),
        Cell::Text(value) => Setting::Text(value.clone()),
    }
}
