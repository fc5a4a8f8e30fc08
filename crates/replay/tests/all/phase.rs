// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the periods of a recorded limit began: a service whose quota and boundaries are known.
use crate::common::{compile, compile_with, p, run};
use plimsoll_replay::{recorded, replay, Program, Settings};
use plimsoll_trace::example::{connection, header, switch, waking, MS};
use plimsoll_trace::{Connection, Context, CpuStat, Event, Side, SocketOp, Sockets, State, What};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use std::sync::Arc;

const PERIOD_NS: i64 = 100 * MS;
const QUOTA_NS: i64 = 23 * MS;

/// One thread that serves what came first, and stands still where it has used up its quota, until the period ends. The clock
/// begins at `begin_ns`, boundaries are at `phase_ns` and each 100 ms; up to the first one it may run for `left_ns`.
fn throttled(seed: u64, begin_ns: i64, phase_ns: i64, left_ns: i64) -> (Arc<Program>, plimsoll_sim::Machine) {
    let mut rng = Pcg64::seed_from_u64(seed);
    let mut random = |mean: f64| (-mean * (1.0 - rng.random::<f64>()).ln()) as i64 + 1000;
    let period_of = |now: i64| (now - phase_ns).div_euclid(PERIOD_NS);
    let socket = |ts_ns: i64, tid: u32, op, bytes| {
        let what = What::Socket {
            tid,
            connection: 0,
            op,
            bytes,
        };
        Event { ts_ns, cpu: 1, what }
    };
    let mut events = vec![switch(begin_ns + 1, 1, 20, State::Sleeping, 0)];
    let (mut at, mut now, mut sleeps) = (begin_ns + MS, begin_ns + 2, true);
    let (mut period, mut left) = (period_of(begin_ns), left_ns);
    for _ in 0..600 {
        at += random(10e6);
        let mut work = random(2e6).min(20 * MS);
        if !sleeps && now < at {
            events.push(switch(now, 1, 20, State::Sleeping, 0));
            sleeps = true;
        }
        events.push(socket(at, 0, SocketOp::Arrived, 100));
        let mut runs = !sleeps;
        if sleeps {
            events.push(waking(at + 1, 1, 20, 0, Context::Interrupt));
            now = at + 2;
        }
        let mut read = false;
        while work > 0 {
            if period_of(now) != period {
                (period, left) = (period_of(now), QUOTA_NS);
            }
            if left == 0 {
                if std::mem::replace(&mut runs, false) {
                    events.push(switch(now, 1, 20, State::Runnable, 0));
                }
                now = phase_ns + (period + 1) * PERIOD_NS + random(20e3);
                continue;
            }
            if !std::mem::replace(&mut runs, true) {
                events.push(switch(now, 1, 0, State::Runnable, 20));
            }
            if !std::mem::replace(&mut read, true) {
                events.push(socket(now, 20, SocketOp::Read, 100));
            }
            let ns = work.min(left).min(phase_ns + (period + 1) * PERIOD_NS - now);
            (work, left, now) = (work - ns, left - ns, now + ns);
        }
        events.push(socket(now, 20, SocketOp::Wrote, 200));
        sleeps = false;
    }
    let free = now + 1;
    events.push(switch(free, 1, 20, State::Sleeping, 0));
    events.sort_by_key(|e| e.ts_ns);
    let mut header = header(free + MS, &[(20, "web", 1)]);
    header.clock.start_ns = begin_ns;
    header.machine.hz = Some(1000);
    header.groups[1].quota_us = Some((QUOTA_NS / 1000) as u64);
    header.groups[1].period_us = Some((PERIOD_NS / 1_000_000 * 1000) as u64);
    header.only_below = Some("/web".into());
    header.sockets = Sockets {
        recorded: true,
        connections: vec![Connection {
            local_port: Some(80),
            ..connection(0, Side::Accepted)
        }],
        ..Default::default()
    };
    compile(&header, &events)
}

#[test]
fn periods_begin_where_they_did_in_the_recording() {
    for seed in 0..4 {
        let phase_ns = seed as i64 * 23 * MS + 7 * MS + 1234;
        let (program, machine) = throttled(seed, 1_700_000_123_456, phase_ns, QUOTA_NS);
        let seen = recorded(&program);
        let replayed = run(&program, &machine, &[]);
        let mut elsewhere = Settings::recorded(&program);
        elsewhere.phase = 0.5;
        let elsewhere = replay(&program, &machine, &elsewhere, None).unwrap();
        for percent in [50.0, 99.0] {
            let (a, b) = (p(&seen, percent), p(&replayed, percent));
            assert!(
                (a - b).abs() < 0.05 * a,
                "seed {seed}: p{percent} {a} ms, replayed {b}"
            );
        }
        let sum = |outcome: &plimsoll_replay::Outcome| {
            let each = outcome.requests.iter().zip(&seen.requests);
            each.map(|(a, b)| a.latency_ns.abs_diff(b.latency_ns))
                .sum::<u64>()
        };
        let (near, far) = (sum(&replayed), sum(&elsewhere));
        assert!(
            4 * near < far,
            "seed {seed}: off by {near} ns, {far} with boundaries elsewhere"
        );
    }
}

