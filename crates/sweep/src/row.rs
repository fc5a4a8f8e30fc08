// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A run as a row: the fields of its JSON (docs/src/reference/results.md) by their dotted names.
use plimsoll_columns::{Cell, Row};
use plimsoll_report::Run;
use plimsoll_scenario::Scenario;
use plimsoll_sim::{RunError, Simulation};
use serde::Serialize;
use serde_json::Value;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

/// What every row has in columns of its own, and each CPU alone, which may be thousands.
const LEFT_OUT: [&str; 6] = ["label", "scenario", "settings", "description", "seed", "cpus"];

/// Runs a scenario. A run that cannot go on, such as one in which time stands still, has `error` and nothing else.
/// `None`: the flag was set on the way.
pub fn simulate(scenario: &Scenario, cancel: &Arc<AtomicBool>) -> Option<Row> {
    let failed = |error: String| Some(Row::from([("error".to_string(), Cell::Text(error))]));
    let simulation = match Simulation::new(scenario.config()) {
        Ok(simulation) => simulation.cancelled_by(cancel.clone()),
        Err(error) => return failed(error.to_string()),
    };
    match simulation.run(None) {
        Ok(results) => Some(of(&Run::new("", scenario, &results))),
        Err(RunError::Cancelled { .. }) => None,
        Err(error) => failed(error.to_string()),
    }
}

fn of(run: &Run) -> Row {
    let mut row = Row::new();
    if let Value::Object(fields) =
        serde_json::to_value(run).expect("a run has string keys and finite numbers")
    {
        for (name, value) in fields {
            if !LEFT_OUT.contains(&name.as_str()) {
                flatten(&name, value, &mut row);
            }
        }
    }
    row
}

/// What a type serialises as, by the dotted names of its fields; what is null or no number is left out.
pub fn fields(of: &impl Serialize) -> Row {
    let mut row = Row::new();
    flatten(
        "",
        serde_json::to_value(of).expect("string keys and finite numbers, or null"),
        &mut row,
    );
    row
}

fn join(prefix: &str, name: &str) -> String {
    match prefix {
        "" => name.to_string(),
        _ => format!("{prefix}.{name}"),
    }
}

/// A field of a table adds its name, an entry of a list the name that it has.
pub(crate) fn flatten(prefix: &str, value: Value, row: &mut Row) {
    let cell = match value {
        Value::Null => return,
        Value::Bool(flag) => Cell::Flag(flag),
        Value::String(text) => Cell::Text(text),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => Cell::Integer(integer),
            None => Cell::Number(number.as_f64().expect("neither is a number of JSON")),
        },
        Value::Object(fields) => {
            for (name, value) in fields {
                flatten(&join(prefix, &name), value, row);
            }
            return;
        }
        Value::Array(items) => {
            for mut item in items {
                let name = item.as_object_mut().and_then(|fields| fields.remove("name"));
                let name = name
                    .as_ref()
                    .and_then(Value::as_str)
                    .expect("groups, workloads and what they count are named");
                flatten(&join(prefix, name), item, row);
            }
            return;
        }
    };
    row.insert(prefix.to_string(), cell);
}
