// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Synthetic traces, replayed: what must come out is known.
use crate::common::{compile, compile_with, p, run};
use plimsoll_replay::{machine, recorded, replay, Outcome, Pacing, Program, Settings};
use plimsoll_sim::Machine;
use plimsoll_stats::percentile_ns;
use plimsoll_trace::example::{self, header, switch, waking, MS};
use plimsoll_trace::{Context, Event, Group, State, Thread, Timeline, What};
use std::sync::Arc;

fn closed_loop(rounds: i64) -> (Arc<Program>, Machine) {
    let (header, events) = example::closed_loop(rounds);
    compile(&header, &events)
}

fn open_loop(rounds: i64) -> (Arc<Program>, Machine) {
    let (header, events) = example::open_loop(rounds);
    compile(&header, &events)
}

#[test]
fn replay_under_recorded_settings_shows_what_was_recorded() {
    for (program, machine) in [closed_loop(400), open_loop(300)] {
        let (before, after) = (recorded(&program), run(&program, &machine, &[]));
        assert!(before.requests.len() > 290);
        for percent in [50.0, 99.0] {
            let (a, b) = (p(&before, percent), p(&after, percent));
            assert!(
                (a - b).abs() < 0.02 * a,
                "p{percent}: recorded {a} ms, replayed {b} ms"
            );
        }
        let target = program.target as usize;
        let (a, b) = (before.groups[target].cpus, after.groups[target].cpus);
        assert!((a - b).abs() < 0.02 * a, "CPUs: recorded {a}, replayed {b}");
    }
}

/// What is foretold is the service without the recorder, whose programs ran in its threads.
#[test]
fn what_the_recorder_took_is_in_the_self_check_and_not_in_what_is_foretold() {
    let (mut header, events) = example::open_loop(300);
    let [free, costly] = [0, 100_000].map(|event_ns| {
        header.recorder_event_ns = event_ns;
        let (program, machine) = compile(&header, &events);
        let target = program.target as usize;
        let cpus = |settings: &Settings| {
            let outcome = replay(&program, &machine, settings, None).unwrap();
            outcome.groups[target].cpus
        };
        let as_recorded = cpus(&Settings::recorded(&program));
        let share = 1.0 - cpus(&Settings::unrecorded(&program)) / as_recorded;
        assert!((share - program.recorder_share()).abs() < 0.002, "{share}");
        (as_recorded, share)
    });
    assert_eq!(free.0, costly.0);
    assert_eq!(free.1, 0.0);
    // Each request: the thread takes the CPU, and wakes none.
    let each_ms = costly.0 * costly.1 * (header.clock.end_ns as f64 / MS as f64) / 300.0;
    assert!((0.1..=0.2).contains(&each_ms), "{each_ms}");
}

/// A parent that is told once that something happened is no client of the group's 300 pieces of work.
#[test]
fn one_wake_up_out_of_the_group_is_not_taken_for_what_it_does() {
    let (mut header, mut events) = example::open_loop(300);
    header.threads.push(Thread {
        tid: 10,
        comm: "parent".into(),
        group: Some(0),
        ..header.threads[0].clone()
    });
    events.push(switch(1, 0, 10, State::Sleeping, 0));
    let told = 100 * 10 * MS + 2 * MS;
    events.push(waking(told, 1, 10, 20, Context::Task));
    events.push(switch(told + 20, 0, 0, State::Runnable, 10));
    events.push(switch(told + MS, 0, 10, State::Sleeping, 0));
    events.sort_by_key(|event| event.ts_ns);
    let (program, _) = compile(&header, &events);
    assert_eq!(program.nr_requests(), 300);
    assert_eq!(program.pairing.answers, 0);
}

