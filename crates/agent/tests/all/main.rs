// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tests of this crate, as one program: to link one for each file takes longer than it runs.
mod cri;
mod crowded;
mod histories;
mod made_up;
mod nri;
mod pods;
