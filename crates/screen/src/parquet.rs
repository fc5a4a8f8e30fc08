// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Series as a Parquet table, a sample a row: `metric`, `time`, `value`, and a column of texts for each label. The same as
//! [`crate::rows`] reads of CSV.
use crate::answer::{Labels, Said, Series};
use crate::input::{since_1970_ms, Joined};
use plimsoll_columns::{Cell, Column, Columns};

/// How such a file begins.
pub const MAGIC: &[u8] = b"PAR1";

/// Reads every row; a text that is empty or missing is a label that is not there.
///
/// # Errors
/// What is wrong, with row and column. What came before it has been handed over.
pub fn read(bytes: &[u8], each: &mut dyn FnMut(Series)) -> Result<Said, String> {
    let table = Columns::read(bytes.to_vec(), None)
        .map_err(|error| format!("{error} (compression may be none or Snappy)"))?;
    let column = |name: &str| {
        let found = table.get(name);
        found.ok_or_else(|| {
            format!("no column \"{name}\"; allowed: a table with metric, time, value and labels")
        })
    };
    let (metric, time, value) = (column("metric")?, column("time")?, column("value")?);
    let mut labels: Vec<(&str, &[Option<String>])> = Vec::new();
    for (name, column) in &table.0 {
        match column {
            Column::Text(texts) if name != "metric" => labels.push((name, texts)),
            _ if ["metric", "time", "value"].contains(&name.as_str()) => {}
            _ => return Err(format!("column \"{name}\": no texts; allowed: labels as texts")),
        }
    }
    let mut joined = Joined::new(each);
    for row in 0..table.rows() {
        let wrong = |what: &str| format!("row {}: {what}", row + 1);
        let Some(Cell::Text(name)) = metric.cell(row) else {
            return Err(wrong("metric; allowed: the name of a series"));
        };
        let at_ms = time
            .cell(row)
            .and_then(|cell| since_1970_ms(cell.number()?))
            .ok_or_else(|| wrong("time; allowed: s, ms, us or ns since 1970"))?;
        let value = value
            .cell(row)
            .and_then(|cell| cell.number())
            .ok_or_else(|| wrong("value; allowed: a number"))?;
        let present = labels
            .iter()
            .filter_map(|(label, texts)| Some((*label, texts[row].as_deref()?)));
        let mut own: Labels = present
            .filter(|(_, text)| !text.is_empty())
            .map(|(label, text)| (label.into(), text.into()))
            .collect();
        own.insert("__name__".into(), name);
        let key = own.clone();
        joined.add(key, (at_ms, value), || Ok::<_, String>(own))?;
    }
    Ok(joined.finish())
}
