// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What differs between kernels on one machine: how the fair class slices time, and how it looks for idle CPUs.
use crate::machine::MachineFile;
use crate::switches::{CgroupModeChoice, WakeSearchChoice};
use plimsoll_sim::{Costs, Enforce, Mainline, Policy, WakeSearch};
use schemars::JsonSchema;
use serde::Deserialize;

/// The fair class of one kernel version. What is left out stays as the scenario has it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KernelTable {
    /// How long a task runs before the next is considered, in microseconds; with `latency_us` the least of it
    /// (minimum granularity).
    #[schemars(range(min = 1, max = 1_000_000))]
    pub slice_us: Option<u64>,
    /// Time in which every task of a queue runs once, in microseconds; 0: slices are constant.
    #[schemars(range(max = 1_000_000))]
    pub latency_us: Option<u64>,
    /// A woken task preempts when it is at least this far ahead, in microseconds.
    #[schemars(range(max = 1_000_000))]
    pub wakeup_granularity_us: Option<u64>,
    /// How far before the queue's clock a woken task may be placed, in microseconds.
    #[schemars(range(max = 1_000_000))]
    pub sleeper_credit_us: Option<u64>,
    /// `slice_us`, `latency_us`, `wakeup_granularity_us` and `sleeper_credit_us` are multiplied by 1 + log2(CPUs, at most
    /// 8), as the kernel does. Default false.
    #[serde(default)]
    pub scale_with_cpus: bool,
    /// A CPU whose idle times are shorter than this on average does not search for work as it runs dry, in microseconds.
    #[schemars(range(max = 1_000_000))]
    pub newidle_idle_us: Option<u64>,
    /// New-idle searches throw dice: a CPU that runs dry searches as often as that has found something. Default false.
    #[serde(default)]
    pub newidle_dice: bool,
    /// A CPU that has work takes more only from one that has had too much for a while (Linux 5.5 and later). Default
    /// false.
    #[serde(default)]
    pub busy_pull_overloaded: bool,
    /// Slices end by a timer, not at the next tick. Default false.
    #[serde(default)]
    pub slice_timer: bool,
    /// What a group's weight is for. Default: mainline's of the version that is asked for, "concur" from 7.3 on.
    pub cgroup_mode: Option<CgroupModeChoice>,
    /// How the CPU of a waking task is found. Default "all".
    pub wake_search: Option<WakeSearchChoice>,
    /// See the machine's costs: what each busy CPU adds to coming back from idle. Differs between kernels on virtual
    /// machines that count instructions.
    #[schemars(range(max = 1_000_000))]
    pub idle_exit_per_busy_ns: Option<u64>,
    /// Where these are known from.
    pub source: Option<String>,
}

impl KernelTable {
    /// Sets what the kernel has; limits are enforced at ticks, as the fair class does it.
    pub fn apply(&self, nr_cpus: u32, policy: &mut Policy, costs: &mut Costs) {
        let factor = if self.scale_with_cpus {
            1 + u64::from(nr_cpus.clamp(1, 8).ilog2())
        } else {
            1
        };
        let set = |given: Option<u64>, into: &mut u64| {
            if let Some(us) = given {
                *into = us * 1000 * factor;
            }
        };
        policy.enforce = Enforce::Tick;
        let fair = &mut policy.core.fair;
        set(self.slice_us, &mut fair.slice_ns);
        set(self.latency_us, &mut fair.latency_ns);
        set(self.wakeup_granularity_us, &mut fair.wakeup_gran_ns);
        set(self.sleeper_credit_us, &mut fair.sleeper_credit_ns);
        // The kernel does not compare CPUs' clocks.
        fair.pull_ns = 0;
        fair.as_kernel = 1;
        policy.newidle_dice = self.newidle_dice;
        policy.busy_pull_overloaded = self.busy_pull_overloaded;
        policy.slice_timer = self.slice_timer;
        if let Some(choice) = self.cgroup_mode {
            policy.cgroup_mode = choice.mode();
        }
        policy.wake_search = self.wake_search.map_or(WakeSearch::All, WakeSearchChoice::search);
        if let Some(us) = self.newidle_idle_us {
            costs.newidle_idle_ns = us * 1000;
        }
        if let Some(ns) = self.idle_exit_per_busy_ns {
            costs.idle_exit_per_busy_ns = ns;
        }
    }
}

