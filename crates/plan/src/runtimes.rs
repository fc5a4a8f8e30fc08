// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Language runtimes that size themselves by the CPU limit, told by the names of the threads that they make.
//!
//! What each does is in docs/src/reference/plan.md, "Runtimes that look at the limit", with its source. It is said, and changes no figure:
//! a replay has the threads that were recorded.
use plimsoll_replay::Program;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    Jvm,
    Node,
    DotNet,
}

/// Names of threads, as the kernel keeps them (15 characters), by which a runtime is known; all that begin so.
const NAMES: [(Runtime, &[&str]); 3] = [
    (
        Runtime::Jvm,
        &[
            "VM Thread",
            "GC Thread#",
            "G1 ",
            "C2 CompilerThre",
            "C1 CompilerThre",
        ],
    ),
    (Runtime::Node, &["libuv-worker", "V8Worker", "DelayedTaskSche"]),
    (Runtime::DotNet, &[".NET "]),
];

/// The runtimes of the planned group's threads.
pub fn runtimes(program: &Program) -> Vec<Runtime> {
    let own = |name: &str| {
        let mut threads = program.threads.iter().filter(|t| is_below(program, t.group));
        threads.any(|t| t.name.starts_with(name))
    };
    let known = NAMES
        .iter()
        .filter(|(_, names)| names.iter().any(|name| own(name)));
    known.map(|(runtime, _)| *runtime).collect()
}

/// Whether a group is the planned one or below it.
pub(crate) fn is_below(program: &Program, group: u32) -> bool {
    let mut at = Some(group);
    while let Some(ix) = at {
        if ix == program.target {
            return true;
        }
        at = program.groups[ix as usize].parent;
    }
    false
}

impl Runtime {
    /// What it makes of a limit of `cpus`, where the machine has `machine_cpus`, and the variable that sets it.
    pub fn under(self, cpus: f64, machine_cpus: f64) -> String {
        let processors = cpus.ceil().clamp(1.0, machine_cpus);
        let seen = match processors > 1.0 {
            true => format!("{processors} processors"),
            false => "1 processor".into(),
        };
        match self {
            Runtime::Jvm => {
                // Ergonomics take the serial collector on what is no server: fewer than two processors.
                let collector = match processors < 2.0 {
                    true => ", and the serial collector unless one is chosen",
                    false => "",
                };
                format!(
                    "The JVM will see {seen} under this limit, and size its collector's, compiler's and common \
                     pool's threads by that{collector}. Recorded were those of the limit then in force. To keep them: \
                     JAVA_TOOL_OPTIONS=-XX:ActiveProcessorCount={machine_cpus}"
                )
            }
            Runtime::Node => "Node.js keeps its threads under a limit: libuv's pool has 4 whatever the limit; \
                              UV_THREADPOOL_SIZE sets it"
                .into(),
            Runtime::DotNet => format!(
                ".NET will count {seen} under this limit, for its thread pool and its collector's heaps. \
                 Recorded were those of the limit then in force. To keep them: DOTNET_PROCESSOR_COUNT={machine_cpus}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_of_a_cpu_is_one_processor_and_no_more_than_the_machine_has_are_seen() {
        let said = Runtime::Jvm.under(0.4, 8.0);
        assert!(
            said.contains("see 1 processor ") && said.contains("serial"),
            "{said}"
        );
        let said = Runtime::DotNet.under(2.1, 8.0);
        assert!(
            said.contains("count 3 processors") && said.contains("COUNT=8"),
            "{said}"
        );
        assert!(Runtime::Jvm.under(9.5, 8.0).contains("see 8 processors"));
    }
}
