// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Getting a CPU at once, for the moments in which no thread should wait for the recorder.
//!
//! Loading and attaching take a tenth of a second of CPU time. Beside forty tasks that spin, a thread of the same rank
//! takes seconds for it.

/// While it lives, this thread runs before all that is not real-time; afterwards as before. Without the privilege nothing
/// changes.
pub struct Urgent {
    before: Option<(libc::c_int, libc::sched_param)>,
}

impl Urgent {
    pub fn begin() -> Urgent {
        // Anything real-time comes first. What this thread might start does not inherit it.
        let urgent = libc::sched_param { sched_priority: 1 };
        let mut param = libc::sched_param { sched_priority: 0 };
        // SAFETY: plain system calls on this thread; `param` is written before it is read.
        let before = unsafe {
            let policy = libc::sched_getscheduler(0);
            (policy >= 0
                && libc::sched_getparam(0, &mut param) == 0
                && libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &urgent) == 0)
                .then_some((policy, param))
        };
        Urgent { before }
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        if let Some((policy, param)) = self.before {
            // SAFETY: a plain system call on this thread. Clearing the flag takes a privilege that may be gone by now.
            unsafe {
                if libc::sched_setscheduler(0, policy, &param) != 0 {
                    libc::sched_setscheduler(0, policy | libc::SCHED_RESET_ON_FORK, &param);
                }
            }
        }
    }
}

/// A reader that waits for a CPU while the ring buffer fills up loses events, and the trace is waited for when recording
/// has ended. Until this thread ends; without the privilege it stays as it is.
pub fn be_prompt() {
    // SAFETY: plain system call on this thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_urgent_for_a_while_and_then_what_it_was() {
        let policy = || unsafe { libc::sched_getscheduler(0) };
        let before = policy();
        let urgent = Urgent::begin();
        if urgent.before.is_some() {
            assert_eq!(policy(), libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK);
        }
        drop(urgent);
        assert_eq!(policy(), before);
    }
}
