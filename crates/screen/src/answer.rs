// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Answers of Prometheus' HTTP API (`/api/v1/query` and `query_range`), read series by series: an answer may be larger than
//! what is kept of it.
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor,
};
use std::collections::BTreeMap;
use std::fmt;

/// Labels, `__name__` among them.
pub type Labels = BTreeMap<String, String>;

/// One series of a matrix, or of a vector with its one point.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    pub labels: Labels,
    /// Time in ms since 1970, value; in the order of the answer.
    pub points: Vec<(i64, f64)>,
}

/// What VictoriaMetrics' "isPartial" says.
pub(crate) const PARTIAL: &str = "the answer is partial";

/// What an answer says beside its series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Said {
    /// "success" or "error"; empty: the document had no status.
    pub status: String,
    pub error: Option<String>,
    /// Warnings and infos, and "isPartial" of VictoriaMetrics.
    pub warnings: Vec<String>,
    /// A scalar's value.
    pub scalar: Option<f64>,
    pub series: u64,
    pub points: u64,
}

/// Why an answer cannot be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AnswerError {
    /// Not JSON, cut off, or another document.
    #[error("{0}; allowed: what Prometheus answers to /api/v1/query or query_range")]
    Damaged(String),
    /// The server says that it failed.
    #[error("the server says: {0}")]
    Refused(String),
}

/// Reads every answer in `bytes`, one after the other, and hands each series to `each`. What came before an error has been
/// handed over.
pub fn read(bytes: &[u8], each: &mut dyn FnMut(Series)) -> Result<Said, AnswerError> {
    let mut all = Said::default();
    let mut documents = 0;
    let mut json = serde_json::Deserializer::from_slice(bytes);
    loop {
        // End of input, white space included, is the end; anything else has to be an answer.
        if json.end().is_ok() {
            break;
        }
        Answer { said: &mut all, each }
            .deserialize(&mut json)
            .map_err(|error| AnswerError::Damaged(error.to_string()))?;
        documents += 1;
        if all.status == "error" || all.error.is_some() {
            return Err(AnswerError::Refused(
                all.error.unwrap_or_else(|| "status: error".into()),
            ));
        }
    }
    match documents {
        0 => Err(AnswerError::Damaged("nothing in it".into())),
        _ => Ok(all),
    }
}

struct Answer<'a> {
    said: &'a mut Said,
    each: &'a mut dyn FnMut(Series),
}

impl<'de> DeserializeSeed<'de> for Answer<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Answer<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with status and data")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut has_data = false;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "status" => self.said.status = map.next_value()?,
                "error" => self.said.error = map.next_value()?,
                "warnings" | "infos" => {
                    let more: Option<Vec<String>> = map.next_value()?;
                    self.said.warnings.extend(more.unwrap_or_default());
                }
                "isPartial" => {
                    if map.next_value::<bool>()? {
                        self.said.warnings.push(PARTIAL.into());
                    }
                }
                "data" => {
                    has_data = true;
                    map.next_value_seed(Data {
                        said: self.said,
                        each: self.each,
                    })?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        match has_data || self.said.error.is_some() || self.said.status == "error" {
            true => Ok(()),
            false => Err(A::Error::missing_field("data")),
        }
    }
}

struct Data<'a> {
    said: &'a mut Said,
    each: &'a mut dyn FnMut(Series),
}

impl<'de> DeserializeSeed<'de> for Data<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        // An answer that failed may say "data": null.
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Data<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with resultType and result")
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut has_result = false;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "result" => {
                    has_result = true;
                    map.next_value_seed(List {
                        said: self.said,
                        each: self.each,
                    })?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        match has_result {
            true => Ok(()),
            false => Err(A::Error::missing_field("result")),
        }
    }
}

struct List<'a> {
    said: &'a mut Said,
    each: &'a mut dyn FnMut(Series),
}

impl<'de> DeserializeSeed<'de> for List<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for List<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of series, or the time and value of a scalar")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(element) = seq.next_element_seed(Element)? {
            match element {
                Item::Series(series) => {
                    self.said.series += 1;
                    self.said.points += series.points.len() as u64;
                    (self.each)(series);
                }
                // A scalar is a time and a value, in the list itself.
                Item::Number(number) => self.said.scalar = Some(number),
            }
        }
        Ok(())
    }
}

enum Item {
    Series(Series),
    Number(f64),
}

struct Element;

impl<'de> DeserializeSeed<'de> for Element {
    type Value = Item;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Item, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Element {
    type Value = Item;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a series with metric and values")
    }
    fn visit_f64<E>(self, number: f64) -> Result<Item, E> {
        Ok(Item::Number(number))
    }
    fn visit_u64<E>(self, number: u64) -> Result<Item, E> {
        Ok(Item::Number(number as f64))
    }
    fn visit_i64<E>(self, number: i64) -> Result<Item, E> {
        Ok(Item::Number(number as f64))
    }
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Item, E> {
        number(text).map(Item::Number)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Item, A::Error> {
        let mut series = Series::default();
        let mut has_points = false;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "metric" => series.labels = map.next_value()?,
                "values" => {
                    has_points = true;
                    series.points = map.next_value::<Vec<Point>>()?.into_iter().map(|p| p.0).collect();
                }
                "value" => {
                    has_points = true;
                    series.points = vec![map.next_value::<Point>()?.0];
                }
                // Native histograms: none of the series screened is one.
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        match has_points {
            true => Ok(Item::Series(series)),
            false => Err(A::Error::missing_field("values")),
        }
    }
}

/// `[1700000000.123, "4.5"]`
struct Point((i64, f64));

impl<'de> serde::Deserialize<'de> for Point {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(PointVisitor)
    }
}

struct PointVisitor;

impl<'de> Visitor<'de> for PointVisitor {
    type Value = Point;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time in seconds and a value in quotes")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Point, A::Error> {
        let short = || A::Error::invalid_length(1, &"a time and a value");
        let seconds: f64 = seq.next_element()?.ok_or_else(short)?;
        let Value(value) = seq.next_element()?.ok_or_else(short)?;
        // Year 5138 in ms and back: beyond that it cannot be a time.
        if seconds.is_nan() || seconds.abs() >= 1e11 {
            return Err(A::Error::custom(format!(
                "time {seconds}: allowed: seconds since 1970"
            )));
        }
        Ok(Point(((seconds * 1e3).round() as i64, value)))
    }
}

struct Value(f64);

impl<'de> serde::Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Value;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number in quotes")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Value, E> {
                number(text).map(Value)
            }
            fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
                Ok(Value(number))
            }
            fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
                Ok(Value(number as f64))
            }
        }
        deserializer.deserialize_any(Text)
    }
}

/// A value as Prometheus writes it: "NaN", "+Inf" and "-Inf" are values.
fn number<E: serde::de::Error>(text: &str) -> Result<f64, E> {
    text.parse()
        .map_err(|_| E::invalid_value(Unexpected::Str(text), &"a number, NaN, +Inf or -Inf"))
}
