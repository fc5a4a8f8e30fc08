// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A TOML document in which every key and value knows where it was written.
//!
//! serde reports one error at a time and forgets positions once a value is converted. Errors of a scenario come from
//! three stages (grammar, schema, meaning), so positions have to live as long as the values: hence this small tree.
use crate::problem::{nearest, Problem, Problems};
use serde_json::{Map, Number};
use toml::de::{DeTable, DeValue};
use toml::Spanned;

/// Where a value was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Byte offset in the file.
    File(usize),
    /// The command line: the whole argument, as in `--set group.web.burst_us=0`.
    Option(String),
}

#[derive(Debug, Clone)]
pub struct Node {
    pub origin: Origin,
    pub value: Value,
}

#[derive(Debug, Clone)]
pub enum Value {
    String(String),
    Integer(i64),
    /// A finite one.
    Float(f64),
    /// An integer beyond 64 bits, which no key takes, as it was typed.
    Wide(String),
    /// nan or an infinity, as it was typed; what it is compared as.
    NotFinite(String, f64),
    /// As it was typed. No key takes one.
    Date(String),
    Boolean(bool),
    Array(Vec<Node>),
    /// In the order of the file.
    Table(Vec<Entry>),
}

#[derive(Debug, Clone)]
pub struct Entry {
    pub key: String,
    pub key_origin: Origin,
    pub node: Node,
}

/// A document and the name that its errors carry.
#[derive(Debug, Clone)]
pub struct Tree {
    name: String,
    /// Byte offsets at which lines start.
    lines: Vec<usize>,
    text: String,
    pub root: Node,
}

