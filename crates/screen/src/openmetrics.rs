// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Series as text, a sample a line: OpenMetrics, Prometheus' own format, and what `promtool tsdb dump` writes.
use crate::answer::{Labels, Said, Series};
use crate::input::{time_ms, InputError, Joined};

/// Reads every line and hands over what belongs together: samples of one series on lines one after the other.
pub fn read(text: &str, each: &mut dyn FnMut(Series)) -> Result<Said, InputError> {
    let mut joined = Joined::new(each);
    for (i, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |what: &str| InputError {
            line: i as u64 + 1,
            what: what.into(),
        };
        let end = end_of_series(line)
            .ok_or_else(|| wrong("labels without their end; allowed: NAME{LABEL=\"VALUE\",...}"))?;
        let (key, rest) = line.split_at(end);
        // An exemplar may follow.
        let mut words = rest.split(" # ").next().unwrap_or("").split_ascii_whitespace();
        let (value, at, more) = (words.next(), words.next(), words.next());
        let value: f64 = value
            .and_then(|word| word.parse().ok())
            .ok_or_else(|| wrong("no value after the labels; allowed: a number, NaN, +Inf or -Inf"))?;
        let at = at.ok_or_else(|| {
            wrong("no time after the value, so nothing can be said of growth; allowed: samples with their times")
        })?;
        let at_ms = time_ms(at).ok_or_else(|| wrong("the time; allowed: seconds or ms since 1970"))?;
        if more.is_some() {
            return Err(wrong("something after the time; allowed: an end of the line"));
        }
        joined.add(key, (at_ms, value), || {
            labels(key).ok_or_else(|| wrong("labels; allowed: NAME{LABEL=\"VALUE\",...}"))
        })?;
    }
    Ok(joined.finish())
}

/// Where name and labels end.
fn end_of_series(line: &str) -> Option<usize> {
    let name = line
        .find(|c: char| c == '{' || c.is_ascii_whitespace())
        .unwrap_or(line.len());
    if !line[name..].starts_with('{') {
        return Some(name);
    }
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in line.char_indices().skip_while(|(at, _)| *at < name) {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '}' if !quoted => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// `NAME{LABEL="VALUE",...}`; the name may be a label, `__name__`.
fn labels(key: &str) -> Option<Labels> {
    let mut found = Labels::new();
    let (name, list) = key.split_once('{').unwrap_or((key, "}"));
    if !name.is_empty() {
        found.insert("__name__".into(), name.into());
    }
    let mut rest = list.strip_suffix('}')?.trim();
    while !rest.is_empty() {
        let (label, after) = rest.split_once('=')?;
        let after = after.trim_start().strip_prefix('"')?;
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next()? {
                (at, '"') => break at,
                (_, '\\') => match chars.next()?.1 {
                    'n' => value.push('\n'),
                    c @ ('"' | '\\') => value.push(c),
                    _ => return None,
                },
                (_, c) => value.push(c),
            }
        };
        // The same label twice says two things.
        if found.insert(label.trim().into(), value).is_some() {
            return None;
        }
        rest = after[end + 1..].trim_start();
        rest = match rest.strip_prefix(',') {
            Some(more) => more.trim_start(),
            None if rest.is_empty() => rest,
            None => return None,
        };
    }
    found.contains_key("__name__").then_some(found)
}
