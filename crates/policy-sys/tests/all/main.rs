// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tests of this crate, as one program: to link one for each file takes longer than it runs.
mod common;
mod entity;
mod hierarchy;
mod invariants;
mod layout;
mod limits;
mod order;
mod reference;
mod shares;
mod wake;
