// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plimsoll run`: the live scheduler.
use crate::exit::{Failure, Outcome, Result};
use crate::listen::Listen;
use crate::out::note;
use plimsoll_live::{probe, Config, Machine, Merges, OpenObject, Scheduler, Server, Watch};
use plimsoll_scenario::find::text;
use sd_notify::NotifyState;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Schedule this machine: CPU limits, burst, weights, stealing and headroom, by cgroup
///
/// Loads a sched_ext scheduler and stays until Ctrl-C, after which the kernel's own scheduler is back. The kernel's
/// cgroup files (cpu.max, cpu.weight, cpu.idle) keep their meaning; `plimsoll set` adds knobs of our own. When the
/// scheduler fails, the kernel's takes over with all limits, and this command prints why and exits with 1.
#[derive(clap::Args)]
pub struct Args {
    /// Switches of the whole machine, in TOML
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Check the configuration and whether this machine can do it, and load nothing
    #[arg(long)]
    check: bool,

    /// Test the fallback: fail on purpose under a limited load, and check that the kernel's scheduler holds the limit
    #[arg(long)]
    fallback_test: bool,

    /// Also print how many instructions the kernel's verifier walked for each program
    #[arg(long)]
    verifier_cost: bool,

    #[command(flatten)]
    listen: Listen,
}

/// Changed knobs are noticed after this and the time of a look, together within 100 ms.
const POLL: Duration = Duration::from_millis(50);

pub fn run(args: &Args) -> Result {
    let config = match args.config.as_deref() {
        None => Config::default(),
        Some(path) => {
            let text = text(path).map_err(|error| Failure::file("read it", path, &error))?;
            Config::read(path, &text)?
        }
    };
    if args.check {
        outln!("configuration: good");
    }
    probe()?;
    let machine = Machine::read(Path::new("/sys"))?;
    if args.check {
        let (cpus, llcs) = (machine.nr_cpus, machine.nr_llcs());
        outln!(
            "machine: good ({cpus} CPUs, {llcs} last-level caches, {} NUMA nodes)",
            machine.nr_nodes
        );
        return Ok(Outcome::Done);
    }

    let stop = crate::signals::stop()?;
    args.listen.start()?;
    let begin = Instant::now();
    let mut object = MaybeUninit::<OpenObject>::uninit();
    let scheduler = Scheduler::start(&machine, &config, &mut object)?;
    let mut watch = Watch::default();
    let mut merges = Merges::default();
    let mut look = |watch: &mut Watch| {
        for error in watch.look(&scheduler) {
            errln!("warning: {error}; the knobs of this cgroup are left as they were");
        }
        for line in merges.news(&scheduler, watch) {
            errln!("warning: {line}");
        }
    };
    look(&mut watch);
    let server = Server::open()?;
    let loaded = begin.elapsed();
    if args.verifier_cost {
        for (name, insns) in scheduler.verifier_costs() {
            note(format_args!("verifier: {insns:>8} instructions  {name}"));
        }
    }
    note(format_args!(
        "plimsoll: scheduling {} CPUs, {} groups (loaded in {:.2} s)",
        machine.nr_cpus,
        scheduler.groups().len(),
        loaded.as_secs_f64()
    ));
    if !scheduler.hears_of_idle() {
        errln!("warning: changes of cpu.idle have no effect: this kernel does not report them (Linux 6.19 and newer do)");
    }
    if args.fallback_test {
        return fallback_test(&scheduler);
    }
    // A service manager that started this command with Type=notify waits for it; without one no socket is there.
    if let Err(error) = sd_notify::notify(&[NotifyState::Ready]) {
        errln!("warning: cannot notify the service manager: {error}");
    }
    let mut overdue = 0;
    while !stop.load(Ordering::Relaxed) {
        server.serve(&mut (&scheduler, &mut watch), POLL, None);
        look(&mut watch);
        let before = std::mem::replace(&mut overdue, scheduler.mend()?);
        if overdue != before {
            errln!("warning: {overdue} period timers so far did not fire, and were started again");
        }
        if let Some(ended) = scheduler.ended() {
            errln!("plimsoll: the kernel's own scheduler has taken over: {ended}");
            crate::out::complain(format_args!("{}", ended.dump));
            return Ok(if ended.is_error {
                Outcome::Missed
            } else {
                Outcome::Done
            });
        }
    }
    drop(scheduler);
    note(format_args!("plimsoll: the kernel's own scheduler is back"));
    Ok(Outcome::Done)
}

