// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The keys of a file as Markdown tables, made from the same schema that checks it.
use crate::check::{allowed, shown_range};
use serde_json::Value as Json;
use std::fmt::Write;

/// Tables of all keys, the file's own first, then those of each table in it.
pub fn reference(schema: &Json) -> String {
    let mut text = String::from(
        "<!-- Made by `plimsoll schema --markdown`; a test compares. UPDATE_EXPECT=1 cargo test -p plimsoll-scenario writes it. -->\n",
    );
    section(&mut text, schema, "The file", schema);
    for (name, inner) in schema["$defs"].as_object().into_iter().flatten() {
        if inner.get("properties").is_some() {
            section(&mut text, schema, title(name), inner);
        }
        for variant in inner["oneOf"].as_array().into_iter().flatten() {
            let kind = variant["properties"]
                .as_object()
                .into_iter()
                .flatten()
                .find_map(|(tag, value)| Some((tag, value["const"].as_str()?)));
            if let Some((tag, word)) = kind {
                let target = resolve(schema, variant);
                section(
                    &mut text,
                    schema,
                    &format!("{} with {tag} = \"{word}\"", title(name)),
                    target,
                );
            }
        }
    }
    text
}

/// What a table is called in a file.
fn title(name: &str) -> &str {
    match name {
        "SwitchesTable" => "[switches]",
        "GroupTable" => "[group.NAME]",
        "WorkloadTable" => "[workload.NAME]",
        "ChangeTable" => "[[change]]",
        "TopologyTable" => "[machine.topology]",
        "ClockTable" => "[machine.clock]",
        "CostsTable" => "[machine.costs]",
        "KernelTable" => "[machine.kernel.VERSION]",
        "MachineFile" => "[machine]",
        "DistanceTable" => "A cost by distance",
        "IdleStateTable" => "One of idle_states",
        "Sourced" => "A number with its source",
        "SourcedFlag" => "A flag with its source",
        other => other,
    }
}

fn resolve<'a>(schema: &'a Json, one: &'a Json) -> &'a Json {
    match one.get("$ref").and_then(Json::as_str) {
        Some(reference) => schema.pointer(reference.trim_start_matches('#')).unwrap_or(one),
        None => one,
    }
}

fn section(text: &mut String, schema: &Json, title: &str, table: &Json) {
    let described = table["description"].as_str().unwrap_or("").replace('\n', " ");
    write!(
        text,
        "\n## {title}\n\n{described}\n\n| key | value | meaning |\n|---|---|---|\n"
    )
    .expect("memory");
    let required: Vec<&str> = table["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Json::as_str)
        .collect();
    for (key, one) in table["properties"].as_object().into_iter().flatten() {
        if one.get("const").is_some() {
            continue;
        }
        let meaning = one["description"]
            .as_str()
            .or(resolve(schema, one)["description"].as_str())
            .unwrap_or("");
        let needed = if required.contains(&key.as_str()) {
            " Required."
        } else {
            ""
        };
        let meaning = meaning.replace('\n', " ").replace('|', "\\|");
        writeln!(text, "| `{key}` | {} | {meaning}{needed} |", value(schema, one)).expect("memory");
    }
}

/// What a key takes: kind and range, or words.
fn value(schema: &Json, one: &Json) -> String {
    value_within(schema, one, limits(one))
}

fn limits(one: &Json) -> (Option<f64>, Option<f64>) {
    let limit = |name| one.get(name).and_then(Json::as_f64);
    (limit("minimum"), limit("maximum"))
}

/// `own`: limits of the key itself, where its kind is defined elsewhere.
fn value_within(schema: &Json, one: &Json, own: (Option<f64>, Option<f64>)) -> String {
    let one = resolve(schema, one);
    if let Some(word) = one["const"].as_str() {
        return format!("\"{word}\"");
    }
    if let Some(words) = one["enum"].as_array() {
        return words.iter().map(Json::to_string).collect::<Vec<_>>().join(", ");
    }
    for list in ["anyOf", "oneOf"] {
        if let (Some(ones), None) = (one[list].as_array(), one.get("properties")) {
            let mut values: Vec<String> = ones.iter().map(|one| value_within(schema, one, own)).collect();
            values.dedup();
            return values.join(", ");
        }
    }
    let kind = match one["type"].as_str() {
        Some("object") => "table",
        Some("array") => "list",
        Some("boolean") => "true, false",
        Some(kind) => kind,
        None => "table",
    };
    if let Some(allowed) = allowed(one) {
        return format!("{kind}, {allowed}");
    }
    let number = kind == "integer" || kind == "number";
    match if number && own != (None, None) {
        own
    } else {
        limits(one)
    } {
        (None, None) => kind.to_string(),
        bounds => format!("{kind}, {}", shown_range(bounds)),
    }
}
