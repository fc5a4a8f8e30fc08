// SPDX-License-Identifier: Apache-2.0 OR MIT
//! No plan recommends less than the recorded work needs, or less than its clients get today.
use crate::service::{found, options, read, source};
use plimsoll_plan::{plan, Options, Recordings, Verdict, ONE};
use plimsoll_trace::example::{self, switch, waking, MS};
use plimsoll_trace::{Context, Cpu, Event, Header, State};
use rand::Rng;
use rand_pcg::Pcg64;

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
