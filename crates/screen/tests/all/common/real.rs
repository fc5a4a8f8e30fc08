// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Real servers of metrics as processes of a test, over containers whose classes are known.
use super::{fleet, openmetrics, Made, BEGIN_MS};
use plimsoll_screen::prometheus::{fetch, Access, FetchError, FirstLook, Server, Wanted};
use plimsoll_screen::{Class, Options, Screening};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A process that ends with the test.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program below target that `make` puts there.
pub fn tool(path: &str, make: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../target")
        .join(path);
    assert!(
        path.exists(),
        "{} is missing; `make {make}` makes it",
        path.display()
    );
    path
}

pub fn debian(name: &str) -> PathBuf {
    tool(&format!("prometheus/usr/bin/{name}"), "prometheus")
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .expect("a port")
        .local_addr()
        .expect("bound")
        .port()
}

/// A Prometheus over these containers, on a port of its own, with its data in `folder`/data.
pub fn prometheus(folder: &Path, fleet: &[Made], external_labels: &str) -> (Running, u16) {
    let text = folder.join("metrics.txt");
    std::fs::write(&text, openmetrics(fleet)).expect("a file");
    let status = Command::new(debian("promtool"))
        .args(["tsdb", "create-blocks-from", "openmetrics"])
        .args([&text, &folder.join("data")])
        .stdout(Stdio::null())
        .status()
        .expect("promtool runs");
    assert!(status.success(), "promtool took the metrics");
    let port = free_port();
    let config = folder.join("prometheus.yml");
    std::fs::write(
        &config,
        format!("global: {{ external_labels: {{ {external_labels} }} }}"),
    )
    .expect("a file");
    let child = Command::new(debian("prometheus"))
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
        .args(["--storage.tsdb.retention.time=100y", "--log.level=error"])
        // Blocks stay as they are made, which a sidecar of Thanos wants.
        .args([
            "--storage.tsdb.min-block-duration=2h",
            "--storage.tsdb.max-block-duration=2h",
        ])
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .spawn()
        .expect("prometheus runs");
    (Running(child), port)
}

/// The answer with status 2xx to one request, or `None`.
pub fn http(port: u16, method: &str, path: &str, body: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let status = answer.split_whitespace().nth(1)?;
    status.starts_with('2').then_some(answer)
}

/// Asks every tenth of a second, for half a minute, until there is something.
pub fn until<T>(what: &str, ask: impl Fn() -> Option<T>) -> T {
    (0..300)
        .find_map(|_| {
            let found = ask();
            if found.is_none() {
                std::thread::sleep(Duration::from_millis(100));
            }
            found
        })
        .unwrap_or_else(|| panic!("half a minute without {what}"))
}

/// Of the pod `pod-I` the class is the one at I modulo 6.
pub const MADE_FOR: [Class; 6] = [
    Class::ThrottledByBursts,
    Class::TooSmall,
    Class::TooLarge,
    Class::Fine,
    Class::NoLimitFine,
    Class::NoLimitNeedsOne,
];

/// 300 containers of six kinds in seven namespaces.
pub fn three_hundred() -> Vec<Made> {
    let kinds = fleet();
    (0..300)
        .map(|i| {
            kinds[i % 6]
                .clone()
                .pod(&format!("team-{}", i % 7), &format!("pod-{i}"))
        })
        .collect()
}

/// The class that this pod was made for.
pub fn made_for(pod: &str) -> Class {
    let i: usize = pod["pod-".len()..].parse().expect("a number");
    MADE_FOR[i % 6]
}

/// All of their time, in several windows and batches.
pub fn screened(url: String, first_look: Option<FirstLook>) -> Result<Screening, FetchError> {
    let server = Server::new(Access {
        // It begins by reading its blocks.
        retries: 8,
        wait: Duration::from_millis(100),
        ..Access::new(url)
    })
    .expect("an address");
    let wanted = Wanted {
        end_ms: Some(BEGIN_MS + 12_000_000),
        samples_most: 40_000,
        first_look,
        ..Wanted::new(12_060_000)
    };
    fetch(&server, &wanted, &mut |_| ()).map(|found| found.finish(&Options::default()))
}
