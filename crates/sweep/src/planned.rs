// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A plan as a row: the fields of its JSON (docs/src/reference/plan.md) by their dotted names, without the frontier.
use crate::row::{fields, flatten};
use plimsoll_columns::{Cell, Row};
use plimsoll_plan::{Answer, Candidate, Other, Verdict};
use serde_json::Value;

/// A setting and what it gives. What goals speak of is in `goals.N.value`, with the range beside it where it is known.
pub fn candidate(of: &Candidate) -> Row {
    let mut value = serde_json::to_value(of).expect("a candidate has string keys");
    let all = value.as_object_mut().expect("a candidate is a table");
    let lists = ["values", "ranges"].map(|name| match all.remove(name) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    });
    let mut row = fields(&value);
    let [values, ranges] = lists;
    for (number, value) in values.into_iter().enumerate() {
        flatten(&format!("goals.{number}.value"), value, &mut row);
    }
    for (number, range) in ranges.into_iter().enumerate() {
        flatten(&format!("goals.{number}"), range, &mut row);
    }
    row
}

/// All of it.
pub fn planned(answer: &Answer) -> Row {
    let plan = &answer.plan;
    let mut row = Row::from([
        ("verdict".into(), Cell::Text(verdict(plan.verdict))),
        ("self_check_holds".into(), Cell::Flag(answer.holds())),
        ("for".into(), Cell::Text(answer.target.name().into())),
        ("group".into(), Cell::Text(plan.group.clone())),
        ("tried".into(), Cell::Integer(plan.tried as i64)),
        ("request_cpus".into(), Cell::Number(answer.request_cpus())),
        ("variation.low".into(), Cell::Number(plan.variation.low)),
        ("variation.high".into(), Cell::Number(plan.variation.high)),
    ]);
    for (number, goal) in plan.goals.iter().enumerate() {
        row.insert(format!("goals.{number}"), Cell::Text(goal.clone()));
    }
    let mut add = |name: &str, of: &Candidate| {
        let cells = candidate(of);
        row.extend(
            cells
                .into_iter()
                .map(|(field, cell)| (format!("{name}.{field}"), cell)),
        );
    };
    add("recommended", &plan.recommended);
    add("today", &plan.today);
    if let Some(cheaper) = &plan.next_cheaper {
        add("next_cheaper", cheaper);
    }
    for (name, Other { recommended, .. }) in answer.others() {
        add(&format!("others.{name}"), recommended);
    }
    row
}

/// The name that JSON has for it.
pub fn verdict(of: Verdict) -> String {
    match serde_json::to_value(of) {
        Ok(Value::String(name)) => name,
        other => unreachable!("a verdict is a name: {other:?}"),
    }
}
