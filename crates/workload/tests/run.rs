// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every workload does what its parameters say, on a machine on which only its own work takes time.
use plimsoll_sim::{
    Change, ChangeKind, Config, Costs, GroupId, GroupSpec, Machine, Results, Simulation, TaskId, Topology,
    WakeSearch,
};
use plimsoll_workload::{Place, Workload};

/// Runs a workload of the root group for `ms`, on `cpus` CPUs.
fn run(parameters: &str, cpus: u32, ms: u64) -> Results {
    let workload: Workload = serde_json::from_str(parameters).unwrap();
    let mut machine = Machine::new(Topology::flat(cpus));
    machine.costs = Costs::free();
    let mut config = Config::new(machine, ms * 1_000_000);
    config.stop_when_done = true;
    // A partner that keeps its waker's CPU for a moment, as it does live, is the policy's work and not the workload's.
    config.policy.wake_search = WakeSearch::All;
    workload.build(&Place::new("w", GroupId::ROOT), &mut config);
    Simulation::new(config).unwrap().run(None).unwrap()
}

fn counter(results: &Results, name: &str) -> u64 {
    let counters = &results.workloads[0].counters;
    counters
        .iter()
        .find(|counter| counter.name == name)
        .unwrap()
        .value
}

fn mean_us(results: &Results) -> f64 {
    results.workloads[0].latencies[0].histogram.mean() / 1e3
}

fn near(value: f64, wanted: f64, percent: f64) {
    assert!(
        (value / wanted - 1.0).abs() * 100.0 <= percent,
        "{value}, wanted {wanted} within {percent}%"
    );
}

#[test]
fn schbench_hands_out_its_rate_and_no_worker_waits_where_cpus_are_free() {
    let results = run(
        r#"{"kind":"schbench","worker_threads":30,"cputime_us":10000,"requests_per_s":500}"#,
        32,
        4000,
    );
    near(counter(&results, "requests") as f64, 2000.0, 2.0);
    assert!(mean_us(&results) < 1.0, "{}", mean_us(&results));
    // 500 requests of 10 ms a second are 5 CPUs.
    near(results.workloads[0].usage_ns as f64 / 4e9, 5.0, 2.0);
}

#[test]
fn schbench_of_2021_wakes_two_thirds_at_once_and_sleeps_whatever_that_took() {
    let results = run(
        r#"{"kind":"schbench","version":"2021","worker_threads":30,"cputime_us":10000,"requests_per_s":500,
            "timer_slack_us":100,"dispatch_us":20}"#,
        32,
        10_000,
    );
    // Twenty every 40 ms + 0.1 ms of slack + 20 times 20 us.
    near(counter(&results, "requests") as f64, 20.0 * 10_000.0 / 40.5, 0.5);
    near(results.workloads[0].usage_ns as f64 / 10e9, 4.95, 1.0);
    assert!(mean_us(&results) < 1.0, "{}", mean_us(&results));
}

#[test]
fn schbench_of_2021_spins_on_the_wall_clock() {
    // Two spins of 10 ms begin at once on one CPU. Side by side on the clock, they take less than 20 ms of CPU.
    let results = run(
        r#"{"kind":"schbench","version":"2021","worker_threads":3,"cputime_us":10000,"requests_per_s":50}"#,
        1,
        4000,
    );
    near(counter(&results, "requests") as f64, 200.0, 2.0);
    let per_round_ms = results.workloads[0].usage_ns as f64 / 1e6 / 100.0;
    assert!((10.0..16.0).contains(&per_round_ms), "{per_round_ms} ms");
}

#[test]
fn schbench_without_a_rate_keeps_every_worker_busy() {
    let results = run(
        r#"{"kind":"schbench","worker_threads":4,"cputime_us":1000}"#,
        8,
        1000,
    );
    near(counter(&results, "requests") as f64, 4000.0, 2.0);
}

#[test]
fn hackbench_delivers_every_message_and_ends() {
    for channel in ["socket", "pipe"] {
        for mode in ["process", "thread"] {
            let parameters = format!(
                r#"{{"kind":"hackbench","groups":2,"fds":5,"loops":300,"channel":"{channel}","mode":"{mode}",
                    "send_us":1,"receive_us":1}}"#
            );
            let results = run(&parameters, 4, 60_000);
            assert!(results.all_exited, "{channel} {mode}");
            assert_eq!(counter(&results, "messages"), 2 * 5 * 5 * 300, "{channel} {mode}");
        }
    }
}

