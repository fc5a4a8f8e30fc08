//! Replay of a recorded trace: what must stay as recorded, and what must change with the limits.
use plimsoll_sim::{Config, Costs, Limits, Machine, Results, Simulation, Topology};
use plimsoll_trace::{
    Clock, Context, Event, Group, Header, RequestSpec, Requests, State, Thread, Timeline, What,
};
use plimsoll_workload::Replay;

const MS: i64 = 1_000_000;

fn switch(ts_ns: i64, cpu: u32, prev: u32, prev_state: State, next: u32) -> Event {
    Event {
        ts_ns,
        cpu,
        what: What::Switch {
            prev,
            prev_state,
            next,
        },
    }
}

fn waking(ts_ns: i64, tid: u32, waker: u32, context: Context) -> Event {
    Event {
        ts_ns,
        cpu: 0,
        what: What::Waking { tid, waker, context },
    }
}

/// A trace of `seconds` on `/` and `/app`; thread 7 is in `/app`, 8 in `/`.
fn trace(seconds: i64, mut events: Vec<Event>) -> (Header, Timeline) {
    events.sort_by_key(|e| e.ts_ns);
    let group = |path: &str| Group {
        path: path.into(),
        ..Default::default()
    };
    let thread = |tid, comm: &str, group| Thread {
        tid,
        comm: comm.into(),
        group: Some(group),
        ..Default::default()
    };
    let header = Header {
        clock: Clock {
            end_ns: seconds * 1000 * MS,
            ..Default::default()
        },
        groups: vec![group("/"), group("/app")],
        threads: vec![thread(7, "app", 1), thread(8, "client", 0)],
        ..Default::default()
    };
    let timeline = Timeline::build(&header, &events);
    (header, timeline)
}

fn simulate(header: &Header, timeline: &Timeline, spec: Option<&str>, app: Limits) -> Results {
    let spec: Option<RequestSpec> = spec.map(|s| s.parse().unwrap());
    let requests = Requests::find(timeline, spec.as_ref(), |_| true);
    let replay = Replay::new(header, timeline, &requests);
    let mut machine = Machine::new(Topology::flat(2));
    machine.costs = Costs::free();
    let mut config = Config::new(machine, replay.duration_ns + 500_000_000);
    config.check = true;
    replay.build(&mut config, |_, group| {
        if group.path == "/app" {
            app
        } else {
            Limits::UNLIMITED
        }
    });
    Simulation::new(config).unwrap().run(None)
}

fn quantile_ms(results: &Results, quantile: f64) -> f64 {
    results.workloads[0].latencies[0]
        .histogram
        .value_at_quantile(quantile) as f64
        / 1e6
}

fn requests(results: &Results) -> u64 {
    results.workloads[0].latencies[0].histogram.len()
}

/// Thread 7 works for 50 ms every 207 ms, woken by the clock. The recorder saw it wait for 5 ms each time.
fn duty() -> (Header, Timeline) {
    let events = (0..20)
        .flat_map(|k| {
            let at = (10 + k * 207) * MS;
            let work = 50 * MS + (k % 5) * 10_000; // not all alike, as in life: it follows the clock
            [
                waking(at, 7, 0, Context::Timer),
                switch(at + 5 * MS, 0, 0, State::Runnable, 7),
                switch(at + 5 * MS + work, 0, 7, State::Sleeping, 0),
            ]
        })
        .collect();
    trace(5, events)
}

#[test]
fn work_is_kept_and_waiting_for_a_cpu_is_left_out() {
    let (header, timeline) = duty();
    let results = simulate(&header, &timeline, None, Limits::UNLIMITED);
    assert_eq!(requests(&results), 20);
    assert!(
        (49.9..50.1).contains(&quantile_ms(&results, 0.5)),
        "{}",
        quantile_ms(&results, 0.5)
    );
    let app = results.groups.iter().find(|g| g.path == "/app").unwrap();
    let recorded: i64 = timeline.threads[0].bursts.iter().map(|b| b.work_ns).sum();
    assert_eq!(app.usage_ns, recorded as u64);
}

#[test]
fn a_quota_lengthens_what_it_throttles_and_a_burst_takes_that_back() {
    let (header, timeline) = duty();
    let tight = simulate(&header, &timeline, None, Limits::quota(30_000_000, 100_000_000));
    // 50 ms of work on 30 ms a period: it waits for the next period.
    assert!(
        (75.0..130.0).contains(&quantile_ms(&tight, 0.5)),
        "{}",
        quantile_ms(&tight, 0.5)
    );
    let app = tight.groups.iter().find(|g| g.path == "/app").unwrap();
    assert!(app.stat.unwrap().nr_throttled >= 15);
    let mut burst = Limits::quota(30_000_000, 100_000_000);
    burst.burst_ns = 30_000_000;
    let burst = simulate(&header, &timeline, None, burst);
    assert!(
        (49.9..51.0).contains(&quantile_ms(&burst, 0.5)),
        "{}",
        quantile_ms(&burst, 0.5)
    );
}

/// A client asks, a server answers after 2 ms, the client thinks for 1 ms of CPU time; 100 rounds.
fn ping_pong() -> (Header, Timeline) {
    let mut events = vec![switch(0, 0, 0, State::Runnable, 8)];
    for k in 0..100 {
        let at = k * 4 * MS;
        events.extend([
            waking(at + MS, 7, 8, Context::Task),
            switch(at + MS + 1000, 1, 0, State::Runnable, 7),
            switch(at + MS + 2000, 0, 8, State::Sleeping, 0),
            waking(at + 3 * MS, 8, 7, Context::Task),
            switch(at + 3 * MS + 2000, 1, 7, State::Sleeping, 0),
            switch(at + 4 * MS, 0, 0, State::Runnable, 8),
        ]);
    }
    trace(1, events)
}

#[test]
fn a_closed_loop_slows_down_as_a_whole_when_the_server_is_limited() {
    let (header, timeline) = ping_pong();
    let free = simulate(&header, &timeline, Some("comm:app"), Limits::UNLIMITED);
    assert_eq!(requests(&free), 100);
    assert!(
        (1.9..2.2).contains(&quantile_ms(&free, 0.99)),
        "{}",
        quantile_ms(&free, 0.99)
    );
    // 200 ms of work at 10% of a CPU take longer than the 1.5 s that are simulated.
    let slow = simulate(
        &header,
        &timeline,
        Some("comm:app"),
        Limits::quota(10_000_000, 100_000_000),
    );
    assert!(requests(&slow) < 100, "{}", requests(&slow));
    assert!(requests(&slow) > 60, "{}", requests(&slow));
    assert!(
        (70.0..100.0).contains(&quantile_ms(&slow, 0.99)),
        "{}",
        quantile_ms(&slow, 0.99)
    );
    // Most requests do not meet the end of the quota.
    assert!(quantile_ms(&slow, 0.5) < 3.0, "{}", quantile_ms(&slow, 0.5));
}

#[test]
fn an_open_loop_builds_a_queue_when_it_is_limited() {
    let (header, timeline) = duty();
    // 50 ms every 207 ms need 24%: at 20% the queue grows.
    let slow = simulate(&header, &timeline, None, Limits::quota(20_000_000, 100_000_000));
    assert!(quantile_ms(&slow, 1.0) > 2.0 * quantile_ms(&slow, 0.1));
}

#[test]
fn a_replay_repeats_exactly() {
    let (header, timeline) = ping_pong();
    let run = || {
        format!(
            "{:?}",
            simulate(&header, &timeline, None, Limits::quota(10_000_000, 100_000_000))
        )
    };
    assert_eq!(run(), run());
}
