// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records a load on the kernel at hand.
#![allow(dead_code)] // each test file uses its part

use plimsoll_record::{record, Options, RecordError, Report};
use plimsoll_trace::{Header, RequestSpec, Timeline};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// Says why a test could not be made here. Not by the macros that print: what a test prints that passes is not shown.
macro_rules! skipped {
    ($($why:tt)*) => {{
        let _ = writeln!(std::io::stderr(), "skipped, nothing was tested: {}", format_args!($($why)*));
    }};
}

pub mod seen;

/// Records while `load` runs; `None`, with a word why, where the machine cannot.
pub fn recorded(
    request: Option<RequestSpec>,
    cgroup: Option<String>,
    load: impl FnOnce() + Send + 'static,
) -> Option<(Report, Header, Timeline)> {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("t.parquet");
    let report = record_into(&output, request, cgroup, load)?;
    let (header, timeline) = read(&output);
    Some((report, header, timeline))
}

pub fn record_into(
    output: &Path,
    request: Option<RequestSpec>,
    cgroup: Option<String>,
    load: impl FnOnce() + Send + 'static,
) -> Option<Report> {
    let options = Options {
        cgroup,
        duration: Duration::from_secs(60),
        output: output.to_path_buf(),
        request,
        ring_bytes: 16 << 20,
    };
    let mut load = Some(load);
    let mut running: Option<std::thread::JoinHandle<()>> = None;
    let stopped = move || match &running {
        // The first question comes when everything is attached.
        None => {
            running = load.take().map(std::thread::spawn);
            false
        }
        Some(thread) => thread.is_finished(),
    };
    match record(&options, stopped, |_| ()) {
        Ok(report) => Some(report),
        Err(RecordError::Unsupported { what, missing }) => {
            skipped!("{what} is not possible here: {missing}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

pub fn read(path: &Path) -> (Header, Timeline) {
    Timeline::open(path).unwrap()
}

/// Runs `body` in a thread that is named from its first instruction on.
pub fn named(comm: &str, body: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
    std::thread::Builder::new().name(comm.into()).spawn(body).unwrap()
}

/// A group of its own below the cpu controller's root, removed at the end.
pub struct TestGroup(pub std::path::PathBuf, pub String);

impl TestGroup {
    pub fn new(name: &str) -> Option<TestGroup> {
        let hierarchy = plimsoll_record::cgroup::Hierarchy::find().ok()?;
        let dir = hierarchy.mount.join(name);
        match std::fs::create_dir(&dir) {
            Ok(()) => Some(TestGroup(dir, name.into())),
            // Two tests of one name, one of which would test nothing.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => panic!("{name}: {error}"),
            Err(error) => {
                skipped!("no cgroup can be made here: {}: {error}", dir.display());
                None
            }
        }
    }
}

impl Drop for TestGroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}
