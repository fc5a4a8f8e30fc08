// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The groups of a trace: a tree by their paths.
use plimsoll_trace::Header;

/// A group of the trace: its path, and what it was set to.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    pub path: String,
    pub parent: Option<u32>,
    pub quota_us: Option<u64>,
    pub period_us: u64,
    pub burst_us: u64,
    /// Where in a period of the trace's clock its periods began in the recording, ns; `None`: not known.
    pub phase_ns: Option<u64>,
    /// If it stood still as its first period ended: when that was, since the recording began, and what it had run up to
    /// there; else its quota is as if it were unused.
    pub first_ns: Option<(u64, u64)>,
    pub weight: u32,
    /// cpu.idle
    pub idle: bool,
    /// CPU time of its threads and those below, as the trace shows it.
    pub work_ns: u64,
    /// Of it, what they used after the last request had ended.
    pub late_work_ns: u64,
    /// CPU time by the kernel's own count, those below included, if the trace has it.
    pub usage_ns: Option<u64>,
    /// Share of periods with throttling in the recording, if the trace has it.
    pub throttled: Option<f64>,
    /// Time that it was throttled then, summed over CPUs, likewise.
    pub throttled_ns: Option<u64>,
}

/// By how much of it a group's CPU time in the trace may exceed the kernel's own count. From switch to switch there are
/// interrupts in it, and what a hypervisor took, which many kernels charge to no task.
const OVERCOUNT_MAX: f64 = 0.05;
/// The kernel may charge more than the trace shows: on a CPU that was idle from before the switch (some 20 us in a virtual machine,
/// which is 7 to 12% of what a Go service uses that wakes up for some hundred microseconds at a time), and beside other groups. More
/// than this is not believed: of a few milliseconds in all, what was used between the first count and the first event is much.
const CHARGED_MAX: f64 = 1.25;
/// Running threads are charged at ticks; at 100 Hz they are this far apart.
pub(crate) const TICK_NS: f64 = 10_000_000.0;

impl Group {
    /// The last part of its path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// In words, if the trace shows more CPU time of it than the kernel counted.
    ///
    /// Less does not contradict it: the kernel's count is read before the probes come and after they are gone, and has
    /// the threads that were not recorded.
    pub fn doubt(&self) -> Option<String> {
        let (shown, counted) = (self.work_ns as f64, self.usage_ns? as f64);
        (shown > counted * (1.0 + OVERCOUNT_MAX) + TICK_NS).then(|| {
            format!(
                "CPU time of {}: {:.3} s in the trace, {:.3} s by the kernel's own count",
                self.path,
                shown / 1e9,
                counted / 1e9
            )
        })
    }

    /// What the kernel charged to limits for each ns of CPU time in the trace: by its own count, which leaves out what a
    /// hypervisor took, and interrupts in many kernels, and has what comes before a switch shows in the trace. A group
    /// that needs nearly all of its quota queues by that.
    pub(crate) fn charged(&self) -> f64 {
        let (shown, counted) = (self.work_ns as f64, self.usage_ns.map(|ns| ns as f64));
        match counted {
            Some(counted) if shown > 0.0 && self.doubt().is_none() => (counted / shown).min(CHARGED_MAX),
            _ => 1.0,
        }
    }
}

/// A path with one slash before each part.
pub(crate) fn normal(path: &str) -> String {
    let parts: String = path
        .split('/')
        .filter(|p| !p.is_empty())
        .flat_map(|p| ["/", p])
        .collect();
    if parts.is_empty() {
        "/".into()
    } else {
        parts
    }
}

/// A group by its path.
pub(crate) fn find(groups: &[Group], path: &str) -> Option<u32> {
    let found = groups.binary_search_by(|group| group.path.as_str().cmp(path));
    found.ok().map(|ix| ix as u32)
}

/// Where each group of the header is.
pub(crate) fn indices(header: &Header, groups: &[Group]) -> Vec<u32> {
    let paths = header.groups.iter().map(|g| normal(&g.path));
    paths.map(|path| find(groups, &path).unwrap_or(0)).collect()
}

