// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A load of a known rate of context switches, to measure what recording costs: pairs of threads that pass a byte back
//! and forth on one CPU each, with a pause between rounds so that the rate is met. Prints the rate that was reached and
//! the CPU time of one round, which is what recording makes longer.
//!
//! `switches [SWITCHES_PER_SECOND] [SECONDS] [COUNT_FILE]`, 50000 and 10 by default. A round is two switches and two
//! wake-ups. COUNT_FILE, if given, always holds the number of rounds so far: one 64-bit number for each CPU.
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Rounds between two looks at the clock.
const BATCH: u64 = 50;

/// Bytes between two counters in COUNT_FILE.
const LINE: usize = 64;

fn main() {
    let count_file = std::env::args().nth(3);
    let mut args = std::env::args().skip(1);
    let mut number = |default: u64| match args.next() {
        Some(text) => text.parse().unwrap_or_else(|_| {
            eprintln!("{text:?} is not a number; usage: switches [SWITCHES_PER_SECOND] [SECONDS]");
            std::process::exit(2)
        }),
        None => default,
    };
    let (rate, seconds) = (number(50_000).max(1), number(10).max(1));
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let rounds_per_second = rate / 2 / cpus;
    let counts = counters(count_file.as_deref(), cpus as usize);
    let pairs: Vec<_> = (0..cpus)
        .zip(counts)
        .map(|(cpu, count)| std::thread::spawn(move || pair(cpu as usize, rounds_per_second, seconds, count)))
        .collect();
    let rounds: u64 = pairs
        .into_iter()
        .map(|p| p.join().expect("a pair does not panic"))
        .sum();
    let cpu_ns = process_cpu_ns();
    println!(
        "{} switches/s asked for, {} reached; {} ns of CPU time a round",
        rate,
        rounds * 2 / seconds,
        cpu_ns / rounds.max(1)
    );
}

/// One counter for each CPU, a cache line apart, in a file that others can map.
fn counters(path: Option<&str>, cpus: usize) -> Vec<&'static AtomicU64> {
    let Some(path) = path else {
        return (0..cpus).map(|_| &*Box::leak(Box::default())).collect();
    };
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path);
    let file = file.expect("COUNT_FILE can be made");
    file.set_len((cpus * LINE) as u64).expect("COUNT_FILE can grow");
    // SAFETY: a new mapping of a file of that length, never unmapped; only atomics are made of it.
    let base = unsafe {
        let (read_write, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        libc::mmap(
            std::ptr::null_mut(),
            cpus * LINE,
            read_write,
            shared,
            file.as_raw_fd(),
            0,
        )
    };
    assert_ne!(base, libc::MAP_FAILED, "COUNT_FILE can be mapped");
    // SAFETY: within the mapping, aligned, zero at first.
    let at = |cpu| unsafe { &*base.byte_add(cpu * LINE).cast::<AtomicU64>() };
    (0..cpus).map(at).collect()
}

fn pair(cpu: usize, rounds_per_second: u64, seconds: u64, count: &AtomicU64) -> u64 {
    pin(cpu);
    let (mut a, mut b) = UnixStream::pair().expect("a socket pair");
    let echo = std::thread::spawn(move || {
        pin(cpu);
        let mut byte = [0];
        while b.read(&mut byte).is_ok_and(|n| n == 1) {
            b.write_all(&byte).expect("the other end is open");
        }
    });
    let start = Instant::now();
    let mut rounds = 0;
    while start.elapsed() < Duration::from_secs(seconds) {
        for _ in 0..BATCH {
            a.write_all(&[1]).expect("the other end is open");
            a.read_exact(&mut [0]).expect("the other end is open");
            rounds += 1;
            count.store(rounds, Relaxed);
        }
        let due = Duration::from_secs_f64(rounds as f64 / rounds_per_second as f64);
        std::thread::sleep(due.saturating_sub(start.elapsed()));
    }
    drop(a);
    echo.join().expect("the echo ends with its input");
    rounds
}

fn pin(cpu: usize) {
    // SAFETY: `cpu_set_t` is plain data; the call sets this thread's own mask.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, std::mem::size_of_val(&set), &set);
    }
}

fn process_cpu_ns() -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes to `t`.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}
