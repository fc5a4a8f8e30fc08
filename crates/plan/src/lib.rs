// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a recorded trace and a goal to the cheapest limits that meet it.
//!
//! Entry points: [`Recordings::read`] one trace or several of the same service, [`Goal`]s from text, [`plan`]. No clock,
//! no environment: the same trace, goals and seed give the same plan on any number of threads.
mod candidates;
mod choice;
mod columns;
mod confidence;
pub mod document;
mod enough;
mod excerpt;
mod explain;
mod figure;
mod goal;
mod html;
mod kubernetes;
mod others;
mod paste;
mod quantities;
mod question;
mod recordings;
mod replayed;
mod replicates;
mod resample;
mod runtimes;
mod search;
mod source;
mod target;
mod variation;

pub use candidates::Knobs;
pub use columns::{goal_cells, goal_titles, latency_cell, range_cell};
pub use confidence::Range;
pub use enough::TooFewRequests;
pub use excerpt::SEARCHED;
pub use explain::{explain, Explanation, Instead};
pub use figure::figure;
pub use goal::{Comparison, Goal, GoalError, Subject};
pub use html::html;
pub use others::WaitingForOthers;
pub use paste::{paste, Paste};
pub use quantities::{measure, self_check, Check, SelfCheck};
pub use question::{said_of_held, Answer, Question, Warnings, MAX_CPUS, MIN_THROUGHPUT_PERCENT, REPLICATES};
pub use recordings::{Case, Recordings};
pub use replayed::{Figures, Replayed};
pub use replicates::Replicates;
pub use runtimes::said_of_runtimes;
pub use search::{plan, Candidate, Limits, Options, Other, Plan, PlanError, Verdict};
pub use source::{NoRequests, Source, SourceError};
pub use target::Target;
pub use variation::{SeenIn, Variation, DRIFT, ONE};