/// How far from its quota a group may be in the fallback test, in percent of the quota.
const FALLBACK_TOLERANCE_PERCENT: f64 = 10.0;

/// A spinner in a cgroup of its own on 20 ms/100 ms. Nothing of it stays, however the test ends.
struct LimitedSpinner {
    cgroup: PathBuf,
    spinner: Option<Child>,
}

impl LimitedSpinner {
    fn start() -> std::io::Result<Self> {
        let name = format!("plimsoll-fallback-test.{}", std::process::id());
        let cgroup = Path::new(plimsoll_live::CGROUP_ROOT).join(name);
        std::fs::create_dir(&cgroup)?;
        let mut limited = Self {
            cgroup,
            spinner: None,
        };
        std::fs::write(limited.cgroup.join("cpu.max"), "20000 100000")?;
        let spinner = Command::new("sh").args(["-c", "while :; do :; done"]).spawn()?;
        let id = limited.spinner.insert(spinner).id();
        std::fs::write(limited.cgroup.join("cgroup.procs"), id.to_string())?;
        Ok(limited)
    }
}

impl Drop for LimitedSpinner {
    fn drop(&mut self) {
        if let Some(spinner) = &mut self.spinner {
            let _ = spinner.kill();
            let _ = spinner.wait();
        }
        let _ = std::fs::remove_dir(&self.cgroup);
    }
}

/// One limited spinner, measured under us and then under the kernel's scheduler.
fn fallback_test(scheduler: &Scheduler) -> Result {
    let limited = LimitedSpinner::start().map_err(|error| {
        Failure::Machine(format!(
            "cannot start a limited spinner in {}: {error}",
            plimsoll_live::CGROUP_ROOT
        ))
    })?;
    let usage = || -> u64 {
        let text = std::fs::read_to_string(limited.cgroup.join("cpu.stat")).unwrap_or_default();
        text.lines()
            .find_map(|line| line.strip_prefix("usage_usec ")?.parse().ok())
            .unwrap_or(0)
    };
    let measure = || {
        let (begin, used) = (Instant::now(), usage());
        std::thread::sleep(Duration::from_secs(3));
        (usage() - used) as f64 / begin.elapsed().as_micros() as f64 * 100.0
    };
    std::thread::sleep(Duration::from_millis(300));
    let ours = measure();
    if let Some(ended) = scheduler.ended() {
        outln!("the scheduler had left before it was made to: {ended}");
        return Ok(Outcome::Missed);
    }
    scheduler.fail_on_purpose()?;
    let begin = Instant::now();
    while scheduler.ended().is_none() && begin.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(POLL);
    }
    let ended = scheduler.ended();
    let kernels = measure();
    drop(limited);

    let holds = |percent: f64| (percent - 20.0).abs() <= 20.0 * FALLBACK_TOLERANCE_PERCENT / 100.0;
    outln!(
        "quota 20%: {ours:.1}% under plimsoll, {kernels:.1}% under the kernel's scheduler after the failure"
    );
    let Some(ended) = ended else {
        outln!("the scheduler did not leave");
        return Ok(Outcome::Missed);
    };
    let has_dump = ended.dump.contains("plimsoll:");
    outln!("left because: {ended}; dump: {} bytes", ended.dump.len());
    Ok(if holds(ours) && holds(kernels) && has_dump {
        Outcome::Done
    } else {
        Outcome::Missed
    })
}
