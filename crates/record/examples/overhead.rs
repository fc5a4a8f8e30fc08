// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What recording costs: a load of a known rate of requests runs throughout, and is recorded for a second, left alone for
//! a second, and so on. The CPU time of one of its requests in each recorded second, less the mean of the two seconds
//! around it, is what recording adds to the load; the reader's own CPU time comes on top. Prints every pair, medians and
//! means with their 95% confidence intervals, and whether all of the median's interval is below the goal.
//!
//! `overhead [PAIRS] [REQUESTS_PER_SECOND] [whole]`, 60 and 20000 by default, which makes more than 40,000 switches a second.
//! Only the service is recorded, as by `record --cgroup`, in a cgroup made for it; the client runs beside it, so that what
//! recording takes from it is measured, too. `whole`: both are recorded. Root. Exit: 0 below the goal, 1 not shown to be, 3
//! this machine cannot record.
use plimsoll_record::cgroup::Hierarchy;
use plimsoll_record::{record, Options, RecordError, Report};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Share of the machine, at this many requests a second.
const GOAL: f64 = 0.01;
const GOAL_REQUESTS: f64 = 20_000.0;

const WINDOW: Duration = Duration::from_secs(1);
/// The recorder has the kernel measure its programs for so long, which makes them dearer; then it is left alone.
const MEASURING: Duration = Duration::from_millis(200);
const SETTLED: Duration = Duration::from_millis(250);
/// Then the load is started anew: where its memory lies differs from one process to the next, and its time with it.
const PAIRS_OF_A_LOAD: u64 = 8;
/// Share of a recording of 10 s and more in which the kernel measures: MEASURE_SHARE of record.rs.
const MEASURED_SHARE: f64 = 1.0 / 50.0;

fn main() {
    let mut args = std::env::args().skip(1);
    let mut number = |default: u64| match args.next() {
        Some(text) => text.parse().unwrap_or_else(|_| {
            eprintln!("{text:?} is not a number; usage: overhead [PAIRS] [REQUESTS_PER_SECOND] [whole]");
            std::process::exit(2)
        }),
        None => default,
    };
    let (pairs, rate) = (number(60).max(8), number(20_000));
    let group = match args.next().as_deref() {
        None => Some(Group::new()),
        Some("whole") => None,
        Some(other) => {
            eprintln!("{other:?}: allowed: whole, or nothing");
            std::process::exit(2)
        }
    };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut found = Vec::new();
    println!("pair  unrecorded, recorded, kernel measuring: ns of CPU time a request; requests/s; switches/s; reader, % of the machine");
    while (found.len() as u64) < pairs {
        let load = Load::start(rate, PAIRS_OF_A_LOAD * 4 + 10, dir.path(), group.as_ref());
        std::thread::sleep(WINDOW);
        let mut before = load.unrecorded();
        for _ in 0..PAIRS_OF_A_LOAD.min(pairs - found.len() as u64) {
            let (on, measuring, report) = load.recorded(&dir.path().join("t.parquet"));
            let after = load.unrecorded();
            let off = (before.request_ns() + after.request_ns()) / 2.0;
            before = after;
            let one = Pair::new(off, on, measuring, &report);
            println!(
                "{:4}  {off:.0} {:.0} {:.0}; {:.0}; {:.0}; {:.3}{}",
                found.len() + 1,
                on.request_ns(),
                measuring.request_ns(),
                one.requests_per_s,
                one.switches_per_s,
                100.0 * one.reader,
                if report.lost > 0 { " LOST EVENTS" } else { "" }
            );
            found.push(one);
        }
    }
    drop(group);
    std::process::exit(judge(&found))
}

/// The service's cgroup.
struct Group(PathBuf);

impl Group {
    const NAME: &str = "plimsoll-overhead";

    fn new() -> Group {
        let hierarchy = Hierarchy::find().unwrap_or_else(|error| cannot(&error.to_string()));
        let folder = hierarchy.mount.join(Group::NAME);
        std::fs::create_dir(&folder)
            .unwrap_or_else(|error| cannot(&format!("{}: {error}", folder.display())));
        Group(folder)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The service ends a moment after its clients.
        for _ in 0..100 {
            match std::fs::remove_dir(&self.0) {
                Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(Duration::from_millis(10))
                }
                _ => break,
            }
        }
    }
}

fn cannot(why: &str) -> ! {
    eprintln!("error: {why}");
    std::process::exit(3)
}

