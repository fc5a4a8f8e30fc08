// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Load, weights, the sparsemask, fairness and headroom: what each promises.

use crate::common::MS;
use plimsoll_policy_sys::*;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;

#[test]
fn load_average_follows_the_geometric_series() {
    let mut rng = rand_pcg::Pcg64::seed_from_u64(1);
    let mut pelt: Pelt = zeroed();
    let (mut now, mut exact) = (0u64, 0f64);
    let y = 0.5f64.powf(1.0 / 32.0 / 1024.0); // per unit of 1024 ns
    for _ in 0..20_000 {
        let weight = if rng.random_bool(0.5) { 1024 } else { 0 };
        // The average is that of whole segments: within a thousandth at their borders, and up to one old between them.
        let anywhere = rng.random_range(1..4000u64);
        for within in [0.03, 0.001] {
            let units = match within {
                0.03 => anywhere,
                _ => 1024 - u64::from(pelt.segment),
            };
            now += units << 10;
            // SAFETY: a local struct.
            unsafe { pl_pelt_update(&mut pelt, weight << LOAD_SHIFT, now) };
            let decay = y.powf(units as f64);
            exact = exact * decay + weight as f64 * (1.0 - decay);
            let average = pelt.avg as f64 / f64::from(1 << LOAD_SHIFT);
            assert!(
                (average - exact).abs() < 1024.0 * within,
                "{average} for {exact}, within {within}"
            );
        }
    }
}

#[test]
fn load_average_halves_in_32_segments() {
    let mut pelt: Pelt = zeroed();
    unsafe {
        pl_pelt_update(&mut pelt, 1024, 1024 * 1024 * 1000);
        let full = pelt.avg;
        pl_pelt_update(&mut pelt, 0, 1024 * 1024 * 1032);
        assert!(
            (pelt.avg as i64 * 2 - full as i64).abs() <= 2,
            "{} of {full}",
            pelt.avg
        );
    }
}

#[test]
fn publishing_writes_the_shared_line_at_most_once_per_interval_and_change() {
    let config = LoadConfig { publish_ns: MS };
    let unlimited = LoadConfig { publish_ns: 0 };
    let writes = |config: &LoadConfig| {
        let mut group: GroupLoad = zeroed();
        let mut load: Load = zeroed();
        let mut writes = 0;
        for step in 1..=100_000u64 {
            // Tasks that come and go with their load.
            load.pelt.avg = if (step / 5) % 2 == 0 { 1024 } else { 0 };
            unsafe {
                writes += pl_load_publish(&mut group, &mut load, step * 10_000, config) as u32;
            }
            assert_eq!(group.load_avg, load.contribution);
        }
        writes
    };
    let limited = writes(&config);
    assert!(limited <= 1000, "1 s at one per ms: {limited}");
    assert!(limited > 10);
    assert_eq!(writes(&unlimited), 20_001, "the first, and at every change");
}

#[test]
fn shares_of_all_cpus_add_up_to_the_groups_weight() {
    let mut rng = rand_pcg::Pcg64::seed_from_u64(2);
    for _ in 0..200 {
        let cpus = rng.random_range(1..64usize);
        let mut group: GroupLoad = zeroed();
        let mut loads: Vec<Load> = vec![zeroed(); cpus];
        let weight = 100 * 1024;
        for load in &mut loads {
            let weight = rng.random_range(2..5000);
            load.weight = weight << LOAD_SHIFT;
            load.pelt.avg = weight;
            load.contribution = weight as i64;
            group.load_avg += load.contribution;
        }
        let sum: u64 = loads
            .iter()
            .map(|l| unsafe { pl_load_share(&group, l, weight) })
            .sum();
        assert!(
            sum.abs_diff(weight << LOAD_SHIFT) <= cpus as u64 * 2,
            "{cpus} CPUs: {sum} of {weight}"
        );
    }
}

