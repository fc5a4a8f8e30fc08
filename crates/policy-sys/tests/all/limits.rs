// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What limits promise their user, over long random runs.

use crate::common::*;
use plimsoll_policy_sys::*;
use rand::{Rng, SeedableRng};

/// CPU time used in each period by `cpus` CPUs that want to run with probability `busy` (per 100 us).
fn usage_by_period(bench: &mut Bench, periods: usize, busy: f64, rng: &mut impl Rng) -> Vec<u64> {
    let step = MS / 10;
    let period = bench.pool.period_ns;
    let cpus = bench.balances.len();
    let mut runs = vec![false; cpus];
    let mut used = Vec::new();
    let mut now = period;
    let mut sum = 0;
    for _ in 0..periods {
        for _ in 0..period / step {
            now += step;
            for (cpu, runs) in runs.iter_mut().enumerate() {
                let wants = rng.random_bool(busy);
                if bench.balances[cpu].throttled == 1 {
                    continue;
                }
                if wants && !*runs {
                    *runs = bench.charge(cpu, 0, true, now) & BW_THROTTLED == 0;
                }
                if *runs {
                    // A precise engine never runs past the balance.
                    let ran = step.min(bench.balances[cpu].remaining_ns.max(0) as u64);
                    sum += ran;
                    let throttled = bench.charge(cpu, ran, wants, now) & BW_THROTTLED != 0;
                    if !wants || throttled {
                        *runs = false;
                    }
                    if !wants && !throttled {
                        bench.leave(cpu, now);
                    }
                }
            }
        }
        if bench.pool.timer_active == 1 {
            bench.period(now);
        }
        used.push(sum);
        sum = 0;
    }
    used
}

#[test]
fn every_stretch_of_periods_keeps_within_carried_time_plus_quota() {
    for seed in 0..60 {
        let mut rng = rand_pcg::Pcg64::seed_from_u64(seed);
        let cpus = rng.random_range(1..=8u32);
        let quota = rng.random_range(MS..30 * MS);
        let burst = rng.random_range(0..60 * MS);
        let mut bench = Bench::new(cpus, published());
        bench.set(quota, 20 * MS, burst, 0, 20 * MS);
        let busy = [0.05, 0.3, 0.9][rng.random_range(0..3)];
        let used = usage_by_period(&mut bench, 60, busy, &mut rng);
        // B_j is at most the burst; each CPU may keep 1 ms of earlier periods, and one more slice drawn ahead.
        let slack = cpus as u64 * MS;
        for j in 0..used.len() {
            let mut sum = 0;
            for (k, u) in used.iter().enumerate().skip(j) {
                sum += u;
                let n = (k - j + 1) as u64;
                let held = cpus as u64 * bench.config.slice_ns.min(quota);
                let bound = burst + quota * n + slack.max(held);
                assert!(
                    sum <= bound,
                    "seed {seed}: periods {j}..={k} used {sum} ns, bound {bound} ns"
                );
            }
        }
    }
}

#[test]
fn a_busy_group_gets_its_whole_quota_and_no_more() {
    for cpus in [1u32, 2, 4, 16] {
        let mut rng = rand_pcg::Pcg64::seed_from_u64(7);
        let mut bench = Bench::new(cpus, published());
        // Binds from one CPU on.
        bench.set(10 * MS, 20 * MS, 0, 0, 20 * MS);
        let quota = bench.pool.quota_ns;
        let used: u64 = usage_by_period(&mut bench, 100, 1.0, &mut rng).iter().sum();
        let most = 100 * quota.min(cpus as u64 * 20 * MS);
        assert!(
            used <= most + cpus as u64 * MS,
            "{cpus} CPUs used {used} of {most} ns"
        );
        assert!(
            used >= most - 2 * quota,
            "{cpus} CPUs used only {used} of {most} ns"
        );
    }
}

#[test]
fn a_sleep_earns_every_period_it_lasted_up_to_the_buffer() {
    let mut bench = Bench::new(1, published());
    bench.set(10 * MS, 100 * MS, 35 * MS, 0, 0);
    bench.charge(0, 0, true, MS);
    bench.charge(0, 5 * MS, false, 6 * MS);
    for period in 1..=3 {
        bench.period(period * 100 * MS);
    }
    assert_eq!(
        bench.pool.timer_active, 0,
        "idle for a whole period: the timer stops"
    );
    bench.balances[0].remaining_ns = 0;
    bench.charge(0, 0, true, 1250 * MS);
    assert_eq!(
        bench.pool.runtime_ns + bench.balances[0].remaining_ns,
        45 * MS as i64
    );
}

