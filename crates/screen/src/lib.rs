// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which containers of a fleet have wrong CPU limits, from the metrics that it has already.
//!
//! Entry points: [`Collector`] takes what Prometheus answers ([`answer`] reads it), and
//! [`Collector::finish`] gives a [`Screening`]: one row for each container of each workload, with its class, the reason, and
//! what another limit or burst would do by the period model ([`Demand`]).
//!
//! Counters are read as they are: what is damaged (resets, NaN, series that come twice, clocks that go back) is left out and
//! counted, and a container of which too little is left has the class [`Class::Unknown`].
//!
//! Invariant: nothing is printed here, and a server is only asked with GET.
pub mod answer;
mod class;
mod clean;
mod collect;
mod digest;
mod document;
mod html;
pub mod input;
mod labels;
mod model;
mod openmetrics;
mod owners;
mod parquet;
mod patches;
pub mod prometheus;
mod queue;
mod rows;
mod table;

pub use class::{Advice, Class, Options};
pub use clean::Faults;
pub use collect::{Collector, Screening, Thin};
pub use digest::Digest;
pub use document::Screened;
pub use html::html;
pub use labels::{Container, Metric};
pub use model::{Change, Demand, Estimate};
pub use owners::Workload;
pub use patches::{patches, Left, Patch};
pub use table::{write_csv, write_parquet, Row};
