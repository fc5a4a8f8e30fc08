// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tests of this crate, as one program: to link one for each file takes longer than it runs.
mod classes;
mod common;
mod inputs;
mod outputs;
mod prometheus;
mod server;
mod thanos;
mod tls;