#[test]
fn a_task_that_moves_takes_its_load_along_and_the_groups_sum_stays() {
    let mut rng = rand_pcg::Pcg64::seed_from_u64(4);
    let config = LoadConfig { publish_ns: MS };
    for _ in 0..500 {
        let mut group: GroupLoad = zeroed();
        let mut loads: [Load; 4] = [zeroed(); 4];
        let weight = rng.random_range(2..100_000u64);
        let mut tasks = [0u64; 4];
        let mut now = 0;
        for _ in 0..50 {
            now += rng.random_range(0..50 * MS);
            let (from, to) = (rng.random_range(0..4usize), rng.random_range(0..4usize));
            if from == to {
                continue;
            }
            let (mut a, mut b) = (loads[from], loads[to]);
            // SAFETY: local structs.
            unsafe {
                pl_load_update(&mut a, now);
                pl_load_update(&mut b, now);
                let moves = tasks[from] > 0;
                if moves {
                    tasks[from] -= 1;
                    a.weight -= weight << LOAD_SHIFT;
                }
                let average = a.pelt.avg + b.pelt.avg;
                let moved = pl_load_moved(&mut a, &mut b, weight, now, &config);
                assert_eq!(a.pelt.avg + b.pelt.avg, average, "made or lost");
                assert!(moved <= weight && a.pelt.avg + moved <= average);
                tasks[to] += 1;
                b.weight += weight << LOAD_SHIFT;
                pl_load_publish(&mut group, &mut b, now, &config);
            }
            (loads[from], loads[to]) = (a, b);
            let books: i64 = loads.iter().map(|l| l.contribution).sum();
            assert_eq!(
                group.load_avg, books,
                "the shared sum is not what the queues have in it"
            );
        }
        // What left with its task does not count twice.
        let (mut a, mut b): (Load, Load) = (zeroed(), zeroed());
        a.weight = weight << LOAD_SHIFT;
        // SAFETY: local structs.
        unsafe {
            pl_load_update(&mut a, 1000 * MS);
            pl_load_publish(&mut group, &mut a, 1000 * MS, &config);
            a.weight = 0;
            assert!(pl_load_moved(&mut a, &mut b, weight, 1000 * MS, &config) * 100 >= weight * 98);
            b.weight = weight << LOAD_SHIFT;
            assert_eq!(
                pl_load_share(
                    &GroupLoad {
                        load_avg: b.contribution
                    },
                    &b,
                    1024
                ),
                1024 << LOAD_SHIFT
            );
        }
    }
}

#[test]
fn nice_levels_are_a_quarter_apart_and_weights_keep_their_ratio() {
    let weights: Vec<u64> = (-20..=19).map(|n| unsafe { pl_weight_of_nice(n) }).collect();
    assert_eq!(weights[20], 1024);
    for pair in weights.windows(2) {
        let ratio = pair[0] as f64 / pair[1] as f64;
        assert!((1.2..1.3).contains(&ratio), "{ratio}");
    }
    assert_eq!(unsafe { pl_weight_of_cpu_weight(100) }, 1024);
    assert_eq!(unsafe { pl_weight_of_cpu_weight(10_000) }, 102_400);
    assert!(unsafe { pl_weight_of_cpu_weight(1) } >= 3);
}

#[test]
fn sparsemask_is_a_set_and_visits_each_element_once_from_anywhere() {
    let mut rng = rand_pcg::Pcg64::seed_from_u64(3);
    for elements in [1u32, 7, 8, 9, 20, 64, 112, 1024] {
        let mut chunks: Vec<SparsemaskChunk> = vec![zeroed(); elements.div_ceil(8) as usize];
        let mut mask = Sparsemask {
            chunks: chunks.as_mut_ptr(),
            elements,
            reserved: 0,
        };
        let mut set = BTreeSet::new();
        for _ in 0..300 {
            let e = rng.random_range(0..elements);
            unsafe {
                if rng.random_bool(0.5) {
                    pl_sparsemask_set(&mut mask, e);
                    set.insert(e);
                } else {
                    pl_sparsemask_clear(&mut mask, e);
                    set.remove(&e);
                }
                assert_eq!(pl_sparsemask_test(&mask, e), set.contains(&e));
            }
            let from = rng.random_range(0..elements);
            let mut seen = Vec::new();
            let mut left = elements;
            let mut e = unsafe { pl_sparsemask_next(&mask, from, &mut left) };
            while e != SPARSEMASK_NONE {
                seen.push(e);
                e = unsafe { pl_sparsemask_next(&mask, e + 1, &mut left) };
            }
            let expected: Vec<u32> = set.range(from..).chain(set.range(..from)).copied().collect();
            assert_eq!(seen, expected, "from {from} of {elements}");
        }
    }
}

