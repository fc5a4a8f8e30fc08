// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Published figures: one row of the file each, typed.
use plimsoll_scenario::Problems;

/// The figures that the repository carries.
pub const EMBEDDED: &str = include_str!("../../../scenarios/published/results.csv");

/// A row: what was measured, without and with the change.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub table: String,
    pub kind: String,
    pub system: String,
    pub workload: String,
    pub parameters: String,
    pub metric: String,
    pub base: Option<f64>,
    pub new: Option<f64>,
    /// As printed in the source, such as ">500" or "minimal".
    pub base_text: String,
    pub new_text: String,
    /// Of the mean, in percent.
    pub base_spread_percent: Option<f64>,
    pub new_spread_percent: Option<f64>,
    pub unit: String,
    pub better: Better,
    /// Change in percent as the source has it, or else as computed from its figures.
    pub change_percent: Option<f64>,
    /// The source itself calls the row noise.
    pub called_noise: bool,
    pub note: String,
    pub line: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    Lower,
    Higher,
    NotStated,
}

/// Spread that is assumed where the source states none, in percent.
const NOISE_UNSTATED_PERCENT: f64 = 0.5;

impl Row {
    /// What identifies a row in the index: its workload and each of its parameters.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.workload.as_str()).chain(self.parameters.split(';').map(str::trim))
    }

    /// A change smaller than this says nothing, in percentage points. Both spreads added where they are stated, and half
    /// of the last digit of both figures: 10 us that became 9 us may be 9.5 both.
    pub fn noise_percent(&self) -> f64 {
        let spread = match (self.base_spread_percent, self.new_spread_percent) {
            (None, None) => NOISE_UNSTATED_PERCENT,
            (a, b) => a.unwrap_or(0.0) + b.unwrap_or(0.0),
        };
        let digits = rounding_percent(&self.base_text) + rounding_percent(&self.new_text);
        spread.max(digits)
    }

    /// Why the row is not a target although it is simulated: slips and warnings in the source's own figures.
    pub fn no_target(&self) -> Option<&'static str> {
        if self.note.contains("IDENTICAL to the ICL row") {
            Some("digit for digit the row of the other machine: a copying slip of the source")
        } else if self.table == "001-x6-2x22" && self.keys().any(|key| key == "groups=2") {
            Some("spread of 23.4%: not a point")
        } else if self.table == "004-headroom"
            && self.workload.ends_with("20% headroom")
            && self.parameters.starts_with("main-load-level=1.0 ")
        {
            Some("20% headroom beats 30% there, against the source's own words: the shape is used, not the point")
        } else {
            None
        }
    }

    /// Whether the direction of the change is a target: it exceeds its noise and nothing is wrong with the row.
    pub fn directed(&self) -> bool {
        !self.called_noise
            && self.no_target().is_none()
            && self.better != Better::NotStated
            && self
                .change_percent
                .is_some_and(|change| change.abs() > self.noise_percent())
    }
}

/// Reads a file of published figures. Errors carry `name` and the line.
pub fn read(name: &str, text: &str) -> Result<Vec<Row>, Problems> {
    // The reader counts a line's end at \r, and would name the line before.
    let text = text.replace("\r\n", "\n");
    let mut reader = csv::ReaderBuilder::new()
        .comment(Some(b'#'))
        .from_reader(text.as_bytes());
    let problem = |line: u64, message: String| Problems::one(format!("{name}:{line}"), message);
    let head = reader
        .headers()
        .map_err(|error| problem(1, error.to_string()))?
        .clone();
    let column = |wanted: &str| {
        let mut found = head.iter().enumerate().filter(|(_, name)| *name == wanted);
        match (found.next(), found.next()) {
            (Some((at, _)), None) => Ok(at),
            (None, _) => Err(problem(1, format!("column \"{wanted}\" is missing"))),
            _ => Err(problem(
                1,
                format!("column \"{wanted}\": given twice: allowed once"),
            )),
        }
    };
    let columns = COLUMNS.map(column);
    let mut at = [0; COLUMNS.len()];
    for (into, found) in at.iter_mut().zip(columns) {
        *into = found?;
    }
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| {
            let line = error.position().map_or(0, csv::Position::line);
            problem(
                line,
                match error.kind() {
                    csv::ErrorKind::UnequalLengths {
                        expected_len, len, ..
                    } => {
                        format!("{len} fields: allowed {expected_len}, one for each column")
                    }
                    _ => error.to_string(),
                },
            )
        })?;
        let line = record.position().map_or(0, csv::Position::line);
        let row = row(&at.map(|column| record.get(column).unwrap_or("").trim()), line);
        rows.push(row.map_err(|message| problem(line, message))?);
    }
    Ok(rows)
}

const COLUMNS: [&str; 15] = [
    "table",
    "kind",
    "system",
    "workload",
    "parameters",
    "metric",
    "base_value",
    "base_spread",
    "new_value",
    "new_spread",
    "unit",
    "better",
    "reported_change",
    "recomputed_change_pct",
    "note",
];

