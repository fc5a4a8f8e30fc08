//! Boots a guest, passes its output on while it runs, and brings back its exit code and kernel log.
use crate::error::{Error, Result};
use crate::initramfs::{self, Content, Program};
use crate::kernel::Kernel;
use crate::qemu::Qemu;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A guest that has not reached its first process within this time is started again.
const BOOT_TIMEOUT: Duration = Duration::from_secs(180);
/// Some boots of a kernel under parallel emulation end in an oops before its first process.
const BOOTS_MAX: u32 = 3;
/// How often the guest's output is looked for. It goes through files, because a file never makes the guest wait: a full
/// pipe would stop its virtual clock at a moment that no two runs share.
const POLL: Duration = Duration::from_millis(10);
const PORTS: [&str; 4] = ["out", "err", "control", "log"];

/// The guest to run.
pub struct Guest<'a> {
    pub kernel: &'a Kernel,
    /// For QEMU's `-smp`: a number, or with a topology `8,sockets=2,cores=2,threads=2`.
    pub cpus: &'a str,
    /// The kernel believes in this many CPUs; those that there are are 0 and the last ones (`madt`). `cpus` is then a
    /// number alone, and `timing` is not to be had: QEMU's IOMMU, which such a machine needs, does not work with counted
    /// instructions.
    pub possible_cpus: Option<u32>,
    /// For QEMU's `-m`: `2G`.
    pub memory: &'a str,
    /// Virtual time that counts instructions, so that figures repeat.
    pub timing: bool,
    pub programs: &'a [Program],
    pub command: &'a [String],
    pub scheduler: bool,
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
    };
    let archive = initramfs::build(guest.kernel, &content)?;
    let folder = tempfile::Builder::new()
        .prefix("plimsoll-vm-")
        .tempdir()
        .map_err(|error| Error::file("create a folder in it", &std::env::temp_dir(), &error))?;
    let initramfs = folder.path().join("initramfs");
    std::fs::write(&initramfs, archive).map_err(|error| Error::file("write it", &initramfs, &error))?;
    let mut boots = 0;
    loop {
        boots += 1;
        let run = Run::start(guest, qemu, folder.path())?;
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

/// One start of QEMU. Dropping it ends the process.
struct Run<'a> {
    child: Child,
    started: Instant,
    folder: &'a Path,
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl<'a> Run<'a> {
    fn start(guest: &Guest, qemu: &Qemu, folder: &'a Path) -> Result<Self> {
        let mut command = command(guest, qemu, folder);
        let place = folder.join("qemu");
        let complaints = File::create(&place).map_err(|error| Error::file("write it", &place, &error))?;
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(complaints);
        // SAFETY: between fork and exec only the system call prctl is made, which is async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                // A guest must not outlive us, whatever ends us.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let child = command
            .spawn()
            .map_err(|error| Error::Machine(format!("QEMU does not start: {error}")))?;
        Ok(Self {
            child,
            started: Instant::now(),
            folder,
        })
    }

    fn follow(
        mut self,
        timeout: Option<Duration>,
        out: &mut dyn Write,
        err: &mut dyn Write,
    ) -> Result<Followed> {
        let mut out_port = Port::new(self.folder, "out");
        let mut err_port = Port::new(self.folder, "err");
        let mut control = Control::new(self.folder);
        loop {
            let gone = self
                .child
                .try_wait()
                .map_err(|error| Error::Machine(format!("QEMU: {error}")))?;
            control.read(self.started)?;
            out_port.pass_on(out)?;
            err_port.pass_on(err)?;
            if let (Some(code), Some(boot)) = (control.code, &control.booted) {
                let kernel_log = std::fs::read(self.folder.join("log")).unwrap_or_default();
                let (boot, boot_guest_s) = (boot.at, boot.guest_s.clone());
                return Ok(Followed::Ended {
                    code,
                    boot,
                    boot_guest_s,
                    kernel_log,
                });
            }
            let since_boot = control
                .booted
                .as_ref()
                .map(|boot| self.started.elapsed() - boot.at);
            match (gone, since_boot) {
                (Some(status), None) => return Ok(Followed::NeverBooted(self.why_gone(status))),
                (Some(status), Some(_)) => {
                    return Err(Error::Guest(format!("the guest died: {}", self.why_gone(status))));
                }
                (None, None) if self.started.elapsed() > BOOT_TIMEOUT => {
                    let what = format!("nothing for {} s", BOOT_TIMEOUT.as_secs());
                    return Ok(Followed::NeverBooted(format!("{what}{}", self.console())));
                }
                (None, Some(since)) if timeout.is_some_and(|timeout| since > timeout) => {
                    return Err(Error::Timeout(format!(
                        "the command did not end within {} s{}",
                        timeout.unwrap_or_default().as_secs(),
                        self.console()
                    )));
                }
                _ => std::thread::sleep(POLL),
            }
        }
    }

    fn why_gone(&self, status: ExitStatus) -> String {
        let complaints = std::fs::read(self.folder.join("qemu")).unwrap_or_default();
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
        let text = std::fs::read(self.folder.join("console")).unwrap_or_default();
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

fn command(guest: &Guest, qemu: &Qemu, folder: &Path) -> Command {
    let mut command = qemu.command();
    let file = |name: &str| folder.join(name).display().to_string();
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
        .args(["-initrd", &file("initramfs")]);
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
        &format!("file:{}", file("console")),
    ]);
    // ioeventfd=off: output is handled in the virtual CPU that makes it, not in another thread at some later moment.
    command.args(["-device", "virtio-serial-pci,ioeventfd=off"]);
    for port in PORTS {
        command.args(["-chardev", &format!("file,id={port},path={}", file(port))]);
        command.args([
            "-device",
            &format!("virtserialport,chardev={port},name=plimsoll.{port}"),
        ]);
    }
    command
}

/// What the guest wrote to one port, read as it grows.
struct Port {
    path: PathBuf,
    file: Option<File>,
}

impl Port {
    fn new(folder: &Path, name: &str) -> Self {
        let path = folder.join(name);
        // Of an earlier start.
        let _ = std::fs::remove_file(&path);
        Self { path, file: None }
    }

    fn read(&mut self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        if let Some(file) = &mut self.file {
            file.read_to_end(&mut bytes)
                .map_err(|error| Error::file("read it", &self.path, &error))?;
        }
        Ok(bytes)
    }

    fn pass_on(&mut self, to: &mut dyn Write) -> Result<()> {
        let bytes = self.read()?;
        if bytes.is_empty() {
            return Ok(());
        }
        let written = to.write_all(&bytes).and_then(|()| to.flush());
        written.map_err(|error| Error::Machine(format!("cannot pass on the guest's output: {error}")))
    }
}

struct Boot {
    at: Duration,
    guest_s: String,
}

/// What the guest's first process says: `ready SECONDS`, then `exit CODE`.
struct Control {
    port: Port,
    text: Vec<u8>,
    booted: Option<Boot>,
    code: Option<u8>,
}

impl Control {
    fn new(folder: &Path) -> Self {
        Self {
            port: Port::new(folder, "control"),
            text: Vec::new(),
            booted: None,
            code: None,
        }
    }

    fn read(&mut self, started: Instant) -> Result<()> {
        self.text.extend(self.port.read()?);
        while let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.text.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            match line.trim_end().split_once(' ') {
                Some(("ready", seconds)) => {
                    self.booted = Some(Boot {
                        at: started.elapsed(),
                        guest_s: seconds.to_string(),
                    });
                }
                Some(("exit", code)) => self.code = code.parse().ok(),
                _ => return Err(Error::Guest(format!("the guest says '{}'", line.trim_end()))),
            }
        }
        Ok(())
    }
}
