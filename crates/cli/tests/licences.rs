//! Every crate that the lock file pins has a licence that deny.toml allows.
use std::path::Path;
use std::process::Command;

/// Whether an SPDX expression can be met from `allowed`. `A/B` is the older spelling of `A OR B`. No licence
/// here nests deeper than one pair of parentheses.
fn allowed(expression: &str, list: &[String]) -> bool {
    let plain = expression.replace('/', " OR ");
    let conjuncts = |part: &str| {
        part.split(" AND ")
            .all(|one| list.iter().any(|a| a == one.trim().trim_matches(&['(', ')'][..])))
    };
    if let Some((left, right)) = plain.split_once(") AND ") {
        return allowed(left.trim_start_matches('('), list) && allowed(right, list);
    }
    if let Some((left, right)) = plain.split_once(" AND (") {
        return allowed(left, list) && allowed(right.trim_end_matches(')'), list);
    }
    plain.split(" OR ").any(conjuncts)
}

#[test]
fn every_dependency_has_an_allowed_licence() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let deny: toml::Table = std::fs::read_to_string(root.join("deny.toml"))
        .expect("deny.toml")
        .parse()
        .expect("TOML");
    let list: Vec<String> = deny["licenses"]["allow"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|l| l.as_str().expect("a string").to_string())
        .collect();
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--filter-platform",
            "x86_64-unknown-linux-gnu",
        ])
        .current_dir(&root)
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("a list");
    assert!(packages.len() > 10);
    let refused: Vec<String> = packages
        .iter()
        .filter(|p| !p["license"].as_str().is_some_and(|l| allowed(l, &list)))
        .map(|p| format!("{} {}: {}", p["name"], p["version"], p["license"]))
        .collect();
    assert!(
        refused.is_empty(),
        "not in deny.toml's list:\n{}",
        refused.join("\n")
    );
}
