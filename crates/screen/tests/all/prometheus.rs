// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A real Prometheus and a real VictoriaMetrics, Debian's, with some hundred containers whose answers are known.
//! `make prometheus` unpacks both; then `cargo test -p plimsoll-screen --test all prometheus:: -- --ignored`.
use crate::common::real::{debian, free_port, http, made_for, screened, three_hundred, until, Running};
use crate::common::Made;
use std::path::Path;
use std::process::Command;

fn prometheus(folder: &Path, fleet: &[Made]) -> (Running, u16) {
    crate::common::real::prometheus(folder, fleet, "")
}

/// A VictoriaMetrics over these containers, on a port of its own.
fn victoria_metrics(folder: &Path, fleet: &[Made]) -> (Running, u16) {
    let port = free_port();
    let child = Command::new(debian("victoria-metrics"))
        .arg(format!("-storageDataPath={}", folder.join("victoria").display()))
        .args(["-retentionPeriod=100y", "-loggerLevel=ERROR"])
        .arg(format!("-httpListenAddr=127.0.0.1:{port}"))
        .spawn()
        .expect("victoria-metrics runs");
    let running = Running(child);
    // Its import counts time in milliseconds.
    let text: String = crate::common::openmetrics(fleet)
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (sample, at_s) = line.rsplit_once(' ').expect("a sample's time");
            let at_s: f64 = at_s.parse().expect("seconds");
            format!("{sample} {:.0}\n", at_s * 1e3)
        })
        .collect();
    until("its health", || http(port, "GET", "/health", ""));
    http(port, "POST", "/api/v1/import/prometheus", &text).expect("imported");
    // What has just come cannot be searched before it is flushed.
    http(port, "POST", "/internal/force_flush", "").expect("flushed");
    (running, port)
}

#[test]
#[ignore = "needs `make prometheus`"]
fn prometheus_gives_each_container_the_class_it_was_made_for() {
    each_container_gets_the_class_it_was_made_for(prometheus);
}

#[test]
#[ignore = "needs `make prometheus`"]
fn victoria_metrics_gives_each_container_the_class_it_was_made_for() {
    each_container_gets_the_class_it_was_made_for(victoria_metrics);
}

fn each_container_gets_the_class_it_was_made_for(begin: fn(&Path, &[Made]) -> (Running, u16)) {
    let folder = tempfile::tempdir().expect("a folder");
    let (_running, port) = begin(folder.path(), &three_hundred());
    let found = screened(format!("http://127.0.0.1:{port}"), None).expect("a server");
    assert_eq!(found.rows.len(), 300, "{:?}", found.warnings);
    for row in &found.rows {
        assert_eq!(row.class, made_for(&row.pod), "{}: {}", row.pod, row.reason);
        assert_eq!(row.samples, 400, "every sample of {} once", row.pod);
        assert_eq!(row.workload.kind, "StatefulSet");
    }
    assert!(
        found.faults == Default::default() && !found.incomplete,
        "{:?}",
        found.warnings
    );
}
