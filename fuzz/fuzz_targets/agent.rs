// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The agent's settings.
#![no_main]
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|text: &str| {
    let _ = plimsoll_agent::Settings::read(Path::new("agent.toml"), text);
});