/// A kernel that a scenario asks for, and the one of the machine's model that is simulated for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    pub asked: String,
    pub taken: String,
}

impl Kernel {
    /// What has to be said where the one taken is of another series; `None`: it is not.
    pub fn note(&self) -> Option<String> {
        stand_in(&self.asked, Some(&self.taken))
    }
}

/// That a machine's model does not have the kernel asked for, and what is taken instead. `None`: it has its series.
pub fn stand_in(asked: &str, taken: Option<&str>) -> Option<String> {
    match taken {
        Some(taken) if is_series(asked, taken) => None,
        Some(taken) => {
            let mode = |version| Mainline::of(version).cgroup_mode();
            let weights = match mode(asked) == mode(taken) {
                true => String::new(),
                false => format!(", with the meaning of weights of {asked}"),
            };
            Some(format!(
                "kernel {asked}: not in the machine's model; simulated as {taken}{weights}"
            ))
        }
        None => Some(format!(
            "kernel {asked}: the machine's model has none; simulated as the scenario's default"
        )),
    }
}

/// 7.2.13 is of series 7.2; 6.12 is not of series 6.1.
fn is_series(version: &str, series: &str) -> bool {
    version
        .strip_prefix(series)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl MachineFile {
    /// The kernel of this version, or the newest one before it, or the oldest: its name and table. None: the model
    /// names no kernels. From the first part that is not a number on, as in "6.1.0-13-amd64", nothing counts.
    pub fn kernel(&self, version: &str) -> Option<(&str, &KernelTable)> {
        let wanted = numbers(version);
        let before = |name: &&String| numbers(name) <= wanted;
        let oldest = self.kernel.keys().min_by_key(|name| numbers(name));
        let name = self
            .kernel
            .keys()
            .filter(before)
            .max_by_key(|name| numbers(name))
            .or(oldest)?;
        self.kernel.get(name).map(|table| (name.as_str(), table))
    }

    /// The kernels that the model names, the oldest first.
    pub(crate) fn kernels(&self) -> String {
        let mut names: Vec<&str> = self.kernel.keys().map(String::as_str).collect();
        names.sort_by_key(|name| numbers(name));
        names.join(", ")
    }
}

/// Whether this is two or three numbers with dots, as in "6.1" or "6.1.55". Anything else would be taken for one older
/// than all others.
pub(crate) fn is_version(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    let number = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit()) && part.parse::<u32>().is_ok();
    (2..=3).contains(&parts.len()) && parts.iter().all(number)
}

fn numbers(version: &str) -> Vec<u32> {
    version.split('.').map_while(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::{is_series, stand_in};
    use crate::{read, MachineFile, Tree};

    #[test]
    fn a_point_release_belongs_to_its_series_and_a_longer_number_does_not() {
        assert!(is_series("6.1", "6.1") && is_series("7.2.13", "7.2"));
        assert!(!is_series("6.12", "6.1") && !is_series("5.10", "6.1"));
    }

    #[test]
    fn a_stand_in_says_what_it_has_of_the_one_asked_for() {
        let said = |asked, taken| stand_in(asked, Some(taken)).unwrap();
        assert_eq!(
            said("6.19", "6.12"),
            "kernel 6.19: not in the machine's model; simulated as 6.12"
        );
        assert_eq!(
            said("7.3", "7.2"),
            "kernel 7.3: not in the machine's model; simulated as 7.2, with the meaning of weights of 7.3"
        );
        assert_eq!(stand_in("7.3.4", Some("7.3")), None);
    }

    #[test]
    fn a_kernel_between_two_known_ones_is_the_older() {
        let text = "[topology]\ncores_per_llc = 2\n[kernel.\"6.1\"]\nslice_us = 750\n[kernel.\"6.12\"]\nslice_us = 700\n";
        let tree = Tree::parse("m.toml", text).unwrap();
        let file: MachineFile = read(&tree).unwrap();
        let name = |version| file.kernel(version).unwrap().0;
        assert_eq!(
            [name("5.10"), name("6.1"), name("6.9"), name("6.12"), name("7.2")],
            ["6.1", "6.1", "6.1", "6.12", "6.12"]
        );
    }
}
