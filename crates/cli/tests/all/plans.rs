// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plans as a user meets them: what is recommended, for whom, and that no goal is said to be met that is not.
use crate::common::traces::{file, good, run, shows_no_latency, trace};
use plimsoll_trace::example::{self, switch, waking, MS};
use plimsoll_trace::{Context, State};

/// A job that never waits; another thread takes its CPU for a millisecond, ten times a second.
#[test]
fn group_without_requests_is_planned_for_throttling() {
    let mut events = vec![switch(1, 1, 0, State::Runnable, 20)];
    for round in 1..100 {
        let at = round * 100 * MS;
        events.extend([
            waking(at, 1, 30, 0, Context::Timer),
            switch(at + 1000, 1, 20, State::Runnable, 30),
            switch(at + MS, 1, 30, State::Sleeping, 20),
        ]);
    }
    let header = example::header(10_000 * MS, &[(20, "encoder", 1), (30, "other", 0)]);
    let job = trace("job.trace", &(header, events));
    let words = [
        "no requests",
        "no latency is shown: ",
        "no request is found",
        "limit /web to 1.",
    ];
    let (out, _) = run(&["plan", &job, "--goal", "throttled <= 1%"], 0);
    for word in words {
        assert!(out.contains(word), "{word:?} is not in: {out}");
    }
    let (json, _) = run(&["plan", &job, "--goal", "throttled <= 1%", "--json"], 0);
    let found: serde_json::Value = serde_json::from_str(&json).unwrap();
    let best = &found["plan"]["recommended"];
    assert!(
        best["p99_ns"].is_null() && best["throttled"].as_f64() <= Some(0.01),
        "{best}"
    );
    let cpus = best["reserved_cpus"].as_f64().unwrap();
    assert!((1.0..1.3).contains(&cpus), "{best}");
    let (explained, _) = run(&["explain", &job, "--limit", "0.5"], 0);
    assert!(
        explained.contains("encoder") && !explained.contains("requests\n"),
        "{explained}"
    );
    shows_no_latency(&job, &["no request is found", "--request"]);
}

#[test]
fn plan_says_what_go_makes_of_the_limit_it_recommends() {
    let (mut header, events) = example::open_loop(300);
    header.threads.push(plimsoll_trace::Thread {
        tid: 30,
        tgid: Some(30),
        comm: "elsewhere".into(),
        group: Some(0),
        from_ns: 0,
    });
    let process = |tgid, go: &str| plimsoll_trace::Process { tgid, go: go.into() };
    header.processes = vec![process(20, "go1.25.3"), process(30, "go1.20")];
    let trace = trace("go.trace", &(header, events));
    let (out, _) = run(&["plan", &trace, "--goal", "p99(request) < 20ms", "--json"], 0);
    assert!(
        out.contains("Go 1.25 will set GOMAXPROCS to 2 under this limit"),
        "{out}"
    );
    assert!(!out.contains("Go 1.20"), "of another group: {out}");
}

#[test]
fn good_trace_passes_its_own_check_and_gets_a_plan() {
    let trace = good("good.trace");
    let most = [
        "plan",
        &trace,
        "--goal",
        "p99(request) < 20ms",
        "--max-cpus",
        "4000",
    ];
    let (_, err) = run(&most, 0);
    assert!(
        err.starts_with("note: --max-cpus 4000: the recorded machine has "),
        "{err}"
    );
    let (out, _) = run(&["simulate", "--replay", &trace], 0);
    assert!(out.contains("self-check") && !out.contains("MISSED"), "{out}");
    let plan = ["plan", &trace, "--goal", "p99(request) < 20ms"];
    let (out, _) = run(&plan, 0);
    assert!(out.lines().count() <= 25, "more than a screen: {out}");
    assert!(
        out.lines().all(|line| line.chars().count() <= 100),
        "wider than a screen: {out}"
    );
    for word in [
        "recorded",
        "trust     yes",
        "throttled < 25% (the last by default)",
        "limit /web to",
        "today",
        "--verbose",
    ] {
        assert!(out.contains(word), "{word:?} is not in: {out}");
    }
    let (out, _) = run(&[&plan[..], &["--verbose"]].concat(), 0);
    for word in [
        "recommended",
        "next cheaper",
        "cpu.max",
        "CPUQuota=",
        "one replay each",
        "too little CPU",
        "docker",
    ] {
        assert!(out.contains(word), "{word:?} is not in: {out}");
    }
}

