// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plans for a synthetic service whose needs are known: 3 ms of work every 10 ms.
use plimsoll_plan::{
    plan, Goal, Knobs, Options, Plan, Recordings, SeenIn, Source, Verdict, DRIFT, ONE, SEARCHED,
};
use plimsoll_replay::Semantics;
use plimsoll_trace::example::{self, switch, waking, MS};
use plimsoll_trace::{Context, Cpu, Event, Header, Loss, State};
use rand::Rng;
use rand_pcg::Pcg64;
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

/// Writes the traces and reads them as recordings of one service.
fn read(traces: &[(Header, Vec<Event>)]) -> Result<Recordings, String> {
    let dir = tempfile::tempdir().unwrap();
    let write = |(ix, (header, events)): (usize, &(Header, Vec<Event>))| {
        let path = dir.path().join(format!("{}.trace", ["a", "b", "c"][ix]));
        example::write(&path, header, events).unwrap();
        path
    };
    let paths: Vec<_> = traces.iter().enumerate().map(write).collect();
    Recordings::read(&paths, None, None).map_err(|e| e.to_string())
}

fn source() -> Recordings {
    read(&[example::open_loop(300)]).unwrap()
}

/// Recordings in which each request takes so many microseconds. Their lengths differ a little, as those of recordings do.
fn of_costs(work_us: &[i64]) -> Recordings {
    let traces: Vec<_> = (0..)
        .zip(work_us)
        .map(|(ix, us)| example::open_loop_of(300 + ix, |_| us * 1000))
        .collect();
    read(&traces).unwrap()
}

fn options(goals: &[&str]) -> Options {
    Options {
        goals: goals.iter().map(|g| g.parse::<Goal>().unwrap()).collect(),
        max_cpus: None,
        knobs: Knobs::ALL,
        others: Vec::new(),
        semantics: Semantics::Mainline,
        seed: 1,
        min_throughput: 0.99,
        replicates: 3,
        searched: SEARCHED,
    }
}

fn found(source: &Recordings, goals: &[&str]) -> Plan {
    plan(source, &options(goals), &|_, _| {}).unwrap()
}

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

