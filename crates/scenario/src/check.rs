// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Holds a TOML document against the JSON schema of its Rust types and finds everything that is wrong at once.
//!
//! The types are the only definition: schemars makes the schema from them, editors complete and check with it, and so
//! does this file, which knows as much of JSON Schema as schemars writes for plain serde types. What a schema cannot
//! say (a group that does not exist, limits that contradict each other) is checked where scenarios are resolved.
use crate::problem::{nearest, Problem};
use crate::tree::{join, Entry, Node, Origin, Tree, Value};
use serde_json::Value as Json;

/// Everything in which `tree` differs from `schema`, in the order of the file.
pub fn check(tree: &Tree, schema: &Json) -> Vec<Problem> {
    let mut checker = Checker {
        tree,
        root: schema,
        problems: Vec::new(),
        own: (None, None),
    };
    checker.node(schema, &tree.root, "");
    checker.problems
}

struct Checker<'a> {
    tree: &'a Tree,
    root: &'a Json,
    problems: Vec<Problem>,
    /// Limits of the present key itself, where its kind is defined elsewhere.
    own: Bounds,
}

/// Lowest and highest value.
type Bounds = (Option<f64>, Option<f64>);

/// What may stand in a table.
#[derive(Default)]
struct Shape<'a> {
    properties: Vec<(&'a str, &'a Json)>,
    required: Vec<&'a str>,
    /// No other key is allowed.
    closed: bool,
    /// Schema of every other key, such as the names of groups.
    rest: Option<&'a Json>,
    /// Which variant it is could not be told: unknown keys cannot be told either.
    undecided: bool,
}

impl<'a> Checker<'a> {
    fn report(&mut self, origin: &Origin, path: &str, message: impl Into<String>) {
        self.problems.push(self.tree.problem(origin, path, message));
    }