/// Every 10 ms one thread works for 4 ms, and wakes another of its group after 1 ms. In every other round that takes the CPU at
/// once, for 1 ms; in the others it waits until the first is done.
#[test]
fn a_woken_thread_takes_the_cpu_from_one_of_its_group_in_the_rounds_in_which_it_did() {
    const ROUNDS: i64 = 200;
    let mut header = header(ROUNDS * 10 * MS, &[(20, "first", 1), (21, "woken", 1)]);
    header.machine.cpus.truncate(1);
    let sleeps = |tid, at| switch(at, 0, tid, State::Sleeping, 0);
    let mut events = vec![sleeps(20, 1), sleeps(21, 2)];
    for round in 0..ROUNDS {
        let t = round * 10 * MS + MS;
        events.extend([
            waking(t, 0, 20, 0, Context::Timer),
            switch(t, 0, 0, State::Runnable, 20),
            waking(t + MS, 0, 21, 20, Context::Task),
        ]);
        events.extend(match round % 2 {
            0 => [
                switch(t + MS + 5000, 0, 20, State::Runnable, 21),
                switch(t + 2 * MS, 0, 21, State::Sleeping, 20),
                sleeps(20, t + 5 * MS),
            ],
            _ => [
                switch(t + 4 * MS, 0, 20, State::Sleeping, 21),
                sleeps(21, t + 5 * MS),
                switch(t + 5 * MS + 1, 0, 0, State::Runnable, 0),
            ],
        });
    }
    let (program, machine) = compile_with(&header, &events, Some("comm:woken"));
    let replayed = run(&program, &machine, &[]);
    for (percent, ms) in [(10.0, 1.0), (45.0, 1.0), (55.0, 4.0), (90.0, 4.0)] {
        let found = p(&replayed, percent);
        assert!((found - ms).abs() < 0.1, "p{percent}: {found} ms for {ms}");
    }
}

#[test]
fn cpu_use_is_that_of_the_time_with_requests() {
    let (before, machine_before) = closed_loop(400);
    let (mut header, mut events) = example::closed_loop(400);
    // The server goes on by itself for as long again, after a time of nothing.
    let last_ns = header.clock.end_ns;
    header.clock.end_ns = 3 * last_ns;
    events.push(waking(2 * last_ns, 1, 20, 0, Context::Timer));
    events.push(switch(2 * last_ns + 10, 1, 0, State::Runnable, 20));
    events.push(switch(3 * last_ns - MS, 1, 20, State::Sleeping, 0));
    let (after, machine_after) = compile(&header, &events);
    let use_of = |outcome: Outcome| outcome.groups[before.target as usize].cpus;
    let wanted = use_of(recorded(&before));
    for cpus in [
        use_of(recorded(&after)),
        use_of(run(&before, &machine_before, &[])),
        use_of(run(&after, &machine_after, &[])),
    ] {
        assert!((cpus - wanted).abs() < 0.02 * wanted, "{cpus} CPUs for {wanted}");
    }
}

#[test]
fn closed_loop_slows_down_under_a_limit_and_never_uses_more() {
    let (program, machine) = closed_loop(400);
    assert!(program.is_closed_loop());
    let free = run(&program, &machine, &[]);
    let tight = run(&program, &machine, &["group.web.quota_us=20000"]);
    let target = program.target as usize;
    assert!(
        (tight.groups[target].cpus - 0.2).abs() < 0.02,
        "{} CPUs",
        tight.groups[target].cpus
    );
    assert!(tight.groups[target].throttled.unwrap() > 0.9);
    assert!(p(&tight, 99.0) > 5.0 * p(&free, 99.0));
    assert!(
        tight.requests.len() < free.requests.len() / 2,
        "the client waits for answers"
    );
}

#[test]
fn open_loop_arrivals_do_not_wait_so_that_a_queue_grows_under_too_small_a_limit() {
    let (program, machine) = open_loop(300);
    assert!(!program.is_closed_loop());
    assert!(program
        .pacings
        .iter()
        .any(|(name, _, pacing, _)| name == "web" && *pacing == Pacing::Open));
    let tight = run(&program, &machine, &["group.web.quota_us=20000"]);
    // 0.3 CPUs of work on 0.2: after 3 s the queue is 1.5 s long.
    assert_eq!(tight.requests.len(), 300);
    assert!(
        (p(&tight, 100.0) / 1500.0 - 1.0).abs() < 0.1,
        "longest {} ms",
        p(&tight, 100.0)
    );
    assert!(
        (tight.work_done - 1.0).abs() < 1e-9,
        "all arrivals are served in the end"
    );
}

#[test]
fn burst_serves_what_the_quota_alone_would_throttle() {
    let (program, machine) = open_loop(300);
    let bare = run(
        &program,
        &machine,
        &["group.web.quota_us=2600", "group.web.period_us=8000"],
    );
    let burst = run(
        &program,
        &machine,
        &[
            "group.web.quota_us=2600",
            "group.web.period_us=8000",
            "group.web.burst_us=2600",
        ],
    );
    let throttled = |o: &Outcome| o.groups[program.target as usize].throttled.unwrap();
    assert!(
        throttled(&burst) < throttled(&bare),
        "{} against {}",
        throttled(&burst),
        throttled(&bare)
    );
}

