// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes a trace of a known size, to measure how fast traces are read, replayed and planned with
//! (`bench/replay-speed.sh`): eight clients on CPU 0 sleep for a while, then each asks the worker of its own in /web on
//! CPU 1 and waits for the answer.
//!
//! `busy FILE [SWITCHES] [SECONDS]`, 1000000 and 30 by default. The same arguments give the same file.
use plimsoll_trace::example::{header, switch, waking, write};
use plimsoll_trace::{Context, State};

const PAIRS: u64 = 8;
/// In a request a client comes and goes twice, its worker once.
const SWITCHES_PER_REQUEST: u64 = 6;

fn main() {
    let mut args = std::env::args().skip(1);
    let Some(path) = args.next() else {
        eprintln!("usage: busy FILE [SWITCHES] [SECONDS]");
        std::process::exit(2)
    };
    let mut number = |default: u64| match args.next().map(|text| (text.parse(), text)) {
        None => default,
        Some((Ok(number), _)) if number > 0 => number,
        Some((_, text)) => {
            eprintln!("{text:?} is not a number above 0; usage: busy FILE [SWITCHES] [SECONDS]");
            std::process::exit(2)
        }
    };
    let requests = number(1_000_000).div_ceil(SWITCHES_PER_REQUEST);
    let length_ns = number(30) * 1_000_000_000;
    let round_ns = (length_ns / requests) as i64;
    if round_ns < 10_000 {
        eprintln!("more than 600000 switches a second are not possible on two CPUs");
        std::process::exit(2)
    }
    let names: Vec<(u32, String, u32)> = (0..PAIRS as u32)
        .flat_map(|pair| {
            [
                (10 + pair, "client".to_string(), 0),
                (20 + pair, "worker".to_string(), 1),
            ]
        })
        .collect();
    let threads: Vec<_> = names
        .iter()
        .map(|(tid, name, group)| (*tid, name.as_str(), *group))
        .collect();
    let mut events = Vec::with_capacity((requests * 9) as usize);
    for request in 0..requests {
        let (client, worker) = (10 + (request % PAIRS) as u32, 20 + (request % PAIRS) as u32);
        // A tenth of a round for each piece of the client's work, three to six tenths for the worker's, in an order
        // without a pattern that a period could meet.
        let tenth = round_ns / 10;
        let asked = request as i64 * round_ns + tenth;
        let work = 3 * tenth + 3 * tenth * (request * 7919 % 1009) as i64 / 1009;
        let answered = asked + tenth + work;
        events.extend([
            waking(asked - tenth / 2, 0, client, 0, Context::Timer),
            switch(asked - tenth / 2 + 1, 0, 0, State::Runnable, client),
            waking(asked + tenth, 0, worker, client, Context::Task),
            switch(asked + tenth + 1, 0, client, State::Sleeping, 0),
            switch(asked + tenth + 2, 1, 0, State::Runnable, worker),
            waking(answered, 1, client, worker, Context::Task),
            switch(answered + 1, 1, worker, State::Sleeping, 0),
            switch(answered + 2, 0, 0, State::Runnable, client),
            switch(answered + tenth, 0, client, State::Sleeping, 0),
        ]);
    }
    if let Err(error) = write(path.as_ref(), &header(length_ns as i64, &threads), &events) {
        eprintln!("error: {error}");
        std::process::exit(2)
    }
}