/// A queue that grows as long as the service runs meets any goal that is longer than the recording.
#[test]
fn less_than_clients_ask_for_who_do_not_wait_is_never_enough() {
    let source = source();
    for goals in [&["p99(request) < 100s"][..], &["mean(request) < 100s"]] {
        let plan = found(&source, goals);
        assert_eq!(plan.verdict, Verdict::Met);
        let cpus = plan.recommended.reserved_cpus;
        assert!(
            cpus >= 0.3 * (1.0 + ONE) * 0.97,
            "0.3 CPUs are used, {cpus} recommended"
        );
        let less = plan.frontier.iter().filter(|c| c.reserved_cpus < 0.3 * 0.97);
        assert!(less.clone().count() > 0 && less.clone().all(|c| !c.meets && c.margin < 0.0));
        assert!(less.clone().all(|c| c.state() == "too little CPU"));
    }
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

/// A client with a closed loop of short requests on CPUs 0 and 1; on CPUs 2 and 3 a schedule of few long ones, which
/// take 0.5 CPUs.
fn mixed() -> Recordings {
    let us = MS / 1000;
    let threads = [
        (10, "client", 0),
        (20, "fast", 1),
        (11, "load", 0),
        (21, "slow", 1),
    ];
    let mut header = example::header(3000 * MS, &threads);
    let cpu = |cpu| Cpu {
        cpu,
        ..Default::default()
    };
    header.machine.cpus = (0..4).map(cpu).collect();
    let ask = |at: i64, cpu: u32, client: u32, server: u32, work_ns: i64| {
        [
            waking(at, cpu, client, 0, Context::Timer),
            switch(at + us, cpu, 0, State::Runnable, client),
            waking(at + 2 * us, cpu, server, client, Context::Task),
            switch(at + 3 * us, cpu, client, State::Sleeping, 0),
            switch(at + 4 * us, cpu + 1, 0, State::Runnable, server),
            waking(at + 4 * us + work_ns, cpu + 1, client, server, Context::Task),
            switch(at + 5 * us + work_ns, cpu + 1, server, State::Sleeping, 0),
            switch(at + 6 * us + work_ns, cpu, 0, State::Runnable, client),
            switch(at + 7 * us + work_ns, cpu, client, State::Sleeping, 0),
        ]
    };
    let mut events = vec![
        switch(1, 1, 20, State::Sleeping, 0),
        switch(1, 3, 21, State::Sleeping, 0),
    ];
    let (mut at, mut rng) = (MS, Pcg64::new(1, 2));
    while at < 2990 * MS {
        events.extend(ask(at, 0, 10, 20, 100 * us));
        // A sleep is as long whatever was done before; what it is late adds up.
        at += 107 * us + 900 * us + rng.random_range(0..13) * us;
    }
    for round in 0..49 {
        events.extend(ask(
            MS + round * 60 * MS + round * 7919 % 13 * us,
            2,
            11,
            21,
            30 * MS,
        ));
    }
    events.sort_by_key(|e| e.ts_ns);
    read(&[(header, events)]).unwrap()
}

#[test]
fn few_long_requests_that_do_not_wait_need_what_they_take_beside_many_that_do() {
    let source = mixed();
    let program = &source.median().program;
    let counts: Vec<_> = program
        .classes
        .iter()
        .map(|c| (&*c.name, c.open, c.closed))
        .collect();
    assert!(
        matches!(counts[..], [("fast", 0, 2000..), ("slow", 48.., _)]),
        "{counts:?}"
    );
    let plan = found(&source, &["p50(request) < 20ms"]);
    assert_eq!(plan.verdict, Verdict::Met);
    let cpus = plan.recommended.reserved_cpus;
    assert!(
        cpus >= 0.49 * (1.0 + ONE) * 0.97,
        "0.49 CPUs are asked for, {cpus} recommended"
    );
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
fn recommendation_from_several_recordings_holds_in_the_costliest_and_beyond() {
    let goal = &["p99(request) < 20ms"];
    let three = of_costs(&[3000, 2700, 3300]);
    assert_eq!((three.median, three.variation.seen_in), (0, SeenIn::Recordings));
    assert!((three.variation.difference() - 0.222).abs() < 0.001);
    let (all, middle, costliest) = (
        found(&three, goal),
        found(&of_costs(&[3000; 3]), goal),
        found(&of_costs(&[3300; 3]), goal),
    );
    assert_eq!(all.verdict, Verdict::Met);
    let reserved = |plan: &Plan| plan.recommended.reserved_cpus;
    assert!(
        reserved(&all) > reserved(&costliest) && reserved(&costliest) > reserved(&middle),
        "{} {} {}",
        reserved(&all),
        reserved(&costliest),
        reserved(&middle)
    );
    let range = all.recommended.p99_range.unwrap();
    assert!(range.low < 2.9e6 && range.high < 20e6, "{range:?}");
    assert!(
        (all.today.p99_ns.unwrap() / 3e6 - 1.0).abs() < 0.05,
        "{:?}",
        all.today.p99_ns
    );
    let cheaper = all.next_cheaper.as_ref().expect("less than is used cannot do");
    assert!(!cheaper.meets && cheaper.reserved_cpus < reserved(&all));
}

#[test]
fn recordings_that_agree_need_less_than_one_of_them() {
    let goal = &["p99(request) < 20ms"];
    let (same, one) = (of_costs(&[3000, 3000, 3000]), of_costs(&[3000]));
    assert!(same.variation.difference() < 0.01 && same.variation.high == 1.0 + DRIFT);
    let [same, one] = [same, one].map(|r| found(&r, goal).recommended.reserved_cpus);
    assert!((0.8..0.95).contains(&(same / one)), "{same} against {one}");
}

#[test]
fn one_recording_varies_as_its_blocks_do() {
    let uneven = read(&[example::open_loop_of(1000, |round| match round / 100 % 2 {
        0 => 1_800_000,
        _ => 4_200_000,
    })])
    .unwrap();
    let variation = &uneven.variation;
    assert_eq!(variation.seen_in, SeenIn::Blocks);
    // The first tenth of a second is left out: a block holds nine tenths of one second and one of the next.
    assert!(
        (variation.high - 1.32).abs() < 0.01 && (variation.low - 0.68).abs() < 0.01,
        "{variation:?}"
    );
    assert!(uneven.describe().contains("not known"));
    // As much work on average.
    let even = read(&[example::open_loop(1000)]).unwrap();
    assert_eq!(even.variation.high, 1.0 + ONE);
    let goal = &["p99(request) < 20ms"];
    let [uneven, even] = [uneven, even].map(|r| found(&r, goal).recommended.reserved_cpus);
    assert!(uneven > even, "{uneven} against {even}");
}

#[test]
fn recordings_that_agree_on_the_whole_vary_as_their_blocks_do() {
    let uneven = |rounds| {
        example::open_loop_of(rounds, |round| match round / 100 % 2 {
            0 => 2_400_000,
            _ => 3_600_000,
        })
    };
    let three = read(&[uneven(1000), uneven(1001), uneven(1002)]).unwrap();
    assert!(three.variation.difference() < 0.01);
    let (low, high) = (three.variation.low, three.variation.high);
    assert!(
        (high - 1.16).abs() < 0.005 && (low - 0.84).abs() < 0.005,
        "{low} {high}"
    );
}

#[test]
fn too_short_a_recording_says_that_it_does_not_know_its_variation() {
    let short = read(&[example::open_loop(200)]).unwrap();
    assert_eq!(short.variation.seen_in, SeenIn::Nothing);
    assert_eq!((short.variation.high, short.cases().len()), (1.0 + ONE, 3));
    assert!(short.describe().contains("not known"), "{}", short.describe());
}

#[test]
fn recordings_that_differ_too_much_leave_no_safe_setting() {
    let wild = of_costs(&[1000, 3000, 8000]);
    let plan = found(&wild, &["p99(request) < 20ms"]);
    assert_eq!(plan.verdict, Verdict::MetNarrowly);
    assert!(plan.recommended.meets && !plan.recommended.meets_costly);
}

#[test]
fn clients_that_wait_keep_their_requests_a_second() {
    let source = read(&[example::closed_loop(1000)]).unwrap();
    let goals = ["p50(request) < 1s"];
    let kept = found(&source, &goals);
    assert_eq!(kept.verdict, Verdict::Met);
    let share = kept.recommended.rate / kept.today.rate;
    assert!(share >= 0.99, "{share} of the requests, {:?}", kept.recommended);
    // The median alone is met by far less CPU, with far fewer requests.
    let any = Options {
        min_throughput: 0.0,
        ..options(&goals)
    };
    let any = plan(&source, &any, &|_, _| {}).unwrap();
    assert!(any.recommended.reserved_cpus < 0.5 * kept.recommended.reserved_cpus);
    assert!(any.recommended.rate < 0.5 * kept.today.rate);
    let cheaper = kept.next_cheaper.expect("less is missed");
    assert!(cheaper.loses_throughput, "{cheaper:?}");
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

/// A service with a thread for each of `waits`, which has a client of its own that waits for answers, or a timer that does
/// not. Lengths and distances of requests are drawn.
fn drawn(rng: &mut Pcg64, waits: &[bool]) -> (Header, Vec<Event>) {
    let us = MS / 1000;
    let mut threads = Vec::new();
    let mut events = Vec::new();
    let mean_us: i64 = rng.random_range(800..4_000);
    for (ix, &waits) in (0..).zip(waits) {
        let (client, server) = (10 + ix, 20 + ix);
        threads.extend([(client, "client", 0), (server, "web", 1)]);
        events.push(switch(1 + i64::from(ix), 2 * ix + 1, server, State::Sleeping, 0));
        let mut at = MS;
        while at < 2_900 * MS {
            let work = us * mean_us * rng.random_range(30..170) / 100;
            let gap = us * mean_us * rng.random_range(40..400) / 100;
            let context = if waits { Context::Task } else { Context::Timer };
            let (own, waker) = if waits { (2 * ix, client) } else { (2 * ix + 1, 0) };
            if waits {
                events.push(waking(at, own, client, 0, Context::Timer));
                events.push(switch(at + us, own, 0, State::Runnable, client));
            }
            events.push(waking(at + 2 * us, own, server, waker, context));
            if waits {
                events.push(switch(at + 3 * us, own, client, State::Sleeping, 0));
            }
            events.push(switch(at + 4 * us, 2 * ix + 1, 0, State::Runnable, server));
            let end = at + 4 * us + work;
            if waits {
                events.push(waking(end, 2 * ix + 1, client, server, Context::Task));
                events.push(switch(end + 2 * us, own, 0, State::Runnable, client));
                events.push(switch(end + 3 * us, own, client, State::Sleeping, 0));
            }
            events.push(switch(end + us, 2 * ix + 1, server, State::Sleeping, 0));
            at = end + 10 * us + gap;
        }
    }
    events.sort_by_key(|e| e.ts_ns);
    let mut header = example::header(3000 * MS, &threads);
    let cpu = |cpu| Cpu {
        cpu,
        ..Default::default()
    };
    header.machine.cpus = (0..2 * waits.len() as u32).map(cpu).collect();
    (header, events)
}

#[test]
fn recommendation_is_never_below_what_the_recorded_work_took() {
    let mut rng = Pcg64::new(5, 0x7261_6e64_6f6d);
    // The last two need what both take, whichever of them is more than half.
    let kinds: [&[bool]; 4] = [&[false], &[true, true], &[false, true], &[true, false]];
    for (round, waits) in kinds.into_iter().enumerate() {
        let source = read(&[drawn(&mut rng, waits)]).unwrap();
        let program = &source.median().program;
        let used = program.groups[program.target as usize].work_ns as f64 / program.duration_ns as f64;
        // Goals that nearly everything meets.
        for goal in ["p50(request) < 100s", "mean(request) < 100s"] {
            let plan = found(&source, &[goal]);
            assert_ne!(plan.verdict, Verdict::NotMet);
            let cpus = plan.recommended.reserved_cpus;
            assert!(
                cpus >= used * 0.99,
                "round {round}, {waits:?}: {used} CPUs are used, {cpus} recommended for {goal}"
            );
            assert!(plan
                .frontier
                .iter()
                .all(|c| !c.meets || c.reserved_cpus >= used * 0.99));
        }
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
