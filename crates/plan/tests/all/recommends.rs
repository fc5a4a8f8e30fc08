// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a plan recommends, and what it says of the other settings.
use crate::service::{found, of_costs, options, read, source};
use plimsoll_plan::{plan, Recordings, Verdict, ONE};
use plimsoll_replay::Semantics;
use plimsoll_trace::example::{self, switch, waking, MS};
use plimsoll_trace::{Context, Event, Header, State};

#[test]
fn recommendation_meets_the_goal_with_what_the_service_needs_and_the_next_cheaper_does_not() {
    let source = source();
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
    assert!(cheaper.reserved_cpus < cpus && !cheaper.meets);
    assert!(
        cheaper.p99_ns >= Some(20e6) || cheaper.too_little_cpu,
        "{cheaper:?}"
    );
    assert!(plan.today.limits.quota_us.is_none() && plan.today.p99_ns < Some(4e6));
    assert!(plan
        .frontier
        .windows(2)
        .all(|w| w[0].reserved_cpus < w[1].reserved_cpus && w[0].p99_ns > w[1].p99_ns));
}

/// 1 ms each 10 ms in the first third, 5 ms after it: the search sees the first third only.
#[test]
fn setting_that_meets_a_goal_in_the_beginning_only_is_not_recommended() {
    let work_ns = |i: i64| if i < 100 { MS } else { 5 * MS };
    let source = read(&[example::open_loop_of(300, work_ns)]).unwrap();
    let mut options = options(&["p50(request) < 8ms"]);
    options.searched = 80;
    let plan = plan(&source, &options, &|_, _| {}).unwrap();
    let cheapest = &plan.frontier[0];
    assert!(
        cheapest.reserved_cpus < 0.5 && cheapest.p50_ns < Some(8e6),
        "{cheapest:?}"
    );
    assert_eq!(plan.verdict, Verdict::Met);
    let found = &plan.recommended;
    assert!(
        (0.5..1.2).contains(&found.reserved_cpus) && found.p50_range.unwrap().high < 8e6,
        "{found:?}"
    );
}

#[test]
fn goal_that_no_setting_meets_is_said_with_the_nearest() {
    let source = source();
    let plan = found(&source, &["p99(request) < 1ms"]);
    assert_eq!(plan.verdict, Verdict::NotMet);
    assert!(
        (plan.recommended.p99_ns.unwrap() / 3e6 - 1.0).abs() < 0.05,
        "3 ms of work take 3 ms: {:?}",
        plan.recommended.p99_ns
    );
    assert!(plan.recommended.margin < 0.0);
}

/// Web computes nearly always on both CPUs, a job of another group now and then between: nothing but all of the machine
/// will do, and what little the job gets makes no difference.
fn nearly_all_of_the_machine() -> Recordings {
    let us = MS / 1000;
    let threads = [(10, "web", 1), (11, "web", 1), (30, "job", 2)];
    let mut header = example::header(16_000 * MS, &threads);
    let job = plimsoll_trace::Group {
        path: "/job".into(),
        ..Default::default()
    };
    header.groups.push(job);
    let mut events = Vec::new();
    for (cpu, tid) in [(0, 10), (1, 11)] {
        let mut at = MS;
        for round in 0.. {
            let end = at + 97 * MS + round * 7919 % 13 * 70 * us;
            if end > 15_800 * MS {
                break;
            }
            events.extend([
                waking(at, cpu, tid, 0, Context::Timer),
                switch(at + 2 * us, cpu, 0, State::Runnable, tid),
                switch(end, cpu, tid, State::Sleeping, 0),
            ]);
            if cpu == 1 {
                events.extend([
                    waking(end + 100 * us, 1, 30, 0, Context::Timer),
                    switch(end + 102 * us, 1, 0, State::Runnable, 30),
                    switch(end + 500 * us, 1, 30, State::Sleeping, 0),
                ]);
            }
            at = end + MS + round * 7907 % 17 * us;
        }
    }
    events.sort_by_key(|e| e.ts_ns);
    read(&[(header, events)]).unwrap()
}

#[test]
fn weight_and_headroom_that_change_nothing_stay_what_they_are() {
    let source = nearly_all_of_the_machine();
    for (goal, verdict) in [
        ("p99(request) < 150ms", Verdict::Met),
        ("p99(request) < 110ms", Verdict::MetNarrowly),
        ("p99(request) < 90ms", Verdict::NotMet),
    ] {
        for semantics in [Semantics::Mainline, Semantics::Published] {
            let mut options = options(&[goal]);
            options.semantics = semantics;
            let plan = plan(&source, &options, &|_, _| {}).unwrap();
            let [today, own] = [&plan.today, &plan.recommended].map(|c| c.limits);
            assert_eq!(plan.verdict, verdict, "{goal}, {semantics:?}");
            assert_eq!(
                (own.weight, own.headroom_percent),
                (today.weight, today.headroom_percent),
                "{goal}, {semantics:?}: {own}"
            );
        }
    }
}

#[test]
fn no_setting_is_above_the_most_that_may_be_given() {
    let source = source();
    for max_cpus in [0.01, 0.01025, 0.0198, 0.03, 0.33] {
        let mut options = options(&["p99(request) < 100s"]);
        options.max_cpus = Some(max_cpus);
        let plan = plan(&source, &options, &|_, _| {}).unwrap();
        let all = plan.frontier.iter().chain([&plan.recommended]);
        for candidate in all {
            assert!(
                candidate.reserved_cpus <= max_cpus * 1.01,
                "{:?}",
                candidate.limits
            );
        }
    }
}

