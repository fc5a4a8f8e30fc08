// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Boots a guest, passes its output on while it runs, and brings back its exit code and kernel log.
use crate::error::{Error, Result};
use crate::files::{all_of, has_room, inherited, nameless, Control, Port};
use crate::initramfs::{self, Content, Program};
use crate::kernel::Kernel;
use crate::qemu::Qemu;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A guest that has not reached its first process within this time is started again.
const BOOT_TIMEOUT: Duration = Duration::from_secs(180);
/// Some boots of a kernel under parallel emulation end in an oops before its first process.
const BOOTS_MAX: u32 = 3;
/// How often the guest's output is looked for.
const POLL: Duration = Duration::from_millis(10);
/// How often it is tried whether the disk has room for more output.
const ROOM_EVERY: Duration = Duration::from_secs(1);
const PORTS: [&str; 4] = ["out", "err", "control", "log"];

/// The guest to run.
pub struct Guest<'a> {
    pub kernel: &'a Kernel,
    /// For QEMU's `-smp`: a number, or with a topology `8,sockets=2,cores=2,threads=2`.
    pub cpus: &'a str,
    /// The kernel believes in this many CPUs; those that there are are 0 and the last ones (`madt`). `cpus` is then a
    /// number alone, and `timing` is not possible: QEMU's IOMMU, which such a machine needs, does not work with counted
    /// instructions.
    pub possible_cpus: Option<u32>,
    /// For QEMU's `-m`: `2G`.
    pub memory: &'a str,
    /// Virtual time that counts instructions, so that figures repeat.
    pub timing: bool,
    pub programs: &'a [Program],
    pub command: &'a [String],
    pub scheduler: bool,
    /// Ports of the host's 127.0.0.1, each with the TCP port of the guest that it leads to, through a virtio network
    /// card. Without any the guest has no card. Not in virtual time: the host's clients live in another.
    pub forward: &'a [(u16, u16)],
    /// Drivers of the kernel's that are loaded before the command, such as `veth`.
    pub drivers: &'a [String],
    /// From the start of the command.
    pub timeout: Option<Duration>,
}

/// How a guest's command ended.
#[derive(Debug)]
pub struct Ended {
    /// The command's exit code, as a shell has it: 128 + signal when a signal ended it.
    pub code: u8,
    /// Starts that it took.
    pub boots: u32,
    /// From starting QEMU to the guest's first process, on the host's clock.
    pub boot: Duration,
    /// The same on the guest's clock, in seconds with two decimals.
    pub boot_guest_s: String,
    /// What `dmesg` printed at the end.
    pub kernel_log: Vec<u8>,
}

/// Runs the guest; its standard output and error go to `out` and `err`, byte by byte, while it runs.
/// Errors: `Machine` with the end of the console when the guest does not boot or dies, `Timeout` when it takes too long.
pub fn run(guest: &Guest, qemu: &Qemu, out: &mut dyn Write, err: &mut dyn Write) -> Result<Ended> {
    let content = Content {
        programs: guest.programs,
        command: guest.command,
        scheduler: guest.scheduler,
        possible_cpus: guest.possible_cpus,
        cpus: guest.cpus.parse().unwrap_or(1),
        network: !guest.forward.is_empty(),
        drivers: guest.drivers,
    };
    let archive = initramfs::build(guest.kernel, &content)?;
    let initramfs = nameless()?;
    initramfs
        .write_all_at(&archive, 0)
        .map_err(|error| Error::file("write to it", &std::env::temp_dir(), &error))?;
    drop(archive);
    let mut boots = 0;
    loop {
        boots += 1;
        let run = Run::start(guest, qemu, &initramfs)?;
        match run.follow(guest.timeout, out, err)? {
            Followed::Ended {
                code,
                boot,
                boot_guest_s,
                kernel_log,
            } => {
                return Ok(Ended {
                    code,
                    boots,
                    boot,
                    boot_guest_s,
                    kernel_log,
                });
            }
            Followed::NeverBooted(_) if boots < BOOTS_MAX => {}
            Followed::NeverBooted(why) => {
                return Err(Error::Machine(format!(
                    "the guest did not boot, {boots} times: {why}"
                )));
            }
        }
    }
}

