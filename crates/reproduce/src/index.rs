// SPDX-License-Identifier: Apache-2.0 OR MIT
//! scenarios/published/tables.toml: which scenario and which settings make which published row.
//!
//! A row of the published file belongs to the case of its table whose every key it has (its workload, or one of its
//! parameters). A row without a case or a measure needs a reason under `skip`: none is dropped silently.
use crate::measure::Measure;
use crate::published::Row;
use plimsoll_scenario::{Problem, Problems, Scenario, Tree};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Index {
    /// Every published table, once.
    pub table: Vec<Table>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// As in the published file; the scenario is NAME.toml beside the index, unless `scenario` names another one.
    pub name: String,
    pub scenario: Option<String>,
    /// What size targets go by.
    pub class: Class,
    /// The system that the table shows, and the mechanism that makes the effect.
    pub about: String,
    /// Rows that machine models are fitted to: ["all"], or a key of each of them.
    #[serde(default)]
    pub training: Vec<String>,
    /// Settings of the scenario without the change.
    #[serde(default)]
    pub base: Vec<String>,
    /// Settings with it.
    #[serde(default)]
    pub new: Vec<String>,
    /// What is measured, by the metric of the row.
    #[serde(default)]
    pub measure: BTreeMap<String, Measure>,
    /// Whether the figures themselves are compared, or only their change.
    #[serde(default)]
    pub compare: Compare,
    #[serde(default)]
    pub case: Vec<Case>,
    /// Rows that are not simulated, and why.
    #[serde(default)]
    pub skip: Vec<Skip>,
    /// Rows that are modelled by the nearest workload class only, and what stands for what.
    pub nearest: Option<String>,
    /// How far off is still right. Default: by class, in percentage points of change.
    pub tolerance: Option<Tolerance>,
    /// What must hold beside the rows.
    #[serde(default)]
    pub check: Vec<Check>,
}

/// How far off a figure may be.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct Tolerance {
    pub unit: ToleranceUnit,
    pub most: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ToleranceUnit {
    /// Percentage points between the changes.
    Points,
    /// Percent of the published value.
    Percent,
    /// The unit of the value.
    Absolute,
}

/// Something that holds in every run of a table, in no row of it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Check {
    pub name: String,
    pub measure: Measure,
    /// Of the runs with the change; false: of those without.
    pub changed: bool,
    /// The largest magnitude allowed.
    pub at_most: f64,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// All of these are the row's workload or one of its parameters.
    pub keys: Vec<String>,
    /// Settings of the scenario.
    #[serde(default)]
    pub set: Vec<String>,
    /// On top of it, without and with the change.
    #[serde(default)]
    pub base: Vec<String>,
    #[serde(default)]
    pub new: Vec<String>,
    /// Another scenario than the table's.
    pub scenario: Option<String>,
    /// Work of the published run, in units of its counter: counts and times are scaled to it.
    pub work: Option<f64>,
    /// Not taken as the class of the table.
    pub class: Option<Class>,
    /// What stands for what, where the workload is the nearest class only.
    pub nearest: Option<String>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Skip {
    #[serde(default)]
    pub keys: Vec<String>,
    /// Default: every metric.
    #[serde(default)]
    pub metrics: Vec<String>,
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    Hackbench,
    Tbench,
    Sysbench,
    Netperf,
    Database,
    Headroom,
    Burst,
    Slices,
    Other,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Compare {
    /// The change in percent.
    #[default]
    Change,
    /// base_value and new_value themselves.
    Values,
}

impl Index {
    /// Reads an index and holds it against the published rows: every row has a case and a measure, or a reason, and
    /// every table has a row, or the file of published figures was cut off.
    pub fn read(name: &str, text: &str, rows: &[Row]) -> Result<Self, Problems> {
        let tree = Tree::parse(name, text)?;
        let index: Index = plimsoll_scenario::read(&tree)?;
        let mut problems = Vec::new();
        for row in rows {
            let plan = index.plan(row);
            if let Err(message) = plan {
                problems.push(Problem {
                    place: format!("published figures, line {}", row.line),
                    path: row.table.clone(),
                    message,
                    at: problems.len(),
                });
            }
        }
        for (at, table) in index.table.iter().enumerate() {
            let mut lacks = |place: &str, message: String| {
                problems.push(Problem {
                    place: place.to_string(),
                    path: table.name.clone(),
                    message,
                    at: problems.len(),
                });
            };
            if index.table[..at].iter().any(|other| other.name == table.name) {
                lacks(name, "given twice: allowed is one table of each name".to_string());
            }
            if !rows.iter().any(|row| row.table == table.name) {
                let message = "no row of this table: allowed is one or more of each in the index";
                lacks("published figures", message.to_string());
            }
        }
        if problems.is_empty() {
            Ok(index)
        } else {
            Err(Problems(problems))
        }
    }

    /// How a row is made. The error says what the index lacks.
    pub fn plan<'a>(&'a self, row: &Row) -> Result<Plan<'a>, String> {
        let table = self
            .table
            .iter()
            .find(|table| table.name == row.table)
            .ok_or("no such table in the index")?;
        let has = |keys: &[String]| keys.iter().all(|key| row.keys().any(|have| have == key));
        let skip = table
            .skip
            .iter()
            .find(|skip| has(&skip.keys) && (skip.metrics.is_empty() || skip.metrics.contains(&row.metric)));
        if let Some(skip) = skip {
            return Ok(Plan::Skip(&skip.reason));
        }
        let Some(case) = table.case.iter().find(|case| has(&case.keys)) else {
            return Err(format!("no case for {} ({})", row.workload, row.parameters));
        };
        let Some(measure) = table.measure.get(&row.metric) else {
            return Err(format!("no measure for the metric {}", row.metric));
        };
        Ok(Plan::Run(Recipe {
            table,
            case,
            measure,
            training: table.trains(row),
        }))
    }
}

