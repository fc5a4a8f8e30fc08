// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tests of this crate, as one program: to link one for each file takes longer than it runs.
mod book;
mod common;
mod licences;
mod notice;
mod outputs;
mod plans;
mod screen;
mod simulate;
mod sweep;
mod sweep_plan;
mod sweep_replay;
mod tables;
mod traces;
