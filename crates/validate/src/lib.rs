// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Simulated against measured: runs of the bandwidth probe on real kernels, rebuilt row by row.
//!
//! `measured` reads the file, `rebuild` makes a simulated run of a row's parameters, `compare` says how close it came.
//!
//! Invariant: nothing here looks at a row's label or its measured values to build its run.
pub mod compare;
pub mod measured;
pub mod rebuild;

pub use compare::{compare, Column, Figure, Tolerance, Verdict};
pub use measured::{read, Measured, Row};
pub use rebuild::{Model, Scheduler, Simulated};
