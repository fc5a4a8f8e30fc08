// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads bpf/record.bpf.c, attaches it, empties its ring buffer, and knows what it cost.
use crate::error::RecordError;
use crate::wire::{self, Stream};
use libbpf_rs::btf::types::{Func, FuncProto, Ptr, Struct, Typedef};
use libbpf_rs::btf::{Btf, BtfType, ReferencesType};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, OpenObject, RingBufferBuilder, UsdtOpts};
use plimsoll_trace::RequestSpec;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

#[allow(clippy::all)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/record.skel.rs"));
}
use skeleton::{RecordSkel, RecordSkelBuilder};

/// What the program is told before it is loaded.
pub struct Settings {
    /// Id of the only group to record, with all below it; 0: everything.
    pub only_below_id: u64,
    /// Number of the cpu controller's hierarchy.
    pub cpu_hierarchy_id: i32,
    /// Size of the ring buffer in bytes, a power of two and a multiple of the page size.
    pub ring_bytes: u32,
}

pub struct Probes<'obj> {
    skel: RecordSkel<'obj>,
    links: Vec<Link>,
    /// The group whose packets are looked at, while its links are there.
    packets: Option<File>,
    packet_links: Vec<Link>,
    /// Which programs look at sockets; why none does.
    hooks: Result<Hooks, String>,
    /// While this is open, the kernel measures the time spent in BPF programs.
    statistics: Option<OwnedFd>,
}

/// Time spent in the programs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    pub run_time_ns: u64,
    pub runs: u64,
}

/// What the kernel says about one program.
struct ProgramInfo {
    run_time_ns: u64,
    runs: u64,
    /// Times that it was not run because it was running on this CPU already.
    misses: u64,
}

fn unsupported(missing: impl std::fmt::Display) -> RecordError {
    RecordError::Unsupported {
        what: "recording with BPF",
        missing: format!("{missing} (`plimsoll record --sample 10ms` needs no BPF)"),
    }
}

/// Runs `load` with this thread's signals held back: the kernel gives up on a program that it verifies while one is
/// pending, and libbpf after five such attempts.
fn undisturbed<T>(load: impl FnOnce() -> T) -> T {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: the first set is written before it is read, the second by the call that succeeds.
    let held = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0
    };
    let loaded = load();
    if held {
        // SAFETY: `before` was written.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    }
    loaded
}

/// libbpf says "Unknown error 4001" of a script, which many a command is (Debian's pgbench).
fn must_be_elf(path: &Path) -> Result<(), RecordError> {
    let mut magic = [0; 4];
    let wrong = match File::open(path).and_then(|mut file| file.read_exact(&mut magic)) {
        Ok(()) if magic == *b"\x7fELF" => return Ok(()),
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => error.to_string(),
        _ => "not an ELF file".into(),
    };
    Err(RecordError::Input {
        field: "request",
        value: format!("{}: {wrong}", path.display()),
        allowed: "a readable ELF file, program or library".into(),
    })
}

