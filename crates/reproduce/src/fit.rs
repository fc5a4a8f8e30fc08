// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fits a machine's costs to the training set, and nothing else.
//!
//! One parameter after the other is tried over its grid while the others stay, twice around. The grid and the order are
//! fixed and the simulator is deterministic, so the same repository gives the same machine file.
use crate::index::{Index, Plan, Variant};
use crate::measure::Measure;
use crate::published::Row;
use plimsoll_scenario::{Problems, Scenario};
use plimsoll_sim::{Costs, Simulation};
use rayon::prelude::*;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A cost that is fitted.
#[derive(Clone, Copy)]
pub struct Parameter {
    /// Key in the machine file's `[costs]`.
    pub key: &'static str,
    pub low: u64,
    pub high: u64,
    pub step: u64,
    set: fn(&mut Costs, u64),
    get: fn(&Costs) -> u64,
}

/// A machine, what of it is fitted, and to which rows.
pub struct Fit {
    pub machine: &'static str,
    /// Machines of the same processor family: they take over the values.
    pub family: &'static [&'static str],
    pub parameters: &'static [Parameter],
    /// Runs of each scenario, with seeds from 1: what is fitted is their mean.
    pub seeds: u64,
    pub rows: &'static [Rows],
    /// In words, for the machine file.
    pub source: &'static str,
}

/// Rows that a machine is fitted to.
pub struct Rows {
    pub table: &'static str,
    /// All of these are the row's workload or one of its parameters.
    pub keys: &'static [&'static str],
    /// None: all.
    pub metrics: &'static [&'static str],
    /// Whether the figures without the change are fitted, and those with it.
    pub sides: [bool; 2],
}

/// What a message costs either side; a machine narrows the range.
const CHANNEL: Parameter = Parameter {
    key: "channel_ns",
    low: 100,
    high: 1400,
    step: 50,
    set: |costs, value| costs.channel_ns = value,
    get: |costs| costs.channel_ns,
};

const SMT: Parameter = Parameter {
    key: "smt_percent",
    // Two threads of a core together do no less than one alone.
    low: 50,
    high: 100,
    step: 5,
    set: |costs, value| costs.smt_percent = value as u32,
    get: |costs| u64::from(costs.smt_percent),
};

/// Everything that is fitted: the stated training set.
pub const FITS: &[Fit] = &[
    Fit {
        machine: "x6-2-1x10",
        family: &["x6-2-1x22", "x6-2-2x10", "x6-2-2x14", "x6-2-2x22", "x5-2-2x18"],
        parameters: &[
            Parameter {
                low: 750,
                high: 1000,
                step: 50,
                ..CHANNEL
            },
            Parameter {
                key: "receive_extra_ns",
                low: 0,
                high: 400,
                step: 100,
                set: |costs, value| costs.receive_extra_ns = value,
                get: |costs| costs.receive_extra_ns,
            },
            Parameter {
                key: "wakeup_ns",
                low: 400,
                high: 1200,
                step: 200,
                set: |costs, value| costs.wakeup_ns = value,
                get: |costs| costs.wakeup_ns,
            },
            Parameter {
                low: 70,
                high: 90,
                ..SMT
            },
            Parameter {
                key: "search_cpu_ns",
                low: 60,
                high: 120,
                step: 10,
                set: |costs, value| costs.search_cpu_ns = value,
                get: |costs| costs.search_cpu_ns,
            },
        ],
        seeds: 2,
        // Idle times with stealing are next to nothing: relative errors of theirs would outweigh all else.
        rows: &[
            Rows {
                table: "001-schedstat",
                keys: &[],
                metrics: &["time", "%busy", "sched", "wake", "%find"],
                sides: [true, true],
            },
            Rows {
                table: "001-schedstat",
                keys: &[],
                metrics: &["idle"],
                sides: [true, false],
            },
            Rows {
                table: "001-schedstat",
                keys: &[],
                metrics: &["steal"],
                sides: [false, true],
            },
        ],
        source: "the 20-CPU X6-2 hackbench schedstat table",
    },
    Fit {
        machine: "spr-2x56",
        family: &["icl-2x32"],
        parameters: &[CHANNEL],
        seeds: 1,
        // The loads below the contention: the hackbench column has no unit to be held against.
        rows: &[
            Rows {
                table: "002-udprr-spr",
                keys: &["load=25% of CPUs"],
                metrics: &[],
                sides: [true, false],
            },
            Rows {
                table: "002-udprr-spr",
                keys: &["load=50% of CPUs"],
                metrics: &[],
                sides: [true, false],
            },
        ],
        source:
            "the column without the change of the UDP_RR table of the 224-CPU machine, 25 and 50% of CPUs",
    },
    Fit {
        machine: "unnamed-headroom",
        family: &[],
        // One figure is fitted, which a percent of speed moves by 0.8%.
        parameters: &[Parameter { step: 1, ..SMT }],
        // One run is off by 0.7% (standard deviation), so ten by 0.2%: a quarter of a step.
        seeds: 10,
        // Without headroom the balance decides, which counts tasks and does not weigh them; the 20% point is a slip.
        rows: &[Rows {
            table: "004-headroom",
            keys: &[
                "web server main, ffmpeg side: side, 30% headroom",
                "main-load-level=1.0 (normalised)",
            ],
            metrics: &[],
            sides: [false, true],
        }],
        source: "the headroom table at load level 1.0, 30%",
    },
];