fn judge(found: &[Pair]) -> i32 {
    println!("at {GOAL_REQUESTS} requests a second (in proportion), % of the machine: median (95% interval), mean (95% interval)");
    let felt = Summary::of(found, |p| p.felt);
    let parts = [
        ("felt by the load", felt),
        (
            "felt while the kernel measures",
            Summary::of(found, |p| p.measuring),
        ),
        ("the reader", Summary::of(found, |p| p.reader)),
    ];
    let total = Summary::of(found, |p| {
        p.felt + MEASURED_SHARE * (p.measuring - p.felt) + p.reader
    });
    for (name, of) in parts.into_iter().chain([("all of it", total)]) {
        println!("{name:31} {of}");
    }
    let added = Summary::of(found, |p| p.added_ns / 100.0);
    println!("added to a request, ns          {added}");
    let median = |value: fn(&Pair) -> f64| Summary::of(found, value).median;
    println!(
        "requests/s                      {:.0}",
        median(|p| p.requests_per_s)
    );
    println!(
        "switches/s                      {:.0}",
        median(|p| p.switches_per_s)
    );
    let below = total.median_high < GOAL && total.mean_high < GOAL;
    let word = match below {
        true => "below, with all of both intervals",
        false if total.median_low > GOAL => "above, with all of the median's interval",
        false => "not shown",
    };
    println!("goal, below {}%: {word}", 100.0 * GOAL);
    i32::from(!below)
}

/// One recorded second and the two beside it, as shares of the machine at the goal's rate.
struct Pair {
    requests_per_s: f64,
    switches_per_s: f64,
    added_ns: f64,
    felt: f64,
    measuring: f64,
    reader: f64,
}

impl Pair {
    fn new(off: f64, on: Sample, measuring: Sample, report: &Report) -> Pair {
        let switches_per_s = report.switches as f64 * 1e9 / report.duration_ns as f64;
        let requests_per_s = on.requests as f64 * 1e9 / on.ns as f64;
        let per_request = GOAL_REQUESTS / report.cpus as f64;
        let share = |with: f64| (with - off) * 1e-9 * per_request;
        Pair {
            requests_per_s,
            switches_per_s,
            added_ns: on.request_ns() - off,
            felt: share(on.request_ns()),
            measuring: share(measuring.request_ns()),
            reader: report.reader_ns as f64 / report.duration_ns as f64 / requests_per_s * per_request,
        }
    }
}

/// In the unit of what it is of; printed as per cent.
#[derive(Clone, Copy)]
struct Summary {
    median: f64,
    median_low: f64,
    median_high: f64,
    mean: f64,
    mean_low: f64,
    mean_high: f64,
}

impl Summary {
    fn of(found: &[Pair], value: impl Fn(&Pair) -> f64) -> Summary {
        let mut values: Vec<f64> = found.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        let n = values.len() as f64;
        // How many values lie below the median is binomial with p = 1/2.
        let below = ((n - 1.96 * n.sqrt()) / 2.0).floor().max(1.0) as usize - 1;
        let mean = plimsoll_stats::mean(&values);
        let half = 1.96 * (plimsoll_stats::variance(&values).unwrap_or(0.0) / n).sqrt();
        Summary {
            median_low: values[below],
            median_high: values[values.len() - 1 - below],
            median: plimsoll_stats::median(values).expect("pairs"),
            mean,
            mean_low: mean - half,
            mean_high: mean + half,
        }
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let [m, ml, mh, a, al, ah] = [
            self.median,
            self.median_low,
            self.median_high,
            self.mean,
            self.mean_low,
            self.mean_high,
        ]
        .map(|v| 100.0 * v);
        write!(f, "{m:.3} ({ml:.3} to {mh:.3}), {a:.3} ({al:.3} to {ah:.3})")
    }
}

/// What the load did between two looks.
#[derive(Clone, Copy)]
struct Sample {
    ns: u64,
    requests: u64,
    cpu_ns: u64,
}

impl Sample {
    fn since(self, earlier: Sample) -> Sample {
        Sample {
            ns: self.ns - earlier.ns,
            requests: self.requests - earlier.requests,
            cpu_ns: self.cpu_ns - earlier.cpu_ns,
        }
    }

    fn request_ns(self) -> f64 {
        self.cpu_ns as f64 / self.requests.max(1) as f64
    }
}

