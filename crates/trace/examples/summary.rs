// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Says what a trace of any known format holds, and how far it can be trusted.
use plimsoll_trace::{Place, Timeline, DOUBTFUL_SHARE_MAX};

fn main() {
    let Some(path) = std::env::args_os().nth(1).map(std::path::PathBuf::from) else {
        eprintln!("usage: summary FILE");
        std::process::exit(2)
    };
    let (header, timeline) = match Timeline::open(&path) {
        Ok(read) => read,
        Err(error) => {
            eprintln!("error: {error}");
            std::process::exit(2)
        }
    };
    let bursts: usize = timeline.threads.iter().map(|t| t.bursts.len()).sum();
    println!(
        "source     {}, {:.3} s",
        header.source,
        (timeline.end_ns - timeline.start_ns) as f64 / 1e9
    );
    println!(
        "events     {} switches, {} threads, {bursts} bursts",
        timeline.quality.switches,
        timeline.threads.len()
    );
    for warning in &timeline.quality.warnings {
        println!("warning    {warning}");
    }
    if let Err(error) = timeline.quality.check(&Place::whole(&path), DOUBTFUL_SHARE_MAX) {
        eprintln!("error: {error}");
        std::process::exit(2)
    }
}
