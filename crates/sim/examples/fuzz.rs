// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `make fuzz`: random machines, groups, tasks and changes, against invariants that hold for every one of them.
//!
//! Arguments: the number of seeds, then the first one. A failure prints the seed; `fuzz 1 SEED` repeats it alone.
// It runs the simulator and is not a part of it.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros
)]
use rayon::prelude::*;
use std::cell::Cell;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

#[path = "../tests/fuzz/mod.rs"]
mod fuzz;

thread_local! {
    static SEED: Cell<u64> = const { Cell::new(0) };
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).map(|a| a.parse::<u64>());
    let (seeds, first) = match (arguments.next(), arguments.next()) {
        (None, _) => (10_000, 1),
        (Some(Ok(seeds)), None) => (seeds, 1),
        (Some(Ok(seeds)), Some(Ok(first))) => (seeds, first),
        _ => {
            eprintln!("usage: fuzz [SEEDS [FIRST]], both whole numbers");
            return ExitCode::from(2);
        }
    };
    // An invariant that breaks inside the engine panics: its seed must not get lost.
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("seed {0}: {panic}\nrepeat it with: fuzz 1 {0}", SEED.get());
    }));
    let events = AtomicU64::new(0);
    let mut failures: Vec<(u64, String)> = (first..first + seeds)
        .into_par_iter()
        .filter_map(|seed| {
            SEED.set(seed);
            match fuzz::one(seed) {
                Ok(n) => {
                    events.fetch_add(n, Ordering::Relaxed);
                    None
                }
                Err(broken) => Some((seed, broken)),
            }
        })
        .collect();
    failures.sort();
    println!(
        "{seeds} seeds from {first}: {} failed, {} scheduling events",
        failures.len(),
        events.load(Ordering::Relaxed)
    );
    for (seed, broken) in failures.iter().take(10) {
        println!("seed {seed}: {broken}");
    }
    ExitCode::from(u8::from(!failures.is_empty()))
}