    fn resolve(&self, mut schema: &'a Json) -> &'a Json {
        while let Some(reference) = schema.get("$ref").and_then(Json::as_str) {
            match self.root.pointer(reference.trim_start_matches('#')) {
                Some(target) => schema = target,
                None => break,
            }
        }
        schema
    }

    /// The alternatives of a schema, without the null of an `Option`.
    fn alternatives(&self, schema: &'a Json) -> Vec<&'a Json> {
        let list = schema
            .get("oneOf")
            .or_else(|| schema.get("anyOf"))
            .and_then(Json::as_array);
        list.into_iter()
            .flatten()
            .map(|one| self.resolve(one))
            .filter(|one| one.get("type").and_then(Json::as_str) != Some("null"))
            .collect()
    }

    fn node(&mut self, schema: &'a Json, node: &Node, path: &str) {
        self.own = (None, None);
        if let Some((number, path)) = of_reference(schema, node, path) {
            self.own = bounds(schema);
            let before = self.problems.len();
            let given = match &number.value {
                Value::Integer(integer) => Some(*integer as f64),
                Value::Float(float) | Value::NotFinite(_, float) => Some(*float),
                Value::Wide(text) => Some(side(text)),
                _ => None,
            };
            if let Some(given) = given {
                self.range(schema, given, number, &path);
            }
            if self.problems.len() > before {
                return;
            }
        }
        let schema = self.resolve(schema);
        if let Some(words) = self.words(schema) {
            return self.word(&words, node, path);
        }
        let alternatives = self.alternatives(schema);
        if !alternatives.is_empty() && !matches!(node.value, Value::Table(_)) {
            return self.one_of(&alternatives, node, path);
        }
        match &node.value {
            Value::Table(entries) => {
                let table = alternatives.iter().find(|one| accepts(one, "object"));
                match table {
                    // A table or something simpler, as "a machine's name, or the machine".
                    Some(table) if self.tag(&alternatives).is_none() => {
                        self.table(table, node, entries, path)
                    }
                    _ if accepts(schema, "object") || !alternatives.is_empty() => {
                        self.table(schema, node, entries, path)
                    }
                    _ => self.wrong_kind(schema, node, path),
                }
            }
            Value::Array(items) if accepts(schema, "array") => self.list(schema, node, items, path),
            Value::String(_) if accepts(schema, "string") => {}
            Value::Boolean(_) if accepts(schema, "boolean") => {}
            Value::Integer(integer) if accepts(schema, "integer") || accepts(schema, "number") => {
                self.range(schema, *integer as f64, node, path);
            }
            Value::Float(float) if accepts(schema, "number") => self.range(schema, *float, node, path),
            // Of no bounds the widest are shown: there is no key that takes it.
            Value::Wide(_) if accepts(schema, "integer") || accepts(schema, "number") => {
                let (low, high) = bounds(schema);
                let widest = (low.or(Some(i64::MIN as f64)), high.or(Some(i64::MAX as f64)));
                self.out_of_range(schema, widest, node, path);
            }
            Value::NotFinite(text, _) if accepts(schema, "number") => match bounds(schema) {
                (Some(low), Some(high)) => self.out_of_range(schema, (Some(low), Some(high)), node, path),
                (None, None) => self.report(&node.origin, path, format!("{text}: allowed a finite number")),
                bounds => {
                    let message = format!("{text}: allowed a finite number, {}", shown_range(bounds));
                    self.report(&node.origin, path, message);
                }
            },
            _ => self.wrong_kind(schema, node, path),
        }
    }

    /// The words of an enumeration, however schemars spells it.
    fn words(&self, schema: &'a Json) -> Option<Vec<&'a str>> {
        if let Some(word) = schema.get("const") {
            return word.as_str().map(|word| vec![word]);
        }
        if let Some(list) = schema.get("enum").and_then(Json::as_array) {
            return Some(list.iter().filter_map(Json::as_str).collect());
        }
        let alternatives = self.alternatives(schema);
        if alternatives.is_empty() || schema.get("properties").is_some() {
            return None;
        }
        let mut words = Vec::new();
        for one in alternatives {
            words.extend(self.words(one)?);
        }
        Some(words)
    }

    fn word(&mut self, words: &[&str], node: &Node, path: &str) {
        match &node.value {
            Value::String(text) if words.contains(&text.as_str()) => {}
            _ => {
                let message = format!("{}: {}", node.shown(), allowed_words(words, node));
                self.report(&node.origin, path, message);
            }
        }
    }

    fn one_of(&mut self, alternatives: &[&'a Json], node: &Node, path: &str) {
        let kind = match &node.value {
            Value::String(_) => "string",
            Value::Integer(_) => "integer",
            Value::Float(_) => "number",
            Value::Wide(_) | Value::NotFinite(..) | Value::Date(_) => "nothing that is allowed",
            Value::Boolean(_) => "boolean",
            Value::Array(_) => "array",
            Value::Table(_) => "object",
        };
        let fits = |one: &&&Json| accepts(one, kind) || (kind == "integer" && accepts(one, "number"));
        // A word that is none of the words is an error of the whole: "max", or a number.
        let known = |one: &&&'a Json| match (self.words(one), &node.value) {
            (Some(words), Value::String(text)) => words.contains(&text.as_str()),
            _ => true,
        };
        match alternatives.iter().find(|one| fits(one) && known(one)) {
            Some(one) => self.node(one, node, path),
            None => {
                let message = format!("{}: allowed {}", node.shown(), self.either(alternatives));
                self.report(&node.origin, path, message);
            }
        }
    }

    fn wrong_kind(&mut self, schema: &'a Json, node: &Node, path: &str) {
        let message = format!("{}: allowed {}", node.shown(), self.describe(schema));
        self.report(&node.origin, path, message);
    }

    fn describe(&self, schema: &'a Json) -> String {
        let schema = self.resolve(schema);
        if let Some(words) = self.words(schema) {
            return words
                .iter()
                .map(|word| format!("\"{word}\""))
                .collect::<Vec<_>>()
                .join(", ");
        }
        let alternatives = self.alternatives(schema);
        if !alternatives.is_empty() && schema.get("properties").is_none() {
            return self.either(&alternatives);
        }
        let kind = [
            ("integer", "an integer"),
            ("number", "a number"),
            ("string", "a string in quotes"),
            ("boolean", "true or false"),
            ("array", "a list"),
            ("object", "a table"),
        ]
        .iter()
        .find(|(name, _)| accepts(schema, name))
        .map_or("something else", |(_, text)| text);
        let integer = accepts(schema, "integer");
        if let Some(allowed) = allowed(schema) {
            return format!("{kind}, {allowed}");
        }
        match bounds(schema) {
            _ if integer && self.own != (None, None) => format!("{kind}, {}", shown_range(self.own)),
            (None, None) => kind.to_string(),
            limits => format!("{kind}, {}", shown_range(limits)),
        }
    }

    /// What the alternatives are; those that read the same, once.
    fn either(&self, alternatives: &[&'a Json]) -> String {
        let mut all: Vec<String> = Vec::new();
        for text in alternatives.iter().map(|one| self.describe(one)) {
            if !all.contains(&text) {
                all.push(text);
            }
        }
        all.join(", or ")
    }

    fn range(&mut self, schema: &'a Json, given: f64, node: &Node, path: &str) {
        let (low, high) = bounds(schema);
        let above_low = match schema.get("exclusiveMinimum").and_then(Json::as_f64) {
            Some(low) => given > low,
            None => low.is_none_or(|low| given >= low),
        };
        // NaN is within no range.
        if !above_low || !high.is_none_or(|high| given <= high) {
            self.out_of_range(schema, (low, high), node, path);
        }
    }

    fn out_of_range(&mut self, schema: &'a Json, bounds: Bounds, node: &Node, path: &str) {
        let above = if schema.get("exclusiveMinimum").is_some() {
            "above "
        } else {
            ""
        };
        let message = format!("{}: allowed {above}{}", node.shown(), shown_range(bounds));
        self.report(&node.origin, path, message);
    }

    fn list(&mut self, schema: &'a Json, node: &Node, items: &[Node], path: &str) {
        let count = |name| schema.get(name).and_then(Json::as_u64);
        let (low, high) = (
            count("minItems").unwrap_or(0),
            count("maxItems").unwrap_or(u64::MAX),
        );
        if (items.len() as u64) < low || items.len() as u64 > high {
            let high = if high == u64::MAX {
                String::new()
            } else {
                high.to_string()
            };
            self.report(
                &node.origin,
                path,
                format!("{} items: allowed {low} .. {high}", items.len()),
            );
        }
        if let Some(inner) = schema.get("items") {
            for (i, item) in items.iter().enumerate() {
                self.node(inner, item, &join(path, &i.to_string()));
            }
        }
    }

    /// The property that tells the variants of a tagged enumeration apart.
    fn tag(&self, variants: &[&'a Json]) -> Option<&'a str> {
        let first = variants.first()?.get("properties")?.as_object()?;
        first
            .keys()
            .map(String::as_str)
            .find(|name| variants.iter().all(|one| variant_word(one, name).is_some()))
    }

    fn table(&mut self, schema: &'a Json, node: &Node, entries: &[Entry], path: &str) {
        let mut shape = Shape::default();
        self.collect(schema, node, path, &mut shape);
        for entry in entries {
            let path = join(path, &entry.key);
            match shape.properties.iter().find(|(name, _)| *name == entry.key) {
                Some((_, inner)) => self.node(inner, &entry.node, &path),
                None => match shape.rest {
                    Some(rest) => self.node(rest, &entry.node, &path),
                    None if shape.closed && !shape.undecided => self.unknown(entry, &shape, &path),
                    None => {}
                },
            }
        }
        let missing: Vec<&str> = shape
            .required
            .iter()
            .copied()
            .filter(|name| entries.iter().all(|e| e.key != *name))
            .collect();
        if !missing.is_empty() {
            let origin = self.header(path).unwrap_or_else(|| node.origin.clone());
            self.report(&origin, path, format!("missing: {}", missing.join(", ")));
        }
    }

    /// Where the table's own name stands.
    fn header(&self, path: &str) -> Option<Origin> {
        let mut node = &self.tree.root;
        let mut origin = None;
        for key in path.split('.') {
            let entry = node.entry(key)?;
            origin = Some(entry.key_origin.clone());
            node = &entry.node;
        }
        origin
    }

    fn collect(&mut self, schema: &'a Json, node: &Node, path: &str, shape: &mut Shape<'a>) {
        let schema = self.resolve(schema);
        if let Some(properties) = schema.get("properties").and_then(Json::as_object) {
            shape
                .properties
                .extend(properties.iter().map(|(name, inner)| (name.as_str(), inner)));
        }
        if let Some(required) = schema.get("required").and_then(Json::as_array) {
            shape.required.extend(required.iter().filter_map(Json::as_str));
        }
        for name in ["additionalProperties", "unevaluatedProperties"] {
            match schema.get(name) {
                Some(Json::Bool(false)) => shape.closed = true,
                Some(inner @ Json::Object(_)) => shape.rest = Some(inner),
                _ => {}
            }
        }
        for part in schema.get("allOf").and_then(Json::as_array).into_iter().flatten() {
            self.collect(part, node, path, shape);
        }
        let variants = self.alternatives(schema);
        if variants.is_empty() {
            return;
        }
        let Some(tag) = self.tag(&variants) else { return };
        let words: Vec<&str> = variants.iter().filter_map(|one| variant_word(one, tag)).collect();
        let Some(entry) = node.entry(tag) else {
            shape.undecided = true;
            let origin = self.header(path).unwrap_or_else(|| node.origin.clone());
            self.report(&origin, path, format!("missing: {tag} ({})", words.join(", ")));
            return;
        };
        let chosen = variants
            .iter()
            .find(|one| match (&entry.node.value, variant_word(one, tag)) {
                (Value::String(text), Some(word)) => text == word,
                _ => false,
            });
        match chosen {
            Some(variant) => self.collect(variant, node, path, shape),
            None => {
                shape.undecided = true;
                let message = format!("{}: {}", entry.node.shown(), allowed_words(&words, &entry.node));
                self.report(&entry.node.origin, &join(path, tag), message);
            }
        }
    }

    fn unknown(&mut self, entry: &Entry, shape: &Shape<'a>, path: &str) {
        let mut known: Vec<&str> = shape.properties.iter().map(|(name, _)| *name).collect();
        known.sort_unstable();
        let message = match nearest(&entry.key, known.iter().copied()) {
            Some(near) => format!("unknown key; did you mean {near}?"),
            None => format!("unknown key; known here: {}", known.join(", ")),
        };
        self.report(&entry.key_origin, path, message);
    }
}

/// The number that a key's own limits are about, where its kind is defined elsewhere: a number, or one with its source.
fn of_reference<'n>(schema: &Json, node: &'n Node, path: &str) -> Option<(&'n Node, String)> {
    schema.get("$ref")?;
    schema.get("minimum").or(schema.get("maximum"))?;
    Some(match node.entry("value") {
        Some(entry) => (&entry.node, join(path, "value")),
        None => (node, path.to_string()),
    })
}

fn variant_word<'a>(variant: &'a Json, tag: &str) -> Option<&'a str> {
    variant.get("properties")?.get(tag)?.get("const")?.as_str()
}

fn allowed_words(words: &[&str], node: &Node) -> String {
    let list = words.join(", ");
    match &node.value {
        Value::String(text) => match nearest(text, words.iter().copied()) {
            Some(near) => format!("did you mean \"{near}\"? allowed: {list}"),
            None => format!("allowed: {list}"),
        },
        _ => format!("allowed: {list}"),
    }
}

/// Whether a schema's `type` is `kind`, or has it in its list.
fn accepts(schema: &Json, kind: &str) -> bool {
    match schema.get("type") {
        Some(Json::String(name)) => name == kind,
        Some(Json::Array(names)) => names.iter().any(|name| name.as_str() == Some(kind)),
        _ => false,
    }
}

/// Where an integer beyond 64 bits lies, seen from any range.
fn side(text: &str) -> f64 {
    match text.starts_with('-') {
        true => f64::NEG_INFINITY,
        false => f64::INFINITY,
    }
}

/// The range of a number that takes more than one, in words that only its type knows.
pub(crate) fn allowed(schema: &Json) -> Option<&str> {
    schema.get("x-allowed").and_then(Json::as_str)
}

/// From the schema's own bounds or the width of its integer.
fn bounds(schema: &Json) -> Bounds {
    let (format_low, format_high) = match schema.get("format").and_then(Json::as_str) {
        Some("uint8") => (Some(0.0), Some(f64::from(u8::MAX))),
        Some("uint16") => (Some(0.0), Some(f64::from(u16::MAX))),
        Some("uint32") => (Some(0.0), Some(f64::from(u32::MAX))),
        // The largest of TOML's integers.
        Some("uint64" | "uint") => (Some(0.0), Some(i64::MAX as f64)),
        Some("int32") => (Some(f64::from(i32::MIN)), Some(f64::from(i32::MAX))),
        _ => (None, None),
    };
    let bound = |name| schema.get(name).and_then(Json::as_f64);
    let low = bound("minimum").or(bound("exclusiveMinimum")).or(format_low);
    (low, bound("maximum").or(format_high))
}

/// Bounds in words. Of neither there is nothing to say: "any".
pub(crate) fn shown_range((low, high): Bounds) -> String {
    // As an integer where it is one: the largest of TOML's is not among the floating-point numbers.
    let shown = |bound: f64| match bound.fract() {
        0.0 => (bound as i64).to_string(),
        _ => bound.to_string(),
    };
    match (low.map(shown), high.map(shown)) {
        (Some(low), Some(high)) => format!("{low} .. {high}"),
        (Some(low), None) => format!("{low} or more"),
        (None, Some(high)) => format!("{high} or less"),
        (None, None) => "any".to_string(),
    }
}