/// Waits that nothing in the recording explains, so that no replay can show them.
#[test]
fn a_recording_that_its_replay_does_not_show_gets_no_limit_and_is_told_what_to_do_instead() {
    let (header, mut events) = example::open_loop(300);
    for round in (0..300).step_by(25) {
        // Woken, on its CPU, off it: three events a round after the first.
        for event in &mut events[2 + 3 * round..][..2] {
            event.ts_ns += 5 * MS;
        }
    }
    let trace = trace("unexplained.trace", &(header, events));
    let plan = ["plan", &trace, "--goal", "p99(request) < 20ms"];
    let (out, _) = run(&[&plan[..], &["--verbose"]].concat(), 1);
    for word in ["trust     NO", "do        nothing yet", "Record again", "0.6"] {
        assert!(out.contains(word), "{word:?} is not in: {out}");
    }
    for word in ["cpu.max", "cpu.cfs_quota_us", "CPUQuota=", "docker"] {
        assert!(!out.contains(word), "{word:?} is in: {out}");
    }
    let (out, _) = run(&plan, 1);
    assert!(!out.contains("recommended"), "{out}");
    let (out, _) = run(&[&plan[..], &["--json"]].concat(), 1);
    let json: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(json["settings"].as_array().map(Vec::len), Some(0), "{out}");
    let explain = ["explain", &trace, "--limit", "0.5"];
    let (out, _) = run(&explain, 1);
    let said = "The replay does not show what was recorded: p99 latency";
    assert!(out.contains(said), "{out}");
    let (out, _) = run(&[&explain[..], &["--json"]].concat(), 1);
    let json: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(json["self_check_holds"], false, "{out}");
}

#[test]
fn goal_for_a_latency_is_refused_where_all_threads_are_idle() {
    let header = example::header(100 * MS, &[(20, "web", 1)]);
    let events = vec![
        switch(1, 1, 20, State::Sleeping, 0),
        waking(90 * MS, 1, 20, 0, Context::Timer),
    ];
    let trace = trace("idle.trace", &(header, events));
    let (out, err) = run(&["plan", &trace, "--goal", "p99(request) < 20ms"], 2);
    assert!(
        out.is_empty() && err.contains("no request is found"),
        "{out}{err}"
    );
}

#[test]
fn a_group_of_which_nothing_ran_is_named_with_what_to_record() {
    let mut header = example::header(100 * MS, &[(20, "web", 1)]);
    header.only_below = Some("/web".into());
    let trace = trace("nothing.trace", &(header, Vec::new()));
    let (out, err) = run(&["plan", &trace, "--goal", "p99(request) < 20ms"], 2);
    assert!(
        out.is_empty() && err.contains("none of /web did") && err.contains("/proc/PID/cgroup"),
        "{out}{err}"
    );
}

#[test]
fn goal_that_cannot_be_met_is_said_with_the_nearest_and_exit_code_1() {
    let trace = good("unmet.trace");
    let (out, _) = run(&["plan", &trace, "--goal", "p99(request) < 1ms"], 1);
    assert!(out.contains("None of") && out.contains("nearest"), "{out}");
    assert!(
        !out.contains("recommended ") && out.contains("  nearest "),
        "{out}"
    );
    let (out, _) = run(
        &[
            "plan",
            &trace,
            "--goal",
            "p99(request) < 20ms",
            "--max-cpus",
            "0.1",
        ],
        1,
    );
    assert!(out.contains("None of"), "a tenth of a CPU is not 0.3: {out}");
    assert!(
        !out.contains("no limit") || out.matches("no limit").count() == 1,
        "no limit is more than was allowed; only today's setting is shown: {out}"
    );
}

#[test]
fn bad_goals_and_names_are_refused_with_what_is_allowed() {
    let trace = good("names.trace");
    for (args, words) in [
        (vec!["--goal", "p99(request) is low"], "p99(request) is low"),
        (vec!["--goal", "p101(request) < 5ms"], "p101"),
        (vec!["--goal", "p99(apache) < 5ms"], "web"),
        (
            vec!["--goal", "p99(request) < 5ms", "--group", "/nowhere"],
            "/web",
        ),
        (
            vec!["--goal", "p99(request) < 5ms", "--request", "comm"],
            "client:",
        ),
        (
            vec!["--goal", "p99(request) < 5ms", "--max-cpus", "0"],
            "--max-cpus",
        ),
    ] {
        let mut all = vec!["plan", trace.as_str()];
        all.extend(args);
        let (out, err) = run(&all, 2);
        assert!(
            out.is_empty() && err.contains(words),
            "{all:?}: {words:?} is not in: {err}"
        );
    }
    let set = "group./web.quota=5";
    let (_, err) = run(&["simulate", "--replay", &trace, "--set", set], 2);
    assert!(err.contains("quota_us"), "{err}");
    for knob in [
        "weight=50",
        "period_us=5000",
        "burst_us=5000",
        "headroom_percent=50",
    ] {
        let set = format!("group./.{knob}");
        let (out, err) = run(&["simulate", "--replay", &trace, "--set", &set], 2);
        assert!(
            out.is_empty() && err.contains("no knobs on the root group"),
            "{set}: {err}"
        );
    }
}

