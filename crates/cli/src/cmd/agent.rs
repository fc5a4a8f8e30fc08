// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plimsoll agent`: limits by the kernel's own files.
use crate::exit::{Failure, Outcome, Result};
use crate::listen::Listen;
use crate::out::note;
use plimsoll_agent::{
    lock, restore, Agent, At, Containers, Cri, Disk, Journal, Mounted, Nri, Settings, Store,
};
use plimsoll_live::{Server, CGROUP_ROOT};
use plimsoll_scenario::find::text;
use sd_notify::NotifyState;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Enforce burst and headroom on any kernel with cgroup v2, through the kernel's own files
///
/// The agent loads no scheduler: it rewrites cpu.max and cpu.max.burst, makes side groups idle (cpu.idle) while another one asks for
/// headroom, and puts back what their owners wrote when it ends. A journal in
/// --state names every file before it is changed, so that a killed agent's changes are put back by the next one, or by
/// `plimsoll agent --restore`. What an owner writes meanwhile stays.
#[derive(clap::Args)]
pub struct Args {
    /// Rules in TOML: knobs for the cgroups that match a glob
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Print what would be changed, and change nothing
    #[arg(long, conflicts_with = "restore")]
    dry_run: bool,

    /// Put back the changes of an agent that was killed, and exit
    #[arg(long, conflicts_with = "config")]
    restore: bool,

    /// Folder of the journal and the lock, which are about the current boot only: keep it below /run
    #[arg(long, value_name = "DIR", default_value = "/run/plimsoll")]
    state: PathBuf,

    /// Be a plugin of the container runtime (containerd from 1.7, CRI-O), and apply annotations of pods before a container
    /// runs: plimsoll.dev/burst-us, period-us, ...
    #[arg(long, value_name = "SOCKET", num_args = 0..=1, default_missing_value = "/var/run/nri/nri.sock", conflicts_with_all = ["dry_run", "restore"])]
    nri: Option<PathBuf>,

    /// Hold what containers are labelled with (plimsoll.dev/burst-us, ...), read in the files that Docker, Podman, CRI-O and containerd keep on this node
    #[arg(long, conflicts_with_all = ["nri", "restore"])]
    labels: bool,

    /// Without NRI: ask the container runtime (containerd, CRI-O) over its CRI socket what pods are annotated with, a moment
    /// after a container began. Without SOCKET the usual places of containerd, CRI-O and k3s are looked at
    #[arg(long, value_name = "SOCKET", num_args = 0..=1, conflicts_with_all = ["nri", "labels", "dry_run", "restore"])]
    cri: Option<Option<PathBuf>>,

    #[command(flatten)]
    listen: Listen,
}

/// A changed knob or limit is noticed after this.
const POLL_NS: u64 = 100_000_000;
const LEAST_WAIT_NS: u64 = 1_000_000;

