// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the rest of the machine wanted of each CPU while the recorded threads ran: competition for a replay.
//!
//! A trace of one cgroup tree holds, of all other threads, in which stretches each CPU ran them, and whether they still
//! wanted it as a stretch ended. Stretches of one group on one CPU are one demand as long as the CPU does not idle in between
//! and the group wanted more: it was preempted, and waited. How such a demand ends says what it is:
//! - It slept, or its thread exited: it had so much to do, and does as much in a replay, sooner or later.
//! - It was there until recording ended, or went while it still wanted the CPU (to another CPU, or its own limit held it
//!   back): it would have taken more, had the recorded threads taken less. In a replay it wants the CPU for as long.
//!
//! A client of a closed loop is not a rival: stretches in which such a client sent are left to `clients.rs`.
use crate::clients::Sent;
use crate::groups::{is_below, Group};
use crate::placement::owed;
use crate::recording::CpuRun;
use plimsoll_sim::Owed;
use plimsoll_trace::Timeline;
use std::collections::BTreeMap;

/// What a group wants of one CPU, in order of time.
#[derive(Clone, Debug)]
pub(crate) struct Rival {
    /// Into [`crate::Program::groups`].
    pub group: u32,
    pub cpu: u32,
    pub demands: Vec<Demand>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    /// Since the recording began.
    pub from_ns: u64,
    pub want: Want,
    /// What it was owed as it took the CPU from a recorded thread; `None`: it did not, or that is not known.
    pub owed: Option<Owed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// So much CPU time.
    Work(u64),
    /// All it can get until then.
    Until(u64),
}

/// Switches follow one another; what is longer is an idle CPU.
const IDLE_NS: i64 = 5_000;

/// A thread that waits for a CPU on which others than the recorded threads run for so long was moved elsewhere.
/// Under equal weights a turn comes each few milliseconds. A heavier one's comes sooner, but not before a tick or two.
const LEFT_NS: u64 = 100_000_000;
const TICKS: u64 = 2;

/// A group that weighs so many times as much as another goes before it whenever it is owed time: its deadline is that much
/// nearer.
const MUCH_HEAVIER: f64 = 10.0;
/// What it was in debt with after its turn has then been paid for sure, beside some others.
const OWED: f64 = 4.0;

/// A demand that is not over.
struct Pending {
    from_ns: i64,
    owed: Option<Owed>,
    work_ns: u64,
    /// When it last had the CPU, for how long, and what others had run there by then.
    last_ns: i64,
    turn_ns: u64,
    ran_ns: u64,
    /// What others have run there since, each so many times as this one weighs as much.
    weighed_ns: f64,
}

impl Pending {
    /// Whether it went elsewhere before `now_ns`: the CPU idled, or ran others all the while, `ran_ns` by now.
    fn has_left(&self, idle: &Idle, now_ns: i64, ran_ns: u64, tick_ns: u64) -> bool {
        let since_ns = ran_ns - self.ran_ns;
        let heavier = since_ns > TICKS * tick_ns && self.weighed_ns > LEFT_NS as f64;
        since_ns > LEFT_NS || heavier || idle.between(self.last_ns, now_ns)
    }

    /// Whether it had done its work before another group's stretch began at `from_ns`. A trace does not show turns of less than half
    /// a millisecond: they are in the stretch beside them. What weighs so much more than the next one, and was
    /// owed time again, would have been picked instead: so it did the rest of its work in such a turn.
    fn has_slept(&self, from_ns: i64, times_as_heavy: f64) -> bool {
        let waited_ns = from_ns - self.last_ns;
        let owed_ns = waited_ns as f64 * times_as_heavy;
        times_as_heavy >= MUCH_HEAVIER && waited_ns > IDLE_NS && owed_ns > OWED * self.turn_ns as f64
    }

    fn slept(&self, start_ns: i64) -> Demand {
        Demand {
            from_ns: since(start_ns, self.from_ns),
            want: Want::Work(self.work_ns.max(1)),
            owed: self.owed,
        }
    }

    fn until(&self, start_ns: i64, end_ns: i64) -> Demand {
        Demand {
            from_ns: since(start_ns, self.from_ns),
            want: Want::Until(since(start_ns, end_ns)),
            owed: self.owed,
        }
    }
}

fn since(start_ns: i64, ns: i64) -> u64 {
    (ns - start_ns).max(0) as u64
}

/// How many times as much as `b` a task of group `a` weighs, where the groups part. One in a group above the other's is a
/// task beside the groups there.
fn times_as_heavy(groups: &[Group], a: u32, b: u32) -> f64 {
    let above = |group: u32| std::iter::successors(Some(group), |&at| groups[at as usize].parent);
    let both = above(a).find(|&at| is_below(groups, b, at));
    let weight = |group: u32| {
        let own = above(group).take_while(|&at| Some(at) != both).last();
        own.map_or(TASK_WEIGHT, |at| f64::from(groups[at as usize].weight))
    };
    weight(a) / weight(b)
}

