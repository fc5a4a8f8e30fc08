// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Simulates what a set of rows needs: every variant of every scenario once for each seed, on all cores.
//!
//! Runs share nothing and are put together in order, so the figures do not depend on the number of threads.
use crate::index::{Check, Plan, Recipe, Table, Variant};
use crate::measure::Measure;
use crate::published::Row;
use crate::unmeasured::worse;
use crate::Index;
use plimsoll_scenario::find::machine_file;
use plimsoll_scenario::{Problems, Scenario};
use plimsoll_sim::Simulation;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A measure of a variant, for the work of a case.
#[derive(Debug, Clone, PartialEq)]
struct Wanted {
    measure: Measure,
    work: Option<f64>,
}

/// Everything that was measured: for every variant, for every measure, one value for each seed.
pub struct Measured {
    variants: BTreeMap<Variant, Vec<(Wanted, Vec<f64>)>>,
}

/// What is to be simulated.
pub struct Work {
    variants: Vec<(Variant, Scenario, Vec<Wanted>)>,
    seeds: u64,
}

impl Work {
    /// All that `rows` need. Scenarios are read from `dir` and checked before anything is simulated; `settings` are
    /// set in every one; none may be what a row's base and change differ in.
    pub fn plan(
        index: &Index,
        rows: &[&Row],
        dir: &Path,
        settings: &[String],
        seeds: u64,
    ) -> Result<Self, Problems> {
        crate::made::check(settings, index, rows)?;
        let mut wanted: BTreeMap<Variant, Vec<Wanted>> = BTreeMap::new();
        let mut want = |variant: Variant, measure: &Measure, work: Option<f64>| {
            let measures = wanted.entry(variant).or_default();
            let one = Wanted {
                measure: measure.clone(),
                work,
            };
            if !measures.contains(&one) {
                measures.push(one);
            }
        };
        for row in rows {
            let Ok(Plan::Run(recipe)) = index.plan(row) else {
                continue;
            };
            for changed in [false, true] {
                if side_wanted(row, &recipe, changed) {
                    want(recipe.variant(changed), recipe.measure, recipe.case.work);
                }
            }
            if let Some(other) = recipe.relative() {
                want(other.variant(false), recipe.measure, recipe.case.work);
            }
            for check in &recipe.table.check {
                want(recipe.variant(check.changed), &check.measure, recipe.case.work);
            }
        }
        let mut variants = Vec::new();
        for (variant, measures) in wanted {
            let scenario = variant.load(dir, settings)?;
            variants.push((variant, scenario, measures));
        }
        Ok(Work { variants, seeds })
    }

    /// The files of `dir` that were read, and the machine files that they name.
    pub fn files(&self, dir: &Path) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for (variant, scenario, _) in &self.variants {
            files.push(variant.path(dir));
            files.extend(machine_file(&scenario.machine_name, dir));
        }
        files
    }

    /// Runs that will be made.
    pub fn runs(&self) -> u64 {
        self.variants.len() as u64 * self.seeds
    }

    /// Simulates. `done` is called after each run.
    pub fn run(self, done: impl Fn(&str) + Sync) -> Result<Measured, Problems> {
        let jobs: Vec<(usize, u64)> = (0..self.variants.len())
            .flat_map(|variant| (1..=self.seeds).map(move |seed| (variant, seed)))
            .collect();
        let results: Vec<Result<Vec<f64>, Problems>> = jobs
            .par_iter()
            .with_max_len(1)
            .map(|&(variant, seed)| {
                let (variant, scenario, measures) = &self.variants[variant];
                let values = simulate(scenario, measures, seed);
                done(&variant.scenario);
                values.map_err(|message| {
                    Problems::one(
                        format!("{} with {}", scenario.name, variant.settings.join(" ")),
                        message,
                    )
                })
            })
            .collect();
        let mut variants = BTreeMap::new();
        let mut results = results.into_iter();
        for (variant, _, measures) in self.variants {
            let mut columns: Vec<(Wanted, Vec<f64>)> =
                measures.into_iter().map(|wanted| (wanted, Vec::new())).collect();
            for values in results.by_ref().take(self.seeds as usize) {
                for ((_, column), value) in columns.iter_mut().zip(values?) {
                    column.push(value);
                }
            }
            variants.insert(variant, columns);
        }
        Ok(Measured { variants })
    }
}

fn simulate(scenario: &Scenario, measures: &[Wanted], seed: u64) -> Result<Vec<f64>, String> {
    let mut config = scenario.config();
    config.seed = seed;
    let simulation = Simulation::new(config).map_err(|error| error.to_string())?;
    let results = simulation.run(None).map_err(|stuck| stuck.to_string())?;
    measures
        .iter()
        .map(|wanted| wanted.measure.take(&results, wanted.work))
        .collect()
}

/// Whether a side of a row is needed: where values are compared, only those that were published.
fn side_wanted(row: &Row, recipe: &Recipe, changed: bool) -> bool {
    match recipe.table.compare {
        crate::index::Compare::Change => true,
        crate::index::Compare::Values if changed => !row.new_text.is_empty(),
        // Where the published base is another case, it is simulated as that case.
        crate::index::Compare::Values => {
            !row.base_text.is_empty() && (recipe.measure.relative_to.is_none() || row.new_text.is_empty())
        }
    }
}

impl Measured {
    /// One value for each seed; None: this side of the row was not published.
    pub fn values(&self, row: &Row, recipe: &Recipe, changed: bool) -> Option<Vec<f64>> {
        if !side_wanted(row, recipe, changed) {
            return None;
        }
        let values = self.look_up(&recipe.variant(changed), recipe.measure, recipe.case.work)?;
        let Some(other) = recipe.relative() else {
            return Some(values.to_vec());
        };
        let ones = self.look_up(&other.variant(false), recipe.measure, recipe.case.work)?;
        Some(values.iter().zip(ones).map(|(value, one)| value / one).collect())
    }

    /// What a table's check measured: the largest magnitude over all runs of the case.
    pub fn check(&self, table: &Table, recipe: &Recipe, check: &Check) -> f64 {
        debug_assert!(std::ptr::eq(table, recipe.table));
        let variant = recipe.variant(check.changed);
        let values = self.look_up(&variant, &check.measure, recipe.case.work);
        values
            .unwrap_or(&[f64::NAN])
            .iter()
            .fold(0.0, |most, value| worse(most, value.abs()))
    }

    fn look_up(&self, variant: &Variant, measure: &Measure, work: Option<f64>) -> Option<&[f64]> {
        let columns = self.variants.get(variant)?;
        columns
            .iter()
            .find(|(wanted, _)| wanted.measure == *measure && wanted.work == work)
            .map(|(_, values)| values.as_slice())
    }
}