#[test]
fn forked_threads_start_when_their_parent_gets_there_and_exits_are_waited_for() {
    // A shell outside waits for a job in the group: 20 forks 21, which works and exits and so wakes 20.
    let header = header(100 * MS, &[(10, "sh", 0), (20, "make", 1), (21, "cc", 1)]);
    let events = [
        switch(1, 0, 0, State::Runnable, 10),
        switch(1, 1, 20, State::Sleeping, 0),
        waking(MS, 0, 20, 10, Context::Task),
        switch(MS + 10, 0, 10, State::Sleeping, 0),
        switch(MS + 20, 1, 0, State::Runnable, 20),
        Event {
            ts_ns: 3 * MS,
            cpu: 1,
            what: What::Fork {
                parent: 20,
                child: 21,
            },
        },
        switch(4 * MS, 1, 20, State::Sleeping, 21),
        Event {
            ts_ns: 44 * MS,
            cpu: 1,
            what: What::Exit { tid: 21 },
        },
        waking(44 * MS, 1, 20, 21, Context::Task),
        switch(44 * MS + 10, 1, 21, State::Dead, 20),
        waking(45 * MS, 1, 10, 20, Context::Task),
        switch(45 * MS + 10, 1, 20, State::Sleeping, 0),
        switch(45 * MS + 20, 0, 0, State::Runnable, 10),
        switch(50 * MS, 0, 10, State::Sleeping, 0),
    ];
    let (program, machine) = compile(&header, &events);
    let free = run(&program, &machine, &[]);
    assert_eq!(free.requests.len(), 1);
    // 44 ms in the recording; the child waited 1 ms for its parent's CPU while the other one was idle.
    assert!((p(&free, 50.0) - 43.0).abs() < 0.1, "{} ms", p(&free, 50.0));
    let half = run(
        &program,
        &machine,
        &["group.web.quota_us=10000", "group.web.period_us=20000"],
    );
    assert!(
        p(&half, 50.0) > 70.0,
        "{} ms for 44 ms of work on half a CPU",
        p(&half, 50.0)
    );
}

#[test]
fn thread_that_moved_into_the_recorded_tree_begins_when_it_did() {
    let mut header = header(100 * MS, &[(20, "web", 1)]);
    header.only_below = Some("/web".into());
    header.threads[0].from_ns = 50 * MS;
    let events = [
        switch(10 * MS, 1, 20, State::Runnable, 0),
        switch(60 * MS, 1, 20, State::Sleeping, 0),
    ];
    let (program, machine) = compile(&header, &events);
    let after = run(&program, &machine, &[]);
    let target = program.target as usize;
    assert_eq!(program.groups[target].work_ns, 10 * MS as u64);
    assert_eq!(after.groups[target].usage_ns, 10 * MS as u64);
    assert_eq!(after.end_ns, 60 * MS as u64);
}

#[test]
fn group_whose_weight_the_kernel_shows_as_0_is_idle() {
    // On one CPU, 100 ms of the group's work beside 200 ms of the root's.
    let latency = |weight| {
        let mut header = header(400 * MS, &[(20, "web", 1), (30, "other", 0)]);
        header.groups[1].weight = weight;
        let events = [
            switch(1, 1, 0, State::Runnable, 30),
            waking(MS, 0, 20, 0, Context::Timer),
            switch(MS + 1, 0, 0, State::Runnable, 20),
            switch(101 * MS, 0, 20, State::Sleeping, 0),
            switch(200 * MS, 1, 30, State::Sleeping, 0),
        ];
        let (program, machine) = compile(&header, &events);
        let set = Settings::recorded(&program).set(&program, "group.web.weight=50");
        assert_eq!(set.is_err(), weight == Some(0), "{set:?}");
        p(&run(&program, &machine, &["machine.cpus=1"]), 50.0)
    };
    let (default, idle) = (latency(Some(100)), latency(Some(0)));
    assert!((default - 200.0).abs() < 10.0, "{default} ms");
    assert!(idle > 280.0, "{idle} ms");
}