enum Followed {
    Ended {
        code: u8,
        boot: Duration,
        boot_guest_s: String,
        kernel_log: Vec<u8>,
    },
    NeverBooted(String),
}

/// What QEMU writes.
struct Written {
    console: File,
    /// Of `PORTS`, in their order.
    ports: [File; 4],
}

/// One start of QEMU. Dropping it ends the process.
struct Run {
    child: Child,
    started: Instant,
    complaints: File,
    console: File,
    out: Port,
    err: Port,
    control: Control,
    log: File,
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Run {
    fn start(guest: &Guest, qemu: &Qemu, initramfs: &File) -> Result<Self> {
        let complaints = nameless()?;
        let written = Written {
            console: nameless()?,
            ports: [nameless()?, nameless()?, nameless()?, nameless()?],
        };
        let mut command = command(guest, qemu, initramfs, &written);
        let stderr = complaints
            .try_clone()
            .map_err(|error| Error::Machine(format!("QEMU does not start: {error}")))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        let files = [initramfs, &written.console].into_iter().chain(&written.ports);
        let numbers: Vec<RawFd> = files.map(AsRawFd::as_raw_fd).collect();
        // SAFETY: between fork and exec only system calls are made, prctl and fcntl, which are async-signal-safe.
        unsafe {
            command.pre_exec(move || {
                // A guest must not outlive us, whatever ends us.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                for number in &numbers {
                    libc::fcntl(*number, libc::F_SETFD, 0);
                }
                Ok(())
            });
        }
        let child = command
            .spawn()
            .map_err(|error| Error::Machine(format!("QEMU does not start: {error}")))?;
        let [out, err, control, log] = written.ports;
        Ok(Self {
            child,
            started: Instant::now(),
            complaints,
            console: written.console,
            out: Port::of(out),
            err: Port::of(err),
            control: Control::of(control),
            log,
        })
    }

    fn follow(
        mut self,
        timeout: Option<Duration>,
        out: &mut dyn Write,
        err: &mut dyn Write,
    ) -> Result<Followed> {
        let trial = nameless()?;
        let mut tried = Instant::now();
        loop {
            let gone = self
                .child
                .try_wait()
                .map_err(|error| Error::Machine(format!("QEMU: {error}")))?;
            self.control.read(self.started)?;
            let is_silent = !(self.out.pass_on(out)? | self.err.pass_on(err)?);
            if let (Some(code), Some(boot)) = (self.control.code, &self.control.booted) {
                let kernel_log = all_of(&self.log);
                let (boot, boot_guest_s) = (boot.at, boot.guest_s.clone());
                return Ok(Followed::Ended {
                    code,
                    boot,
                    boot_guest_s,
                    kernel_log,
                });
            }
            let since_boot = self
                .control
                .booted
                .as_ref()
                .map(|boot| self.started.elapsed() - boot.at);
            match (gone, since_boot) {
                (Some(status), None) => return Ok(Followed::NeverBooted(self.why_gone(status))),
                (Some(status), Some(_)) => {
                    return Err(Error::Guest {
                        message: format!("the guest died: {}", self.why_gone(status)),
                        console: all_of(&self.console),
                    });
                }
                (None, None) if self.started.elapsed() > BOOT_TIMEOUT => {
                    let what = format!("nothing for {} s", BOOT_TIMEOUT.as_secs());
                    return Ok(Followed::NeverBooted(format!("{what}{}", self.console())));
                }
                (None, Some(since)) if timeout.is_some_and(|timeout| since > timeout) => {
                    return Err(Error::Timeout {
                        message: format!(
                            "the command did not end within {} s{}",
                            timeout.unwrap_or_default().as_secs(),
                            self.console()
                        ),
                        console: all_of(&self.console),
                    });
                }
                // A guest that still prints finds room.
                _ if is_silent && tried.elapsed() > ROOM_EVERY => {
                    tried = Instant::now();
                    if !has_room(&trial) {
                        return Err(Error::Machine(format!(
                            "{}: the disk is full; TMPDIR names another place",
                            std::env::temp_dir().display()
                        )));
                    }
                }
                _ => std::thread::sleep(POLL),
            }
        }
    }

