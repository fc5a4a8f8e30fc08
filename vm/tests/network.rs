// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A service in a guest whose client is on the other side of its network card: what `record` finds of it, and what the client
//! measured itself. Minutes, on the host's clock: `make test-live`.
mod common;
use common::built;
use plimsoll_stats::rank_of;
use plimsoll_vm::{find_qemu, obtain, run, with_drivers, Cache, Guest, NETWORK};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const CONNECTIONS: u32 = 4;
/// Of all connections together.
const BETWEEN: Duration = Duration::from_millis(50);
const WORK_US: u32 = 15_000;
/// Every twentieth request takes four times as long.
const LONG_EVERY: u32 = 20;
const RECORDED: Duration = Duration::from_secs(10);

/// What one of the guest's outputs has said so far, with when it said the line that is waited for.
#[derive(Clone)]
struct Heard {
    line: &'static str,
    said: Arc<Mutex<(String, Option<Instant>)>>,
}

impl Heard {
    fn of(line: &'static str) -> Heard {
        Heard {
            line,
            said: Arc::default(),
        }
    }

    fn at(&self) -> Option<Instant> {
        self.said.lock().unwrap().1
    }

    fn text(&self) -> String {
        self.said.lock().unwrap().0.clone()
    }
}

impl Write for Heard {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        let mut said = self.said.lock().unwrap();
        said.0 += &String::from_utf8_lossy(part);
        if said.1.is_none() && said.0.contains(self.line) {
            said.1 = Some(Instant::now());
        }
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One request, as its client sees it.
struct Asked {
    sent: Instant,
    answered: Instant,
}

impl Asked {
    fn ms(&self) -> f64 {
        (self.answered - self.sent).as_secs_f64() * 1e3
    }
}

fn ask(connection: &mut TcpStream, work_us: u32) -> io::Result<Asked> {
    let sent = Instant::now();
    connection.write_all(&work_us.to_le_bytes())?;
    connection.read_exact(&mut [0; 4])?;
    Ok(Asked {
        sent,
        answered: Instant::now(),
    })
}

/// Asks at a constant rate until `over`; the requests, and what the way there and back takes without work. What was due while a
/// connection waited for its answer is left out: the guest stands still for a second as the recorder attaches, and a queue of what
/// was due until then would lie across the beginning of the recording, with its longest requests on one side or the other.
fn client(port: u16, ready: &Heard, over: &Arc<AtomicBool>) -> io::Result<(Vec<Asked>, f64)> {
    while ready.at().is_none() && !over.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(10));
    }
    let mut connections = (0..CONNECTIONS)
        .map(|_| TcpStream::connect(("127.0.0.1", port)))
        .collect::<io::Result<Vec<TcpStream>>>()?;
    let mut way = (0..100)
        .map(|i| Ok(ask(&mut connections[i % CONNECTIONS as usize], 0)?.ms()))
        .collect::<io::Result<Vec<f64>>>()?;
    let begin = Instant::now();
    let threads: Vec<_> = connections
        .into_iter()
        .zip(0..)
        .map(|(mut connection, first): (TcpStream, u32)| {
            let over = over.clone();
            thread::spawn(move || {
                let mut asked = Vec::new();
                for i in (first..).step_by(CONNECTIONS as usize) {
                    let Some(until_due) = (begin + i * BETWEEN).checked_duration_since(Instant::now()) else {
                        continue;
                    };
                    thread::sleep(until_due);
                    let times = if i % LONG_EVERY == 0 { 4 } else { 1 };
                    match ask(&mut connection, times * WORK_US) {
                        Ok(one) if !over.load(Ordering::Relaxed) => asked.push(one),
                        _ => break,
                    }
                }
                asked
            })
        })
        .collect();
    let asked = threads
        .into_iter()
        .flat_map(|thread| thread.join().unwrap())
        .collect();
    Ok((asked, percentile(&mut way, 50.0)))
}

fn percentile(values: &mut [f64], percent: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[rank_of(percent, values.len())]
}

