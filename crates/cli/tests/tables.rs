//! What simulate's tables claim about a run holds for that run.
mod common;
use common::{stdout, temporary};

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
