// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A real Thanos over two replicas of Prometheus: sidecars that serve the newest samples and upload blocks, a store gateway
//! that serves all of these, and queriers before them.
//! `make prometheus thanos` makes the programs; then `cargo test -p plimsoll-screen --test all thanos:: -- --ignored`.
use crate::common::real::{
    free_port, http, made_for, prometheus, screened, three_hundred, tool, until, Running,
};
use crate::common::{Made, BEGIN_MS};
use plimsoll_screen::prometheus::{FetchError, FirstLook};
use plimsoll_screen::{Class, Options, Screening};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Blocks are cut here, 6,400 s after the beginning, and sidecars serve what is newer.
const CUT: &str = "2023-11-15T00:00:00Z";
const SAMPLES: u64 = 400;

/// One component of Thanos, when it says that it is ready. `port`: of gRPC.
fn component(name: &str, port: u16, arguments: &[String]) -> (Running, u16) {
    let http_port = free_port();
    let child = Command::new(tool("thanos/thanos", "thanos"))
        .args([name, "--log.level=error"])
        .arg(format!("--grpc-address=127.0.0.1:{port}"))
        .arg(format!("--http-address=127.0.0.1:{http_port}"))
        .args(arguments)
        // A querier says at length that a store is away.
        .stderr(if name == "query" {
            Stdio::null()
        } else {
            Stdio::inherit()
        })
        .spawn()
        .expect("thanos runs");
    let running = Running(child);
    until(name, || http(http_port, "GET", "/-/ready", ""));
    (running, http_port)
}

struct Thanos {
    folder: tempfile::TempDir,
    /// Ports of gRPC.
    sidecars: Vec<u16>,
    store: u16,
    gateway: Option<Running>,
    _others: Vec<Running>,
}

impl Thanos {
    fn new() -> Thanos {
        let folder = tempfile::tempdir().expect("a folder");
        let bucket = folder.path().join("bucket");
        let objects = format!(
            "--objstore.config={{ type: FILESYSTEM, config: {{ directory: {} }} }}",
            bucket.display()
        );
        let (mut sidecars, mut others) = (Vec::new(), Vec::new());
        for (replica, fleet) in replicas() {
            let own = folder.path().join(replica);
            std::fs::create_dir(&own).expect("a folder");
            let (running, port) = prometheus(&own, &fleet, &format!("cluster: one, replica: {replica}"));
            until("Prometheus", || http(port, "GET", "/-/ready", ""));
            let grpc = free_port();
            let arguments = [
                format!("--prometheus.url=http://127.0.0.1:{port}"),
                format!("--tsdb.path={}", own.join("data").display()),
                format!("--min-time={CUT}"),
                objects.clone(),
            ];
            others.extend([running, component("sidecar", grpc, &arguments).0]);
            sidecars.push(grpc);
        }
        until("four blocks in the bucket", || {
            (blocks(&bucket) == 4).then_some(())
        });
        let store = free_port();
        let cache = format!("--data-dir={}", folder.path().join("cache").display());
        let (gateway, _) = component("store", store, &[cache, objects]);
        Thanos {
            folder,
            sidecars,
            store,
            gateway: Some(gateway),
            _others: others,
        }
    }

    /// A querier, which asks the store gateway whether it is there or not, and its address.
    fn querier(&self, name: &str, flags: &[&str]) -> (Running, String) {
        let endpoint = |port: &u16, strict| format!("{{ address: '127.0.0.1:{port}', strict: {strict} }}");
        let sidecars = self.sidecars.iter().map(|port| endpoint(port, false));
        let all: Vec<String> = sidecars.chain([endpoint(&self.store, true)]).collect();
        let config: PathBuf = self.folder.path().join(format!("{name}.yml"));
        std::fs::write(&config, format!("endpoints: [ {} ]", all.join(", "))).expect("a file");
        let mut arguments = vec![format!("--endpoint.sd-config-file={}", config.display())];
        arguments.extend(flags.iter().map(|flag| flag.to_string()));
        let (running, port) = component("query", free_port(), &arguments);
        until("the sidecars", || {
            let stores = http(port, "GET", "/api/v1/stores", "")?;
            let found = self
                .sidecars
                .iter()
                .all(|port| stores.contains(&port.to_string()));
            found.then_some(())
        });
        (running, format!("http://127.0.0.1:{port}"))
    }
}