#[test]
fn hackbench_that_costs_nothing_lets_time_pass() {
    for loops in [0, 100_000] {
        let parameters = format!(r#"{{"kind":"hackbench","groups":1,"fds":1,"loops":{loops}}}"#);
        let results = run(&parameters, 2, 1);
        // No step takes less than 1 ns.
        let messages = counter(&results, "messages");
        assert!((10_000..=1_000_000).contains(&messages), "{messages}");
        assert_eq!(results.all_exited, loops > 0);
    }
}

#[test]
fn children_of_a_batch_go_where_its_threads_are_moved() {
    let workload: Workload =
        serde_json::from_str(r#"{"kind":"batch","children":true,"threads":2,"work_us":1000}"#).unwrap();
    let mut machine = Machine::new(Topology::flat(2));
    machine.costs = Costs::free();
    let mut config = Config::new(machine, 1_000_000_000);
    config.warmup_ns = 200_000_000;
    let a = config.add_group(GroupSpec::new("/a", GroupId::ROOT));
    let b = config.add_group(GroupSpec::new("/b", GroupId::ROOT));
    workload.build(&Place::new("w", a), &mut config);
    for task in (0..2).map(TaskId) {
        let what = ChangeKind::MoveTask { task, group: b };
        let at_ns = 100_000_000;
        config.changes.push(Change { at_ns, what });
    }
    let results = Simulation::new(config).unwrap().run(None).unwrap();
    assert_eq!(results.groups[1].usage_ns, 0);
    near(results.groups[2].usage_ns as f64 / 1e9, 1.6, 1.0);
}

#[test]
fn duty_threads_are_released_on_time_and_late_ones_start_at_once() {
    let results = run(
        r#"{"kind":"duty","threads":2,"work_us":10000,"interval_us":50000,"window_ms":1000}"#,
        2,
        5000,
    );
    assert_eq!(counter(&results, "bursts"), 40);
    near(mean_us(&results), 10_000.0, 0.2);
    // One CPU for two threads that want 60 ms each in every 50: burst k of both is done at (k + 1) * 120 ms.
    let late = run(
        r#"{"kind":"duty","threads":2,"work_us":60000,"interval_us":50000,"window_ms":200}"#,
        1,
        5000,
    );
    assert!(late.all_exited);
    near(
        late.workloads[0].usage_ns as f64,
        counter(&late, "bursts") as f64 * 60e6,
        0.01,
    );
    assert!(late.workloads[0].latencies[0].histogram.max() >= 150_000_000);
}

#[test]
fn a_duty_thread_that_looks_at_its_clock_overshoots_by_less_than_two_looks() {
    let results = run(
        r#"{"kind":"duty","threads":1,"work_us":10000,"interval_us":50000,"window_ms":5000,"check_us":100}"#,
        1,
        6000,
    );
    let over_us = mean_us(&results) - 10_000.0;
    assert!((20.0..=110.0).contains(&over_us), "{over_us} us");
}

#[test]
fn fibtest_puts_each_thread_on_its_own_cpu() {
    let results = run(r#"{"kind":"fibtest","slow_work_us":10}"#, 4, 1000);
    near(counter(&results, "fast_us") as f64, 1e6, 0.1);
    // Three slow threads, 10 us of every 10,010.
    near(
        results.workloads[0].usage_ns as f64 - 1e9,
        3.0 * 1e9 * 10.0 / 10_010.0,
        2.0,
    );
}

/// Threads are pinned within the CPUs that the workload is given, and there are as many as these.
#[test]
fn pinned_threads_stay_on_the_cpus_of_their_workload() {
    for parameters in [
        r#"{"kind":"fibtest"}"#,
        r#"{"kind":"duty","spinners":3,"threads":0,"pin":true}"#,
        r#"{"kind":"spinners","threads":3,"pin":true}"#,
    ] {
        let workload: Workload = serde_json::from_str(parameters).unwrap();
        let mut config = Config::new(Machine::new(Topology::flat(6)), 1_000_000);
        let mut place = Place::new("w", GroupId::ROOT);
        place.affinity = Some([2, 3, 5].into_iter().collect());
        workload.build(&place, &mut config);
        place.affinity = Some([4, 1].into_iter().collect());
        workload.build(&place, &mut config);
        // The group's CPUs bind, and those of the groups above it.
        let mut above = GroupSpec::new("/above", GroupId::ROOT);
        above.cpuset = Some([0, 3, 4].into_iter().collect());
        let mut group = GroupSpec::new("/above/group", config.add_group(above));
        group.cpuset = Some([3, 4, 5].into_iter().collect());
        let mut place = Place::new("g", config.add_group(group));
        workload.build(&place, &mut config);
        place.affinity = Some([4, 5].into_iter().collect());
        workload.build(&place, &mut config);
        let cpus: Vec<Vec<u32>> = config
            .tasks
            .iter()
            .map(|task| task.affinity.iter().flat_map(|set| set.iter()).collect())
            .collect();
        let wanted: &[[u32; 1]] = match parameters.contains("fibtest") {
            true => &[[2], [3], [5], [1], [4], [3], [4], [4]],
            false => &[[2], [3], [5], [1], [4], [1], [3], [4], [3], [4], [4], [4]],
        };
        assert_eq!(cpus, wanted, "{parameters}");
    }
}

#[test]
fn request_response_takes_the_time_of_both_sides() {
    let results = run(
        r#"{"kind":"request_response","pairs":2,"client_us":30,"server_us":20}"#,
        4,
        1000,
    );
    near(counter(&results, "transactions") as f64, 2.0 * 1e6 / 50.0, 0.1);
    let waiting = run(
        r#"{"kind":"request_response","pairs":1,"client_us":30,"server_us":20,"server_wait_us":50}"#,
        2,
        1000,
    );
    near(counter(&waiting, "transactions") as f64, 1e6 / 100.0, 0.1);
}

#[test]
fn a_stream_goes_as_fast_as_its_slower_side() {
    let results = run(
        r#"{"kind":"stream","pairs":1,"send_us":10,"receive_us":25,"message_bytes":1000}"#,
        2,
        1000,
    );
    near(counter(&results, "bytes") as f64, 1e6 / 25.0 * 1000.0, 1.0);
}

#[test]
fn clients_of_a_database_share_its_lock() {
    let free = run(
        r#"{"kind":"clients_db","clients":8,"queries":1,"client_us":100,"server_us":100,"spread":"fixed"}"#,
        32,
        1000,
    );
    near(counter(&free, "transactions") as f64, 8.0 * 1e6 / 200.0, 1.0);
    let locked = run(
        r#"{"kind":"clients_db","clients":8,"queries":1,"client_us":100,"server_us":100,"spread":"fixed","locked_us":100}"#,
        32,
        1000,
    );
    // One at a time in 100 us.
    near(counter(&locked, "transactions") as f64, 1e6 / 100.0, 1.0);
}

#[test]
fn remote_clients_cost_no_cpu_time() {
    let results = run(
        r#"{"kind":"clients_db","clients":1,"queries":10,"client_us":100,"server_us":100,"spread":"fixed","remote_clients":true}"#,
        1,
        1000,
    );
    near(results.workloads[0].usage_ns as f64, 0.5e9, 1.0);
}

#[test]
fn requests_from_other_machines_interrupt_all_cpus_alike() {
    let results = run(
        r#"{"kind":"server","workers":64,"work_us":100,"arrivals":{"process":"poisson","rate_per_s":2000}}"#,
        4,
        10_000,
    );
    for cpu in &results.cpus {
        near(cpu.wakeups as f64, 2000.0 * 10.0 / 4.0, 5.0);
    }
}

#[test]
fn an_open_server_keeps_its_rate_and_a_closed_one_its_clients() {
    let open = run(
        r#"{"kind":"server","workers":64,"work_us":1000,"arrivals":{"process":"poisson","rate_per_s":2000}}"#,
        8,
        5000,
    );
    near(counter(&open, "requests") as f64, 10_000.0, 4.0);
    near(mean_us(&open), 1000.0, 5.0);
    let closed = run(
        r#"{"kind":"server","workers":4,"clients":4,"work_us":1000,"spread":"fixed","arrivals":{"process":"closed","think_us":0}}"#,
        8,
        1000,
    );
    near(counter(&closed, "requests") as f64, 4000.0, 1.0);
}

#[test]
fn a_server_whose_queue_is_full_refuses() {
    let results = run(
        r#"{"kind":"server","workers":1,"work_us":1000,"spread":"fixed","queue_requests":10,
            "arrivals":{"process":"fixed","rate_per_s":2000}}"#,
        1,
        1000,
    );
    near(counter(&results, "requests") as f64, 1000.0, 1.0);
    near(counter(&results, "refused") as f64, 990.0, 2.0);
}

#[test]
fn a_server_gets_the_largest_burst_that_may_be_asked_for() {
    // A million requests after 10 ms and after 20, of which half find the queue full.
    let results = run(
        r#"{"kind":"server","workers":1,"work_us":1000,"queue_requests":1500000,
            "arrivals":{"process":"bursts","rate_per_s":1e8,"size":1000000,"regular":true}}"#,
        1,
        25,
    );
    near(counter(&results, "refused") as f64, 500_000.0, 0.01);
}

#[test]
fn batches_and_spinners_take_every_cpu() {
    for parameters in [
        r#"{"kind":"batch","work_us":5000}"#,
        r#"{"kind":"spinners","threads":4,"pin":true}"#,
    ] {
        let results = run(parameters, 4, 1000);
        near(results.workloads[0].usage_ns as f64, 4e9, 0.1);
    }
}

#[test]
fn unknown_parameters_are_errors() {
    let unknown = serde_json::from_str::<Workload>(r#"{"kind":"duty","thread":1}"#);
    assert!(unknown
        .unwrap_err()
        .to_string()
        .contains("unknown field `thread`"));
}

#[test]
fn a_batch_under_one_lock_does_one_critical_section_at_a_time_and_loses_no_wake_up() {
    // Spinning instead of sleeping changes how threads wait, not how much is done.
    for spin_us in [0, 50] {
        let parameters = format!(
            r#"{{"kind":"batch","threads":8,"work_us":100,"spread":"fixed","locked_us":100,"spin_us":{spin_us}}}"#
        );
        let results = run(&parameters, 8, 100);
        near(counter(&results, "pieces") as f64, 1000.0, 2.0);
    }
}

#[test]
fn threads_of_a_barrier_go_on_together_whether_they_spin_or_sleep() {
    for spin_us in [0, 10_000] {
        let parameters = format!(
            r#"{{"kind":"batch","threads":8,"work_us":1000,"spread":"fixed","barrier":true,"spin_us":{spin_us}}}"#
        );
        let pieces = counter(&run(&parameters, 8, 100), "pieces");
        near(pieces as f64, 800.0, 2.0);
        // Eight threads on four CPUs: a round takes as long as two pieces, longer where spinning ones are in the way.
        let slow = counter(&run(&parameters, 4, 100), "pieces");
        assert!(slow <= 400 + 8, "spin {spin_us}: {slow}");
        assert!(slow > 100, "spin {spin_us}: {slow}");
    }
}

#[test]
fn quick_threads_of_a_barrier_do_not_keep_the_last_one_waking_them() {
    // The threads that were woken first are back, asleep at the next round, before the last one has been.
    for (threads, work_us) in [(64, 50), (32, 5), (8, 1)] {
        let parameters = format!(
            r#"{{"kind":"batch","threads":{threads},"work_us":{work_us},"spread":"fixed","barrier":true}}"#
        );
        let pieces = counter(&run(&parameters, threads, 100), "pieces");
        near(
            pieces as f64,
            f64::from(threads) * 100_000.0 / f64::from(work_us),
            2.0,
        );
    }
}

#[test]
fn a_batch_of_children_starts_one_process_for_each_piece() {
    let results = run(
        r#"{"kind":"batch","threads":2,"work_us":1000,"spread":"fixed","children":true}"#,
        2,
        100,
    );
    near(counter(&results, "pieces") as f64, 200.0, 2.0);
}

/// Nothing else takes time: what a request takes is its work, to the nanosecond.
#[test]
fn latency_of_a_server_is_that_of_its_work() {
    for arrivals in [
        r#"{"process":"fixed","rate_per_s":100}"#,
        r#"{"process":"closed","think_us":500}"#,
    ] {
        let server = format!(
            r#"{{"kind":"server","workers":1,"work_us":123.456,"spread":"fixed","arrivals":{arrivals}}}"#
        );
        let results = run(&server, 1, 1000);
        let latencies = &results.workloads[0].latencies[0].histogram.whole();
        // Three digits are kept.
        assert!(
            latencies.equivalent(latencies.min(), 123_456),
            "{}",
            latencies.min()
        );
        assert!(
            latencies.equivalent(latencies.max(), 123_456),
            "{}",
            latencies.max()
        );
    }
}

/// Equal gaps are equal over all clients: one request at a time, from any of them.
#[test]
fn clients_that_ask_at_equal_gaps_take_turns() {
    for arrivals in [
        r#"{"process":"fixed","rate_per_s":1000}"#,
        r#"{"process":"bursts","rate_per_s":1000,"size":1,"regular":true}"#,
    ] {
        let server = format!(
            r#"{{"kind":"server","workers":1,"clients":10,"work_us":500,"spread":"fixed","arrivals":{arrivals}}}"#
        );
        let results = run(&server, 1, 1000);
        near(counter(&results, "requests") as f64, 1000.0, 1.0);
        near(mean_us(&results), 500.0, 0.5);
    }
}