/// cpu.weight that a task of nice 0 is worth.
const TASK_WEIGHT: f64 = 100.0;

/// `cpus`: see [`crate::recording::runs_by_cpu`]. `group_of`: by the trace's group. `sent`: when clients of closed loops sent,
/// ascending, and which request, if that is known. Also found: the stretches in which they did.
pub(crate) fn find(
    timeline: &Timeline,
    cpus: &[Vec<CpuRun>],
    groups: &[Group],
    group_of: &[u32],
    sent: &[(i64, Option<u32>)],
    tick_ns: u64,
) -> (Vec<Rival>, Vec<Sent>) {
    let mut clients = Vec::new();
    let mut found: BTreeMap<(u32, u32), Vec<Demand>> = BTreeMap::new();
    let idle: Vec<Idle> = cpus.iter().map(|busy| Idle::of(busy)).collect();
    let mut pending: BTreeMap<(u32, u32), Pending> = BTreeMap::new();
    // Of each CPU: what others ran there so far.
    let mut ran_ns = vec![0; cpus.len()];
    let mut add = |at, demand| found.entry(at).or_default().push(demand);
    for run in &timeline.others {
        let cpu = run.cpu as usize;
        let group = run
            .group
            .and_then(|g| group_of.get(g as usize))
            .copied()
            .unwrap_or(0);
        let at = (run.cpu, group);
        let from_ns = (run.end_ns - run.run_ns as i64).max(timeline.start_ns);
        if let Some(gone) = pending.remove(&at) {
            match gone.has_left(&idle[cpu], from_ns, ran_ns[cpu], tick_ns) {
                true => add(at, gone.until(timeline.start_ns, gone.last_ns)),
                false => drop(pending.insert(at, gone)),
            }
        }
        let beside = pending.range((run.cpu, 0)..=(run.cpu, u32::MAX));
        let slept: Vec<_> = beside
            .filter(|((_, other), waits)| {
                *other != group
                    && waits.has_slept(from_ns, times_as_heavy(groups, *other, group))
                    && !idle[cpu].between(waits.last_ns, from_ns)
            })
            .map(|(&at, waits)| (at, waits.slept(timeline.start_ns)))
            .collect();
        for (at, demand) in slept {
            pending.remove(&at);
            add(at, demand);
        }
        let first = sent.partition_point(|&(ns, _)| ns < from_ns);
        let own = sent[first..].iter().take_while(|&&(ns, _)| ns <= run.end_ns);
        let sends = own.clone().next().is_some();
        if sends && !run.wants_more && !pending.contains_key(&at) {
            clients.push(Sent {
                group,
                cpu: run.cpu,
                ran_ns: run.run_ns,
                requests: own.filter_map(|&(_, request)| request).collect(),
            });
            continue;
        }
        // As recording ended it was not known what ran. A rival that a task waits for is counted already.
        if run.group.is_none() && run.wants_more && pending.keys().any(|&(other, _)| other == run.cpu) {
            continue;
        }
        let own = pending.entry(at).or_insert(Pending {
            from_ns,
            owed: run
                .owed
                .and_then(|known| owed(known, &cpus[cpu], group_of, from_ns - 1)),
            work_ns: 0,
            last_ns: from_ns,
            turn_ns: 0,
            ran_ns: 0,
            weighed_ns: 0.0,
        });
        let own_ns = (run.end_ns - from_ns).max(0) as u64;
        ran_ns[cpu] += own_ns;
        own.work_ns += own_ns;
        own.last_ns = run.end_ns;
        own.turn_ns = own_ns;
        own.ran_ns = ran_ns[cpu];
        own.weighed_ns = 0.0;
        if !run.wants_more {
            let demand = own.slept(timeline.start_ns);
            pending.remove(&at);
            add(at, demand);
        }
        for (&(_, waits), other) in pending.range_mut((run.cpu, 0)..=(run.cpu, u32::MAX)) {
            if waits != group {
                other.weighed_ns += own_ns as f64 * times_as_heavy(groups, waits, group);
            }
        }
    }
    for (at, left) in pending {
        let cpu = at.0 as usize;
        let end_ns = match left.has_left(&idle[cpu], timeline.end_ns, ran_ns[cpu], tick_ns) {
            true => left.last_ns,
            false => timeline.end_ns,
        };
        add(at, left.until(timeline.start_ns, end_ns));
    }
    let rivals = found.into_iter().map(|((cpu, group), mut demands)| {
        demands.sort_by_key(|d| d.from_ns);
        Rival { group, cpu, demands }
    });
    (rivals.collect(), clients)
}

