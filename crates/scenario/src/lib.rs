// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scenario and machine files: TOML in, what the simulator takes out; every error with its place.
//!
//! A file goes through three stages. `tree` parses it and keeps positions; `check` holds it against the JSON schema of
//! the Rust types and reports every unknown key, wrong kind and value out of range at once; only then serde makes the
//! types. What is left, such as a group that does not exist, is found where the types are resolved.
mod check;
mod file;
pub mod find;
mod kernel;
mod limits;
mod machine;
mod problem;
mod reference;
mod resolve;
mod switches;
mod tree;

pub use file::{ChangeTable, CpuList, GroupTable, Quota, ScenarioFile, WorkloadTable};
pub use kernel::{stand_in, Kernel, KernelTable};
pub use machine::{machine, MachineChoice, MachineFile};
pub use problem::{nearest, Problem, Problems};
pub use reference::reference;
pub use resolve::{Scenario, ScenarioGroup, ScenarioWorkload};
pub use switches::{
    BurstSemantics, CgroupModeChoice, EnforceChoice, FairChoice, SwitchesTable, WakeSearchChoice,
};
pub use tree::Tree;

use serde_json::Value as Json;

/// JSON schema of scenario files.
pub fn scenario_schema() -> Json {
    schema_of::<ScenarioFile>()
}

/// JSON schema of machine files.
pub fn machine_schema() -> Json {
    schema_of::<MachineFile>()
}

/// JSON schema of a type, as TOML can fill it: there is no null.
pub fn schema_of<T: schemars::JsonSchema>() -> Json {
    let mut schema = schemars::schema_for!(T).to_value();
    drop_null(&mut schema);
    schema
}

/// Checks a parsed file against the schema of `T` and makes a `T` of it.
pub fn read<T: serde::de::DeserializeOwned + schemars::JsonSchema>(tree: &Tree) -> Result<T, Problems> {
    let problems = check::check(tree, &schema_of::<T>());
    if !problems.is_empty() {
        return Err(Problems::sorted(problems));
    }
    // What the schema lets through and serde does not is a difference between the two; it still gets a message.
    serde_json::from_value(tree.root.to_json()).map_err(|error| Problems::one(tree.name(), error.to_string()))
}

/// Takes out the null that schemars gives to every `Option`.
fn drop_null(schema: &mut Json) {
    match schema {
        Json::Array(items) => items.iter_mut().for_each(drop_null),
        Json::Object(map) => {
            map.values_mut().for_each(drop_null);
            if let Some(Json::Array(kinds)) = map.get_mut("type") {
                kinds.retain(|kind| kind != "null");
                if kinds.len() == 1 {
                    let kind = kinds.remove(0);
                    map.insert("type".to_string(), kind);
                }
            }
            for list in ["anyOf", "oneOf"] {
                let Some(Json::Array(ones)) = map.get_mut(list) else {
                    continue;
                };
                let before = ones.len();
                ones.retain(|one| one.get("type").and_then(Json::as_str) != Some("null"));
                if ones.len() == 1 && before == 2 {
                    let Json::Object(inner) = ones.remove(0) else {
                        continue;
                    };
                    map.remove(list);
                    for (key, value) in inner {
                        map.entry(key).or_insert(value);
                    }
                }
            }
        }
        _ => {}
    }
}