/// What became of a parameter.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Fitted {
    pub machine: String,
    pub key: String,
    pub before: u64,
    pub after: u64,
    /// Mean of the absolute relative errors over the training figures, in percent: squares would let the one figure that
    /// the model misses most decide.
    pub error_before_percent: f64,
    pub error_after_percent: f64,
}

struct Point {
    /// The value is relative to this one's.
    relative: Option<Scenario>,
    scenario: Scenario,
    measure: Measure,
    work: Option<f64>,
    published: f64,
}

/// A fit whose scenarios have been read and checked.
pub struct Ready<'a> {
    pub fit: &'a Fit,
    points: Vec<Point>,
    /// Those that were read, without the machine's.
    pub files: BTreeSet<PathBuf>,
}

/// Reads what a fit needs: scenarios from `dir`, the machine as its file in `machines` has it (an absolute path).
pub fn read<'a>(
    fit: &'a Fit,
    index: &Index,
    rows: &[Row],
    dir: &Path,
    machines: &Path,
) -> Result<Ready<'a>, Problems> {
    let points = points(fit, index, rows, dir, machines)?;
    let scenarios = points
        .iter()
        .flat_map(|point| std::iter::once(&point.scenario).chain(&point.relative));
    let files = scenarios.map(|scenario| PathBuf::from(&scenario.name)).collect();
    Ok(Ready { fit, points, files })
}

/// Fits one machine. `step` is called before each set of runs with how many there will be in all.
pub fn fit(ready: &Ready, step: impl Fn(u64)) -> Result<Vec<Fitted>, Problems> {
    let Ready { fit, points, .. } = ready;
    let mut values: Vec<u64> = match points.first() {
        Some(point) => fit
            .parameters
            .iter()
            .map(|parameter| (parameter.get)(&point.scenario.machine.costs))
            .collect(),
        None => return Ok(Vec::new()),
    };
    let before = values.clone();
    let grid = |parameter: &Parameter| (parameter.high - parameter.low) / parameter.step + 1;
    // One parameter alone finds the same a second time.
    let rounds = fit.parameters.len().min(2) as u64;
    let total = 2 + rounds * fit.parameters.iter().map(grid).sum::<u64>();
    step(total);
    let error_before_percent = error(fit, points, &before)?;
    for _ in 0..rounds {
        for (i, parameter) in fit.parameters.iter().enumerate() {
            let mut best = (f64::INFINITY, values[i]);
            let mut value = parameter.low;
            while value <= parameter.high {
                step(total);
                values[i] = value;
                let error = error(fit, points, &values)?;
                if error < best.0 {
                    best = (error, value);
                }
                value += parameter.step;
            }
            values[i] = best.1;
        }
    }
    step(total);
    let error_after_percent = error(fit, points, &values)?;
    let fitted = fit.parameters.iter().enumerate().map(|(i, parameter)| Fitted {
        machine: fit.machine.to_string(),
        key: parameter.key.to_string(),
        before: before[i],
        after: values[i],
        error_before_percent,
        error_after_percent,
    });
    Ok(fitted.collect())
}

