//! A recorded trace as a workload: the same work, causes and effects, on another machine or under other limits.
//!
//! A task stands for each recorded thread and runs its bursts. A burst starts when its cause happens (the recorded
//! waker gets that far, or a moment or a delay has passed: [`Pace`]), computes what was computed, and wakes at the same
//! points of its work whom it woke. Waiting for a CPU is not replayed: it comes out of the simulation.
//!
//! A task takes causes in the order in which they happen, as a server takes requests in the order in which they come.
//! That order may differ from the recorded one. No burst is lost and none starts before its cause, so that nothing
//! waits for ever: a cause is always another burst's doing, and that burst was started before it.
//!
//! Known limits. What a thread found ready without blocking (data in a socket) left no trace, so it does not wait for it
//! in a replay either. Recorded work is as long as it was: caches that a limit leaves cold are not modelled. Threads
//! that change their group stay in the one in which they worked most.
use plimsoll_sim::{
    Behaviour, ChannelId, Config, Context, CounterId, GroupId, GroupSpec, LatencyId, Limits, Step, TaskSpec,
    WorkloadId,
};
use plimsoll_trace::{Group, Header, MarkAt, Pace, Requests, ThreadTimeline, Timeline, Wake};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

/// A trace, compiled once; it can be added to any number of configurations.
#[derive(Clone)]
pub struct Replay {
    program: Arc<Program>,
    /// As recorded, in the order of the trace.
    pub groups: Vec<Group>,
    /// Length of the recorded window.
    pub duration_ns: u64,
}

/// Where a replay put things.
#[derive(Clone, Debug)]
pub struct Replayed {
    pub workload: WorkloadId,
    /// Latencies of requests, from their beginning to their last end.
    pub requests: LatencyId,
    /// Requests that began.
    pub begun: CounterId,
    /// The group of each recorded group; an index into [`Replay::groups`].
    pub groups: Vec<GroupId>,
}

struct Program {
    threads: Vec<Thread>,
    /// How many ends each request has.
    request_ends: Vec<u32>,
}

struct Thread {
    name: String,
    /// Index of the recorded group in which it worked most.
    group: Option<usize>,
    /// A kernel thread of one CPU.
    pinned_to: Option<u32>,
    bursts: Vec<Burst>,
    points: Vec<Point>,
    /// Bursts that start at a moment, in order of time.
    timed: Vec<(u64, u32)>,
}

struct Burst {
    work_ns: u64,
    /// Into [`Thread::points`].
    points: Range<u32>,
    /// The request that its wake-up begins; `NONE`: none does.
    begins: u32,
    /// The next burst starts this long after this one; `NEVER`: it does not.
    next_after_ns: u64,
}

const NONE: u32 = u32::MAX;
const NEVER: u64 = u64::MAX;

/// Something that a burst does on the way.
struct Point {
    at_work_ns: u64,
    act: Act,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    Begin { request: u32 },
    Wake { thread: u32, burst: u32 },
    End { request: u32 },
}

impl Replay {
    /// Compiles a trace. `requests` are those of the same timeline.
    pub fn new(header: &Header, timeline: &Timeline, requests: &Requests) -> Replay {
        let mut threads: Vec<Thread> = Vec::with_capacity(timeline.threads.len());
        let mut points: Vec<Vec<(u32, Point)>> = Vec::with_capacity(timeline.threads.len());
        for recorded in &timeline.threads {
            threads.push(Thread::new(timeline, recorded));
            points.push(recorded.wakes.iter().map(wake_point).collect());
        }
        let mut request_ends = vec![0; requests.len()];
        for mark in &requests.marks {
            let burst = &mut threads[mark.thread as usize].bursts[mark.burst as usize];
            let act = match mark.begins {
                true => Act::Begin {
                    request: mark.request,
                },
                false => Act::End {
                    request: mark.request,
                },
            };
            request_ends[mark.request as usize] += u32::from(!mark.begins);
            let at_work_ns = match mark.at {
                MarkAt::Wake => {
                    burst.begins = mark.request;
                    continue;
                }
                MarkAt::Work { ns } => ns.max(0) as u64,
                MarkAt::End => burst.work_ns,
            };
            points[mark.thread as usize].push((mark.burst, Point { at_work_ns, act }));
        }
        for (thread, points) in threads.iter_mut().zip(points) {
            thread.place_points(points);
        }
        Replay {
            program: Arc::new(Program {
                threads,
                request_ends,
            }),
            groups: header.groups.clone(),
            duration_ns: (timeline.end_ns - timeline.start_ns) as u64,
        }
    }

