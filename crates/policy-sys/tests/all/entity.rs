// SPDX-License-Identifier: Apache-2.0 OR MIT
//! entity.h against the ideal: a fluid that divides each moment in proportion to weights.
use plimsoll_policy_sys as pl;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

fn entity(weight: u64, slice_ns: u64, id: u64) -> Box<pl::Entity> {
    let mut entity: pl::Entity = pl::zeroed();
    entity.weight = weight << pl::LOAD_SHIFT;
    entity.slice_ns = slice_ns;
    entity.id = id;
    Box::new(entity)
}

fn ns(lag: i64) -> f64 {
    lag as f64 / f64::from(1 << 20)
}

#[test]
fn over_any_window_each_has_what_a_fluid_gives_it_within_a_request() {
    for seed in 0..200 {
        let mut rng = Pcg64::seed_from_u64(seed);
        let mut line: pl::Line = pl::zeroed();
        let n = rng.random_range(2..20);
        let requests: Vec<u64> = (0..n).map(|_| rng.random_range(300 * US..=3 * MS)).collect();
        let mut entities: Vec<Box<pl::Entity>> = (0..n)
            .map(|i| entity(rng.random_range(2..100_000), requests[i], i as u64))
            .collect();
        for entity in &mut entities {
            unsafe { pl::pl_line_join(&mut line, entity.as_mut(), 0) };
        }
        let sum: u64 = entities.iter().map(|e| e.weight).sum();
        let (mut served, mut now_ns) = (vec![0u64; n], 0u64);
        let longest = *requests.iter().max().expect("not empty") as f64;
        let turn_ns = 100 * US;
        // How far each was ahead of the fluid and behind it at most: any window lies between.
        let mut ends = vec![(0f64, 0f64); n];
        for _ in 0..5_000 {
            let mut least_ns = 0;
            let picked = unsafe { &*pl::pl_line_pick(&line, 0, &mut least_ns) }.id as usize;
            assert_eq!(least_ns, *requests.iter().min().expect("not empty"));
            unsafe { pl::pl_line_ran(&mut line, entities[picked].as_mut(), turn_ns) };
            served[picked] += turn_ns;
            now_ns += turn_ns;
            for i in 0..n {
                let due = now_ns as f64 * entities[i].weight as f64 / sum as f64;
                let ahead = served[i] as f64 - due;
                ends[i] = (ends[i].0.min(ahead), ends[i].1.max(ahead));
                let lag = ns(unsafe { pl::pl_entity_lag(&line, entities[i].as_ref()) });
                // V and v are whole numbers, and each turn is rounded down to one.
                let rounding =
                    2.0 * 5_000.0 * entities[i].weight.max(sum / n as u64) as f64 / f64::from(1 << 20);
                assert!(
                    (lag + ahead).abs() <= rounding,
                    "seed {seed}: lag {lag} is not {}",
                    -ahead
                );
            }
        }
        for (i, (behind, ahead)) in ends.iter().enumerate() {
            let within = longest + turn_ns as f64;
            assert!(
                -behind <= within && *ahead <= within,
                "seed {seed}, {i}: {behind} .. {ahead} ns"
            );
        }
    }
}