fn points(
    fit: &Fit,
    index: &Index,
    rows: &[Row],
    dir: &Path,
    machines: &Path,
) -> Result<Vec<Point>, Problems> {
    // By its name another file might be found, and costs be fitted that are not those of the file they go into.
    let file = machines.join(format!("{}.toml", fit.machine));
    let machine = [format!("machine={:?}", file.display().to_string())];
    let mut points = Vec::new();
    for row in rows {
        let wanted = |rows: &&Rows| {
            rows.table == row.table
                && rows.keys.iter().all(|key| row.keys().any(|have| have == *key))
                && (rows.metrics.is_empty() || rows.metrics.contains(&row.metric.as_str()))
        };
        let Some(wanted) = fit.rows.iter().find(wanted) else {
            continue;
        };
        let Ok(Plan::Run(recipe)) = index.plan(row) else {
            continue;
        };
        let sides = [(false, row.base), (true, row.new)];
        for ((changed, published), side) in sides.into_iter().zip(wanted.sides) {
            let Some(published) = published.filter(|value| side && *value != 0.0) else {
                continue;
            };
            let variant: Variant = recipe.variant(changed);
            let mut measure = recipe.measure.clone();
            // Transactions per second of one client, where the source says so.
            if row.unit.contains("per c") {
                let clients = clients(&variant);
                measure.factor = Some(measure.factor.unwrap_or(1.0) / clients);
            }
            let relative = recipe.relative().map(|other| other.variant(false));
            points.push(Point {
                relative: relative.map(|variant| variant.load(dir, &machine)).transpose()?,
                scenario: variant.load(dir, &machine)?,
                measure,
                work: recipe.case.work,
                published,
            });
        }
    }
    Ok(points)
}

/// Pairs of a variant.
fn clients(variant: &Variant) -> f64 {
    variant
        .settings
        .iter()
        .find_map(|setting| setting.strip_prefix("workload.main.pairs=")?.parse().ok())
        .unwrap_or(1.0)
}

/// Mean of the absolute relative errors, in percent. Figures of one scenario come from one run.
fn error(fit: &Fit, points: &[Point], values: &[u64]) -> Result<f64, Problems> {
    let mut groups: Vec<Vec<&Point>> = Vec::new();
    for point in points {
        let same = |group: &&mut Vec<&Point>| {
            group[0].scenario.name == point.scenario.name
                && group[0].scenario.settings == point.scenario.settings
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(point),
            None => groups.push(vec![point]),
        }
    }
    let runs: Vec<(&Vec<&Point>, u64)> = groups
        .iter()
        .flat_map(|group| (1..=fit.seeds).map(move |seed| (group, seed)))
        .collect();
    let measured: Vec<Result<Vec<f64>, Problems>> = runs
        .par_iter()
        .with_max_len(1)
        .map(|&(group, seed)| measure(fit, group, values, seed))
        .collect();
    let mut measured = measured.into_iter();
    let mut sum = 0.0;
    for group in &groups {
        let mut means = vec![0.0; group.len()];
        for run in measured.by_ref().take(fit.seeds as usize) {
            for (mean, value) in means.iter_mut().zip(run?) {
                *mean += value / fit.seeds as f64;
            }
        }
        for (mean, point) in means.iter().zip(group) {
            sum += (mean / point.published - 1.0).abs();
        }
    }
    Ok(sum / points.len().max(1) as f64 * 100.0)
}

/// The points of one scenario, from one run of it and one of each scenario that they are relative to.
fn measure(fit: &Fit, group: &[&Point], values: &[u64], seed: u64) -> Result<Vec<f64>, Problems> {
    let problem = |message: String| Problems::one(group[0].scenario.name.clone(), message);
    let run = |scenario: &Scenario| {
        // Loads follow the costs, so these come first.
        let mut scenario = scenario.clone();
        for (parameter, value) in fit.parameters.iter().zip(values) {
            (parameter.set)(&mut scenario.machine.costs, *value);
        }
        scenario.seed = seed;
        let simulation = Simulation::new(scenario.config()).map_err(|error| problem(error.to_string()))?;
        simulation.run(None).map_err(|stuck| problem(stuck.to_string()))
    };
    let results = run(&group[0].scenario)?;
    let values = group.iter().map(|point| {
        let value = point.measure.take(&results, point.work).map_err(problem)?;
        let Some(relative) = &point.relative else {
            return Ok(value);
        };
        let one = run(relative)?;
        Ok(value / point.measure.take(&one, point.work).map_err(problem)?)
    });
    values.collect()
}

impl Fit {
    /// What a machine file says of where a fitted cost comes from.
    pub fn says(&self) -> String {
        format!("plimsoll calibrate, {}: {}", self.machine, self.source)
    }
}

