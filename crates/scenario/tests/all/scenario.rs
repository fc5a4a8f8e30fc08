// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scenario files: what is refused, where, and with which words; and what a good one becomes.
use expect_test::{expect, Expect};
use plimsoll_scenario::Scenario;
use plimsoll_sim::{CgroupMode, ChangeKind, GroupId};
use std::path::Path;

const HEAD: &str = "machine = \"vm\"\nduration_ms = 1000\n";

fn parse(text: &str, settings: &[&str]) -> Result<Scenario, String> {
    let settings: Vec<String> = settings.iter().map(|setting| setting.to_string()).collect();
    Scenario::parse("s.toml", &format!("{HEAD}{text}"), Path::new(""), &settings)
        .map_err(|problems| problems.to_string())
}

fn refused(text: &str, expected: Expect) {
    expected.assert_eq(&parse(text, &[]).expect_err("the scenario has an error"));
}

fn good(text: &str) -> Scenario {
    parse(text, &[]).unwrap_or_else(|problems| panic!("{problems}"))
}

#[test]
fn limits_are_refused_with_the_range_of_the_policy() {
    refused(
        "[group.a]\nquota_us = 999\n[group.b]\nquota_us = 17592186044416\n",
        expect![[r#"
        s.toml:4:12: group.a.quota_us: 999: allowed 1000 .. 17592186044415, or "max"
        s.toml:6:12: group.b.quota_us: 17592186044416: allowed 1000 .. 17592186044415, or "max""#]],
    );
    refused(
        "[group.a]\nquota_us = 1000\nburst_us = 99999999999999\n",
        expect!["s.toml:5:12: group.a.burst_us: 99999999999999: allowed 0 .. 17592186044415"],
    );
    refused(
        "[group.a]\nquota_us = 9223372036854775807\n",
        expect![[
            r#"s.toml:4:12: group.a.quota_us: 9223372036854775807: allowed 1000 .. 17592186044415, or "max""#
        ]],
    );
    refused(
        "[group.a]\nquota_us = \"lots\"\n[group.b]\nburst_us = -1\n",
        expect![[r#"
        s.toml:4:12: group.a.quota_us: "lots": allowed an integer, 1000 .. 17592186044415, or "max"
        s.toml:6:12: group.b.burst_us: -1: allowed 0 .. 17592186044415"#]],
    );
    refused(
        "[group.a]\nquota_us = nan\nburst_us = inf\n[group.b]\nquota_us = 99999999999999999999\n\
         burst_us = 99999999999999999999\nweight = 0\n",
        expect![[r#"
            s.toml:4:12: group.a.quota_us: nan: allowed an integer, 1000 .. 17592186044415, or "max"
            s.toml:5:12: group.a.burst_us: inf: allowed an integer, 0 .. 17592186044415
            s.toml:7:12: group.b.quota_us: 99999999999999999999: allowed an integer, 1000 .. 17592186044415, or "max"
            s.toml:8:12: group.b.burst_us: 99999999999999999999: allowed 0 .. 17592186044415
            s.toml:9:10: group.b.weight: 0: allowed 1 .. 10000"#]],
    );
}

/// The range that is said of a negative number is the one that holds, and the policy's.
#[test]
fn ranges_of_the_schema_are_those_of_the_policy() {
    refused(
        "[group.a]\nperiod_us = -1\nonset_percent = -1\nphase_us = -1\n[group.b]\nperiod_us = 999\n[group.c]\nperiod_us = 1000001\nonset_percent = 101\n",
        expect![[r#"
            s.toml:4:13: group.a.period_us: -1: allowed 1000 .. 1000000
            s.toml:5:17: group.a.onset_percent: -1: allowed 0 .. 100
            s.toml:6:12: group.a.phase_us: -1: allowed 0 .. 999999
            s.toml:8:13: group.b.period_us: 999: allowed 1000 .. 1000000
            s.toml:10:13: group.c.period_us: 1000001: allowed 1000 .. 1000000
            s.toml:11:17: group.c.onset_percent: 101: allowed 0 .. 100"#]],
    );
    good("[group.a]\nperiod_us = 1000\nonset_percent = 100\nphase_us = 999\n[group.b]\nperiod_us = 1000000\nphase_us = 999999\n");
}

#[test]
fn keys_without_effect_are_refused_unless_a_setting_turned_them_off() {
    let text = "[workload.a]\nkind = \"server\"\nwait_us = 2000\n\
                [workload.b]\nkind = \"schbench\"\nbatch = 4\nrandom_sleeps = true\ntimer_slack_us = 50.0\nversion = \"2021\"\n\
                [workload.c]\nkind = \"batch\"\nspin_us = 10\n\
                [workload.d]\nkind = \"clients_db\"\nstorage_us = 50\n";
    refused(
        text,
        expect![[r#"
        s.toml:5:11: workload.a.wait_us: 2000: has no effect here; it needs pieces of 2 or more
        s.toml:8:9: workload.b.batch: 4: has no effect here; it needs requests_per_s above 0
        s.toml:9:17: workload.b.random_sleeps: true: has no effect here; it needs requests_per_s above 0
        s.toml:10:18: workload.b.timer_slack_us: 50.0: has no effect here; it needs requests_per_s above 0
        s.toml:11:11: workload.b.version: "2021": has no effect here; it needs requests_per_s above 0
        s.toml:14:11: workload.c.spin_us: 10: has no effect here; it needs locked_us above 0, or a barrier
        s.toml:17:14: workload.d.storage_us: 50: has no effect here; it needs storage_percent above 0"#]],
    );
    let off = [
        "workload.a.pieces=1",
        "workload.b.requests_per_s=0",
        "workload.c.locked_us=0",
        "workload.d.storage_percent=0",
    ];
    parse(text, &off).expect("a sweep down to nothing");
    good("[workload.a]\nkind = \"server\"\nwait_us = 0\n[workload.b]\nkind = \"schbench\"\nbatch = 8\n");
}

#[test]
fn what_is_allowed_is_said_once_and_a_float_is_shown_as_one() {
    refused(
        "[workload.a]\nkind = \"server\"\narrivals = \"poisson\"\n",
        expect![[r#"s.toml:5:12: workload.a.arrivals: "poisson": allowed a table"#]],
    );
    let problems = parse("", &["duration_ms=1e3"]).expect_err("no integer");
    expect!["--set duration_ms=1e3: duration_ms: 1000.0: allowed an integer, 1 .. 86400000"]
        .assert_eq(&problems);
}

#[test]
fn mainline_semantics_refuse_a_burst_above_the_quota() {
    let text = "[group.a]\nquota_us = 20000\nburst_us = 20001\n";
    good(text);
    refused(&format!("[switches]\nburst_semantics = \"mainline\"\n{text}"), expect!["s.toml:7:12: group.a.burst_us: 20001: allowed 0 .. 20000 (mainline semantics: no more than the quota)"]);
    // Without a quota it takes any, as the kernel does.
    good("[switches]\nburst_semantics = \"mainline\"\n[group.a]\nburst_us = 1\n");
}

#[test]
fn no_quota_can_be_said_in_two_ways() {
    let scenario = good("[group.a]\nquota_us = \"max\"\n[group.b]\nquota_us = -1\n");
    assert!(scenario
        .groups
        .iter()
        .all(|group| group.spec.limits.quota_ns.is_none()));
}

#[test]
fn a_missing_name_is_an_error_with_the_nearest_one() {
    refused(
        "[group.web]\n[group.\"batch/video\"]\n[workload.w]\nkind = \"spinners\"\ngroup = \"wbe\"\n[[change]]\nat_ms = 5\ngroup = \"webb\"\nweight = 7\n[[change]]\nat_ms = 1\nworkload = \"x\"\nnice = 1\n",
        expect![[r#"
            s.toml:4:8: group.batch/video: there is no group "batch"; add [group."batch"]
            s.toml:7:9: workload.w.group: "wbe": no such group; did you mean "web"?
            s.toml:10:9: change.0.group: "webb": no such group; did you mean "web"?
            s.toml:14:12: change.1.workload: "x": no such workload; did you mean "w"?"#]],
    );
}

#[test]
fn the_root_group_takes_no_knobs() {
    refused(
        "[group.\"/\"]\nquota_us = 10000\n[[change]]\nat_ms = 1\ngroup = \"/\"\nweight = 5\n",
        expect![[r#"
        s.toml:3:8: group./: the root group takes no knobs
        s.toml:7:9: change.0.group: the root group takes no knobs"#]],
    );
}

#[test]
fn groups_are_nested_by_name_whatever_their_order() {
    let scenario = good("[group.\"web/api\"]\nweight = 7\n[group.web]\n");
    let parents: Vec<_> = scenario
        .groups
        .iter()
        .map(|group| (group.spec.path.as_str(), group.spec.parent))
        .collect();
    assert_eq!(parents, [("/web", GroupId::ROOT), ("/web/api", GroupId(1))]);
    refused(
        "[group.\"web//api\"]\n[group.\"/web\"]\n",
        expect![[r#"
            s.toml:3:8: group.web//api: a group's name is one word, or several with single slashes: "web/api"
            s.toml:4:8: group./web: a group's name is one word, or several with single slashes: "web/api""#]],
    );
}

#[test]
fn cpus_must_be_there_and_allowed_by_the_groups_above() {
    refused(
        "[group.a]\ncpus = \"0-1\"\n[group.\"a/b\"]\ncpus = \"2-3\"\n[group.c]\ncpus = \"0-4\"\n[group.d]\ncpus = \"3-1\"\n[workload.w]\nkind = \"spinners\"\ngroup = \"a\"\ncpus = \"3\"\n[[change]]\nat_ms = 1\noffline = \"4\"\n",
        expect![[r#"
            s.toml:6:8: group.a/b.cpus: none of these CPUs is left by the groups above; allowed: 0,1
            s.toml:8:8: group.c.cpus: "0-4": no CPU 4; allowed 0 .. 3
            s.toml:10:8: group.d.cpus: "3-1": allowed is a list of CPUs as in "0-3,8"
            s.toml:14:8: workload.w.cpus: none of these CPUs is left by the groups above; allowed: 0,1
            s.toml:17:11: change.0.offline: "4": no CPU 4; allowed 0 .. 3"#]],
    );
}

#[test]
fn cpus_of_a_change_are_judged_by_what_changed_before_it() {
    let nested = "[group.p]\ncpus = \"0-1\"\n[group.\"p/c\"]\n[group.q]\ncpus = \"2-3\"\n\
                  [workload.w]\nkind = \"spinners\"\ngroup = \"p/c\"\n";
    // Whatever their order in the file.
    good(&format!(
        "{nested}[[change]]\nat_ms = 20\ngroup = \"p/c\"\ncpus = \"2-3\"\n\
         [[change]]\nat_ms = 10\ngroup = \"p\"\ncpus = \"0-3\"\n"
    ));
    good(&format!(
        "{nested}[[change]]\nat_ms = 10\nworkload = \"w\"\nmove_to = \"q\"\n\
         [[change]]\nat_ms = 20\nworkload = \"w\"\ncpus = \"2\"\n"
    ));
    refused(
        "[group.p]\n[group.\"p/c\"]\n[group.q]\ncpus = \"3\"\n[workload.w]\nkind = \"spinners\"\ngroup = \"p/c\"\n\
         [[change]]\nat_ms = 10\ngroup = \"p\"\ncpus = \"0-1\"\n\
         [[change]]\nat_ms = 20\ngroup = \"p/c\"\ncpus = \"2-3\"\n\
         [[change]]\nat_ms = 30\nworkload = \"w\"\ncpus = \"2\"\n\
         [[change]]\nat_ms = 40\nworkload = \"w\"\nmove_to = \"q\"\n\
         [[change]]\nat_ms = 50\nworkload = \"w\"\ncpus = \"0\"\n",
        expect![[r#"
            s.toml:17:8: change.1.cpus: none of these CPUs is left by the groups above; allowed: 0,1
            s.toml:21:8: change.2.cpus: none of these CPUs is on line and left by the groups above; allowed: 0,1
            s.toml:29:8: change.4.cpus: none of these CPUs is on line and left by the groups above; allowed: 3"#]],
    );
    // As in the kernel: what a change above leaves nothing of has its parent's CPUs.
    refused(
        &format!(
            "{nested}[group.\"p/c/d\"]\ncpus = \"1\"\n[[change]]\nat_ms = 10\ngroup = \"p\"\ncpus = \"0,3\"\n\
             [[change]]\nat_ms = 20\nworkload = \"w\"\nmove_to = \"p/c/d\"\ncpus = \"3\"\n\
             [[change]]\nat_ms = 30\nworkload = \"w\"\ncpus = \"1\"\n"
        ),
        expect!["s.toml:25:8: change.2.cpus: none of these CPUs is on line and left by the groups above; allowed: 0,3"],
    );
}

#[test]
fn no_change_takes_the_last_cpu_off_line() {
    let offline = |at_ms: u32, cpus: &str| format!("[[change]]\nat_ms = {at_ms}\noffline = \"{cpus}\"\n");
    refused(&offline(10, "0-3"), expect!["s.toml:5:11: change.0.offline: no CPU would be on line; allowed is a list without one of these: 0-3"]);
    refused(&(offline(20, "1-3") + &offline(10, "0")), expect!["s.toml:5:11: change.0.offline: no CPU would be on line; allowed is a list without one of these: 1-3"]);
    let back = "[[change]]\nat_ms = 15\nonline = \"0\"\n";
    good(&(offline(20, "1-3") + &offline(10, "0") + back));
    // Nor can a workload go where no CPU is on line; a cpuset may wait for its CPUs.
    refused(
        &format!(
            "[group.a]\n[workload.w]\nkind = \"spinners\"\n{}\
             [[change]]\nat_ms = 20\ngroup = \"a\"\ncpus = \"2-3\"\n\
             [[change]]\nat_ms = 20\nworkload = \"w\"\ncpus = \"2-3\"\n",
            offline(10, "2-3")
        ),
        expect!["s.toml:16:8: change.2.cpus: none of these CPUs is on line and left by the groups above; allowed: 0,1"],
    );
}

#[test]
fn a_change_is_refused_at_a_key_that_it_has() {
    let text = "[switches]\nburst_semantics = \"mainline\"\n[group.a]\nquota_us = 10000\nburst_us = 5000\n\
                [[change]]\nat_ms = 50\ngroup = \"a\"\n";
    refused(&format!("{text}quota_us = 4999\n"), expect!["s.toml:11:12: change.0.quota_us: 4999: allowed 5000 .. 17592186039415 (mainline semantics: no less than burst_us, which is 5000 at that time)"]);
    good(&format!("{text}quota_us = 5000\n"));
    good(&format!("{text}quota_us = \"max\"\n"));
    refused(&format!("{text}burst_us = 10001\n"), expect!["s.toml:11:12: change.0.burst_us: 10001: allowed 0 .. 10000 (mainline semantics: no more than the quota)"]);
}

#[test]
fn a_change_has_one_subject_and_knobs_that_go_with_it() {
    refused(
        "[group.a]\n[workload.w]\nkind = \"spinners\"\n\
         [[change]]\nat_ms = 1\n\
         [[change]]\nat_ms = 2\ngroup = \"a\"\nonline = \"1\"\n\
         [[change]]\nat_ms = 3\ngroup = \"a\"\nnice = 3\n\
         [[change]]\nat_ms = 4\ngroup = \"a\"\n\
         [[change]]\nat_ms = 1000\ngroup = \"a\"\nweight = 1\n\
         [[change]]\nat_ms = 5\ngroup = \"a\"\nquota_us = 5\n",
        expect![[r#"
            s.toml:6:1: change.0: none given: allowed is one of group, workload, offline, online
            s.toml:8:1: change.1: group and online given: allowed is one of group, workload, offline, online
            s.toml:15:8: change.2.nice: goes with workload, not with group
            s.toml:16:1: change.3: changes nothing of the group
            s.toml:20:9: change.4.at_ms: 1000: allowed 0 .. below 1000, the end of the run
            s.toml:26:12: change.5.quota_us: 5: allowed 1000 .. 17592186044415, or "max""#]],
    );
}

#[test]
fn a_change_of_limits_keeps_the_knobs_that_it_does_not_name() {
    let scenario = good(
        "[group.a]\nquota_us = 20000\nburst_us = 5000\n\
         [[change]]\nat_ms = 20\ngroup = \"a\"\nperiod_us = 50000\n\
         [[change]]\nat_ms = 10\ngroup = \"a\"\nquota_us = 30000\n",
    );
    let limits: Vec<_> = scenario
        .config()
        .changes
        .iter()
        .map(|change| match &change.what {
            ChangeKind::Limits { limits, .. } => {
                (change.at_ns, limits.quota_ns, limits.period_ns, limits.burst_ns)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        limits,
        [
            (10_000_000, Some(30_000_000), 100_000_000, 5_000_000),
            (20_000_000, Some(30_000_000), 50_000_000, 5_000_000)
        ]
    );
}

#[test]
fn a_change_of_a_workload_reaches_all_of_its_tasks() {
    let scenario = good(
        "[group.a]\n[workload.v]\nkind = \"spinners\"\n[workload.w]\nkind = \"spinners\"\nthreads = 3\n\
         [[change]]\nat_ms = 1\nworkload = \"w\"\nnice = 5\n",
    );
    let tasks: Vec<u32> = scenario
        .config()
        .changes
        .iter()
        .map(|change| match change.what {
            ChangeKind::Nice { task, nice: 5 } => task.0,
            ref other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(tasks, [1, 2, 3]);
}

#[test]
fn an_unknown_machine_or_kind_is_an_error() {
    let refuse = |text: &str| {
        Scenario::parse("s.toml", text, Path::new(""), &[])
            .expect_err("bad")
            .to_string()
            .split(" known:")
            .next()
            .expect("a first part")
            .to_string()
    };
    expect![[r#"s.toml:1:11: machine: "vn": no such machine; did you mean "vm"?"#]]
        .assert_eq(&refuse("machine = \"vn\"\nduration_ms = 1\n"));
    expect![[r#"s.toml:1:11: machine: "./none.toml": cannot read ./none.toml: No such file or directory (os error 2)"#]].assert_eq(&refuse("machine = \"./none.toml\"\nduration_ms = 1\n"));
    expect![[r#"s.toml:4:8: workload.w.kind: "schbanch": did you mean "schbench"? allowed: schbench, hackbench, fibtest, duty, clients_db, request_response, stream, server, batch, spinners"#]].assert_eq(&refuse("machine = \"vm\"\nduration_ms = 1\n[workload.w]\nkind = \"schbanch\"\n"));
    expect!["s.toml:5:1: workload.w.work_threads: unknown key; did you mean worker_threads?"].assert_eq(
        &refuse("machine = \"vm\"\nduration_ms = 1\n[workload.w]\nkind = \"schbench\"\nwork_threads = 3\n"),
    );
    expect!["s.toml:1:1: missing: machine, duration_ms"].assert_eq(&refuse(""));
}

/// Mainline's rule of the version asked for, whatever the machine's model knows; what its table or the scenario says goes
/// before that.
#[test]
fn what_a_weight_is_for_follows_the_kernel_that_is_asked_for() {
    let mode = |text: &str| good(text).config().policy.cgroup_mode;
    assert_eq!(mode(""), CgroupMode::Smp);
    assert_eq!(mode("kernel = \"7.2.13\"\n"), CgroupMode::Smp);
    assert_eq!(mode("kernel = \"7.3\"\n"), CgroupMode::Concur);
    assert_eq!(
        mode("kernel = \"7.3\"\n[switches]\ncgroup_mode = \"smp\"\n"),
        CgroupMode::Smp
    );
    assert_eq!(mode("[switches]\ncgroup_mode = \"concur\"\n"), CgroupMode::Concur);
    refused(
        "[switches]\ncgroup_mode = \"max\"\n",
        expect![[r#"s.toml:4:15: switches.cgroup_mode: "max": allowed: smp, concur"#]],
    );
}

#[test]
fn a_kernel_is_named_by_its_version_only() {
    for version in ["5.0", "6.1", "6.1.55", "6.30", "7.2"] {
        good(&format!("kernel = \"{version}\"\n"));
    }
    let refuse = |version: &str| parse(&format!("kernel = \"{version}\"\n"), &[]).expect_err("bad");
    expect![[r#"s.toml:3:10: kernel: "v7.2": allowed is a version as in "6.1" or "6.1.55"; the machine's model knows 6.1, 6.12, 7.2"#]].assert_eq(&refuse("v7.2"));
    for version in [
        "",
        "7",
        "linux-7.2",
        "7.2.1.4",
        "6.1-rc1",
        "6.",
        "+6.1",
        " 6.1",
        "6.99999999999",
    ] {
        let said = refuse(version);
        assert!(
            said.contains("s.toml:3:10: kernel:") && said.contains("6.1, 6.12, 7.2"),
            "{said}"
        );
    }
    let machine =
        "duration_ms = 1\n[machine.topology]\ncores_per_llc = 2\n[machine.kernel.\"v6.1\"]\nslice_us = 750\n";
    let problems = Scenario::parse("s.toml", machine, Path::new(""), &[]).unwrap_err();
    expect![[r#"s.toml:4:17: machine.kernel.v6.1: a kernel's name is its version, as in "6.1" or "6.1.55""#]]
        .assert_eq(&problems.to_string());
}

/// As schbench's own -R is: with seconds as rounds, a fraction would be another rate than the one asked for.
#[test]
fn requests_per_second_of_schbench_are_a_whole_number() {
    let text = |rate: &str| format!("[workload.w]\nkind = \"schbench\"\nrequests_per_s = {rate}\n");
    good(&text("1"));
    refused(
        &text("0.5"),
        expect!["s.toml:5:18: workload.w.requests_per_s: 0.5: allowed an integer, 0 .. 10000000"],
    );
    refused(
        &text("10000001"),
        expect!["s.toml:5:18: workload.w.requests_per_s: 10000001: allowed 0 .. 10000000"],
    );
}

/// Its name is right: what names it has nothing to be told.
#[test]
fn a_group_that_is_refused_is_not_missed_by_what_names_it() {
    refused(
        "[group.\"a/b\"]\n[group.\"a/b/c\"]\n[group.\"x//y\"]\n[workload.w]\nkind = \"spinners\"\ngroup = \"a/b\"\n\
         [workload.v]\nkind = \"spinners\"\ngroup = \"x//y\"\n[workload.u]\nkind = \"spinners\"\ngroup = \"a/d\"\n\
         [[change]]\nat_ms = 1\ngroup = \"a/b/c\"\nweight = 7\n[[change]]\nat_ms = 1\nworkload = \"w\"\n\
         move_to = \"a/b\"\n",
        expect![[r#"
            s.toml:3:8: group.a/b: there is no group "a"; add [group."a"]
            s.toml:5:8: group.x//y: a group's name is one word, or several with single slashes: "web/api"
            s.toml:14:9: workload.u.group: "a/d": no such group; did you mean "a/b"?"#]],
    );
}

/// 42 GB of queues: the allocator ended the process.
#[test]
fn more_groups_than_the_cpus_leave_memory_for_are_refused() {
    let text = |groups: u32, cpus: u32| {
        let head = format!("duration_ms = 1\n[machine.topology]\ncores_per_llc = {cpus}\n");
        (0..groups).fold(head, |text, number| format!("{text}[group.g{number}]\n"))
    };
    let parse = |groups, cpus| Scenario::parse("s.toml", &text(groups, cpus), Path::new(""), &[]);
    let problems = parse(2049, 4096).unwrap_err();
    expect!["s.toml:4:2: group: 2049 groups: allowed 0 .. 2048 on a machine of 4096 CPUs"]
        .assert_eq(&problems.to_string());
    for (groups, cpus) in [(2048, 4096), (2000, 1024), (8192, 1024)] {
        let scenario = parse(groups, cpus).unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(scenario.groups.len(), groups as usize);
    }
}

/// Where a number has its source beside it, too.
#[test]
fn a_number_of_a_machine_that_is_none_is_refused_with_its_range() {
    let text = "duration_ms = 1\n[machine.topology]\ncores_per_llc = 2\n[machine.costs]\n\
                context_switch_ns = { value = nan, source = \"x\" }\nwakeup_ns = 99999999999999999999\n\
                [machine.clock]\nstart_ns = 99999999999999999999\n";
    let problems = Scenario::parse("s.toml", text, Path::new(""), &[]).unwrap_err();
    expect![[r#"
        s.toml:5:31: machine.costs.context_switch_ns.value: nan: allowed 0 .. 1000000000
        s.toml:6:13: machine.costs.wakeup_ns: 99999999999999999999: allowed 0 .. 1000000000
        s.toml:8:12: machine.clock.start_ns: 99999999999999999999: allowed an integer, 0 .. 9223372036854775807, or a table"#]]
    .assert_eq(&problems.to_string());
}

#[test]
fn more_tasks_and_cpus_than_a_machine_holds_are_refused_with_their_place() {
    refused(
        "[workload.a]\nkind = \"hackbench\"\ngroups = 10000\nfds = 1000\n[workload.b]\nkind = \"schbench\"\n\
         message_threads = 4096\nworker_threads = 65536\n",
        expect![[r#"
            s.toml:3:11: workload.a: 20000000 tasks: allowed 1 .. 1000000
            s.toml:7:11: workload.b: 268439552 tasks: allowed 1 .. 1000000"#]],
    );
    good("[workload.a]\nkind = \"hackbench\"\ngroups = 10000\nfds = 50\n");
    // Each is few enough alone; only the first that is too much is said.
    let spinners: String = (0..12)
        .map(|number| format!("[workload.s{number}]\nkind = \"spinners\"\nthreads = 100000\n"))
        .collect();
    refused(
        &spinners,
        expect!["s.toml:33:11: workload.s10: 1100000 tasks with those before: allowed 1 .. 1000000 in all"],
    );
    good(&spinners[..spinners.find("[workload.s10]").expect("one of them")]);
    // Requests without end at one instant.
    refused(
        "[workload.a]\nkind = \"server\"\nwork_us = 0.001\n\
         arrivals = { process = \"load\", load_percent = 10000 }\n",
        expect!["s.toml:6:47: workload.a.arrivals.load_percent: comes to 4e11 requests/s of work_us here; allowed: up to 1e8"],
    );
    let machine = "duration_ms = 1\n[machine.topology]\ncores_per_llc = 4096\nthreads_per_core = 2\n";
    let problems = Scenario::parse("s.toml", machine, Path::new(""), &[]).unwrap_err();
    expect!["s.toml:2:10: machine.topology: 8192 CPUs: allowed 1 .. 4096"].assert_eq(&problems.to_string());
}

#[test]
fn an_inline_machine_is_checked_like_a_file() {
    let refuse = |text: &str| {
        Scenario::parse("s.toml", text, Path::new(""), &[])
            .expect_err("bad")
            .to_string()
    };
    expect!["s.toml:2:10: machine.topology: 262144 CPUs: allowed 1 .. 4096"].assert_eq(&refuse(
        "duration_ms = 1\n[machine.topology]\ncores_per_llc = 4096\nsockets = 64\n",
    ));
    expect!["s.toml:9:14: machine.costs.syscall_ns: 1.5: allowed an integer, 0 .. 1000000000, or a table"].assert_eq(&refuse(
        "duration_ms = 1\n[machine.topology]\ncores_per_llc = 4\n[machine.clock]\nhz = 24\n[machine.costs]\nsmt_percent = { value = 1, source = \"?\" }\nline = { core_ns = 1, llc_ns = 2, socket_ns = 3, remote_ns = 4 }\nsyscall_ns = 1.5\n"
    ));
    expect![[r#"
        s.toml:5:6: machine.clock.hz: 5: allowed 24 .. 10000
        s.toml:7:25: machine.costs.smt_percent.value: 0: allowed 1 .. 100
        s.toml:8:62: machine.costs.line.remote_ns: 4000000000: allowed 0 .. 1000000000"#]].assert_eq(&refuse(
        "duration_ms = 1\n[machine.topology]\ncores_per_llc = 4\n[machine.clock]\nhz = 5\n[machine.costs]\nsmt_percent = { value = 0, source = \"?\" }\nline = { core_ns = 1, llc_ns = 2, socket_ns = 3, remote_ns = 4000000000 }\n"
    ));
    expect!["s.toml:5:57: machine.costs.idle_states.1.after_ns: 5: allowed more than 5, the one before"].assert_eq(&refuse(
        "duration_ms = 1\n[machine.topology]\ncores_per_llc = 4\n[machine.costs]\nidle_states = [{after_ns = 5, exit_ns = 1}, {after_ns = 5, exit_ns = 1}]\n",
    ));
    expect!["s.toml:5:79: machine.costs.idle_states.1.exit_ns: 9223372036854775807: allowed 0 .. 1000000000"].assert_eq(&refuse(
        "duration_ms = 1\n[machine.topology]\ncores_per_llc = 2\n[machine.costs]\n\
         idle_states = [{after_ns = 0, exit_ns = 1000000000}, {after_ns = 1, exit_ns = 9223372036854775807}]\n",
    ));
}

#[test]
fn a_headroom_tolerance_above_its_window_is_refused_in_its_own_unit() {
    let switches = |window_ms: u32, tolerance_us: u32| {
        format!("[switches]\nheadroom_window_ms = {window_ms}\nheadroom_tolerance_us = {tolerance_us}\n")
    };
    good(&switches(10, 10_000));
    refused(&switches(10, 10_001), expect!["s.toml:5:25: switches.headroom_tolerance_us: 10001: allowed 1 .. 10000, the window (headroom_window_ms)"]);
    refused("[switches]\nheadroom_tolerance_us = 200000\n", expect!["s.toml:4:25: switches.headroom_tolerance_us: 200000: allowed 1 .. 100000, the window (headroom_window_ms)"]);
}

#[test]
fn a_setting_changes_a_knob_and_its_errors_name_it() {
    let text = "[group.web]\nquota_us = 20000\nburst_us = 5000\n";
    let changed = parse(text, &["group.web.burst_us=0", "switches.expire=true", "seed=9"]).expect("good");
    assert_eq!(changed.groups[0].spec.limits.burst_ns, 0);
    assert_eq!((changed.policy.core.bandwidth.expire, changed.seed), (1, 9));
    let refuse = |setting: &str| parse(text, &[setting]).expect_err("bad");
    expect![[
        r#"--set group.web.quota_us=10: group.web.quota_us: 10: allowed 1000 .. 17592186044415, or "max""#
    ]]
    .assert_eq(&refuse("group.web.quota_us=10"));
    expect![[r#"--set group.wbe.quota_us=10000: no "wbe" in the scenario; did you mean web?"#]]
        .assert_eq(&refuse("group.wbe.quota_us=10000"));
    expect!["--set group.web.qouta_us=10000: group.web.qouta_us: unknown key; did you mean quota_us?"]
        .assert_eq(&refuse("group.web.qouta_us=10000"));
    expect!["--set switches.slice_us=0: switches.slice_us: 0: allowed 1 .. 1000000"]
        .assert_eq(&refuse("switches.slice_us=0"));
}

/// The parameters of a kind and what every workload has share one table.
#[test]
fn no_kind_has_a_parameter_of_the_name_of_a_common_one() {
    let schema = plimsoll_scenario::scenario_schema();
    let workload = &schema["$defs"]["WorkloadTable"];
    let common: Vec<&String> = workload["properties"]
        .as_object()
        .expect("properties")
        .keys()
        .collect();
    for variant in workload["oneOf"].as_array().expect("kinds") {
        let reference = variant["$ref"]
            .as_str()
            .and_then(|path| schema.pointer(path.trim_start_matches('#')));
        for part in [Some(variant), reference].into_iter().flatten() {
            for name in part["properties"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, _)| name)
            {
                assert!(!common.contains(&name), "{name} in {variant}");
            }
        }
    }
}

/// Tasks are counted before they are made: the two counts are one.
#[test]
fn the_tasks_that_are_counted_are_those_that_are_made() {
    let scenario = good(
        "[workload.a]\nkind = \"schbench\"\nmessage_threads = 3\nworker_threads = 5\n[workload.b]\nkind = \"hackbench\"\n\
         groups = 2\nfds = 3\n[workload.c]\nkind = \"fibtest\"\nfast_threads = 1\n[workload.d]\nkind = \"duty\"\n\
         threads = 2\nspinners = 3\nslow_threads = 4\ncreate_us = 10\n[workload.e]\nkind = \"clients_db\"\nclients = 7\n\
         [workload.f]\nkind = \"request_response\"\npairs = 8\n[workload.g]\nkind = \"stream\"\npairs = 9\n\
         [workload.h]\nkind = \"server\"\nworkers = 3\nclients = 4\n\
         arrivals = { process = \"poisson\", rate_per_s = 10 }\n[workload.i]\nkind = \"batch\"\n[workload.j]\n\
         kind = \"spinners\"\nthreads = 6\n",
    );
    let config = scenario.config();
    for (number, workload) in scenario.workloads.iter().enumerate() {
        let made = config
            .tasks
            .iter()
            .filter(|task| task.workload.0 as usize == number)
            .count();
        let counted = workload.work.tasks_max(scenario.machine.topology.nr_cpus());
        assert_eq!(counted, made as u64, "{}", workload.kind);
    }
}
