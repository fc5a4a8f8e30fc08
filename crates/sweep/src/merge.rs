// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One table of all points; any machines may have run them.
use crate::grid::Setting;
use crate::points::Points;
use crate::store::{Store, StoreError, KEY};
use plimsoll_columns::{Cell, Columns, Row};
use std::collections::BTreeSet;

/// Columns of what varied begin so.
pub const SET: &str = "set.";
pub const SEED: &str = "seed";

/// The rows that are there, in the order of the points.
#[derive(Debug)]
pub struct Merged {
    pub columns: Columns,
    pub points: u64,
    /// Points without a row.
    pub missing: u64,
    /// Points whose run could not go on.
    pub failed: u64,
}

/// Reads the rows of all points. Memory: some 5 KB a point.
pub fn merge(points: &dyn Points, store: &Store) -> Result<Merged, StoreError> {
    let keys: Vec<String> = (0..points.points()).map(|point| points.key(point)).collect();
    let wanted: BTreeSet<&str> = keys.iter().map(String::as_str).collect();
    let there = store.rows(&wanted)?;
    let rows: Vec<Row> = (0..points.points())
        .zip(&keys)
        .filter_map(|(point, key)| Some(with_settings(points, point, key, there.get(key)?.clone())))
        .collect();
    Ok(Merged {
        columns: Columns::of(&rows, &heads(&points.grid().keys)),
        points: points.points(),
        missing: points.points() - rows.len() as u64,
        failed: rows.iter().filter(|row| row.contains_key("error")).count() as u64,
    })
}

/// The first columns: which point it is.
fn heads(keys: &[String]) -> Vec<String> {
    let own = keys.iter().map(|key| format!("{SET}{key}"));
    own.chain([SEED.to_string(), KEY.to_string()]).collect()
}

/// A result with what tells it from others.
fn with_settings(points: &dyn Points, point: u64, key: &str, mut row: Row) -> Row {
    let values = &points.grid().combinations[points.combination(point)];
    for (name, value) in points.grid().keys.iter().zip(values) {
        row.insert(format!("{SET}{name}"), cell(value));
    }
    row.insert(SEED.to_string(), Cell::Integer(points.seed(point) as i64));
    row.insert(KEY.to_string(), Cell::Text(key.to_string()));
    row
}

fn cell(value: &Setting) -> Cell {
    match value {
        Setting::Integer(value) => Cell::Integer(*value),
        Setting::Number(value) => Cell::Number(*value),
        Setting::Flag(value) => Cell::Flag(*value),
        Setting::Text(value) => Cell::Text(value.clone()),
    }
}
