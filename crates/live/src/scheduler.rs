// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads the BPF program, and is there while it schedules.
use crate::config::Config;
use crate::intf::{self, Group, Knobs, Settings, State};
use crate::machine::CPUS_MAX;
use crate::{probe, Error, Machine, Result};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Link, OpenObject, ProgramInput};
use std::mem::MaybeUninit;

#[allow(
    clippy::all,
    clippy::pedantic,
    dead_code,
    non_camel_case_types,
    non_snake_case
)]
mod skel {
    include!(concat!(env!("OUT_DIR"), "/plimsoll.skel.rs"));
}
use skel::{PlimsollSkel, PlimsollSkelBuilder};

/// Kinds of exit from this on are errors (SCX_EXIT_ERROR).
const EXIT_ERROR: i32 = 1024;
const PAGE: u64 = 4096;

/// Why the scheduler no longer schedules.
#[derive(Debug, Clone)]
pub struct Ended {
    pub is_error: bool,
    pub reason: String,
    pub message: String,
    /// Groups, CPUs and tasks as it failed; empty where it was asked to leave.
    pub dump: String,
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
}

/// What `mend_timers` is called for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mend {
    Timers,
    Fail,
    /// Forgives what CPUs owe, too.
    TookOver,
}

/// A scheduler that is loaded and attached. Dropping it hands the CPUs back to the kernel's own.
pub struct Scheduler<'obj> {
    skel: PlimsollSkel<'obj>,
    state: *const State,
    _link: Link,
    config: Config,
    hears_of_idle: bool,
}

impl<'obj> Scheduler<'obj> {
    /// Whether this kernel tells of changes of cpu.idle. What a group's was as the scheduler was loaded counts until the end
    /// where it does not.
    pub fn hears_of_idle(&self) -> bool {
        self.hears_of_idle
    }