#[test]
fn a_timer_that_somebody_waits_for_is_overdue_whether_or_not_it_counts_as_active() {
    let mut bench = Bench::new(1, published());
    bench.set(10 * MS, 100 * MS, 0, 0, 0);
    let overdue = |pool: &Pool, now_ns| unsafe { pl_bw_timer_overdue(pool, now_ns) };
    assert!(!overdue(&bench.pool, 1000 * MS), "no CPU asked for it");
    bench.charge(0, 0, true, MS);
    while bench.charge(0, 5 * MS, true, MS) & BW_THROTTLED == 0 {}
    for active in [1, 0] {
        bench.pool.timer_active = active;
        assert!(!overdue(&bench.pool, 200 * MS), "active: {active}");
        assert!(overdue(&bench.pool, 201 * MS), "active: {active}");
    }
    assert_eq!(bench.period(201 * MS), [0], "the CPU that waited is released");
    assert!(!overdue(&bench.pool, 1000 * MS), "no CPU waits for it");
}

#[test]
fn what_ran_before_the_scheduler_took_over_is_forgiven_and_nothing_else() {
    let mut bench = Bench::new(3, published());
    bench.set(10 * MS, 100 * MS, 0, 0, 0);
    bench.charge(0, 25 * MS, true, MS);
    bench.charge(1, MS, true, MS);
    let before = (bench.pool.runtime_ns, bench.balances[1].remaining_ns);
    assert_eq!(
        bench.balances[0].remaining_ns,
        -15 * MS as i64,
        "it has the pool's 10 ms"
    );
    unsafe { pl_bw_forgive(&mut *bench.pool) };
    let owed = bench.balances.iter().map(|balance| balance.remaining_ns);
    assert_eq!(owed.collect::<Vec<_>>(), [0, before.1.max(0), 0]);
    assert_eq!(bench.pool.runtime_ns, before.0);
    assert_eq!(bench.period(100 * MS)[0], 0, "released by the first refill");
}

#[test]
fn onset_grants_its_share_of_the_burst_and_mainline_grants_none() {
    let mut bench = Bench::new(1, published());
    bench.set(10 * MS, 100 * MS, 40 * MS, 25, 0);
    assert_eq!(bench.pool.runtime_ns, 20 * MS as i64);
    let mut bench = Bench::new(1, mainline());
    bench.set(40 * MS, 100 * MS, 40 * MS, 25, 0);
    assert_eq!(bench.pool.runtime_ns, 40 * MS as i64);
}

#[test]
fn burst_switched_off_carries_nothing() {
    let mut bench = Bench::new(
        1,
        BwConfig {
            burst_off: 1,
            ..published()
        },
    );
    bench.set(10 * MS, 100 * MS, 40 * MS, 100, 0);
    bench.charge(0, 0, true, 0);
    for period in 1..=5 {
        bench.period(period * 100 * MS);
        assert!(bench.pool.runtime_ns <= 10 * MS as i64);
    }
}

#[test]
fn bad_limits_are_named_and_change_nothing() {
    let good = BwLimits {
        quota_ns: 10 * MS,
        period_ns: 100 * MS,
        burst_ns: 0,
        onset_percent: 0,
        reserved: 0,
    };
    let check = |limits: BwLimits, root, mainline| unsafe { pl_bw_check(&limits, root, mainline) };
    assert_eq!(check(good, false, false), BW_OK);
    assert_eq!(check(good, true, false), BW_ERR_ROOT);
    assert_eq!(
        check(
            BwLimits {
                quota_ns: MS - 1,
                ..good
            },
            false,
            false
        ),
        BW_ERR_QUOTA
    );
    assert_eq!(
        check(
            BwLimits {
                quota_ns: ((1 << 44) - 1) * 1000 + 1,
                ..good
            },
            false,
            false
        ),
        BW_ERR_QUOTA
    );
    assert_eq!(
        check(
            BwLimits {
                period_ns: MS - 1,
                ..good
            },
            false,
            false
        ),
        BW_ERR_PERIOD
    );
    assert_eq!(
        check(
            BwLimits {
                period_ns: 1000 * MS + 1,
                ..good
            },
            false,
            false
        ),
        BW_ERR_PERIOD
    );
    assert_eq!(
        check(
            BwLimits {
                burst_ns: 1 << 60,
                ..good
            },
            false,
            false
        ),
        BW_ERR_BURST
    );
    assert_eq!(
        check(
            BwLimits {
                burst_ns: 11 * MS,
                ..good
            },
            false,
            false
        ),
        BW_OK,
        "published: burst > quota"
    );
    assert_eq!(
        check(
            BwLimits {
                burst_ns: 11 * MS,
                ..good
            },
            false,
            true
        ),
        BW_ERR_BURST,
        "mainline refuses it"
    );
    assert_eq!(
        check(
            BwLimits {
                quota_ns: UNLIMITED,
                burst_ns: 11 * MS,
                ..good
            },
            false,
            true
        ),
        BW_OK,
        "mainline takes it where there is no quota"
    );
    assert_eq!(
        check(
            BwLimits {
                onset_percent: 101,
                ..good
            },
            false,
            false
        ),
        BW_ERR_ONSET
    );
}

