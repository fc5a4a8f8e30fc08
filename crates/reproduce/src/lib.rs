// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The published tables again, in the simulator: what was published, what is simulated, and how far apart they are.
//!
//! `published` reads the figures, `index` says which scenario makes which row, `run` simulates, `outcome` holds each row
//! against its published figure, `summary` adds them up into the targets. Printing is the command line's.
pub mod fit;
pub mod html;
pub mod index;
pub mod made;
pub mod measure;
pub mod outcome;
pub mod published;
pub mod run;
pub mod summary;
mod unmeasured;

pub use index::Index;
pub use made::Made;
pub use outcome::{Outcome, Verdict};
pub use published::Row;
pub use summary::{Summary, Target};
pub use unmeasured::shown;
