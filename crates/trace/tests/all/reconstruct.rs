// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Thread by thread reconstruction. `UPDATE_EXPECT=1 cargo test` records the expectations again.
use crate::common::{events, header, render};
use expect_test::{expect, Expect};
use plimsoll_trace::{Doubt, Phase, Place, Timeline, TraceError, DOUBTFUL_SHARE_MAX};

fn check(threads: &str, text: &str, expected: Expect) -> Timeline {
    let timeline = Timeline::build(&header(threads), &events(text));
    expected.assert_eq(&render(&timeline));
    timeline
}

#[test]
fn work_excludes_waiting_for_a_cpu() {
    let timeline = check(
        "7:a 8:b",
        "
        100 0 waking 7 0 timer
        150 0 switch 0 R 7
        250 0 switch 7 R 8
        400 0 switch 8 S 7
        450 0 switch 7 S 0
        ",
        expect![[r#"
            #0 7 a
              .0 100..450 timer; work 150 wait 200; blocks; runs [150..250@0 400..450@0]
            #1 8 b
              .0 0..400 start; work 150 wait 250; blocks; runs [250..400@0]
        "#]],
    );
    let phases: Vec<_> = timeline.threads[0].phases().into_iter().collect();
    assert_eq!(
        phases,
        [
            (100..150, Phase::Wait),
            (150..250, Phase::Run { cpu: 0 }),
            (250..400, Phase::Wait),
            (400..450, Phase::Run { cpu: 0 })
        ]
    );
}

#[test]
fn a_wake_up_chain_keeps_cause_effect_and_the_work_between() {
    check(
        "7:client 8:server",
        "
        100 0 waking 7 0 interrupt
        110 0 switch 0 R 7
        150 0 waking 8 7 task
        160 1 switch 0 R 8
        170 0 switch 7 S 0
        260 1 waking 7 8 task-softirq
        270 0 switch 0 R 7
        280 1 switch 8 S 0
        300 0 switch 7 S 0
        ",
        expect![[r#"
            #0 7 client
              .0 100..170 interrupt; work 60 wait 10; blocks; runs [110..170@0]; wakes #1.0 at 40
              .1 260..300 woken by #1.0; work 30 wait 10; blocks; runs [270..300@0]
            #1 8 server
              .0 150..280 woken by #0.0; work 120 wait 10; blocks; runs [160..280@1]; wakes #0.1 at 100
        "#]],
    );
}

#[test]
fn a_wake_up_that_overtakes_the_sleep_still_counts() {
    check(
        "7:a 8:b",
        "
        100 0 switch 0 R 7
        100 1 switch 0 R 8
        195 1 waking 7 8 task
        200 0 switch 7 S 0
        210 0 switch 0 R 7
        300 0 switch 7 D 0
        ",
        expect![[r#"
            #0 7 a
              .0 0..200 start; work 100 wait 100; blocks; runs [100..200@0]
              .1 200..300 woken by #1.0; work 90 wait 10; blocks (D); runs [210..300@0]
            #1 8 b
              .0 0..1000 start; work 900 wait 100; cut; runs [100..1000@1]; wakes #0.1 at 95
        "#]],
    );
}

#[test]
fn a_stale_early_wake_up_does_not_replace_the_real_one() {
    check(
        "7:a 8:b",
        "
        100 0 switch 0 R 7
        100 1 switch 0 R 8
        150 1 waking 7 8 task
        200 0 switch 7 S 0
        400 0 waking 7 0 timer
        410 0 switch 0 R 7
        420 0 switch 7 S 0
        ",
        expect![[r#"
            #0 7 a
              .0 0..200 start; work 100 wait 100; blocks; runs [100..200@0]
              .1 400..420 timer; work 10 wait 10; blocks; runs [410..420@0]
            #1 8 b
              .0 0..1000 start; work 900 wait 100; cut; runs [100..1000@1]
        "#]],
    );
}

#[test]
fn only_the_first_of_several_wake_ups_is_the_cause() {
    check(
        "7:a 8:b 9:c",
        "
        50 1 switch 0 R 8
        100 0 waking 7 0 timer
        120 1 waking 7 8 task
        130 1 wakeup 7 8 0
        150 0 switch 0 R 7
        160 0 switch 7 S 0
        ",
        expect![[r#"
            #0 8 b
              .0 0..1000 start; work 950 wait 50; cut; runs [50..1000@1]
            #1 7 a
              .0 100..160 timer; work 10 wait 50; blocks; runs [150..160@0]
        "#]],
    );
}

#[test]
fn a_thread_that_never_switched_ran_all_the_time() {
    check(
        "7:spin 8:b",
        "
        500 1 waking 8 7 task
        600 0 switch 0 R 8
        700 0 switch 8 S 0
        1000 1 switch 7 R 0
        ",
        expect![[r#"
            #0 7 spin
              .0 0..1000 start; work 1000 wait 0; cut; runs [0..1000@1]; wakes #1.0 at 500
            #1 8 b
              .0 500..700 woken by #0.0; work 100 wait 100; blocks; runs [600..700@0]
        "#]],
    );
}

#[test]
fn forks_moves_and_reused_thread_ids_make_new_threads() {
    check(
        "7:make:1",
        "
        100 0 switch 0 R 7
        200 0 fork 7 8
        250 0 move 8 2
        300 1 switch 0 R 8
        350 1 exit 8
        360 1 switch 8 X 0
        400 0 fork 7 8
        410 1 switch 0 R 8
        450 1 switch 8 S 0
        500 1 waking 8 0 timer
        510 1 switch 0 R 8
        520 1 switch 8 S 0
        ",
        expect![[r#"
            #0 7 make
              .0 0..1000 start; work 900 wait 100; cut; runs [100..1000@0]; wakes #1.0 at 100, #2.0 at 300; group 1
            #1 8 
              .0 200..360 forked by #0.0; work 60 wait 100; exits; runs [300..360@1]; group 2
            #2 8 
              .0 400..450 forked by #0.0; work 40 wait 10; blocks; runs [410..450@1]; group 1
              .1 500..520 timer; work 10 wait 10; blocks; runs [510..520@1]; group 1
        "#]],
    );
}

#[test]
fn a_burst_belongs_to_the_group_in_which_it_did_most_of_its_work() {
    check(
        "7:sh:0",
        "
        100 0 waking 7 0 timer
        110 0 switch 0 R 7
        120 0 move 7 1
        130 0 switch 7 R 0
        140 0 switch 0 R 7
        160 0 switch 7 S 0
        300 0 waking 7 0 timer
        310 0 switch 0 R 7
        340 0 move 7 2
        350 0 move 7 0
        360 0 switch 7 S 0
        400 0 move 7 2
        500 0 waking 7 0 timer
        510 0 switch 0 R 7
        520 0 move 7 1
        ",
        expect![[r#"
            #0 7 sh
              .0 100..160 timer; work 40 wait 20; blocks; runs [110..130@0 140..160@0]; group 1
              .1 300..360 timer; work 50 wait 10; blocks; runs [310..360@0]; group 1
              .2 500..1000 timer; work 490 wait 10; cut; runs [510..1000@0]; group 1
        "#]],
    );
}

#[test]
fn wake_ups_by_the_idle_task_come_from_interrupts() {
    check(
        "7:a",
        "
        100 0 waking 7 0 unknown
        110 0 switch 0 R 7
        120 0 switch 7 S 0
        200 0 wakeup 7 0 1
        210 1 switch 0 R 7
        220 1 switch 7 S 0
        ",
        expect![[r#"
            #0 7 a
              .0 100..120 interrupt; work 10 wait 10; blocks; runs [110..120@0]
              .1 200..220 interrupt; work 10 wait 10; blocks; runs [210..220@1]
        "#]],
    );
}

#[test]
fn contradictions_are_counted_and_named() {
    check(
        "7:a 8:b",
        "
        100 0 switch 0 R 7
        150 1 switch 0 R 7
        200 0 switch 8 S 0
        250 0 switch 0 R 8
        300 0 switch 9 S 0
        310 1 switch 7 X 0
        320 1 waking 7 9 task
        ",
        expect![[r#"
            #0 7 a
              .0 0..100 start; work 0 wait 100; blocks; runs [100..100@0]
              .1 100..310 unseen; work 160 wait 50; exits; runs [150..310@1]
            #1 8 b
              .0 0..200 start; work 200 wait 0; blocks; runs [0..200@0]
              .1 250..250 unseen; work 0 wait 0; blocks; runs [250..250@0]
            #2 9 
              .0 250..300 start; work 50 wait 0; blocks; runs [250..300@0]
              .1 320..1000 unseen; work 0 wait 680; cut; runs []; wakes #3.0 at 0
            #3 7 a
              .0 320..1000 woken by #2.1; work 0 wait 680; cut; runs []
            ! threads that appear from nowhere: 1 (first at 300 ns: thread 9)
            ! blocked threads that run without a wake-up: 2 (first at 250 ns: thread 8 on CPU 0)
            ! switches that contradict the ones before: 2 (first at 150 ns: thread 7 starts on CPU 1 while it runs elsewhere)
            ! events of threads that had exited: 1 (first at 320 ns: thread 7)
        "#]],
    );
}

#[test]
fn a_thread_whose_switch_away_was_missed_ran_no_longer_than_it_was_seen() {
    let timeline = check(
        "7:a 8:b 9:c",
        "
        100 0 switch 0 R 7
        120 0 waking 9 7 task
        900 0 switch 8 S 0
        910 0 waking 7 0 timer
        920 0 switch 0 R 7
        950 0 switch 7 S 0
        ",
        expect![[r#"
            #0 7 a
              .0 0..120 start; work 20 wait 100; blocks; runs [100..120@0]; wakes #1.0 at 20
              .1 910..950 timer; work 30 wait 10; blocks; runs [920..950@0]
            #1 9 c
              .0 120..1000 woken by #0.0; work 0 wait 880; cut; runs []
            #2 8 b
              .0 120..900 start; work 780 wait 0; blocks; runs [120..900@0]
            ! switches that contradict the ones before: 1 (first at 900 ns: thread 7 is on CPU 0, but thread 8 leaves it)
        "#]],
    );
    assert_eq!(timeline.quality.count(Doubt::MissedSwitch), 1);
}

#[test]
fn a_thread_first_seen_as_a_waker_runs_where_it_woke_and_no_longer_than_it_was_seen() {
    // The switches away of 7, and of 10 before 9 is there, are lost.
    check(
        "7:a 8:b 9:c 10:d",
        "
        20 1 switch 0 R 10
        100 0 waking 8 7 task
        300 0 switch 0 R 8
        350 0 switch 8 S 0
        400 1 waking 8 9 task
        450 1 switch 9 S 8
        500 1 switch 8 S 0
        900 0 waking 7 0 timer
        910 0 switch 0 R 7
        920 0 switch 7 S 0
        ",
        expect![[r#"
            #0 10 d
              .0 0..20 start; work 0 wait 20; blocks; runs [20..20@1]
            #1 7 a
              .0 0..100 start; work 100 wait 0; blocks; runs [0..100@0]; wakes #2.0 at 100
              .1 900..920 timer; work 10 wait 10; blocks; runs [910..920@0]
            #2 8 b
              .0 100..350 woken by #1.0; work 50 wait 200; blocks; runs [300..350@0]
              .1 400..500 woken by #3.0; work 50 wait 50; blocks; runs [450..500@1]
            #3 9 c
              .0 20..450 start; work 430 wait 0; blocks; runs [20..450@1]; wakes #2.1 at 380
            ! switches that contradict the ones before: 2 (first at 300 ns: thread 7 is on CPU 0, but thread 0 leaves it)
        "#]],
    );
}

#[test]
fn a_partial_recording_tells_outside_wakers_apart() {
    let mut header = header("7:a:1");
    header.only_below = Some("/a".into());
    let timeline = Timeline::build(
        &header,
        &events(
            "
            100 0 waking 7 55 task
            110 0 switch 56 S 7
            200 0 switch 7 S 57
            ",
        ),
    );
    // Threads 56 and 57 are not below /a: the switch belongs to thread 7 alone.
    expect![[r#"
        #0 7 a
          .0 100..200 woken by outside 55; work 90 wait 10; blocks; runs [110..200@0]; group 1
    "#]]
    .assert_eq(&render(&timeline));
}

#[test]
fn a_thread_that_moves_into_a_partial_recording_has_no_past_there() {
    let mut header = header("7:a:1 8:b:1 9:c:1 9:d:1 10:e:1");
    header.only_below = Some("/a".into());
    // 8, 10 and the second 9 are told of as they move in.
    header.threads[1].from_ns = 500;
    header.threads[3].from_ns = 800;
    header.threads[4].from_ns = 500;
    let timeline = Timeline::build(
        &header,
        &events(
            "
            10 1 switch 0 R 9
            20 1 switch 9 X 0
            100 0 switch 8 S 7
            200 0 switch 7 S 8
            300 0 waking 7 8 task
            310 0 switch 8 S 7
            320 0 switch 7 S 0
            400 1 waking 7 9 task
            450 1 switch 9 S 7
            520 1 switch 7 S 0
            550 0 switch 8 S 0
            560 0 switch 0 R 9
            570 1 waking 7 10 task
            600 1 switch 10 S 7
            ",
        ),
    );
    expect![[r#"
        #0 9 c
          .0 0..20 start; work 10 wait 10; exits; runs [10..20@1]; group 1
        #1 7 a
          .0 0..200 start; work 100 wait 100; blocks; runs [100..200@0]; group 1
          .1 300..320 woken by outside 8; work 10 wait 10; blocks; runs [310..320@0]; group 1
          .2 400..520 woken by outside 9; work 70 wait 50; blocks; runs [450..520@1]; group 1
          .3 570..1000 woken by #3.0; work 400 wait 30; cut; runs [600..1000@1]; group 1
        #2 8 b
          .0 500..550 start; work 50 wait 0; blocks; runs [500..550@0]; group 1
        #3 10 e
          .0 500..600 start; work 100 wait 0; blocks; runs [500..600@1]; wakes #1.3 at 70; group 1
    "#]]
    .assert_eq(&render(&timeline));
}

#[test]
fn a_thread_that_moves_out_of_a_partial_recording_ends_there_until_it_comes_back() {
    let mut header = header("7:a:1 8:b:1");
    header.only_below = Some("/a".into());
    let timeline = Timeline::build(
        &header,
        &events(
            "
            100 0 switch 0 R 8
            200 0 move 8 2
            210 0 switch 8 S 0
            300 0 waking 7 8 task
            310 0 switch 8 S 7
            400 0 switch 7 S 8
            500 0 move 8 1
            550 0 switch 8 S 0
            600 0 waking 8 0 timer
            610 0 move 8 0
            620 0 switch 0 R 8
            ",
        ),
    );
    expect![[r#"
        #0 8 b
          .0 0..200 start; work 100 wait 100; cut; runs [100..200@0]; group 1
        #1 7 a
          .0 300..400 woken by outside 8; work 90 wait 10; blocks; runs [310..400@0]; group 1
        #2 8 b
          .0 500..550 start; work 50 wait 0; blocks; runs [500..550@0]; group 1
          .1 600..610 timer; work 0 wait 10; cut; runs []; group 1
    "#]]
    .assert_eq(&render(&timeline));
}

#[test]
fn a_trace_with_too_many_lost_events_is_refused_by_name() {
    let mut header = header("7:a");
    header.losses.push(plimsoll_trace::Loss {
        cpu: Some(1),
        from_ns: 100,
        to_ns: 200,
        count: Some(17),
    });
    let timeline = Timeline::build(&header, &events("100 0 switch 0 R 7\n200 0 switch 7 S 0"));
    assert_eq!(timeline.quality.count(Doubt::LostEvents), 17);
    let place = Place::whole("x.parquet".as_ref());
    let error = timeline.quality.check(&place, DOUBTFUL_SHARE_MAX).unwrap_err();
    assert!(matches!(error, TraceError::Untrustworthy { .. }));
    expect!["x.parquet: this trace cannot be trusted: events that the recorder lost: 17 (first at 100 ns: 17 on CPU 1 between 100 and 200 ns) (out of 2 switches); allowed: at most 1% of the switches"]
        .assert_eq(&error.to_string());
}

#[test]
fn long_silence_is_reported_as_a_gap_or_jump() {
    let mut header = header("7:a");
    header.clock.end_ns = 20_000_000_000;
    let timeline = Timeline::build(&header, &events("100 0 switch 0 R 7\n9000000000 0 switch 7 S 0"));
    assert_eq!(timeline.quality.count(Doubt::ClockGap), 1);
}

/// As a recording shows it where the kernel raises no event for the switch to the parent: the switch is added as the next
/// event comes from that CPU, but forks come in another way.
#[test]
fn a_fork_before_the_switch_to_its_parent_is_seen_is_still_the_parents() {
    check(
        "7:shell 8:child 9:child 6:kernel",
        "
        100 0 switch 0 R 7
        200 0 switch 7 S 6
        300 1 waking 7 0 timer
        # 6 leaves unseen
        320 0 fork 7 8
        350 0 switch 6 S 7
        400 0 switch 7 S 6
        # woken unseen, too
        500 0 fork 7 9
        550 0 switch 6 S 7
        600 0 switch 7 S 8
        ",
        expect![[r#"
            #0 7 shell
              .0 0..200 start; work 100 wait 100; blocks; runs [100..200@0]
              .1 300..400 timer; work 50 wait 50; blocks; runs [350..400@0]; wakes #2.0 at 0
              .2 500..600 unseen; work 50 wait 50; blocks; runs [550..600@0]; wakes #3.0 at 0
            #1 6 kernel
              .0 0..350 start; work 150 wait 200; blocks; runs [200..350@0]
              .1 400..550 unseen; work 150 wait 0; blocks; runs [400..550@0]
            #2 8 child
              .0 320..1000 forked by #0.1; work 400 wait 280; cut; runs [600..1000@0]
            #3 9 child
              .0 500..1000 forked by #0.2; work 0 wait 500; cut; runs []
            ! blocked threads that run without a wake-up: 2 (first at 400 ns: thread 6 on CPU 0)
        "#]],
    );
}

/// What tells where a thread waits: the CPU that it left, where it was put as it was woken, and where it was moved to.
#[test]
fn a_woken_thread_waits_where_it_left_or_was_put_and_is_moved_from_there() {
    let mut header = header("7:a 8:b");
    header.migrations = true;
    let timeline = Timeline::build(
        &header,
        &events(
            "
            100 0 switch 0 R 7
            110 0 switch 7 S 8
            120 1 waking 7 0 timer
            130 0 switch 8 S 7
            140 0 switch 7 S 0
            150 0 waking 7 0 timer
            151 0 placed 7 1
            160 0 migrate 7 0
            161 0 switch 0 R 7
            170 1 waking 7 0 timer
            171 0 switch 7 S 0
            172 1 placed 7 1
            180 1 switch 0 R 7
            ",
        ),
    );
    let thread = &timeline.threads[0];
    let queued: Vec<_> = thread.bursts.iter().map(|b| b.queued).collect();
    // The first was under way; the last was woken as it went to sleep.
    assert_eq!(queued, [None, Some(0), Some(1), Some(1)]);
    header.migrations = false;
    let timeline = Timeline::build(
        &header,
        &events("100 0 switch 0 R 7\n110 0 switch 7 S 0\n120 1 waking 7 0 timer"),
    );
    assert!(timeline.threads[0].bursts.iter().all(|b| b.queued.is_none()));
}

#[test]
fn what_is_owed_is_known_of_the_burst_that_waits() {
    let timeline = Timeline::build(
        &header("7:a 8:b"),
        &events(
            "
            100 0 switch 0 R 7
            105 0 owed 7 9 -9
            110 0 switch 7 S 0
            120 1 waking 7 0 timer
            121 0 owed 7 -5 4
            130 0 switch 0 R 7
            140 0 switch 7 S 0
            150 1 waking 7 0 timer
            160 0 switch 0 R 7
            170 0 switch 7 S 0
            ",
        ),
    );
    let owed: Vec<_> = timeline.threads[0]
        .bursts
        .iter()
        .map(|b| b.owed.map(|owed| (owed.own_ns, owed.beside_ns)))
        .collect();
    // One that runs does not wait; the last one came to an idle CPU.
    assert_eq!(owed, [None, Some((-5, 4)), None]);
}

#[test]
fn what_a_neighbour_was_owed_is_known_of_the_stretch_in_which_it_took_the_cpu() {
    let mut header = header("7:a");
    header.only_below = Some("/".into());
    let timeline = Timeline::build(
        &header,
        &events(
            "
            100 0 switch 0 R 7
            110 1 owed 50 99 1
            120 0 switch 7 R 50
            130 0 others 0 10 S
            130 0 switch 50 S 7
            140 0 owed 50 98 1
            150 0 switch 7 S 50
            160 0 others 0 10 S
            160 0 switch 50 S 7
            170 0 switch 7 R 51
            180 0 others 0 10 S
            ",
        ),
    );
    let owed: Vec<_> = timeline
        .others
        .iter()
        .map(|o| (o.end_ns, o.owed.map(|owed| owed.own_ns)))
        .collect();
    // In the second one the recorded thread had gone to sleep; in the third nobody knows.
    assert_eq!(owed, [(130, Some(99)), (160, None), (180, None)]);
}