/// Groups of the header and everything above them, in order of path: parents first, the root at 0.
pub(crate) fn groups(header: &Header) -> Vec<Group> {
    let mut paths: Vec<String> = vec!["/".into()];
    for group in &header.groups {
        let mut path = String::new();
        for part in group.path.split('/').filter(|p| !p.is_empty()) {
            path = format!("{path}/{part}");
            paths.push(path.clone());
        }
    }
    paths.sort();
    paths.dedup();
    let parent_of = |path: &str| {
        let above = path.rsplit_once('/').map_or("", |(above, _)| above);
        let above = if above.is_empty() { "/" } else { above };
        paths
            .binary_search_by(|p| p.as_str().cmp(above))
            .ok()
            .map(|ix| ix as u32)
    };
    // In the same order; of two with one path the first counts.
    let mut known: Vec<(String, &plimsoll_trace::Group)> =
        header.groups.iter().map(|g| (normal(&g.path), g)).collect();
    known.sort_by(|a, b| a.0.cmp(&b.0));
    let find = |path: &str| {
        let at = known.partition_point(|(known, _)| known.as_str() < path);
        known.get(at).filter(|(known, _)| known == path).map(|(_, g)| *g)
    };
    paths
        .iter()
        .map(|path| {
            let known = find(path);
            let weight = known.and_then(|g| g.weight);
            let usage = |g: &plimsoll_trace::Group| {
                g.stat_end
                    .as_ref()?
                    .usage_ns?
                    .checked_sub(g.stat_start.as_ref()?.usage_ns?)
            };
            let throttled = |g: &plimsoll_trace::Group| {
                let (start, end) = (g.stat_start.as_ref()?, g.stat_end.as_ref()?);
                let periods = end.nr_periods?.checked_sub(start.nr_periods?)?;
                let throttled = end.nr_throttled?.checked_sub(start.nr_throttled?)?;
                (periods > 0).then(|| throttled as f64 / periods as f64)
            };
            let throttled_ns = |g: &plimsoll_trace::Group| {
                let (start, end) = (g.stat_start.as_ref()?, g.stat_end.as_ref()?);
                end.throttled_ns?.checked_sub(start.throttled_ns?)
            };
            Group {
                path: path.clone(),
                parent: if path == "/" { None } else { parent_of(path) },
                quota_us: known.and_then(|g| g.quota_us).filter(|_| path != "/"),
                period_us: known.and_then(|g| g.period_us).unwrap_or(100_000),
                burst_us: known.and_then(|g| g.burst_us).unwrap_or(0),
                phase_ns: None,
                first_ns: None,
                // The kernel shows cpu.weight as 0 while cpu.idle is 1.
                weight: weight.filter(|&weight| weight > 0).unwrap_or(100),
                idle: weight == Some(0),
                work_ns: 0,
                late_work_ns: 0,
                usage_ns: known.and_then(usage),
                throttled: known.and_then(throttled),
                throttled_ns: known.and_then(throttled_ns),
            }
        })
        .collect()
}

/// Does it to a group and all above it.
pub(crate) fn upwards(groups: &mut [Group], group: u32, mut each: impl FnMut(&mut Group)) {
    let mut above = Some(group);
    while let Some(at) = above {
        each(&mut groups[at as usize]);
        above = groups[at as usize].parent;
    }
}

/// Whether a group's CPU time is enough, beside that of all, for it to matter in a plan: 1 of 100. Below that are a pod's
/// sandbox, or a shell that looked after something.
pub(crate) fn counts(work_ns: u64, all_ns: u64) -> bool {
    work_ns > 0 && work_ns.saturating_mul(100) >= all_ns
}

/// Groups above this one.
pub(crate) fn depth(groups: &[Group], group: u32) -> usize {
    std::iter::successors(groups[group as usize].parent, |&at| groups[at as usize].parent).count()
}

/// Whether `group` is `target`, or somewhere below it.
pub(crate) fn is_below(groups: &[Group], group: u32, target: u32) -> bool {
    let mut at = Some(group);
    while let Some(group) = at {
        if group == target {
            return true;
        }
        at = groups[group as usize].parent;
    }
    false
}
