// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of series in each format that is read, told apart by how they begin.
use crate::answer::{self, Labels, Said, Series};
use crate::{openmetrics, parquet, rows};

/// What is wrong with a text.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct InputError {
    pub line: u64,
    pub what: String,
}

/// Reads a file and hands each series to `each`: answers of Prometheus' HTTP API as JSON, OpenMetrics text, CSV, or Parquet.
///
/// # Errors
/// What is wrong, and where. What came before it has been handed over.
pub fn read(bytes: &[u8], each: &mut dyn FnMut(Series)) -> Result<Said, String> {
    if bytes.starts_with(parquet::MAGIC) {
        return parquet::read(bytes, each);
    }
    // A series without a name before its labels begins with a brace, too, as `promtool tsdb dump` writes it.
    let begin = bytes.trim_ascii_start();
    let json = begin.is_empty()
        || begin.starts_with(b"[")
        || begin.starts_with(b"{") && !begin.starts_with(b"{__name__");
    if json {
        return answer::read(bytes, each).map_err(|error| error.to_string());
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = &bytes[..error.valid_up_to()];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        format!("line {line}: not UTF-8; allowed: JSON of Prometheus' API, OpenMetrics text, CSV, or Parquet")
    })?;
    match rows::is_head(text.lines().next().unwrap_or("")) {
        true => rows::read(text, each),
        false => openmetrics::read(text, each),
    }
    .map_err(|error| error.to_string())
}

/// Puts samples that come one by one together: those of one series that follow each other.
pub(crate) struct Joined<'a, K> {
    open: Option<(K, Series)>,
    each: &'a mut dyn FnMut(Series),
    said: Said,
}

impl<'a, K: PartialEq> Joined<'a, K> {
    pub fn new(each: &'a mut dyn FnMut(Series)) -> Self {
        Joined {
            open: None,
            each,
            said: Said::default(),
        }
    }

    /// `key` tells series apart; `labels` is asked for at the first sample of one.
    pub fn add<E>(
        &mut self,
        key: K,
        point: (i64, f64),
        labels: impl FnOnce() -> Result<Labels, E>,
    ) -> Result<(), E> {
        match &mut self.open {
            Some((own, series)) if *own == key => series.points.push(point),
            _ => {
                let (labels, points) = (labels()?, vec![point]);
                self.hand_over();
                self.open = Some((key, Series { labels, points }));
            }
        }
        Ok(())
    }

    pub fn finish(mut self) -> Said {
        self.hand_over();
        self.said
    }

    fn hand_over(&mut self) {
        if let Some((_, series)) = self.open.take() {
            self.said.series += 1;
            self.said.points += series.points.len() as u64;
            (self.each)(series);
        }
    }
}

/// Seconds, as OpenMetrics has them, or ms, as Prometheus' own text has.
pub(crate) fn time_ms(text: &str) -> Option<i64> {
    let value: f64 = text.parse().ok()?;
    since_1970_ms(value).filter(|_| value.abs() < 1e14)
}

/// Seconds, ms, us or ns since 1970, told apart by their size: each is a thousand times more than the one before.
pub(crate) fn since_1970_ms(value: f64) -> Option<i64> {
    // Seconds up to the year 5138; the same as ms is 1973.
    match value.abs() {
        v if v < 1e11 => Some((value * 1e3).round() as i64),
        v if v < 1e14 => Some(value.round() as i64),
        v if v < 1e17 => Some((value / 1e3).round() as i64),
        v if v < 1e20 => Some((value / 1e6).round() as i64),
        _ => None,
    }
}
