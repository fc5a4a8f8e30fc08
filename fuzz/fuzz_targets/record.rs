// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the recorder's BPF programs hand over.
#![no_main]
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| plimsoll_record::read_what_bpf_sends(data));
