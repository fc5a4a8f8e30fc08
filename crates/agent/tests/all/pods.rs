// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A pod's group has the limits of its containers together, as the kubelet writes them, and is to hold none of their bursts.
use crate::made_up::{Kernel, Memory};
use plimsoll_agent::{Agent, File, Files, Journal, Settings};
use plimsoll_live::KnobValues;
use std::path::{Path, PathBuf};

const POD: &str = "/kubepods/burstable/pod5a3b";
const MS: u64 = 1_000_000;

fn container(digit: char) -> PathBuf {
    Path::new(POD).join(digit.to_string().repeat(64))
}

fn burst(burst_us: u64) -> Option<KnobValues> {
    Some(KnobValues {
        burst_us: Some(burst_us),
        ..KnobValues::default()
    })
}

struct Node {
    kernel: Kernel,
    agent: Agent<Kernel, Memory>,
    now_ns: u64,
}

impl Node {
    fn of(rules: &str) -> Self {
        let kernel = Kernel::default();
        let settings = Settings::read(Path::new("a.toml"), rules).unwrap();
        let journal = Journal::open(Memory::default(), "boot").unwrap();
        let mut agent = Agent::new(kernel.clone(), journal, settings, false);
        agent.step(MS).unwrap();
        Self {
            kernel,
            agent,
            now_ns: MS,
        }
    }

    /// A pod of one container, whose limit it has and which asks for a burst.
    fn with_a_pod(burst_us: u64) -> (Self, PathBuf) {
        let (mut node, a) = (Self::of(""), container('a'));
        node.kernel.add_at(Path::new(POD), "30000 100000");
        node.kernel.add_at(&a, "30000 100000");
        node.agent.wish(&a, burst(burst_us));
        node.step();
        (node, a)
    }

    /// What it says.
    fn step(&mut self) -> Vec<String> {
        self.now_ns += 100 * MS;
        self.agent.step(self.now_ns).unwrap()
    }

    /// cpu.max and cpu.max.burst.
    fn holds(&self, group: &Path) -> (String, String) {
        let read = |file| self.kernel.read(group, file).unwrap();
        (read(File::Max), read(File::Burst))
    }
}

fn text(max: &str, burst: &str) -> (String, String) {
    (max.into(), burst.into())
}

/// What the kernel tells of a write that it took.
fn takes(node: &Node, group: &Path, max: &str) {
    node.kernel.set(group, File::Max, max).expect("room was made");
    let written = (group.to_path_buf(), File::Max);
    node.kernel.1.borrow_mut().written.insert(written);
}

#[test]
fn a_pod_saves_and_spends_what_its_containers_do_together() {
    let mut node = Node::of("");
    let (pod, a, b) = (Path::new(POD), container('a'), container('b'));
    node.kernel.add_at(pod, "50000 100000");
    node.kernel.add_at(&a, "30000 100000");
    node.agent.wish(&a, burst(20_000));
    node.agent.bring_now(&a, node.now_ns).unwrap();
    assert_eq!(node.holds(&a), text("30000 100000", "19999"));
    assert_eq!(
        node.holds(pod),
        text("50000 100000", "19999"),
        "before the container runs"
    );
    node.kernel.add_at(&b, "20000 100000");
    node.agent.wish(&b, burst(10_000));
    node.step();
    assert_eq!(node.holds(pod), text("50000 100000", "29999"));
    // The one that holds the pod's namespaces has no limit.
    node.kernel.add_at(&container('c'), "max 100000");
    node.agent.wish(&container('c'), burst(5_000));
    node.step();
    assert_eq!(node.holds(pod), text("50000 100000", "29999"));
    node.kernel.remove(&a);
    node.step();
    assert_eq!(node.holds(pod), text("50000 100000", "9999"));
    node.agent.wish(&b, None);
    node.agent.wish(&container('c'), None);
    node.step();
    assert_eq!(node.holds(pod), text("50000 100000", "0"));
}

#[test]
fn rules_for_containers_count_for_their_pods_too_and_for_nothing_else_above() {
    let mut node = Node::of("[[group]]\ncgroup = \"/**/aaaa*\"\nburst_us = 20000\n");
    let (pod, a) = (Path::new(POD), container('a'));
    let plain = Path::new("/docker");
    let other = plain.join("a".repeat(64));
    for (group, max) in [
        (pod, "30000 100000"),
        (&a, "30000 100000"),
        (plain, "30000 100000"),
        (&other, "30000 100000"),
    ] {
        node.kernel.add_at(group, max);
    }
    node.step();
    for (group, burst) in [(pod, "19999"), (&a, "19999"), (plain, "0"), (&other, "19999")] {
        assert_eq!(node.holds(group).1, burst, "{}", group.display());
    }
}

#[test]
fn a_limit_of_the_pod_alone_has_the_burst_of_one_container() {
    let mut node = Node::of("[[group]]\ncgroup = \"/kubepods/**/pod*/*\"\nburst_us = 20000\n");
    node.kernel.add_at(Path::new(POD), "30000 100000");
    for digit in ['a', 'b'] {
        node.kernel.add_at(&container(digit), "max 100000");
    }
    node.step();
    assert_eq!(node.holds(Path::new(POD)), text("30000 100000", "19999"));
}

