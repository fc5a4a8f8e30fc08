// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What simulate's tables claim about a run holds for that run.
use crate::common::{plimsoll, stdout, temporary};

/// What is printed of a scenario with these settings.
fn printed(name: &str, scenario: &str, options: &[&str]) -> String {
    let path = temporary(name);
    std::fs::write(&path, scenario).expect("a scenario");
    let path = path.to_str().expect("a path of ours");
    stdout(&[&["simulate", path][..], options].concat())
}

/// The rest of such a run is idle, and its rates are per second of all of it.
#[test]
fn a_run_that_goes_on_without_tasks_is_not_said_to_end_with_them() {
    let scenario = |stop: &str| {
        format!(
            "machine = \"vm\"\nduration_ms = 1000\n{stop}\
             [workload.h]\nkind = \"hackbench\"\ngroups = 1\nloops = 10\n"
        )
    };
    let whole = printed("goes-on.toml", &scenario(""), &[]);
    let said = ", 1.000 s (every task had ended before; rates are over all of it), ";
    assert!(
        whole.contains(said) && whole.contains("4000  4000.00\n"),
        "{whole}"
    );
    let stopped = printed("stops.toml", &scenario("stop_when_done = true\n"), &[]);
    assert!(
        stopped.contains(" s, until every task had ended, ") && !stopped.contains(" 1.000 s"),
        "{stopped}"
    );
}

/// 1 CPU, from half of the run on 10: use of 5.5 CPUs is not 550% of a limit.
#[test]
fn no_share_is_shown_of_a_limit_that_changes_within_the_run() {
    let scenario =
        "duration_ms = 1000\n[machine]\ntopology = { cores_per_llc = 16 }\ncosts = { base = \"free\" }\n\
                    [group.web]\nquota_us = 100000\n[group.batch]\nquota_us = 100000\n\
                    [workload.w]\nkind = \"spinners\"\nthreads = 10\ngroup = \"web\"\n\
                    [[change]]\nat_ms = 500\ngroup = \"web\"\nquota_us = 1000000\n\
                    [[change]]\nat_ms = 500\ngroup = \"batch\"\nburst_us = 1000\n";
    let one = printed("limit-changes.toml", scenario, &[]);
    let cells = |name: &str| -> Vec<String> {
        let line = one.lines().find(|line| line.trim_start().starts_with(name));
        line.expect(name).split_whitespace().map(str::to_string).collect()
    };
    assert_eq!(cells("web ")[1..4], ["5.500", "-", "-"]);
    assert_eq!(cells("batch ")[1..4], ["0.000", "1.000", "0.0"]);
    assert!(
        one.contains("\n  web: its limit changes within the run\n"),
        "{one}"
    );
    let two = printed(
        "limit-changes-compared.toml",
        scenario,
        &["--set", "change.0.quota_us=100000"],
    );
    assert!(
        two.contains("\n    base: its limit changes within the run\n"),
        "{two}"
    );
    assert!(!two.contains("\n    changed: its limit"), "{two}");
}

#[test]
fn burst_without_a_quota_has_no_statistic() {
    let scenario = "duration_ms = 500\nmachine = \"vm\"\n[group.web]\n\
                    [workload.w]\nkind = \"spinners\"\ngroup = \"web\"\n\
                    [[change]]\nat_ms = 100\ngroup = \"web\"\nburst_us = 1000\n";
    let text = printed("burst-only.toml", scenario, &[]);
    let line = text.lines().find(|line| line.trim_start().starts_with("web "));
    let cells: Vec<&str> = line.expect("the group").split_whitespace().collect();
    assert_eq!(cells[2..10], ["-"; 8], "{text}");
}

#[test]
fn a_run_says_whose_kernels_rules_it_follows() {
    let path = temporary("kernel.toml");
    std::fs::write(&path, "machine = \"vm\"\nkernel = \"3.10\"\nduration_ms = 1\n").expect("a scenario");
    let path = path.to_str().expect("a path of ours");
    let output = plimsoll(&["simulate", path, "--set", "kernel=\"6.1.55\""]);
    let (out, said) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(out.contains(" CPUs), kernel 3.10 as 6.1, seed "), "{out}");
    assert!(out.contains(" CPUs), kernel 6.1.55 as 6.1, seed "), "{out}");
    assert_eq!(
        said,
        "note: kernel 3.10: not in the machine's model; simulated as 6.1\n"
    );
}

#[test]
fn two_scenarios_are_printed_with_a_description_each() {
    let path = temporary("other.toml");
    let other = "description = \"something else\"\nmachine = \"vm\"\nduration_ms = 1\n";
    std::fs::write(&path, other).expect("a scenario");
    let path = path.to_str().expect("a path of ours");
    let text = stdout(&["simulate", "limits.toml", "--compare", path]);
    let lines: Vec<&str> = text.lines().take(4).collect();
    assert!(
        lines[0].starts_with("limits: ") && lines[2].starts_with("other: "),
        "{text}"
    );
    assert_eq!(
        [lines[1], lines[3]],
        [
            "  a bursty thread and a spinner, each under a limit",
            "  something else"
        ]
    );
}

#[test]
fn the_help_names_every_example() {
    let help = stdout(&["simulate", "--help"]);
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let known: Vec<&str> = plimsoll_scenario::find::scenarios()
        .map(|(name, _)| name)
        .collect();
    let listed = help
        .split("the name of an example: ")
        .nth(1)
        .expect("the examples");
    for name in known {
        assert!(
            listed.contains(&format!(" {name}")) || listed.starts_with(name),
            "{name}"
        );
    }
}