/// A request begins as its thread is woken, be it throttled then.
#[test]
fn wait_for_a_cpu_counts_after_an_uninterruptible_sleep_as_after_any_other() {
    let latencies = |state| {
        let mut events = vec![switch(1, 1, 20, state, 0)];
        let mut at = MS;
        for round in 0..300 {
            let work_ns = MS + round / 50 % 2 * MS;
            events.extend([
                waking(at, 1, 20, 0, Context::Interrupt),
                switch(at + 20, 1, 0, State::Runnable, 20),
                switch(at + 20 + work_ns, 1, 20, state, 0),
            ]);
            // Every answer takes so long, whatever was done before.
            at += work_ns + 8 * MS;
        }
        let header = header(at + MS, &[(20, "web", 1)]);
        let (program, machine) = compile_with(&header, &events, Some("comm:web"));
        run(&program, &machine, &["group.web.quota_us=8000"]).latencies(None)
    };
    let (storage, other) = (latencies(State::Uninterruptible), latencies(State::Sleeping));
    assert!(percentile_ns(&other, 99.0) > 10 * MS as u64, "throttled");
    assert!(
        storage == other,
        "{:?}",
        [&storage, &other].map(|l| percentile_ns(l, 99.0))
    );
}

#[test]
fn all_work_of_threads_that_shared_a_core_is_all_that_was_recorded() {
    // Of each 10 ms, 20 works for 3 ms on one thread of a core and 30 for 2 ms of them on the other.
    let (mut header, mut events) = example::open_loop(100);
    header.machine.cpus.iter_mut().for_each(|c| c.core = Some(0));
    header.threads.push(Thread {
        tid: 30,
        comm: "other".into(),
        group: Some(0),
        ..Default::default()
    });
    for round in 0..100 {
        let at = round * 10 * MS + 2 * MS;
        events.extend([
            waking(at, 0, 30, 0, Context::Timer),
            switch(at + 20, 0, 0, State::Runnable, 30),
            switch(at + 2 * MS, 0, 30, State::Sleeping, 0),
        ]);
    }
    events.sort_by_key(|e| e.ts_ns);
    let (program, machine) = compile(&header, &events);
    let outcome = run(&program, &machine, &[]);
    assert!(outcome.requests.iter().all(|r| r.done));
    assert!(
        (outcome.work_done - 1.0).abs() < 1e-6,
        "{} of the work",
        outcome.work_done
    );
}

#[test]
fn same_settings_give_the_same_outcome() {
    let (program, machine) = closed_loop(200);
    let sets = ["group.web.quota_us=30000", "seed=7"];
    assert_eq!(run(&program, &machine, &sets), run(&program, &machine, &sets));
}

#[test]
fn settings_that_cannot_be_are_refused_with_what_is_allowed() {
    let (program, _) = closed_loop(10);
    for (set, allowed) in [
        ("group.web.quota_us=10", "1000"),
        ("group.web.period_us=2000000", "1000000"),
        ("group.nowhere.quota_us=5000", "/web"),
        ("group.web.quota=5000", "quota_us"),
        ("machine.cpus=0", "from 1"),
        ("group.web.quota_us", "value"),
        ("policy.semantics=other", "mainline"),
    ] {
        let error = Settings::recorded(&program).set(&program, set).unwrap_err();
        assert!(error.to_string().contains(allowed), "{error}");
    }
}

#[test]
fn message_that_overtakes_an_earlier_one_is_not_waited_for_again() {
    // Thread 20 is woken by 10 of the limited group, by 21 of its own program outside of it, and by 10 again. Under
    // the limit, 21 comes first. The recording is long enough for a tenth of a CPU to do all of it.
    let header = header(
        1000 * MS,
        &[(10, "helper", 1), (20, "server", 1), (21, "server", 0)],
    );
    let events = [
        switch(1, 0, 0, State::Runnable, 10),
        switch(2, 1, 20, State::Sleeping, 21),
        waking(30 * MS, 0, 20, 10, Context::Task),
        switch(30 * MS + 10, 0, 10, State::Sleeping, 20),
        switch(31 * MS, 0, 20, State::Sleeping, 0),
        waking(40 * MS, 1, 20, 21, Context::Task),
        switch(40 * MS + 10, 1, 21, State::Sleeping, 0),
        switch(40 * MS + 20, 0, 0, State::Runnable, 20),
        switch(42 * MS, 0, 20, State::Sleeping, 0),
        waking(50 * MS, 0, 10, 0, Context::Timer),
        switch(50 * MS + 10, 0, 0, State::Runnable, 10),
        waking(51 * MS, 0, 20, 10, Context::Task),
        switch(51 * MS + 10, 0, 10, State::Sleeping, 20),
        switch(55 * MS, 0, 20, State::Sleeping, 0),
    ];
    let (program, machine) = compile(&header, &events);
    for sets in [&[][..], &["group.web.quota_us=10000"]] {
        let outcome = run(&program, &machine, sets);
        assert!(
            (outcome.work_done - 1.0).abs() < 1e-9,
            "{sets:?}: {}",
            outcome.work_done
        );
    }
}