#[test]
fn stealing_is_declined_beyond_the_node_limit_and_for_short_idle_times() {
    let config = StealConfig {
        enabled: 1,
        node_limit: 2,
        cost_ns: 10_000,
    };
    let steal = Steal {
        avg_idle_ns: 50_000,
        ..zeroed()
    };
    let ask =
        |steal: &Steal, nodes, config: &StealConfig| unsafe { pl_steal_worthwhile(steal, nodes, config) };
    assert!(ask(&steal, 2, &config));
    assert!(!ask(&steal, 4, &config));
    assert!(!ask(
        &Steal {
            avg_idle_ns: 9_999,
            ..steal
        },
        1,
        &config
    ));
    assert!(!ask(&steal, 1, &StealConfig { enabled: 0, ..config }));
}

fn fair_config() -> FairConfig {
    FairConfig {
        slice_ns: 3 * MS,
        latency_ns: 0,
        sleeper_credit_ns: 3 * MS,
        wakeup_gran_ns: MS,
        wait_max_ns: 1000 * MS,
        pull_ns: 0,
        lag_max_ns: 20 * MS,
        as_kernel: 1,
        doubled_ns: 0,
    }
}

/// The kernel's fair class before 6.6: where a task of the root of that weight goes on a CPU.
fn placed(cpu: &FairCpu, vruntime: u64, effective: u64, woken: bool) -> u64 {
    let mut root: Group = zeroed();
    let mut task: Task = zeroed();
    task.group = &mut root;
    (task.vruntime, task.effective) = (vruntime, effective);
    unsafe { pl_cfs_place(&mut task, cpu, woken, &fair_config()) };
    task.vruntime
}

#[test]
fn a_light_task_among_heavy_ones_waits_no_longer_than_the_bound() {
    let heavy = 102_400u64 << 10;
    let cpu = FairCpu {
        clock: 1 << 40,
        weight_sum: 20 * heavy,
        ..zeroed()
    };
    // A task of the least weight that has just run comes back far ahead of the queue's clock.
    let ahead = cpu.clock + (1 << 50);
    for woken in [true, false] {
        // The clock advances 2^20 / weight_sum per ns: how long until it reaches the task?
        let distance = placed(&cpu, ahead, 2, woken) - cpu.clock;
        let wait_ns = distance as f64 * cpu.weight_sum as f64 / (1u64 << 20) as f64;
        assert!(wait_ns <= 1.01 * fair_config().wait_max_ns as f64, "{wait_ns} ns");
    }
}

fn cpu_with_one_task() -> FairCpu {
    FairCpu {
        clock: 1 << 40,
        weight_sum: FAIR_WEIGHT_ONE,
        ..zeroed()
    }
}

#[test]
fn a_long_sleep_earns_no_more_than_the_credit() {
    let cpu = cpu_with_one_task();
    let placed = placed(&cpu, 0, FAIR_WEIGHT_ONE, true);
    assert_eq!(cpu.clock - placed, fair_config().sleeper_credit_ns);
}

