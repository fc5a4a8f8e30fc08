// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Real boots; minutes, and the network at the first run: `make test-live`.
mod common;
use common::built;
use plimsoll_vm::{find_qemu, obtain, run, Cache, Ended, Error, Guest, Program, Result};
use std::time::Duration;

struct Outcome {
    ended: Result<Ended>,
    out: Vec<u8>,
    err: String,
}

#[derive(Default)]
struct Options<'a> {
    kernel: Option<&'a str>,
    timing: bool,
    programs: &'a [Program],
    timeout: Option<Duration>,
}

fn boot(options: &Options, command: &[&str]) -> Outcome {
    let cache = Cache::open().unwrap();
    let kernel = obtain(
        &cache,
        &options.kernel.unwrap_or("newest").parse().unwrap(),
        false,
        &|_| {},
    )
    .unwrap();
    let qemu = find_qemu(&cache, options.timing, &|_| {}).unwrap();
    let command: Vec<String> = command.iter().map(|word| word.to_string()).collect();
    let guest = Guest {
        kernel: &kernel,
        cpus: "2",
        possible_cpus: None,
        memory: "512M",
        timing: options.timing,
        programs: options.programs,
        command: &command,
        scheduler: false,
        forward: &[],
        drivers: &[],
        timeout: options.timeout.or(Some(Duration::from_secs(60))),
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let ended = run(&guest, &qemu, &mut out, &mut err);
    Outcome {
        ended,
        out,
        err: String::from_utf8_lossy(&err).into_owned(),
    }
}

fn shell(options: &Options, script: &str) -> Outcome {
    boot(options, &["sh", "-c", script])
}

fn text(outcome: &Outcome) -> &str {
    std::str::from_utf8(&outcome.out).unwrap()
}

#[test]
#[ignore = "boots a kernel"]
fn output_comes_back_apart_and_byte_by_byte_with_the_exit_code() {
    let script = r#"
        i=0; while [ $i -lt 256 ]; do printf "\\$(printf %03o $i)"; i=$((i+1)); done
        dd if=/dev/zero bs=1000 count=300 2>/dev/null
        echo "to standard error" >&2
        exit 7"#;
    let outcome = shell(&Options::default(), script);
    let ended = outcome.ended.unwrap();
    assert_eq!(ended.code, 7);
    assert_eq!(outcome.out[..256], (0..=255).collect::<Vec<u8>>()[..]);
    assert_eq!(outcome.out.len(), 256 + 300_000);
    assert_eq!(outcome.err, "to standard error\n");
    assert!(String::from_utf8_lossy(&ended.kernel_log).contains("Linux version"));
}

#[test]
#[ignore = "boots a kernel"]
fn the_guest_has_what_a_linux_user_expects() {
    let script = "cat /sys/fs/cgroup/cgroup.subtree_control; hostname; nproc; id -un; pwd; \
        grep -c CONFIG_HZ=250 /boot/config-$(uname -r); ls -d /sys/kernel/tracing/events /sys/kernel/debug/sched; \
        grep -o 'bpf /sys/fs/bpf' /proc/mounts; ping -c 1 -q localhost | grep -o '1 packets received'; : </dev/ptmx && echo pty";
    let outcome = shell(&Options::default(), script);
    let expected =
        "cpuset cpu\nplimsoll\n2\nroot\n/root\n1\n/sys/kernel/debug/sched\n/sys/kernel/tracing/events\n\
        bpf /sys/fs/bpf\n1 packets received\npty\n";
    assert_eq!(text(&outcome), expected, "{}", outcome.err);
}

#[test]
#[ignore = "boots a kernel"]
fn a_program_of_the_host_runs_with_its_shared_libraries() {
    // busybox has an od too, but not a version.
    let programs = [Program::of("/usr/bin/od".into()).unwrap()];
    let outcome = boot(
        &Options {
            programs: &programs,
            ..Options::default()
        },
        &["od", "--version"],
    );
    assert!(text(&outcome).contains("GNU coreutils"), "{}", outcome.err);
}

#[test]
#[ignore = "boots a kernel"]
fn a_missing_command_and_a_signal_give_the_codes_of_a_shell() {
    assert_eq!(
        boot(&Options::default(), &["no-such-program"])
            .ended
            .unwrap()
            .code,
        127
    );
    assert_eq!(shell(&Options::default(), "kill -9 $$").ended.unwrap().code, 137);
}

#[test]
#[ignore = "boots a kernel"]
fn a_panic_is_told_with_the_kernels_last_words_and_not_tried_again() {
    let outcome = shell(&Options::default(), "echo before; echo c > /proc/sysrq-trigger");
    let Err(Error::Guest { message, console }) = outcome.ended else {
        panic!("{:?}", outcome.ended)
    };
    assert!(String::from_utf8_lossy(&console).contains("sysrq triggered crash"));
    assert!(message.contains("sysrq triggered crash"), "{message}");
    assert_eq!(outcome.out, b"before\n");
}

#[test]
#[ignore = "boots a kernel"]
fn a_command_that_hangs_is_ended() {
    let options = Options {
        timeout: Some(Duration::from_secs(2)),
        ..Options::default()
    };
    assert!(matches!(
        shell(&options, "sleep 1000").ended,
        Err(Error::Timeout { .. })
    ));
}

#[test]
#[ignore = "boots a kernel"]
fn two_runs_in_virtual_time_are_the_same_byte_for_byte() {
    let script = "for i in 1 2 3 4; do (seq 3000 | sort | tail -1) & done; wait; \
        cat /proc/uptime /proc/schedstat /proc/interrupts";
    let options = Options {
        timing: true,
        ..Options::default()
    };
    let (one, two) = (shell(&options, script), shell(&options, script));
    assert_eq!(text(&one), text(&two));
    assert_eq!(one.ended.unwrap().boot_guest_s, two.ended.unwrap().boot_guest_s);
}

#[test]
#[ignore = "boots a kernel"]
fn older_kernels_boot_too() {
    for series in ["6.19", "6.1"] {
        let outcome = boot(
            &Options {
                kernel: Some(series),
                ..Options::default()
            },
            &["uname", "-r"],
        );
        assert!(
            text(&outcome).starts_with(&format!("{series}.")),
            "{series}: {}",
            outcome.err
        );
    }
}

/// The oldest kernel at hand; in a guest where nothing has gathered randomness yet.
#[test]
#[ignore = "boots a kernel"]
fn an_older_kernel_is_recorded() {
    let outcome = shell(
        &Options {
            kernel: Some("6.1"),
            programs: &[built("dist/plimsoll")],
            ..Options::default()
        },
        "plimsoll record --output /tmp/trace --duration 500ms",
    );
    assert!(text(&outcome).contains("lost       no events"), "{}", outcome.err);
    assert_eq!(outcome.ended.unwrap().code, 0, "{}", outcome.err);
}