/// Two that scrape the same containers at times of their own; the first was away for 20 minutes.
fn replicas() -> [(&'static str, Vec<Made>); 2] {
    let away = BEGIN_MS + 3_000_000..BEGIN_MS + 4_200_000;
    let one = three_hundred().into_iter().map(|made| made.without(&away));
    let two = three_hundred().into_iter().map(|made| made.scraped_later(7_000));
    [("a", one.collect()), ("b", two.collect())]
}

/// Those that were uploaded whole: this file comes last.
fn blocks(bucket: &Path) -> usize {
    let entries = std::fs::read_dir(bucket).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.path().join("meta.json").exists())
        .count()
}

/// The right class, and each period and second of use once.
fn is_right(found: &Screening) {
    assert_eq!(found.rows.len(), 300, "{:?}", found.warnings);
    let one_of_each: Vec<String> = three_hundred()[..6].iter().map(Made::json).collect();
    let right = crate::common::screen(&one_of_each);
    for row in &found.rows {
        assert_eq!(row.class, made_for(&row.pod), "{}: {}", row.pod, row.reason);
        assert_eq!(row.workload.kind, "StatefulSet");
        assert_eq!(row.pods, 1);
        let like = right
            .rows
            .iter()
            .find(|like| like.class == row.class)
            .expect("one");
        let near = |a: f64, b: f64| (a - b).abs() <= 0.02 * b;
        assert!(
            near(row.used, like.used) && near(row.periods, like.periods),
            "{}: {} CPUs, {} periods; {}, {}",
            row.pod,
            row.used,
            row.periods,
            like.used,
            like.periods
        );
    }
}

#[test]
#[ignore = "needs `make prometheus thanos`"]
fn thanos_doubles_nothing_and_says_when_a_store_is_away() {
    let mut thanos = Thanos::new();
    let (_one, deduplicated) = thanos.querier("one", &["--query.replica-label=replica"]);
    let (_two, both) = thanos.querier("two", &[]);
    let (_three, whole_or_none) = thanos.querier(
        "three",
        &["--query.replica-label=replica", "--no-query.partial-response"],
    );

    let found = screened(deduplicated.clone(), None).expect("a server");
    is_right(&found);
    // Where Thanos goes from one replica to the other, within a window or between two, there are some samples less or more.
    for row in &found.rows {
        assert!(row.samples.abs_diff(SAMPLES) < 20, "{} samples", row.samples);
    }
    assert!(
        found.faults == Default::default() && !found.incomplete,
        "{:?}",
        found.warnings
    );

    let some = FirstLook {
        looks: 50,
        ..FirstLook::new(Options::default())
    };
    let look = screened(deduplicated.clone(), Some(some)).expect("a server");
    is_right(&look);
    assert!(
        look.rows.iter().any(|row| row.one_in > 1.0),
        "it was one of some samples"
    );
    assert!(!look.incomplete, "{:?}", look.warnings);

    // Without a label of replicas all series come twice.
    let twice = screened(both, None).expect("a server");
    is_right(&twice);
    assert!(twice.faults.duplicates > 0, "that they come twice is said");

    drop(thanos.gateway.take());
    let found = screened(deduplicated, None).expect("the sidecars are there");
    let said = found.warnings.join("\n");
    let store = format!("127.0.0.1:{}", thanos.store);
    assert!(found.incomplete && said.contains(&store), "{said}");
    assert_eq!(found.rows.len(), 300);
    for row in &found.rows {
        assert!(
            row.class == made_for(&row.pod) || row.class == Class::Unknown,
            "{}: {}",
            row.pod,
            row.reason
        );
        assert!(
            row.samples < SAMPLES / 2 && row.samples > 0,
            "the older half is away"
        );
    }
    // Limits and requests were answered in part: that one has none is not known.
    assert_eq!(found.count(Class::Unknown), 100);

    let error = screened(whole_or_none, None).expect_err("not whole");
    assert!(
        matches!(&error, FetchError::Failed(text) if text.contains(&store)),
        "{error}"
    );
}
