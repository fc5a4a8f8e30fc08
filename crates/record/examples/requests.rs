// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A load of a known rate of requests, to measure what recording costs: a client and a service, with a thread each on every
//! CPU. The client asks over TCP, with a pause between requests so that the rate is met. Prints the service's process, and
//! at the end the rate that was reached.
//!
//! `requests [REQUESTS_PER_SECOND] [SECONDS] [COUNT_FILE [GROUP]]`, 20000 and 10 by default. A request is two switches and
//! two wake-ups, and data that arrives, is read and is answered at either end. COUNT_FILE, if given, always holds the number of requests so far: one 64-bit number for each CPU. GROUP, if given, is the
//! folder of the cgroup in which the service runs.
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Requests between two looks at the clock.
const BATCH: u64 = 50;

/// What the service is told to be one by.
const SERVE: &str = "--serve";

/// Bytes between two counters in COUNT_FILE.
const LINE: usize = 64;

fn main() {
    let texts: Vec<String> = std::env::args().skip(1).collect();
    if texts.first().is_some_and(|first| first == SERVE) {
        return serve();
    }
    let number = |at: usize, default: u64| {
        match texts.get(at) {
        Some(text) => text.parse().unwrap_or_else(|_| {
            eprintln!(
                "{text:?} is not a number; usage: requests [REQUESTS_PER_SECOND] [SECONDS] [COUNT_FILE [GROUP]]"
            );
            std::process::exit(2)
        }),
        None => default,
    }
    };
    let (rate, seconds) = (number(0, 20_000).max(1), number(1, 10).max(1));
    let counts = counters(texts.get(2).map(String::as_str), cpus());
    let mut service = Command::new(std::env::current_exe().expect("its own path"))
        .arg(SERVE)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts once more");
    if let Some(group) = texts.get(3) {
        let file = Path::new(group).join("cgroup.procs");
        std::fs::write(&file, service.id().to_string()).expect("the service moves into GROUP");
    }
    println!("service {}", service.id());
    // It begins once it is where it belongs.
    writeln!(service.stdin.as_mut().expect("a pipe"), "go").expect("the service reads it");
    let ports = BufReader::new(service.stdout.take().expect("a pipe")).lines();
    let per_cpu = rate / cpus() as u64;
    let clients: Vec<_> = (0..cpus())
        .zip(counts)
        .zip(ports)
        .map(|((cpu, count), port)| {
            let port = port.expect("the service says its ports").parse().expect("a port");
            std::thread::spawn(move || ask(cpu, port, per_cpu, seconds, count))
        })
        .collect();
    let requests: u64 = clients
        .into_iter()
        .map(|client| client.join().expect("a client does not panic"))
        .sum();
    service.wait().expect("the service ends with its clients");
    println!("{rate} requests/s asked for, {} reached", requests / seconds);
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
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

fn ask(cpu: usize, port: u16, requests_per_second: u64, seconds: u64, count: &AtomicU64) -> u64 {
    pin(cpu);
    let mut service = TcpStream::connect(("127.0.0.1", port)).expect("a connection on loopback");
    service.set_nodelay(true).expect("an option of every TCP socket");
    let start = Instant::now();
    let mut requests = 0;
    while start.elapsed() < Duration::from_secs(seconds) {
        for _ in 0..BATCH {
            service.write_all(&[1]).expect("the service is there");
            service.read_exact(&mut [0]).expect("the service is there");
            requests += 1;
            count.store(requests, Relaxed);
        }
        let due = Duration::from_secs_f64(requests as f64 / requests_per_second as f64);
        std::thread::sleep(due.saturating_sub(start.elapsed()));
    }
    requests
}

/// The service: prints a port for each CPU, and answers on each until its client has gone.
fn serve() {
    std::io::stdin()
        .read_line(&mut String::new())
        .expect("a line, or the end");
    let threads: Vec<_> = (0..cpus())
        .map(|cpu| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback");
            println!("{}", listener.local_addr().expect("its address").port());
            std::thread::spawn(move || {
                pin(cpu);
                let (mut client, _) = listener.accept().expect("the client comes");
                client.set_nodelay(true).expect("an option of every TCP socket");
                let mut byte = [0];
                while client.read(&mut byte).is_ok_and(|n| n == 1) {
                    client.write_all(&byte).expect("the client waits for it");
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("an answer does not panic");
    }
}

fn pin(cpu: usize) {
    // SAFETY: `cpu_set_t` is plain data; the call sets this thread's own mask.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, std::mem::size_of_val(&set), &set);
    }
}
