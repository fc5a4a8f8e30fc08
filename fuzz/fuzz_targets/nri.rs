// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a container runtime sends to its plugin: frames, messages in them, protobuf in those. And what it answers over its CRI socket.
#![no_main]
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    plimsoll_agent::read_what_a_runtime_sends(data);
    plimsoll_agent::read_what_cri_answers(data);
});
