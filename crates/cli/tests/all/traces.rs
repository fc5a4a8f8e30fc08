// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recorded traces as a user meets them: what plan and simulate --replay make of good, bad and broken ones. No confident
//! answer comes from a trace that cannot be believed, no goal is said to be met that is not.
use crate::common::traces::{file, good, plimsoll, refused, run, shows_no_latency, trace};
use crate::common::{temporary, temporary_folder};
use plimsoll_trace::example::{self, switch, waking, MS};
use plimsoll_trace::{Context, Event, Header, Loss, Side, SocketOp, Sockets, State, What};
use std::process::Command;

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
