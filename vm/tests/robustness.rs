// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The live scheduler under churn, storms, hotplug and starving limits, on every kernel it is for: `make test-live`, and
//! `make test-live-all` for the rest on the older one and on the next one.
//!
//! Virtual time (`--timing`) but where a case says otherwise: a run repeats, and does not depend on how busy the host
//! is. A case is a program of vm/guest/ or a script of tests/live/, which accounts for what it started and ends with
//! a message and 1 where something is lost. Here it is asked, too, that the scheduler is still loaded and that the
//! kernel has not warned.
mod common;
use common::built;
use plimsoll_vm::{find_qemu, obtain, run, Cache, Error, Guest};
use std::io::{stderr, Write};
use std::time::{Duration, Instant};

struct Case {
    command: &'static [&'static str],
    cpus: &'static str,
    /// The kernel believes in this many, and the guest runs on the host's clock.
    possible_cpus: Option<u32>,
    /// The scheduler is loaded before the command; otherwise the command loads it itself.
    loaded: bool,
    /// Programs that the command needs besides.
    also: &'static [&'static str],
}

impl Case {
    const fn of(command: &'static [&'static str]) -> Self {
        Self {
            command,
            cpus: "4",
            possible_cpus: None,
            loaded: true,
            also: &[],
        }
    }
}

/// Parts of lines that the kernel prints when something is wrong with it.
const WARNINGS: [&str; 11] = [
    "WARNING:",
    "BUG:",
    "Oops",
    "Call Trace",
    "rcu_preempt self-detected stall",
    "detected stalls",
    "soft lockup",
    "hard LOCKUP",
    "blocked for more than",
    "runnable task stall",
    "verifier bug",
];
const LIMIT: Duration = Duration::from_secs(1500);

/// Where each CPU is emulated by a thread of its own, one sometimes runs code as it was while the kernel rewrote it, which
/// the kernel does as a scheduler is loaded, too.
fn ran_rewritten_code(error: &Error) -> bool {
    matches!(error, Error::Guest { console, .. } if String::from_utf8_lossy(console).contains("Oops: int3"))
}

/// The older kernel, and what takes its place when Debian no longer has it.
const OLDER: &str = "6.19,6.18,6.17,7.0,7.1,7.2";
/// The series after sid's. `make test-live` asks first whether a sound kernel of it can be had.
const NEXT: &str = "7.3";

fn holds(wanted: &str, case: &Case) {
    let cache = Cache::open().unwrap();
    let kernel = obtain(&cache, &wanted.parse().unwrap(), false, &|_| {}).unwrap();
    let qemu = find_qemu(&cache, true, &|_| {}).unwrap();
    let name = case.command[0];
    let program = match name.ends_with(".sh") {
        true => built(&format!("tests/live/{name}")),
        false => built(&format!("target/guest/{name}")),
    };
    let mut programs = vec![built("dist/plimsoll"), program];
    programs.extend(case.also.iter().map(|path| built(path)));
    let script = r#"program=$1; shift; "/usr/local/bin/$program" "$@"; code=$?
        echo "state: $(cat /sys/kernel/sched_ext/state) $(cat /sys/kernel/sched_ext/root/ops 2>/dev/null)"
        exit $code"#;
    let words = ["sh", "-c", script, "sh"]
        .into_iter()
        .chain(case.command.iter().copied());
    let command: Vec<String> = words.map(str::to_string).collect();
    let guest = Guest {
        kernel: &kernel,
        cpus: case.cpus,
        possible_cpus: case.possible_cpus,
        // The kernel's own arrays of 1,024 take 1 GiB.
        memory: if case.possible_cpus.is_some() { "3G" } else { "2G" },
        timing: case.possible_cpus.is_none(),
        programs: &programs,
        command: &command,
        scheduler: case.loaded,
        forward: &[],
        drivers: &[],
        timeout: Some(LIMIT),
    };
    let began = Instant::now();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut ended = run(&guest, &qemu, &mut out, &mut err);
    if !guest.timing && matches!(&ended, Err(error) if ran_rewritten_code(error)) {
        println!("again: the emulation ran code that the kernel had rewritten");
        (out, err) = (Vec::new(), Vec::new());
        ended = run(&guest, &qemu, &mut out, &mut err);
    }
    let (out, err) = (String::from_utf8_lossy(&out), String::from_utf8_lossy(&err));
    let words = case.command.join(" ");
    println!("Linux {}: {words}\n{out}", kernel.release);
    // Past the harness, which keeps what a passing test prints: a suite this long shows where its time goes.
    let seconds = began.elapsed().as_secs();
    let _ = writeln!(stderr(), "Linux {}: {words}: {seconds} s", kernel.release);
    let ended = ended.unwrap_or_else(|error| panic!("{error}\n{err}"));
    let log = String::from_utf8_lossy(&ended.kernel_log);
    let warnings: Vec<&str> = log
        .lines()
        .filter(|line| WARNINGS.iter().any(|warning| line.contains(warning)))
        .collect();
    assert_eq!(ended.code, 0, "{err}\n{}", warnings.join("\n"));
    if case.loaded {
        assert!(
            out.contains("state: enabled plimsoll"),
            "the scheduler is gone\n{err}"
        );
    }
    assert!(warnings.is_empty(), "the kernel warned:\n{log}");
}