/// When a CPU ran nothing.
struct Idle(Vec<(i64, i64)>);

impl Idle {
    fn of(busy: &[CpuRun]) -> Idle {
        let mut last_ns = i64::MIN;
        let mut idle = Vec::new();
        for run in busy {
            if last_ns != i64::MIN && run.start_ns - last_ns > IDLE_NS {
                idle.push((last_ns, run.start_ns));
            }
            last_ns = last_ns.max(run.end_ns);
        }
        if last_ns != i64::MIN {
            idle.push((last_ns, i64::MAX));
        }
        Idle(idle)
    }

    fn between(&self, from_ns: i64, to_ns: i64) -> bool {
        let next = self.0.partition_point(|&(_, end)| end <= from_ns);
        self.0
            .get(next)
            .is_some_and(|&(start, _)| start + IDLE_NS < to_ns)
    }
}

/// Groups that only rivals are in: what limits of their own let them have is what was recorded.
pub(crate) fn only_rivals(
    groups: &[Group],
    rivals: &[Rival],
    threads: impl Iterator<Item = u32>,
) -> Vec<bool> {
    let mark = |at: &mut Vec<bool>, group: u32| {
        let mut above = Some(group);
        while let Some(group) = above {
            at[group as usize] = true;
            above = groups[group as usize].parent;
        }
    };
    let (mut theirs, mut recorded) = (vec![false; groups.len()], vec![false; groups.len()]);
    rivals.iter().for_each(|rival| mark(&mut theirs, rival.group));
    threads.for_each(|group| mark(&mut recorded, group));
    theirs
        .iter()
        .zip(recorded)
        .map(|(&theirs, recorded)| theirs && !recorded)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::{groups, indices};
    use crate::recording::runs_by_cpu;
    use plimsoll_trace::example::{header, MS};
    use plimsoll_trace::OthersRun;

    /// What a neighbour of this weight wants of a CPU on which it was preempted after 1 ms; one of weight 100 ran for 10 ms, then it
    /// ran again for 1 ms.
    fn wanted(weight: u32) -> Vec<Demand> {
        let mut header = header(100 * MS, &[]);
        for (path, weight) in [("/a", weight), ("/b", 100)] {
            header.groups.push(plimsoll_trace::Group {
                path: path.into(),
                weight: Some(weight),
                ..Default::default()
            });
        }
        let of = |path: &str| {
            header
                .groups
                .iter()
                .position(|g| g.path == path)
                .map(|g| g as u32)
        };
        let run = |end_ms: i64, run_ms: i64, path, wants_more| OthersRun {
            end_ns: end_ms * MS,
            run_ns: (run_ms * MS) as u64,
            cpu: 0,
            group: of(path),
            wants_more,
            owed: None,
        };
        let mut timeline = Timeline::build(&header, &[]);
        timeline.others = vec![
            run(1, 1, "/a", true),
            run(11, 10, "/b", true),
            run(12, 1, "/a", false),
        ];
        let groups = groups(&header);
        let group_of = indices(&header, &groups);
        let rivals = find(
            &timeline,
            &runs_by_cpu(&timeline),
            &groups,
            &group_of,
            &[],
            4 * MS as u64,
        );
        let own = rivals
            .0
            .into_iter()
            .find(|r| groups[r.group as usize].path == "/a");
        own.map(|r| r.demands).unwrap_or_default()
    }

    #[test]
    fn what_would_have_been_picked_instead_of_a_lighter_one_had_done_its_work() {
        let waits = Pending {
            from_ns: 0,
            owed: None,
            work_ns: 200_000,
            last_ns: 200_000,
            turn_ns: 200_000,
            ran_ns: 0,
            weighed_ns: 0.0,
        };
        // A recorded thread ran for 1.4 ms, then another group did.
        assert!(waits.has_slept(1_600_000, 100.0));
        assert_eq!(waits.slept(0).want, Want::Work(200_000));
        assert!(!waits.has_slept(1_600_000, 1.0), "equal ones take turns");
        assert!(!waits.has_slept(200_000, 100.0), "it has just had its turn");
        assert!(!waits.has_slept(207_000, 100.0), "that is not paid for");
    }

    #[test]
    fn a_neighbour_that_would_have_had_its_turn_long_before_had_left() {
        let (work, ms) = (|ms: u64| Want::Work(ms * MS as u64), MS as u64);
        let demand = |from_ns, want| Demand {
            from_ns,
            want,
            owed: None,
        };
        assert_eq!(wanted(100), [demand(0, work(2))]);
        assert_eq!(
            wanted(10_000),
            [demand(0, Want::Until(ms)), demand(11 * ms, work(1))]
        );
    }
}
