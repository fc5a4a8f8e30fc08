// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of the grammar and the schema: each with place, value and what is allowed, all at once.
use expect_test::{expect, Expect};
use plimsoll_scenario::{read, Tree};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

/// One field for each kind of value that our files have.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
struct Sample {
    #[schemars(range(min = 1, max = 100))]
    percent: u32,
    ratio: Option<f64>,
    name: Option<String>,
    flag: Option<bool>,
    rule: Option<Rule>,
    quota_us: Option<Quota>,
    #[serde(default)]
    cpus: Vec<u32>,
    #[serde(default)]
    work: BTreeMap<String, Work>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Rule {
    Published,
    Mainline,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[allow(dead_code)]
enum Quota {
    Microseconds(i64),
    Unlimited(Max),
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Max {
    Max,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[allow(dead_code)]
struct Work {
    group: String,
    #[serde(flatten)]
    kind: Kind,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[allow(dead_code)]
enum Kind {
    Spin(Spin),
    Sleep(Sleep),
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
struct Spin {
    threads: u32,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Sleep {
    #[allow(dead_code)]
    every_us: u64,
}

fn check(text: &str, expected: Expect) {
    check_with(text, &[], expected);
}

fn check_with(text: &str, changes: &[&str], expected: Expect) {
    let result = Tree::parse("a.toml", text).and_then(|mut tree| {
        changes.iter().try_for_each(|change| tree.set(change))?;
        read::<Sample>(&tree)
    });
    expected.assert_eq(&match result {
        Ok(sample) => format!("{sample:?}"),
        Err(problems) => problems.to_string(),
    });
}

#[test]
fn a_good_file_is_read() {
    check(
        "percent = 5\nratio = 2\nquota_us = \"max\"\nrule = \"mainline\"\n[work.a]\ngroup = \"g\"\nkind = \"spin\"\nthreads = 2\n",
        expect![[r#"Sample { percent: 5, ratio: Some(2.0), name: None, flag: None, rule: Some(Mainline), quota_us: Some(Unlimited(Max)), cpus: [], work: {"a": Work { group: "g", kind: Spin(Spin { threads: 2 }) }} }"#]],
    );
}

#[test]
fn every_error_is_reported_with_its_line_and_column() {
    check(
        "percent = 0\nratio = \"big\"\nnmae = \"x\"\nflag = 1\nrule = \"main\"\nquota_us = 1.5\ncpus = [1, -1]\n",
        expect![[r#"
            a.toml:1:11: percent: 0: allowed 1 .. 100
            a.toml:2:9: ratio: "big": allowed a number
            a.toml:3:1: nmae: unknown key; did you mean name?
            a.toml:4:8: flag: 1: allowed true or false
            a.toml:5:8: rule: "main": did you mean "mainline"? allowed: published, mainline
            a.toml:6:12: quota_us: 1.5: allowed an integer, or "max"
            a.toml:7:12: cpus.1: -1: allowed 0 .. 4294967295"#]],
    );
}

#[test]
fn a_variant_is_told_by_its_kind_and_only_its_keys_are_allowed() {
    check(
        "percent = 1\n[work.a]\ngroup = \"g\"\nkind = \"spin\"\nevery_us = 3\n[work.b]\nkind = \"slep\"\n[work.c]\ngroup = 1\n",
        expect![[r#"
            a.toml:2:7: work.a: missing: threads
            a.toml:5:1: work.a.every_us: unknown key; known here: group, kind, threads
            a.toml:6:7: work.b: missing: group
            a.toml:7:8: work.b.kind: "slep": did you mean "sleep"? allowed: spin, sleep
            a.toml:8:7: work.c: missing: kind (spin, sleep)
            a.toml:9:9: work.c.group: 1: allowed a string in quotes"#]],
    );
}

#[test]
fn grammar_errors_have_a_place() {
    check(
        "percent = = 5\nname = \"x\n",
        expect![[r#"
        a.toml:1:11: not TOML: extra `=`, expected nothing
        a.toml:1:13: not TOML: unexpected key or value, expected newline, `#`
        a.toml:2:10: not TOML: invalid basic string, expected `"`"#]],
    );
}

#[test]
fn what_no_machine_word_holds_is_refused_as_typed_with_the_range_and_beside_what_else_is_wrong() {
    check(
        "percent = 99_999_999_999_999_999_999\nratio = inf\nname = 2026-01-01\nflag = nan\nquota_us = 1e999\n\
         cpus = [-99999999999999999999, 0xffffffffffffffffff, nan]\nnmae = 1\n",
        expect![[r#"
            a.toml:1:11: percent: 99_999_999_999_999_999_999: allowed 1 .. 100
            a.toml:2:9: ratio: inf: allowed a finite number
            a.toml:3:8: name: 2026-01-01: allowed a string in quotes
            a.toml:4:8: flag: nan: allowed true or false
            a.toml:5:12: quota_us: 1e999: allowed an integer, or "max"
            a.toml:6:9: cpus.0: -99999999999999999999: allowed 0 .. 4294967295
            a.toml:6:32: cpus.1: 0xffffffffffffffffff: allowed 0 .. 4294967295
            a.toml:6:54: cpus.2: nan: allowed an integer, 0 .. 4294967295
            a.toml:7:1: nmae: unknown key; did you mean name?"#]],
    );
    check_with(
        "percent = 1\n",
        &["percent=99999999999999999999", "ratio=nan"],
        expect![[r#"
            --set percent=99999999999999999999: percent: 99999999999999999999: allowed 1 .. 100
            --set ratio=nan: ratio: nan: allowed a finite number"#]],
    );
}

#[test]
fn a_changed_value_is_used() {
    check_with(
        "percent = 1\n[work.a]\ngroup = \"g\"\nkind = \"spin\"\nthreads = 2\n",
        &["work.a.threads=7", "name=x"],
        expect![[
            r#"Sample { percent: 1, ratio: None, name: Some("x"), flag: None, rule: None, quota_us: None, cpus: [], work: {"a": Work { group: "g", kind: Spin(Spin { threads: 7 }) }} }"#
        ]],
    );
}

#[test]
fn an_error_in_a_changed_value_names_the_option() {
    check_with(
        "percent = 1\n",
        &["percent=101"],
        expect!["--set percent=101: percent: 101: allowed 1 .. 100"],
    );
}

#[test]
fn a_change_of_a_misspelt_name_is_an_error_and_not_a_new_table() {
    check_with(
        "percent = 1\n[work.web]\ngroup = \"g\"\nkind = \"spin\"\nthreads = 2\n",
        &["work.wbe.threads=7"],
        expect![[r#"--set work.wbe.threads=7: no "wbe" in the scenario; did you mean web?"#]],
    );
}

#[test]
fn a_change_of_what_is_not_there_says_what_is() {
    for (change, said) in [
        (
            "cpus.5.x=1",
            expect![[r#"--set cpus.5.x=1: no "5" in the scenario; allowed: 0 .. 2"#]],
        ),
        (
            "percent.low.x=1",
            expect![[r#"--set percent.low.x=1: no "low" in the scenario; percent is a value"#]],
        ),
        (
            "work.a.x.y=1",
            expect![[r#"--set work.a.x.y=1: no "x" in the scenario; it has no keys there"#]],
        ),
        (
            "name=6.1",
            expect![[r#"
            a.toml:3:7: work.a: missing: kind (spin, sleep)
            a.toml:3:7: work.a: missing: group
            --set name=6.1: name: 6.1: allowed a string in quotes"#]],
        ),
    ] {
        check_with("percent = 1\ncpus = [1, 2, 3]\n[work.a]\n", &[change], said);
    }
}

#[test]
fn a_name_with_a_dot_is_quoted_in_a_change_as_in_the_file() {
    check_with(
        "percent = 1\n[work.\"a.slice\"]\ngroup = \"g\"\nkind = \"spin\"\nthreads = 2\n",
        &["work.\"a.slice\".threads=7"],
        expect![[
            r#"Sample { percent: 1, ratio: None, name: None, flag: None, rule: None, quota_us: None, cpus: [], work: {"a.slice": Work { group: "g", kind: Spin(Spin { threads: 7 }) }} }"#
        ]],
    );
}

#[test]
fn a_change_without_a_value_is_an_error() {
    check_with(
        "percent = 1\n",
        &["percent"],
        expect!["--set percent: allowed is KEY=VALUE, as in group.web.burst_us=0"],
    );
}

#[test]
fn a_quote_of_a_changed_key_is_closed_around_the_whole_name() {
    for key in ["work.\"a", "work.a\"", "work.\"a\"b", "work.\"", "work.a\"b"] {
        let result = Tree::parse("a.toml", "[work.a]\nthreads = 1\n")
            .and_then(|mut tree| tree.set(&format!("{key}.threads=2")));
        let said = result.expect_err(key).to_string();
        assert!(
            said.contains("has a quote too many; allowed is a whole name in quotes"),
            "{said}"
        );
    }
    check_with(
        "percent = 1\n[work.\"a.b\"]\ngroup = \"g\"\nkind = \"spin\"\nthreads = 2\n",
        &["\"percent\"=7", "work.\"a.b\".\"threads\"=9"],
        expect![[
            r#"Sample { percent: 7, ratio: None, name: None, flag: None, rule: None, quota_us: None, cpus: [], work: {"a.b": Work { group: "g", kind: Spin(Spin { threads: 9 }) }} }"#
        ]],
    );
}
