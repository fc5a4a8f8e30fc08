// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file of any kind with random damage is read or refused, the same each time, and never panics. Seeded: the same files
//! in every run. `make fuzz-readers` looks further.
use plimsoll_trace::{Timeline, Trace};

const PERF: &str = "\
         swapper     0 [000]    10.000100:       sched:sched_waking: comm=web pid=101 prio=120 target_cpu=000
         swapper     0 [000]    10.000200:     1 sched:sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=web next_pid=101 next_prio=120
             web   101 [000]    10.000210: PERF_RECORD_COMM exec: web:101/101
             web   101 [000]    10.000300: sched:sched_process_fork: comm=web pid=101 child_comm=web child_pid=102
             web   101 [000]    10.002200:       sched:sched_switch: web:101 [120] S ==> db:7 [120]
";
const FTRACE: &str = "\
# tracer: nop
CPU:1 [LOST 12 EVENTS]
          <idle>-0       (-------) [000] d.h2. 10.000100: sched_waking: comm=web pid=101 prio=120 target_cpu=000
          <idle>-0       (-------) [000] d..2. 10.000200: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=web next_pid=101 next_prio=120
             web-101     (    101) [000] d..2. 10.002200: sched_switch: prev_comm=web prev_pid=101 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
";
const SERIES: &str = "\
time;group;usage_usec;user_usec;throttled_time;quota_us
2026-11-25T12:00:00Z;/a;5;3;1000;max
2026-11-25T12:00:01.5+01:00;/a;9;5;2000;20000
1795608000250;/b;1;1;1;1
";

/// splitmix64: a stream of numbers from a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }
}

fn damage(bytes: &mut Vec<u8>, numbers: &mut Numbers) {
    for _ in 0..1 + numbers.below(4) {
        let at = numbers.below(bytes.len());
        let to = at + numbers.below(bytes.len() - at + 1).min(40);
        match numbers.below(6) {
            0 if at < bytes.len() => bytes[at] ^= 1 << numbers.below(8),
            1 => drop(bytes.drain(at..to)),
            2 => {
                let copy = bytes[at..to].to_vec();
                let place = numbers.below(bytes.len());
                bytes.splice(place..place, copy);
            }
            3 => bytes.truncate(at),
            4 => {
                let words = [
                    &b"-1"[..],
                    b" [",
                    b"]",
                    b": ",
                    b"\n",
                    b"99999999999999999999",
                    b"\xff\xfe",
                    b"\0",
                    b"pid=",
                ];
                bytes.splice(
                    at..to.min(at + 3),
                    words[numbers.below(words.len())].iter().copied(),
                );
            }
            _ => {
                let mut lines: Vec<&[u8]> = bytes.split_inclusive(|&b| b == b'\n').collect();
                if !lines.is_empty() {
                    let (a, b) = (numbers.below(lines.len()), numbers.below(lines.len()));
                    lines.swap(a, b);
                    *bytes = lines.concat();
                }
            }
        }
    }
}

#[test]
fn damaged_files_of_every_kind_are_read_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("input");
    let (mut read, mut refused) = (0, 0);
    for (kind, whole) in [PERF, FTRACE, SERIES].into_iter().enumerate() {
        for seed in 0..400 {
            let mut bytes = whole.as_bytes().to_vec();
            damage(&mut bytes, &mut Numbers(kind as u64 * 1_000_000 + seed));
            if bytes.starts_with(b"PERFILE2") {
                continue;
            }
            std::fs::write(&path, &bytes).unwrap();
            match (Trace::read(&path), Trace::read(&path)) {
                (Ok(trace), Ok(again)) => {
                    assert_eq!(trace, again);
                    assert!(trace.events.windows(2).all(|two| two[0].ts_ns <= two[1].ts_ns));
                    Timeline::build(&trace.header, &trace.events);
                    read += 1;
                }
                (Err(error), Err(again)) => {
                    assert_eq!(error.to_string(), again.to_string());
                    refused += 1;
                }
                _ => panic!("seed {seed} of kind {kind} is read once and refused once"),
            }
        }
    }
    // Damage that is always refused, or never, would not have looked at much.
    assert!(read > 100 && refused > 100, "{read} read, {refused} refused");
}
