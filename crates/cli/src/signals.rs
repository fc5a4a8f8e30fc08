// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Signals that end a command: Ctrl-C, Ctrl-\, `kill`, and the end of the session that it was started in.
use crate::exit::Failure;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Once};

/// A flag that is set when one of them comes: for a command that has something to bring to its end.
pub fn stop() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut signals = vec![SIGINT, SIGTERM];
    // Under nohup it is to go on.
    signals.extend((!is_ignored(SIGHUP)).then_some(SIGHUP));
    for signal in signals {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|error| Failure::Machine(format!("cannot handle signal {signal}: {error}")))?;
    }
    // Ctrl-\ is for a command that does not end: at once.
    end_without_partials(&[SIGQUIT]);
    Ok(stop)
}

/// A write beyond the largest file allowed (`ulimit -f`) fails like one to a full disk, and does not end the process.
/// With a handler, since programs that we start do not inherit it. Best effort.
pub fn let_writes_fail() {
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
}

/// From now on they take half-written files away before they end the process. Best effort.
pub fn leave_no_partials() {
    static BEGIN: Once = Once::new();
    BEGIN.call_once(|| end_without_partials(&[SIGINT, SIGTERM, SIGHUP, SIGQUIT]));
}

fn end_without_partials(signals: &[i32]) {
    let Ok(mut signals) = Signals::new(signals.iter().filter(|signal| !is_ignored(**signal))) else {
        return;
    };
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            plimsoll_trace::remove_unfinished(|| drop(emulate_default_handler(signal)));
        }
    });
}

/// Whether the process that started this command wants it to live through a signal.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}
