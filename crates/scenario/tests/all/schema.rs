// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The schemas in docs/ are those of the code. UPDATE_EXPECT=1 writes them again.
use expect_test::expect_file;
use plimsoll_scenario::{find, machine_schema, reference, scenario_schema, Scenario};
use std::path::Path;

#[test]
fn the_schemas_in_docs_are_current() {
    expect_file!["../../../../docs/src/reference/scenario.schema.json"]
        .assert_eq(&format!("{:#}\n", scenario_schema()));
    expect_file!["../../../../docs/src/reference/machine.schema.json"]
        .assert_eq(&format!("{:#}\n", machine_schema()));
    expect_file!["../../../../docs/src/reference/scenario-keys.md"].assert_eq(&reference(&scenario_schema()));
}

/// What an editor shows beside a key.
#[test]
fn every_key_is_described() {
    fn look(schema: &serde_json::Value, path: String, found: &mut Vec<String>) {
        match schema {
            serde_json::Value::Object(map) => {
                if let Some(properties) = map.get("properties").and_then(|one| one.as_object()) {
                    for (name, inner) in properties {
                        let described = ["description", "$ref", "const"]
                            .iter()
                            .any(|key| inner.get(key).is_some());
                        if !described {
                            found.push(format!("{path}/{name}"));
                        }
                    }
                }
                map.iter()
                    .for_each(|(key, inner)| look(inner, format!("{path}/{key}"), found));
            }
            serde_json::Value::Array(items) => {
                items
                    .iter()
                    .enumerate()
                    .for_each(|(i, inner)| look(inner, format!("{path}/{i}"), found));
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    look(&scenario_schema(), String::new(), &mut found);
    assert!(found.is_empty(), "no description: {found:#?}");
}

#[test]
fn every_example_is_good() {
    for (name, text) in find::scenarios() {
        let scenario =
            Scenario::parse(name, text, Path::new(""), &[]).unwrap_or_else(|problems| panic!("{problems}"));
        assert!(!scenario.description.is_empty(), "{name} says what it shows");
    }
}
