// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A real Prometheus and a real VictoriaMetrics, Debian's, with some hundred containers whose answers are known.
//! `make prometheus` unpacks both; then `cargo test -p plimsoll-screen --test prometheus -- --ignored`.
mod common;
use common::{fleet, Made, BEGIN_MS};
use plimsoll_screen::prometheus::{fetch, Access, Server, Wanted};
use plimsoll_screen::{Class, Options};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
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

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .expect("a port")
        .local_addr()
        .expect("bound")
        .port()
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
    let port = free_port();
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

/// A VictoriaMetrics over these containers, on a port of its own.
fn victoria_metrics(folder: &Path, fleet: &[Made]) -> (Running, String) {
    let port = free_port();
    let child = Command::new(tool("victoria-metrics"))
        .arg(format!("-storageDataPath={}", folder.join("victoria").display()))
        .args(["-retentionPeriod=100y", "-loggerLevel=ERROR"])
        .arg(format!("-httpListenAddr=127.0.0.1:{port}"))
        .spawn()
        .expect("victoria-metrics runs");
    let running = Running(child);
    // Its import counts time in milliseconds.
    let text: String = common::openmetrics(fleet)
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (sample, at_s) = line.rsplit_once(' ').expect("a sample's time");
            let at_s: f64 = at_s.parse().expect("seconds");
            format!("{sample} {:.0}\n", at_s * 1e3)
        })
        .collect();
    post(port, "/api/v1/import/prometheus", &text);
    // What has just come cannot be searched before it is flushed.
    post(port, "/internal/force_flush", "");
    (running, format!("http://127.0.0.1:{port}"))
}

/// Waits up to ten seconds for the server to listen.
fn post(port: u16, path: &str, body: &str) {
    let mut stream = (0..100)
        .find_map(|_| {
            TcpStream::connect(("127.0.0.1", port))
                .map_err(|_| std::thread::sleep(Duration::from_millis(100)))
                .ok()
        })
        .expect("it listens");
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let status = answer.split_whitespace().nth(1).expect("a status");
    assert!(status.starts_with('2'), "{path}: {answer}");
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

fn each_container_gets_the_class_it_was_made_for(begin: fn(&Path, &[Made]) -> (Running, String)) {
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
    let (_running, url) = begin(folder.path(), &all);
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