/// A machine file with a cost changed. None: the file has no such line.
pub fn rewrite(text: &str, key: &str, value: u64, source: &str) -> Option<String> {
    let prefix = format!("{key} = ");
    let mut found = false;
    let lines: Vec<String> = text
        .lines()
        .map(|line| {
            if line.starts_with(&prefix) {
                found = true;
                format!("{key} = {{ value = {value}, source = \"{source}\" }}")
            } else {
                line.to_string()
            }
        })
        .collect();
    found.then(|| lines.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published;
    use plimsoll_scenario::{find, machine, MachineFile, Tree};

    fn scenarios() -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/published")
    }

    fn machines() -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../machines")
    }

    fn file(name: &str) -> &'static str {
        let found = find::machines().find(|(known, _)| *known == name);
        found.unwrap_or_else(|| panic!("no machine {name}")).1
    }

    fn costs(name: &str) -> Costs {
        let tree = Tree::parse(name, file(name)).unwrap();
        let model: MachineFile = plimsoll_scenario::read(&tree).unwrap();
        machine(&model, &tree, &[]).unwrap().costs
    }

    /// Fitted costs lie on their grid, the family has the same, and the lines are as the command writes them.
    #[test]
    fn machine_files_hold_what_was_fitted() {
        for fit in FITS {
            let fitted = costs(fit.machine);
            for parameter in fit.parameters {
                let value = (parameter.get)(&fitted);
                assert!((parameter.low..=parameter.high).contains(&value));
                assert_eq!((value - parameter.low) % parameter.step, 0, "{}", fit.machine);
                for name in std::iter::once(&fit.machine).chain(fit.family) {
                    let text = file(name);
                    let again = rewrite(text, parameter.key, value, &fit.says()).unwrap();
                    assert_eq!(text, again, "{name}");
                }
            }
        }
    }

    /// The cheap one of the fits is held: no neighbour of the committed cost is better. The others take a minute.
    #[test]
    fn the_headroom_machine_is_what_calibrate_writes() {
        let fits = FITS.iter().find(|fit| fit.machine == "unnamed-headroom").unwrap();
        let committed = (fits.parameters[0].get)(&costs(fits.machine));
        let parameter = fits.parameters[0];
        let around = Fit {
            parameters: Box::leak(Box::new([Parameter {
                low: parameter.low.max(committed - parameter.step),
                high: parameter.high.min(committed + parameter.step),
                ..parameter
            }])),
            ..*fits
        };
        let rows = published::read("results.csv", published::EMBEDDED).unwrap();
        let text = std::fs::read_to_string(scenarios().join("tables.toml")).unwrap();
        let index = Index::read("tables.toml", &text, &rows).unwrap();
        let ready = super::read(&around, &index, &rows, &scenarios(), &machines()).unwrap();
        let fitted = fit(&ready, |_| {}).unwrap();
        assert_eq!(fitted[0].after, committed);
    }

    /// Of any other file of that name the costs would be fitted, and written into this one.
    #[test]
    fn what_is_fitted_is_the_file_in_the_directory_that_was_given() {
        let dir = tempfile::tempdir().unwrap();
        let fit = FITS.iter().find(|fit| fit.machine == "unnamed-headroom").unwrap();
        let other = rewrite(file(fit.machine), "smt_percent", 41, "another").unwrap();
        std::fs::write(dir.path().join("unnamed-headroom.toml"), other).unwrap();
        let rows = published::read("results.csv", published::EMBEDDED).unwrap();
        let text = std::fs::read_to_string(scenarios().join("tables.toml")).unwrap();
        let index = Index::read("tables.toml", &text, &rows).unwrap();
        let found = points(fit, &index, &rows, &scenarios(), dir.path()).unwrap();
        assert!(!found.is_empty());
        assert!(found
            .iter()
            .all(|point| point.scenario.machine.costs.smt_percent == 41));
    }

    /// The file that is given takes the place of the machine that the scenario names.
    #[test]
    fn scenarios_of_a_fit_are_on_the_machine_that_is_fitted() {
        let rows = published::read("results.csv", published::EMBEDDED).unwrap();
        let text = std::fs::read_to_string(scenarios().join("tables.toml")).unwrap();
        let index = Index::read("tables.toml", &text, &rows).unwrap();
        for fit in FITS {
            for row in rows
                .iter()
                .filter(|row| fit.rows.iter().any(|rows| rows.table == row.table))
            {
                let Ok(Plan::Run(recipe)) = index.plan(row) else {
                    continue;
                };
                let scenario = recipe.variant(false).load(&scenarios(), &[]).unwrap();
                assert_eq!(scenario.machine_name, fit.machine, "{}", row.table);
            }
        }
    }

    #[test]
    fn a_fitted_cost_replaces_its_line_and_no_other() {
        let text = "a = 1\nchannel_ns = { value = 1, source = \"x\" }\nb = 2\n";
        let after = rewrite(text, "channel_ns", 7, "fitted").unwrap();
        assert_eq!(
            after,
            "a = 1\nchannel_ns = { value = 7, source = \"fitted\" }\nb = 2\n"
        );
        assert_eq!(rewrite(text, "smt_percent", 7, "fitted"), None);
    }
}