    /// Bursts of all threads.
    pub fn bursts(&self) -> u64 {
        self.program.threads.iter().map(|t| t.bursts.len() as u64).sum()
    }

    /// Recorded CPU time of all threads.
    pub fn work_ns(&self) -> u64 {
        self.program
            .threads
            .iter()
            .flat_map(|t| &t.bursts)
            .map(|b| b.work_ns)
            .sum()
    }

    /// Adds the recorded groups, with the limits that `limits` gives for each, and all threads.
    pub fn build(&self, config: &mut Config, mut limits: impl FnMut(usize, &Group) -> Limits) -> Replayed {
        let mut groups: Vec<GroupId> = Vec::new();
        for (i, group) in self.groups.iter().enumerate() {
            let id = if group.path == "/" {
                GroupId::ROOT
            } else {
                let mut spec = GroupSpec::new(group.path.clone(), self.parent(&groups, &group.path));
                spec.limits = limits(i, group);
                spec.cpu_weight = group.weight.unwrap_or(100).clamp(1, 10_000);
                config.add_group(spec)
            };
            groups.push(id);
        }
        let workload = config.add_workload("replay");
        let requests = config.add_latency(workload, "requests");
        let begun = config.add_counter(workload, "begun");
        let channels: Vec<_> = self
            .program
            .threads
            .iter()
            .map(|_| config.add_channel(u32::MAX))
            .collect();
        let state = Arc::new(State {
            channels,
            begun_ns: self
                .program
                .request_ends
                .iter()
                .map(|_| AtomicU64::new(0))
                .collect(),
            ends_left: self
                .program
                .request_ends
                .iter()
                .map(|&n| AtomicU32::new(n))
                .collect(),
            requests,
            begun,
        });
        let nr_cpus = config.machine.topology.nr_cpus();
        for (ix, thread) in self.program.threads.iter().enumerate() {
            if thread.bursts.is_empty() {
                continue;
            }
            let group = thread.group.map_or(GroupId::ROOT, |g| groups[g]);
            let player = Player::new(self.program.clone(), state.clone(), ix);
            let mut task = TaskSpec::new(group, workload, thread.name.clone(), player);
            task.affinity = thread
                .pinned_to
                .filter(|&cpu| cpu < nr_cpus)
                .map(|cpu| std::iter::once(cpu).collect());
            config.add_task(task);
        }
        Replayed {
            workload,
            requests,
            begun,
            groups,
        }
    }

    /// The nearest group above `path` that is in the trace; groups come in order of path, parents first.
    fn parent(&self, groups: &[GroupId], path: &str) -> GroupId {
        let above = |other: &Group| {
            path.strip_prefix(other.path.as_str())
                .is_some_and(|rest| rest.starts_with('/'))
                && other.path != "/"
        };
        let nearest = self.groups[..groups.len()]
            .iter()
            .enumerate()
            .filter(|(_, g)| above(g));
        nearest
            .max_by_key(|(_, g)| g.path.len())
            .map_or(GroupId::ROOT, |(i, _)| groups[i])
    }
}

/// The limits that a group had when it was recorded.
pub fn recorded_limits(group: &Group) -> Limits {
    let period_ns = group.period_us.unwrap_or(100_000) * 1000;
    match group.quota_us {
        Some(quota_us) => Limits {
            burst_ns: group.burst_us.unwrap_or(0) * 1000,
            ..Limits::quota(quota_us * 1000, period_ns)
        },
        None => Limits::UNLIMITED,
    }
}

