// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine of a replay: what it is made of, whatever the recorder calls its parts.
use crate::common::{compile, p, run};
use plimsoll_replay::recorded;
use plimsoll_trace::example;
use plimsoll_trace::Cpu;

#[test]
fn cpus_that_were_off_line_are_no_cpus_of_the_replay() {
    // The open loop on CPU 6 of 0, 2, 4, 6: SMT is off, and numbers beside each other are of one core.
    let (mut header, mut events) = example::open_loop(100);
    let (_, plain) = compile(&header, &events);
    header.machine.cpus = [0, 2, 4, 6]
        .map(|cpu| Cpu {
            cpu,
            core: Some(cpu),
            llc: Some(0),
            node: Some(0),
        })
        .into();
    events.iter_mut().for_each(|e| e.cpu = 2 + 4 * e.cpu);
    let (program, machine) = compile(&header, &events);
    assert_eq!((plain.topology.nr_cpus(), machine.topology.nr_cpus()), (2, 4));
    let cores: Vec<u32> = machine.topology.cpus.iter().map(|c| c.core).collect();
    assert_eq!(cores, [0, 1, 2, 3], "each has one of its own");
    let (before, after) = (recorded(&program), run(&program, &machine, &[]));
    let (a, b) = (p(&before, 99.0), p(&after, 99.0));
    assert!((a - b).abs() < 0.02 * a, "recorded {a} ms, replayed {b} ms");
    // Other tools do not list CPUs, only those on which something happened.
    header.source = "perf-script".into();
    let (_, machine) = compile(&header, &events);
    assert_eq!(machine.topology.nr_cpus(), 7);
}

/// The recorder names a cache or core by its lowest CPU, on line or not.
#[test]
fn machine_is_the_same_whatever_its_cores_caches_and_nodes_are_called() {
    type Place = fn(u32) -> [u32; 3];
    let with = |first: u32, place: Place| {
        let (mut header, mut events) = example::open_loop(100);
        let cpu = |cpu| {
            let [core, llc, node] = place(cpu).map(Some);
            Cpu { cpu, core, llc, node }
        };
        header.machine.cpus = (first..first + 8).map(cpu).collect();
        events.iter_mut().for_each(|e| e.cpu += first);
        let (program, machine) = compile(&header, &events);
        let few = run(&program, &machine, &["machine.cpus=1"]);
        assert!(few.requests.iter().all(|r| r.done));
        let outcome = run(&program, &machine, &[]);
        (machine.topology, outcome)
    };
    let plain = with(0, |cpu| [cpu / 2, cpu / 4, cpu / 4]);
    let caches: Vec<u32> = plain.0.cpus.iter().map(|c| c.llc).collect();
    assert_eq!(caches, [0, 0, 0, 0, 1, 1, 1, 1]);
    let others: [(u32, Place); 3] = [
        (0, |cpu| [cpu / 2 * 2, cpu / 4 * 4, cpu / 4]),
        // The first two caches are off line.
        (8, |cpu| [cpu / 2 * 2, cpu / 4 * 4, cpu / 4]),
        (0, |cpu| {
            [
                u32::MAX - 3 + cpu / 2,
                u32::MAX - 1 + cpu / 4,
                u32::MAX - 1 + cpu / 4,
            ]
        }),
    ];
    for (first, place) in others {
        assert!(with(first, place) == plain, "CPUs from {first}");
    }
    // The only CPU that is left of a smaller machine may be of the cache with the higher number.
    with(0, |cpu| [cpu, 1 - cpu / 4, 0]);
}