#[test]
fn a_burst_above_the_quota_is_lent_to_the_pod_as_well() {
    let (mut node, a) = Node::with_a_pod(100_000);
    let pod = Path::new(POD);
    for _ in 0..25 {
        node.step();
    }
    assert_eq!(node.holds(&a), text("129999 100000", "0"));
    assert_eq!(node.holds(pod), text("129999 100000", "0"));
    node.agent.end().unwrap();
    assert_eq!(node.kernel.0.borrow()[pod], text("30000 100000", "0"));
}

#[test]
fn a_resize_below_the_burst_goes_through_at_the_pod_too() {
    let (mut node, a) = Node::with_a_pod(20_000);
    let pod = Path::new(POD);
    assert!(node.kernel.set(pod, File::Max, "10000 100000").is_err());
    node.step();
    // The kubelet writes the container's limit through the runtime, which tells of it, and then the pod's.
    node.agent.make_room(&a, Some(10_000), node.now_ns).unwrap();
    node.kernel.set(&a, File::Max, "10000 100000").unwrap();
    node.agent.bring_now(&a, node.now_ns).unwrap();
    node.step();
    takes(&node, pod, "10000 100000");
    for _ in 0..25 {
        node.step();
    }
    assert_eq!(
        node.holds(pod),
        text("29999 100000", "0"),
        "lent from here on, at once"
    );
    // To more: the pod's first, which the container's follows.
    takes(&node, pod, "40000 100000");
    node.agent.make_room(&a, Some(40_000), node.now_ns).unwrap();
    node.kernel.set(&a, File::Max, "40000 100000").unwrap();
    node.agent.bring_now(&a, node.now_ns).unwrap();
    node.step();
    assert_eq!(node.holds(pod), text("40000 100000", "19999"));
    assert_eq!(node.holds(&a), text("40000 100000", "19999"));
}

#[test]
fn without_a_word_of_the_runtime_the_kubelets_second_try_goes_through_at_both() {
    let (mut node, a) = Node::with_a_pod(20_000);
    let pod = Path::new(POD);
    assert!(node.kernel.set(&a, File::Max, "10000 100000").is_err());
    node.kernel.1.borrow_mut().tried.push((a.clone(), File::Max));
    // The kubelet tries again after 15 s, the pod's right after the container's.
    for _ in 0..150 {
        node.step();
    }
    takes(&node, &a, "10000 100000");
    takes(&node, pod, "10000 100000");
    for _ in 0..25 {
        node.step();
    }
    assert_eq!(node.holds(&a), text("29999 100000", "0"));
    assert_eq!(node.holds(pod), text("29999 100000", "0"));
}

#[test]
fn a_quota_that_is_lowered_without_a_word_makes_room_above() {
    let mut node = Node::of("");
    let (pod, a, b) = (Path::new(POD), container('a'), container('b'));
    node.kernel.add_at(pod, "50000 100000");
    node.kernel.add_at(&a, "30000 100000");
    node.kernel.add_at(&b, "20000 100000");
    node.agent.wish(&a, burst(20_000));
    node.agent.wish(&b, burst(30_000));
    node.step();
    assert_eq!(node.holds(pod), text("50000 100000", "49999"));
    takes(&node, &b, "10000 100000");
    node.step();
    takes(&node, pod, "40000 100000");
    for _ in 0..40 {
        node.step();
    }
    assert_eq!(node.holds(pod), text("89999 100000", "0"));
}

/// What the next step says of limits above.
fn said_of_limits_above(node: &mut Node) -> Vec<String> {
    let said = node.step();
    said.into_iter()
        .filter(|line| line.contains("above it"))
        .collect()
}

#[test]
fn a_limit_above_that_is_no_pods_and_holds_a_burst_is_said() {
    let mut node = Node::of("");
    let (slice, service) = (Path::new("/web.slice"), Path::new("/web.slice/api"));
    node.kernel.add_at(slice, "50000 100000");
    node.kernel.add_at(service, "40000 100000");
    node.agent.wish(service, burst(30_000));
    let said = said_of_limits_above(&mut node);
    assert_eq!(
        said,
        ["warning: /web.slice/api: 20000 us of its burst of 30000 us are held by a limit above it: /web.slice has 50000 us in \
          100000 us and a burst of 0 us; a burst there lets them through"]
    );
    // The burst is there for what is let through.
    assert_eq!(node.holds(service), text("40000 100000", "29999"));
    assert_eq!(said_of_limits_above(&mut node), [""; 0], "once");
    // With a burst of its own it lets all of it through, without a limit as well.
    node.agent.wish(slice, burst(20_000));
    node.step();
    takes(&node, slice, "45000 100000");
    let said = said_of_limits_above(&mut node);
    assert!(said[0].contains(": 5000 us of its burst"), "{said:?}");
    takes(&node, slice, "max 100000");
    assert!(said_of_limits_above(&mut node).is_empty());
    takes(&node, slice, "45000 100000");
    assert_eq!(said_of_limits_above(&mut node).len(), 1, "said anew");
}
