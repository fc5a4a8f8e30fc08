// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Language runtimes that size themselves by the CPU limit, told by the names of the threads that they make, and Go by what its
//! programs say of themselves as they are recorded.
//!
//! What each does is in docs/src/reference/plan.md, "Runtimes that look at the limit", with its source. It is said, and changes no figure:
//! a replay has the threads that were recorded.
use plimsoll_replay::Program;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runtime {
    Jvm,
    Node,
    DotNet,
    /// Go 1.N, this being N.
    Go(u32),
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
fn runtimes(program: &Program) -> Vec<Runtime> {
    let own = |name: &str| {
        let mut threads = program.threads.iter().filter(|t| is_below(program, t.group));
        threads.any(|t| t.name.starts_with(name))
    };
    let known = NAMES
        .iter()
        .filter(|(_, names)| names.iter().any(|name| own(name)));
    let mut known: Vec<Runtime> = known.map(|(runtime, _)| *runtime).collect();
    let mut go: Vec<Runtime> = program
        .go_versions
        .iter()
        .filter_map(|text| go_1(text))
        .map(Runtime::Go)
        .collect();
    go.dedup();
    known.extend(go);
    known
}

/// N of `go1.N`, `go1.N.M`, `go1.Nrc1` or `devel go1.N-...`.
fn go_1(version: &str) -> Option<u32> {
    let (_, rest) = version.split_once("go1.")?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
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

/// What is to be said of the planned group's runtimes under a limit of `cpus`, where the machine has `machine_cpus`.
pub fn said_of_runtimes(program: &Program, cpus: f64, machine_cpus: f64) -> Vec<String> {
    let found = runtimes(program);
    let under = found.iter().map(|runtime| runtime.under(cpus, machine_cpus));
    let own_ns = || {
        let own = program.threads.iter().filter(|thread| {
            is_below(program, thread.group) && NAMES[0].1.iter().any(|name| thread.name.starts_with(name))
        });
        own.map(|thread| thread.work_ns).sum()
    };
    let jvm = found.contains(&Runtime::Jvm);
    let now_and_then = jvm.then(|| jvm_works_now_and_then(own_ns(), program.duration_ns, cpus));
    under.chain(now_and_then.flatten()).collect()
}

/// CPU time of one compilation of a JVM's that is no exception, ns: docs/src/lab/services.md has one of 51 ms.
const COMPILATION_NS: f64 = 50e6;
/// Waits for it that are worth a word.
const COMPILATION_FELT_NS: f64 = 200e6;

/// Its compilers and collector work when they have to, and 15 s need not hold any of that. Nothing where the limit lets it pass.
fn jvm_works_now_and_then(own_ns: u64, recorded_ns: u64, cpus: f64) -> Option<String> {
    let takes_ns = COMPILATION_NS / cpus.max(1e-3);
    (takes_ns > COMPILATION_FELT_NS).then(|| {
        format!(
            "The JVM's compilers and collector took {:.0} ms of the {:.0} s recorded, and work now and then. Under this limit 50 ms of              them, one compilation, take {:.1} s, in which requests wait: a plan from several recordings knows them better",
            own_ns as f64 / 1e6,
            recorded_ns as f64 / 1e9,
            takes_ns / 1e9
        )
    })
}

impl Runtime {
    /// What it makes of a limit of `cpus`, where the machine has `machine_cpus`, and the variable that sets it.
    fn under(self, cpus: f64, machine_cpus: f64) -> String {
        let processors = cpus.ceil().clamp(1.0, machine_cpus);
        let seen = match processors > 1.0 {
            true => format!("{processors} processors"),
            false => "1 processor".into(),
        };
        match self {
            Runtime::Jvm => {
                // The JVM picks the serial collector where it sees fewer than two processors.
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
            // Go 1.25 release notes and the package runtime's "GOMAXPROCS": the limit rounded up, at least 2.
            Runtime::Go(minor @ 25..) => format!(
                "Go 1.{minor} will set GOMAXPROCS to {} under this limit, unless that variable is set or \
                 GODEBUG=containermaxprocs=0. Recorded was that of the limit then in force. To keep it: GOMAXPROCS={machine_cpus}",
                cpus.ceil().max(2.0).min(machine_cpus)
            ),
            Runtime::Go(minor) => format!(
                "Go 1.{minor} keeps GOMAXPROCS at the CPUs of the machine ({machine_cpus}) under a limit, so that as many threads \
                 can use the quota up at once; GOMAXPROCS={processors} sets it to what the limit allows"
            ),
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
    fn go_looks_at_the_limit_from_1_25_on_and_takes_2_at_least() {
        for (version, minor) in [
            ("go1.26.8", Some(26)),
            ("go1.25", Some(25)),
            ("go1.24rc1", Some(24)),
            ("devel go1.27-0a1b", Some(27)),
            ("go2", None),
            ("", None),
        ] {
            assert_eq!(go_1(version), minor, "{version}");
        }
        let said = |minor, cpus| Runtime::Go(minor).under(cpus, 8.0);
        assert!(said(25, 0.4).contains("GOMAXPROCS to 2 "), "{}", said(25, 0.4));
        assert!(said(26, 2.1).contains("GOMAXPROCS to 3 "));
        assert!(Runtime::Go(25).under(0.4, 1.0).contains("GOMAXPROCS to 1 "));
        assert!(said(24, 2.1).contains("machine (8)") && said(24, 2.1).contains("GOMAXPROCS=3"));
    }

    #[test]
    fn what_a_compilation_takes_under_a_small_limit_is_said() {
        let said = jvm_works_now_and_then(700_000, 15_000_000_000, 0.04).unwrap();
        assert!(
            said.contains("took 1 ms of the 15 s") && said.contains("take 1.2 s"),
            "{said}"
        );
        assert_eq!(jvm_works_now_and_then(0, 15_000_000_000, 0.3), None);
    }

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
