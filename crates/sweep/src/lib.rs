// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many runs of one scenario: a grid or a random sample over its values and seeds.
//!
//! A point is a pure function of the scenario with its values, the seed and the version. Its row is kept under a key made
//! of these ([`Content`]), so a folder of rows can be filled by anybody, in any order, as often as wanted: what is there is not
//! run again, and what is merged has the same bytes on every machine.
//!
//! Entry points: [`Sweep::load`], [`Plan::new`], [`Store::open`], [`run`], [`merge`], [`summary`], [`html`].
mod html;
mod key;
mod merge;
mod plan;
mod planned;
mod row;
mod run;
mod shard;
mod spec;
mod store;
mod summary;

pub use html::{figure, html};
pub use key::Content;
pub use merge::{merge, Merged};
pub use plan::Plan;
pub use planned::{candidate, planned};
pub use plimsoll_columns::{Cell, Column, Columns, Kind, Row, TableError};
pub use row::{fields, simulate};
pub use run::{run, Done, RunError};
pub use shard::Shard;
pub use spec::{Combination, Setting, Sweep, POINTS_MAX};
pub use store::{Store, StoreError};
pub use summary::{summary, Measure, Quantiles, Summary, SummaryError};