/// A client of a hundred times the weight is in the line, too: what the one that came is owed does not say where the one that runs is.
#[test]
fn two_in_a_line_have_the_lags_of_a_recording_and_the_rest_owe_what_that_takes() {
    let mut line: pl::Line = pl::zeroed();
    let mut all = [(100, 3 * MS), (100, 3 * MS), (10_000, MS), (300, MS)]
        .into_iter()
        .enumerate()
        .map(|(id, (weight, slice_ns))| entity(weight, slice_ns, id as u64))
        .collect::<Vec<_>>();
    let [came, runs, ..] = [0, 1, 2, 3].map(|i| all[i].as_mut() as *mut pl::Entity);
    let lag = |line: &pl::Line, entity: *const pl::Entity| ns(unsafe { pl::pl_entity_lag(line, entity) });
    for entity in all.iter_mut().rev() {
        unsafe { pl::pl_line_join(&mut line, entity.as_mut(), 0) };
    }
    unsafe {
        pl::pl_line_picked(&mut line, runs);
        pl::pl_line_ran(&mut line, runs, 500 * US);
    }
    let others = [&all[2], &all[3]].map(|other| other.v);
    let of_turn = |e: &pl::Entity| (e.deadline - e.v, e.v - e.picked_v);
    let before = of_turn(&all[1]);
    unsafe { pl::pl_recorded_lags(&mut line, came, runs, 100_000, -5_000_000) };
    let lags = [0, 1, 2, 3].map(|i| lag(&line, all[i].as_ref()));
    assert!(
        (lags[0] - 100e3).abs() < 100.0 && (lags[1] + 5e6).abs() < 100.0,
        "{lags:?}"
    );
    assert!(lags.iter().sum::<f64>().abs() < 100.0, "{lags:?}");
    assert_eq!([&all[2], &all[3]].map(|other| other.v), others);
    assert_eq!(of_turn(&all[1]), before);
    // Without the others the two share what is between them.
    for i in [2, 3] {
        unsafe { pl::pl_line_leave(&mut line, all[i].as_mut()) };
    }
    let lags = [0, 1].map(|i| lag(&line, all[i].as_ref()));
    assert!(
        (lags[0] - 2.55e6).abs() < 100.0 && (lags[1] + 2.55e6).abs() < 100.0,
        "{lags:?}"
    );
    unsafe { pl::pl_recorded_lags(&mut line, came, runs, -1_000_000, 1_000_000) };
    let lags = [0, 1].map(|i| lag(&line, all[i].as_ref()));
    assert!(
        (lags[0] + 1e6).abs() < 100.0 && (lags[1] - 1e6).abs() < 100.0,
        "{lags:?}"
    );
}

/// The kernel's rule for whether a woken one waits.
#[test]
fn what_runs_is_left_alone_until_its_request_is_served_while_it_is_owed_time() {
    const REQUEST: u64 = 3 * MS;
    let mut line: pl::Line = pl::zeroed();
    let (mut a, mut b) = (entity(100, REQUEST, 0), entity(100, REQUEST, 1));
    unsafe {
        pl::pl_line_join(&mut line, a.as_mut(), 0);
        pl::pl_line_picked(&mut line, a.as_mut());
        // Alone it is neither ahead nor behind.
        pl::pl_line_ran(&mut line, a.as_mut(), MS);
        pl::pl_line_join(&mut line, b.as_mut(), 0);
        assert!(pl::pl_entity_is_protected(&line, a.as_ref()));
        pl::pl_line_ran(&mut line, a.as_mut(), MS / 2);
        assert!(
            !pl::pl_entity_is_protected(&line, a.as_ref()),
            "it has had more than its share"
        );
        pl::pl_line_leave(&mut line, b.as_mut());
        // Its request is served, and another begins: it is not protected for that, unless it is picked after another one.
        pl::pl_line_ran(&mut line, a.as_mut(), 2 * MS);
        assert!(a.deadline > a.v);
        pl::pl_line_picked(&mut line, a.as_mut());
        assert!(
            !pl::pl_entity_is_protected(&line, a.as_ref()),
            "its request is served"
        );
        pl::pl_line_join(&mut line, b.as_mut(), 0);
        pl::pl_line_picked(&mut line, b.as_mut());
        pl::pl_line_ran(&mut line, b.as_mut(), MS);
        pl::pl_line_picked(&mut line, a.as_mut());
        assert!(pl::pl_entity_is_protected(&line, a.as_ref()));
    }
}