impl<'obj> Probes<'obj> {
    /// Where the programs for sockets cannot be loaded, the others are: [`Probes::without_sockets`] says why.
    pub fn load(
        storage: &'obj mut [MaybeUninit<OpenObject>; 5],
        settings: &Settings,
    ) -> Result<Probes<'obj>, RecordError> {
        let btf = Btf::from_vmlinux()
            .map_err(|e| unsupported(format!("the kernel's BTF (/sys/kernel/btf/vmlinux): {e:#}")))?;
        let [first, second, third, fourth, last] = storage;
        let mut hooks = Hooks::find(&btf);
        let wanted = hooks.as_ref().ok().and_then(|hooks| hooks.datagrams);
        let packets = wanted.map(|_| Writes::Packets);
        // A kernel that traces no functions refuses the programs for these, one without CGROUP_BPF those for packets of groups.
        for (storage, datagrams, streams) in [
            (first, wanted, true),
            (second, packets, true),
            (third, wanted, false),
            (fourth, None, false),
        ] {
            let Ok(found) = &mut hooks else { break };
            (found.datagrams, found.streams) = (datagrams, streams);
            // A refusal is expected: libbpf shall not print the verifier's log.
            let print = libbpf_rs::set_print(None);
            let loaded = Probes::open(storage, settings, &btf, Some(*found));
            libbpf_rs::set_print(print);
            match loaded {
                Ok(skel) => return Ok(Probes::of(skel, hooks)),
                Err(_) if streams || datagrams.is_some() => {}
                Err(e) => hooks = Err(format!("the kernel refuses the programs for sockets: {e}")),
            }
        }
        let skel = Probes::open(last, settings, &btf, None)?;
        Ok(Probes::of(skel, hooks))
    }

    fn of(skel: RecordSkel<'obj>, hooks: Result<Hooks, String>) -> Probes<'obj> {
        Probes {
            skel,
            links: Vec::new(),
            packets: None,
            packet_links: Vec::new(),
            hooks,
            statistics: None,
        }
    }

    fn open(
        storage: &'obj mut MaybeUninit<OpenObject>,
        settings: &Settings,
        btf: &Btf,
        hooks: Option<Hooks>,
    ) -> Result<RecordSkel<'obj>, RecordError> {
        let mut open = RecordSkelBuilder::default()
            .open(storage)
            .map_err(|e| unsupported(format!("the BPF object cannot be opened: {e:#}")))?;
        let rodata = open
            .maps
            .rodata_data
            .as_deref_mut()
            .expect("the program has constants");
        rodata.only_below_id = settings.only_below_id;
        rodata.cpu_hierarchy_id = settings.cpu_hierarchy_id;
        // Packets are handed out by groups of version 2.
        rodata.only_used = settings.only_below_id != 0 && settings.cpu_hierarchy_id != 0;
        rodata.switch_has_state = switch_parameters(btf).is_none_or(|n| n >= 5);
        let has_lags = has_lags(btf);
        rodata.preempt_count_after_rq = preempt_count_after_rq(btf).unwrap_or(0);
        open.maps
            .ring
            .set_max_entries(settings.ring_bytes)
            .map_err(|e| unsupported(format!("the ring buffer: {e:#}")))?;
        for mut prog in open.open_object_mut().progs_mut() {
            let name = prog.name().to_str();
            let needed = match name.and_then(hook_of) {
                Some(hook) => hooks.is_some_and(|hooks| hooks.has(hook)),
                None => name != Some("on_wakeup") || has_lags,
            };
            prog.set_autoload(needed);
        }
        undisturbed(|| open.load()).map_err(|e| {
            unsupported(format!(
                "the kernel refuses the program (root or CAP_BPF and CAP_PERFMON needed): {e:#}"
            ))
        })
    }

    /// Why sockets are not looked at; `None`: they are.
    pub fn without_sockets(&self) -> Option<&str> {
        self.hooks.as_ref().err().map(String::as_str)
    }

    /// Whether datagrams are looked at.
    pub fn has_datagrams(&self) -> bool {
        self.hooks.as_ref().is_ok_and(|hooks| hooks.datagrams.is_some())
    }

    /// Whether streams of HTTP/2 are told apart.
    pub fn has_streams(&self) -> bool {
        self.hooks.as_ref().is_ok_and(|hooks| hooks.streams)
    }

    /// Attaches everything; events flow from here on. `uses_udp`: whether a process that is recorded does; where none does, no
    /// program that runs for each packet of the machine is worth it. `packets`: the group whose packets are looked at, of version 2.
    pub fn attach(
        &mut self,
        request: Option<&RequestSpec>,
        uses_udp: impl Fn() -> bool,
        packets: Option<&Path>,
    ) -> Result<(), RecordError> {
        // SAFETY: a plain system call that returns a file descriptor or an error.
        let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
        if fd >= 0 {
            // SAFETY: the descriptor is new, and no other owner has it.
            self.statistics = Some(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        let attach = |e: libbpf_rs::Error| unsupported(format!("a tracepoint cannot be attached: {e:#}"));
        let progs = &mut self.skel.progs;
        for prog in [
            // Contexts first, so that the first wake-up is already told apart. Ends before beginnings: a timer that
            // was seen to begin only would go on for ever, and every later wake-up would be blamed on it.
            &mut progs.on_hrtimer_exit,
            &mut progs.on_hrtimer_entry,
            &mut progs.on_timer_exit,
            &mut progs.on_timer_entry,
            &mut progs.on_softirq_raise,
            &mut progs.on_mkdir,
            &mut progs.on_attach,
            &mut progs.on_rename,
            &mut progs.on_exit,
            &mut progs.on_fork,
            &mut progs.on_migrate,
            &mut progs.on_waking,
            &mut progs.on_switch,
        ] {
            self.links.push(prog.attach().map_err(attach)?);
        }
        if progs.on_wakeup.autoload() {
            self.links.push(progs.on_wakeup.attach().map_err(attach)?);
        }
        self.attach_streams(packets);
        self.attach_sockets(uses_udp);
        if let Some(request) = request {
            self.attach_request(request)?;
        }
        Ok(())
    }

    /// Before the other programs for sockets: what those see the beginning of is followed from its first packet.
    fn attach_streams(&mut self, packets: Option<&Path>) {
        let wanted = packets.filter(|_| self.has_streams());
        self.packets = wanted.and_then(|dir| File::open(dir).ok());
        let looks = self.packets.is_some() && self.look_at_packets(true);
        if !looks {
            self.packets = None;
        }
        if let Ok(hooks) = &mut self.hooks {
            hooks.streams = looks;
        }
    }

    /// Whether packets are looked at from now on. False: the kernel refuses it.
    pub fn look_at_packets(&mut self, look: bool) -> bool {
        let Some(group) = &self.packets else { return true };
        if look != self.packet_links.is_empty() {
            return true;
        }
        if !look {
            self.say_packets_are_seen(false);
            self.packet_links.clear();
            return true;
        }
        let progs = &mut self.skel.progs;
        for prog in [&mut progs.on_packet_in, &mut progs.on_packet_out] {
            let Ok(link) = prog.attach_cgroup(group.as_raw_fd()) else {
                self.packet_links.clear();
                return false;
            };
            self.packet_links.push(link);
        }
        self.say_packets_are_seen(true);
        true
    }

    /// Only while all are, so that no connection's first packet is missed of which the programs think that they see it.
    fn say_packets_are_seen(&mut self, seen: bool) {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            bss.packets_seen = seen;
        }
    }

    fn attach_sockets(&mut self, uses_udp: impl Fn() -> bool) {
        let Ok(hooks) = self.hooks else { return };
        let first = self.links.len();
        for prog in self.skel.object_mut().progs_mut() {
            let hook = prog.name().to_str().and_then(hook_of);
            if !hook.is_some_and(|hook| hooks.has(hook)) {
                continue;
            }
            if hook == Some(Hook::Streams) || hook == Some(Hook::Datagrams(Writes::Packets)) && !uses_udp() {
                continue;
            }
            match prog.attach() {
                Ok(link) => self.links.push(link),
                Err(e) => {
                    self.hooks = Err(format!(
                        "{} cannot be attached: {e:#}",
                        prog.name().to_string_lossy()
                    ));
                    self.links.truncate(first);
                    return;
                }
            }
        }
    }

    fn attach_request(&mut self, request: &RequestSpec) -> Result<(), RecordError> {
        let progs = &mut self.skel.progs;
        let failed = |what: &str, e: libbpf_rs::Error| RecordError::Input {
            field: "request",
            value: format!("{what} cannot be probed: {e:#}"),
            allowed: "a function symbol or a USDT probe of a readable ELF file".into(),
        };
        match request {
            RequestSpec::Comm { .. }
            | RequestSpec::Tid { .. }
            | RequestSpec::Client { .. }
            | RequestSpec::Process { .. } => {}
            RequestSpec::Uprobe { path, begin, end } => {
                must_be_elf(path)?;
                for (prog, function) in [
                    (&mut progs.on_uprobe_begin, begin),
                    (&mut progs.on_uprobe_end, end),
                ] {
                    let options = libbpf_rs::UprobeOpts {
                        func_name: Some(function.clone()),
                        ..Default::default()
                    };
                    let link = prog
                        .attach_uprobe_with_opts(-1, path, 0, options)
                        .map_err(|e| failed(&format!("{}:{function}", path.display()), e))?;
                    self.links.push(link);
                }
            }
            RequestSpec::Usdt {
                path,
                provider,
                begin,
                end,
            } => {
                must_be_elf(path)?;
                for (prog, name) in [(&mut progs.on_usdt_begin, begin), (&mut progs.on_usdt_end, end)] {
                    let link = prog
                        .attach_usdt_with_opts(-1, path, provider, name, UsdtOpts::default())
                        .map_err(|e| failed(&format!("{}:{provider}:{name}", path.display()), e))?;
                    self.links.push(link);
                }
            }
        }
        Ok(())
    }

    /// Hands every record in the ring buffer to `take`, again and again, each time the returned closure
    /// is called. The closure returns an error only if the ring itself fails.
    pub fn drain_into<'a>(&self, take: impl FnMut(&[u8]) + 'a) -> Result<Drain<'a>, RecordError> {
        let mut take = take;
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&self.skel.maps.ring, move |bytes| {
                take(bytes);
                0
            })
            .map_err(|e| unsupported(format!("the ring buffer: {e:#}")))?;
        Ok(Drain {
            ring: builder
                .build()
                .map_err(|e| unsupported(format!("the ring buffer: {e:#}")))?,
        })
    }

    /// Detaches everything: no event is added after this.
    pub fn detach(&mut self) {
        self.packet_links.clear();
        self.links.clear();
    }

    /// Ends the measurement and returns what the programs cost; `None` if the kernel did not measure.
    pub fn cost(&mut self) -> Option<Cost> {
        self.statistics.take()?;
        let programs = self.programs()?;
        Some(Cost {
            run_time_ns: programs.iter().map(|p| p.run_time_ns).sum(),
            runs: programs.iter().map(|p| p.runs).sum(),
        })
    }

    /// Events that the kernel did not give to a program so far, because it was running already.
    pub fn missed(&self) -> u64 {
        self.programs()
            .map_or(0, |programs| programs.iter().map(|p| p.misses).sum())
    }

    fn programs(&self) -> Option<Vec<ProgramInfo>> {
        let info = |prog: libbpf_rs::Program| {
            let mut info = libbpf_sys::bpf_prog_info::default();
            let mut length = std::mem::size_of_val(&info) as u32;
            // SAFETY: `info` is as long as `length` says, and all zeros asks for no arrays.
            let failed = unsafe {
                libbpf_sys::bpf_obj_get_info_by_fd(
                    prog.as_fd().as_raw_fd(),
                    (&raw mut info).cast(),
                    &mut length,
                )
            };
            (failed == 0).then_some(ProgramInfo {
                run_time_ns: info.run_time_ns,
                runs: info.run_cnt,
                misses: info.recursion_misses,
            })
        };
        let loaded = self.skel.object().progs().filter(|prog| prog.autoload());
        loaded.map(info).collect()
    }

    /// What each CPU has not sent when recording ends.
    pub fn unsent(&self) -> Result<Vec<Unsent>, RecordError> {
        let zero = 0u32.to_ne_bytes();
        let maps = [
            (Stream::Sched, &self.skel.maps.cpu_states),
            (Stream::Sockets, &self.skel.maps.socket_states),
        ];
        let mut unsent = Vec::new();
        for (stream, map) in maps {
            let values = map
                .lookup_percpu(&zero, MapFlags::ANY)
                .map_err(|e| unsupported(format!("the last batches cannot be read: {e:#}")))?
                .unwrap_or_default();
            for (cpu, value) in (0u32..).zip(values) {
                let Some(at) = value.len().checked_sub(wire::BATCH) else {
                    continue;
                };
                let since = value.get(wire::OTHERS_SINCE_AT..wire::OTHERS_SINCE_AT + 8);
                let since = since.map(|b| i64::from_ne_bytes(b.try_into().expect("eight bytes")));
                unsent.push(Unsent {
                    cpu,
                    stream,
                    others_since_ns: since.filter(|&ns| ns > 0 && stream == Stream::Sched),
                    batch: value[at..].to_vec(),
                });
            }
        }
        Ok(unsent)
    }

    /// Single records that found the ring full.
    pub fn singles_lost(&self) -> u64 {
        self.skel
            .maps
            .bss_data
            .as_deref()
            .map_or(0, |bss| bss.singles_lost)
    }

    /// Switches that the kernel did not raise and that were added, with the departed thread's own time.
    pub fn switches_mended(&self) -> u64 {
        self.skel
            .maps
            .bss_data
            .as_deref()
            .map_or(0, |bss| bss.switches_mended)
    }

    /// Ticks in a second, if the kernel's configuration could be read.
    pub fn hz(&self) -> Option<u32> {
        self.skel
            .maps
            .bss_data
            .as_deref()
            .and_then(|bss| u32::try_from(bss.hz).ok())
            .filter(|&hz| hz > 0)
    }
}

