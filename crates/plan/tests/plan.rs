//! Plans for a synthetic service whose needs are known: 3 ms of work every 10 ms.
use plimsoll_plan::{plan, Goal, Knobs, Options, Plan, Source, Verdict};
use plimsoll_replay::Semantics;
use plimsoll_trace::{example, Loss};
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

fn source() -> (tempfile::TempDir, Source) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("web.trace");
    write_trace(&path, false);
    let source = Source::read(&path, None, None).unwrap();
    (dir, source)
}

fn options(goals: &[&str]) -> Options {
    Options {
        goals: goals.iter().map(|g| g.parse::<Goal>().unwrap()).collect(),
        max_cpus: None,
        knobs: Knobs::ALL,
        semantics: Semantics::Mainline,
        seed: 1,
        replicates: 3,
    }
}

fn found(source: &Source, goals: &[&str]) -> Plan {
    plan(source, &options(goals), &|_, _| {}).unwrap()
}

#[test]
fn recommendation_meets_the_goal_with_what_the_service_needs_and_the_next_cheaper_does_not() {
    let (_dir, source) = source();
    let plan = found(&source, &["p99(request) < 20ms"]);
    assert_eq!(plan.verdict, Verdict::Met);
    assert!(plan.tried >= 150, "{} settings", plan.tried);
    let cpus = plan.recommended.reserved_cpus;
    assert!(
        (0.28..0.6).contains(&cpus),
        "0.3 CPUs are used, {cpus} recommended"
    );
    assert!(plan.recommended.p99_range.unwrap().high < 20e6);
    let cheaper = plan.next_cheaper.expect("less than is used cannot do");
    assert!(cheaper.reserved_cpus < cpus && cheaper.p99_ns >= 20e6);
    assert!(plan.today.limits.quota_us.is_none() && plan.today.p99_ns < 4e6);
    assert!(plan
        .frontier
        .windows(2)
        .all(|w| w[0].reserved_cpus < w[1].reserved_cpus && w[0].p99_ns > w[1].p99_ns));
}

#[test]
fn goal_that_no_setting_meets_is_said_with_the_nearest() {
    let (_dir, source) = source();
    let plan = found(&source, &["p99(request) < 1ms"]);
    assert_eq!(plan.verdict, Verdict::NotMet);
    assert!(
        (plan.recommended.p99_ns / 3e6 - 1.0).abs() < 0.05,
        "3 ms of work take 3 ms: {}",
        plan.recommended.p99_ns
    );
    assert!(plan.recommended.margin < 0.0);
}

#[test]
fn goals_about_throttling_count_as_well() {
    let (_dir, source) = source();
    let loose = found(&source, &["p99(request) < 50ms"]);
    let strict = found(&source, &["p99(request) < 50ms", "throttled < 1%"]);
    assert!(strict.recommended.throttled < 0.01);
    assert!(strict.recommended.reserved_cpus >= loose.recommended.reserved_cpus);
}

#[test]
fn number_of_threads_decides_nothing() {
    let (_dir, source) = source();
    let with = |threads| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        let plan = pool.install(|| found(&source, &["p99(request) < 20ms"]));
        format!("{plan:?}")
    };
    assert_eq!(with(1), with(2));
}

#[test]
fn page_holds_everything_and_loads_nothing() {
    let (_dir, source) = source();
    let options = options(&["p99(request) < 20ms"]);
    let plan = plan(&source, &options, &|_, _| {}).unwrap();
    let settings = plimsoll_plan::paste(&plan.group, &plan.recommended.limits, options.semantics);
    let page = plimsoll_plan::html(&source, &options, &plan, &settings).unwrap();
    assert_eq!(page.matches("<svg").count(), 3);
    assert!(page.contains("cpu.max") && page.contains("recommended"));
    for outside in ["http:", "https:", "src=", "<script", "NaN"] {
        assert!(!page.contains(outside), "{outside}");
    }
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
    let (_dir, source) = source();
    let error = plan(&source, &options(&["p99(apache) < 20ms"]), &|_, _| {})
        .unwrap_err()
        .to_string();
    assert!(error.contains("apache") && error.contains("web"), "{error}");
}