impl Tree {
    /// Parses a TOML text. `name` is what errors call it, usually the file's path.
    pub fn parse(name: &str, text: &str) -> Result<Tree, Problems> {
        let lines = std::iter::once(0)
            .chain(text.match_indices('\n').map(|(at, _)| at + 1))
            .collect();
        let root = Node {
            origin: Origin::File(0),
            value: Value::Table(Vec::new()),
        };
        let mut tree = Tree {
            name: name.to_string(),
            lines,
            text: text.to_string(),
            root,
        };
        let mut problems = Vec::new();
        let (table, errors) = DeTable::parse_recoverable(text);
        for error in errors {
            let at = error.span().map_or(0, |span| span.start);
            let message = format!("not TOML: {}", error.message().replace('\n', ", "));
            problems.push(tree.problem(&Origin::File(at), "", message));
        }
        if problems.is_empty() {
            tree.root.value = tree.convert_table(table.get_ref());
            Ok(tree)
        } else {
            Err(Problems::sorted(problems))
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// What no key takes is kept as it was typed: the check of its key says what it does allow.
    fn convert(&self, value: &Spanned<DeValue<'_>>) -> Node {
        let typed = || self.text[value.span()].to_string();
        let origin = Origin::File(value.span().start);
        let value = match value.get_ref() {
            DeValue::String(text) => Value::String(text.to_string()),
            DeValue::Boolean(flag) => Value::Boolean(*flag),
            DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
                Ok(integer) => Value::Integer(integer),
                Err(_) => Value::Wide(typed()),
            },
            DeValue::Float(float) => match float.as_str().parse::<f64>() {
                Ok(float) if float.is_finite() => Value::Float(float),
                Ok(float) => Value::NotFinite(typed(), float),
                Err(_) => Value::NotFinite(typed(), f64::NAN),
            },
            DeValue::Datetime(_) => Value::Date(typed()),
            DeValue::Array(items) => Value::Array(items.iter().map(|item| self.convert(item)).collect()),
            DeValue::Table(table) => self.convert_table(table),
        };
        Node { origin, value }
    }

    fn convert_table(&self, table: &DeTable<'_>) -> Value {
        let mut entries: Vec<Entry> = table
            .iter()
            .map(|(key, value)| Entry {
                key: key.get_ref().to_string(),
                key_origin: Origin::File(key.span().start),
                node: self.convert(value),
            })
            .collect();
        entries.sort_by_key(|entry| match entry.key_origin {
            Origin::File(at) => at,
            Origin::Option(_) => usize::MAX,
        });
        Value::Table(entries)
    }

    /// `file:line:column`, both counted from 1, columns in characters.
    pub fn place(&self, origin: &Origin) -> String {
        match origin {
            Origin::Option(argument) => argument.clone(),
            Origin::File(at) => {
                let line = self.lines.partition_point(|start| start <= at) - 1;
                let column = self.text[self.lines[line]..*at].chars().count();
                format!("{}:{}:{}", self.name, line + 1, column + 1)
            }
        }
    }

    pub fn problem(&self, origin: &Origin, path: &str, message: impl Into<String>) -> Problem {
        let at = match origin {
            Origin::File(at) => *at,
            Origin::Option(_) => usize::MAX,
        };
        Problem {
            place: self.place(origin),
            path: path.to_string(),
            message: message.into(),
            at,
        }
    }

    /// What stands at `path`.
    pub fn node_at(&self, path: &[&str]) -> Option<&Node> {
        path.iter()
            .try_fold(&self.root, |node, key| Some(&node.entry(key)?.node))
    }

    /// A problem with what stands at `path`, or with the nearest table above it where nothing does.
    pub fn problem_at(&self, path: &[&str], message: impl Into<String>) -> Problem {
        let mut node = &self.root;
        let mut origin = &node.origin;
        for key in path {
            match node.entry(key) {
                Some(entry) => {
                    node = &entry.node;
                    // A table's own span is its header; a value's is the value.
                    origin = if matches!(node.value, Value::Table(_)) {
                        &entry.key_origin
                    } else {
                        &node.origin
                    };
                }
                None => match node.item(key) {
                    Some(item) => {
                        node = item;
                        origin = &item.origin;
                    }
                    None => break,
                },
            }
        }
        self.problem(origin, &path.join("."), message)
    }

    /// Changes one value, as `--set PATH=VALUE` does. A VALUE that is not TOML is taken as a string. The table that
    /// holds the key has to be there already (`[switches]` excepted), so that a misspelt name is not a new group.
    pub fn set(&mut self, assignment: &str) -> Result<(), Problems> {
        let place = format!("--set {assignment}");
        let fail = |message: String| Err(Problems::one(place.clone(), message));
        let Some((path, text)) = assignment.split_once('=') else {
            return fail("allowed is KEY=VALUE, as in group.web.burst_us=0".into());
        };
        // A name with a dot stands in quotes, as in the file: group."web.slice".burst_us.
        let mut quoted = false;
        let between = |c: char| {
            quoted ^= c == '"';
            c == '.' && !quoted
        };
        let keys: Vec<&str> = path.trim().split(between).map(unquoted).collect();
        if let Some(key) = keys.iter().find(|key| key.contains('"')) {
            return fail(format!(
                "'{key}' has a quote too many; allowed is a whole name in quotes, as in group.\"web.slice\".burst_us=0"
            ));
        }
        if keys.iter().any(|key| key.is_empty()) {
            return fail(format!(
                "'{path}' has an empty key; allowed is KEY=VALUE, as in group.web.burst_us=0"
            ));
        }
        let origin = Origin::Option(place.clone());
        let value = match Tree::parse("--set", &format!("x = {}", text.trim())) {
            Ok(parsed) => match parsed.root.value {
                Value::Table(mut entries) if entries.len() == 1 => entries.remove(0).node.value,
                _ => Value::String(text.trim().to_string()),
            },
            Err(_) => Value::String(text.trim().to_string()),
        };
        let mut node = &mut self.root;
        for (depth, key) in keys[..keys.len() - 1].iter().enumerate() {
            if depth == 0 && *key == "switches" && node.entry(key).is_none() {
                node.put(key, &origin, Value::Table(Vec::new()));
            }
            let known = node.keys().map(str::to_string).collect::<Vec<_>>();
            let there = match &node.value {
                Value::Table(_) if known.is_empty() => "it has no keys there".to_string(),
                Value::Table(_) => format!("known: {}", known.join(", ")),
                Value::Array(items) => format!("allowed: 0 .. {}", items.len().saturating_sub(1)),
                _ => format!("{} is a value", keys[..depth].join(".")),
            };
            node = match node.child_mut(key) {
                Some(child) => child,
                None => {
                    let hint = match nearest(key, known.iter().map(String::as_str)) {
                        Some(near) => format!("; did you mean {near}?"),
                        None => format!("; {there}"),
                    };
                    return fail(format!("no \"{key}\" in the scenario{hint}"));
                }
            };
        }
        let last = keys[keys.len() - 1];
        if let Value::Array(items) = &mut node.value {
            match last.parse::<usize>().ok().filter(|i| *i < items.len()) {
                Some(i) => {
                    items[i] = Node {
                        origin: origin.clone(),
                        value,
                    }
                }
                None => {
                    return fail(format!(
                        "\"{last}\" is not an index of this list, which has {} entries",
                        items.len()
                    ))
                }
            }
        } else if matches!(node.value, Value::Table(_)) {
            node.put(last, &origin, value);
        } else {
            return fail(format!(
                "{} is a value and has no \"{last}\"",
                keys[..keys.len() - 1].join(".")
            ));
        }
        self.root.reset_origin(&keys, &origin);
        Ok(())
    }
}

impl Node {
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        match &self.value {
            Value::Table(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        }
    }

