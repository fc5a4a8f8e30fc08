// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plans, as those who use the library see them.
mod needs;
mod others;
mod recommends;
mod recordings;
mod refused;
mod service;