/// A batch that was not full when recording ended.
pub struct Unsent {
    pub cpu: u32,
    pub stream: Stream,
    /// Since when the CPU has run nothing but threads that are not recorded.
    pub others_since_ns: Option<i64>,
    /// `struct record_batch`.
    pub batch: Vec<u8>,
}

/// What the programs of record_sockets.h, record_datagrams.h and record_streams.h are for.
#[derive(Clone, Copy, PartialEq)]
enum Hook {
    Always,
    /// The tracepoints of 6.3, or functions in their place.
    Ready(bool),
    /// The tracepoint of 6.16, or a function in its place.
    Send(bool),
    Sendpages,
    Datagrams(Writes),
    /// Attached to a group, not to the kernel.
    Streams,
}

fn hook_of(program: &str) -> Option<Hook> {
    Some(match program {
        "on_state" | "on_resent" => Hook::Always,
        "on_data_ready" | "on_receive" => Hook::Ready(true),
        "on_readable" | "on_tcp_read" | "on_unix_write" | "on_unix_read" => Hook::Ready(false),
        "on_tcp_write" => Hook::Send(true),
        "on_tcp_sendmsg" => Hook::Send(false),
        "on_tcp_sendpages" => Hook::Sendpages,
        "on_udp_write" => Hook::Datagrams(Writes::Functions),
        "on_udp6_write" => Hook::Datagrams(Writes::Functions6),
        "on_packet" => Hook::Datagrams(Writes::Packets),
        "on_packet_in" | "on_packet_out" => Hook::Streams,
        _ => return None,
    })
}