fn row(cells: &[&str; 15], line: u64) -> Result<Row, String> {
    let [table, kind, system, workload, parameters, metric, base, base_spread, new, new_spread, unit, better, reported, recomputed, note] =
        *cells;
    let better = match better {
        "lower" => Better::Lower,
        "higher" => Better::Higher,
        "" => Better::NotStated,
        other => return Err(format!("better: \"{other}\": allowed lower, higher or nothing")),
    };
    let reported_change = number(reported).filter(|_| reported.contains('%'));
    Ok(Row {
        table: table.to_string(),
        kind: kind.to_string(),
        system: system.to_string(),
        workload: workload.to_string(),
        parameters: parameters.to_string(),
        metric: metric.to_string(),
        base: number(base),
        // What the side gets at least: 1 ms in 100 ms.
        new: if new == "minimal" { Some(1.0) } else { number(new) },
        base_text: base.to_string(),
        new_text: new.to_string(),
        base_spread_percent: spread("base_spread", base_spread)?,
        new_spread_percent: spread("new_spread", new_spread)?,
        unit: unit.to_string(),
        better,
        change_percent: match recomputed {
            "" => reported_change,
            text => match text.parse::<f64>() {
                Ok(change) if change.is_finite() => Some(change),
                _ => return Err(format!("recomputed_change_pct: \"{text}\": allowed a number")),
            },
        },
        called_noise: reported == "(noise)" || note.contains("author calls all rows noise"),
        note: note.to_string(),
        line,
    })
}

/// The number that a figure begins with: "~30", ">500", "36.1 %speedup", "11e6". None for ranges and words.
fn number(text: &str) -> Option<f64> {
    let text = text.trim_start_matches(['~', '>', '<', '=', '±', '+']);
    let end = text
        .char_indices()
        .find(|(i, c)| {
            let exponent = (*c == 'e') && text[*i + 1..].starts_with(|next: char| next.is_ascii_digit());
            !(c.is_ascii_digit() || *c == '.' || *c == '-' || exponent)
        })
        .map_or(text.len(), |(i, _)| i);
    text[..end].parse().ok().filter(|number: &f64| number.is_finite())
}

fn spread(column: &str, text: &str) -> Result<Option<f64>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    number(text)
        .map(Some)
        .ok_or_else(|| format!("{column}: \"{text}\": allowed a percentage such as ±0.1% or 0.1 %stdev"))
}

/// Half of a figure's last digit, in percent of it; 0 where it is not a plain number.
fn rounding_percent(text: &str) -> f64 {
    let decimals = text.split_once('.').map_or(0, |(_, after)| after.len());
    match text.parse::<f64>() {
        Ok(value) if value != 0.0 => 50.0 * 10f64.powi(-(decimals as i32)) / value.abs(),
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_row_is_read_with_its_figures() {
        let rows = read("results.csv", EMBEDDED).unwrap();
        assert_eq!(rows.len(), 212);
        let tables: std::collections::BTreeSet<&str> = rows.iter().map(|row| row.table.as_str()).collect();
        assert_eq!(tables.len(), 29);
        let udp = rows
            .iter()
            .find(|row| row.table == "002-udprr-spr" && row.parameters == "load=75% of CPUs")
            .unwrap();
        assert_eq!((udp.base, udp.new), (Some(13779.0), Some(36105.0)));
        assert_eq!(
            (udp.base_spread_percent, udp.change_percent),
            (Some(3.1), Some(162.0))
        );
        assert!(udp.directed());
        let tbench = rows.iter().find(|row| row.table == "001-kvm4-tbench").unwrap();
        assert_eq!(tbench.change_percent, Some(16.2));
    }

    #[test]
    fn known_slips_of_the_sources_are_no_targets() {
        let rows = read("results.csv", EMBEDDED).unwrap();
        let none: Vec<&Row> = rows.iter().filter(|row| row.no_target().is_some()).collect();
        assert_eq!(none.len(), 5);
        assert_eq!(
            none.iter().filter(|row| row.table == "002-tcpstream-spr").count(),
            3
        );
        // Regressions are.
        let hikey = rows.iter().filter(|row| row.table == "001-hikey");
        assert!(hikey
            .clone()
            .all(|row| row.directed() && row.change_percent < Some(0.0)));
    }

    #[test]
    fn what_is_no_number_is_no_change() {
        for bad in ["nan", "inf", "1e999"] {
            let text = EMBEDDED.replacen(",0.0,", &format!(",{bad},"), 1);
            let error = read("x.csv", &text).unwrap_err().to_string();
            assert!(
                error.ends_with(&format!("recomputed_change_pct: \"{bad}\": allowed a number")),
                "{error}"
            );
        }
    }

    #[test]
    fn a_row_that_is_cut_off_and_a_column_given_twice_are_refused() {
        let error = |text: &str| read("x.csv", text).unwrap_err().to_string();
        assert_eq!(
            error(&EMBEDDED[..400]),
            "x.csv:3: 5 fields: allowed 15, one for each column"
        );
        assert_eq!(
            error(&EMBEDDED.replacen(",note\n", ",table\n", 1)),
            "x.csv:1: column \"table\": given twice: allowed once"
        );
    }

    #[test]
    fn a_bad_figure_is_reported_with_its_line() {
        let text = EMBEDDED.replace(",13779,±3.1%,", ",13779,some,");
        let error = read("x.csv", &text).unwrap_err().to_string();
        assert!(
            error.starts_with("x.csv:1") && error.contains("\"some\""),
            "{error}"
        );
    }
}
