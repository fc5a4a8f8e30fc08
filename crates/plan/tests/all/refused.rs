// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What no plan is made of is refused, with the reason and what would do.
use crate::service::{options, read, source};
use plimsoll_plan::{plan, Recordings, Source};
use plimsoll_trace::example::{self};
use plimsoll_trace::{Header, Loss};
use std::path::Path;

fn write_trace(path: &Path, lossy: bool) {
    let (mut header, events) = example::open_loop(300);
    if lossy {
        header.losses.push(Loss {
            cpu: Some(0),
            from_ns: 0,
            to_ns: 5,
            count: Some(1000),
        });
    }
    example::write(path, &header, &events).unwrap();
}

/// Where no limit can be set every setting looks as good as none, and the least would be recommended.
#[test]
fn there_is_no_plan_for_the_root_group() {
    let (mut header, events) = example::open_loop(300);
    header.groups.iter_mut().for_each(|group| group.path = "/".into());
    let source = read(&[(header, events)]).unwrap();
    let error = plan(&source, &options(&["p99(request) < 20ms"]), &|_, _| {}).unwrap_err();
    assert!(error.to_string().contains("/ is not allowed"), "{error}");
}

#[test]
fn trace_that_lost_events_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lossy.trace");
    write_trace(&path, true);
    let error = Source::read(&path, None, None)
        .err()
        .expect("1000 events lost of 600")
        .to_string();
    assert!(
        error.contains("lost") && error.contains("cannot be trusted"),
        "{error}"
    );
}

#[test]
fn request_of_an_unknown_name_is_refused_with_the_known_ones() {
    let source = source();
    let error = plan(&source, &options(&["p99(apache) < 20ms"]), &|_, _| {})
        .unwrap_err()
        .to_string();
    assert!(error.contains("apache") && error.contains("web"), "{error}");
}

#[test]
fn percentile_of_few_requests_says_what_it_rests_on() {
    let few = read(&[example::open_loop(300), example::open_loop(19)]).unwrap();
    let said = few.few_requests("p99(request) < 20ms", None).unwrap();
    assert!(said.contains("(19 in") && said.contains("b.trace)"), "{said}");
    assert!(few.few_requests("p99(web) < 20ms", Some("web")).is_some());
    assert_eq!(source().few_requests("p99(request) < 20ms", None), None);
}

#[test]
fn goal_for_a_percentile_of_too_few_requests_is_refused_with_what_would_do() {
    let (one, two) = (example::open_loop(40), example::open_loop(30));
    let few = read(&[one.clone(), two]).unwrap();
    let refused = |source: &Recordings, goal: &str| plan(source, &options(&[goal]), &|_, _| {}).err();
    let error = refused(&few, "p99(request) < 20ms").expect("70 of 299");
    assert!(matches!(error, plimsoll_plan::PlanError::TooFewRequests(_)));
    let said = error.to_string();
    for part in [
        "70 requests",
        "needs 299",
        "5 times as long (4 s in all",
        "p95(request)",
    ] {
        assert!(said.contains(part), "{part:?} is not in: {said}");
    }
    // What is offered is taken; one of the two could not answer it.
    assert!(refused(&few, "p95(request) < 20ms").is_none());
    let alone = read(&[one]).unwrap();
    assert!(refused(&alone, "p95(web) < 20ms")
        .expect("40 of 59")
        .to_string()
        .contains("p92(web)"));
    for goal in ["mean(request) < 20ms", "max(request) < 20ms", "throttled < 5%"] {
        assert!(refused(&alone, goal).is_none(), "{goal}");
    }
}

type Change = fn(&mut Header);

#[test]
fn recordings_that_do_not_fit_together_are_refused_with_what_is_different() {
    let changes: [(&str, Change, &[&str]); 7] = [
        (
            "CPUs",
            |h| h.machine.cpus.truncate(1),
            &["number of CPUs: 1", "2, as in"],
        ),
        (
            "cache",
            |h| h.machine.cpus[1].llc = Some(1),
            &["CPUs", "cache 1", "cache -"],
        ),
        (
            "model",
            |h| h.machine.model = Some("Z80".into()),
            &["model", "Z80"],
        ),
        ("hz", |h| h.machine.hz = Some(1000), &["1000", "250"]),
        (
            "group",
            |h| h.groups[1].path = "/db".into(),
            &["group", "/web", "/db"],
        ),
        (
            "request",
            |h| h.request = Some("comm:web".into()),
            &["request: comm:web", "wake-up chains"],
        ),
        (
            "limit",
            |h| h.groups[1].quota_us = Some(90_000),
            &["quota_us", "90000", "none"],
        ),
    ];
    for (name, change, words) in changes {
        let (mut header, events) = example::open_loop(301);
        change(&mut header);
        let error = read(&[example::open_loop(300), (header, events)])
            .err()
            .unwrap_or_else(|| panic!("{name} differs"));
        for word in ["b.trace"].iter().chain(words) {
            assert!(error.contains(word), "{name}: {word:?} is not in: {error}");
        }
    }
    let error = read(&[example::open_loop(300), example::open_loop(300)])
        .err()
        .unwrap();
    assert!(error.contains("the same one again"), "{error}");
}

#[test]
fn class_of_a_goal_has_to_be_in_every_recording() {
    let (mut header, events) = example::open_loop(301);
    header.threads[0].comm = "other".into();
    let both = read(&[example::open_loop(300), (header, events)]).unwrap();
    let error = plan(&both, &options(&["p99(web) < 20ms"]), &|_, _| {})
        .unwrap_err()
        .to_string();
    assert!(error.contains("web") && error.contains("other"), "{error}");
}