/// On this kernel; the client's requests of while it was recorded are compared.
fn holds_on(series: &str) {
    let programs = [built("dist/plimsoll"), built("target/guest/answer")];
    let cache = Cache::open().unwrap();
    let kernel = obtain(&cache, &series.parse().unwrap(), false, &|_| {}).unwrap();
    let kernel = with_drivers(&cache, kernel, &[NETWORK], &|_| {}).unwrap();
    let qemu = find_qemu(&cache, false, &|_| {}).unwrap();
    // A free port; between here and QEMU another process might take it.
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let script = format!(
        "mkdir /sys/fs/cgroup/service
        (echo 0 >/sys/fs/cgroup/service/cgroup.procs; exec answer 80) &
        until nc 127.0.0.1 80 </dev/null; do sleep 0.1; done
        echo ready
        sleep 3
        plimsoll record --cgroup /service --duration {}s --output /tmp/trace --json",
        RECORDED.as_secs()
    );
    let command: Vec<String> = ["sh", "-c", &script].map(str::to_string).to_vec();
    let guest = Guest {
        kernel: &kernel,
        // Attaching to a tracepoint rewrites the kernel's code. QEMU does not bear that while another of its CPUs, which are
        // threads on the host's clock, runs that code: one boot in some forty ended with an oops, int3 in call_timer_fn.
        cpus: "1",
        possible_cpus: None,
        memory: "1G",
        timing: false,
        programs: &programs,
        command: &command,
        scheduler: false,
        forward: &[(port, 80)],
        drivers: &[],
        timeout: Some(Duration::from_secs(100)),
    };
    let (mut out, mut err) = (Heard::of("ready\n"), Heard::of("recording begins"));
    let over = Arc::new(AtomicBool::new(false));
    let client = {
        let (ready, over) = (out.clone(), over.clone());
        thread::spawn(move || client(port, &ready, &over))
    };
    let ended = run(&guest, &qemu, &mut out, &mut err);
    over.store(true, Ordering::Relaxed);
    let client = client.join().unwrap();
    let ended =
        ended.unwrap_or_else(|error| panic!("{error}\n{}; client: {:?}", err.text(), client.as_ref().err()));
    assert_eq!(ended.code, 0, "{}", err.text());
    let (asked, way_ms) = client.unwrap();

    let begin = err.at().expect("recording began");
    let mut measured: Vec<f64> = asked
        .iter()
        .filter(|one| one.sent > begin && one.answered < begin + RECORDED)
        .map(|one| one.ms() - way_ms)
        .collect();
    let text = out.text();
    let report: serde_json::Value = serde_json::from_str(&text["ready\n".len()..]).expect(&text);
    let found = &report["requests"];
    let number = |name: &str| {
        found[name]
            .as_f64()
            .unwrap_or_else(|| panic!("{name} of {report:#}"))
    };
    println!(
        "Linux {}: {} requests measured, {} found; p50 {:.2} and {:.2} ms, p99 {:.2} and {:.2} ms; the way {way_ms:.2} ms; {} held",
        kernel.release,
        measured.len(),
        number("open"),
        percentile(&mut measured, 50.0),
        number("p50_ns") / 1e6,
        percentile(&mut measured, 99.0),
        number("p99_ns") / 1e6,
        number("held"),
    );
    // A run of a BPF program takes 56 us here. Tracepoints may be preempted since 7.0, and the kernel enters no program that is under way
    // on its CPU: the next thread's event is lost. From one in a hundred switches on no replay trusts a trace.
    assert_eq!(report["lost"], report["missed"]);
    let of_switches = report["missed"].as_f64().unwrap() / report["switches"].as_f64().unwrap();
    assert!(of_switches < 0.01, "{report:#}");
    assert_eq!(number("closed"), 0.0, "the client does not wait for answers");
    // Those at the two ends may be on either side of them.
    let apart = number("open") - measured.len() as f64;
    assert!(
        apart.abs() <= 2.0 * f64::from(CONNECTIONS),
        "{apart} requests apart"
    );
    for (percent, name, allowed) in [(50.0, "p50_ns", 0.10), (99.0, "p99_ns", 0.15)] {
        let (seen, recorded) = (percentile(&mut measured, percent), number(name) / 1e6);
        let apart = (recorded - seen).abs();
        assert!(
            apart <= (allowed * seen).max(0.3),
            "{name}: {recorded} ms recorded, {seen} measured"
        );
    }
}

#[test]
#[ignore = "boots a kernel"]
fn requests_that_come_through_the_network_card_are_what_their_client_measures() {
    holds_on("newest");
}

#[test]
#[ignore = "boots a kernel"]
fn on_a_kernel_without_tracepoints_of_sockets_they_are_too() {
    holds_on("6.1");
}
