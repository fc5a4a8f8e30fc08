// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plimsoll vm`: one command on a real kernel in QEMU.
use crate::exit::{Failure, Outcome, Result};
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_vm::{
    find_qemu, obtain, run as run_guest, with_drivers, Cache, Error, Guest, Program, Wanted, NETWORK,
};
use std::path::PathBuf;
use std::time::Duration;

/// Run a command on a real Linux kernel, in QEMU
///
/// Fetches a Debian kernel (and QEMU 10 for --timing) into a cache, boots it with busybox and the given programs, and
/// runs the command as root. Its standard output, standard error and exit code are the command's own; it reads nothing
/// from standard input. Needs no root and installs nothing.
///
/// The cache is PLIMSOLL_CACHE, or plimsoll in the user's cache folder. The mirror is PLIMSOLL_MIRROR, or the one in
/// the machine's apt configuration.
#[derive(clap::Args)]
#[command(after_help = "Exit codes: the command's own, and for the machine around it
    1  the guest broke down, or the scheduler left before the command ended
    2  bad usage
    3  this machine cannot do it (no QEMU, no kernel, files that do not fit into --memory), or the scheduler did not
       start
  124  --timeout ran out")]
pub struct Args {
    /// Kernel: a series such as 7.2, 6.19 or 6.1, or `newest`, the newest one that takes a sched_ext scheduler; of several
    /// with commas the first that can be had
    #[arg(long, default_value = "newest", value_name = "SERIES")]
    kernel: Wanted,

    /// Look for a newer kernel first, instead of taking one from the cache
    #[arg(long)]
    refresh: bool,

    /// Number of CPUs, or with a topology as QEMU has it: 8,sockets=2,cores=2,threads=2
    #[arg(long, default_value = "4", value_name = "N", value_parser = parse_cpus)]
    cpus: String,

    /// CPUs that the firmware announces, of which the last are those of --cpus: for programs that must work on big
    /// machines
    #[arg(long, value_name = "N", conflicts_with = "timing", value_parser = clap::value_parser!(u32).range(256..=4096))]
    possible_cpus: Option<u32>,

    /// Memory, with a unit: 512M, 2G
    #[arg(long, default_value = "2G", value_name = "SIZE", value_parser = parse_memory)]
    memory: String,

    /// Virtual time that counts instructions, so that figures repeat; slower, and parallel throughput is not what it measures
    #[arg(long)]
    timing: bool,

    /// Scheduler that runs the command: `plimsoll` starts `plimsoll run` first, `none` is the kernel's own
    #[arg(long, value_enum, default_value = "none")]
    scheduler: Scheduler,

    /// Put a program of this machine, with its shared libraries, on the guest's PATH; one named plimsoll takes the place of
    /// this one, which is there anyway
    #[arg(long = "file", value_name = "PATH")]
    files: Vec<PathBuf>,

    /// Lead a TCP port of this machine's 127.0.0.1 to one of the guest, through a virtio network card: 8080:80. Without it
    /// the guest has no card
    #[arg(long, value_name = "PORT:PORT", conflicts_with = "timing", value_parser = parse_ports)]
    forward: Vec<(u16, u16)>,

    /// Load a driver of the kernel's before the command, and what it depends on: veth
    #[arg(long = "driver", value_name = "NAME")]
    drivers: Vec<String>,

    /// End the guest when the command takes longer than this many seconds
    #[arg(long, value_name = "S", allow_hyphen_values = true, value_parser = crate::number::within(1..=86_400_u64))]
    timeout: Option<u64>,

    /// Write the kernel's log to this file; of a guest that crashes or runs out of time, what its console shows
    #[arg(long, value_name = "FILE")]
    dmesg: Option<PathBuf>,

    /// Say on standard error which kernel and QEMU run, and how long the boot took
    #[arg(long, short)]
    verbose: bool,