    /// Loads and attaches. `object` is where libbpf keeps its own; it must outlive the scheduler.
    pub fn start(
        machine: &Machine,
        config: &Config,
        object: &'obj mut MaybeUninit<OpenObject>,
    ) -> Result<Self> {
        let refused = |what: &str, error: libbpf_rs::Error| Error::Machine(format!("{what}: {error:#}"));
        let mut open = PlimsollSkelBuilder::default()
            .open(object)
            .map_err(|error| refused("cannot open the scheduler's BPF program", error))?;
        let max_groups = config.max_groups;
        open.maps
            .cpu_timers
            .set_max_entries(machine.nr_cpus as u32)
            .and_then(|()| open.maps.group_timers.set_max_entries(2 * max_groups))
            .and_then(|()| {
                open.maps
                    .arena
                    .set_max_entries(arena_pages(machine.nr_cpus as u64, max_groups))
            })
            .map_err(|error| refused("cannot size the scheduler's maps", error))?;

        let data = open.maps.data_data.as_mut().expect("the program has variables");
        data.nr_cpus = machine.nr_cpus as u32;
        data.nr_llcs = machine.nr_llcs() as u32;
        data.nr_nodes = machine.nr_nodes as u32;
        let rodata = open.maps.rodata_data.as_mut().expect("the program has constants");
        if rodata.sizeof_state != intf::sizes() {
            return Err(Error::Failed(format!(
                "the BPF program's structs are of {:?} bytes, the loader's of {:?}: a build mixed two versions",
                rodata.sizeof_state,
                intf::sizes()
            )));
        }
        rodata.max_groups = max_groups;
        rodata.may_peek = probe::peeks_safely().into();
        // SAFETY: both are bpf/intf.h's live_settings, plain numbers in the same layout.
        rodata.settings = unsafe { std::mem::transmute_copy::<Settings, _>(&config.settings()) };
        let mut next = 0;
        for (llc, cpus) in machine.cpus_of_llcs().iter().enumerate() {
            rodata.llc_first[llc] = next as u16;
            rodata.llc_elements[llc] = cpus.len() as u16;
            for (element, &cpu) in cpus.iter().enumerate() {
                rodata.llc_cpus[next] = cpu as u16;
                rodata.cpu_llc[cpu] = llc as u16;
                rodata.cpu_element[cpu] = element as u16;
                next += 1;
            }
        }
        debug_assert!(next <= CPUS_MAX);
        for (cpu, &sibling) in machine.sibling.iter().enumerate() {
            rodata.cpu_sibling[cpu] = sibling as u16;
        }

        // Linux 6.17 and 6.18 do not have it, and would refuse.
        let hears_of_idle = probe::tells_of_idle();
        if !hears_of_idle {
            open.struct_ops.plimsoll_ops_mut().cgroup_set_idle = std::ptr::null_mut();
        }

        let mut skel = open
            .load()
            .map_err(|error| refused("the kernel does not accept the scheduler's BPF program", error))?;
        let found = skel
            .progs
            .find_symbols
            .test_run(ProgramInput::default())
            .map_err(|error| refused("cannot ask the kernel for its symbols", error))?;
        if found.return_value != 0 {
            return Err(Error::Machine(
                "the kernel does not tell where it has __cpu_active_mask, __cpu_online_mask and asm_exc_page_fault (in /proc/kallsyms), without \
                 which a CPU that goes off line would take its tasks along, and a throttled task might keep a lock; it \
                 does with CAP_SYSLOG and sysctl kernel.kptr_restrict=1 or 0"
                    .to_string(),
            ));
        }
        let link = skel
            .maps
            .plimsoll_ops
            .attach_struct_ops()
            .map_err(|error| refused("the kernel does not attach the scheduler", error))?;
        let state = skel
            .maps
            .bss_data
            .as_ref()
            .expect("the program has variables")
            .S
            .cast_const()
            .cast();
        let scheduler = Self {
            skel,
            state,
            _link: link,
            config: config.clone(),
            hears_of_idle,
        };
        // A failure while existing cgroups and tasks are taken over is not an error of the call: the scheduler
        // has ended by then. Its state may not even be there.
        if let Some(ended) = scheduler.ended() {
            return Err(Error::Machine(format!(
                "the scheduler cannot begin, and the kernel's own goes on: {ended}"
            )));
        }
        scheduler
            .call_mend(Mend::TookOver)
            .map_err(|error| refused("what ran as the CPUs were handed over cannot be forgiven", error))?;
        Ok(scheduler)
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Why it ended; `None`: it schedules.
    pub fn ended(&self) -> Option<Ended> {
        let record = &self
            .skel
            .maps
            .bss_data
            .as_ref()
            .expect("the program has variables")
            .exit_record;
        // SAFETY: a field of a mapped page; the kernel writes it, last of the record.
        let kind = unsafe { std::ptr::read_volatile(&record.kind) };
        (kind != 0).then(|| Ended {
            is_error: kind >= EXIT_ERROR,
            reason: text(&record.reason),
            message: text(&record.message),
            dump: text(
                &self
                    .skel
                    .maps
                    .bss_data
                    .as_ref()
                    .expect("the program has variables")
                    .exit_dump,
            ),
        })
    }

    /// What the kernel's verifier walked for each program: its name, and instructions.
    pub fn verifier_costs(&self) -> Vec<(String, u32)> {
        self.skel
            .object()
            .progs()
            .filter_map(|program| {
                let name = program.name().to_string_lossy().into_owned();
                Some((
                    name,
                    verified_insns(std::os::fd::AsRawFd::as_raw_fd(&std::os::fd::AsFd::as_fd(
                        &program,
                    )))?,
                ))
            })
            .collect()
    }

    pub fn state(&self) -> &State {
        // SAFETY: the arena stays mapped while the skeleton lives. The kernel changes it under us: what is read here
        // are words, each of them a value that was there, and never used as an index or a length.
        unsafe { &*self.state }
    }

    /// The groups of living cgroups, the root first.
    pub fn groups(&self) -> Vec<&Group> {
        let state = self.state();
        let count = state.nr_slots.min(self.config.max_groups) as usize;
        (1..count)
            .filter_map(|slot| {
                // SAFETY: `groups` has max_groups pointers; each is null or a group, whose memory is never unmapped.
                let group = unsafe { state.groups.add(slot).read_volatile().as_ref()? };
                (group.alive != 0).then_some(group)
            })
            .collect()
    }

    /// What was merged since `seen` merges, oldest first, and how many more there were than are kept. Moves `seen` on.
    pub fn merged_since(&self, seen: &mut u32) -> (Vec<intf::Merged>, u32) {
        // SAFETY: a field of a mapped page, which the kernel changes under us.
        let count = unsafe { std::ptr::addr_of!((*self.state).nr_merges).read_volatile() };
        let news = count.wrapping_sub(*seen);
        let kept = news.min(intf::MERGES_KEPT);
        *seen = count;
        let merged = (0..kept).map(|back| {
            let place = count.wrapping_sub(kept - back) % intf::MERGES_KEPT;
            // SAFETY: `merged` has MERGES_KEPT elements of plain numbers.
            unsafe { self.state().merged.add(place as usize).read_volatile() }
        });
        (merged.collect(), news - kept)
    }

    /// Makes the scheduler fail, as an internal error would.
    pub fn fail_on_purpose(&self) -> Result<()> {
        self.call_mend(Mend::Fail)
            .map(drop)
            .map_err(|error| Error::Failed(format!("the scheduler cannot be made to fail: {error}")))
    }

    /// The scheduler's clock, which is not the one that programs can read. `None`: the kernel does not tell.
    pub fn now_ns(&self) -> Option<u64> {
        self.call_mend(Mend::Timers).ok()
    }

    /// Starts timers that the kernel did not start when it was asked to, or that are overdue, and looks again which groups are
    /// main and which are side where a main group went: how many timers ever were overdue. To be called some 20 times a second.
    pub fn mend(&self) -> Result<u32> {
        // SAFETY: a field of a mapped page, which the kernel changes under us.
        if unsafe { std::ptr::addr_of!((*self.state).relink_owed).read_volatile() } != 0 {
            self.set_knobs(&Knobs::default())?;
        }
        self.call_mend(Mend::Timers)
            .map_err(|error| Error::Failed(format!("the scheduler's timers cannot be looked at: {error}")))?;
        Ok(self.state().timers_overdue)
    }

    /// Returns the scheduler's clock.
    fn call_mend(&self, what: Mend) -> libbpf_rs::Result<u64> {
        // bpf/intf.h's live_mend: the clock, whether to fail, whether the CPUs have just been taken over.
        let mut args = [0; 16];
        args[8..12].copy_from_slice(&u32::from(what == Mend::Fail).to_ne_bytes());
        args[12..].copy_from_slice(&u32::from(what == Mend::TookOver).to_ne_bytes());
        let input = ProgramInput {
            context_in: Some(&mut args),
            ..ProgramInput::default()
        };
        self.skel.progs.mend_timers.test_run(input)?;
        Ok(u64::from_ne_bytes(args[..8].try_into().expect("8 bytes")))
    }

    /// Changes whenever a group comes or goes.
    pub fn groups_changed(&self) -> u64 {
        // SAFETY: a field of a mapped page, which the kernel changes under us.
        unsafe { std::ptr::addr_of!((*self.state).groups_changed).read_volatile() }
    }

    /// Hands a cgroup's knobs to the scheduler. False: no such cgroup.
    pub fn set_knobs(&self, knobs: &Knobs) -> Result<bool> {
        let mut knobs = *knobs;
        // SAFETY: Knobs is plain numbers, and lives until the call returns.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(std::ptr::addr_of_mut!(knobs).cast::<u8>(), size_of::<Knobs>())
        };
        let input = ProgramInput {
            context_in: Some(bytes),
            ..Default::default()
        };
        self.skel
            .progs
            .set_knobs
            .test_run(input)
            .map_err(|error| Error::Failed(format!("the scheduler does not take the knobs: {error}")))?;
        Ok(knobs.result == 0)
    }
}

