// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A server with the HTTP API of Prometheus (Prometheus, VictoriaMetrics, Thanos, Mimir): asked with GET only, in pieces
//! whose size is bounded.
mod client;
mod fetch;
mod query;

pub use client::{Access, FetchError, Server};
pub use fetch::{fetch, FirstLook, Progress, Wanted};