/// `requests`, client and service processes of their own, so that their CPU time is theirs alone.
struct Load {
    child: Child,
    cgroup: Option<String>,
    cpu_clocks: [libc::clockid_t; 2],
    counts: Vec<&'static AtomicU64>,
    start: Instant,
}

impl Load {
    fn start(rate: u64, seconds: u64, dir: &Path, group: Option<&Group>) -> Load {
        let count_file = dir.join("count");
        let program = std::env::current_exe()
            .expect("its own path")
            .with_file_name("requests");
        let mut child = Command::new(&program)
            .args([rate.to_string(), seconds.to_string()])
            .arg(&count_file)
            .args(group.map(|group| &group.0))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{} is built as well: {e}", program.display()));
        let mut line = String::new();
        let mut said = BufReader::new(child.stdout.take().expect("a pipe"));
        said.read_line(&mut line).expect("the load says its service");
        let service = line
            .trim()
            .strip_prefix("service ")
            .and_then(|pid| pid.parse().ok());
        let service: u32 = service.unwrap_or_else(|| panic!("{line:?} is not a service"));
        Load {
            cpu_clocks: [child.id(), service].map(cpu_clock),
            cgroup: group.map(|_| format!("/{}", Group::NAME)),
            child,
            counts: map_counts(&count_file),
            start: Instant::now(),
        }
    }

    fn look(&self) -> Sample {
        Sample {
            ns: self.start.elapsed().as_nanos() as u64,
            requests: self.counts.iter().map(|c| c.load(Relaxed)).sum(),
            cpu_ns: self.cpu_clocks.iter().map(|clock| read_ns(*clock)).sum(),
        }
    }

    fn unrecorded(&self) -> Sample {
        std::thread::sleep(SETTLED);
        let start = self.look();
        std::thread::sleep(WINDOW);
        self.look().since(start)
    }

    /// The second after the kernel has measured, and the time while it did.
    fn recorded(&self, output: &Path) -> (Sample, Sample, Report) {
        let options = Options {
            cgroup: self.cgroup.clone(),
            duration: SETTLED + WINDOW + MEASURING,
            output: output.to_path_buf(),
            request: None,
            ring_bytes: 16 << 20,
        };
        let mut looks: Vec<Sample> = Vec::new();
        // Asked each time the ring buffer has been emptied.
        let report = record(
            &options,
            || {
                looks.push(self.look());
                false
            },
            |_| (),
        );
        let report = report.unwrap_or_else(|error| {
            eprintln!("error: {error}");
            std::process::exit(if matches!(error, RecordError::Unsupported { .. }) {
                3
            } else {
                2
            })
        });
        let begin = looks[0];
        let after = |time: Duration| {
            let past = looks.iter().find(|l| l.ns - begin.ns >= time.as_nanos() as u64);
            *past.expect("the recording was longer than that")
        };
        let last = looks[looks.len() - 1];
        let measuring = looks
            .iter()
            .rev()
            .find(|l| l.ns - begin.ns < MEASURING.as_nanos() as u64);
        let measuring = measuring.expect("the first").since(begin);
        (last.since(after(SETTLED)), measuring, report)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // The service ends with its clients.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The clock of a process's CPU time.
fn cpu_clock(pid: u32) -> libc::clockid_t {
    let mut clock = 0;
    // SAFETY: writes to `clock`.
    let failed = unsafe { libc::clock_getcpuclockid(pid as libc::pid_t, &mut clock) };
    assert_eq!(failed, 0, "the CPU time of a process of ours can be read");
    clock
}

fn read_ns(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes to `t`.
    unsafe { libc::clock_gettime(clock, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// The counters of `requests`: one for each CPU, 64 bytes apart.
fn map_counts(path: &Path) -> Vec<&'static AtomicU64> {
    let mut length = 0;
    for _ in 0..500 {
        length = std::fs::metadata(path).map_or(0, |m| m.len() as usize);
        if length > 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(length > 0, "the load makes {}", path.display());
    let file = std::fs::File::open(path).expect("the load's file can be read");
    // SAFETY: a new mapping of a file of that length, never unmapped.
    let base = unsafe {
        let file = std::os::fd::AsRawFd::as_raw_fd(&file);
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file,
            0,
        )
    };
    assert_ne!(base, libc::MAP_FAILED, "the load's file can be mapped");
    // SAFETY: within the mapping, aligned; only loads are made of it.
    let at = |offset| unsafe { &*base.byte_add(offset).cast::<AtomicU64>() };
    (0..length).step_by(64).map(at).collect()
}
