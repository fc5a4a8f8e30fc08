// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recorded traces, and what the program says of them.
use super::{plimsoll_in, temporary, temporary_folder};
use plimsoll_trace::example;
use plimsoll_trace::{Event, Header};
use std::path::PathBuf;
use std::process::Output;

pub fn plimsoll(args: &[&str]) -> Output {
    plimsoll_in(&temporary_folder(), args)
}

/// One that was written.
pub fn file(name: &str) -> PathBuf {
    temporary_folder().join(name)
}

pub fn trace(name: &str, (header, events): &(Header, Vec<Event>)) -> String {
    example::write(&temporary(name), header, events).expect("the trace can be written");
    name.into()
}

pub fn good(name: &str) -> String {
    trace(name, &example::open_loop(300))
}

/// Runs it; the exit code has to be `code`. Returns the standard output and the standard error.
pub fn run(args: &[&str], code: i32) -> (String, String) {
    let output = plimsoll(args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{args:?}\n{out}\n{err}");
    (out, err)
}

/// Both commands that conclude something from a trace refuse it, with these words, and print nothing else.
pub fn refused(trace: &str, words: &[&str]) {
    let goal = "p99(request) < 20ms";
    for args in [
        &["plan", trace, "--goal", goal][..],
        &["simulate", "--replay", trace][..],
    ] {
        let (out, err) = run(args, 2);
        assert!(out.is_empty(), "{args:?} printed results: {out}");
        for word in words {
            assert!(err.contains(word), "{args:?}: {word:?} is not in: {err}");
        }
    }
}

/// No latency can be told: a goal for one is refused with these words, a replay says them and shows the rest.
pub fn shows_no_latency(trace: &str, words: &[&str]) {
    let (out, err) = run(&["plan", trace, "--goal", "p99(request) < 20ms"], 2);
    assert!(out.is_empty(), "{out}");
    let (shown, _) = run(&["simulate", "--replay", trace], 0);
    assert!(shown.contains("CPU use") && !shown.contains("latency"), "{shown}");
    for word in words {
        assert!(
            err.contains(word) && shown.contains(word),
            "{word:?} is not in both: {err}{shown}"
        );
    }
}
