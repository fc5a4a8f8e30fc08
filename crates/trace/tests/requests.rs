//! What counts as a request, and what as an open or a closed loop.
mod common;
use common::{events, header};
use plimsoll_trace::{Arrivals, RequestSpec, Requests, Timeline};

fn timeline(threads: &str, text: &str) -> Timeline {
    Timeline::build(&header(threads), &events(text))
}

/// Beginning and latency of each request.
fn found(timeline: &Timeline, spec: Option<&str>) -> Vec<(i64, i64)> {
    let spec: Option<RequestSpec> = spec.map(|s| s.parse().unwrap());
    Requests::find(timeline, spec.as_ref(), |_| true).recorded
}

const CLIENT_SERVER: &str = "
    100 0 waking 7 0 interrupt
    110 0 switch 0 R 7
    150 0 waking 8 7 task
    160 1 switch 0 R 8
    170 0 switch 7 S 0
    260 1 waking 7 8 task-softirq
    270 0 switch 0 R 7
    280 1 switch 8 S 0
    300 0 switch 7 S 0
";

#[test]
fn a_chain_ends_when_it_comes_back_and_that_begins_the_next() {
    let timeline = timeline("7:client 8:server", CLIENT_SERVER);
    // From the client's wake-up until the server blocks; from the answer until the client blocks.
    assert_eq!(found(&timeline, None), [(100, 180), (260, 40)]);
}

#[test]
fn a_request_can_be_each_burst_of_a_named_thread() {
    let timeline = timeline("7:client 8:server", CLIENT_SERVER);
    assert_eq!(found(&timeline, Some("comm:serv*")), [(150, 130)]);
    assert_eq!(found(&timeline, Some("tid:7")), [(100, 70), (260, 40)]);
    assert_eq!(found(&timeline, Some("comm:nobody")), []);
}

#[test]
fn requests_that_the_recording_cuts_are_left_out() {
    let timeline = timeline(
        "7:a 8:b",
        "
        50 0 switch 7 S 0
        100 0 waking 8 0 timer
        110 0 switch 0 R 8
        ",
    );
    assert_eq!(found(&timeline, None), []);
    assert_eq!(found(&timeline, Some("comm:*")), []);
}

#[test]
fn probes_time_requests_inside_and_across_bursts() {
    let timeline = timeline(
        "7:a",
        "
        10 0 request 7 end
        100 0 waking 7 0 timer
        110 0 switch 0 R 7
        120 0 request 7 begin
        130 0 request 7 end
        140 0 request 7 begin
        150 0 switch 7 S 0
        200 0 waking 7 0 timer
        210 0 switch 0 R 7
        230 0 request 7 end
        240 0 switch 7 S 0
        ",
    );
    assert_eq!(
        found(&timeline, Some("uprobe:/bin/x:f:g")),
        [(120, 10), (140, 90)]
    );
}

/// A thread that is woken by a timer; work and sleep by turns.
fn timed(rounds: impl Iterator<Item = (i64, i64)>) -> Timeline {
    let mut text = String::new();
    for (woken, work) in rounds {
        text += &format!(
            "{woken} 0 waking 7 0 timer\n{woken} 0 switch 0 R 7\n{} 0 switch 7 S 0\n",
            woken + work
        );
    }
    let mut header = header("7:a");
    header.clock.end_ns = 1_000_000;
    Timeline::build(&header, &events(&text))
}

#[test]
fn a_timer_that_follows_the_clock_is_an_open_loop() {
    let timeline = timed((0..20).map(|i| (100 + i * 1000, 50 + (i * 37) % 300)));
    let arrivals = timeline.arrivals(|_| true);
    assert_eq!(
        arrivals,
        Arrivals {
            by_clock: 20,
            ..Default::default()
        }
    );
    assert_eq!(arrivals.open_loop(), 20);
}

#[test]
fn a_timer_that_ends_a_sleep_is_a_closed_loop() {
    let mut at = 100;
    let timeline = timed((0..20).map(|i| {
        let work = 50 + (i * 37) % 300;
        let woken = at;
        at += work + 1000;
        (woken, work)
    }));
    let arrivals = timeline.arrivals(|_| true);
    // Nothing was seen before the first one.
    assert_eq!(
        arrivals,
        Arrivals {
            by_clock: 1,
            after_delay: 19,
            ..Default::default()
        }
    );
}

#[test]
fn storage_answers_after_the_question_and_the_network_when_it_likes() {
    let text = |state| {
        format!(
            "
            100 0 waking 7 0 interrupt
            110 0 switch 0 R 7
            150 0 switch 7 {state} 0
            180 0 waking 7 0 interrupt
            190 0 switch 0 R 7
            200 0 switch 7 S 0
            "
        )
    };
    let storage = timeline("7:a", &text("D")).arrivals(|_| true);
    assert_eq!(
        storage,
        Arrivals {
            from_outside: 1,
            after_delay: 1,
            ..Default::default()
        }
    );
    let network = timeline("7:a", &text("S")).arrivals(|_| true);
    assert_eq!(
        network,
        Arrivals {
            from_outside: 2,
            ..Default::default()
        }
    );
}
