// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What seeds make of a figure: its quantiles for each combination.
use crate::merge::SET;
use plimsoll_columns::{Cell, Columns};
use plimsoll_scenario::nearest;
use plimsoll_stats::quantile;
use schemars::JsonSchema;
use serde::Serialize;

/// A table of a sweep, by combination.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Summary {
    /// What varied, without `set.`.
    pub keys: Vec<String>,
    /// Values of the keys, as texts; `None`: the row has none.
    pub combinations: Vec<Vec<Option<String>>>,
    /// Rows of the table.
    pub points: u64,
    pub measures: Vec<Measure>,
}

/// A column of results, in the unit of its name but nanoseconds, which are ms.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Measure {
    pub column: String,
    /// As a table calls it, with its unit.
    pub title: String,
    /// Of each combination; `None`: no run of it has this figure.
    pub quantiles: Vec<Option<Quantiles>>,
}

/// Over the seeds, between neighbours in a straight line.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Quantiles {
    pub runs: u64,
    pub min: f64,
    pub p5: f64,
    pub median: f64,
    pub p95: f64,
    pub max: f64,
}

#[derive(Debug, thiserror::Error, PartialEq)]
pub enum SummaryError {
    #[error(
        "no column begins with \"{SET}\", or there is no \"seed\": not a table of `plimsoll sweep merge`"
    )]
    NoSweep,
    #[error("\"{name}\": no such column of figures{hint}")]
    NoColumn { name: String, hint: String },
}

/// Columns that are shown if none is asked for, what matters most first.
const USUAL: [&str; 13] = [
    "workloads.*.latencies.*.p50_ns",
    "workloads.*.latencies.*.p99_ns",
    "groups.*.stat.nr_throttled",
    "groups.*.used_cpus",
    "workloads.*.counters.*.per_s",
    "recommended.reserved_cpus",
    "recommended.p99_ns",
    "recommended.throttled",
    "today.p99_ns",
    // Of replays.
    "p50_ns",
    "p99_ns",
    "throttled",
    "cpus",
];

/// Quantiles of the columns asked for, or of latencies, rates, use and throttling as far as they are not the same in all
/// runs. A name may have `*` for any part of it.
pub fn summary(table: &Columns, asked: &[String]) -> Result<Summary, SummaryError> {
    let sets: Vec<&str> = names(table).filter(|name| name.starts_with(SET)).collect();
    if table.get("seed").is_none() {
        return Err(SummaryError::NoSweep);
    }
    let columns: Vec<&str> = match asked {
        [] => {
            let usual = USUAL
                .iter()
                .flat_map(|pattern| names(table).filter(move |name| fits(pattern, name)));
            // All that runs is in the root group.
            usual
                .filter(|name| !name.starts_with("groups./.") && varies(table, name))
                .collect()
        }
        asked => {
            let mut columns = Vec::new();
            for name in asked {
                let fitting: Vec<&str> = figures(table).filter(|column| fits(name, column)).collect();
                if fitting.is_empty() {
                    let hint = nearest(name, figures(table)).map(|near| format!("; did you mean {near}?"));
                    return Err(SummaryError::NoColumn {
                        name: name.clone(),
                        hint: hint.unwrap_or_default(),
                    });
                }
                columns.extend(
                    fitting
                        .into_iter()
                        .filter(|column| !columns.contains(column))
                        .collect::<Vec<_>>(),
                );
            }
            columns
        }
    };
    let mut combinations: Vec<Vec<Option<String>>> = Vec::new();
    let mut of_row = Vec::new();
    let mut known = std::collections::BTreeMap::new();
    for row in 0..table.rows() {
        let values: Vec<Option<String>> = sets
            .iter()
            .map(|name| Some(table.get(name)?.cell(row)?.text()))
            .collect();
        let next = combinations.len();
        let at = *known.entry(values.clone()).or_insert(next);
        if at == next {
            combinations.push(values);
        }
        of_row.push(at);
    }
    let measures = columns.into_iter().map(|name| {
        let scale = if name.ends_with("_ns") { 1e-6 } else { 1.0 };
        let mut values: Vec<Vec<f64>> = vec![Vec::new(); combinations.len()];
        for (row, at) in of_row.iter().enumerate() {
            let cell = table.get(name).and_then(|column| column.cell(row));
            values[*at].extend(cell.as_ref().and_then(Cell::number).map(|value| value * scale));
        }
        Measure {
            column: name.to_string(),
            title: match name.strip_suffix("_ns") {
                Some(name) => format!("{name}, ms"),
                None => name.to_string(),
            },
            quantiles: values.into_iter().map(Quantiles::of).collect(),
        }
    });
    let measures = measures.collect();
    Ok(Summary {
        keys: sets.iter().map(|name| name[SET.len()..].to_string()).collect(),
        points: table.rows() as u64,
        measures,
        combinations,
    })
}

fn names(table: &Columns) -> impl Iterator<Item = &str> {
    table.0.iter().map(|(name, _)| name.as_str())
}

/// Columns of numbers that are results.
fn figures(table: &Columns) -> impl Iterator<Item = &str> {
    let is_figure = |name: &&str| {
        let number = |row| {
            table
                .get(name)
                .and_then(|column| column.cell(row))
                .and_then(|cell| cell.number())
        };
        !name.starts_with(SET) && *name != "seed" && (0..table.rows()).any(|row| number(row).is_some())
    };
    names(table).filter(is_figure)
}

fn varies(table: &Columns, name: &str) -> bool {
    let cell = |row| table.get(name).and_then(|column| column.cell(row));
    (1..table.rows()).any(|row| cell(row) != cell(0))
}

/// Whether a name is meant by one with stars.
fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or("");
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

impl Quantiles {
    fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let at = |share| quantile(&values, share);
        Some(Quantiles {
            runs: values.len() as u64,
            min: at(0.0)?,
            p5: at(0.05)?,
            median: at(0.5)?,
            p95: at(0.95)?,
            max: at(1.0)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_columns::Row;

    #[test]
    fn a_star_stands_for_any_part_of_a_name() {
        for pattern in ["a.b.c", "*", "a.*", "*.c", "a.*.c", "a*b*c"] {
            assert!(fits(pattern, "a.b.c"), "{pattern}");
        }
        for pattern in ["a.b", "b.*", "*.b", "a.*.c.*"] {
            assert!(!fits(pattern, "a.b.c"), "{pattern}");
        }
    }

    #[test]
    fn seeds_of_a_combination_are_put_together_and_what_is_not_there_is_named() {
        let row = |burst: i64, seed: i64, p99: i64| {
            Row::from([
                ("set.group.a.burst_us".to_string(), Cell::Integer(burst)),
                ("seed".to_string(), Cell::Integer(seed)),
                ("workloads.w.latencies.l.p99_ns".to_string(), Cell::Integer(p99)),
            ])
        };
        let rows = [
            row(0, 1, 4_000_000),
            row(0, 2, 6_000_000),
            row(9, 1, 1_000_000),
            row(9, 2, 3_000_000),
        ];
        let table = Columns::of(&rows, &[]);
        let found = summary(&table, &[]).unwrap();
        assert_eq!(
            found.combinations,
            [[Some("0".to_string())], [Some("9".to_string())]]
        );
        let medians: Vec<f64> = found.measures[0]
            .quantiles
            .iter()
            .map(|q| q.unwrap().median)
            .collect();
        assert_eq!(medians, [5.0, 2.0]);
        let error = summary(&table, &["workloads.w.latencies.l.p98_ns".into()]).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("did you mean workloads.w.latencies.l.p99_ns?"),
            "{error}"
        );
    }
}