#[test]
fn a_preempted_task_keeps_what_it_is_owed_up_to_the_bound() {
    let config = fair_config();
    let cpu = cpu_with_one_task();
    let owed = cpu.clock - config.lag_max_ns;
    assert!(config.lag_max_ns > config.sleeper_credit_ns);
    assert_eq!(placed(&cpu, owed, FAIR_WEIGHT_ONE, false), owed);
    assert_eq!(placed(&cpu, 0, FAIR_WEIGHT_ONE, false), owed);
    // Ten such tasks, all behind by as much, would be ten times as long at it.
    let crowded = FairCpu {
        weight_sum: 10 * FAIR_WEIGHT_ONE,
        ..cpu
    };
    let placed = placed(&crowded, 0, FAIR_WEIGHT_ONE, false);
    assert_eq!(crowded.clock - placed, config.lag_max_ns / 10);
}

#[test]
fn a_task_that_moves_keeps_its_distance_from_the_queues_clock() {
    let at = |clock| FairCpu { clock, ..zeroed() };
    let mut task: Task = zeroed();
    task.vruntime = 450;
    unsafe { pl_cfs_moved(&mut task, &at(500), &at(9000)) };
    assert_eq!(task.vruntime.wrapping_sub(9000), 450u64.wrapping_sub(500));
}

/// The spec's table: headroom 30%, main at 30 .. 80 %, side to get 40/30/20/10/min/min %.
#[test]
fn headroom_settles_on_the_published_table_within_three_windows() {
    let tolerance = MS;
    let capacity = 16 * 100 * MS;
    for (main, side) in [(30, 40), (40, 30), (50, 20), (60, 10), (70, 0), (80, 0)] {
        let main_ns = capacity / 100 * main;
        let mut used = capacity - main_ns; // a side that took everything so far
        for _ in 0..3 {
            let idle = capacity - main_ns - used;
            let budget = unsafe { pl_headroom_budget(used, idle, capacity, 30, tolerance) };
            used = budget.min(capacity - main_ns);
        }
        let expected = (capacity / 100 * side).max(tolerance);
        assert_eq!(used, expected, "main at {main} %");
    }
}

/// Marks main groups with (percent, tolerance) in turn; what binds.
fn binding(groups: &[(u32, u64)]) -> (u32, u64) {
    let mut headroom: Headroom = zeroed();
    for &(headroom_percent, headroom_tolerance_ns) in groups {
        let mut group = Group {
            headroom_percent,
            headroom_tolerance_ns,
            ..zeroed()
        };
        unsafe { pl_headroom_mark(&mut headroom, &mut group) };
    }
    (headroom.percent, headroom.tolerance_ns)
}

#[test]
fn the_largest_headroom_binds_and_brings_its_tolerance() {
    assert_eq!(binding(&[(30, 5 * MS)]), (30, 5 * MS));
    assert_eq!(binding(&[(30, 5 * MS), (20, MS)]), (30, 5 * MS));
    assert_eq!(binding(&[(20, MS), (30, 5 * MS)]), (30, 5 * MS));
    // The machine's tolerance where the binding group has none, whatever another one has.
    assert_eq!(binding(&[(20, MS), (30, 0)]), (30, 0));
    // Of equal ones the strictest, in any order.
    for order in [
        [(30, 5 * MS), (30, MS), (30, 0)],
        [(30, 0), (30, MS), (30, 5 * MS)],
    ] {
        assert_eq!(binding(&order), (30, MS));
    }
    assert_eq!(binding(&[(0, MS)]), (0, 0));
}

#[test]
fn a_window_grants_the_side_the_tolerance_that_binds() {
    let config = HeadroomConfig {
        window_ns: 100 * MS,
        tolerance_ns: MS,
        steps: 20,
        reserved: 0,
    };
    for (own, granted) in [(0, MS), (7 * MS, 7 * MS), (1000, 1000)] {
        let mut headroom = Headroom {
            percent: 30,
            tolerance_ns: own,
            ..zeroed()
        };
        let mut side: Group = zeroed();
        side.pool.quota_ns = 5 * MS;
        // The machine is full of main: nothing is left for the side but its tolerance.
        unsafe { pl_headroom_window(&mut headroom, &mut side, 0, 0, 100 * MS, 4, 0, &config, &zeroed()) };
        assert_eq!(headroom.budget_ns, granted);
        assert_eq!(side.pool.quota_ns, granted / 20);
    }
}

