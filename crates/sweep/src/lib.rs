// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many runs of one scenario, or many replays of recordings or plans from them: a grid or a random sample over values and seeds.
//!
//! A point is a pure function of the scenario or recordings, the values, the seed and the version. Its row is kept under a key made
//! of these ([`Content`]), so a folder of rows can be filled by any machine, in any order, as often as wanted: what is
//! there is not run again, and what is merged has the same bytes on every machine.
//!
//! Entry points: [`Simulations::new`] with [`Sweep::load`], or [`Replays::load`] or [`Plans::load`]; [`Store::open`], [`run`], [`merge`], [`summary`], [`html`].
mod document;
mod grid;
mod html;
mod key;
mod merge;
mod planned;
mod plans;
mod points;
mod replays;
mod row;
mod run;
mod shard;
mod shelf;
mod simulations;
mod spec;
mod store;
mod summary;

pub use document::Swept;
pub use grid::{Combination, Grid, Setting, POINTS_MAX};
pub use html::{figure, html};
pub use key::Content;
pub use merge::{merge, Merged};
pub use planned::{candidate, planned, verdict};
pub use plans::Plans;
pub use plimsoll_columns::{Cell, Column, Columns, Kind, Row, TableError};
pub use points::{Points, Runner};
pub use replays::Replays;
pub use row::{fields, simulate};
pub use run::{run, Done, RunError};
pub use shard::Shard;
pub use shelf::RecordingsError;
pub use simulations::Simulations;
pub use spec::Sweep;
pub use store::{Store, StoreError};
pub use summary::{summary, Measure, Quantiles, Summary, SummaryError};
