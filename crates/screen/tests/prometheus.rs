// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A real Prometheus, Debian's, with some hundred containers whose answers are known. `make prometheus` unpacks it; then
//! `cargo test -p plimsoll-screen --test prometheus -- --ignored`.
mod common;
use common::{fleet, Made, BEGIN_MS};
use plimsoll_screen::prometheus::{fetch, Access, Server, Wanted};
use plimsoll_screen::{Class, Options};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn tool(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../target/prometheus/usr/bin")
        .join(name);
    assert!(
        path.exists(),
        "{} is missing; `make prometheus` unpacks it",
        path.display()
    );
    path
}

/// A Prometheus over these containers, on a port of its own.
fn prometheus(folder: &Path, fleet: &[Made]) -> (Running, String) {
    let text = folder.join("metrics.txt");
    std::fs::write(&text, common::openmetrics(fleet)).expect("a file");
    let status = Command::new(tool("promtool"))
        .args(["tsdb", "create-blocks-from", "openmetrics"])
        .args([&text, &folder.join("data")])
        .stdout(Stdio::null())
        .status()
        .expect("promtool runs");
    assert!(status.success(), "promtool took the metrics");
    let port = TcpListener::bind("127.0.0.1:0")
        .expect("a port")
        .local_addr()
        .expect("bound")
        .port();
    std::fs::write(folder.join("prometheus.yml"), "").expect("a file");
    let child = Command::new(tool("prometheus"))
        .arg(format!(
            "--config.file={}",
            folder.join("prometheus.yml").display()
        ))
        .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
        .args(["--storage.tsdb.retention.time=100y", "--log.level=error"])
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .spawn()
        .expect("prometheus runs");
    (Running(child), format!("http://127.0.0.1:{port}"))
}

#[test]
#[ignore = "needs `make prometheus`"]
fn each_of_some_hundred_containers_gets_the_class_it_was_made_for() {
    let wanted_class = [
        Class::ThrottledByBursts,
        Class::TooSmall,
        Class::TooLarge,
        Class::Fine,
        Class::NoLimitFine,
        Class::NoLimitNeedsOne,
    ];
    let kinds = fleet();
    let all: Vec<Made> = (0..300)
        .map(|i| {
            kinds[i % 6]
                .clone()
                .pod(&format!("team-{}", i % 7), &format!("pod-{i}"))
        })
        .collect();
    let folder = tempfile::tempdir().expect("a folder");
    let (_running, url) = prometheus(folder.path(), &all);
    // It begins by reading its blocks.
    let server = Server::new(Access {
        retries: 8,
        wait: Duration::from_millis(100),
        ..Access::new(url)
    })
    .expect("an address");
    let wanted = Wanted {
        end_ms: Some(BEGIN_MS + 12_000_000),
        // So that there are several windows and batches.
        samples_most: 40_000,
        ..Wanted::new(12_060_000)
    };
    let found = fetch(&server, &wanted, &mut |_| ())
        .expect("a server")
        .finish(&Options::default());
    assert_eq!(found.rows.len(), 300, "{:?}", found.warnings);
    for row in &found.rows {
        let i: usize = row.pod["pod-".len()..].parse().expect("a number");
        assert_eq!(row.class, wanted_class[i % 6], "{}: {}", row.pod, row.reason);
        assert_eq!(row.samples, 400, "every sample of {} once", row.pod);
        assert_eq!(row.workload.kind, "StatefulSet");
    }
    assert!(
        found.faults == Default::default() && !found.incomplete,
        "{:?}",
        found.warnings
    );
}