#[test]
fn goals_about_throttling_count_as_well() {
    let source = source();
    let loose = found(&source, &["p99(request) < 50ms"]);
    let strict = found(&source, &["p99(request) < 50ms", "throttled < 1%"]);
    assert!(strict.recommended.throttled < 0.01);
    assert!(strict.recommended.reserved_cpus >= loose.recommended.reserved_cpus);
    // Where no replay has a throttled period none is expected, so that even this can be met in nine of ten runs.
    let none = found(&source, &["throttled <= 0%"]);
    let range = none.recommended.throttled_range.unwrap();
    assert_eq!((none.verdict, range.low, range.high), (Verdict::Met, 0.0, 0.0));
    let cpus = none.recommended.cpus_range.unwrap();
    assert!(cpus.high >= 0.3 * (1.0 + ONE) * 1.019, "{cpus:?}");
}

#[test]
fn todays_setting_is_under_the_rules_of_the_kernel_that_runs_it() {
    let (mut header, events) = example::open_loop(300);
    header.groups[1].quota_us = Some(3_200);
    header.groups[1].period_us = Some(10_000);
    let source = read(&[(header, events)]).unwrap();
    let with = |semantics| {
        let mut options = options(&["p99(request) < 20ms"]);
        options.semantics = semantics;
        plan(&source, &options, &|_, _| {}).unwrap()
    };
    let (mainline, published) = (with(Semantics::Mainline), with(Semantics::Published));
    assert_eq!(format!("{:?}", published.today), format!("{:?}", mainline.today));
    // Elsewhere the two are not alike.
    assert_ne!(
        format!("{:?}", published.frontier),
        format!("{:?}", mainline.frontier)
    );
}

#[test]
fn number_of_threads_decides_nothing() {
    let source = of_costs(&[2900, 3000, 3200]);
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
    let source = source();
    let options = options(&["p99(request) < 20ms", "mean(web) < 20ms"]);
    let plan = plan(&source, &options, &|_, _| {}).unwrap();
    let settings = plimsoll_plan::paste(
        &plan.group,
        &[],
        &plan.today.limits,
        &plan.recommended.limits,
        0.3,
        options.semantics,
        Some(2),
    );
    let warnings = ["not <quite>".to_string()];
    let page = plimsoll_plan::html(&source, &options, &plan, &settings, &warnings).unwrap();
    assert!(page.contains("not &lt;quite&gt;"));
    assert_eq!(page.matches("<svg").count(), 3);
    assert!(page.contains("cpu.max") && page.contains("recommended"));
    assert!(page.contains("<th>mean(web) range ms<th>throttled<th>goals</tr>"));
    for outside in ["http:", "https:", "src=", "<script", "NaN"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn whoever_cannot_be_told_the_recommendation_gets_the_best_that_can() {
    use plimsoll_plan::Target;
    let source = read(&[example::open_loop_of(300, |round| match round % 10 {
        0 => 7_800_000,
        _ => 2_000_000,
    })])
    .unwrap();
    let goals = ["p99(request) < 12ms", "throttled < 25%"];
    let mut all = options(&goals);
    all.knobs = Target::Cgroup.knobs();
    all.others = vec![Target::Docker.knobs(), Target::Kubernetes.knobs()];
    let all = plan(&source, &all, &|_, _| {}).unwrap();
    assert_eq!((all.verdict, all.others.len()), (Verdict::Met, 2));
    let mut dearest = all.recommended.reserved_cpus;
    let mut limits = all.recommended.limits;
    for (other, target) in all.others.iter().zip([Target::Docker, Target::Kubernetes]) {
        if let Some(other) = other {
            assert_eq!(other.verdict, Verdict::Met);
            // The same search within what the target can say finds no more than a step of it dearer or cheaper.
            assert!(other.recommended.reserved_cpus >= dearest * 0.95, "{target}");
            (dearest, limits) = (other.recommended.reserved_cpus, other.recommended.limits);
        }
        assert_eq!(limits.burst_us, 0, "{target}");
    }
    assert!(limits
        .quota_us
        .is_none_or(|us| limits.period_us == 100_000 && us % 100 == 0));
    // Asked for one target, nothing that it cannot say is tried.
    let mut own = options(&goals);
    own.knobs = Target::Kubernetes.knobs();
    let own = plan(&source, &own, &|_, _| {}).unwrap();
    let shown = own.frontier.iter().chain([&own.recommended]);
    for limits in shown.map(|c| c.limits) {
        assert!(limits.burst_us == 0 && limits.period_us == 100_000, "{limits}");
        assert!(limits.quota_us.is_none_or(|us| us % 100 == 0), "{limits}");
    }
}

/// 20 requests of 2.99 ms, 5 ms apart, then 200 ms of nothing: a closed loop.
fn bunches() -> (Header, Vec<Event>) {
    let mut events = vec![switch(1, 1, 20, State::Sleeping, 0)];
    let mut at = MS;
    for round in 0..400 {
        let begin = at + (round * 7919 % 13) * 1000;
        events.push(waking(begin, 1, 20, 0, Context::Timer));
        events.push(switch(begin + 20, 1, 0, State::Runnable, 20));
        events.push(switch(begin + 20 + 2_990_000, 1, 20, State::Sleeping, 0));
        at += if round % 20 == 19 { 205 * MS } else { 5 * MS };
    }
    (example::header(at + 5 * MS, &[(20, "web", 1)]), events)
}

/// The roomiest setting of the median recording is throttled in the other one; those with less room are not.
#[test]
fn nothing_that_meets_the_goals_is_called_a_miss() {
    let both = read(&[example::open_loop(600), bunches()]).unwrap();
    let plan = found(&both, &["p99(request) < 3.2ms"]);
    assert_eq!(plan.verdict, Verdict::MetNarrowly);
    assert!(
        plan.recommended.meets && plan.recommended.margin > 0.0,
        "{:?}",
        plan.recommended.limits
    );
}
