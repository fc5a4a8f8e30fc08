// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Series as CSV, a sample a line: `metric`, `time`, `value`, and a column for each label.
use crate::answer::{Labels, Said, Series};
use crate::input::{time_ms, InputError, Joined};

/// Columns that do not hold labels.
const COLUMNS: [&str; 3] = ["metric", "time", "value"];

/// Whether a first line is the head of such a file.
pub fn is_head(line: &str) -> bool {
    let names: Vec<&str> = line
        .split(',')
        .map(|name| name.trim().trim_matches('"'))
        .collect();
    COLUMNS.iter().all(|column| names.contains(column))
}

/// Reads every line; an empty cell is a label that is not there.
pub fn read(text: &str, each: &mut dyn FnMut(Series)) -> Result<Said, InputError> {
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    let damaged = |error: csv::Error| InputError {
        line: error.position().map_or(1, csv::Position::line),
        what: match error.kind() {
            csv::ErrorKind::UnequalLengths {
                expected_len, len, ..
            } => {
                format!("{len} cells; allowed: {expected_len}, as in the head")
            }
            _ => error.to_string(),
        },
    };
    let head = reader.headers().map_err(damaged)?.clone();
    // A quote that opens in the first line makes one cell of several: that line looked like a head and is none.
    let mut at = [0; COLUMNS.len()];
    for (at, column) in at.iter_mut().zip(COLUMNS) {
        *at = head
            .iter()
            .position(|name| name == column)
            .ok_or_else(|| InputError {
                line: 1,
                what: format!("no column \"{column}\"; allowed: a head with metric, time, value and labels"),
            })?;
    }
    let mut joined = Joined::new(each);
    for record in reader.records() {
        let record = record.map_err(damaged)?;
        let wrong = |what: &str| InputError {
            line: record.position().map_or(0, csv::Position::line),
            what: what.into(),
        };
        let cell = |column: usize| record.get(at[column]).unwrap_or("");
        let at_ms = time_ms(cell(1)).ok_or_else(|| wrong("time; allowed: seconds or ms since 1970"))?;
        let value: f64 = cell(2)
            .parse()
            .map_err(|_| wrong("value; allowed: a number, NaN, +Inf or -Inf"))?;
        let named = head
            .iter()
            .zip(&record)
            .filter(|(name, cell)| !cell.is_empty() && !COLUMNS.contains(name));
        let mut labels: Labels = named.map(|(name, cell)| (name.into(), cell.into())).collect();
        labels.insert("__name__".into(), cell(0).into());
        let key = labels.clone();
        joined.add(key, (at_ms, value), || Ok(labels))?;
    }
    Ok(joined.finish())
}