    fn why_gone(&self, status: ExitStatus) -> String {
        let complaints = all_of(&self.complaints);
        let complaints = String::from_utf8_lossy(&complaints);
        let complaints = complaints.trim();
        let what = if complaints.is_empty() {
            String::new()
        } else {
            format!(": {complaints}")
        };
        format!("QEMU ended with {status}{what}{}", self.console())
    }

    /// The last lines of the kernel's console, which carries errors only while all is well.
    fn console(&self) -> String {
        const LINES_MAX: usize = 60;
        let text = all_of(&self.console);
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text
            .lines()
            .map(str::trim_end)
            .filter(|line| !line.is_empty())
            .collect();
        if lines.is_empty() {
            return "; the kernel printed nothing".into();
        }
        format!(
            "; its console ended with:\n{}",
            lines[lines.len().saturating_sub(LINES_MAX)..].join("\n")
        )
    }
}

fn command(guest: &Guest, qemu: &Qemu, initramfs: &File, written: &Written) -> Command {
    let mut command = qemu.command();
    if guest.timing {
        // Virtual time counts instructions. sleep=off: an idle guest jumps to its next timer instead of waiting.
        // shift: an instruction takes 2^shift ns. 1 with QEMU 10, as for the measured truth; 7.2 repeats better with 0.
        let shift = if qemu.is_recent() { 1 } else { 0 };
        command.args([
            "-accel",
            "tcg,thread=single",
            "-icount",
            &format!("shift={shift},sleep=off"),
        ]);
        // No random numbers from the host, and a clock that starts at the same second.
        command.args(["-cpu", "max,-rdrand,-rdseed", "-rtc", "clock=vm,base=2026-01-01"]);
    } else {
        command.args(["-accel", "tcg,thread=multi", "-cpu", "max"]);
    }
    command.args(["-m", guest.memory]);
    match guest.possible_cpus {
        None => command.args(["-smp", guest.cpus]),
        // Identifiers above 254 take x2APIC mode, which the kernel uses only with an IOMMU that remaps interrupts; the
        // firmware turns it on when there may be as many CPUs.
        Some(possible) => command.args([
            "-machine",
            "q35",
            "-device",
            "intel-iommu,intremap=on,eim=on",
            "-smp",
            &format!(
                "{},maxcpus={possible},sockets=1,cores={possible},threads=1",
                guest.cpus
            ),
        ]),
    };
    command
        .arg("-kernel")
        .arg(&guest.kernel.image)
        .args(["-initrd", &inherited(initramfs)]);
    command.args([
        "-append",
        // tsc=reliable: with a host that is busy the kernel would find its clock unsteady and rewrite code that other CPUs
        // run, which this emulation does not bear (an oops, int3 in sched_clock_cpu).
        &format!(
            "console=ttyS0 quiet panic=-1 nokaslr norandmaps random.trust_cpu=off cryptomgr.notests{}{}",
            if guest.timing { "" } else { " tsc=reliable" },
            if guest.possible_cpus.is_some() {
                " maxcpus=1"
            } else {
                ""
            }
        ),
    ]);
    command.args([
        "-nodefaults",
        "-no-reboot",
        "-display",
        "none",
        "-serial",
        &format!("file:{}", inherited(&written.console)),
    ]);
    // ioeventfd=off: output is handled in the virtual CPU that makes it, not in another thread at some later moment.
    command.args(["-device", "virtio-serial-pci,ioeventfd=off"]);
    for (port, file) in PORTS.into_iter().zip(&written.ports) {
        command.args(["-chardev", &format!("file,id={port},path={}", inherited(file))]);
        command.args([
            "-device",
            &format!("virtserialport,chardev={port},name=plimsoll.{port}"),
        ]);
    }
    if !guest.forward.is_empty() {
        // restrict=on: nothing that runs in the guest reaches beyond it.
        let rules: String = (guest.forward.iter())
            .map(|(host, guest)| format!(",hostfwd=tcp:127.0.0.1:{host}-:{guest}"))
            .collect();
        command.args(["-netdev", &format!("user,id=net,restrict=on{rules}")]);
        command.args(["-device", "virtio-net-pci,netdev=net,romfile="]);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::path::Path;

    /// Runs a shell script in the place of kernel and guest: `tests/qemu.sh`.
    fn run(script: &str, out: &mut dyn Write) -> Result<Followed> {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("kernel");
        std::fs::write(&image, script).unwrap();
        let kernel = Kernel {
            release: "7.2.9-cloud-amd64".into(),
            suite: "sid".into(),
            image,
            config: "config".into(),
            config_release: "7.2.9-cloud-amd64".into(),
            modules: "modules".into(),
            sched_ext: true,
            fault: None,
        };
        let guest = Guest {
            kernel: &kernel,
            cpus: "1",
            possible_cpus: None,
            memory: "512M",
            timing: false,
            programs: &[],
            command: &[],
            scheduler: false,
            forward: &[],
            drivers: &[],
            timeout: None,
        };
        let qemu = Qemu::at(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/qemu.sh"));
        let initramfs = nameless().unwrap();
        initramfs.write_all_at(b"files of the guest", 0).unwrap();
        Run::start(&guest, &qemu, &initramfs)?.follow(None, out, &mut Vec::new())
    }

    #[test]
    fn guest_and_host_share_files_that_nothing_is_left_of() {
        let script = r#"
            echo "ready 1.00" >"$control"
            cat "$initrd" >"$out"
            for file in "$initrd" "$console" "$out" "$err" "$control" "$log"; do
                readlink "$file" | grep -v "(deleted)$" >>"$out"
            done
            echo words >"$log"
            echo "exit 7" >>"$control""#;
        let mut out = Vec::new();
        let Ok(Followed::Ended { code, kernel_log, .. }) = run(script, &mut out) else {
            panic!("it does not run")
        };
        assert_eq!(String::from_utf8_lossy(&out), "files of the guest");
        assert_eq!((code, kernel_log), (7, b"words\n".to_vec()));
    }

    #[test]
    fn a_reader_that_has_gone_does_not_end_the_command() {
        let script = r#"
            echo "ready 1.00" >"$control"
            for line in 1 2 3; do echo "$line" >>"$out"; done
            echo "exit 5" >>"$control""#;
        let (reader, mut writer) = UnixStream::pair().unwrap();
        drop(reader);
        assert!(matches!(
            run(script, &mut writer),
            Ok(Followed::Ended { code: 5, .. })
        ));
    }

    #[test]
    fn a_guest_that_dies_leaves_its_whole_console() {
        let script = r#"
            echo "ready 1.00" >"$control"
            i=0; while [ $i -lt 100 ]; do i=$((i+1)); echo "line $i"; done >"$console""#;
        let Err(Error::Guest { message, console }) = run(script, &mut Vec::new()) else {
            panic!("it ended without a code")
        };
        assert!(
            message.ends_with("\nline 100") && !message.contains("line 1\n"),
            "{message}"
        );
        assert!(console.starts_with(b"line 1\n") && console.ends_with(b"line 100\n"));
    }
}
