// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One file for each subcommand: its flags and what it does.
pub mod agent;
pub mod calibrate;
pub mod completions;
pub mod demo;
pub mod explain;
pub mod get;
pub mod man;
pub mod plan;
pub mod record;
mod record_requests;
pub mod replay;
pub mod reproduce;
pub mod run;
pub mod schema;
pub mod screen;
pub mod set;
pub mod simulate;
pub mod status;
pub mod sweep;
pub mod top;
pub mod validate;
pub mod vm;
