// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The live scheduler's settings, knobs as they are written, and both sides of the control socket.
#![no_main]
use libfuzzer_sys::fuzz_target;
use plimsoll_live::{Config, Knob, Request, Status};
use std::path::Path;

fuzz_target!(|text: &str| {
    let _ = Config::read(Path::new("plimsoll.toml"), text);
    let _ = Knob::parse(text);
    let _ = serde_json::from_str::<Request>(text);
    let _ = serde_json::from_str::<Status>(text);
});