    /// The command and its arguments; for shell syntax: sh -c '...'
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Scheduler {
    Plimsoll,
    None,
}

pub fn run(args: &Args) -> Result {
    crate::output::check(&args.files, None, &args.dmesg)?;
    match guest(args) {
        Ok(code) => Ok(Outcome::Code(code)),
        Err(Error::Input(message)) => Err(Failure::Input(message)),
        Err(Error::Machine(message)) => Err(Failure::Machine(message)),
        Err(Error::Guest { message, .. }) => {
            errln!("error: {message}");
            Ok(Outcome::Missed)
        }
        Err(Error::Timeout { message, .. }) => {
            errln!("error: {message}");
            Ok(Outcome::Code(124))
        }
    }
}

fn guest(args: &Args) -> plimsoll_vm::Result<u8> {
    let scheduler = args.scheduler == Scheduler::Plimsoll;
    if args.possible_cpus.is_some() && args.cpus.contains(',') {
        return Err(Error::Input(format!(
            "--cpus {}: with --possible-cpus allowed: a number alone, 1..255",
            args.cpus
        )));
    }
    let mut programs = args
        .files
        .iter()
        .cloned()
        .map(Program::of)
        .collect::<plimsoll_vm::Result<Vec<_>>>()?;
    if !programs.iter().any(|program| program.name == "plimsoll") {
        programs.push(Program {
            path: std::env::current_exe()
                .map_err(|error| Error::Machine(format!("cannot find this program: {error}")))?,
            name: "plimsoll".into(),
        });
    }

    let progress = spinner();
    let say = |text: &str| progress.set_message(text.to_string());
    let note = |text: &str| {
        // What matters afterwards stays on the screen; the rest only shows that something goes on.
        if text.starts_with("warning:") || text.contains("passed over") || text.ends_with("is taken") {
            progress.suspend(|| errln!("plimsoll vm: {text}"));
        } else {
            say(text);
        }
    };
    let cache = Cache::open()?;
    let mut kernel = obtain(&cache, &args.kernel, args.refresh, &note)?;
    let mut drivers: Vec<&str> = args.drivers.iter().map(String::as_str).collect();
    if !args.forward.is_empty() {
        drivers.push(NETWORK);
    }
    if !drivers.is_empty() {
        kernel = with_drivers(&cache, kernel, &drivers, &note)?;
    }
    if scheduler && !kernel.sched_ext {
        return Err(Error::Machine(format!(
            "Linux {} has no sched_ext; take --kernel newest",
            kernel.release
        )));
    }
    let qemu = find_qemu(&cache, args.timing || args.possible_cpus.is_some(), &note)?;
    progress.finish_and_clear();
    if args.verbose {
        let (major, minor) = qemu.version;
        errln!(
            "plimsoll vm: Linux {} (Debian {}), QEMU {major}.{minor}",
            kernel.release,
            kernel.suite
        );
        if kernel.config_release != kernel.release {
            errln!(
                "plimsoll vm: its configuration is that of {}",
                kernel.config_release
            );
        }
    }
    let guest = Guest {
        kernel: &kernel,
        cpus: &args.cpus,
        possible_cpus: args.possible_cpus,
        memory: &args.memory,
        timing: args.timing,
        programs: &programs,
        command: &args.command,
        scheduler,
        forward: &args.forward,
        drivers: &args.drivers,
        timeout: args.timeout.map(Duration::from_secs),
    };
    let keep = |log: &[u8]| match &args.dmesg {
        Some(path) => crate::output::write(path, log).map_err(|failure| Error::Machine(failure.to_string())),
        None => Ok(()),
    };
    let ended = run_guest(
        &guest,
        &qemu,
        &mut std::io::stdout().lock(),
        &mut std::io::stderr().lock(),
    );
    // The log is wanted most of all now. The guest cannot give it any more, but the console holds the kernel's
    // messages.
    if let Err(Error::Guest { console, .. } | Error::Timeout { console, .. }) = &ended {
        if let Err(failure) = keep(console) {
            errln!("error: {failure}");
        }
    }
    let ended = ended?;
    if args.verbose {
        errln!(
            "plimsoll vm: booted in {:.2} s, {} s on the guest's clock{}",
            ended.boot.as_secs_f64(),
            ended.boot_guest_s,
            if ended.boots > 1 {
                format!(", at start {}", ended.boots)
            } else {
                String::new()
            }
        );
    }
    keep(&ended.kernel_log)?;
    Ok(ended.code)
}

/// Shows what is being fetched; silent when standard error is not a terminal.
fn spinner() -> ProgressBar {
    let progress = ProgressBar::new_spinner();
    progress.set_style(ProgressStyle::with_template("{spinner} {msg}").expect("a fixed template"));
    progress.enable_steady_tick(Duration::from_millis(100));
    progress
}

/// A number of CPUs from 1 to 255 (a limit of the emulated machine), perhaps with `,sockets=..,cores=..,threads=..`.
fn parse_cpus(text: &str) -> std::result::Result<String, String> {
    let mut parts = text.split(',');
    let cpus = parts.next().and_then(|number| number.parse::<u32>().ok());
    let mut levels: Vec<(&str, u32)> = Vec::new();
    let topology = parts.all(|part| {
        let level = part
            .split_once('=')
            .and_then(|(name, value)| Some((name, value.parse::<u32>().ok()?)));
        let known = ["sockets", "dies", "cores", "threads"];
        level.is_some_and(|(name, value)| {
            let is_new = levels.iter().all(|(other, _)| *other != name);
            levels.push((name, value));
            known.contains(&name) && (1..=255).contains(&value) && is_new
        })
    });
    let Some(cpus) = cpus.filter(|cpus| (1..=255).contains(cpus) && topology) else {
        return Err("allowed: 1..255, then perhaps ,sockets=N ,dies=N ,cores=N ,threads=N, each once".into());
    };
    // QEMU fills in one of these that is not given, and refuses a result that is not a whole number; dies are then one.
    let is_filled_in = ["sockets", "cores", "threads"]
        .iter()
        .any(|level| levels.iter().all(|(name, _)| name != level));
    let product: u64 = levels.iter().map(|(_, value)| u64::from(*value)).product();
    if u64::from(cpus) % product != 0 || (!is_filled_in && u64::from(cpus) != product) {
        let names: Vec<&str> = levels.iter().map(|(name, _)| *name).collect();
        return Err(format!(
            "{} make {product}; allowed: {}",
            names.join(" x "),
            match is_filled_in {
                true => format!("what divides {cpus}"),
                false => format!("{cpus}, as many as there are CPUs"),
            }
        ));
    }
    Ok(text.to_string())
}

/// A port of this machine and one of the guest.
fn parse_ports(text: &str) -> std::result::Result<(u16, u16), String> {
    let port = |digits: &str| digits.parse::<u16>().ok().filter(|port| *port > 0);
    text.split_once(':')
        .and_then(|(host, guest)| Some((port(host)?, port(guest)?)))
        .ok_or_else(|| "allowed: HOST:GUEST, two ports, each 1..65535, such as 8080:80".into())
}

/// 256M is about the least that this kernel with its file system boots in.
fn parse_memory(text: &str) -> std::result::Result<String, String> {
    let allowed = "allowed: 256M..64G, a whole number with the unit M or G";
    let number = |digits: &str| digits.parse::<u64>().ok();
    let megabytes = match (text.strip_suffix('M'), text.strip_suffix('G')) {
        (Some(digits), _) => number(digits),
        (_, Some(digits)) => number(digits).and_then(|gigabytes| gigabytes.checked_mul(1024)),
        _ => None,
    };
    match megabytes {
        Some(256..=65536) => Ok(text.to_string()),
        _ => Err(allowed.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_sizes_are_refused_before_anything_is_fetched() {
        for wrong in [
            "0",
            "256",
            "four",
            "4,cores=0",
            "4,beans=2",
            "4,",
            "",
            "4,cores=2,cores=2",
        ] {
            assert!(parse_cpus(wrong).is_err(), "{wrong}");
        }
        for (wrong, said) in [
            ("4,sockets=3", "sockets make 3; allowed: what divides 4"),
            (
                "8,sockets=2,cores=3",
                "sockets x cores make 6; allowed: what divides 8",
            ),
            (
                "8,sockets=2,cores=2,threads=1",
                "sockets x cores x threads make 4; allowed: 8, as many as there are CPUs",
            ),
        ] {
            assert_eq!(parse_cpus(wrong).unwrap_err(), said);
        }
        for right in [
            "255",
            "8,sockets=2",
            "8,dies=2,cores=2",
            "1,sockets=1,cores=1,threads=1",
        ] {
            assert_eq!(parse_cpus(right).as_deref(), Ok(right));
        }
        assert_eq!(
            parse_cpus("8,sockets=2,cores=2,threads=2").as_deref(),
            Ok("8,sockets=2,cores=2,threads=2")
        );
        for wrong in [
            "",
            "G",
            "2",
            "2g",
            "128M",
            "65G",
            "-1G",
            "99999999999999999999G",
            "1é",
        ] {
            assert!(parse_memory(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_memory("512M").as_deref(), Ok("512M"));
        for wrong in [
            "", "80", "80:", ":80", "0:80", "80:0", "65536:80", "-1:80", "80:80:80",
        ] {
            assert!(parse_ports(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_ports("65535:80"), Ok((65535, 80)));
    }
}