#[test]
fn the_fourth_overrun_of_one_callback_doubles_the_period_and_none_after_it() {
    let mut bench = Bench::new(1, published());
    bench.set(10 * MS, 100 * MS, 5 * MS, 0, 0);
    for nth in 1..=6 {
        // SAFETY: memory of Bench.
        unsafe { pl_bw_period(&mut *bench.pool, nth * 1000 * MS, nth as u32, &bench.config) };
        let times = if nth >= 4 { 2 } else { 1 };
        assert_eq!(bench.pool.period_ns, 100 * MS * times);
        assert_eq!(bench.pool.quota_ns, 10 * MS * times);
    }
}

#[test]
fn returned_time_is_handed_out_before_the_period_ends() {
    let mut bench = Bench::new(2, published());
    bench.set(20 * MS, 100 * MS, 0, 0, 0);
    bench.charge(0, 0, true, MS); // draws 5 ms
    while bench.charge(1, 5 * MS, true, 10 * MS) & BW_THROTTLED == 0 {}
    bench.balances[0].remaining_ns += 10 * MS as i64; // it had drawn more, and runs nothing of it
    assert_eq!(bench.leave(0, 20 * MS), BW_ARM_SLACK);
    assert!(unsafe { pl_bw_take_arm_slack(&mut *bench.pool) });
    assert_eq!(bench.slack(25 * MS), vec![1]);
}

#[test]
fn little_or_late_returns_are_not_handed_out_unless_somebody_is_owed() {
    let throttled = || {
        let mut bench = Bench::new(2, published());
        bench.set(20 * MS, 100 * MS, 0, 0, 0);
        while bench.charge(1, 5 * MS, true, 10 * MS) & BW_THROTTLED == 0 {}
        bench
    };
    let mut bench = throttled();
    bench.balances[0].remaining_ns = 6 * MS as i64;
    assert_eq!(bench.leave(0, 20 * MS), 0, "5 ms went back: no more than a slice");
    assert_eq!(bench.slack(25 * MS), vec![]);
    // As if the return had come between asking and entering the ring.
    assert_eq!(unsafe { pl_bw_owe(&mut *bench.pool) }, BW_ARM_SLACK);
    assert_eq!(unsafe { pl_bw_owe(&mut *bench.pool) }, 0, "it is armed already");
    assert_eq!(bench.slack(25 * MS), vec![1]);

    let mut bench = throttled();
    bench.balances[0].remaining_ns = 11 * MS as i64;
    assert_eq!(bench.leave(0, 94 * MS), 0, "the refill is less than 7 ms away");
    assert_eq!(bench.slack(99 * MS), vec![], "and less than 2 ms");
    unsafe { pl_bw_owe(&mut *bench.pool) };
    assert_eq!(bench.slack(99 * MS), vec![1]);
}

#[test]
fn changed_limits_release_what_was_throttled() {
    let mut bench = Bench::new(4, published());
    bench.set(MS, 100 * MS, 0, 0, 0);
    for cpu in 0..4 {
        bench.charge(cpu, 10 * MS, true, 10 * MS);
    }
    assert!(bench.balances.iter().any(|b| b.throttled == 1));
    bench.set(50 * MS, 100 * MS, 0, 0, 20 * MS);
    assert!(bench
        .balances
        .iter()
        .all(|b| b.throttled == 0 && b.remaining_ns == 0));
}