/// Which of them this kernel needs.
#[derive(Clone, Copy)]
struct Hooks {
    ready_tracepoint: bool,
    send_tracepoint: bool,
    sendpages: bool,
    /// `None`: datagrams are not looked at.
    datagrams: Option<Writes>,
    /// Streams of HTTP/2 are told apart.
    streams: bool,
}

/// What tells of datagrams that are written.
#[derive(Clone, Copy, PartialEq)]
enum Writes {
    /// udp_sendmsg.
    Functions,
    /// And udpv6_sendmsg, which a kernel may not have.
    Functions6,
    /// net_dev_queue.
    Packets,
}

impl Hooks {
    /// What is missing, in words, where sockets cannot be looked at.
    fn find(btf: &Btf) -> Result<Hooks, String> {
        let tracepoint = |name: &str| {
            btf.type_by_name::<Typedef>(&format!("btf_trace_{name}"))
                .is_some()
        };
        let function = |name: &str| btf.type_by_name::<Func>(name).is_some();
        let writes = match function("udp_sendmsg") {
            true if function("udpv6_sendmsg") => Writes::Functions6,
            true => Writes::Functions,
            false => Writes::Packets,
        };
        let ready_tracepoint = tracepoint("sk_data_ready") && tracepoint("sock_recv_length");
        let hooks = Hooks {
            ready_tracepoint,
            send_tracepoint: tracepoint("tcp_sendmsg_locked"),
            sendpages: function("do_tcp_sendpages") && !tracepoint("tcp_sendmsg_locked"),
            datagrams: ready_tracepoint.then_some(writes),
            streams: true,
        };
        let mut missing = Vec::new();
        for name in ["inet_sock_set_state", "tcp_retransmit_skb"] {
            missing.extend((!tracepoint(name)).then_some(name));
        }
        if !hooks.ready_tracepoint {
            missing.extend((!tracepoint("tcp_rcv_space_adjust")).then_some("tcp_rcv_space_adjust"));
            for name in ["sock_def_readable", "unix_stream_sendmsg", "unix_stream_recvmsg"] {
                missing.extend((!function(name)).then_some(name));
            }
        }
        if !hooks.send_tracepoint && !function("tcp_sendmsg_locked") {
            missing.push("tcp_sendmsg_locked");
        }
        match missing[..] {
            [] => Ok(hooks),
            _ => Err(format!("this kernel's BTF has no {}", missing.join(", "))),
        }
    }

