// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine models that come with the binary.
use plimsoll_scenario::{find, machine, read, MachineFile, Tree};

#[test]
fn every_model_is_read() {
    for (name, text) in find::machines() {
        let tree = Tree::parse(name, text).unwrap_or_else(|problems| panic!("{problems}"));
        let file: MachineFile = read(&tree).unwrap_or_else(|problems| panic!("{problems}"));
        machine(&file, &tree, &[]).unwrap_or_else(|problems| panic!("{problems}"));
        assert!(!file.description.is_empty(), "{name} says which machine it is");
    }
}

/// Every number in a model comes from somewhere (ARCHITECTURE.md).
#[test]
fn every_number_of_a_model_has_a_source() {
    fn unsourced(value: &serde_json::Value, path: String, found: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(map) => {
                if map
                    .get("source")
                    .is_some_and(|source| source.as_str().is_some_and(|text| !text.is_empty()))
                {
                    return;
                }
                for (key, value) in map {
                    unsourced(value, format!("{path}.{key}"), found);
                }
            }
            serde_json::Value::Array(items) => {
                items
                    .iter()
                    .enumerate()
                    .for_each(|(i, item)| unsourced(item, format!("{path}.{i}"), found));
            }
            serde_json::Value::Number(_) | serde_json::Value::Bool(_) => found.push(path),
            _ => {}
        }
    }
    for (name, text) in find::machines() {
        let tree = Tree::parse(name, text).unwrap_or_else(|problems| panic!("{problems}"));
        let mut found = Vec::new();
        unsourced(&tree.root.to_json(), name.to_string(), &mut found);
        assert!(found.is_empty(), "no source for: {}", found.join(", "));
    }
}

/// The virtual machine is one model, whatever number of CPUs it has.
#[test]
fn vm_with_other_numbers_of_cpus_differs_in_nothing_else() {
    let model = |wanted: &str| {
        let (name, text) = find::machines()
            .find(|(name, _)| *name == wanted)
            .expect("a model");
        Tree::parse(name, text)
            .unwrap_or_else(|problems| panic!("{problems}"))
            .root
            .to_json()
    };
    for cpus in [8, 16] {
        let mut expected = model("vm");
        expected["description"] = model(&format!("vm-{cpus}"))["description"].clone();
        expected["topology"]["cores_per_llc"] = cpus.into();
        expected["topology"]["source"] = format!("vm/: -smp {cpus}, QEMU's default topology").into();
        assert_eq!(model(&format!("vm-{cpus}")), expected);
    }
}