impl Thread {
    fn new(timeline: &Timeline, recorded: &ThreadTimeline) -> Thread {
        let pace = timeline.pace(recorded);
        let mut thread = Thread {
            name: format!("{} {}", recorded.comm, recorded.tid),
            group: busiest_group(recorded),
            pinned_to: cpu_of_kernel_thread(recorded),
            bursts: Vec::with_capacity(recorded.bursts.len()),
            points: Vec::new(),
            timed: Vec::new(),
        };
        for (i, burst) in recorded.bursts.iter().enumerate() {
            if let Pace::At { ns } = pace[i] {
                thread.timed.push((ns.max(0) as u64, i as u32));
            }
            let next_after_ns = match pace.get(i + 1) {
                Some(Pace::After { ns }) => *ns as u64,
                _ => NEVER,
            };
            let work_ns = burst.work_ns.max(0) as u64;
            thread.bursts.push(Burst {
                work_ns,
                points: 0..0,
                begins: NONE,
                next_after_ns,
            });
        }
        thread.timed.sort_unstable();
        thread
    }

    /// Sorts the points by burst and by work, and gives each burst its own.
    fn place_points(&mut self, mut points: Vec<(u32, Point)>) {
        points.sort_by_key(|(burst, point)| (*burst, point.at_work_ns, point.act));
        let mut next = 0;
        for (i, burst) in self.bursts.iter_mut().enumerate() {
            let first = next;
            while points.get(next).is_some_and(|(of, _)| *of == i as u32) {
                next += 1;
            }
            burst.points = first as u32..next as u32;
        }
        self.points = points.into_iter().map(|(_, point)| point).collect();
    }
}

fn wake_point(wake: &Wake) -> (u32, Point) {
    let act = Act::Wake {
        thread: wake.thread,
        burst: wake.burst,
    };
    (
        wake.by_burst,
        Point {
            at_work_ns: wake.at_work_ns.max(0) as u64,
            act,
        },
    )
}

fn busiest_group(recorded: &ThreadTimeline) -> Option<usize> {
    // Few threads have more than two groups in their life.
    let mut work: Vec<(u32, i64)> = Vec::new();
    for burst in &recorded.bursts {
        let Some(group) = burst.group else { continue };
        match work.iter_mut().find(|(g, _)| *g == group) {
            Some((_, sum)) => *sum += burst.work_ns,
            None => work.push((group, burst.work_ns)),
        }
    }
    work.into_iter()
        .max_by_key(|&(group, sum)| (sum, std::cmp::Reverse(group)))
        .map(|(group, _)| group as usize)
}

/// Kernel threads of one CPU carry its number: `ksoftirqd/0`, `kworker/1:2H`. They are their own process, or one whose
/// number was not recorded, and never ran elsewhere.
fn cpu_of_kernel_thread(recorded: &ThreadTimeline) -> Option<u32> {
    let (_, number) = recorded.comm.rsplit_once('/')?;
    let cpu = number.split(':').next()?.parse().ok()?;
    let alone = recorded.tgid.is_none_or(|tgid| tgid == recorded.tid);
    (alone && recorded.runs.iter().all(|run| run.cpu == cpu)).then_some(cpu)
}

/// What the tasks of one run share.
struct State {
    channels: Vec<ChannelId>,
    begun_ns: Vec<AtomicU64>,
    ends_left: Vec<AtomicU32>,
    requests: LatencyId,
    begun: CounterId,
}

impl State {
    fn begin(&self, request: u32, at_ns: u64, ctx: &mut Context) {
        self.begun_ns[request as usize].store(at_ns, Relaxed);
        ctx.count(self.begun, 1);
    }

    fn end(&self, request: u32, ctx: &mut Context) {
        if self.ends_left[request as usize].fetch_sub(1, Relaxed) == 1 {
            let begun_ns = self.begun_ns[request as usize].load(Relaxed);
            ctx.record(self.requests, ctx.now_ns() - begun_ns);
        }
    }
}

