// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several recordings: how much they differ is allowed for.
use crate::service::{found, of_costs, read};
use plimsoll_plan::{Plan, SeenIn, Verdict, DRIFT, ONE};
use plimsoll_trace::example::{self};

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
