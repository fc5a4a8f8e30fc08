// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Can this machine run the scheduler? Each thing that is missing has its own message.
use crate::{Error, Result, CGROUP_ROOT};
use std::fs;
use std::path::Path;

/// The first kernel whose schedulers are told of cpu.max.
const OLDEST: (u32, u32) = (6, 17);

/// The first kernel whose schedulers are told of cpu.idle.
const TELLS_OF_IDLE: (u32, u32) = (6, 19);

/// Whether the running kernel has the callback for changes of cpu.idle. By its version: reading its type information would
/// take a tenth of a second of loading.
pub(crate) fn tells_of_idle() -> bool {
    version(&running()).is_none_or(|found| found >= TELLS_OF_IDLE)
}

/// The first kernel whose scx_bpf_dsq_peek never returns a task that has left the queue.
const PEEKS_SAFELY: (u32, u32) = (7, 1);

/// Whether the scheduler may look at the head of a queue with scx_bpf_dsq_peek. Where the version cannot be read it walks.
pub(crate) fn peeks_safely() -> bool {
    version(&running()).is_some_and(|found| found >= PEEKS_SAFELY)
}

fn running() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().to_string()
}

/// Looks at the running machine, in the order in which a user would have to mend things.
pub fn probe() -> Result<()> {
    let missing = |message: String| Err(Error::Machine(message));
    if !cfg!(target_arch = "x86_64") {
        return missing(format!(
            "the scheduler is for x86-64, and this is a build for {}: `plimsoll agent` holds burst and headroom here",
            std::env::consts::ARCH
        ));
    }
    // SAFETY: takes and changes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return missing(
            "not root: loading a scheduler needs CAP_BPF, CAP_PERFMON, CAP_SYS_ADMIN, CAP_SYS_RESOURCE and CAP_SYSLOG; run it with sudo"
                .into(),
        );
    }
    let release = &running();
    match version(release) {
        Some(found) if found < OLDEST => {
            return missing(format!(
                "kernel {release} is too old: schedulers in BPF are told of CPU limits from Linux {}.{} on",
                OLDEST.0, OLDEST.1
            ));
        }
        _ => {}
    }
    let state = Path::new("/sys/kernel/sched_ext/state");
    let Ok(state) = fs::read_to_string(state) else {
        return missing(format!(
            "kernel {release} has no sched_ext (CONFIG_SCHED_CLASS_EXT): {} is not there",
            state.display()
        ));
    };
    let Ok(types) = fs::read("/sys/kernel/btf/vmlinux") else {
        return missing(format!(
            "kernel {release} has no type information (CONFIG_DEBUG_INFO_BTF)"
        ));
    };
    if let Err(fault) = plimsoll_btf::probe_sched_ext(&types) {
        return missing(format!(
            "kernel {release}: {fault}; another build of it is needed"
        ));
    }
    let controllers = Path::new(CGROUP_ROOT).join("cgroup.controllers");
    match fs::read_to_string(&controllers) {
        Err(_) => return missing(format!("cgroup v2 is not mounted at {CGROUP_ROOT}")),
        Ok(text) if !text.split_whitespace().any(|name| name == "cpu") => {
            return missing(format!(
                "{}: no cpu controller (it is \"{}\")",
                controllers.display(),
                text.trim()
            ));
        }
        Ok(_) => {}
    }
    if state.trim() != "disabled" {
        let name = fs::read_to_string("/sys/kernel/sched_ext/root/ops").unwrap_or_default();
        return missing(format!(
            "another scheduler is loaded: {} ({})",
            name.trim(),
            state.trim()
        ));
    }
    Ok(())
}

/// `7.2.13+deb14-cloud-amd64` is (7, 2).
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_release_names() {
        assert_eq!(version("7.2.13+deb14-cloud-amd64"), Some((7, 2)));
        assert_eq!(version("6.1.0-50-cloud-amd64"), Some((6, 1)));
        assert_eq!(version("strange"), None);
    }
}