#[test]
fn a_target_gets_what_it_can_say_and_the_price_of_it() {
    let trace = good("target.trace");
    let plan = [
        "plan",
        &trace,
        "--goal",
        "p99(request) < 20ms",
        "--price-per-core",
        "20",
    ];
    let kubernetes = [&plan[..], &["--for", "kubernetes"]].concat();
    let (out, _) = run(&kubernetes, 0);
    assert!(
        out.lines().count() <= 25 && out.lines().all(|line| line.chars().count() <= 100),
        "{out}"
    );
    assert!(
        out.contains("--subresource resize") && !out.contains("maxAllowed"),
        "{out}"
    );
    let (out, _) = run(&[&kubernetes[..], &["--verbose"]].concat(), 0);
    for word in ["--subresource resize", "maxAllowed", "a month", "/100 "] {
        assert!(out.contains(word), "{word:?} is not in: {out}");
    }
    assert!(!out.contains("burst") && !out.contains("cpu.max "), "{out}");
    let (out, err) = run(&[&plan[..], &["--for", "mesos"]].concat(), 2);
    assert!(out.is_empty() && err.contains("kubernetes+agent"), "{err}");
    let (out, err) = run(
        &[&plan[..4], &["--for", "docker", "--semantics", "published"]].concat(),
        2,
    );
    assert!(out.is_empty() && err.contains("--semantics"), "{err}");
}

#[test]
fn goal_for_more_than_the_requests_can_tell_is_refused_before_anything_is_printed() {
    let trace = trace("few-requests.trace", &example::open_loop(100));
    let (out, err) = run(&["plan", &trace, "--goal", "p99(request) < 20ms"], 2);
    assert!(
        out.is_empty() && err.contains("100 requests") && err.contains("299"),
        "{out}{err}"
    );
}

#[test]
fn several_recordings_say_how_much_they_differ_and_warn_where_nothing_is_safe() {
    let of = |name: &str, us: i64| trace(name, &example::open_loop_of(300, |_| us * 1000));
    let near = [2950, 3000, 3100].map(|us| of(&format!("near-{us}.trace"), us));
    let far = [1000, 3000, 8000].map(|us| of(&format!("far-{us}.trace"), us));
    let goal = ["--goal", "p99(request) < 20ms"];
    let plan = |traces: &[String; 3], more: &[&str]| {
        let mut args = vec!["plan"];
        args.extend(traces.iter().map(String::as_str));
        args.extend(goal.iter().chain(more));
        run(&args, 0).0
    };
    let out = plan(&near, &["--verbose"]);
    assert!(
        out.contains("CPU per request differs by 5.1% between the recordings"),
        "{out}"
    );
    assert!(!out.contains("warning"), "{out}");
    let out = plan(&far, &["--verbose"]);
    assert!(out.contains("warning   no setting is safe"), "{out}");
    assert!(
        out.contains("met, not in costly runs") && !out.contains(" met\n"),
        "{out}"
    );
    let json: serde_json::Value = serde_json::from_str(&plan(&near, &["--json", "-"])).unwrap();
    assert_eq!(json["traces"].as_array().unwrap().len(), 3);
    assert_eq!(json["plan"]["variation"]["cost_ns"].as_array().unwrap().len(), 3);
    assert_eq!(json["median_recording"], 1);
    assert!(json["warning"].is_null());

    let mut args = vec!["simulate", "--set=group./web.quota_us=50000", "--json", "-"];
    near.iter().for_each(|trace| args.extend(["--replay", trace]));
    let json: serde_json::Value = serde_json::from_str(&run(&args, 0).0).unwrap();
    assert_eq!(json["recordings"].as_array().unwrap().len(), 3);
    assert_eq!(json["ranges"]["cases"].as_array().unwrap().len(), 5);
    let (_, err) = run(&["plan", &near[0], &near[0], goal[0], goal[1]], 2);
    assert!(
        err.contains("near-2950.trace") && err.contains("the same one again"),
        "{err}"
    );
}

#[test]
fn plan_is_the_same_each_time_and_its_page_stands_alone() {
    let trace = good("page.trace");
    let plan = |page: &str| {
        run(
            &[
                "plan",
                &trace,
                "--goal",
                "p99(request) < 20ms",
                "--html",
                page,
                "--json",
                "-",
            ],
            0,
        )
        .0
    };
    assert_eq!(plan("a.html"), plan("b.html"));
    let page = std::fs::read_to_string(file("a.html")).unwrap();
    assert_eq!(page, std::fs::read_to_string(file("b.html")).unwrap());
    assert!(page.contains("<svg") && page.contains("default-src 'none'"));
    assert!(!page.contains("http:") && !page.contains("https:"));
}
