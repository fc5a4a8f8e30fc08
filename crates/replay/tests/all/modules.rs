// SPDX-License-Identifier: Apache-2.0 OR MIT
//! No two modules need each other: types are apart from what builds them, read off the sources.
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Of each file directly in `src`, and the folder of its name: the modules that it names after `crate::`.
fn uses() -> BTreeMap<String, BTreeSet<String>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut folders = vec![(folder, None)];
    while let Some((folder, of)) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let own = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let module: String = of.clone().unwrap_or(own);
            if path.is_dir() {
                folders.push((path, Some(module)));
                continue;
            }
            let text = std::fs::read_to_string(path).unwrap();
            let text = text.split("#[cfg(test)]").next().unwrap();
            let code = text.lines().map(|line| line.split("//").next().unwrap_or(""));
            let found = uses.entry(module).or_default();
            for line in code {
                let named = line.split("crate::").skip(1);
                let name = |rest: &str| {
                    rest.split(|c: char| !c.is_alphanumeric() && c != '_')
                        .next()
                        .unwrap()
                        .to_owned()
                };
                found.extend(named.map(name));
            }
        }
    }
    uses.remove("lib");
    let modules: BTreeSet<String> = uses.keys().cloned().collect();
    for (module, used) in &mut uses {
        used.retain(|other| other != module);
        // What is named by the crate's own exports hides which module it is of.
        assert!(used.is_subset(&modules), "{module} names {used:?} of `crate`");
    }
    uses
}

#[test]
fn no_modules_use_each_other_in_a_circle() {
    let mut left = uses();
    assert!(left.len() > 20, "only {} modules were found", left.len());
    // A module that uses none of those that are left is in no circle.
    while let Some(free) = left
        .iter()
        .find(|(_, used)| used.is_empty())
        .map(|(name, _)| name.clone())
    {
        left.remove(&free);
        for used in left.values_mut() {
            used.remove(&free);
        }
    }
    assert!(left.is_empty(), "circles among: {left:#?}");
}