#[test]
fn what_was_used_of_a_quota_before_recording_began_is_not_there_again() {
    let begin_ns = 1_700_000_123_456;
    for seed in 0..4 {
        // A boundary had just been.
        let (program, machine) = throttled(seed, begin_ns, begin_ns - 5 * MS, 2 * MS);
        let (seen, replayed) = (recorded(&program), run(&program, &machine, &[]));
        let both = seen.requests.iter().zip(&replayed.requests);
        let first = both.take_while(|(a, _)| a.begin_ns < (90 * MS) as u64);
        let (mut all_ns, mut off_ns) = (0, 0);
        for (a, b) in first {
            all_ns += a.latency_ns;
            off_ns += a.latency_ns.abs_diff(b.latency_ns);
        }
        assert!(4 * off_ns < all_ns, "seed {seed}: off by {off_ns} of {all_ns} ns");
    }
}

/// Work of 15 ms at the beginning of one period and at the end of the next: two of them meet wherever periods lie but for there.
/// In rounds 50 and 100 8 ms more are wanted than the quota has; in every sixth round work waits for a CPU, at any place.
fn meets_elsewhere(phase_ns: i64, throttled: bool) -> (Arc<Program>, plimsoll_sim::Machine) {
    let mut events = Vec::new();
    let mut runs = |woken_ns: i64, from_ns: i64, to_ns: i64| {
        events.extend([
            waking(woken_ns, 0, 7, 0, Context::Timer),
            switch(from_ns, 0, 0, State::Runnable, 7),
            switch(to_ns, 0, 7, State::Sleeping, 0),
        ]);
    };
    for round in 0..150 {
        let in_period = if round % 2 == 0 { 2 * MS } else { 80 * MS };
        let at_ns = phase_ns + round * PERIOD_NS + in_period;
        let waits = throttled && round % 6 == 0;
        let waits_ns = if waits { (3 + 7 * round % 40) * MS } else { 0 };
        runs(at_ns, at_ns + waits_ns, at_ns + waits_ns + 15 * MS);
        if throttled && round % 50 == 0 && round > 0 {
            // 5 ms of it are left, and it goes on with the next period.
            let (woken_ns, next_ns) = (at_ns + 38 * MS, phase_ns + (round + 1) * PERIOD_NS);
            runs(woken_ns, woken_ns, woken_ns + 5 * MS);
            runs(woken_ns + 5 * MS + 1, next_ns + 10_000, next_ns + 3 * MS);
        }
    }
    events.sort_by_key(|event| event.ts_ns);
    let mut header = header(15_000 * MS + phase_ns, &[(7, "web", 1)]);
    let group = &mut header.groups[1];
    (group.quota_us, group.period_us, group.burst_us) = (Some(20_000), Some(100_000), Some(0));
    let counted = |nr_periods, nr_throttled, throttled_ns| CpuStat {
        nr_periods: Some(nr_periods),
        nr_throttled: Some(nr_throttled),
        throttled_ns: Some(throttled_ns),
        ..Default::default()
    };
    let (times, ns) = if throttled { (2, 110 * MS as u64) } else { (0, 0) };
    (group.stat_start, group.stat_end) = (Some(counted(0, 0, 0)), Some(counted(150, times, ns)));
    compile_with(&header, &events, Some("comm:web"))
}

#[test]
fn a_group_that_was_never_throttled_has_periods_in_which_it_fits() {
    for phase_ns in [0, 30 * MS, 70 * MS] {
        let (program, machine) = meets_elsewhere(phase_ns, false);
        let replayed = run(&program, &machine, &[]);
        assert!(
            p(&replayed, 100.0) < 15.1,
            "{phase_ns}: {} ms",
            p(&replayed, 100.0)
        );
    }
}

#[test]
fn a_group_that_was_throttled_now_and_then_is_so_as_often() {
    for phase_ns in [0, 30 * MS, 70 * MS] {
        let (program, machine) = meets_elsewhere(phase_ns, true);
        let replayed = run(&program, &machine, &[]);
        let stat = replayed.groups[program.target as usize].stat.unwrap();
        assert_eq!(stat.nr_throttled, 2, "{phase_ns}: of {} periods", stat.nr_periods);
    }
}