    fn item(&self, index: &str) -> Option<&Node> {
        match &self.value {
            Value::Array(items) => index.parse::<usize>().ok().and_then(|i| items.get(i)),
            _ => None,
        }
    }

    fn child_mut(&mut self, key: &str) -> Option<&mut Node> {
        match &mut self.value {
            Value::Table(entries) => entries.iter_mut().find(|e| e.key == key).map(|e| &mut e.node),
            Value::Array(items) => key.parse::<usize>().ok().and_then(|i| items.get_mut(i)),
            _ => None,
        }
    }

    fn put(&mut self, key: &str, origin: &Origin, value: Value) {
        let Value::Table(entries) = &mut self.value else {
            return;
        };
        let node = Node {
            origin: origin.clone(),
            value,
        };
        match entries.iter_mut().find(|entry| entry.key == key) {
            Some(entry) => {
                entry.node = node;
                entry.key_origin = origin.clone();
            }
            None => entries.push(Entry {
                key: key.to_string(),
                key_origin: origin.clone(),
                node,
            }),
        }
    }

    /// Everything below the changed value is from the option, too.
    fn reset_origin(&mut self, keys: &[&str], origin: &Origin) {
        fn all(node: &mut Node, origin: &Origin) {
            node.origin = origin.clone();
            match &mut node.value {
                Value::Array(items) => items.iter_mut().for_each(|item| all(item, origin)),
                Value::Table(entries) => entries.iter_mut().for_each(|entry| {
                    entry.key_origin = origin.clone();
                    all(&mut entry.node, origin);
                }),
                _ => {}
            }
        }
        match keys.split_first() {
            None => all(self, origin),
            Some((key, rest)) => {
                if let Some(child) = self.child_mut(key) {
                    child.reset_origin(rest, origin);
                }
            }
        }
    }

    /// Keys of a table in the order of the file; none for anything else.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let entries: &[Entry] = match &self.value {
            Value::Table(entries) => entries,
            _ => &[],
        };
        entries.iter().map(|entry| entry.key.as_str())
    }

    /// The value without its places, for serde.
    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::String(text) => text.clone().into(),
            Value::Integer(integer) => (*integer).into(),
            Value::Float(float) => Number::from_f64(*float).map_or(serde_json::Value::Null, Into::into),
            // Refused before this is asked for.
            Value::Wide(_) | Value::NotFinite(..) | Value::Date(_) => serde_json::Value::Null,
            Value::Boolean(flag) => (*flag).into(),
            Value::Array(items) => items.iter().map(Node::to_json).collect(),
            Value::Table(entries) => entries
                .iter()
                .map(|e| (e.key.clone(), e.node.to_json()))
                .collect::<Map<_, _>>()
                .into(),
        }
    }

    /// What kind of value it is, as an error calls it.
    pub fn kind(&self) -> &'static str {
        match self.value {
            Value::String(_) => "a string",
            Value::Integer(_) | Value::Wide(_) => "an integer",
            Value::Float(_) | Value::NotFinite(..) => "a number",
            Value::Date(_) => "a date",
            Value::Boolean(_) => "true or false",
            Value::Array(_) => "a list",
            Value::Table(_) => "a table",
        }
    }

    /// The value as an error shows it: short, on one line.
    pub fn shown(&self) -> String {
        match &self.value {
            Value::String(text) => format!("\"{}\"", text.escape_debug()),
            Value::Integer(integer) => integer.to_string(),
            // With its point or exponent: 1000.0 is not an integer.
            Value::Float(float) => format!("{float:?}"),
            Value::Wide(text) | Value::NotFinite(text, _) | Value::Date(text) => text.clone(),
            Value::Boolean(flag) => flag.to_string(),
            Value::Array(_) | Value::Table(_) => self.kind().to_string(),
        }
    }
}

/// A key without the quotes around it.
fn unquoted(key: &str) -> &str {
    let inner = key.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inner.unwrap_or(key)
}

/// A dotted path with one more key.
pub fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_string()
    } else {
        format!("{path}.{key}")
    }
}