#[test]
fn client_that_ran_beside_its_server_does_not_take_the_servers_cpu() {
    // Server 20 never stops on CPU 0. Its client 10 began there, but is put on CPU 1 each time, which thread 30 of the
    // root has to itself otherwise.
    let header = header(
        200 * MS,
        &[(10, "client", 0), (20, "server", 1), (30, "other", 0)],
    );
    let us = MS / 1000;
    let mut events = vec![
        switch(us, 1, 0, State::Runnable, 30),
        switch(2 * us, 0, 0, State::Runnable, 10),
        switch(100 * us, 0, 10, State::Sleeping, 20),
    ];
    for round in 1..200 {
        let at = round * MS;
        events.extend([
            waking(at, 0, 10, 20, Context::Task),
            switch(at + 5 * us, 1, 30, State::Runnable, 10),
            switch(at + 405 * us, 1, 10, State::Sleeping, 30),
        ]);
    }
    let (program, machine) = compile(&header, &events);
    let target = program.target as usize;
    let (before, after) = (recorded(&program), run(&program, &machine, &[]));
    let (a, b) = (before.groups[target].cpus, after.groups[target].cpus);
    assert!(
        a > 0.99 && (a - b).abs() < 0.02 * a,
        "CPUs: recorded {a}, replayed {b}"
    );
}

#[test]
fn server_that_is_woken_beside_its_twin_waits_for_it_if_the_recorded_one_did() {
    // Every 10 ms 20 is woken by a timer and works for 400 us; 200 us later 21 is woken on the same CPU for as long. In
    // one recording it waits, in the other it takes the CPU at once. The other CPU is never idle.
    let us = MS / 1000;
    let threads = [(20, "server", 1), (21, "server", 1), (30, "other", 0)];
    let header = header(400 * MS, &threads);
    for waits in [true, false] {
        let mut events = vec![switch(us, 1, 0, State::Runnable, 30)];
        for round in 0..40 {
            let at = round * 10 * MS + 100 * us;
            events.extend([
                waking(at, 0, 20, 0, Context::Timer),
                switch(at + us, 0, 0, State::Runnable, 20),
                waking(at + 200 * us, 0, 21, 20, Context::Timer),
            ]);
            events.extend(match waits {
                true => vec![
                    switch(at + 400 * us, 0, 20, State::Sleeping, 21),
                    switch(at + 800 * us, 0, 21, State::Sleeping, 0),
                ],
                false => vec![
                    switch(at + 201 * us, 0, 20, State::Runnable, 21),
                    switch(at + 601 * us, 0, 21, State::Sleeping, 20),
                    switch(at + 800 * us, 0, 20, State::Sleeping, 0),
                ],
            });
        }
        let timeline = Timeline::build(&header, &events);
        let request = "comm:server".parse().unwrap();
        let program = Program::build(&header, &timeline, None, Some(&request), 60).unwrap();
        let (program, machine) = (Arc::new(program), machine(&header, &timeline));
        let (before, after) = (recorded(&program), run(&program, &machine, &[]));
        for percent in [25.0, 75.0] {
            let (a, b) = (p(&before, percent), p(&after, percent));
            assert!(
                (a - b).abs() < 0.1 * a,
                "waits: {waits}, p{percent}: recorded {a} ms, replayed {b} ms"
            );
        }
    }
}

#[test]
fn work_of_a_slower_machine_takes_as_much_longer_and_arrivals_keep_their_times() {
    let (program, machine) = open_loop(300);
    let (same, slower) = (
        run(&program, &machine, &[]),
        run(&program, &machine, &["work.percent=150"]),
    );
    assert!((p(&slower, 50.0) / p(&same, 50.0) - 1.5).abs() < 0.01);
    let cpus = |o: &Outcome| o.groups[program.target as usize].cpus;
    assert!((cpus(&slower) / cpus(&same) - 1.5).abs() < 0.01);
    assert_eq!(
        slower.work_done, same.work_done,
        "it is the recorded work that is counted"
    );
}

