// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tests of this crate, as one program: to link one for each file takes longer than it runs.
mod all_work;
mod charged;
mod clients;
mod common;
mod loops;
mod machine;
mod modules;
mod phase;
mod piled_up;
mod pools;
mod replay;
mod rivals;
mod set_off;
mod sockets;
mod wake_ups;