#[test]
fn a_window_of_any_machine_hands_out_its_whole_budget() {
    for (window_ns, took_ns, cpus, steps) in [
        (100 * MS, 100 * MS, 4, 20),
        (100 * MS, 101 * MS, 1024, 20),
        (1000 * MS, 1000 * MS, 16, 20),
        (1000 * MS, 1000 * MS, 19, 20),
        (1000 * MS, 1500 * MS, 1024, 1),
        (1000 * MS, 16_999 * MS + 7, 1024, 100),
    ] {
        let config = HeadroomConfig {
            window_ns,
            tolerance_ns: MS,
            steps,
            reserved: 0,
        };
        let mut headroom = Headroom {
            percent: 30,
            ..zeroed()
        };
        let mut side: Group = zeroed();
        side.pool.quota_ns = 5 * MS;
        let idle_ns = took_ns * u64::from(cpus);
        unsafe {
            pl_headroom_window(
                &mut headroom,
                &mut side,
                0,
                idle_ns,
                took_ns,
                cpus,
                0,
                &config,
                &zeroed(),
            )
        };
        let expected =
            u128::from(headroom.budget_ns) * u128::from(window_ns) / u128::from(took_ns) / u128::from(steps);
        assert_eq!(
            u128::from(side.pool.quota_ns),
            expected,
            "{cpus} CPUs, {took_ns} ns"
        );
    }
}

#[test]
fn the_sides_budget_is_whole_again_after_overruns_of_its_timer() {
    let config = HeadroomConfig {
        window_ns: 100 * MS,
        tolerance_ns: MS,
        steps: 20,
        reserved: 0,
    };
    let mut headroom = Headroom {
        percent: 30,
        ..zeroed()
    };
    let mut side: Group = zeroed();
    let bandwidth = crate::common::published();
    let mut window = |side: &mut Group, now_ns| unsafe {
        pl_headroom_window(
            &mut headroom,
            side,
            0,
            400 * MS,
            100 * MS,
            4,
            now_ns,
            &config,
            &bandwidth,
        );
    };
    side.pool.quota_ns = UNLIMITED;
    window(&mut side, 0);
    let (quota_ns, period_ns) = (side.pool.quota_ns, side.pool.period_ns);
    assert_eq!((quota_ns, period_ns), (14 * MS, 5 * MS));
    unsafe { pl_bw_period(&mut side.pool, 20 * MS, 4, &bandwidth) };
    assert_eq!((side.pool.quota_ns, side.pool.period_ns), (28 * MS, 10 * MS));
    window(&mut side, 100 * MS);
    assert_eq!((side.pool.quota_ns, side.pool.period_ns), (quota_ns, period_ns));
}

#[test]
fn a_mask_is_written_where_a_cpu_turns_overloaded_or_no_longer_is() {
    for (before, after) in (0..5u32).flat_map(|before| (0..5).map(move |after| (before, after))) {
        let mut chunks: Vec<SparsemaskChunk> = vec![zeroed(); 1];
        let mut mask = Sparsemask {
            chunks: chunks.as_mut_ptr(),
            elements: 8,
            reserved: 0,
        };
        // SAFETY: the chunks outlive the mask.
        unsafe {
            pl_steal_count_changed(&mut mask, 3, 0, before);
            let was = pl_sparsemask_test(&mask, 3);
            let turned = pl_steal_turned(before, after);
            assert_eq!(pl_steal_count_changed(&mut mask, 3, before, after), turned != 0);
            let is = pl_sparsemask_test(&mask, 3);
            assert_eq!(i32::from(is) - i32::from(was), turned, "{before} to {after}");
        }
    }
}
