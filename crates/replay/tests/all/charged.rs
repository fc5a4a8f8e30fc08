// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What limits are charged with: what the kernel counted, which is neither all nor only what the trace shows.
use crate::common::{compile, p, run};
use plimsoll_trace::example::{self, MS};
use plimsoll_trace::CpuStat;

#[test]
fn more_work_than_the_kernel_counted_is_doubted_and_less_is_not() {
    // The trace shows 3 ms of work in each of 100 rounds.
    let (mut header, events) = example::open_loop(100);
    for (counted_ms, doubt) in [
        (Some(200), true),
        (Some(270), true),
        (Some(290), false),
        (Some(900), false),
        (None, false),
    ] {
        let usage = |ms: u64| CpuStat {
            usage_ns: Some(ms * MS as u64),
            ..Default::default()
        };
        header.groups[1].stat_start = Some(usage(5_000));
        header.groups[1].stat_end = counted_ms.map(|ms| usage(5_000 + ms));
        let (program, _) = compile(&header, &events);
        let said = program.groups[program.target as usize].doubt();
        assert_eq!(said.is_some(), doubt, "{counted_ms:?}: {said:?}");
        let both = |text: &String| text.contains("0.300 s") && text.contains("0.2");
        assert!(said.iter().all(both), "{said:?}");
    }
}

#[test]
fn a_limit_is_charged_with_what_the_kernel_counts_and_no_interrupts() {
    // The trace shows 0.3 CPUs of work. By the kernel's own count it is 4% less, and fits into the quota.
    let (mut header, events) = example::open_loop(300);
    let mut longest_ms = |counted_ms: Option<i64>| {
        let usage = |ms: i64| CpuStat {
            usage_ns: Some((ms * MS) as u64),
            ..Default::default()
        };
        header.groups[1].stat_start = Some(usage(0));
        header.groups[1].stat_end = counted_ms.map(usage);
        let (program, machine) = compile(&header, &events);
        p(&run(&program, &machine, &["group.web.quota_us=29500"]), 100.0)
    };
    let (counted, not_counted) = (longest_ms(Some(864)), longest_ms(None));
    assert!(not_counted > 40.0, "{not_counted} ms: the queue grows");
    assert!(counted < 10.0, "{counted} ms");
}

#[test]
fn a_limit_is_charged_with_what_comes_before_a_switch_from_idle() {
    // The trace shows 0.3 CPUs of work, in wake-ups of an idle CPU. By the kernel's own count it is 8% more, and that is not in the quota.
    let (mut header, events) = example::open_loop(300);
    let mut replayed = |counted_ms: i64| {
        let usage = |ms: i64| CpuStat {
            usage_ns: Some((ms * MS) as u64),
            ..Default::default()
        };
        header.groups[1].stat_start = Some(usage(0));
        header.groups[1].stat_end = Some(usage(counted_ms));
        let (program, machine) = compile(&header, &events);
        let replayed = run(&program, &machine, &["group.web.quota_us=31800"]);
        let group = &replayed.groups[program.target as usize];
        (p(&replayed, 100.0), group.throttled.unwrap(), group.cpus)
    };
    let (longest_ms, throttled, cpus) = replayed(900);
    assert!(
        longest_ms < 10.0 && throttled == 0.0,
        "{longest_ms} ms, {throttled}"
    );
    let (longest_beyond_ms, throttled, cpus_beyond) = replayed(972);
    assert!(throttled > 0.5, "{throttled}");
    // What waited is served with no idle time between, and is charged no more than its work: no queue grows.
    assert!(longest_beyond_ms < 40.0, "{longest_beyond_ms} ms");
    assert!(
        (cpus - cpus_beyond).abs() < 0.001,
        "{cpus} and {cpus_beyond} CPUs of work"
    );
}

#[test]
fn the_least_quota_is_one_also_where_the_kernel_counts_more_than_the_trace_shows() {
    let (mut header, events) = example::open_loop(30);
    let usage = |ns: i64| CpuStat {
        usage_ns: Some(ns as u64),
        ..Default::default()
    };
    header.groups[1].stat_start = Some(usage(0));
    header.groups[1].stat_end = Some(usage(93 * MS));
    let (program, machine) = compile(&header, &events);
    let sets = ["group.web.quota_us=1000", "group.web.period_us=2000"];
    let work_ns = program.groups[program.target as usize].work_ns;
    assert!(work_ns < 92 * MS as u64, "{work_ns} ns of work");
    assert!(p(&run(&program, &machine, &sets), 100.0) > 4.0);
}