    fn has(self, hook: Hook) -> bool {
        match hook {
            Hook::Always => true,
            Hook::Ready(tracepoint) => tracepoint == self.ready_tracepoint,
            Hook::Send(tracepoint) => tracepoint == self.send_tracepoint,
            Hook::Sendpages => self.sendpages,
            Hook::Datagrams(Writes::Functions) => {
                matches!(self.datagrams, Some(Writes::Functions | Writes::Functions6))
            }
            Hook::Datagrams(writes) => self.datagrams == Some(writes),
            Hook::Streams => self.streams,
        }
    }
}

/// The ring buffer, ready to be emptied.
pub struct Drain<'a> {
    ring: libbpf_rs::RingBuffer<'a>,
}

impl Drain<'_> {
    pub fn run(&self) -> Result<(), RecordError> {
        self.ring
            .consume()
            .map_err(|e| unsupported(format!("the ring buffer cannot be read: {e:#}")))
    }
}

/// Number of parameters of the tracepoint's type, with its leading context.
fn switch_parameters(btf: &Btf) -> Option<usize> {
    let name: Typedef = btf.type_by_name("btf_trace_sched_switch")?;
    let pointer: Ptr = name.referenced_type().try_into().ok()?;
    let function: FuncProto = pointer.referenced_type().try_into().ok()?;
    Some(function.iter().count())
}

/// Whether the fair class keeps lags, as it does since 6.6: the names are those of that kernel and of later ones.
fn has_lags(btf: &Btf) -> bool {
    let queue: Option<Struct> = btf.type_by_name("cfs_rq");
    let is_one = |name: Option<&OsStr>| name.is_some_and(|name| name == "avg_load" || name == "sum_weight");
    queue.is_some_and(|queue| queue.iter().any(|member| is_one(member.name)))
}

/// Distance in bytes from a CPU's run queue to its preempt count.
fn preempt_count_after_rq(btf: &Btf) -> Option<i64> {
    let section: libbpf_rs::btf::types::DataSec = btf.type_by_name(".data..percpu")?;
    let offset_of = |name: &str| {
        section.iter().find_map(|variable| {
            let var: BtfType = btf.type_by_id(variable.ty)?;
            (var.name()?.to_str()? == name).then_some(variable.offset as i64)
        })
    };
    let rq = offset_of("runqueues")?;
    // By itself in most kernels; from 6.2 to 6.14 behind a pointer in `struct pcpu_hot`.
    let count = offset_of("__preempt_count").or_else(|| offset_of("pcpu_hot").map(|at| at + 8))?;
    Some(count - rq)
}