pub fn run(args: &Args) -> Result {
    let settings = match args.config.as_deref() {
        None => Settings::default(),
        Some(path) => {
            let text = text(path).map_err(|error| Failure::file("read it", path, &error))?;
            Settings::read(path, &text)?
        }
    };
    let mut files = Mounted::at(Path::new(CGROUP_ROOT))?;
    if args.dry_run {
        // Beside an agent that runs, and without a word to it.
        let journal = Journal::open(Nowhere, "")?;
        for line in agent_of(args, files, journal, settings).step(now_ns())? {
            outln!("{line}");
        }
        return Ok(Outcome::Done);
    }
    let _lock = lock(&args.state.join("agent.lock"))?;
    let mut journal = Journal::open(Disk::at(&args.state.join("agent.journal")), &boot()?)?;
    let left = journal.changed().len();
    for line in restore(&mut files, &mut journal)? {
        errln!("{line}");
    }
    if left > 0 || args.restore {
        note(format_args!(
            "plimsoll: {left} groups of an earlier agent were put back"
        ));
    }
    if args.restore {
        return Ok(if journal.changed().is_empty() {
            Outcome::Done
        } else {
            Outcome::Missed
        });
    }
    if runs() {
        let message = "`plimsoll run` schedules this machine, and holds its limits: end it first";
        return Err(Failure::Machine(message.into()));
    }

    let stop = crate::signals::stop()?;
    // Before anything is changed: an address that is taken ends the start.
    args.listen.start()?;
    let nri = args.nri.as_deref();
    let mut nri = nri
        .map(|socket| Nri::register(socket, settings.most().clone()))
        .transpose()?;
    let most = settings.most().clone();
    let mut agent = agent_of(args, files, journal, settings);
    let cri = args.cri.as_ref();
    let mut cri = cri
        .map(|socket| Cri::of(socket.as_deref(), most, &mut agent))
        .transpose()?;
    let server = Server::open()?;
    let mut first = true;
    let (mut took_over, mut failed) = (false, None);
    let mut asked_ns = 0;
    while !stop.load(Ordering::Relaxed) && !took_over {
        let stepped = agent.step(now_ns()).and_then(|mut lines| {
            // Before the wait: what has just come is asked for at once.
            if let Some(cri) = &mut cri {
                lines.extend(cri.attend(&mut agent, now_ns())?);
            }
            Ok(lines)
        });
        match stepped {
            Ok(lines) => lines.iter().for_each(|line| errln!("{line}")),
            // Without its journal it may change nothing more.
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
        if std::mem::take(&mut first) {
            note(format_args!("plimsoll: agent of {} groups", agent.nr_groups()));
            if let Err(error) = sd_notify::notify(&[NotifyState::Ready]) {
                errln!("warning: cannot notify the service manager: {error}");
            }
        }
        let now = now_ns();
        let wait_ns = agent.due_ns().saturating_sub(now).clamp(LEAST_WAIT_NS, POLL_NS);
        let mut at = At {
            agent: &mut agent,
            now_ns: now,
        };
        // There is one of them at most.
        let beside = nri.as_ref().and_then(Nri::fd).or(cri.as_ref().map(Cri::fd));
        let is_ready = server.serve(&mut at, Duration::from_nanos(wait_ns), beside);
        let attended = nri.as_mut().map(|nri| nri.attend(&mut agent, is_ready, now_ns()));
        match attended.transpose() {
            Ok(lines) => lines.iter().flatten().for_each(|line| errln!("{line}")),
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
        let now_ns = now_ns();
        if now_ns >= asked_ns + POLL_NS {
            (asked_ns, took_over) = (now_ns, runs());
        }
    }
    let ended = agent.end();
    if let Some(error) = failed {
        return Err(error.into());
    }
    for line in ended? {
        errln!("{line}");
    }
    note(format_args!("plimsoll: the owners' limits are back"));
    if took_over {
        errln!("plimsoll: `plimsoll run` has taken over, and holds the limits");
    }
    Ok(Outcome::Done)
}

fn agent_of<S: Store>(
    args: &Args,
    files: Mounted,
    journal: Journal<S>,
    settings: Settings,
) -> Agent<Mounted, S> {
    let mut agent = Agent::new(files, journal, settings, args.dry_run);
    if args.labels {
        agent.read_labels(Containers::under(Path::new("/")));
    }
    agent
}

/// Whether our scheduler is loaded.
fn runs() -> bool {
    let ops = std::fs::read_to_string("/sys/kernel/sched_ext/root/ops").unwrap_or_default();
    ops.trim().starts_with("plimsoll")
}

fn boot() -> std::result::Result<String, Failure> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let text = std::fs::read_to_string(path);
    Ok(text
        .map_err(|error| Failure::Machine(format!("{}: {error}", path.display())))?
        .trim()
        .to_string())
}

/// Since the machine started.
fn now_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes the time that is passed.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The journal of a dry run, which changes nothing.
struct Nowhere;

impl plimsoll_agent::Store for Nowhere {
    fn read(&mut self) -> std::io::Result<String> {
        Ok(String::new())
    }

    fn append(&mut self, _line: &str) -> std::io::Result<()> {
        Ok(())
    }

    fn replace(&mut self, _text: &str) -> std::io::Result<()> {
        Ok(())
    }

    fn place(&self) -> String {
        "a dry run".into()
    }
}