/// A search of all groups for each of them, or of all threads, would be 10,000,000,000 looks.
#[test]
fn trace_of_as_many_groups_as_threads_is_read_without_comparing_all_with_all() {
    const COUNT: u32 = 100_000;
    let (mut header, mut events) = example::open_loop(1);
    let end_ns = header.clock.end_ns;
    header.clock.end_ns += i64::from(COUNT) * 100;
    // In no order, written with a slash too many.
    for job in (0..COUNT).rev() {
        header.threads.push(Thread {
            tid: 1000 + job,
            comm: "job".into(),
            group: Some(header.groups.len() as u32),
            ..Default::default()
        });
        header.groups.push(Group {
            path: format!("/jobs//{job}"),
            weight: Some(1 + job % 10_000),
            ..Default::default()
        });
    }
    for job in 0..COUNT {
        let (at, longer) = (end_ns + i64::from(job) * 100, i64::from(job == 77));
        events.push(waking(at, 0, 1000 + job, 0, Context::Timer));
        events.push(switch(at + 10, 0, 0, State::Runnable, 1000 + job));
        events.push(switch(at + 50 + longer, 0, 1000 + job, State::Sleeping, 0));
    }
    let timeline = Timeline::build(&header, &events);
    for (group, path) in [(None, "/web"), (Some("jobs/77/"), "/jobs/77")] {
        let program = Program::build(&header, &timeline, group, None, 60).unwrap();
        assert_eq!(program.groups[program.target as usize].path, path);
        let [job, jobs] = ["/jobs/77", "/jobs"].map(|path| program.group(path).unwrap() as usize);
        assert_eq!(
            (program.groups[job].weight, program.groups[job].work_ns),
            (78, 41)
        );
        assert_eq!(program.groups[jobs].work_ns, u64::from(COUNT) * 40 + 1);
    }
}

/// A pod of two containers and a sandbox, and what runs beside it; each thread's group and how long it runs, in tenths of a
/// millisecond.
#[test]
fn containers_that_are_all_busy_are_planned_for_as_their_pod() {
    let target = |runs: &[(u32, i64)]| {
        let threads: Vec<_> = (runs.iter().zip(10..))
            .map(|(&(group, _), tid)| (tid, "web", group))
            .collect();
        let mut header = header(100 * MS, &threads);
        for path in [
            "/pods/one",
            "/pods/one/front",
            "/pods/one/back",
            "/pods/one/pause",
        ] {
            header.groups.push(Group {
                path: path.into(),
                ..Default::default()
            });
        }
        let mut events = Vec::new();
        let mut at = MS;
        for (&(_, tenths), tid) in runs.iter().zip(10..) {
            events.push(waking(at, 0, tid, 0, Context::Timer));
            events.push(switch(at, 0, 0, State::Runnable, tid));
            at += tenths * MS / 10;
            events.push(switch(at, 0, tid, State::Sleeping, 0));
        }
        let (program, _) = compile(&header, &events);
        let members: Vec<String> = program.members().map(|group| group.path.clone()).collect();
        (
            program.groups[program.target as usize].path.clone(),
            members.join(" "),
        )
    };
    let (root, web, front, back, pause) = (0, 1, 3, 4, 5);
    let pod = (
        "/pods/one".to_string(),
        "/pods/one/back /pods/one/front".to_string(),
    );
    assert_eq!(target(&[(front, 200), (back, 100), (pause, 1)]), pod);
    assert_eq!(target(&[(front, 200), (pause, 1)]).0, "/pods/one/front");
    // What runs beside a pod is not of it, and the root has no limit.
    assert_eq!(target(&[(front, 200), (back, 100), (web, 250)]).0, "/web");
    assert_eq!(
        target(&[(front, 200), (back, 100), (root, 250)]).0,
        "/pods/one/front"
    );
}

#[test]
fn stretches_hold_all_work_and_all_requests() {
    let (program, _) = closed_loop(400);
    let work: f64 = program.stretches.iter().map(|s| s.work_ns).sum();
    let requests: f64 = program.stretches.iter().map(|s| s.requests).sum();
    assert!((work / program.groups[program.target as usize].work_ns as f64 - 1.0).abs() < 1e-3);
    assert!((requests / program.nr_requests() as f64 - 1.0).abs() < 1e-6);
    assert!((program.cost_ns() / 4e6 - 1.0).abs() < 0.01);
}