#[test]
fn what_runs_is_weighed_as_kernels_do_that_count_its_lag_twice() {
    const BOUND_NS: u64 = 5_400 * US;
    let mut rng = Pcg64::seed_from_u64(0);
    let (mut grown, mut clamped) = (0, 0);
    for _ in 0..2_000 {
        let mut line: pl::Line = pl::zeroed();
        let mut entities: Vec<Box<pl::Entity>> = (0..3)
            .map(|id| entity(rng.random_range(2..10_000), 1_400 * US, id))
            .collect();
        for entity in &mut entities {
            unsafe { pl::pl_line_join(&mut line, entity.as_mut(), 0) };
        }
        for entity in &mut entities {
            unsafe { pl::pl_line_ran(&mut line, entity.as_mut(), rng.random_range(0..10 * MS)) };
        }
        let weight = rng.random_range(2 << pl::LOAD_SHIFT..10_000 << pl::LOAD_SHIFT);
        let running = entities[0].as_mut();
        let lag = ns(unsafe { pl::pl_entity_lag(&line, running) });
        // In the kernel's words, in units of v: the lag as it is kept, then the place among those that are there.
        let at = |v: u64| v.wrapping_sub(line.v0) as i64 as f64;
        let (old, new) = (running.weight as f64, weight as f64);
        let others = line.sum_w as f64 - old;
        let mean_of_others = (line.sum_wv as f64 - at(running.v) * old) / others;
        let mean = (others * mean_of_others + new * at(running.v)) / (others + new);
        let bound = BOUND_NS as f64;
        let kept = lag.clamp(-bound, bound) * f64::from(1 << 20) / new;
        let place = mean - kept * (others + new + new) / (others + new);
        let v0 = line.v0;
        let more = unsafe { pl::pl_entity_doubled(&line, running, weight, BOUND_NS) };
        unsafe { pl::pl_line_weigh(&mut line, running, weight, more) };
        let got = running.v.wrapping_sub(v0) as i64 as f64;
        let rounding = 8.0 + 4.0 * old.max(new) / new.min(old);
        assert!((got - place).abs() <= rounding, "{got} is not {place}");
        clamped += usize::from(lag.abs() > bound);
        grown += usize::from(
            unsafe { pl::pl_entity_lag(&line, running) }.abs() as f64 > lag.abs() * f64::from(1 << 20),
        );
    }
    assert!(
        grown > 1_000 && clamped > 10,
        "{grown} lags grew, {clamped} were bounded"
    );
}

#[test]
fn coming_going_and_weighing_anew_change_nobodys_lag_but_by_what_closes_the_sum() {
    for seed in 0..200 {
        let mut rng = Pcg64::seed_from_u64(seed);
        let mut line: pl::Line = pl::zeroed();
        let mut entities: Vec<Box<pl::Entity>> = (0..12)
            .map(|i| {
                entity(
                    rng.random_range(2..100_000),
                    rng.random_range(300 * US..=3 * MS),
                    i,
                )
            })
            .collect();
        for _ in 0..2_000 {
            let chosen = rng.random_range(0..entities.len());
            let lags = |line: &pl::Line, entities: &[Box<pl::Entity>]| -> Vec<Option<f64>> {
                let lag = |e: &pl::Entity| ns(unsafe { pl::pl_entity_lag(line, e) });
                entities.iter().map(|e| (e.on != 0).then(|| lag(e))).collect()
            };
            let before = lags(&line, &entities);
            let mean = unsafe { pl::pl_line_mean(&line) };
            let entity = entities[chosen].as_mut();
            let rounding = 4.0 * (line.sum_w + entity.weight) as f64 / f64::from(1 << 20) + 4.0;
            match (entity.on != 0, rng.random_range(0..3)) {
                (true, 0) => {
                    unsafe { pl::pl_line_leave(&mut line, entity) };
                    let kept = ns(entity.lag);
                    let had = before[chosen].expect("it was there");
                    let bound = (entity.slice_ns + 10 * MS) as f64;
                    assert!(
                        (kept - had.clamp(-bound, bound)).abs() < 1.0,
                        "seed {seed}: {kept}, had {had}"
                    );
                }
                (true, 1) => {
                    let weight = rng.random_range(2..100_000) << pl::LOAD_SHIFT;
                    let most = rounding + 4.0 * weight as f64 / f64::from(1 << 20);
                    unsafe { pl::pl_line_weigh(&mut line, entity, weight, 0) };
                    let moved = unsafe { pl::pl_line_mean(&line) }.wrapping_sub(mean) as i64;
                    let after = lags(&line, &entities)[chosen].expect("it is there");
                    let off = after - before[chosen].expect("it was there");
                    assert!(
                        off.abs() <= most,
                        "seed {seed}: lag moved by {off} ns, V by {moved}"
                    );
                }
                (true, _) => {
                    unsafe { pl::pl_line_ran(&mut line, entity, rng.random_range(1..3 * MS)) };
                }
                (false, _) => {
                    let kept = unsafe { pl::pl_entity_kept(&line, entity) };
                    let alone = line.n == 0;
                    unsafe { pl::pl_line_join(&mut line, entity, kept) };
                    let got = lags(&line, &entities)[chosen].expect("it is there");
                    let due = if alone { 0.0 } else { ns(kept) };
                    assert!((got - due).abs() <= rounding, "seed {seed}: {got} ns of {due}");
                }
            }
            let sum: f64 = lags(&line, &entities).iter().flatten().sum();
            let most = line.sum_w as f64 / f64::from(1 << 20) + 1.0;
            assert!(sum.abs() <= most, "seed {seed}: lags add up to {sum} ns");
        }
    }
}
