// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How far a recording is, for a caller that waits for it.

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stage {
    /// Everything is attached: what happens from now on is recorded.
    Begins,
    /// The share of its time that has passed, 0 to 1.
    Recorded(f64),
    /// It has ended; what was recorded is being sorted and written. The share of its events that are, 0 to 1.
    Writing(f64),
}
