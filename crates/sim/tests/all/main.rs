// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tests of this crate, as one program: to link one for each file takes longer than it runs.
mod bandwidth;
mod changes;
mod common;
mod concur;
mod eevdf;
mod forks;
mod fuzzed;
mod headroom;
mod idle_work;
mod library;
mod measured;
mod steal;
mod wake;
mod weights;
