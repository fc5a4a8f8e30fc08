// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A recording or a file of any format that is imported: it is read or refused, in whole and row group by row group alike.
#![no_main]
use libfuzzer_sys::fuzz_target;
use plimsoll_trace::{Place, Timeline, Trace, DOUBTFUL_SHARE_MAX};
use std::path::PathBuf;
use std::sync::OnceLock;

/// One file for each process, in memory where there is such a place.
fn path() -> &'static PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let memory = PathBuf::from("/dev/shm");
        let dir = if memory.is_dir() {
            memory
        } else {
            std::env::temp_dir()
        };
        dir.join(format!("plimsoll-fuzz-trace-{}", std::process::id()))
    })
}

fuzz_target!(|data: &[u8]| {
    // perf itself reads those.
    if data.starts_with(b"PERFILE2") || data.starts_with(b"2ELIFREP") {
        return;
    }
    std::fs::write(path(), data).expect("a file can be written");
    match (Trace::read(path()), Timeline::open(path())) {
        (Ok(trace), Ok((header, timeline))) => {
            assert_eq!(trace.header, header);
            assert!(trace.events.windows(2).all(|two| two[0].ts_ns <= two[1].ts_ns));
            let _ = timeline.quality.check(&Place::whole(path()), DOUBTFUL_SHARE_MAX);
        }
        (Err(_), Err(_)) => {}
        (one, other) => panic!("read once and refused once: {:?} {:?}", one.err(), other.err()),
    }
});