/// An arena is at most 4 GiB.
const ARENA_PAGES_MAX: u64 = 1 << 20;

/// Memory that the arena may grow to. Only what is used is allocated.
fn arena_pages(cpus: u64, max_groups: u32) -> u32 {
    let ring = cpus.next_power_of_two() * 4;
    let group = size_of::<Group>() as u64
        + cpus * (size_of::<plimsoll_policy_sys::Queue>() + size_of::<plimsoll_policy_sys::Balance>()) as u64
        + cpus * intf::NODE_BYTES
        + ring
        + 64;
    let threads = std::fs::read_to_string("/proc/sys/kernel/threads-max")
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok())
        .unwrap_or(1 << 16);
    let tasks = threads.div_ceil(PAGE / size_of::<intf::Task>() as u64);
    let pages =
        u64::from(max_groups) * group.div_ceil(PAGE) + tasks + cpus + u64::from(max_groups) / 512 + 64;
    pages.min(ARENA_PAGES_MAX) as u32
}

fn verified_insns(fd: i32) -> Option<u32> {
    // SAFETY: a zeroed bpf_prog_info asks for nothing but numbers.
    unsafe {
        let mut info: libbpf_sys::bpf_prog_info = std::mem::zeroed();
        let mut length = size_of_val(&info) as u32;
        let failed = libbpf_sys::bpf_prog_get_info_by_fd(fd, &mut info, &mut length);
        (failed == 0).then_some(info.verified_insns)
    }
}

fn text(bytes: &[i8]) -> String {
    let bytes: Vec<u8> = bytes
        .iter()
        .take_while(|&&byte| byte != 0)
        .map(|&byte| byte as u8)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_thousand_groups_on_1024_cpus_fit_into_an_arena() {
        let pages = u64::from(arena_pages(crate::machine::CPUS_MAX as u64, 10_000));
        assert!(pages < ARENA_PAGES_MAX, "{pages} pages");
    }
}