/// A case of `both` runs on all kernels in `make test-live`: it asks for what differs between kernels. One of `newest` runs on
/// the older and the next kernel, too, in `make test-live-all`.
macro_rules! cases {
    (both { $($both:ident: $both_case:expr;)* } newest { $($name:ident: $case:expr;)* }) => {
        mod newest {
            use super::Case;
            $(#[test] #[ignore = "boots a kernel"] fn $both() { super::holds("newest", &$both_case); })*
            $(#[test] #[ignore = "boots a kernel"] fn $name() { super::holds("newest", &$case); })*
        }
        mod older {
            use super::Case;
            $(#[test] #[ignore = "boots a kernel"] fn $both() { super::holds(super::OLDER, &$both_case); })*
        }
        mod older_too {
            use super::Case;
            $(#[test] #[ignore = "boots a kernel"] fn $name() { super::holds(super::OLDER, &$case); })*
        }
        mod next {
            use super::Case;
            $(#[test] #[ignore = "boots a kernel"] fn $both() { super::holds(super::NEXT, &$both_case); })*
        }
        mod next_too {
            use super::Case;
            $(#[test] #[ignore = "boots a kernel"] fn $name() { super::holds(super::NEXT, &$case); })*
        }
    };
}

cases! {
    both {
        deferred_work_runs_and_limits_hold_after_30_rounds_of_cpus_off_and_on: Case {
            loaded: false,
            also: &["target/guest/duty"],
            ..Case::of(&["hotplug-limits.sh", "30", "1"])
        };
        limits_set_before_loading_hold_from_the_first_period: Case {
            loaded: false,
            also: &["target/guest/duty"],
            ..Case::of(&["limits-before.sh"])
        };
        probes_refusals_knobs_and_the_way_back_hold: Case {
            loaded: false,
            also: &["target/guest/duty", "/usr/bin/setpriv"],
            ..Case::of(&["safety.sh"])
        };
        loading_takes_less_than_three_and_a_half_seconds: Case { loaded: false, ..Case::of(&["load.sh"]) };
    }
    newest {
        limits_rewritten_1000_times_hold: Case::of(&["limits", "1000"]);
        nice_affinity_cpusets_and_idle_groups_are_respected: Case::of(&["rules"]);
        a_tenants_cgroups_end_nothing_and_take_no_room_of_others: Case {
            loaded: false,
            also: &["/usr/bin/setpriv"],
            ..Case::of(&["tenants.sh"])
        };
        groups_come_and_go_while_throttled_1000_times: Case::of(&["churn", "1000"]);
        fork_storms_and_stops_lose_no_process: Case::of(&["storm", "10000", "500"]);
        cpus_go_off_and_come_back_under_load: Case::of(&["hotplug", "30"]);
        a_tree_32_deep_and_10000_groups_hold: Case::of(&["hierarchy", "32", "10000"]);
        loaded_and_unloaded_50_times: Case { loaded: false, ..Case::of(&["reload.sh", "50"]) };
        nobody_waits_past_its_bound_whatever_the_limits: Case::of(&["waits", "40"]);
        a_group_does_not_weigh_less_for_what_has_ended_elsewhere: Case::of(&["left-load.sh"]);
        what_sleepers_take_their_own_group_has_less_of: Case {
            also: &["target/guest/duty", "/usr/bin/nice"],
            ..Case::of(&["sleepers.sh"])
        };
        what_may_not_run_weighs_nothing_in_its_group: Case {
            also: &["target/guest/duty"],
            ..Case::of(&["held-weight.sh"])
        };
        who_is_preempted_by_real_time_threads_goes_on_elsewhere: Case {
            also: &["/usr/bin/chrt", "/usr/bin/taskset"],
            ..Case::of(&["realtime.sh"])
        };
        who_has_a_cpu_alone_is_no_measure_for_the_others: Case {
            also: &["/usr/bin/taskset"],
            ..Case::of(&["beside-alone.sh"])
        };
        tasks_of_cpusets_beside_each_other_are_even: Case {
            cpus: "8",
            loaded: true,
            ..Case::of(&["cpusets.sh"])
        };
        light_work_has_its_share_on_many_cpus: Case {
            cpus: "8",
            loaded: false,
            also: &["/usr/bin/nice"],
            ..Case::of(&["light-groups.sh"])
        };
        a_service_of_many_threads_does_not_wait_for_a_batch_job: Case {
            cpus: "1",
            also: &["target/guest/duty"],
            ..Case::of(&["beside-batch.sh"])
        };
        weights_hold_against_crowds_births_and_yields: Case {
            cpus: "1",
            loaded: false,
            also: &["target/guest/pressure"],
            ..Case::of(&["pressure.sh"])
        };
        a_crowd_that_is_due_nothing_does_not_end_the_scheduler: Case {
            cpus: "1",
            also: &["target/guest/pressure"],
            ..Case::of(&["starving.sh"])
        };
        a_group_that_is_idle_no_longer_has_its_share_at_once: Case {
            loaded: false,
            also: &["target/guest/duty"],
            ..Case::of(&["idle-work.sh"])
        };
        a_process_in_system_calls_gets_its_limit: Case::of(&["syscalls.sh"]);
        grace_periods_end_while_readers_are_throttled: Case::of(&["grace", "40"]);
        headroom_keeps_its_budget_as_cpus_come_and_go: Case { loaded: false, ..Case::of(&["headroom-hotplug.sh"]) };
        headroom_is_left_beside_real_time_threads: Case {
            loaded: false,
            also: &["target/guest/duty", "/usr/bin/chrt"],
            ..Case::of(&["headroom-realtime.sh"])
        };
        wake_ups_go_to_idle_cores_and_stay_in_their_cache: Case {
            cpus: "8,sockets=2,cores=2,threads=2",
            ..Case::of(&["placement", "4", "2"])
        };
        of_1024_cpus_the_last_hold_limits_and_weights: Case { possible_cpus: Some(1024), ..Case::of(&["wide.sh"]) };
        the_unit_runs_under_systemd: Case {
            loaded: false,
            also: &["packaging/plimsoll.service", "/lib/systemd/systemd", "/usr/bin/systemctl"],
            ..Case::of(&["unit.sh"])
        };
    }
}

/// Nothing is loaded: also on a kernel without sched_ext.
mod agent {
    use super::{holds, Case};
    const CASE: Case = Case {
        loaded: false,
        also: &["target/guest/duty"],
        ..Case::of(&["agent.sh"])
    };

    #[test]
    #[ignore = "boots a kernel"]
    fn burst_headroom_and_the_way_back_hold_through_files_alone_newest() {
        holds("newest", &CASE);
    }

    #[test]
    #[ignore = "boots a kernel"]
    fn burst_headroom_and_the_way_back_hold_through_files_alone_6_12() {
        holds("6.12", &CASE);
    }

    #[test]
    #[ignore = "boots a kernel"]
    fn burst_headroom_and_the_way_back_hold_through_files_alone_6_1() {
        holds("6.1", &CASE);
    }

    #[test]
    #[ignore = "boots a kernel"]
    fn burst_and_headroom_hold_beside_those_of_run_newest() {
        let case = Case {
            loaded: false,
            also: &["target/guest/duty", "target/guest/turns"],
            ..Case::of(&["agent-beside-run.sh"])
        };
        holds("newest", &case);
    }

    #[test]
    #[ignore = "boots a kernel"]
    fn five_hundred_groups_cost_less_than_half_a_percent_of_a_cpu() {
        let case = Case {
            loaded: false,
            cpus: "1",
            also: &["target/guest/duty"],
            ..Case::of(&["agent-cost.sh"])
        };
        holds("6.12", &case);
    }

    #[test]
    #[ignore = "boots a kernel"]
    fn headroom_is_kept_beside_a_hundred_side_groups() {
        holds(
            "6.12",
            &Case {
                command: &["agent-crowd.sh"],
                ..CASE
            },
        );
    }

    #[test]
    #[ignore = "boots a kernel"]
    fn prometheus_selects_alerts_and_draws_what_is_served() {
        let case = Case {
            loaded: false,
            also: &[
                "target/guest/duty",
                "target/prometheus/usr/bin/prometheus",
                "target/prometheus/usr/bin/promtool",
                "packaging/prometheus/plimsoll.rules.yml",
                "packaging/grafana/plimsoll.json",
            ],
            ..Case::of(&["prometheus.sh"])
        };
        holds("newest", &case);
    }

    #[test]
    #[ignore = "boots a kernel"]
    fn the_agents_unit_holds_under_systemd_with_its_sandbox() {
        let case = Case {
            loaded: false,
            also: &[
                "packaging/plimsoll-agent.service",
                "packaging/agent.toml",
                "/lib/systemd/systemd",
                "/usr/bin/systemctl",
            ],
            ..Case::of(&["agent-unit.sh"])
        };
        holds("6.12", &case);
    }
}
