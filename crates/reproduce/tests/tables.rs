// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The index, the scenarios and the published figures belong together; runs are repeatable.
use plimsoll_reproduce::run::Work;
use plimsoll_reproduce::{published, Index, Outcome, Row, Verdict};
use std::collections::BTreeSet;
use std::path::PathBuf;

fn dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/published")
}

fn index(rows: &[Row]) -> Index {
    let text = std::fs::read_to_string(dir().join("tables.toml")).unwrap();
    Index::read("tables.toml", &text, rows).unwrap_or_else(|problems| panic!("{problems}"))
}

#[test]
fn every_published_row_has_a_scenario_that_can_be_read_or_a_reason() {
    let all = published::read("results.csv", published::EMBEDDED).unwrap();
    let rows: Vec<&Row> = all.iter().collect();
    let work = Work::plan(&index(&all), &rows, &dir(), &[], 1);
    assert!(work.unwrap_or_else(|problems| panic!("{problems}")).runs() > 100);
}

#[test]
fn a_row_without_a_case_is_an_error_with_its_line() {
    let mut all = published::read("results.csv", published::EMBEDDED).unwrap();
    all[30].parameters = "groups=7".to_string();
    let text = std::fs::read_to_string(dir().join("tables.toml")).unwrap();
    let error = Index::read("tables.toml", &text, &all).unwrap_err().to_string();
    assert!(error.contains("no case for"), "{error}");
    assert!(error.contains(&format!("line {}", all[30].line)), "{error}");
}

#[test]
fn published_figures_that_end_early_and_a_table_given_twice_are_errors() {
    let all = published::read("results.csv", published::EMBEDDED).unwrap();
    let text = std::fs::read_to_string(dir().join("tables.toml")).unwrap();
    let error = |text: &str, rows: &[Row]| Index::read("tables.toml", text, rows).unwrap_err().to_string();
    let cut = error(&text, &all[..100]);
    assert!(
        cut.contains("published figures: 004-headroom: no row of this table"),
        "{cut}"
    );
    let twice = error(&format!("{text}\n{text}"), &all);
    assert!(
        twice.starts_with("tables.toml: 001-schedstat: given twice: allowed is one table of each name"),
        "{twice}"
    );
}

#[test]
fn the_example_of_headroom_is_met_and_two_runs_are_equal() {
    let all = published::read("results.csv", published::EMBEDDED).unwrap();
    let index = index(&all);
    let rows: Vec<&Row> = all.iter().filter(|row| row.table == "004-example").collect();
    let run = || -> Vec<Outcome> {
        let work = Work::plan(&index, &rows, &dir(), &[], 2).unwrap_or_else(|problems| panic!("{problems}"));
        let measured = work.run(|_| {}).unwrap_or_else(|problems| panic!("{problems}"));
        rows.iter()
            .map(|row| Outcome::of(row, &index, &measured))
            .collect()
    };
    let (first, second) = (run(), run());
    let bytes = |outcomes: &[Outcome]| serde_json::to_string(outcomes).unwrap();
    assert_eq!(bytes(&first), bytes(&second));
    assert_eq!(first.len(), 12);
    let units: BTreeSet<(String, &str)> = first
        .iter()
        .map(|one| (one.metric_in(), one.error_unit.as_str()))
        .collect();
    let cell = |metric: &str, unit| (metric.to_string(), unit);
    assert_eq!(
        units,
        BTreeSet::from([
            cell("idle-cpu, % of CPU", "points"),
            cell("low-pri-cpu-cycle, % of CPU", "points"),
        ])
    );
    for one in &first {
        assert_eq!(one.verdict, Verdict::Within, "{} {}", one.metric, one.parameters);
    }
}