/// One thread of the trace, in one run.
struct Player {
    program: Arc<Program>,
    state: Arc<State>,
    thread: usize,
    /// The burst under way, or `NONE`; its work done, and its next point.
    burst: u32,
    done_ns: u64,
    point: u32,
    /// Bursts that have not begun.
    left: u32,
    next_timed: usize,
    /// Bursts that begin at a time that an earlier burst has set.
    delayed: Vec<(u64, u32)>,
    /// The last step was a receive.
    received: bool,
}

impl Player {
    fn new(program: Arc<Program>, state: Arc<State>, thread: usize) -> Player {
        let left = program.threads[thread].bursts.len() as u32;
        Player {
            program,
            state,
            thread,
            burst: NONE,
            done_ns: 0,
            point: 0,
            left,
            next_timed: 0,
            delayed: Vec::new(),
            received: false,
        }
    }

    fn start(&mut self, burst: u32) {
        self.burst = burst;
        self.done_ns = 0;
        self.point = self.program.threads[self.thread].bursts[burst as usize]
            .points
            .start;
        self.left -= 1;
    }

    /// The next step of the burst under way; `None` when it is complete.
    fn work(&mut self, ctx: &mut Context) -> Option<Step> {
        let thread = &self.program.threads[self.thread];
        let burst = &thread.bursts[self.burst as usize];
        while self.point < burst.points.end {
            let point = &thread.points[self.point as usize];
            if point.at_work_ns > self.done_ns {
                let ns = point.at_work_ns - self.done_ns;
                self.done_ns = point.at_work_ns;
                return Some(Step::Compute { ns });
            }
            self.point += 1;
            match point.act {
                Act::Begin { request } => self.state.begin(request, ctx.now_ns(), ctx),
                Act::End { request } => self.state.end(request, ctx),
                Act::Wake { thread, burst } => {
                    let begins = self.program.threads[thread as usize].bursts[burst as usize].begins;
                    if begins != NONE {
                        self.state.begin(begins, ctx.now_ns(), ctx);
                    }
                    let channel = self.state.channels[thread as usize];
                    return Some(Step::Send {
                        channel,
                        value: u64::from(burst),
                    });
                }
            }
        }
        if burst.work_ns > self.done_ns {
            let ns = burst.work_ns - self.done_ns;
            self.done_ns = burst.work_ns;
            return Some(Step::Compute { ns });
        }
        if burst.next_after_ns != NEVER {
            self.delayed
                .push((ctx.now_ns() + burst.next_after_ns, self.burst + 1));
        }
        self.burst = NONE;
        None
    }

    /// The earliest burst that a time starts.
    fn due(&self) -> Option<(u64, u32)> {
        let timed = self.program.threads[self.thread]
            .timed
            .get(self.next_timed)
            .copied();
        self.delayed.iter().copied().chain(timed).min()
    }

    fn take_due(&mut self, due: (u64, u32)) {
        match self.delayed.iter().position(|&d| d == due) {
            Some(i) => drop(self.delayed.swap_remove(i)),
            None => self.next_timed += 1,
        }
    }
}

impl Behaviour for Player {
    fn next(&mut self, ctx: &mut Context) -> Step {
        if std::mem::take(&mut self.received) {
            if let Some(burst) = ctx.received() {
                self.start(burst as u32);
            }
        }
        loop {
            if self.burst != NONE {
                if let Some(step) = self.work(ctx) {
                    return step;
                }
            }
            let channel = self.state.channels[self.thread];
            match self.due() {
                Some(due @ (at_ns, burst)) if at_ns <= ctx.now_ns() => {
                    self.take_due(due);
                    let begins = self.program.threads[self.thread].bursts[burst as usize].begins;
                    if begins != NONE {
                        self.state.begin(begins, at_ns, ctx);
                    }
                    self.start(burst);
                }
                Some((at_ns, _)) => {
                    self.received = true;
                    return Step::ReceiveUntil { channel, at_ns };
                }
                None if self.left == 0 => return Step::Exit,
                None => {
                    self.received = true;
                    return Step::Receive { channel };
                }
            }
        }
    }
}