impl Table {
    pub fn trains(&self, row: &Row) -> bool {
        self.training
            .iter()
            .any(|key| key == "all" || row.keys().any(|have| have == key))
    }
}

/// How a row is made, or why not.
pub enum Plan<'a> {
    Run(Recipe<'a>),
    Skip(&'a str),
}

#[derive(Clone, Copy)]
pub struct Recipe<'a> {
    pub table: &'a Table,
    pub case: &'a Case,
    pub measure: &'a Measure,
    pub training: bool,
}

impl<'a> Recipe<'a> {
    /// The case that a row's values are relative to.
    pub fn relative(&self) -> Option<Recipe<'a>> {
        let keys = self.measure.relative_to.as_ref()?;
        let case = self.table.case.iter().find(|case| case.keys == *keys)?;
        Some(Recipe { case, ..*self })
    }

    pub fn class(&self) -> Class {
        self.case.class.unwrap_or(self.table.class)
    }

    pub fn tolerance(&self) -> Tolerance {
        self.table.tolerance.unwrap_or(Tolerance {
            unit: ToleranceUnit::Points,
            most: match self.class() {
                Class::Hackbench | Class::Tbench => 5.0,
                _ => 10.0,
            },
        })
    }

    pub fn nearest(&self) -> Option<&str> {
        self.case
            .nearest
            .as_ref()
            .or(self.table.nearest.as_ref())
            .map(String::as_str)
    }

    /// The scenario without (false) or with (true) the change.
    pub fn variant(&self, changed: bool) -> Variant {
        let name = self.case.scenario.as_ref().or(self.table.scenario.as_ref());
        let mut settings = self.case.set.clone();
        let both = if changed {
            [&self.table.new, &self.case.new]
        } else {
            [&self.table.base, &self.case.base]
        };
        for setting in both.into_iter().flatten() {
            settings.push(setting.clone());
        }
        Variant {
            scenario: name.unwrap_or(&self.table.name).clone(),
            settings,
        }
    }
}

/// A scenario with settings; runs of equal variants and seeds are equal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Variant {
    pub scenario: String,
    pub settings: Vec<String>,
}

impl Variant {
    pub fn path(&self, dir: &Path) -> PathBuf {
        dir.join(format!("{}.toml", self.scenario))
    }

    /// Reads and checks the scenario in `dir`, with this variant's settings and `more`.
    pub fn load(&self, dir: &Path, more: &[String]) -> Result<Scenario, Problems> {
        let path = self.path(dir);
        let text = plimsoll_scenario::find::text(&path)
            .map_err(|error| Problems::one(path.display().to_string(), format!("cannot read it: {error}")))?;
        let settings: Vec<String> = self.settings.iter().chain(more).cloned().collect();
        let name = path.display().to_string();
        Scenario::parse(&name, &text, dir, &settings).map_err(|mut problems| {
            // What was set in many scenarios may be wrong in this one alone.
            for problem in problems.0.iter_mut().filter(|one| one.place.starts_with("--")) {
                problem.place = format!("{name}: {}", problem.place);
            }
            problems
        })
    }
}
