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

/// Does work in a thread of its own while other threads of Python run. A signal whose handler raises, as Ctrl-C's does, sets the
/// flag that the work is given; its exception comes out once the work has ended.
///
/// # Errors
/// What a signal's handler raised; [`PanicError`].
pub fn guarded<T: Send>(py: Python<'_>, work: impl FnOnce(&Arc<AtomicBool>) -> T + Send) -> PyResult<T> {
    py.detach(|| {
        std::thread::scope(|scope| {
            let cancel = Arc::new(AtomicBool::new(false));
            let flag = cancel.clone();
            let (sender, receiver) = sync_channel(1);
            scope.spawn(move || {
                let result = catch_unwind(AssertUnwindSafe(|| work(&flag)));
                // Who waits does so until it is there.
                let _ = sender.send(result);
            });
            loop {
                match receiver.recv_timeout(LOOK) {
                    Ok(Ok(value)) => return Ok(value),
                    Ok(Err(panic)) => return Err(PanicError::new_err(text(panic.as_ref()))),
                    Err(RecvTimeoutError::Timeout) => {
                        if let Err(raised) = Python::attach(|py| py.check_signals()) {
                            cancel.store(true, Ordering::Relaxed);
                            let _ = receiver.recv();
                            return Err(raised);
                        }
                    }
                    Err(RecvTimeoutError::Disconnected) => {
                        return Err(PanicError::new_err(
                            "the simulation's thread ended without a result",
                        ));
                    }
                }
            }
        })
    })
}

fn text(panic: &(dyn Any + Send)) -> String {
    let said = panic.downcast_ref::<String>().map(String::as_str);
    let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
    said.unwrap_or("a panic without words").to_string()
}
