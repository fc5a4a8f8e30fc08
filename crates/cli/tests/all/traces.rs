// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recorded traces as a user meets them: what plan and simulate --replay make of good, bad and broken ones. No confident
//! answer comes from a trace that cannot be believed, no goal is said to be met that is not.
use crate::common::{plimsoll_in, temporary, temporary_folder};
use plimsoll_trace::example::{self, switch, waking, MS};
use plimsoll_trace::{Context, Event, Header, Loss, Side, SocketOp, Sockets, State, What};
use std::path::PathBuf;
use std::process::{Command, Output};

fn plimsoll(args: &[&str]) -> Output {
    plimsoll_in(&temporary_folder(), args)
}

/// One that was written.
fn file(name: &str) -> PathBuf {
    temporary_folder().join(name)
}

fn trace(name: &str, (header, events): &(Header, Vec<Event>)) -> String {
    example::write(&temporary(name), header, events).expect("the trace can be written");
    name.into()
}

fn good(name: &str) -> String {
    trace(name, &example::open_loop(300))
}

/// Runs it; the exit code has to be `code`. Returns the standard output and the standard error.
fn run(args: &[&str], code: i32) -> (String, String) {
    let output = plimsoll(args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{args:?}\n{out}\n{err}");
    (out, err)
}

/// Both commands that conclude something from a trace refuse it, with these words, and print nothing else.
fn refused(trace: &str, words: &[&str]) {
    let goal = "p99(request) < 20ms";
    for args in [
        &["plan", trace, "--goal", goal][..],
        &["simulate", "--replay", trace][..],
    ] {
        let (out, err) = run(args, 2);
        assert!(out.is_empty(), "{args:?} printed results: {out}");
        for word in words {
            assert!(err.contains(word), "{args:?}: {word:?} is not in: {err}");
        }
    }
}

/// No latency can be told: a goal for one is refused with these words, a replay says them and shows the rest.
fn shows_no_latency(trace: &str, words: &[&str]) {
    let (out, err) = run(&["plan", trace, "--goal", "p99(request) < 20ms"], 2);
    assert!(out.is_empty(), "{out}");
    let (shown, _) = run(&["simulate", "--replay", trace], 0);
    assert!(shown.contains("CPU use") && !shown.contains("latency"), "{shown}");
    for word in words {
        assert!(
            err.contains(word) && shown.contains(word),
            "{word:?} is not in both: {err}{shown}"
        );
    }
}

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

/// What a plan says of 200 requests on one connection; `more`: what else happens to it in each round, after how many ms.
fn planned(name: &str, more: impl Fn(i64) -> Vec<(i64, u32, SocketOp)>) -> String {
    planned_of(name, Sockets::default(), more)
}

/// `sockets`: what the recorder says of all.
fn planned_of(name: &str, sockets: Sockets, more: impl Fn(i64) -> Vec<(i64, u32, SocketOp)>) -> String {
    use SocketOp::{Arrived, Read, Wrote};
    let rounds = 200;
    let mut header = example::header(rounds * 20 * MS, &[(20, "web", 1)]);
    header.sockets = Sockets {
        recorded: true,
        connections: vec![example::connection(0, Side::Accepted)],
        ..sockets
    };
    let mut events = vec![switch(1, 1, 20, State::Sleeping, 0)];
    for round in 0..rounds {
        let at = |ms: i64| round * 20 * MS + ms * MS;
        let usual = [(1, 0, Arrived), (2, 20, Read), (6, 20, Wrote)];
        for (ms, tid, op) in usual.into_iter().chain(more(round)) {
            let what = What::Socket {
                tid,
                connection: 0,
                op,
                bytes: if op.has_bytes() { 10 } else { 0 },
            };
            let ts_ns = at(ms);
            events.push(Event { ts_ns, cpu: 1, what });
        }
        events.push(waking(at(1) + 1, 1, 20, 0, Context::Interrupt));
        events.push(switch(at(1) + 2, 1, 0, State::Runnable, 20));
        events.push(switch(at(7), 1, 20, State::Sleeping, 0));
    }
    events.sort_by_key(|event| event.ts_ns);
    let trace = trace(name, &(header, events));
    run(&["plan", &trace, "--goal", "p90(request) < 50ms"], 0).0
}

/// What a thread finds to be read after its answer was there before: two requests that look like one.
#[test]
fn requests_that_overlap_on_their_connection_are_said_in_the_plan() {
    use SocketOp::{Arrived, Read, Wrote};
    let several = |overlapping: i64| {
        planned(&format!("overlap-{overlapping}.trace"), |round| {
            match round < overlapping {
                true => vec![(3, 0, Arrived), (4, 20, Wrote), (5, 20, Read)],
                false => Vec::new(),
            }
        })
    };
    assert!(several(3).contains("3 of 200 requests overlapped"));
    assert!(!several(0).contains("overlapped"));
}

#[test]
fn streams_that_cannot_be_told_apart_are_a_doubt_of_the_plan() {
    let doubt = |name, sealed, without: Option<&str>| {
        let without = without.map(String::from);
        let sockets = Sockets {
            sealed,
            without,
            ..Default::default()
        };
        let said = planned_of(name, sockets, |_| Vec::new());
        said.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(doubt("sealed.trace", 3, None).contains("3 connections are encrypted and may be HTTP/2"));
    let without = Some("which of a connection's streams is whose (HTTP/2), MPTCP");
    assert!(doubt("streamless.trace", 0, without).contains("HTTP/2 was not looked for"));
    assert!(!doubt("clear.trace", 0, Some("MPTCP")).contains("HTTP/2"));
}

#[test]
fn answers_that_are_held_are_said_in_the_plan() {
    let held = |held: i64| {
        planned(&format!("held-{held}.trace"), |round| match round < held {
            true => vec![(18, 0, SocketOp::Left)],
            false => Vec::new(),
        })
    };
    let said = held(3);
    let words: Vec<&str> = said.split_whitespace().collect();
    assert!(
        words
            .join(" ")
            .contains("3 of 200 answers left 12 ms (median) after"),
        "{said}"
    );
    assert!(!held(1).contains("answers left"));
}

/// What is missing is a program, not a trace.
#[test]
fn perf_data_where_there_is_no_perf_is_what_the_machine_cannot_do() {
    std::fs::write(temporary("perf.data"), b"PERFILE2 and more").expect("a file");
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["simulate", "--replay", "perf.data"])
        .current_dir(temporary_folder())
        .env("PATH", "/nonexistent")
        .output()
        .expect("the binary was built for this test");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("install perf"), "{said}");
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

/// Which thread runs next on a CPU, as a test writes it down.
struct Rounds(Vec<Event>);

impl Rounds {
    /// A server, thread 20 on CPU 1, that never blocks while it is owed for: each request keeps it busy for 10 ms. Its
    /// client, thread 10 on CPU 0, is woken with each answer, runs 20 us and asks again on the same connection.
    fn busy_server(answers: i64, asks_seen: impl Fn(i64) -> bool) -> (Header, Vec<Event>) {
        let us = MS / 1000;
        let threads = [(10, "client", 0), (20, "server", 1)];
        let header = example::header(answers * 10 * MS + 20 * MS, &threads);
        let mut rounds = Rounds(vec![
            switch(1, 0, 0, State::Runnable, 10),
            switch(2, 1, 20, State::Sleeping, 0),
            waking(3, 0, 20, 10, Context::Task),
            switch(4, 0, 10, State::Sleeping, 0),
            switch(5, 1, 0, State::Runnable, 20),
        ]);
        for answer in 1..=answers {
            let at = answer * 10 * MS;
            rounds.answer(at, answer < answers && asks_seen(answer), us);
        }
        (header, rounds.0)
    }

    fn answer(&mut self, at: i64, asks: bool, us: i64) {
        self.0.push(waking(at, 1, 10, 20, Context::Task));
        if asks {
            self.0.push(switch(at + us, 1, 20, State::Sleeping, 0));
        }
        self.0.push(switch(at + 2 * us, 0, 0, State::Runnable, 10));
        if asks {
            self.0.push(waking(at + 20 * us, 0, 20, 10, Context::Task));
            self.0.push(switch(at + 22 * us, 1, 0, State::Runnable, 20));
        }
        self.0.push(switch(at + 23 * us, 0, 10, State::Sleeping, 0));
    }
}

#[test]
fn answers_to_a_thread_with_several_requests_under_way_are_a_doubt_and_no_figure() {
    // One client thread with many connections: the server always finds the next request there.
    let busy = trace("several.trace", &Rounds::busy_server(400, |_| false));
    let words = ["which answer belongs", "399 came to a thread", "comm:GLOB"];
    shows_no_latency(&busy, &words);
    // One that asks again by a timer, before it is answered; all of it is seen.
    let us = MS / 1000;
    let threads = [(10, "client", 0), (20, "one", 1), (21, "two", 1)];
    let mut events = vec![
        switch(1, 0, 10, State::Sleeping, 0),
        switch(2, 1, 20, State::Sleeping, 0),
    ];
    for round in 0..40 {
        let at = round * 50 * MS + MS;
        for (after, server, context) in [(0, 20, Context::Interrupt), (10 * MS, 21, Context::Interrupt)] {
            events.extend([
                waking(at + after, 0, 10, 0, context),
                switch(at + after + us, 0, 0, State::Runnable, 10),
                waking(at + after + 2 * us, 0, server, 10, Context::Task),
                switch(at + after + 3 * us, 0, 10, State::Sleeping, 0),
            ]);
        }
        events.push(switch(at + 4 * us, 1, 0, State::Runnable, 20));
        for (after, server, next) in [(20 * MS, 20, 21), (40 * MS, 21, 0)] {
            events.extend([
                waking(at + after, 1, 10, server, Context::Task),
                switch(at + after + us, 1, server, State::Sleeping, next),
                switch(at + after + 2 * us, 0, 0, State::Runnable, 10),
                switch(at + after + 3 * us, 0, 10, State::Sleeping, 0),
            ]);
        }
    }
    events.sort_by_key(|e| e.ts_ns);
    let twice = trace("twice.trace", &(example::header(2010 * MS, &threads), events));
    shows_no_latency(&twice, &["which answer belongs", "had asked again"]);
}

#[test]
fn client_that_waits_for_each_answer_is_no_doubt_though_its_server_now_and_then_still_runs() {
    let seen = trace("waits.trace", &Rounds::busy_server(400, |_| true));
    let (out, _) = run(&["simulate", "--replay", &seen], 0);
    assert!(out.contains("400 closed loop") && !out.contains("doubt"), "{out}");
    // Of each 40 one finds its server running: 2.5%.
    let few = trace("few.trace", &Rounds::busy_server(400, |i| i % 40 != 0));
    let (out, _) = run(&["simulate", "--replay", &few], 0);
    assert!(
        out.contains("doubt: latencies may be those of other requests"),
        "{out}"
    );
}

#[test]
fn requests_that_wake_ups_show_are_a_doubt_where_the_kernel_does_not_show_those_over_udp() {
    let (mut header, events) = example::closed_loop(400);
    header.sockets.recorded = true;
    for (name, without, doubted) in [
        (
            "before-6.3.trace",
            "UDP, MPTCP, and the end of Unix streams",
            true,
        ),
        ("since-6.3.trace", "MPTCP, and the end of Unix streams", false),
    ] {
        header.sockets.without = Some(without.into());
        let seen = trace(name, &(header.clone(), events.clone()));
        let (out, _) = run(&["simulate", "--replay", &seen], 0);
        assert_eq!(out.contains("none over UDP can be"), doubted, "{out}");
    }
}

#[test]
fn empty_file_is_refused() {
    std::fs::write(temporary("empty.trace"), "").unwrap();
    refused("empty.trace", &["empty.trace", "empty"]);
}

#[test]
fn missing_file_is_refused() {
    refused("no-such.trace", &["no-such.trace", "No such file"]);
}

#[test]
fn foreign_files_are_refused_with_what_is_known() {
    std::fs::write(temporary("foreign.png"), b"\x89PNG\r\n\x1a\n and so on").unwrap();
    refused("foreign.png", &["foreign.png", "not a trace"]);
    std::fs::write(
        temporary("foreign.txt"),
        "Dear diary, today the service was slow.\n",
    )
    .unwrap();
    refused("foreign.txt", &["foreign.txt"]);
}

#[test]
fn truncated_files_are_refused_wherever_they_end() {
    let trace = good("whole.trace");
    let bytes = std::fs::read(file(&trace)).unwrap();
    for keep in [3, bytes.len() / 3, bytes.len() - 1] {
        let truncated = format!("truncated-{keep}.trace");
        std::fs::write(temporary(&truncated), &bytes[..keep]).unwrap();
        let goal = "p99(request) < 20ms";
        let (out, err) = run(&["plan", &truncated, "--goal", goal], 2);
        assert!(out.is_empty() && err.contains(&truncated), "{keep} bytes: {err}");
    }
}

#[test]
fn damaged_file_is_refused() {
    let trace = good("sound.trace");
    let mut bytes = std::fs::read(file(&trace)).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(temporary("damaged.trace"), bytes).unwrap();
    refused("damaged.trace", &["damaged.trace"]);
}

#[test]
fn lossy_trace_is_refused_with_the_count() {
    let (mut header, events) = example::open_loop(300);
    header.losses.push(Loss {
        cpu: Some(1),
        from_ns: 5,
        to_ns: 10,
        count: Some(1000),
    });
    let trace = trace("lossy.trace", &(header, events));
    refused(&trace, &["cannot be trusted", "lost: 1000"]);
}

#[test]
fn few_lost_events_are_said_and_do_not_stop_the_plan() {
    let (mut header, events) = example::open_loop(300);
    header.losses.push(Loss {
        cpu: Some(1),
        from_ns: 5,
        to_ns: 10,
        count: Some(2),
    });
    let trace = trace("few-lost.trace", &(header, events));
    let (out, _) = run(&["simulate", "--replay", &trace], 0);
    assert!(out.contains("doubt: events that the recorder lost: 2"), "{out}");
}

#[test]
fn threads_from_nowhere_make_a_trace_untrustworthy() {
    let (header, mut events) = example::open_loop(50);
    for i in 0..20 {
        let t = 400 * MS + i64::from(i) * MS / 10;
        events.push(switch(t, 0, 0, State::Runnable, 500 + i));
        events.push(switch(t + 1000, 0, 500 + i, State::Sleeping, 0));
    }
    events.sort_by_key(|e| e.ts_ns);
    let trace = trace("nowhere.trace", &(header, events));
    refused(&trace, &["threads that appear from nowhere: 20"]);
}

#[test]
fn clock_that_runs_backwards_is_refused() {
    let line = |seconds: &str, next: u32| {
        format!(
            "swapper 0 [000] {seconds}: sched:sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 \
             prev_state=R ==> next_comm=web next_pid={next} next_prio=120\n"
        )
    };
    let text = line("100.000000100", 7) + &line("40.000000100", 8);
    std::fs::write(temporary("backwards.txt"), text).unwrap();
    refused("backwards.txt", &["time runs backwards"]);
}

#[test]
fn clock_that_jumps_ahead_is_said() {
    let (mut header, mut events) = example::open_loop(300);
    for event in events.iter_mut().filter(|e| e.ts_ns > 1000 * MS) {
        event.ts_ns += 3_600_000 * MS;
    }
    header.clock.end_ns += 3_600_000 * MS;
    let trace = trace("jump.trace", &(header, events));
    let output = plimsoll(&["simulate", "--replay", &trace]);
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(
        out.contains("gaps without any event, or jumps of the clock"),
        "{out}"
    );
}

#[test]
fn trace_without_switches_is_refused_with_what_would_have_them() {
    let csv = "ts_ms,group,usage_usec,nr_periods,nr_throttled\n0,/web,0,0,0\n100,/web,30000,1,0\n";
    std::fs::write(temporary("series.csv"), csv).unwrap();
    refused("series.csv", &["switches", "plimsoll record"]);
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
fn throttling_is_explained_by_who_ran_and_what_would_have_kept_it() {
    let trace = good("explain.trace");
    let (out, err) = run(&["explain", &trace], 2);
    assert!(out.is_empty() && err.contains("--limit CPUS"), "{err}");
    let (out, _) = run(&["explain", &trace, "--limit", "0.2"], 0);
    for word in [
        "below what the work takes",
        "web (100%)",
        "p99 is",
        "burst 20000 us",
    ] {
        assert!(out.contains(word), "{word:?} is not in: {out}");
    }
    let (out, _) = run(&["explain", &trace, "--limit", "1.9"], 0);
    assert!(out.contains("in no period"), "{out}");
    let (mut header, events) = example::open_loop(300);
    (header.groups[1].quota_us, header.groups[1].period_us) = (Some(3_500), Some(10_000));
    let limited = self::trace("explain-limited.trace", &(header, events));
    let (out, _) = run(&["explain", &limited, "--json", "-"], 0);
    let found: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    let own = &found["explanation"];
    assert_eq!(own["limits"]["quota_us"], 3_500);
    assert_eq!(own["requests"], 300);
    assert!(own["p99_ns"].as_u64() >= own["free_p99_ns"].as_u64(), "{own}");
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
fn limit_that_throttles_is_shown_beside_the_recording() {
    let trace = good("throttled.trace");
    let args = [
        "simulate",
        "--replay",
        &trace,
        "--set",
        "group./web.quota_us=20000",
    ];
    let (out, _) = run(&args, 0);
    assert!(
        out.contains("throttled periods") && out.contains("changed"),
        "{out}"
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

#[test]
fn record_names_every_form_of_a_request_and_refuses_what_is_none() {
    let (help, _) = run(&["record", "--help"], 0);
    for form in ["client:", "process:", "comm:", "tid:", "uprobe:", "usdt:"] {
        assert!(help.contains(form), "{form} is not in: {help}");
    }
    for (flag, value) in [
        ("--request", "thread:web"),
        ("--duration", "0s"),
        ("--buffer", "3"),
        ("--sample", "1us"),
    ] {
        let (_, err) = run(&["record", "-o", "never.trace", flag, value], 2);
        assert!(err.contains(flag), "{err}");
    }
    assert!(!file("never.trace").exists());
}
