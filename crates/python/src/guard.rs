// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Work outside of the interpreter.
use crate::error::PanicError;
use pyo3::prelude::*;
use std::any::Any;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{sync_channel, RecvTimeoutError};
use std::sync::Arc;
use std::time::Duration;

/// How soon Ctrl-C is noticed.
const LOOK: Duration = Duration::from_millis(50);
/// How long work may take to notice that it is cancelled: simulations look every millisecond, readers of traces
/// after each packet, line or 65,536 events.
const LEAVE: Duration = Duration::from_secs(1);

/// Does work in a thread of its own while other threads of Python run. A signal whose handler raises, as Ctrl-C's does, sets the
/// flag that the work is given; its exception comes out once the work has ended, or a second later: the rest is for nothing.
///
/// # Errors
/// What a signal's handler raised; [`PanicError`].
pub fn guarded<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&Arc<AtomicBool>) -> T + Send + 'static,
) -> PyResult<T> {
    let cancel = Arc::new(AtomicBool::new(false));
    let flag = cancel.clone();
    let (sender, receiver) = sync_channel(1);
    std::thread::spawn(move || {
        let result = catch_unwind(AssertUnwindSafe(|| work(&flag)));
        // The caller may have gone.
        let _ = sender.send(result);
    });
    py.detach(move || loop {
        match receiver.recv_timeout(LOOK) {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(panic)) => return Err(PanicError::new_err(text(panic.as_ref()))),
            Err(RecvTimeoutError::Timeout) => {
                if let Err(raised) = Python::attach(|py| py.check_signals()) {
                    cancel.store(true, Ordering::Relaxed);
                    let _ = receiver.recv_timeout(LEAVE);
                    return Err(raised);
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PanicError::new_err(
                    "the thread of the work ended without a result",
                ));
            }
        }
    })
}

fn text(panic: &(dyn Any + Send)) -> String {
    let said = panic.downcast_ref::<String>().map(String::as_str);
    let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
    said.unwrap_or("a panic without words").to_string()
}

/// On threads that are there for this alone: those that a process shares are not there in what it forks, and to wait for them
/// there is to wait for ever.
///
/// # Errors
/// No thread can be started.
pub fn on_all_cpus<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, String> {
    let pool = rayon::ThreadPoolBuilder::new().build();
    pool.map(|pool| pool.install(work))
        .map_err(|error| error.to_string())
}
